"""The exported folder: written next to its place, and renamed when it is complete."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.exporting.settings import STATIC_FORMATS
from limbeck.records import RECORD_NAME
from limbeck.runtimes.manifest import EXPORT_NAME, EXPORTS, ExportManifest
from limbeck.support import files
from limbeck.support.errors import LimbeckError
from limbeck.support.templates import templates_of
from limbeck.tasks import get_task_type


def default_place(model: str, format: str) -> Path:
    """`RUN/exported/FORMAT` for a run; otherwise `exported/NAME-FORMAT` in the working folder."""
    folder = files.at_home(model)
    if (folder / RECORD_NAME).is_file():
        return folder / EXPORTS / format
    return Path(EXPORTS) / f"{files.file_name(Path(model).name)}-{format}"


def refuse_occupied(place: Path, *, overwrite: bool, name: str = EXPORT_NAME) -> None:
    """Raise LimbeckError if the place is occupied; a folder with a file of this name may be replaced."""
    if not place.exists() or (place.is_dir() and not any(place.iterdir())):
        return
    what = "exported model" if name == EXPORT_NAME else Path(name).stem
    if not (place / name).is_file():
        raise LimbeckError(
            f"out: {place} is not empty and holds no {what}", "choose another folder with --out"
        )
    if not overwrite:
        raise LimbeckError(
            f"out: {place}: the existing {what} would be replaced",
            "choose another folder with --out, or pass --overwrite to replace it",
        )


@contextmanager
def folder_in_work(place: Path) -> Iterator[Path]:
    """A folder next to `place` to write into; it is deleted afterwards unless it was renamed.

    Files that a killed export left there are removed first.
    """
    part = place.with_name(f".{place.name}.part")
    with files.one_error_for_a_full_disk(place):
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        try:
            yield part
        finally:
            shutil.rmtree(part, ignore_errors=True)


def finish_folder(
    part: Path, place: Path, manifest: ExportManifest, model: PreTrainedModel, processor: Any
) -> ExportManifest:
    """Write the files next to the model's file, and give the folder its name.

    Returns the manifest as it was written, with checksums.
    """
    if manifest.format not in STATIC_FORMATS:  # these have theirs
        model.config.save_pretrained(part)
        if isinstance(processor, PreTrainedTokenizerBase):
            processor.model_max_length = manifest.max_length
        processor.save_pretrained(part)
    if manifest.runtime != "numpy":
        (part / SNIPPET_FILE).write_text(snippet(manifest, processor), encoding="utf-8")
    (part / "README.md").write_text(readme(part, manifest), encoding="utf-8")
    names = sorted(
        path.relative_to(part).as_posix()
        for path in part.rglob("*")
        if path.is_file() and path.name != EXPORT_NAME
    )
    whole = manifest.model_copy(update={"checksums": files.checksums(part, names), "folder": place})
    whole.write(part)
    files.put_in_place(part, place)
    return whole


# Files next to a model: a README with the measurements, and the few lines that run it by its runtime,
# tokenizers and NumPy alone. A test runs them where neither torch, transformers nor limbeck can be imported.


SNIPPET_FILE = "predict.py"


def snippet(manifest: ExportManifest, processor: Any) -> str:
    """A Python file with one function, `predict`; run as a script it takes its input as arguments."""
    kind = get_task_type(manifest.kind)
    template = templates_of("limbeck.exporting").get_template("predict.py.j2")
    return template.render(manifest=manifest, processor=processor, kind=kind, repr=repr)


def modules_of(manifest: ExportManifest) -> list[str]:
    """The packages to install to run it, by their names for pip."""
    if manifest.runtime == "model2vec":
        return ["model2vec[inference]"]
    if manifest.runtime == "numpy":
        return ["safetensors", "tokenizers", "numpy"]
    reader = "pillow" if manifest.kind == "image" else "tokenizers"
    return [manifest.runtime, reader, "numpy"]


def _change_without_pairs(folder: Path) -> float | None:
    """The change of a static student's score without its word pairs; None if they were not left out."""
    place = folder / "config.json"
    config = json.loads(place.read_text(encoding="utf-8")) if place.is_file() else {}
    found: float | None = config.get("score_change_without_word_pairs")
    return found


def readme(folder: Path, manifest: ExportManifest) -> str:
    """Markdown about a folder that holds its snippet."""
    template = templates_of("limbeck.exporting").get_template("README.md.j2")
    return template.render(
        manifest=manifest,
        modules=modules_of(manifest),
        pairs=_change_without_pairs(folder),
        snippet=(folder / SNIPPET_FILE).read_text(encoding="utf-8"),
        number=lambda value: "–" if value is None else f"{value:.2f}",
    )
