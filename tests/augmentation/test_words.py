"""Which words of a text may change, and how a replacement is spelt."""

from __future__ import annotations

import pytest

from limbeck.lab.augmentation.candidates import spelt_like, words_of


@pytest.mark.parametrize(
    ("text", "content", "others"),
    [
        ("The good film, isn't it?", ["good", "film"], ["The", "it"]),
        ("it does n't work 'fine' : 3 stars", ["work", "fine", "stars"], ["it", "does"]),
        ("b2b well-made it 's", ["well", "made"], ["it", "s"]),
        ("ein schöner Film_ über Öl", ["ein", "schöner", "über", "Öl"], []),
        (" . , ", [], []),
        ("", [], []),
    ],
)
def test_words_of_letters_may_change_and_function_words_only_on_request(text, content, others):
    assert [word.text for word in words_of(text, "content")] == content
    every = words_of(text, "all")
    assert sorted(word.text for word in every) == sorted(content + others)
    assert all(text[word.start : word.end] == word.text for word in every)


@pytest.mark.parametrize(
    ("word", "replacement", "spelt"),
    [("good", "fine", "fine"), ("Good", "fine", "Fine"), ("GOOD", "fine", "FINE"),
     ("gOOd", "fine", "fine"), ("good", "Paris", "Paris"), ("A", "mcCoy", "McCoy")],
)  # fmt: skip
def test_a_replacement_has_the_capitals_of_the_word(word, replacement, spelt):
    assert spelt_like(word, replacement) == spelt
