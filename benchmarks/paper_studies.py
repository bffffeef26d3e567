"""What studies of the papers found at `small` scale, on GLUE's files with a real encoder, as the docs print it.

    limbeck study NAME --scale small --data GLUE_DIR --model MINILM_DIR --out OUT [KEY=VALUE …]
    python benchmarks/paper_studies.py --take OUT/NAME-small …     # keeps its numbers in benchmarks/records
    python benchmarks/paper_studies.py                             # prints the tables of the docs

Of a study its records and what its analyses found are kept, without any of the rows' text.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from limbeck.lab.study import load_study
from limbeck.lab.study.study_output import RECORDS, paper_table
from limbeck.records import read_collection, write_collection
from limbeck.records.record import read_raw
from limbeck.support.files import write_whole
from limbeck.tables import render

KEPT = Path(__file__).parent / "records" / "paper_studies"
_FOLDER_OF_ANALYSES = "analysis"
# What of a row says what is in it, and what is too much to read.
_TEXT = {"text", "student_tokens", "teacher_tokens", "examples", "disagreements"}

Found = dict[str, dict[str, list[dict[str, Any]]]]
"""Analysis → run → what it found there, once for each setting of it."""


# ---- taking ----


def without_text(found: Any) -> Any:
    """The same without what says the rows' text, without maps of one row's attention and places of rows."""
    if isinstance(found, dict):
        maps = {"student", "teacher"} if {"divergence", "explained"} & found.keys() else set()
        return {key: without_text(value) for key, value in found.items() if key not in _TEXT | maps}
    if isinstance(found, list):
        return [without_text(value) for value in found]
    return found


def take(folder: Path) -> str:
    """Keep a study's numbers; its name."""
    name = folder.name.removesuffix("-small")
    records = read_raw(folder / RECORDS)
    found: dict[str, dict[str, list[Any]]] = {}
    for run in records:
        for path in sorted((folder.parent / "runs" / run / _FOLDER_OF_ANALYSES).glob("*.json")):
            analysis = json.loads(path.read_text(encoding="utf-8"))
            by_run = found.setdefault(analysis["analysis"], {})
            by_run.setdefault(run, []).append(without_text(analysis))
    KEPT.mkdir(parents=True, exist_ok=True)
    write_collection(KEPT / f"{name}.jsonl.gz", without_text(records))
    write_whole(KEPT / f"{name}.analyses.json", json.dumps(found, indent=1) + "\n")
    return name


# ---- printing ----


class KeptStudy:
    """A study whose numbers were taken.

    Attributes:
        name: of the shipped study.
        study: as it ships at `small` scale.
        records: its runs, by name.
        found: by its analyses.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.study = load_study(name, scale="small", data="glue", model="encoder")
        self.records = read_collection(KEPT / f"{name}.jsonl.gz")
        path = KEPT / f"{name}.analyses.json"
        self.found: Found = json.loads(path.read_text(encoding="utf-8"))

    def table(self) -> str:
        """The study's own, in markdown."""
        table = paper_table(self.study, list(self.records.values()))
        return _rows_of(render(table, "markdown"))

    def of(self, analysis: str, part: str) -> Iterable[tuple[str, dict[str, Any]]]:
        """Each method with what the analysis found in its runs, in the study's order."""
        by_run = self.found.get(analysis, {})
        for method in self.study.methods:
            for run, every in by_run.items():
                if self.records[run].method == method:
                    yield from (
                        (method, one["parts"][part]) for one in every if part in one["parts"]
                    )


def _rows_of(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line.startswith("|"))


