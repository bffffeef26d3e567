"""Filling a template and writing the page.

Part of `limbeck.reporting.pages`. A page carries its style and drawings inside and asks the network for
nothing, so it can be mailed, archived and opened anywhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from limbeck.records import write_whole

# The drawings' marker shapes, centred on (17, 6), for the legends.
_SHAPES = {
    "o": "M13.4 6a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0-7.2 0z",
    "s": "M13.8 2.8h6.4v6.4h-6.4z",
    "D": "M17 1.8l4.2 4.2l-4.2 4.2l-4.2-4.2z",
    "^": "M17 1.8l4.2 7.6h-8.4z",
    "v": "M17 10.2l4.2-7.6h-8.4z",
    "P": "M15.6 2h2.8v2.6h2.6v2.8h-2.6v2.6h-2.8v-2.6h-2.6v-2.8h2.6z",
    "X": "M14 1.8l3 2.6l3-2.6l1.2 1.2l-2.6 3l2.6 3l-1.2 1.2l-3-2.6l-3 2.6l-1.2-1.2l2.6-3l-2.6-3z",
    "*": "M17 1.2l1.4 3.2l3.4 .3l-2.6 2.3l.8 3.4l-3-1.8l-3 1.8l.8-3.4l-2.6-2.3l3.4-.3z",
}


def fill(template: str, **values: Any) -> str:
    """A page of one of limbeck's templates; values that the template misses are an error."""
    environment = Environment(
        loader=PackageLoader("limbeck.reporting.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(marker=_marker, **values)


def write_page(page: str, out_path: str | Path, name: str) -> Path:
    """Write a page to a file, or under `name` into a folder; returns the file's path."""
    path = Path(out_path)
    path = path / name if path.is_dir() or not path.suffix else path
    write_whole(path, page)
    return path


def _marker(shape: str, colour: str) -> Markup:
    return Markup('<path d="{}" fill="{}"/>').format(_SHAPES[shape], colour)
