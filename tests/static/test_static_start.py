"""Where a student starts: the teacher's vectors of its tokens, how rare they are, tokenizers of another language."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist
from sklearn.decomposition import PCA
from tokenizers.processors import Sequence
from transformers import BertModel

import tiny_runs as tiny
from limbeck.embedding import SENTENCE_EMBEDDERS
from limbeck.static import from_teacher, start, static_student, train_tokenizer
from limbeck.static.start import principal_axes
from limbeck.support.errors import LimbeckError

TOKENS = range(4, 14)
GERMAN = [
    "Das Gemälde gefällt mir nicht.",
    "Der Film ist gut, das Ende nicht.",
    "Ein guter Film!",
] * 5
JAPANESE = ["この映画はとても良い。", "この映画は良くない。", "結末が悪い映画。"] * 5


@pytest.fixture(scope="module")
def embedder():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return SENTENCE_EMBEDDERS.from_config(tiny.bert(2, initializer_range=0.5).config).eval()


def read_alone(teacher, tokens=TOKENS) -> torch.Tensor:
    """The teacher's first states of tokens, each a text of its own."""
    ids = torch.tensor([[2, token, 3] for token in tokens])
    with torch.no_grad():
        return teacher.base_model(input_ids=ids).last_hidden_state


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_vectors_lie_as_far_apart_as_the_teachers(embedder, pooling) -> None:
    """A rotation and a shift change no distance; all 10 tokens take at most 9 axes."""
    made = from_teacher(embedder, tiny.tokenizer(), tiny.sentences(40), 9, pooling=pooling)
    states = read_alone(embedder)
    theirs = states[:, 0] if pooling == "cls" else states.mean(1)
    ours = made.vectors.weight.detach()[list(TOKENS)]
    np.testing.assert_allclose(pdist(ours), pdist(theirs), rtol=1e-4)


def test_first_states_are_the_default_where_texts_begin_with_cls(embedder) -> None:
    """Without such a token an embedding model pools as it always does."""
    bare = tiny.tokenizer()
    bare.backend_tokenizer.post_processor = Sequence([])
    for tokenizer, theirs in (
        (tiny.tokenizer(), read_alone(embedder)[:, 0]),
        (bare, embedder(input_ids=torch.tensor(TOKENS)[:, None]).logits),
    ):
        ours = from_teacher(embedder, tokenizer, tiny.sentences(40), 9).vectors.weight
        np.testing.assert_allclose(
            pdist(ours.detach()[list(TOKENS)]), pdist(theirs.detach()), rtol=1e-4
        )


def test_first_axes_hold_most(embedder) -> None:
    made = from_teacher(embedder, tiny.tokenizer(), tiny.sentences(40), 5, pooling="mean")
    theirs = read_alone(embedder).mean(1)
    values = torch.linalg.svdvals(theirs - theirs.mean(0))
    found = made.vectors.weight.detach()[list(TOKENS)].norm(dim=0)
    torch.testing.assert_close(found, values[:5], rtol=1e-4, atol=1e-5)


def test_weights_say_how_rare_tokens_are(embedder) -> None:
    """Of four tokens two are `good`: 1e-3 / (1e-3 + 2/4)."""
    made = from_teacher(embedder, tiny.tokenizer(), ["good good", "film bad"], 2)
    found = made.weights.weight.detach()[:, 0]
    torch.testing.assert_close(found[[4, 6, 7]], torch.tensor([1 / 501, 1 / 251, 1.0]))


def test_a_student_answers_what_its_teacher_answers(embedder) -> None:
    texts = tiny.sentences(20)
    embeds = from_teacher(embedder, tiny.tokenizer(), texts, 4).config
    assert embeds.embeds and embeds.normalize and embeds.pairs == 0
    teacher = tiny.bert(
        2, id2label={0: "a", 1: "b", 2: "c"}, problem_type="multi_label_classification"
    )
    classes = from_teacher(teacher, tiny.tokenizer(), texts, 4).config
    assert classes.id2label == {0: "a", 1: "b", 2: "c"} and not classes.embeds
    assert classes.problem_type == "multi_label_classification" and classes.pairs == 200_000
    assert from_teacher(teacher, tiny.tokenizer(), texts, 4, num_labels=5).config.num_labels == 5
    bare = BertModel(teacher.config).train()
    assert from_teacher(bare, tiny.tokenizer(), texts, 4, embeds=True).config.embeds
    assert bare.training


def test_wider_than_the_teacher_is_refused(embedder) -> None:
    with pytest.raises(LimbeckError, match=r"student.width 17.* have 16 numbers\n.*at most 16"):
        from_teacher(embedder, tiny.tokenizer(), ["good"], 17)


