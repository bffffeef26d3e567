"""Scores of relation heads by squared error: T5's in CR-ILD, App. F.2, of any widths and head counts."""

from __future__ import annotations

import functools
import math
from typing import Any

import pytest
import torch
import transformers as hf
from pydantic import TypeAdapter

import limbeck.functional as F
from limbeck.activations import capture
from limbeck.objectives import Loss, ModelShape, Objectives, Shape, TermSpec
from limbeck.recipe import Recipe
from limbeck.support.errors import LimbeckError
from limbeck.support.step_state import StepState
from limbeck.teachers.teacher import Teacher

LAST = {"kind": "last-to-last"}
SCORES = {"compare": "relation_mse", "of": "query_key", "mapping": LAST}


# ---- the functions ----


def test_scores_by_hand():
    queries = torch.tensor([[[[1.0, 2.0, 0.0, 0.0], [3.0, 0.0, 0.0, 4.0]]]])
    keys = torch.tensor([[[[2.0, 1.0, 5.0, 0.0], [0.0, 1.0, 0.0, 2.0], [9.0, 9.0, 9.0, 9.0]]]])
    two, of_three = torch.tensor([[True, True]]), torch.tensor([[True, True, False]])
    # Products 4, 2 / 6, 8 over √4; the third key is padding.
    expected = torch.tensor([[[[2.0, 1.0, 0.0], [3.0, 4.0, 0.0]]]])
    assert torch.equal(F.relation_scores(queries, keys, two, of_three), expected)


def test_squared_error_by_hand():
    student = torch.tensor([[[[1.0, 2.0], [3.0, -2e4]], [[0.0, 0.0], [0.0, -2e4]]]])
    teacher = torch.tensor([[[[0.0, 0.0], [0.0, -2e4]], [[0.0, 0.0], [0.0, -2e4 - 4]]]])
    both, first = torch.tensor([[True, True]]), torch.tensor([[True, False]])
    # A low score is a score: no model has masked these.
    assert F.relation_mse(student, teacher, both).item() == pytest.approx((14 + 16) / 4 / 2)
    assert F.relation_mse(student, teacher, both, causal=True).item() == pytest.approx(26 / 3 / 2)
    assert F.relation_mse(student, teacher, first).item() == pytest.approx(1 / 2)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("keys", [4, 6])
def test_both_against_a_loop(keys, causal):
    torch.manual_seed(1)
    sides = [(torch.randn(3, 2, 4, r), torch.randn(3, 2, keys, r)) for r in (5, 8)]
    query_mask = torch.tensor([[1, 1, 1, 0], [0, 1, 0, 0], [1, 1, 1, 1]])
    key_mask = torch.tensor([[1, 1, 0, 0, 1, 1], [1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]])
    key_mask = key_mask[:, :keys]
    total = 0.0
    for b in range(3):
        for h in range(2):
            pairs = []
            for q in query_mask[b].nonzero().flatten().tolist():
                for k in key_mask[b].nonzero().flatten().tolist():
                    if causal and k > q:
                        continue
                    s, t = (
                        sum(
                            float(x) * float(y) for x, y in zip(a[b, h, q], c[b, h, k], strict=True)
                        )
                        / math.sqrt(a.shape[-1])
                        for a, c in sides
                    )
                    pairs.append((s - t) ** 2)
            total += sum(pairs) / len(pairs) / 2 / 3
    scores = [F.relation_scores(q, k, query_mask, key_mask) for q, k in sides]
    value = F.relation_mse(*scores, query_mask, key_mask, causal=causal)
    assert value.item() == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize("fill", [1e30, float("inf"), float("nan")])
def test_what_stands_at_padding_reaches_neither_scores_nor_gradient(fill):
    torch.manual_seed(1)
    queries, keys = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 3, 4)
    mask = torch.tensor([[True, True, False]])
    clean = F.relation_scores(queries, keys, mask)
    queries[:, :, 2], keys[:, :, 2] = fill, fill
    queries.requires_grad_(), keys.requires_grad_()
    dirty = F.relation_scores(queries, keys, mask)
    assert torch.equal(dirty, clean)
    dirty.square().sum().backward()
    for side in (queries, keys):
        assert side.grad.isfinite().all() and (side.grad[:, :, 2] == 0).all()
        assert side.grad[:, :, :2].abs().min() > 0


# ---- the term ----


@functools.cache
def t5(layers: int, width: int, heads: int) -> Any:
    torch.manual_seed(layers)
    config = hf.T5Config(
        vocab_size=40,
        d_model=width,
        d_kv=width // heads,
        d_ff=16,
        num_layers=layers,
        num_heads=heads,
        decoder_start_token_id=0,
    )
    return hf.T5ForConditionalGeneration(config).eval()


def batch() -> dict[str, torch.Tensor]:
    """Texts of 5 and 3 tokens, answers of 3 and 2."""
    generator = torch.Generator().manual_seed(1)
    made = {
        "input_ids": torch.randint(5, 40, (2, 5), generator=generator),
        "attention_mask": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]),
        "decoder_input_ids": torch.randint(5, 40, (2, 3), generator=generator),
        "decoder_attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0]]),
    }
    made["input_ids"] *= made["attention_mask"]
    made["decoder_input_ids"] *= made["decoder_attention_mask"]
    return made


def term_of(term: dict[str, Any], student: Any, teacher: Any) -> torch.Tensor:
    specs = TypeAdapter(dict[str, TermSpec]).validate_python({"term": term})
    objectives = Objectives(Loss(specs), Shape(ModelShape.of(student), ModelShape.of(teacher)))
    ours = capture(student, batch(), objectives.request("student", StepState()))
    theirs = Teacher(teacher)(batch(), objectives.request("teacher", StepState()))
    return objectives(ours, theirs, batch(), StepState())["term"]


