"""Nearest words are scikit-learn's; files of vectors are read as text."""

from __future__ import annotations

import numpy as np
import pytest
import tiny_language as tiny
import torch
from sklearn.neighbors import NearestNeighbors

from limbeck.lab.augmentation.candidates import Vectors
from limbeck.support.errors import LimbeckError

WORDS = ["good", "slowly", "longest", "Dullness", "joy", "film", "goodness", "xylophone"]


def test_neighbours_are_those_of_scikit_learn():
    model, tokenizer = tiny.model(), tiny.tokenizer()
    table = model.get_input_embeddings().weight.detach().numpy()
    means = {}
    for word in ("good", "slowly", "longest", "dullness", "joy", "film", "goodness"):
        ids = tokenizer(word, add_special_tokens=False)["input_ids"]
        means[word] = table[ids].mean(0)
    names = list(means)
    search = NearestNeighbors(n_neighbors=4, metric="cosine").fit(np.stack(list(means.values())))
    places = search.kneighbors(np.stack(list(means.values())), return_distance=False)
    found = Vectors.of_model(model, tokenizer, WORDS).nearest(["Slowly", "joy", "xylophone"], 3)
    expected = {names[row[0]]: [names[place] for place in row[1:]] for row in places}
    assert found == {word: expected[word] for word in ("slowly", "joy")}  # the last has no pieces


def test_a_cased_token_keeps_its_own_vector_and_lower_case_comes_first():
    model = tiny.model()
    table = model.get_input_embeddings().weight.detach()
    ids = {name: tiny.PIECES.index(name) for name in ("film", "plot", "slow")}
    words = {ids["film"]: "Germany", ids["plot"]: "Good", ids["slow"]: "good"}
    vectors = Vectors.of_tokens(model, words)
    assert vectors.words == ["germany", "good"]
    wanted = torch.nn.functional.normalize(table[[ids["film"], ids["slow"]]], dim=-1)
    torch.testing.assert_close(vectors.matrix, wanted)
    assert Vectors.of_tokens(model, dict(reversed(words.items()))).matrix.equal(vectors.matrix)


def test_fewer_words_than_candidates_and_none():
    vectors = Vectors(["one", "two"], torch.eye(2))
    assert vectors.nearest(["one"], 15) == {"one": ["two"]}
    assert Vectors(["one"], torch.eye(1)).nearest(["one"], 15) == {"one": []}
    nothing = Vectors.of_model(tiny.model(), tiny.tokenizer(), ["xylophone"])
    assert nothing.nearest(["xylophone"], 15) == {}


def test_a_file_of_vectors_is_read_as_text(tmp_path):
    path = tmp_path / "vectors.txt"
    lines = ["6 2", "the 1 0", ", 1 0.01", "a . b 0 1", "Cat 0.6 0.8", "cat 1 0", "dog 0 -2e0"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    vectors = Vectors.of_file(path)
    assert vectors.words == ["the", "cat", "dog"]
    torch.testing.assert_close(vectors.matrix, torch.tensor([[1.0, 0], [0.6, 0.8], [0, -1]]))
    assert vectors.nearest(["Dog"], 2) == {"dog": ["the", "cat"]}


@pytest.mark.parametrize(
    ("text", "said"),
    [("cat 1 2\ndog 1\n", "line 2"), ("cat 1 x\n", "line 1"), ("cat\n", "line 1"),
     ("cat 1 nan\n", "line 1"), (", 1 2\n", "no words"), ("", "no words")],
)  # fmt: skip
def test_a_file_that_holds_no_vectors_is_refused_by_line(tmp_path, text, said):
    path = tmp_path / "vectors.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(LimbeckError, match=said):
        Vectors.of_file(path)


def test_a_file_that_is_not_there_or_no_text(tmp_path):
    with pytest.raises(LimbeckError, match=r"augment\.embeddings"):
        Vectors.of_file(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(LimbeckError, match=r"augment\.embeddings"):
        Vectors.of_file(tmp_path / "binary")