def test_few_tokens_do_not_limit_the_width(embedder) -> None:
    """One token in use has no axes, so all give them; what ten tokens leave over are zeros."""
    made = from_teacher(embedder, tiny.tokenizer(), ["good"], 15)
    found = made.vectors.weight.detach()[list(TOKENS)]
    assert torch.linalg.matrix_rank(found[:, :9]) == 9
    torch.testing.assert_close(found[:, 9:], torch.zeros(10, 6), atol=1e-4, rtol=0)


def test_at_the_teachers_width_vectors_are_the_teachers_own(embedder) -> None:
    """But for their mean. A loss compares such embeddings number by number, so no axis may be turned."""
    made = from_teacher(embedder, tiny.tokenizer(), tiny.sentences(40), 16, pooling="cls")
    ours, theirs = made.vectors.weight.detach()[list(TOKENS)], read_alone(embedder)[:, 0]
    torch.testing.assert_close(ours - ours.mean(0), theirs - theirs.mean(0), rtol=1e-4, atol=1e-4)


def test_axes_are_those_of_scikit_learn() -> None:
    """Up to their signs, where the largest number is positive here."""
    vectors = np.random.default_rng(0).normal(size=(50, 6)) * [9, 7, 5, 3, 2, 1]
    ours, theirs = principal_axes(vectors, 4), PCA(4).fit(vectors).components_.T
    np.testing.assert_allclose(np.abs(ours), np.abs(theirs), atol=1e-5)
    assert (ours.max(0) == np.abs(ours).max(0)).all()


def test_a_tokenizer_in_python_is_refused() -> None:
    with pytest.raises(LimbeckError, match=r"object is not a tokenizer of the tokenizers library"):
        static_student(object())


def test_tokens_of_another_tokenizer_are_read_as_their_text(embedder) -> None:
    own = train_tokenizer(tiny.sentences(60), 100)
    made = from_teacher(
        embedder, own, tiny.sentences(60), 9, teacher_tokenizer=tiny.tokenizer(), pooling="cls"
    )
    ours = made.vectors.weight.detach()[own.convert_tokens_to_ids(["good", "film", "slow"])]
    theirs = read_alone(embedder, [4, 6, 11])[:, 0]
    np.testing.assert_allclose(pdist(ours), pdist(theirs), rtol=1e-4)


@pytest.mark.parametrize(
    ("kind", "texts"), [("wordpiece", GERMAN), ("unigram", GERMAN), ("unigram", JAPANESE)]
)
def test_a_tokenizer_of_another_language(kind, texts, tmp_path) -> None:
    tokenizer = train_tokenizer(texts, 80, kind)
    assert len(tokenizer) <= 80 and tokenizer.pad_token_id == 0
    for text in texts[:3]:
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.unk_token_id not in ids
        assert tokenizer.decode(ids).replace(" ", "") == text.lower().replace(" ", "")
    tokenizer.save_pretrained(tmp_path)
    assert (
        type(tokenizer).from_pretrained(tmp_path)(texts)["input_ids"]
        == tokenizer(texts)["input_ids"]
    )


def test_case_is_kept_where_asked() -> None:
    kept = train_tokenizer(GERMAN, 80, "unigram", lower_case=False)
    assert kept("Film")["input_ids"] != kept("film")["input_ids"]


def test_an_unknown_kind_of_tokenizer_is_refused() -> None:
    with pytest.raises(
        LimbeckError, match=r"unknown tokenizer kind 'wordpeice'\n.*did you mean 'wordpiece'"
    ):
        train_tokenizer(GERMAN, 80, "wordpeice")


@pytest.mark.parametrize(
    ("words", "count", "power", "dropout"),
    [(32, 20, 0.5, 0.3), (33, 20, 1.0, 0.5), (32, 22, 1.0, 0.5)],
)
def test_settings_of_classes_follow_the_length_and_number_of_texts(
    words, count, power, dropout, monkeypatch
) -> None:
    """What is given stays."""
    monkeypatch.setattr(start, "FEW", 21)
    texts = ["film " * (words - 4), "film " * (words + 4)] * (count // 2)
    for made in (
        static_student(tiny.tokenizer(), 4, texts, num_labels=2),
        from_teacher(tiny.bert(2).eval(), tiny.tokenizer(), texts, 4, num_labels=2),
    ):
        assert (made.config.pair_power, made.config.token_dropout) == (power, dropout)
    given = static_student(tiny.tokenizer(), 4, texts, num_labels=2, token_dropout=0.1)
    assert (given.config.pair_power, given.config.token_dropout) == (power, 0.1)
