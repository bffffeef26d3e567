"""Packed batches: every value, loss and gradient is that of the padded batch, and no text sees another."""

from __future__ import annotations

import pytest
import torch
import transformers as hf
from torch.testing import assert_close

import limbeck
import tiny_runs as tiny
from limbeck.activations import ActivationKey, Request, capture, packing, packing_problems
from limbeck.data import Collator
from limbeck.support.errors import LimbeckError
from limbeck.tasks import CAUSAL_LM

SIZES = {
    "vocab_size": 14, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 24, "max_position_embeddings": 64, "initializer_range": 0.4, "pad_token_id": 0,
    "bos_token_id": 2, "eos_token_id": 3,
}  # fmt: skip
FAMILIES = {
    "llama": hf.LlamaConfig(**SIZES),
    "qwen3": hf.Qwen3Config(**SIZES, head_dim=8),
    "gemma3": hf.Gemma3TextConfig(**SIZES, head_dim=8, sliding_window=4),
    "gpt2": hf.GPT2Config(
        vocab_size=14, n_embd=16, n_layer=3, n_head=4, n_positions=64, initializer_range=0.4, resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0,
    ),
}  # fmt: skip
LENGTHS = (7, 3, 1, 6)
SIDES = [(family, side) for family in FAMILIES for side in ("right", "left")]
# Learned positions of a padded row count the padding on its left: limbeck refuses it there.
SIDES.remove(("gpt2", "left"))


def model_of(
    config: hf.PreTrainedConfig, attention: str = "sdpa", seed: int = 0
) -> hf.PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return hf.AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()


