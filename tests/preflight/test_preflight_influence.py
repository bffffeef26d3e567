"""Terms that cannot move the student, and that looking leaves no trace."""

from __future__ import annotations

import torch
from preflight_runs import BATCH, model, words_of
from torch import nn

from limbeck.activations import ActivationKey, Request, capture
from limbeck.preflight import Method, errors_of
from limbeck.preflight.checking import check_influence, check_sizes, check_start, check_weights


def test_influence_of_each_kind_of_term():
    student = model().train()
    bank = nn.BatchNorm1d(16)  # writes its buffers on every forward, as a memory bank does

    def terms(batch):
        trace = capture(student, batch, Request.hidden([0, 1]) | Request.of_logits())
        first = trace[ActivationKey("hidden", 1)]
        return {
            "hard": nn.functional.cross_entropy(trace.logits, batch["labels"]),
            "bank": bank(first[:, 0]).pow(2).mean() + first.mean(),
            "constant": torch.tensor(1.0),
            "detached": first.detach().mean(),
            "itself": (first - first.detach()).pow(2).mean(),
            "broken": first.mean() * float("nan"),
            "off": torch.tensor(3.0),
        }

    weights = dict.fromkeys(("hard", "bank", "constant", "detached", "itself", "broken"), 1.0)
    state, buffers = torch.get_rng_state(), [buffer.clone() for buffer in bank.buffers()]
    before = {name: weight.clone() for name, weight in student.state_dict().items()}
    found = check_influence(
        Method(weights | {"off": 0.0}, {}, terms, BATCH, [bank]), student, decoder=False
    )
    by_name = {problem.message.split(":")[0].split(".")[1]: problem for problem in found}
    assert by_name.keys() == {"constant", "detached", "itself", "broken"}
    assert by_name["constant"].severity == by_name["detached"].severity == "error"
    assert by_name["itself"].severity == "warning" and "exactly zero" in by_name["itself"].message
    assert "is nan" in by_name["broken"].message
    assert torch.equal(torch.get_rng_state(), state)
    assert all(weight.grad is None for weight in student.parameters())
    assert all(torch.equal(b, a) for b, a in zip(buffers, bank.buffers(), strict=True))
    assert all(torch.equal(before[name], weight) for name, weight in student.state_dict().items())


def test_influence_leaves_existing_gradients_and_notices_frozen_students():
    student = model()
    for weight in student.parameters():
        weight.grad = torch.ones_like(weight)

    def terms(batch):
        return {"hard": student(**batch).loss}

    method = Method({"hard": 1.0}, {}, terms, BATCH)
    assert check_influence(method, student, decoder=False) == []
    assert all(bool((weight.grad == 1).all()) for weight in student.parameters())
    student.requires_grad_(False)
    assert "no parameter" in check_influence(method, student, decoder=False)[0].message


def test_a_term_that_dwarfs_the_others_is_warned_of():
    values = {"hard": torch.tensor(8.0), "soft": torch.tensor(8.0), "states": torch.tensor(5000.0)}
    weights = {"hard": 0.5, "soft": 0.5, "states": 0.2}
    (found,) = check_sizes(values, weights)
    assert found.severity == "warning" and found.message.startswith("objectives.states: 1e+03 on")
    # The advised weight brings it to the size of the others: 5000 · 0.0016 = 8.
    assert found.fix.endswith("objectives.states.weight=0.002")
    assert not check_sizes(values, weights | {"states": 0.04})
    assert not check_sizes({"states": values["states"]}, {})


def test_only_terms_of_a_decoder_are_compared():
    student = model()

    def terms(batch):
        loss = student(**batch).loss
        return {"hard": loss, "states": 100 * loss}

    method = Method({}, {}, terms, BATCH)
    assert check_influence(method, student, decoder=False) == []
    (found,) = check_influence(method, student, decoder=True)
    assert "objectives.states" in found.message


def test_weights():
    assert check_weights({"hard": 0.5, "soft": 1}) == []
    one = check_weights({"hard": 0.5, "soft": 0.0})
    assert [problem.severity for problem in one] == ["warning"]
    assert "nothing is learned" in words_of(check_weights({"hard": 0.0}))
    assert errors_of(check_weights({"hard": float("nan")}))


def test_a_student_with_one_answer_for_all_texts_needs_a_longer_way_than_a_few_steps():
    student = model().train()
    with torch.no_grad():
        student.classifier.weight.mul_(1e4)
    assert check_start(student, BATCH, travel=1e-4) == []  # its texts differ as it is
    with torch.no_grad():
        student.classifier.weight.zero_()
    (found,) = check_start(student, BATCH, travel=1e-4)
    assert found.severity == "warning" and "same outputs for all texts" in found.message
    assert "--pick skip" in found.fix
    assert check_start(student, BATCH, travel=0.02) == []
    assert student.training
