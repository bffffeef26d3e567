"""Shapes that no model has, and home folders of nobody: refused in words."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import transformers as hf

from limbeck.students.shapes import named_model, refuse_impossible
from limbeck.support.errors import LimbeckError
from limbeck.support.files import at_home


def test_a_shape_beyond_any_models_is_refused_at_once():
    began = time.monotonic()
    with pytest.raises(LimbeckError, match="num_hidden_layers is 99999999"):
        named_model("pocket-99999999-8-1")
    assert time.monotonic() - began < 5  # listing so many layers takes minutes


@pytest.mark.parametrize(
    ("config", "divides"),
    [
        (hf.BertConfig(hidden_size=7, num_attention_heads=2), 2),
        # Rotary positions turn numbers in pairs.
        (hf.ModernBertConfig(hidden_size=7, num_attention_heads=1), 2),
    ],
    ids=["bert", "modernbert"],
)
def test_heads_that_cannot_share_a_width_are_named(config, divides):
    with pytest.raises(LimbeckError, match=r"cannot share a width of 7") as error:
        refuse_impossible(config, "student")
    assert f"a width that {divides} divides" in str(error.value)


@pytest.mark.parametrize(
    "config",
    [
        hf.T5Config(d_model=10, num_heads=4, d_kv=8),
        hf.Qwen3Config(hidden_size=10, num_attention_heads=4, head_dim=8),
        hf.BertConfig(),
        hf.ModernBertConfig(),
    ],
    ids=lambda config: config.model_type,
)
def test_heads_of_their_own_width_share_nothing(config):
    refuse_impossible(config, "student")


def test_the_home_of_nobody_is_a_folder_that_does_not_exist():
    assert at_home("~nobody-at-all/x") == Path("~nobody-at-all/x")
    assert at_home("~/x") == Path.home() / "x"
    assert at_home(Path("a/~b")) == Path("a/~b")