def batch_of(side: str = "right", width: int = 8) -> dict[str, torch.Tensor]:
    mask = torch.zeros(len(LENGTHS), width, dtype=torch.long)
    for row, length in enumerate(LENGTHS):
        mask[row, slice(0, length) if side == "right" else slice(width - length, width)] = 1
    draw = torch.Generator().manual_seed(1)
    ids = torch.randint(3, 14, mask.shape, generator=draw) * mask
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def real(values: torch.Tensor, key: ActivationKey | None, mask: torch.Tensor) -> torch.Tensor:
    """The values at real tokens, others are 0."""
    if key is None or (key.what == "hidden" and key.pool is None):
        return values[mask]
    if key.what == "hidden":
        return values
    keep = mask[:, None, :, None]
    return values.masked_fill(
        ~(keep & mask[:, None, None, :] if key.what in ("probabilities", "scores") else keep), 0
    )


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize(("family", "side"), SIDES)
def test_every_activation_and_gradient_is_that_of_the_padded_batch(family, side, attention):
    model, batch = model_of(FAMILIES[family], attention), batch_of(side)
    mask = batch["attention_mask"].bool()
    asked = Request.hidden(range(4)) | Request.hidden([2], "mean") | Request.hidden([3], "last")
    for what in ("probabilities", "scores", "value") + ("query", "key") * (side == "right"):
        asked |= Request.attention(
            [1, 2], what
        )  # rotated by positions, which padding on the left moves
    for request in (
        asked | Request.of_logits(),
        asked,
        Request.hidden([1], "cls") if side == "right" else asked,
    ):
        gradients = []
        for packed in (False, True):
            trace = capture(model, batch, request, packed=packed)
            found = [
                (key, real(value, key, mask))
                for key, value in sorted(trace.values.items(), key=str)
            ]
            found += [] if trace.logits is None else [(None, real(trace.logits, None, mask))]
            model.zero_grad()
            sum(value.pow(2).mean() for _, value in found).backward()
            gradients.append(
                (
                    found,
                    {n: w.grad.clone() for n, w in model.named_parameters() if w.grad is not None},
                )
            )
            assert torch.equal(trace.mask(), mask)
        (plain, wanted), (values, given) = gradients
        for (key, one), (_, other) in zip(plain, values, strict=True):
            assert_close(other, one, rtol=1e-4, atol=1e-5, msg=str(key))
        assert_close(given, wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_text_does_not_depend_on_its_company(family):
    """Each text by itself in transformers is the judge, whatever stands before and after it."""
    model, batch = model_of(FAMILIES[family]), batch_of()
    other = {**batch, "input_ids": batch["input_ids"].clone()}
    other["input_ids"][[0, 3]] = 5
    with torch.no_grad():
        found = [
            capture(model, one, Request.of_logits(), packed=True).logits for one in (batch, other)
        ]
        for row in (1, 2):
            ids = batch["input_ids"][row : row + 1, : LENGTHS[row]]
            alone = model(input_ids=ids).logits[0]
            for logits in found:
                assert_close(logits[row, : LENGTHS[row]], alone, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(found[0][0], found[1][0])


@pytest.mark.parametrize(("config", "reason"), [
    (hf.OPTConfig(vocab_size=14, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, ffn_dim=24,
                  max_position_embeddings=64, word_embed_proj_dim=16, init_std=0.4, pad_token_id=0), "other outputs"),
    (hf.Lfm2Config(**SIZES, layer_types=["conv", "full_attention", "conv"]), "other outputs"),
    (hf.MambaConfig(vocab_size=14, hidden_size=16, num_hidden_layers=2), "no position_ids"),
    (hf.BloomConfig(vocab_size=14, hidden_size=16, n_layer=2, n_head=2), "no position_ids"),
])  # fmt: skip
def test_models_that_see_the_texts_before_are_refused(config, reason):
    model = hf.AutoModelForCausalLM.from_config(config)
    (problem,) = packing_problems("teacher", model, Request.of_logits())
    assert (
        "packing" in problem.message and "teacher" in problem.message and reason in problem.message
    )
    for family in FAMILIES.values():
        model = model_of(family)
        assert (
            packing_problems("student", model, Request.of_logits() | Request.attention([2])) == []
        )


def trained(method, tmp_path, family="llama", **settings):
    teacher = model_of(FAMILIES[family])
    student = limbeck.build_student(model_of(FAMILIES[family], seed=1), layers=2)
    rows = tiny.rows(32).remove_columns("labels")
    rows = rows.add_column("labels", rows["input_ids"][:])
    args = limbeck.DistillationConfig(
        output_dir=str(tmp_path), use_cpu=True, max_steps=4, per_device_train_batch_size=8, learning_rate=1e-2,
        optim="sgd", logging_steps=1, report_to="none", method=method, **settings,
    )  # fmt: skip
    trainer = limbeck.DistillationTrainer(
        student,
        teacher,
        args,
        train_dataset=rows,
        data_collator=Collator(tiny.tokenizer(), kind=CAUSAL_LM),
    )
    trainer.train()
    logs = [
        {k: v for k, v in entry.items() if "loss" in k or "term" in k}
        for entry in trainer.state.log_history[:4]
    ]
    return logs, student.state_dict()


@pytest.mark.parametrize(("family", "method"), [
    ("llama", "kd"), ("qwen3", "rail-kd-l"), ("gemma3", "minilm"), ("gpt2", "minilmv2"), ("llama", "tinybert"),
])  # fmt: skip
def test_packing_changes_no_loss_and_no_student(family, method, tmp_path):
    plain, packed = (
        trained(method, tmp_path, family, packing=packing) for packing in (False, True)
    )
    for one, other in zip(plain[0], packed[0], strict=True):
        assert one == pytest.approx(other, rel=1e-5, abs=1e-6)
    assert_close(packed[1], plain[1], rtol=1e-3, atol=1e-5)


def test_a_run_packs_student_and_teacher(tmp_path, monkeypatch):
    model_of(FAMILIES["llama"]).save_pretrained(tmp_path / "start")
    tiny.tokenizer().save_pretrained(tmp_path / "start")
    (tmp_path / "texts.txt").write_text("\n".join(tiny.sentences(60)))
    shared = {"kind": "causal-lm", "data": str(tmp_path / "texts.txt"), "batch_size": 8, "max_length": 16,
              "lr": 1e-2, "cache": "never"}  # fmt: skip
    taught = limbeck.distill(
        "finetune",
        student=str(tmp_path / "start"),
        out=str(tmp_path / "teacher"),
        epochs=6,
        **shared,
    )
    passes, of = [], packing.Packing.of
    monkeypatch.setattr(packing.Packing, "of", lambda mask: (passes.append(len(mask)), of(mask))[1])
    losses, counts = [], []
    for packs in (True, False):
        run = limbeck.distill(
            "kd", teacher=str(taught.path), out=str(tmp_path / str(packs)), packing=packs, max_steps=4,
            **{"student.layers": 2}, **shared,
        )  # fmt: skip
        losses.append(run.record.epochs[0].train)
        counts.append(passes.count(8))
        passes.clear()
    assert counts == [8, 0]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_what_does_not_fit_is_refused(tmp_path):
    with pytest.raises(LimbeckError, match="packing: it does not work with compile"):
        trained("kd", tmp_path, packing=True, compile=True)
    with pytest.raises(LimbeckError, match=r"packing: padding counts in objectives\.attention"):
        trained("tinybert-released", tmp_path, packing=True)
    args = limbeck.DistillationConfig(output_dir=str(tmp_path), use_cpu=True, packing=True)
    with pytest.raises(LimbeckError, match=r"packing: .*not one for each token(?s:.*)causal-lm"):
        limbeck.DistillationTrainer(tiny.bert(2), tiny.bert(4), args, train_dataset=tiny.rows(16))
