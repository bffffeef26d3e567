"""TRL and DistillKit as judges of divergences over a vocabulary, where they are installed."""

from __future__ import annotations

import pytest
import torch

from limbeck import functional

# DistillKit's losses are sums over tokens; of one length, the mean over texts is the mean over tokens.
TEXTS, TOKENS, WORDS = 3, 7, 50
MASK = torch.ones(TEXTS, TOKENS, dtype=torch.bool)


def sides() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(TEXTS, TOKENS, WORDS, generator=generator) * 3 for _ in range(2)]


def same(ours, theirs) -> None:
    """In value and in the gradient of the student's logits."""
    student, teacher = sides()
    found = []
    for loss in (ours, theirs):
        given = student.clone().requires_grad_()
        value = loss(given, teacher)
        found.append((value.detach(), *torch.autograd.grad(value, given)))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-6)


@pytest.mark.filterwarnings("ignore")  # TRL's own
@pytest.mark.parametrize("temperature", [1.0, 2.0])
@pytest.mark.parametrize("beta", [0, 0.3, 0.5, 1])
def test_the_generalized_jensen_shannon_divergence_is_trls(beta, temperature) -> None:
    theirs = pytest.importorskip("trl.experimental.gkd").GKDTrainer.generalized_jsd_loss
    labels = torch.zeros(TEXTS, TOKENS).long()
    same(
        lambda s, t: functional.token_jsd(s, t, MASK, beta=beta, temperature=temperature),
        lambda s, t: theirs(s, t, labels=labels, beta=beta, temperature=temperature),
    )


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_divergences_of_whole_vocabularies_are_distillkits(temperature) -> None:
    losses = pytest.importorskip("distillkit.lossfuncs")
    at, count = {"temperature": temperature}, TEXTS * TOKENS
    same(
        lambda s, t: functional.token_soft_kl(s, t, MASK, **at),
        lambda s, t: losses.kl.dense_kl_div(s, t, **at) / count,
    )
    same(
        lambda s, t: functional.token_jsd(s, t, MASK, beta=0.5, **at),
        lambda s, t: losses.jsd.dense_js_div(s, t, **at) / count,
    )


def test_the_likeliest_tokens_with_a_tail_are_distillkits() -> None:
    losses = pytest.importorskip("distillkit.lossfuncs")
    tail = losses.MissingProbabilityHandling.SYMMETRIC_UNIFORM

    def ours(student, teacher):
        student, teacher = student.flatten(0, 1), teacher.flatten(0, 1)
        return functional.topk_kl(student, *functional.top_tokens(teacher, 8))

    def theirs(student, teacher):
        logs, ids = teacher.log_softmax(-1).topk(8)
        return losses.sparse_kl_div(student, ids, logs, missing=tail) / (TEXTS * TOKENS)

    same(ours, theirs)
