"""The files that gluebenchmark.com scores: names, rows and the words for classes. Part of `limbeck.lab.submitting`.

Facts only, as the benchmark's site and its published test files have them.
"""

from __future__ import annotations

from dataclasses import dataclass

from limbeck.data.glue import LAYOUTS


@dataclass(frozen=True)
class GlueFile:
    """One file of a submission: a header line `index<TAB>prediction`, then a line for each row of a test split.

    Attributes:
        name: of the file.
        task: limbeck's name of the task whose run predicts it.
        split: of the task's data; `diagnostic` for rows that no task has as a split.
        rows: how many the benchmark scores.
    """

    name: str
    task: str
    split: str
    rows: int

    @property
    def words(self) -> tuple[str, ...]:
        """What the benchmark calls the task's classes, in the order of their ids; none of a number."""
        return LAYOUTS[self.task].written


DIAGNOSTIC = "diagnostic"
GLUE_FILES = (
    GlueFile("CoLA.tsv", "cola", "test", 1063),
    GlueFile("SST-2.tsv", "sst2", "test", 1821),
    GlueFile("MRPC.tsv", "mrpc", "test", 1725),
    GlueFile("STS-B.tsv", "stsb", "test", 1379),
    GlueFile("QQP.tsv", "qqp", "test", 390_965),
    GlueFile("MNLI-m.tsv", "mnli", "test", 9796),
    GlueFile("MNLI-mm.tsv", "mnli", "test_mismatched", 9847),
    GlueFile("QNLI.tsv", "qnli", "test", 5463),
    GlueFile("RTE.tsv", "rte", "test", 3000),
    GlueFile("WNLI.tsv", "wnli", "test", 146),
    # Scored beside the tasks, by the model that learned MNLI.
    GlueFile("AX.tsv", "mnli", DIAGNOSTIC, 1104),
)
