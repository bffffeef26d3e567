"""A corpus's rows as CR-ILD's paper has them (App. B): two sentences from anywhere, not neighbours."""

from __future__ import annotations

from collections import Counter

import pytest
from scipy import stats

import tiny_runs as tiny
from limbeck.data import CorpusSpec, load_corpus
from limbeck.support.errors import LimbeckError

DOCUMENTS = [[f"a{n}" for n in range(6)], [f"b{n} film film" for n in range(9)]]
PLACES = {s: (d, n) for d, some in enumerate(DOCUMENTS) for n, s in enumerate(some)}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\n\n".join("\n".join(some) for some in DOCUMENTS) + "\n", encoding="utf-8")
    return path


def draw(source, size, **settings):
    spec = CorpusSpec(source=str(source), size=size, pairs="random", **settings)
    rows = load_corpus(spec, tiny.tokenizer(), 24)
    return list(zip(rows["sentence1"][:], rows["sentence2"][:], strict=True))


def test_any_two_sentences_meet_equally_often(file):
    rows = draw(file, 4200)
    assert all(first in PLACES and second in PLACES and first != second for first, second in rows)
    counts = Counter(rows)
    pairs = len(PLACES) * (len(PLACES) - 1)
    assert len(counts) == pairs  # 20 of each are expected
    statistic = sum((count - 20) ** 2 / 20 for count in counts.values())
    assert statistic < stats.chi2.ppf(0.9999, pairs - 1)


def test_the_range_of_lengths_and_the_seed_hold(file):
    # One word and three special tokens beside two words, or three and three.
    assert {len(f"{a} {b}".split()) + 3 for a, b in draw(file, 50, min_tokens=8)} == {9}
    first, again, other = (draw(file, 20, seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    with pytest.raises(LimbeckError, match="pairs of 12 to 24 tokens"):
        draw(file, 5, min_tokens=12)


def test_adjacent_is_still_the_default(file):
    rows = load_corpus(CorpusSpec(source=str(file), size=10), tiny.tokenizer(), 24)
    for first, second in zip(rows["sentence1"][:], rows["sentence2"][:], strict=True):
        (d, n), (other, m) = PLACES[first], PLACES[second]
        assert (other, m) == (d, n + 1)


def test_pairs_from_generated_documents():
    rows = draw("pocket", 30)
    assert len(rows) == 30 and len(set(rows)) > 25
