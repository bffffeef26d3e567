"""An exported folder as a predictor: texts in, logits out, with no torch model in memory."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from limbeck.embedding.folder import SENTENCE, TextPrompts
from limbeck.runtimes.manifest import ExportManifest, read_export
from limbeck.runtimes.sessions import GraphSession, open_export
from limbeck.support.errors import LimbeckError, check_choice
from limbeck.tasks import get_task_type


class OnnxPredictor:
    """Logits of an exported model for texts or images, read as they were at the gate.

    Attributes:
        manifest: the content of `export.json`.
        session: the opened model file.
        processor: its tokenizer, or image processor.

    Example:
        ```python
        predictor = limbeck.OnnxPredictor.load("runs/student/exported/onnx-int8")
        (logits,) = predictor.logits(["who wrote it?"])  # (C,)
        ```
    """

    def __init__(self, manifest: ExportManifest, session: GraphSession, processor: Any) -> None:
        self.manifest = manifest
        self.session = session
        self.processor = processor

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        runtime: str | None = None,
        threads: int | None = None,
        check: bool = True,
    ) -> "OnnxPredictor":
        """Open an exported folder.

        Args:
            folder: what `limbeck export` wrote.
            runtime: `onnxruntime` or `openvino`; by default the one the folder was measured with.
            threads: how many compute one pass; by default the runtime's own choice.
            check: hold every file against its checksum first.

        Raises:
            LimbeckError: no exported folder, damaged files, or a runtime that is not installed.
        """
        manifest = read_export(folder, check=check)
        session = open_export(manifest, runtime=runtime, threads=threads)
        reading = get_task_type(manifest.kind).reads
        return cls(manifest, session, reading.load(str(manifest.folder)))

    @property
    def labels(self) -> list[str]:
        """Class names in id order; none of a regression."""
        return self.manifest.labels

    def logits_of(self, batch: Mapping[str, Any]) -> np.ndarray:
        """Logits of one encoded batch (arrays or CPU tensors): (B, C) or (B, N, C), float32."""
        return self.session.logits(batch)

    def encode(self, *columns: Sequence[Any], prompt: str = SENTENCE) -> dict[str, np.ndarray]:
        """A padded batch of one text column, or of two that form pairs; images for image models.

        Args:
            columns: one list of texts, or two of equal length.
            prompt: for embedding models, the type of the texts: sentence, query or passage.

        Raises:
            LimbeckError: another number of columns than the model was trained on, or an unknown prompt.
        """
        if len(columns) != self.manifest.texts:
            raise LimbeckError(
                f"the exported model reads {self.manifest.texts} text column(s), not {len(columns)}",
                "give one list for each",
            )
        check_choice("prompt", prompt, TextPrompts._fields)
        if self.manifest.prompts:
            before = self.manifest.prompts[prompt]
            columns = tuple([before + text for text in column] for column in columns)
        if self.manifest.kind == "image":
            return dict(self.processor(list(columns[0]), return_tensors="np"))
        settings: dict[str, Any] = {"truncation": True, "max_length": self.manifest.max_length}
        if self.manifest.kind == "tokens":
            settings["is_split_into_words"] = True
        if self.manifest.kind == "spans":
            settings["truncation"] = "only_second"
        given = [list(column) for column in columns]
        return dict(self.processor(*given, padding=True, return_tensors="np", **settings))

    def logits(
        self, *columns: Sequence[Any], batch_size: int = 32, prompt: str = SENTENCE
    ) -> list[np.ndarray]:
        """Logits of each row, in order: (C,) of a class or number, (N, C) of a row's N tokens.

        Args:
            columns: one list of texts (of word lists for token classification, of images for
                images), or two of equal length.
            batch_size: rows of one pass.
            prompt: as `encode` takes it.

        Raises:
            LimbeckError: as `encode`.
        """
        found: list[np.ndarray] = []
        for part in _parts(columns, batch_size):
            batch = self.encode(*part, prompt=prompt)
            logits = self.session.logits(batch)
            mask = batch.get("attention_mask")
            if logits.ndim < 3 or mask is None:
                found.extend(logits)
            else:
                found.extend(row[real.astype(bool)] for row, real in zip(logits, mask, strict=True))
        return found


def _parts(columns: Sequence[Sequence[Any]], size: int) -> Iterator[list[Sequence[Any]]]:
    lengths = {len(column) for column in columns}
    if len(lengths) > 1:
        raise LimbeckError(
            f"the columns have {' and '.join(map(str, sorted(lengths)))} rows",
            "give lists of equal length",
        )
    for start in range(0, max(lengths, default=0), size):
        yield [column[start : start + size] for column in columns]
