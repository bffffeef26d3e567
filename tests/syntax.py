"""The syntax of limbeck's own files, parsed once in a process."""

from __future__ import annotations

import ast
import functools
from pathlib import Path


@functools.cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a file, itself first."""
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))))
