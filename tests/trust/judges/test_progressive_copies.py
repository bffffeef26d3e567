"""TinyBERT's Algorithm 1: each word is asked about in the text as edited so far.

Oracle: the algorithm written out word by word, with transformers' own fill-mask pipeline.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import transformers as hf

from limbeck.lab.augmentation.augmented_run import (
    Augmenter,
    build_augmented_examples,
    read_augmented_examples,
)
from limbeck.outputs.cache import Store
from limbeck.recipe.augment_spec import AugmentSpec

sys.path.insert(0, str(Path(__file__).parents[2] / "augmentation"))
import tiny_language as tiny

WHOLE = {"good", "bad", "film", "plot", "slow", "long", "end", "the", "a", "is", "and", "not",
         "fine", "dull", "joy", "ly", "funny"}  # fmt: skip
TEXTS = ["good film and slow plot", "The long film is dull , not funny", "joy", "bad end slowly"]


def augmenter(**settings) -> Augmenter:
    spec = AugmentSpec(**{"model": "unused", "words": "all", "candidates": 4} | settings)
    return Augmenter(spec, tiny.model(), tiny.tokenizer(), longest=30)


def copies(tmp_path, one: Augmenter, rows, columns=("sentence",)) -> dict[int, list[tuple]]:
    store, key = Store(tmp_path), one.key(rows, columns)
    with store.writing(key) as folder:
        build_augmented_examples(folder, one, rows, columns, task="copies")
    found: dict[int, list[tuple]] = {}
    for copy in read_augmented_examples(store.find(key)).to_pylist():
        found.setdefault(copy["row"], []).append(tuple(copy[column] for column in columns))
    return found


def by_hand(text: str, draw: np.ndarray, one: Augmenter, ask, edited: bool) -> str:
    """One copy of a text of words and signs with single spaces; `draw` is of (words, 2)."""
    spec = one.spec
    original, now = text.split(" "), text.split(" ")
    number = 0
    for place, word in enumerate(original):
        if not word.isalpha():
            continue
        whether, which = draw[number]
        number += 1
        if whether >= spec.probability or word.lower() not in WHOLE:
            continue
        around = now if edited else original
        asked = " ".join([*around[:place], "[MASK]", *around[place + 1 :]])
        answers = [answer["token_str"] for answer in ask(asked, top_k=len(tiny.PIECES))]
        best = [answer for answer in answers if answer in WHOLE][: spec.candidates]
        chosen = best[int(which * len(best))]
        now[place] = chosen.capitalize() if word.istitle() else chosen
    return " ".join(now)


@pytest.mark.parametrize("context", ["edited", "original"])
def test_copies_are_those_of_the_algorithm_word_by_word(tmp_path, context):
    # Words of several pieces have no vector here: they stay, in the oracle and in the copies.
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("sea 1 0\nwind 0 1\n", encoding="utf-8")
    one = augmenter(examples=6, probability=0.7, context=context, embeddings=str(vectors))
    ask = hf.pipeline("fill-mask", model=one.model, tokenizer=one.tokenizer, device="cpu")
    rows = tiny.rows(TEXTS)
    found = copies(tmp_path, one, rows)
    for place, text in enumerate(TEXTS):
        words = sum(part.isalpha() for part in text.split())
        row = rows["index"][place]
        draws = np.random.default_rng([one.spec.seed, row]).random((6, words, 2))
        expected = [by_hand(text, draw, one, ask, context == "edited") for draw in draws]
        distinct = [t for t in dict.fromkeys(expected) if t != text]
        assert [copy for (copy,) in found.get(place, [])] == distinct


def test_reading_the_edited_text_gives_other_copies_and_stores_them_apart(tmp_path):
    rows = tiny.rows(TEXTS)
    both = {
        context: augmenter(examples=8, probability=0.9, context=context)
        for context in ("edited", "original")
    }
    assert both["edited"].key(rows, ("sentence",)) != both["original"].key(rows, ("sentence",))
    made = {name: copies(tmp_path / name, one, rows) for name, one in both.items()}
    assert made["edited"] != made["original"]


def test_a_single_replacement_reads_the_same_text_either_way(tmp_path):
    rows = tiny.rows(["film", "joy", "plot ."])
    made = [
        copies(tmp_path / name, augmenter(examples=5, context=name), rows)
        for name in ("edited", "original")
    ]
    assert made[0] == made[1] != {}


def test_a_rows_copies_depend_on_no_other_row_and_more_change_none(tmp_path):
    rows, settings = tiny.rows(TEXTS), {"probability": 0.6, "context": "edited"}
    few = copies(tmp_path / "few", augmenter(examples=2, **settings), rows)
    many = copies(tmp_path / "many", augmenter(examples=9, **settings), rows)
    assert {place: some[: len(few[place])] for place, some in many.items() if place in few} == few
    last = rows.select([1])
    alone = copies(tmp_path / "alone", augmenter(examples=9, **settings), last)
    assert alone[0] == many[1]


def test_both_texts_of_a_pair_are_edited_each_in_itself(tmp_path):
    rows = tiny.rows(TEXTS, TEXTS[::-1])
    one = augmenter(examples=5, probability=1.0, context="edited")
    found = copies(tmp_path, one, rows, ("sentence1", "sentence2"))
    changed = [
        (first != TEXTS[place], second != TEXTS[::-1][place])
        for place, some in found.items()
        for first, second in some
    ]
    assert len(changed) > 10 and sum(a for a, _ in changed) > 5 and sum(b for _, b in changed) > 5
