"""How each task's released files look: names, columns and the way labels are written.

Facts only, read by `folder`. The layouts are GLUE's own and those of the SciTail, PAWS and MSR
paraphrase releases.
"""

from __future__ import annotations

from dataclasses import dataclass, field

_PLAIN = {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"}


@dataclass(frozen=True)
class ReleasedLayout:
    """One task's folder of tab-separated files.

    `text` and `label` name the columns of the header line, in the order of the task's text columns.
    `written` are the labels as the files spell them, in id order; none for numbers. `headerless`
    names the columns of files without a header line. `folders` are the names the folder goes by
    (case, "-" and "_" do not matter), `inner` a folder within it that some releases add.
    """

    text: tuple[str, ...]
    label: str
    written: tuple[str, ...]
    folders: tuple[str, ...]
    files: dict[str, str] = field(default_factory=lambda: dict(_PLAIN))
    headerless: tuple[str, ...] = ()
    inner: str = ""
    # QQP: about 1 line in 15,000 is a piece of a question that held a line break.
    broken_lines: bool = False
    # MultiNLI marks a pair whose annotators did not agree.
    no_label: str | None = None


_ENTAILMENT = ("entailment", "not_entailment")
_BINARY = ("0", "1")
_TWO = ("sentence1", "sentence2")

LAYOUTS: dict[str, ReleasedLayout] = {
    "cola": ReleasedLayout(
        ("sentence",), "label", _BINARY, ("CoLA",),
        headerless=("source", "label", "mark", "sentence"),
    ),
    "sst2": ReleasedLayout(("sentence",), "label", _BINARY, ("SST-2", "SST")),
    "mrpc": ReleasedLayout(("#1 String", "#2 String"), "Quality", _BINARY, ("MRPC",)),
    "stsb": ReleasedLayout(_TWO, "score", (), ("STS-B",)),
    "qqp": ReleasedLayout(
        ("question1", "question2"), "is_duplicate", _BINARY, ("QQP",), broken_lines=True
    ),
    "mnli": ReleasedLayout(
        _TWO, "gold_label", ("entailment", "neutral", "contradiction"), ("MNLI",),
        files={
            "train": "train.tsv",
            "dev": "dev_matched.tsv",
            "dev_mismatched": "dev_mismatched.tsv",
            "test": "test_matched.tsv",
            "test_mismatched": "test_mismatched.tsv",
        },
        no_label="-",
    ),
    "qnli": ReleasedLayout(("question", "sentence"), "label", _ENTAILMENT, ("QNLI",)),
    "rte": ReleasedLayout(_TWO, "label", _ENTAILMENT, ("RTE",)),
    "wnli": ReleasedLayout(_TWO, "label", _BINARY, ("WNLI",)),
    "scitail": ReleasedLayout(
        ("premise", "hypothesis"), "label", ("entails", "neutral"), ("SciTail", "SciTailV1.1"),
        files={
            "train": "scitail_1.0_train.tsv",
            "dev": "scitail_1.0_dev.tsv",
            "test": "scitail_1.0_test.tsv",
        },
        headerless=("premise", "hypothesis", "label"),
        inner="tsv_format",
    ),
    "paws": ReleasedLayout(_TWO, "label", _BINARY, ("PAWS", "PAWS-Wiki"), inner="final"),
}  # fmt: skip

# The paraphrase corpus as Microsoft released it; GLUE's script adds the ids of its dev rows.
MSR_TRAIN = "msr_paraphrase_train.txt"
MSR_TEST = "msr_paraphrase_test.txt"
MSR_DEV_IDS = "dev_ids.tsv"
MSR_IDS = ("#1 ID", "#2 ID")
