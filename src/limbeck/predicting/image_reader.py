"""Images: files by their paths, or the bytes of files. Part of `limbeck.predicting`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from limbeck.predicting.class_reader import ClassReader
from limbeck.predicting.row_model import RowModel
from limbeck.tasks.task_like import Rows


class ImageReader(ClassReader):
    """An image classifier's rows; hidden states alone may be asked for too."""

    expects = "an image: a file's path, its bytes, or {bytes, path} as the datasets library has it"

    def reads(self, value: Any, column: int) -> bool:
        """A path, bytes, or both as the datasets library has it."""
        if isinstance(value, dict):
            return bool(value.get("bytes") or value.get("path"))
        return isinstance(value, str | bytes)

    def encode(self, model: RowModel, texts: Sequence[list[Any]]) -> tuple[Rows, int]:
        """Each image at the processor's size."""
        (images,) = texts
        return super().encode(model, [[_picture(image) for image in images]])


def _picture(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return {"bytes": value.get("bytes"), "path": value.get("path")}
    if isinstance(value, bytes):
        return {"bytes": value, "path": None}
    return {"bytes": None, "path": value}
