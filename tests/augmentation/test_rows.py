"""Copies of a whole split: written once, found by what they follow from, put behind the rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import tiny_language as tiny
import transformers as hf
from sklearn.neighbors import NearestNeighbors

from limbeck.lab.augmentation.augmented_run import (
    Augmenter,
    build_augmented_examples,
    read_augmented_examples,
    rows_and_examples,
)
from limbeck.lab.augmentation.candidates import find_candidates, words_of
from limbeck.outputs.cache import SHARD, Store
from limbeck.recipe.augment_spec import AugmentSpec

ONE, TWO = ("sentence",), ("sentence1", "sentence2")


def augmenter(**settings) -> Augmenter:
    spec = AugmentSpec(model="unused", **settings)
    return Augmenter(spec, tiny.model(), tiny.tokenizer(), longest=30)


def made(store: Store, one: Augmenter, rows, columns=ONE):
    key = one.key(rows, columns)
    with store.writing(key) as folder:
        build_augmented_examples(folder, one, rows, columns, task="copies")
    return store.find(key)


def test_each_row_has_its_copies_with_its_label_and_numbers_of_their_own(tmp_path):
    rows = tiny.rows()
    entry = made(Store(tmp_path), augmenter(examples=4, words="all"), rows)
    copies = read_augmented_examples(entry)
    assert entry.manifest.rows == len(copies) > len(rows)
    both = rows_and_examples(rows, copies, 100, entry.key)
    assert both.features == rows.features and both.column_names == rows.column_names
    assert both[: len(rows)] == rows[:]
    assert len(set(both["index"])) == len(both) == len(rows) + len(copies)
    assert both["index"][len(rows) :] == list(range(100, 100 + len(copies)))
    for made_row, place in zip(list(both)[len(rows) :], copies["row"].to_pylist(), strict=True):
        original = rows[place]
        assert made_row["label"] == original["label"]
        assert made_row["sentence"] != original["sentence"]
        # What is no word stands where it stood.
        signs = [[c for c in row["sentence"] if not c.isalpha()] for row in (made_row, original)]
        assert signs[0] == signs[1]


def test_labels_are_those_the_rows_have_when_copies_are_read(tmp_path):
    rows = tiny.rows()
    one = augmenter(examples=2)
    entry = made(Store(tmp_path), one, rows)
    other = rows.map(lambda row: {"label": 1 - row["label"]})
    assert one.key(other, ONE) == entry.key
    copies = read_augmented_examples(entry)
    pair = [rows_and_examples(some, copies, 100, entry.key)["label"][:] for some in (rows, other)]
    assert [1 - label for label in pair[0]] == pair[1]


def test_rows_that_were_selected_and_shuffled_keep_their_copies(tmp_path):
    rows, few = tiny.rows(), tiny.rows().shuffle(seed=1).select(range(3))
    one = augmenter(examples=3, embeddings=str(_vectors(tmp_path)))
    whole = made(Store(tmp_path / "a"), one, rows)
    part = made(Store(tmp_path / "b"), one, few)

    def by_row(entry, split):
        found = {}
        for copy in read_augmented_examples(entry).to_pylist():
            found.setdefault(split[copy["row"]]["index"], []).append(copy["sentence"])
        return found

    everything = by_row(whole, rows)
    assert by_row(part, few) == {i: everything[i] for i in few["index"] if i in everything}


def _vectors(folder):
    path = folder / "vectors.txt"
    path.write_text("slowly 1 0\nlongest 1 0.5\ndullness 0.1 1\nstars 1 1\n", encoding="utf-8")
    return path


def test_pairs_change_in_both_texts(tmp_path):
    rows = tiny.rows(tiny.TEXTS, tiny.TEXTS[::-1])
    entry = made(Store(tmp_path), augmenter(examples=5, words="all", probability=1.0), rows, TWO)
    both = rows_and_examples(rows, read_augmented_examples(entry), 100, entry.key)
    changed = {"sentence1": 0, "sentence2": 0}
    for copy, made_row in zip(
        read_augmented_examples(entry).to_pylist(), list(both)[len(rows) :], strict=True
    ):
        for column in TWO:
            assert copy[column] == made_row[column]
            changed[column] += copy[column] != rows[copy["row"]][column]
    assert min(changed.values()) > 20


def test_every_text_and_word_is_looked_at_once():
    told = []
    spec = AugmentSpec(model="unused", words="all")
    found = find_candidates(
        tiny.TEXTS + tiny.TEXTS, spec, tiny.model(), tiny.tokenizer(), longest=30, precision="fp32",
        watch=lambda what, total: (told.append((what, total)), lambda done: None)[1],
    )  # fmt: skip
    # The words of one piece, counted by hand: 5, 7, 1, 1, 5, 3 and 4.
    assert told == [("tokens masked", 26)]
    for text in tiny.TEXTS:
        replaceable = found[text]
        words = words_of(text, "all")
        assert [(word.start, word.end) for word in replaceable] == [(w.start, w.end) for w in words]


def test_candidates_come_from_the_model_for_one_piece_and_from_vectors_for_several(tmp_path):
    spec = AugmentSpec(model="unused", candidates=3, embeddings=str(_vectors(tmp_path)))
    found = find_candidates(
        ["slowly good stars", "plot"],
        spec,
        tiny.model(),
        tiny.tokenizer(),
        longest=30,
        precision="fp32",
    )
    slowly, good, stars = found["slowly good stars"]
    assert slowly.choices == ["longest", "stars", "dullness"]
    # Unknown to the model, not to the file.
    assert stars.choices == ["longest", "dullness", "slowly"]
    assert len(good.choices) == 3 and not {"slowly", "longest"} & set(good.choices)


def test_with_nearest_words_alone_no_model_is_asked_and_all_it_knows_are_candidates():
    spec = AugmentSpec(model="unused", replace_by="nearest", candidates=4, words="all")
    encoder, tokenizer = tiny.model().base_model, tiny.tokenizer()

    def refuse(*args):
        raise AssertionError("a model was asked")

    encoder.register_forward_pre_hook(refuse)
    found = find_candidates(tiny.TEXTS, spec, encoder, tokenizer, longest=30, precision="fp32")
    words = [w for w in tiny.PIECES if w.isalpha()]  # "##ly" and the like are no words
    table = encoder.get_input_embeddings().weight.detach().numpy()
    own = np.stack([table[tiny.PIECES.index(word)] for word in words])
    search = NearestNeighbors(n_neighbors=5, metric="cosine").fit(own)
    for text in tiny.TEXTS:
        for word, place in zip(words_of(text, "all"), found[text], strict=True):
            if word.text.lower() not in words:
                assert place.choices == []  # of several tokens: it stays
                continue
            (near,) = search.kneighbors(
                own[[words.index(word.text.lower())]], return_distance=False
            )
            assert place.choices == [words[number] for number in near[1:]]


def test_a_file_of_vectors_does_without_any_model(tmp_path):
    one = Augmenter(
        AugmentSpec(embeddings=str(_vectors(tmp_path)), replace_by="nearest", examples=8),
        None,
        None,
        30,
    )
    entry = made(Store(tmp_path / "store"), one, tiny.rows(["slowly the stars", "plot"]))
    copies = read_augmented_examples(entry).to_pylist()
    # Of the second row nothing is in the file.
    assert {copy["row"] for copy in copies} == {0}
    assert {word for copy in copies for word in copy["sentence"].split()} <= {
        "slowly", "the", "stars", "longest", "dullness",
    }  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"examples": 3},
        {"probability": 0.5},
        {"candidates": 7},
        {"words": "all"},
        {"seed": 1},
        {"replace_by": "nearest"},
    ],
    ids=str,
)
def test_every_setting_has_an_effect_and_a_key_of_its_own(tmp_path, change):
    rows = tiny.rows()
    entries = [
        made(Store(tmp_path), augmenter(**({"examples": 8} | s)), rows) for s in ({}, change)
    ]
    assert entries[0].key != entries[1].key
    assert read_augmented_examples(entries[0]) != read_augmented_examples(entries[1])


def test_the_key_follows_from_rows_model_tokenizer_and_vectors(tmp_path):
    rows, one = tiny.rows(), augmenter()
    keys = [one.key(rows, ONE), augmenter().key(tiny.rows(), ONE)]
    assert keys[0] == keys[1]
    keys = keys[:1]
    keys.append(one.key(rows.select(range(4)), ONE))
    keys.append(one.key(tiny.rows([*tiny.TEXTS[:-1], "other"]), ONE))
    keys.append(Augmenter(one.spec, tiny.model(seed=1), one.tokenizer, 30).key(rows, ONE))
    keys.append(Augmenter(one.spec, one.model, one.tokenizer, 29).key(rows, ONE))
    keys.append(Augmenter(one.spec, one.model, one.tokenizer, 30, "bf16").key(rows, ONE))
    cased = tiny.tokenizer()
    cased.backend_tokenizer.normalizer = None
    keys.append(Augmenter(one.spec, one.model, cased, 30).key(rows, ONE))
    path = _vectors(tmp_path)
    for text in ("good 1 0\n", "good 0 1\n"):
        path.write_text(text, encoding="utf-8")
        keys.append(augmenter(embeddings=str(path)).key(rows, ONE))
    assert len(set(keys)) == len(keys)


def test_where_the_model_and_the_vectors_lie_changes_no_key(tmp_path):
    vectors, found = _vectors(tmp_path), set()
    for name in ("here", "there"):
        tiny.model().save_pretrained(tmp_path / name)
        model = hf.AutoModelForMaskedLM.from_pretrained(tmp_path / name)
        vectors = vectors.rename(tmp_path / f"{name}.txt")
        spec = AugmentSpec(model=name, embeddings=str(vectors))
        found.add(Augmenter(spec, model, tiny.tokenizer(), 30).key(tiny.rows(), ONE))
    assert len(found) == 1


def test_a_build_that_fails_leaves_nothing(tmp_path, monkeypatch):
    store, one, rows = Store(tmp_path), augmenter(), tiny.rows()

    def killed(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("limbeck.lab.augmentation.augmented_run.augmented_examples_of", killed)
    with pytest.raises(KeyboardInterrupt):
        made(store, one, rows)
    assert store.entries() == [] and list(tmp_path.iterdir()) == []


def test_rows_without_words_have_no_copies(tmp_path):
    rows = tiny.rows([". ,", "1999", "the"])
    entry = made(Store(tmp_path), augmenter(), rows)
    copies = read_augmented_examples(entry)
    assert len(copies) == 0 and isinstance(copies, pa.Table)
    assert rows_and_examples(rows, copies, 100, entry.key)[:] == rows[:]
    assert (entry.path / SHARD).stat().st_size == entry.bytes
