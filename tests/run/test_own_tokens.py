"""Teachers with another vocabulary: the same answers under other ids teach the same student."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

import tiny_runs as tiny
from limbeck.run import distill
from limbeck.support.errors import LimbeckError


def other_tokenizer() -> PreTrainedTokenizerFast:
    """The words of `tiny.tokenizer` in the opposite order, and a word more."""
    words = [*tiny.SPECIAL, *reversed(tiny.WORDS), "more"]
    vocabulary = {word: number for number, word in enumerate(words)}
    return tiny.tokenizer_of(WordLevel(vocabulary, unk_token="[UNK]"))


@pytest.fixture(scope="module")
def foreign(place) -> str:
    """The place's teacher under other ids: what it answers is the same to the bit."""
    teacher = tiny.knowing_teacher(4)
    old, tokens = tiny.tokenizer().get_vocab(), other_tokenizer()
    before = teacher.bert.embeddings.word_embeddings.weight.detach()
    after = torch.zeros(len(tokens), before.shape[1])
    for word, number in tokens.get_vocab().items():
        if word in old:
            after[number] = before[old[word]]
    teacher.resize_token_embeddings(len(tokens))
    with torch.no_grad():
        teacher.bert.embeddings.word_embeddings.weight.copy_(after)
    folder = place / "foreign"
    teacher.save_pretrained(folder)
    tokens.save_pretrained(folder)
    return str(folder)


def weights(run: Path) -> bytes:
    return (run / "student" / "model.safetensors").read_bytes()


@pytest.mark.parametrize("cache", [pytest.param("never", marks=pytest.mark.slow), "always"])
def test_a_foreign_teacher_teaches_what_it_would_in_the_students_words(
    recipe, foreign, tmp_path, monkeypatch, cache
):
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "store"))
    given = {"cache": cache, "batch_size": 27}
    own = distill(recipe("kd", **given), tmp_path / "own", report=False)
    other = distill(recipe("kd", **given, teacher=foreign), tmp_path / "other")
    assert other.record.execution.teacher_outputs == {
        "1": "stored" if cache == "always" else "live"
    }
    assert weights(own.path) == weights(other.path)
    if cache == "never":
        assert "Layer similarity" not in (other.path / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_one_of_several_teachers_may_be_foreign(recipe, place, foreign, tmp_path):
    tiny.save(tiny.knowing_teacher(6), place / "deeper")
    others = {"teacher": None, "epochs": 1}
    first = [str(place / "teacher"), str(place / "deeper")]
    own = recipe("skd-uniform", teachers=first, **others)
    mixed = recipe("skd-uniform", teachers=[foreign, first[1]], **others)
    runs = [distill(one, tmp_path / str(n), report=False) for n, one in enumerate((own, mixed))]
    assert weights(runs[0].path) == weights(runs[1].path)


def test_layers_of_a_foreign_teacher_cannot_be_compared(recipe, foreign, tmp_path):
    with pytest.raises(LimbeckError, match="different vocabularies"):
        distill(recipe("pkd-skip", teacher=foreign), tmp_path / "run")
