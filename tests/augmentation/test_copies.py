"""The draws: how often, always the same, and one copy whatever the others are."""

from __future__ import annotations

import math
from collections import Counter

from limbeck.lab.augmentation.candidates import ReplaceableWord, augmented_examples_of, words_of

TEXT = "one two, three (four) Five"
CHOICES = ["alpha", "beta", "gamma", "delta"]


def replaceable(text: str, choices: list[str] = CHOICES) -> list[ReplaceableWord]:
    return [ReplaceableWord(word.start, word.end, choices) for word in words_of(text, "all")]


def drawn(copies: int = 5, row: int = 7, seed: int = 1, probability: float = 0.4, text=TEXT):
    return augmented_examples_of(
        [text], [replaceable(text)], row=row, examples=copies, probability=probability, seed=seed
    )


def test_the_rate_and_the_choices_are_those_asked_for():
    replaced = Counter()
    words, rows = 5, 4000
    for row in range(rows):
        for (copy,) in drawn(1, row):
            found = [word.text.lower() for word in words_of(copy, "all")]
            replaced.update(word for word in found if word in CHOICES)
    n = words * rows
    total = sum(replaced.values())
    # Four standard deviations of a binomial; a copy equal to its row replaces nothing anyway.
    assert abs(total - 0.4 * n) < 4 * math.sqrt(n * 0.4 * 0.6)
    for choice in CHOICES:
        assert abs(replaced[choice] - 0.1 * n) < 4 * math.sqrt(n * 0.1 * 0.9)


def test_what_stands_between_the_words_stays():
    for (copy,) in drawn(50):
        assert [part for part in copy if not part.isalpha()] == list(" ,  () ")
    ((all_changed,),) = drawn(1, probability=1.0)
    one, two, three, four, five = (word.text for word in words_of(all_changed, "all"))
    assert all_changed == f"{one} {two}, {three} ({four}) {five}"
    assert {one, two, three, four, five.lower()} <= set(CHOICES) and five.istitle()


def test_more_copies_change_none_and_other_rows_and_seeds_do():
    few, many = drawn(5), drawn(40)
    assert many[: len(few)] == few and len(many) > 20
    assert drawn(5) == few
    assert drawn(5, row=8) != few and drawn(5, seed=2) != few


def test_copies_differ_from_the_row_and_from_each_other():
    one = [ReplaceableWord(0, 3, ["one", "two"])]
    found = augmented_examples_of(["one"], [one], row=0, examples=50, probability=0.5, seed=0)
    assert found == [("two",)]


def test_a_word_without_candidates_stays_and_takes_its_draw_along():
    without = replaceable(TEXT)
    without[1] = ReplaceableWord(*without[1][:2], [])
    changed = augmented_examples_of([TEXT], [without], row=7, examples=1, probability=1.0, seed=1)
    ((whole,),) = drawn(1, probability=1.0)
    words = [word.text for word in words_of(whole, "all")]
    words[1] = "two"
    assert [word.text for word in words_of(changed[0][0], "all")] == words


def test_both_texts_of_a_pair_change_in_one_copy():
    texts = [TEXT, "six seven"]
    found = augmented_examples_of(
        texts, [replaceable(text) for text in texts], row=3, examples=20, probability=1.0, seed=0
    )
    assert len(found) == len(set(found)) == 20
    assert all(first != texts[0] and second != texts[1] for first, second in found)
    assert len({second for _, second in found}) > 5


def test_nothing_to_replace_makes_no_copy():
    assert augmented_examples_of([", ."], [[]], row=0, examples=9, probability=1.0, seed=0) == []
