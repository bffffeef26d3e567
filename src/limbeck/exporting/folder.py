"""The exported folder: written beside its place, and renamed once it is whole."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.exporting.snippet import SNIPPET_FILE, modules_of, snippet
from limbeck.records import RECORD_NAME
from limbeck.runtimes import EXPORT_NAME, EXPORTS, ExportManifest, is_export
from limbeck.support.errors import LimbeckError
from limbeck.support.files import (
    at_home,
    checksums,
    file_name,
    one_error_for_a_full_disk,
    put_in_place,
)


def default_place(model: str, format: str) -> Path:
    """`RUN/exported/FORMAT` of a run; else `exported/NAME-FORMAT` in the working folder."""
    folder = at_home(model)
    if (folder / RECORD_NAME).is_file():
        return folder / EXPORTS / format
    return Path(EXPORTS) / f"{file_name(Path(model).name)}-{format}"


def refuse_occupied(place: Path, *, overwrite: bool) -> None:
    """Raise LimbeckError where something lies that is to stay."""
    if not place.exists() or (place.is_dir() and not any(place.iterdir())):
        return
    if not is_export(place):
        raise LimbeckError(
            f"out: {place} is not empty and holds no exported model",
            "choose another folder with --out",
        )
    if not overwrite:
        raise LimbeckError(
            f"out: {place} holds an exported model already",
            "choose another folder with --out, or pass --overwrite to replace it",
        )


@contextmanager
def folder_in_work(place: Path) -> Iterator[Path]:
    """A folder beside `place` to write into; it is gone afterwards unless it was renamed.

    What a killed export left there is removed first.
    """
    part = place.with_name(f".{place.name}.part")
    with one_error_for_a_full_disk(place):
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        try:
            yield part
        finally:
            shutil.rmtree(part, ignore_errors=True)


def finish_folder(
    part: Path, place: Path, manifest: ExportManifest, model: PreTrainedModel, processor: Any
) -> ExportManifest:
    """Write what stands beside the model's file, and give the folder its name.

    Returns the manifest as it was written, with checksums.
    """
    model.config.save_pretrained(part)
    if manifest.generation is not None:
        model.generation_config.save_pretrained(part)
    if isinstance(processor, PreTrainedTokenizerBase):
        processor.model_max_length = manifest.max_length
    processor.save_pretrained(part)
    _name_as_older_releases_do(part / "tokenizer_config.json")
    (part / SNIPPET_FILE).write_text(snippet(manifest, processor), encoding="utf-8")
    (part / "README.md").write_text(readme(manifest, processor), encoding="utf-8")
    names = sorted(
        path.relative_to(part).as_posix()
        for path in part.rglob("*")
        if path.is_file() and path.name != EXPORT_NAME
    )
    whole = manifest.model_copy(update={"checksums": checksums(part, names), "folder": place})
    whole.write(part)
    put_in_place(part, place)
    return whole


def _name_as_older_releases_do(config: Path) -> None:
    """A tokenizer's class by the name that transformers 4 knows too, which optimum runs on."""
    if not config.is_file():
        return
    found = json.loads(config.read_text(encoding="utf-8"))
    if found.get("tokenizer_class") == "TokenizersBackend":
        found["tokenizer_class"] = "PreTrainedTokenizerFast"
        config.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


# The README of an exported folder: what it is, what was measured, and how to run it.


_MB = 1e6


def readme(manifest: ExportManifest, processor: Any) -> str:
    """Markdown."""
    gate, measured = manifest.gate, manifest.measured
    lines = [
        f"# {manifest.architecture} as {manifest.format}",
        "",
        f"Exported from `{manifest.source}` ({manifest.conversion.name}): "
        f"{manifest.bytes / _MB:.1f} MB, {manifest.torch_bytes / _MB:.1f} MB in torch.",
        "",
        "## Measured",
        "",
        f"{gate.rows} rows of {gate.task} {gate.split} (fingerprint {gate.fingerprint}), both models "
        f"on the same CPU ({manifest.machine}).",
        "",
        "| score | torch | exported |",
        "|---|---:|---:|",
        *(
            f"| {name} | {_number(measured.torch_scores.get(name))} | {_number(value)} |"
            for name, value in measured.scores.items()
        ),
        "",
    ]
    if measured.agreement is not None:
        lines += [
            f"Both make the same prediction in {100 * measured.agreement:.2f} % of cases.",
            "",
        ]
    if manifest.unchosen is not None:
        lines += [
            f"{len(manifest.tried)} conversions were tried on these rows. On rows that did not choose the file "
            f"the score is {manifest.unchosen:.2f}: each half is scored by the file that the other half chose.",
            "",
        ]
    if measured.logits is not None:
        lines += [
            f"Logits differ by {measured.logits.largest_difference:.2g} at most, by "
            f"{measured.logits.mean_difference:.2g} on average (their standard deviation is "
            f"{measured.logits.scale:.2g}).",
            "",
        ]
    if measured.recall:
        lines += ["| class | recall, torch | recall, exported |", "|---|---:|---:|"]
        lines += [
            f"| {name} | {before:.1f} | {after:.1f} |"
            for name, (before, after) in measured.recall.items()
        ]
        lines.append("")
    lines += [
        "## Use",
        "",
        f"With {', '.join(modules_of(manifest))} alone (`predict.py`):",
        "",
        "```python",
        snippet(manifest, processor).strip(),
        "```",
        "",
    ]
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
