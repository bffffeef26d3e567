"""Runs whose student keeps the tokens that the training text needs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers.models import WordPiece
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedTokenizerFast,
)

import tiny_runs as tiny
from limbeck.cards.card import write_card
from limbeck.cli.finished import last_lines
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.support.errors import LimbeckError

UNUSED = [f"word{number}" for number in range(40)]


def tokenizer() -> PreTrainedTokenizerFast:
    """The words of `tiny.tokenizer` under their own ids, words that no row holds, and what spells both."""
    signs = sorted(set("".join([*tiny.WORDS, *UNUSED])))
    listed = [*tiny.SPECIAL, *tiny.WORDS, *UNUSED]
    listed += [one for one in signs if one not in listed] + [f"##{one}" for one in signs]
    vocabulary = {token: number for number, token in enumerate(listed)}
    return tiny.tokenizer_of(WordPiece(vocabulary, unk_token="[UNK]"))


@pytest.fixture(scope="module")
def teacher(place) -> str:
    """The place's teacher with rows for all these tokens."""
    model, tokens = tiny.knowing_teacher(4), tokenizer()
    model.resize_token_embeddings(len(tokens))
    model.save_pretrained(place / "worded")
    tokens.save_pretrained(place / "worded")
    return str(place / "worded")


def outputs(run: Path) -> torch.Tensor:
    """What transformers alone makes of a run's student."""
    model = AutoModelForSequenceClassification.from_pretrained(run / "student").eval()
    batch = AutoTokenizer.from_pretrained(run / "student")(
        tiny.sentences(12), padding=True, return_tensors="pt"
    )
    batch.pop("token_type_ids", None)
    with torch.no_grad():
        return model(**batch).logits


def test_a_student_without_the_unused_tokens_learns_what_it_would_with_them(
    recipe, teacher, tmp_path
):
    given = {"teacher": teacher, "student.init": "teacher", "student.layers": 2}
    whole = distill(recipe("kd", **given), tmp_path / "whole", report=False)
    asked = recipe("kd", **given, **{"student.vocabulary": "corpus"})
    small = distill(asked, tmp_path / "small", report=False)
    assert torch.allclose(outputs(whole.path), outputs(small.path), atol=1e-5)
    found = small.record.vocabulary
    assert found is not None
    assert found.before == len(tokenizer())
    assert found.before - found.after == len(UNUSED)
    train = found.texts["train"]
    assert (train.coverage, train.before) == (1.0, train.after)
    assert train.before == pytest.approx(
        np.mean([len(s.split()) for s in tiny.sentences(60)]), abs=0.4
    )
    width = small.record.student.hidden_size
    lost = whole.record.student.parameters - small.record.student.parameters
    assert lost == len(UNUSED) * width
    said = dict(last_lines(small.record, small.path))["Kept"]
    assert said.startswith(f"{found.after} of {found.before} tokens, ")
    write_card(small.path)
    assert f"| vocabulary | {said}" in (small.path / "student" / "README.md").read_text()
    again = distill(asked, tmp_path / "small", report=False)
    assert again.record == small.record


def test_words_that_left_are_read_in_pieces_and_the_teacher_reads_its_own(
    recipe, teacher, tmp_path, monkeypatch
):
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "store"))
    asked = {
        "teacher": teacher,
        "student.init": "teacher",
        "epochs": 1,
        "student.vocabulary": "60%",
    }
    made = distill(recipe("kd", cache="always", **asked), tmp_path / "run", report=False)
    found = made.record.vocabulary
    assert found.texts["train"].after > found.texts["train"].before
    assert found.texts["train"].unknown_after == 0
    # The teacher's own score is that of whole words.
    assert made.record.teacher.scores["dev"]["primary"] == 100.0


@pytest.mark.parametrize("method", ["internal-kd", "pkd-skip"])
def test_layers_teach_a_student_without_the_unused_tokens_as_they_would_with_them(
    recipe, teacher, tmp_path, method
):
    given = {"teacher": teacher, "student.init": "teacher", "student.layers": 2, "cache": "never"}
    whole = distill(recipe(method, **given), tmp_path / "whole", report=False)
    asked = recipe(method, **given, **{"student.vocabulary": "corpus"})
    small = distill(asked, tmp_path / "small", report=False)
    assert torch.allclose(outputs(whole.path), outputs(small.path), atol=1e-5)


def test_layers_teach_a_student_whose_words_left(recipe, teacher, tmp_path, monkeypatch):
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "store"))
    given = {"teacher": teacher, "student.init": "teacher", "student.layers": 2}
    given |= {"student.vocabulary": "60%", "max_length": 24, "cache": "always"}
    made = distill(recipe("internal-kd", **given), tmp_path / "run", report=False)
    first, *_, last = (one.train for one in made.record.epochs)
    assert all(last[name] < first[name] for name in first if name != "hard")
    assert made.record.execution.teacher_outputs == {"1": "stored"}


def test_a_model_that_is_only_fine_tuned_may_have_fewer_tokens_too(recipe, teacher, tmp_path):
    asked = {"student.init": teacher, "student.vocabulary": 70, "epochs": 1}
    made = distill(recipe("finetune", **asked), tmp_path / "run", report=False)
    assert (
        made.record.vocabulary.after
        == 70
        == len(AutoTokenizer.from_pretrained(made.path / "student"))
    )


def test_a_static_student_may_have_fewer_tokens_too(recipe, teacher, tmp_path):
    asked = {"teacher": teacher, "student.init": "teacher", "student.static": True}
    asked |= {"student.vocabulary": "corpus", "epochs": 1}
    made = distill(recipe("kd", **asked), tmp_path / "run", report=False)
    assert made.record.vocabulary.before - made.record.vocabulary.after == len(UNUSED)


def test_megabytes_are_written_in_any_case():
    assert Recipe.load("kd", **{"student.vocabulary": "12 mb"}).student.vocabulary == "12MB"


@pytest.mark.parametrize(
    ("method", "settings", "said"),
    [
        ("kd", {"student.vocabulary": 90, "mixup": {}}, "student.vocabulary: mixup needs the same tokens"),
        ("kd", {"student.vocabulary": "many"}, "write a number of tokens"),
        ("kd", {"student.vocabulary": True}, "write a number of tokens"),
        ("kd", {"student.vocabulary": 10, "student.init": "teacher"}, "10 is 10 tokens, and .* have to stay"),
        (
            "kd",
            {"student.vocabulary": 90, "student.tokenizer": 300, "student.init": "fresh"},
            "a tokenizer that is trained has the size",
        ),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(recipe, teacher, tmp_path, method, settings, said):
    with pytest.raises(LimbeckError, match=said):
        distill(recipe(method, teacher=teacher, **settings), tmp_path / "run", report=False)
