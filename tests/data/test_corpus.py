"""Sentence pairs from a corpus: which sentences meet, how long they are, and from where."""

from __future__ import annotations

from pathlib import Path

import datasets
import pytest
from datasets import Dataset
from pydantic import ValidationError

import tiny_runs as tiny
from limbeck.data import CORPUS, CorpusSpec, encode, load_corpus
from limbeck.data.corpus import documents_of, sentences_of
from limbeck.lab import pocket
from limbeck.support.errors import LimbeckError

# Each sentence is its number in words of which the tokenizer makes one token each.
ONE, TWO = 6, 9


def document(name: str, sentences: int) -> list[str]:
    return [f"{name}{number}" + " film" * (number % 4) for number in range(sentences)]


@pytest.fixture
def file(tmp_path) -> Path:
    text = "\n".join(document("a", ONE)) + "\n\n\n" + "\n".join(document("b", TWO)) + "\n"
    path = tmp_path / "corpus.txt"
    path.write_text(text, encoding="utf-8")
    return path


def draw(source, size: int, **settings) -> Dataset:
    spec = CorpusSpec(source=str(source), size=size, **settings)
    return load_corpus(spec, tiny.tokenizer(), 24)


def length(row: dict) -> int:
    """Words, and the three special tokens of a pair."""
    return len(f"{row['sentence1']} {row['sentence2']}".split()) + 3


# ---- which sentences meet ----


def test_neighbours_of_one_document_make_a_row(file):
    every = [
        pair
        for name, count in (("a", ONE), ("b", TWO))
        for pair in zip(document(name, count), document(name, count)[1:], strict=False)
    ]
    rows = draw(file, len(every))  # all there are: each once
    assert sorted((row["sentence1"], row["sentence2"]) for row in rows) == sorted(every)
    assert rows["index"][:] == list(range(len(every)))
    with pytest.raises(LimbeckError, match=f"it gives {len(every)} pairs of 0 to 24 tokens"):
        draw(file, len(every) + 1)


def test_long_rows_are_passages_that_follow_each_other(file):
    order = [*document("a", ONE), "|", *document("b", TWO)]
    text = " ".join(order)
    rows = list(draw(file, 6, min_tokens=12, max_tokens=16))
    for row in rows:
        assert 12 <= length(row) <= 16
        # Contiguous, inside one document, in order, and cut between sentences.
        assert f"{row['sentence1']} {row['sentence2']}" in text
        assert row["sentence2"].split()[0] in {sentence.split()[0] for sentence in order}
    # Where a passage is divided is sampled: not always after its first sentence.
    firsts = [sum(word[0] in "ab" for word in row["sentence1"].split()) for row in rows]
    assert len(set(firsts)) > 1


def test_the_range_is_that_of_the_encoded_rows(file):
    rows = draw(file, 5, min_tokens=7, max_tokens=9)
    encoded, truncated = encode(rows, CORPUS, tiny.tokenizer(), 24)
    assert truncated == 0
    assert "labels" not in encoded.column_names
    assert all(7 <= len(ids) <= 9 for ids in encoded["input_ids"])
    # Without a longest row given, none is longer than the model may read.
    spec = CorpusSpec(source=str(file), size=3)
    assert all(length(row) <= 6 for row in load_corpus(spec, tiny.tokenizer(), 6))


