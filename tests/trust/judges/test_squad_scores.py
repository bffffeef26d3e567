"""SQuAD 1.1's own rule, spelt out: F1 counts shared words, and without a shared word it is 0."""

from __future__ import annotations

import pytest

from limbeck.tasks.spans import exact_match, token_f1


def by_the_release(given: list[str], right: list[str]) -> float:
    """Precision and recall of the shared words, as the release of SQuAD 1.1 scores them."""
    left = list(right)
    shared = 0
    for word in given:
        if word in left:
            left.remove(word)
            shared += 1
    if shared == 0:
        return 0.0
    precision, recall = shared / len(given), shared / len(right)
    return 2 * precision * recall / (precision + recall)


@pytest.mark.parametrize(
    ("answer", "right"),
    [("the", "a"), ("", "..."), ("An!", "The"), ("", "")],
)
def test_where_nothing_is_left_of_answer_and_gold_f1_is_0(answer, right):
    # Version 2.0 alone takes "no answer" beside "no answer" for right.
    assert token_f1(answer, [right]) == 0.0
    assert exact_match(answer, [right]) == 1.0


@pytest.mark.parametrize(
    ("answer", "right", "words"),
    [
        ("the old Ship", "an old ship", (["old", "ship"], ["old", "ship"])),
        ("ship", "the", (["ship"], [])),
        ("the", "ship", ([], ["ship"])),
        (
            "ship ship sea",
            "ship sea sea wind",
            (["ship", "ship", "sea"], ["ship", "sea", "sea", "wind"]),
        ),
        ("night", "day", (["night"], ["day"])),
    ],
)
def test_f1_by_the_releases_steps(answer, right, words):
    assert token_f1(answer, [right]) == pytest.approx(by_the_release(*words))


def test_the_best_of_several_right_answers():
    assert token_f1("old ship", ["the", "ship", "an old ship at sea"]) == pytest.approx(2 / 3)