def made_by(model: Any, stack: str, what: str) -> torch.Tensor:
    """What the last layer's own linear map made: (B, N, d), in float64."""
    place = {"encoder": ("encoder", 0, "SelfAttention"), "decoder": ("decoder", 0, "SelfAttention")}
    side, number, name = place.get(stack, ("decoder", 1, "EncDecAttention"))
    linear = getattr(getattr(getattr(model, side).block[-1].layer[number], name), what)
    kept: list[torch.Tensor] = []
    hook = linear.register_forward_hook(lambda module, given, made: kept.append(made.double()))
    with torch.no_grad():
        model(**batch(), use_cache=False)
    hook.remove()
    return kept[0]


def by_loops(rows: str, columns: str, stack: str, models: tuple[Any, Any], heads: int) -> float:
    lengths = {"encoder": ((5, 3),) * 2, "decoder": ((3, 2),) * 2, "cross": ((3, 2), (5, 3))}[stack]
    if stack == "cross" and rows == columns:
        lengths = (lengths[0 if rows == "q" else 1],) * 2
    found = [(made_by(m, stack, rows), made_by(m, stack, columns)) for m in models]
    total = 0.0
    for b in range(2):
        for h in range(heads):
            errors = []
            for q in range(lengths[0][b]):
                for k in range(lengths[1][b]):
                    if stack == "decoder" and rows != columns and k > q:
                        continue  # a decoder's word sees none that come later
                    scores = []
                    for x, y in found:
                        r = x.shape[-1] // heads
                        part = slice(h * r, (h + 1) * r)
                        scores.append(float(x[b, q, part] @ y[b, k, part]) / math.sqrt(r))
                    errors.append((scores[0] - scores[1]) ** 2)
            total += sum(errors) / len(errors)
    return total / heads / 2


@pytest.mark.parametrize("stack", ["encoder", "decoder", "cross"])
@pytest.mark.parametrize("of", ["query_key", "query", "key", "value"])
def test_relation_heads_of_models_of_other_widths_and_head_counts(of, stack):
    student, teacher = t5(2, 8, 2), t5(3, 12, 3)
    term = SCORES | {"of": of, "stack": stack}
    rows, columns = ("q", "k") if of == "query_key" else (of[0], of[0])
    expected = by_loops(rows, columns, stack, (student, teacher), heads=2)
    found = term_of(term, student, teacher)
    assert expected > 1e-4
    assert found.item() == pytest.approx(expected, rel=1e-4)
    assert term_of(term | {"heads": 4}, student, teacher).item() == pytest.approx(
        by_loops(rows, columns, stack, (student, teacher), heads=4), rel=1e-4
    )


def test_a_model_that_is_its_own_teacher_has_no_error():
    # The teacher may be computed in another order: scores near 1 then differ by about 1e-7.
    value = term_of(SCORES | {"stack": "decoder"}, t5(2, 8, 2), t5(2, 8, 2))
    assert value.item() == pytest.approx(0.0, abs=1e-10)


def test_with_its_own_heads_scores_are_those_of_a_model_without_position_bias():
    """BERT's own scaled scores, as `attention_mse` sees them."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 40, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8}
    student, teacher = (
        hf.BertForSequenceClassification(hf.BertConfig(**sizes, num_hidden_layers=n)).eval()
        for n in (1, 2)
    )
    inputs = {key: batch()[key] for key in ("input_ids", "attention_mask")}
    specs = {"heads": SCORES, "own": {"compare": "attention_mse", "mapping": LAST}}
    shape = Shape(ModelShape.of(student), ModelShape.of(teacher))
    objectives = Objectives(Loss(TypeAdapter(dict[str, TermSpec]).validate_python(specs)), shape)
    ours = capture(student, inputs, objectives.request("student", StepState()))
    theirs = Teacher(teacher)(inputs, objectives.request("teacher", StepState()))
    found = objectives(ours, theirs, inputs, StepState())
    torch.testing.assert_close(found["heads"], found["own"], rtol=1e-4, atol=1e-9)


def test_relation_kl_of_queries_with_keys_is_refused_with_what_to_say_instead():
    with pytest.raises(LimbeckError, match="query_key goes with relation_mse") as caught:
        Recipe.load("kd", **{"objectives.layers": SCORES | {"compare": "relation_kl"}})
    (problem,) = caught.value.problems
    assert problem.fix


# ---- the paper's runs ----


def first_stage(method: str, **given: str) -> dict[str, Any]:
    return Recipe.load(method, task="mrpc", **given).first_stage.objectives


@pytest.mark.parametrize(
    ("method", "settings", "others"),
    [
        ("l-ild-t5-attention", "quick", set()),
        ("l-ild-t5-attention", "paper", set()),
        # "we distill attention scores of relation head and the hidden states"
        ("l-ild-t5", "paper", {"hidden"}),
        # "We only distill self-attention of the last layer of the decoder when using … CR"
        ("cr-ild-t5", "paper", {"attention_consistency"}),
    ],
)
def test_the_paper_compares_scores_of_the_last_decoder_layer(method, settings, others):
    terms = first_stage(method, settings=settings)
    assert set(terms) == {"attention"} | others
    term = terms["attention"]
    assert (term.compare, term.of, term.stack) == ("relation_mse", "query_key", "decoder")
    assert (term.mapping.kind, term.heads) == ("last-to-last", "student")
    assert Recipe.load(method, task="mrpc", settings=settings).objectives.keys() == {"hard"}