def test_the_seed_decides_and_nothing_else(file):
    first, again, other = (list(draw(file, 5, seed=seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


# ---- sentences and documents ----


def test_paragraphs_are_cut_into_sentences():
    text = (
        'Dr. Smith came. "Who?" he asked. J. R. Hill, b. 1901, e.g. in U.S. law (No. 3) left! Yes.'
    )
    assert sentences_of(text) == [
        "Dr. Smith came.",
        '"Who?" he asked.',
        "J. R. Hill, b. 1901, e.g. in U.S. law (No. 3) left!",
        "Yes.",
    ]
    assert sentences_of("no stop, one sentence") == ["no stop, one sentence"]


def test_blank_lines_end_documents():
    lines = ["", "One. Two.", "Three.", " ", "", "Four.", ""]
    assert list(documents_of(lines)) == [("One.", "Two.", "Three."), ("Four.",)]


# ---- other sources ----


def test_the_pocket_corpus_is_in_pocket_words():
    words = pocket.tokenizer()
    spec = CorpusSpec(source="pocket", size=40, min_tokens=20, max_tokens=40, seed=3)
    rows = load_corpus(spec, words, 128)
    assert len(rows) == 40
    encoded, _ = encode(rows, CORPUS, words, 128)
    assert all(20 <= len(ids) <= 40 for ids in encoded["input_ids"])
    assert not any(words.unk_token_id in ids for ids in encoded["input_ids"])
    assert len({(row["sentence1"], row["sentence2"]) for row in rows}) == 40
    assert list(rows) == list(load_corpus(spec, words, 128))
    other = spec.model_copy(update={"seed": 4})
    assert list(rows) != list(load_corpus(other, words, 128))
    with pytest.raises(LimbeckError, match="requested"):
        load_corpus(spec.model_copy(update={"min_tokens": 125, "max_tokens": 126}), words, 128)


@pytest.fixture
def repository(tmp_path, monkeypatch) -> Path:
    """A folder laid out as Wikipedia's repository on the Hub: two languages, English in two files."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    # Newer releases wait at a stream's end for Arrow's threads.
    monkeypatch.setattr(datasets.config, "SLEEP_TIME_ON_THREADS_SHUTDOWN", 0, raising=False)
    root = tmp_path / "wikipedia"
    lines = ["---", "configs:"]
    for config, files in (("20231101.en", 2), ("20231101.de", 1)):
        (root / config).mkdir(parents=True)
        lines += [f"- config_name: {config}", "  data_files:", "  - split: train"]
        lines += [f"    path: {config}/train-*"]
        for number in range(files):
            language = config[-2:]
            articles = [
                {
                    "id": str(row),
                    "url": "",
                    "title": "T",
                    "text": f"Title {language}. Good film {number}.\n\nBad plot {row}. The end.",
                }
                for row in range(10)
            ]
            name = f"train-{number:05d}-of-{files:05d}.parquet"
            Dataset.from_list(articles).to_parquet(root / config / name)
    (root / "README.md").write_text("\n".join([*lines, "---", ""]), encoding="utf-8")
    return root


def test_a_copy_of_wikipedias_repository(repository):
    rows = draw(f"hub:{repository}/20231101.en", 12, seed=5)
    for row in rows:
        assert (row["sentence1"].split()[0], row["sentence2"].split()[0]) in {
            ("Title", "Good"),
            ("Good", "Bad"),
            ("Bad", "The"),
        }
    # From both files, several articles.
    assert len({text for row in rows for text in row.values() if "plot" in str(text)}) > 2
    assert list(rows) == list(draw(f"hub:{repository}/20231101.en", 12, seed=5))
    assert list(rows) != list(draw(f"hub:{repository}/20231101.en", 12, seed=6))


def test_the_real_coordinates_are_asked_for(monkeypatch):
    asked = []

    def refuse(*arguments, **settings):
        asked.append((*arguments, settings))
        raise ConnectionError("no route\nto the Hub")

    monkeypatch.setattr("limbeck.data.corpus.load_dataset", refuse)
    for source in ("hub", "hub:wikimedia/wikipedia/20231101.simple", "hub:owner/name"):
        with pytest.raises(LimbeckError, match=r"ConnectionError: no route\n.*pocket"):
            draw(source, 1)
    stream = {"split": "train", "streaming": True}
    assert asked == [
        ("wikimedia/wikipedia", "20231101.en", stream),
        ("wikimedia/wikipedia", "20231101.simple", stream),
        ("owner/name", None, stream),
    ]


@pytest.mark.network
def test_wikipedia_itself():
    assert len(draw("hub", 3, max_tokens=200)) == 3


# ---- what cannot be ----


def test_what_is_no_corpus(tmp_path, repository):
    with pytest.raises(LimbeckError, match="does not exist"):
        draw(tmp_path / "none.txt", 1)
    (tmp_path / "latin.txt").write_bytes("Ärger".encode("latin-1"))
    with pytest.raises(LimbeckError, match="not UTF-8"):
        draw(tmp_path / "latin.txt", 1)
    with pytest.raises(LimbeckError, match=r"no copy of a Hub repository"):
        draw(f"hub:{tmp_path}/nothing", 1)
    for file in (repository / "20231101.en").iterdir():
        Dataset.from_list([{"words": "Good film."}]).to_parquet(file)
    with pytest.raises(LimbeckError, match=r"no column 'text' of text \(there: words\)"):
        draw(f"hub:{repository}/20231101.en", 1)


def test_a_range_has_an_order():
    with pytest.raises(ValidationError, match="min_tokens 9 is above max_tokens 8"):
        CorpusSpec(size=1, min_tokens=9, max_tokens=8)