def _markdown(headings: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    names = list(headings)
    lines = [names, [":---", *["---:"] * (len(names) - 1)], *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def agreement(kept: KeptStudy) -> str:
    """Right and wrong rows of students by those of the teacher."""
    rows = []
    for method, found in kept.of("agreement", "student"):
        counts = {(c["teacher_right"], c["student_right"]): c["count"] for c in found["cells"]}
        both, lost, won, neither = (counts[k] for k in _CELLS)
        share = f"{100 * (both + neither) / sum(counts.values()):.1f}"
        rows.append((method, both, lost, won, neither, share))
    return _markdown(
        ("student", "both right", "only the teacher", "only the student", "both wrong", "as the teacher, %"), rows
    )  # fmt: skip


_CELLS = ((True, True), (True, False), (False, True), (False, False))


def attention_divergence(kept: KeptStudy) -> str:
    """How far one head's attention is from the teacher's."""
    rows = [
        (method, pair["student_layer"], pair["teacher_layer"], found["head"], f"{pair['divergence']:.3f}")
        for method, found in kept.of("attention-maps", "student")
        for pair in found["pairs"]
    ]  # fmt: skip
    return _markdown(("student", "its layer", "teacher's layer", "head", "KL"), rows)


def layer_attention(kept: KeptStudy) -> str:
    """Mean attention weights of each student layer over the teacher's."""
    found = dict(kept.of("layer-attention", "attention"))
    (only,) = found.values()
    layers = [f"layer {number}" for number in only["teacher_layers"]]
    rows = [
        (f"student layer {layer}", *(f"{weight:.3f}" for weight in weights))
        for layer, weights in zip(only["student_layers"], only["mean"], strict=True)
    ]
    return _markdown(("mean weight of the teacher's", *layers), rows)


def noise(kept: KeptStudy) -> str:
    """Mean loss of training rows by the noise on embeddings."""
    found = dict(kept.of("noise", "student"))
    first = next(iter(found.values()))
    names = [f"σ = {point['deviation']:g}" for point in first["points"]]
    rows = [
        (method, *(f"{_mean(point['losses']):.3f}" for point in one["points"]))
        for method, one in found.items()
    ]
    return _markdown(("loss", *names), rows)


def probing(kept: KeptStudy) -> str:
    """Accuracy of a linear probe of each layer."""
    found = dict(kept.of("probing", "student"))
    first = next(iter(found.values()))
    names = [f"layer {layer}" if layer else "embeddings" for layer in first["layers"]]
    rows = [(method, *(f"{score:.1f}" for score in one["scores"])) for method, one in found.items()]
    return _markdown(("probe", *names), rows)


def loss_surface(kept: KeptStudy) -> str:
    """Mean loss at each distance from the model's own weights."""
    found = dict(kept.of("loss-surface", "student"))
    if any(one.get("corners") for one in found.values()):  # a plane through three students
        (corners,) = (one["corners"] for one in found.values())
        names = [corner["name"] for corner in corners]
        return _markdown(("loss", *names), [("its own", *(f"{c['loss']:.2f}" for c in corners))])
    first = next(iter(found.values()))
    steps = sorted({abs(step) for step in first["steps"]})
    rows = []
    for method, one in found.items():
        by_step: dict[float, list[float]] = {step: [] for step in steps}
        for up, losses in zip(one["steps"], one["losses"], strict=True):
            for along, loss in zip(one["steps"], losses, strict=True):
                by_step[max(abs(up), abs(along))].append(loss)
        rows.append((method, *(f"{_mean(by_step[step]):.2f}" for step in steps)))
    return _markdown(
        ("mean loss", *(f"{step:g} away" if step else "at it" for step in steps)), rows
    )


def closeness(kept: KeptStudy) -> str:
    """Cosines of students' CLS states with the teacher's, by row."""
    rows = sorted(
        (found["student_layer"], found["teacher_layer"], method, found["cosines"])
        for method, found in kept.of("pca", "student")
    )
    return _markdown(
        ("cosine", "its layer", "teacher's layer", "mean", "lowest"),
        (
            (method, own, other, f"{_mean(cosines):.3f}", f"{min(cosines):.3f}")
            for own, other, method, cosines in rows
        ),
    )


def calibration(kept: KeptStudy) -> str:
    """How sure each student is, how right, and the expected calibration error in percent."""
    rows = [
        (method, f"{100 * one['confidence']:.1f}", f"{100 * one['accuracy']:.1f}", f"{one['error']:.1f}")
        for method, one in kept.of("calibration", "student")
    ]  # fmt: skip
    return _markdown(("student", "mean confidence, %", "accuracy, %", "calibration error, %"), rows)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


PRINTED: Mapping[str, Callable[[KeptStudy], str]] = {
    "agreement": agreement,
    "attention-maps": attention_divergence,
    "layer-attention": layer_attention,
    "noise": noise,
    "probing": probing,
    "loss-surface": loss_surface,
    "pca": closeness,
    "calibration": calibration,
}


def printed(name: str) -> list[str]:
    """All tables of a study that was taken."""
    kept = KeptStudy(name)
    return [kept.table(), *(show(kept) for which, show in PRINTED.items() if which in kept.found)]


def taken() -> list[str]:
    """Names of the studies whose numbers are kept."""
    return sorted(path.name.removesuffix(".jsonl.gz") for path in KEPT.glob("*.jsonl.gz"))


def main() -> None:
    """Take studies, or print what was taken."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--take", type=Path, nargs="+", default=[], help="folders of studies")
    for folder in parser.parse_args().take:
        print(f"{take(folder)}: taken")
    for name in taken():
        print(f"\n## {name}\n")
        print("\n\n".join(printed(name)))


if __name__ == "__main__":
    main()
