"""What a run's page shows of student and teacher over the same pairs, queries or rows, where they have no classes.

Part of `limbeck.reporting.pages`.
"""

from __future__ import annotations

from collections.abc import Sequence

from limbeck.records import Record
from limbeck.reporting.pages.sections import Section, SectionTable
from limbeck.tables.classes import row_test_cells, row_test_words

_LEAD = (
    "The student less its teacher by the primary score, on the same samples of the split: how far the choice of "
    "pairs, queries or rows explains the difference."
)


def row_tests_section(runs: Sequence[Record]) -> Section:
    """The splits of a single run whose classes, where it has any, no other section shows."""
    tests = runs[0].row_tests_alone if len(runs) == 1 else {}
    if not any(one.difference is not None for one in tests.values()):
        return Section("row-tests", "", "", [])
    notes = [
        f"{split}: {words}."
        for split, one in tests.items()
        for words in row_test_words(one, "student", "teacher")
    ]
    table = SectionTable("Student less teacher", row_test_cells(tests))
    return Section(
        "row-tests", "Student and teacher compared", _LEAD, [], tables=[table], notes=notes
    )
