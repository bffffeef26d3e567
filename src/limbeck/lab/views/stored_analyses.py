"""What analyses have found, kept beside a run and read again for its page. Part of `limbeck.lab.views`."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from limbeck.lab.views.analysis_views import VIEWS, analysis_sections
from limbeck.records.facts import finite
from limbeck.report.sections import PAGE_PARTS, PagePart, Section
from limbeck.support.errors import LimbeckError
from limbeck.support.files import write_whole
from limbeck.support.plain import read_json, read_text

log = logging.getLogger(__name__)

ANALYSES_FOLDER = "analysis"
"""Of a run's folder, where analyses are kept."""


def write_numbers(
    path: Path, name: str, settings: Mapping[str, Any], parts: Mapping[str, Any]
) -> None:
    """Write what an analysis found as JSON, whole or not at all."""
    adapter = _adapter(name)
    plain = {part: finite(adapter.dump_python(one)) for part, one in parts.items()}
    content = {"analysis": name, "settings": dict(settings), "parts": plain}
    write_whole(path, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_numbers(path: Path) -> dict[str, Any]:
    """What an analysis found of each part, from the file that `write_numbers` wrote.

    Raises:
        LimbeckError: it is no such file.
    """
    content = read_json(read_text(path), str(path))
    try:
        adapter = _adapter(content["analysis"])
        return {part: adapter.validate_python(one) for part, one in content["parts"].items()}
    except (TypeError, KeyError, AttributeError, ValidationError) as error:
        raise LimbeckError(
            f"{path} holds no analysis ({type(error).__name__})", "analyze the run again"
        ) from None


def read_asked(path: Path, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """As `read_numbers`, where they were found with these settings; None where they were not, or there are none."""
    if not path.is_file():
        return None
    try:
        content = read_json(read_text(path), str(path))
        same = isinstance(content, dict) and content.get("settings") == dict(settings)
        return read_numbers(path) if same else None
    except LimbeckError:
        return None


def _adapter(name: str) -> TypeAdapter[Any]:
    numbers: Any = VIEWS.get(name).numbers
    return TypeAdapter(numbers)


def stored_analyses(run: Path) -> dict[str, dict[str, Any]]:
    """By name what was found of a run and kept beside it; what cannot be read is said and left out."""
    found = {}
    for name in VIEWS:
        path = run / ANALYSES_FOLDER / f"{name}.json"
        if path.is_file():
            try:
                found[name] = read_numbers(path)
            except LimbeckError as error:
                log.warning("%s", error)
    return found


def _sections(run: Path) -> list[Section]:
    return analysis_sections(stored_analyses(run))


PAGE_PARTS.register("analyses")(
    PagePart(tuple(f"{ANALYSES_FOLDER}/*.{kind}" for kind in ("json", "svg", "png")), _sections)
)
