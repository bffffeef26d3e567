"""FLOPs at the papers' 128 tokens beside those of a run's own mean length."""

from __future__ import annotations

import pytest

import tiny_runs as tiny
from limbeck.evaluation.measuring import model_facts
from limbeck.tables import build_table, render
from synthetic_records import a_run


def by_hand(layers: int, width: int, inner: int, tokens: int, classes: int) -> int:
    """Matrix products of a BERT classifier, a multiply-add counted as 2."""
    projections = 4 * 2 * tokens * width * width
    attention = 2 * 2 * tokens * tokens * width
    feed_forward = 2 * 2 * tokens * width * inner
    head = 2 * width * width + 2 * width * classes
    return layers * (projections + attention + feed_forward) + head


def test_both_lengths_by_hand():
    model = tiny.bert(3, max_position_embeddings=128)
    config = model.config
    facts = model_facts(model, 20)
    for found, tokens in ((facts.flops_per_example, 20), (facts.flops_at_128, 128)):
        expected = by_hand(
            3, config.hidden_size, config.intermediate_size, tokens, config.num_labels
        )
        assert found == expected


def test_a_model_that_reads_fewer_tokens_has_none():
    assert model_facts(tiny.bert(2, max_position_embeddings=40), 20).flops_at_128 is None


def test_a_table_shows_them():
    run = a_run("kd", 1, 80.0)
    run.student.flops_at_128 = 22.35e9
    table = build_table([run], facts=["flops-128"])
    assert table.rows[-1].facts["flops-128"].value == pytest.approx(22.35e9)
    assert "FLOPs at 128 tokens" in render(table, "markdown") and "22.4G" in render(
        table, "markdown"
    )
