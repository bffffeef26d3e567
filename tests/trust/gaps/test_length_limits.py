"""A length limit beyond a model's positions: refused where these are a table, and explained where they are not."""

from __future__ import annotations

import pytest
import transformers as hf

import tiny_runs as tiny
from limbeck.data import load_task
from limbeck.preflight import check
from limbeck.preflight.model_checks import check_padding, check_positions
from limbeck.run import distill
from limbeck.support.errors import LimbeckError
from limbeck.support.positions import table_length

LONG = 1_000_000
SIZES = {
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "vocab_size": 14,
    "pad_token_id": 0,
    "max_position_embeddings": 5,
    "id2label": {0: "negative", 1: "positive"},
}


def rotary() -> hf.PreTrainedModel:
    marks = dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 0)
    return hf.ModernBertForSequenceClassification(hf.ModernBertConfig(**(SIZES | marks)))


def relative() -> hf.PreTrainedModel:
    """DeBERTa's positions are distances; the number in its configuration is no table."""
    kept = {"relative_attention": True, "position_biased_input": False, "type_vocab_size": 0}
    return hf.DebertaV2ForSequenceClassification(hf.DebertaV2Config(**(SIZES | kept)))


def unlimited() -> hf.PreTrainedModel:
    return hf.T5ForSequenceClassification(
        hf.T5Config(
            vocab_size=14,
            d_model=16,
            d_kv=8,
            d_ff=24,
            num_layers=1,
            num_heads=2,
            decoder_start_token_id=0,
            id2label={0: "negative", 1: "positive"},
        )
    )


@pytest.fixture(scope="module")
def reviews(tmp_path_factory):
    path = tiny.write_csv(tmp_path_factory.mktemp("rows") / "reviews.csv", 40)
    return load_task("reviews", path, text_columns=["review"], label_column="verdict")


def found(reviews, model, max_length: int) -> list[tuple[str, str]]:
    task, rows = reviews
    problems = check(
        task=task, rows=rows, student=model, tokenizer=tiny.tokenizer(), max_length=max_length
    ).problems
    return [(one.severity, one.message) for one in problems if "positions" in one.message]


def test_a_table_ends(reviews):
    ((severity, said),) = found(reviews, tiny.bert(2), LONG)
    assert severity == "error"
    assert said == "max_length 1000000 is beyond the 24 positions of the student"
    assert found(reviews, tiny.bert(2), 24) == []


def test_a_run_ends_there_before_any_work(reviews, tmp_path):
    tiny.save(tiny.bert(2), tmp_path / "start")
    path = tiny.write_csv(tmp_path / "reviews.csv", 40)
    with pytest.raises(LimbeckError, match="max_length 1000000 is beyond the 24 positions"):
        distill(
            "finetune",
            tmp_path / "run",
            data=str(path),
            task="reviews",
            text_columns=["review"],
            label_column="verdict",
            max_length=LONG,
            **{"student.init": str(tmp_path / "start")},
        )
    assert not (tmp_path / "run").exists()


def test_a_length_that_is_left_out_follows_the_shortest_model(tmp_path, caplog):
    """The teacher has 24 positions, the student's start 6; the longest review has 8 tokens."""
    tiny.save(tiny.knowing_teacher(), tmp_path / "teacher")
    tiny.save(tiny.bert(2, max_position_embeddings=6), tmp_path / "start")
    settings = {
        "data": str(tiny.write_csv(tmp_path / "reviews.csv", 40)),
        "text_columns": ["review"],
        "label_column": "verdict",
        "teacher": str(tmp_path / "teacher"),
        "teacher_rows": "any",
        "max_steps": 1,
    }
    whole = distill("kd-soft", tmp_path / "whole", **settings)
    assert whole.record.recipe["max_length"] == 24
    assert whole.record.examples.truncated["train"] == 0
    start = {"student.init": str(tmp_path / "start")}
    short = distill("kd-soft", tmp_path / "short", **settings, **start)
    assert f"max_length is 6: {tmp_path / 'start'} has no more positions" in caplog.messages
    assert short.record.recipe["max_length"] == 6
    assert short.record.examples.truncated["train"] > 0
    # The same command again is the same run.
    again = distill("kd-soft", tmp_path / "short", **settings, **start)
    assert again.record == short.record
    with pytest.raises(LimbeckError, match="max_length 128 is beyond the 6 positions"):
        distill("kd-soft", tmp_path / "named", **settings, **start, max_length=128)


@pytest.mark.parametrize(
    ("model", "length"),
    [(tiny.bert(1, max_position_embeddings=64), 64), (rotary(), None), (relative(), None)],
)
def test_the_length_of_a_table_of_positions(model, length):
    assert table_length(model.config) == length


@pytest.mark.parametrize("model", [rotary, relative])
def test_positions_without_a_table_bear_what_no_row_reaches(reviews, model):
    """The longest review has 8 tokens: mark, six words, mark."""
    ((severity, said),) = found(reviews, model(), LONG)
    assert severity == "warning" and "rows of up to 8 tokens" in said and "5 positions" in said
    roomy = model()
    roomy.config.max_position_embeddings = 8
    assert found(reviews, roomy, LONG) == []
    assert found(reviews, roomy, 8) == []
    ((severity, said),) = found(reviews, model(), 6)  # cut to six, which are one too many
    assert severity == "warning" and "rows of up to 6 tokens" in said


def test_distances_without_a_limit_have_none(reviews):
    assert found(reviews, unlimited(), LONG) == []


def test_no_batch_is_padded_beyond_what_a_model_was_trained_on():
    for model in (rotary(), relative(), tiny.bert(2, max_position_embeddings=5)):
        (problem,) = check_padding("student", model, LONG)
        assert problem.severity == "error"
        assert problem.message == "pad_to 1000000 is beyond the 5 positions of the student"
    assert check_positions("student", rotary(), LONG) == []
