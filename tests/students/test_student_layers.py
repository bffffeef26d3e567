"""Truncated models against the teacher's own hidden states, and what reloads elsewhere."""

from __future__ import annotations

import logging

import pytest
import torch
from safetensors.torch import save_file
from student_models import (
    FAMILIES,
    SIZES,
    TASK,
    auto_of,
    batch_for,
    hidden_states,
    logits,
    random_model,
    student_of,
)
from transformers import (
    AlbertConfig,
)

from fresh_process import printed_by
from limbeck.students import build_student
from limbeck.support.errors import LimbeckError


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_first_layers_compute_the_teachers_hidden_states(family):
    teacher = random_model(FAMILIES[family])
    student = student_of(teacher, 2)
    stacks = ("encoder", "decoder") if family in ("t5", "bart") else ("main",)
    theirs, ours = hidden_states(teacher, stacks[0]), hidden_states(student, stacks[0])
    assert len(ours) == 3
    # The last state passes the final norm in some families; the ones below it never do.
    for layer in range(2):
        torch.testing.assert_close(ours[layer], theirs[layer], rtol=0, atol=0)
    if family in ("bert", "roberta", "distilbert", "electra", "deberta-v2", "bart"):
        torch.testing.assert_close(ours[2], theirs[2], rtol=0, atol=0)
    if len(stacks) == 2:
        assert len(hidden_states(student, "decoder")) == 3


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_listed_layers_equal_a_teacher_whose_other_layers_are_removed(family):
    """The oracle cuts the teacher's own module list: no configuration, no renaming."""
    teacher = random_model(FAMILIES[family])
    student = student_of(teacher, [1, 3])
    for module in teacher.modules():
        for name, child in list(module.named_children()):
            if isinstance(child, torch.nn.ModuleList) and len(child) == 4:
                setattr(module, name, torch.nn.ModuleList([child[0], child[2]]))
    if hasattr(teacher.config, "layer_types"):  # read from the configuration on every forward
        teacher.config.layer_types = [teacher.config.layer_types[layer] for layer in (0, 2)]
    for module in teacher.modules():
        if getattr(module, "layer_idx", None) == 2:  # where a key-value cache looks it up
            module.layer_idx = 1
    torch.testing.assert_close(logits(student), logits(teacher), rtol=0, atol=0)


@pytest.mark.parametrize("family", [*sorted(FAMILIES), "albert"])
@pytest.mark.parametrize("pick", ["last", "skip"])
def test_saved_student_reloads_bit_equal(family, pick, tmp_path):
    config = FAMILIES.get(family) or AlbertConfig(**SIZES, embedding_size=8)
    student = student_of(random_model(config), 2, pick)
    student.save_pretrained(tmp_path)
    again, info = auto_of(config).from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert all(weight.dtype == torch.float32 for weight in again.parameters())
    torch.testing.assert_close(logits(again), logits(student), rtol=0, atol=0)


@pytest.mark.slow
@pytest.mark.own_arithmetic
def test_reloads_where_limbeck_is_not_imported(tmp_path):
    students = {}
    for family in ("bert", "t5", "modernbert"):
        teacher = random_model(FAMILIES[family])
        student = build_student("teacher", teacher=teacher, layers=2, pick="last", task=TASK)
        student.save_pretrained(tmp_path / family)
        students[family] = logits(student)
        save_file(
            {**batch_for(student), "logits": students[family]}, tmp_path / f"{family}.safetensors"
        )
    script = (
        "import sys, torch\n"
        "from pathlib import Path\n"
        "from safetensors.torch import load_file\n"
        "from transformers import AutoModelForSequenceClassification as Auto\n"
        "for file in sorted(Path(sys.argv[1]).glob('*.safetensors')):\n"
        "    batch = load_file(file); expected = batch.pop('logits')\n"
        "    model = Auto.from_pretrained(file.with_suffix(''))\n"
        "    with torch.no_grad(): assert torch.equal(model(**batch).logits, expected), file\n"
        "assert 'limbeck' not in sys.modules\n"
        "print('same')\n"
    )
    assert printed_by(script, tmp_path) == "same\n"


def test_layer_types_follow_the_picked_layers():
    modern = random_model(FAMILIES["modernbert"])
    student = build_student("teacher", teacher=modern, layers=[2, 3, 4], task=TASK)
    assert student.config.layer_types == [
        "sliding_attention",
        "sliding_attention",
        "full_attention",
    ]
    qwen = random_model(FAMILIES["qwen3"])
    student = build_student("teacher", teacher=qwen, layers=[2, 3], task=TASK)
    assert student.config.layer_types == ["full_attention", "sliding_attention"]
    assert qwen.config.num_hidden_layers == 4 and len(qwen.config.layer_types) == 4


def test_t5_keeps_the_first_layers_relative_bias():
    teacher = random_model(FAMILIES["t5"])
    student = build_student("teacher", teacher=teacher, layers=2, pick="last", task=TASK)
    for stack in ("encoder", "decoder"):
        name = f"transformer.{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        assert torch.equal(student.state_dict()[name], teacher.state_dict()[name])
    shared = student.get_input_embeddings().weight
    assert student.transformer.encoder.embed_tokens.weight is shared


def test_encoder_and_decoder_may_keep_different_layers():
    teacher = random_model(FAMILIES["t5"])
    student = build_student(
        "teacher", teacher=teacher, layers={"encoder": 3, "decoder": [2]}, task=TASK
    )
    assert len(student.transformer.encoder.block) == 3
    assert len(student.transformer.decoder.block) == 1
    ours = student.transformer.decoder.block[0].layer[-1].DenseReluDense.wi.weight
    theirs = teacher.transformer.decoder.block[1].layer[-1].DenseReluDense.wi.weight
    assert torch.equal(ours, theirs)
    with pytest.raises(LimbeckError, match="stacks \\['decoder'\\], but the model has main"):
        build_student(
            "teacher", teacher=random_model(FAMILIES["bert"]), layers={"decoder": 1}, task=TASK
        )


def test_albert_changes_only_its_rounds_and_says_so(caplog):
    teacher = random_model(AlbertConfig(**SIZES, embedding_size=8))
    with caplog.at_level(logging.WARNING):
        student = build_student("teacher", teacher=teacher, layers=2, pick="last", task=TASK)
    assert "one shared layer 4 times" in caplog.text
    assert student.state_dict().keys() == teacher.state_dict().keys()
    assert student.config.num_hidden_layers == 2
    for ours, theirs in zip(hidden_states(student), hidden_states(teacher), strict=False):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_modernbert_says_what_its_first_layer_cannot_hold(caplog):
    with caplog.at_level(logging.WARNING):
        build_student(
            "teacher", teacher=random_model(FAMILIES["modernbert"]), layers=[2, 3], task=TASK
        )
    assert "attn_norm" in caplog.text
