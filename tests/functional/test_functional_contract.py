"""What every loss promises: padding, empty examples, precision, gradients, no waiting.

One table holds a sample call of each function; a test fails when one is missing, so none escapes.
"""

from dataclasses import dataclass

import pytest
import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)

import limbeck.functional as functional

BATCH, HEADS, TOKENS, WIDTH = 4, 2, 5, 6
LENGTHS = (5, 3, 1, 4)


@dataclass(frozen=True)
class Case:
    """A function, the shapes of its two sides, and which dimensions are tokens ("t")."""

    student: tuple
    teacher: tuple | None = None
    token_dims: tuple[int, ...] = ()
    kind: str = "normal"  # what the values are: normal, probabilities
    masked: bool = True
    extra: dict | None = None


CASES = {
    "attention_kl": Case((BATCH, HEADS, TOKENS, TOKENS), token_dims=(2, 3), kind="probabilities"),
    "attention_cross_entropy": Case((BATCH, HEADS, TOKENS, TOKENS), token_dims=(2, 3)),
    "attention_cross_entropy causal": Case(
        (BATCH, HEADS, TOKENS, TOKENS), token_dims=(2, 3), extra={"causal": True}
    ),
    "attention_mse": Case((BATCH, HEADS, TOKENS, TOKENS), token_dims=(2, 3)),
    "attention_mse causal": Case(
        (BATCH, HEADS, TOKENS, TOKENS), token_dims=(2, 3), extra={"causal": True}
    ),
    "relation_kl": Case(
        (BATCH, HEADS, TOKENS, WIDTH), (BATCH, HEADS, TOKENS, WIDTH + 3), token_dims=(2,)
    ),
    "relation_mse": Case((BATCH, HEADS, TOKENS, TOKENS), token_dims=(2, 3)),
    "relation_mse causal": Case(
        (BATCH, HEADS, TOKENS, TOKENS), token_dims=(2, 3), extra={"causal": True}
    ),
    "hidden_mse": Case((BATCH, TOKENS, WIDTH), token_dims=(1,)),
    "cosine_distance": Case((BATCH, TOKENS, WIDTH), token_dims=(1,)),
    "cosine_distance unmasked": Case((BATCH, WIDTH), masked=False),
    "mse": Case((BATCH, WIDTH), masked=False),
    "normalized_mse": Case((BATCH, WIDTH), masked=False),
    "embedding_mse": Case((BATCH, WIDTH), masked=False),
    "embedding_cosine": Case((BATCH, WIDTH), masked=False),
    "similarity_mse": Case((BATCH, WIDTH), (BATCH, WIDTH + 3), masked=False),
    "similarity_kl": Case(
        (BATCH, WIDTH), (BATCH, WIDTH + 3), masked=False, extra={"temperature": 0.5}
    ),
    "dist": Case((BATCH, 3), masked=False, extra={"temperature": 2}),
    "soft_kl": Case((BATCH, 3), masked=False, extra={"temperature": 2}),
    "soft_cross_entropy": Case((BATCH, 3), masked=False, extra={"scale_by_t2": True}),
    "binary_kl": Case((BATCH, 3), masked=False, extra={"temperature": 2}),
    "binary_soft_cross_entropy": Case((BATCH, 3), masked=False, extra={"scale_by_t2": True}),
    "token_soft_cross_entropy": Case((BATCH, TOKENS, WIDTH), token_dims=(1,)),
    "token_soft_kl": Case(
        (BATCH, TOKENS, WIDTH), token_dims=(1,), extra={"temperature": 3, "scale_by_t2": True}
    ),
    "token_jsd": Case((BATCH, TOKENS, WIDTH), token_dims=(1,), extra={"beta": 0.3}),
    "token_jsd reversed": Case(
        (BATCH, TOKENS, WIDTH), token_dims=(1,), extra={"beta": 1, "temperature": 2}
    ),
    "token_skewed_kl": Case((BATCH, TOKENS, WIDTH), token_dims=(1,)),
    "span_soft_cross_entropy": Case((BATCH, TOKENS, 2), token_dims=(1,)),
    "span_soft_kl": Case(
        (BATCH, TOKENS, 2), token_dims=(1,), extra={"temperature": 3, "scale_by_t2": True}
    ),
    "word_relation_kl": Case((BATCH, TOKENS, WIDTH), (BATCH, TOKENS, WIDTH + 3), token_dims=(1,)),
    "word_relation_mse": Case((BATCH, TOKENS, WIDTH), (BATCH, TOKENS, WIDTH + 3), token_dims=(1,)),
    "word_relation_mse narrow": Case((BATCH, TOKENS, WIDTH), token_dims=(1,), extra={"window": 3}),
    "layer_relation_kl": Case(
        (BATCH, TOKENS, 3, WIDTH), (BATCH, TOKENS, 3, WIDTH + 3), token_dims=(1,)
    ),
    "layer_relation_mse": Case(
        (BATCH, TOKENS, 3, WIDTH), (BATCH, TOKENS, 3, WIDTH + 3), token_dims=(1,)
    ),
    "listwise_kl": Case((BATCH,), masked=False, extra={"queries": torch.tensor([7, 2, 7, 2])}),
    "margin_mse": Case((BATCH,), masked=False, extra={"queries": torch.tensor([7, 2, 7, 2])}),
    "attention_weights": Case((BATCH, 2, WIDTH), (BATCH, 3, WIDTH), masked=False),
    "sparse_attention_weights": Case((BATCH, 2, WIDTH), (BATCH, 3, WIDTH), masked=False),
    "sparse_attention_weights entmax": Case(
        (BATCH, 2, WIDTH), (BATCH, 3, WIDTH), masked=False, extra={"transform": "entmax"}
    ),
}
# Not of the form f(student, teacher): these have their own tests, and samples below.
OTHERS = {
    *("error_weighted_cross_entropy", "error_weighted_mse", "info_nce", "mix", "pool"),
    *("rank_distribution", "relation_scores", "relations", "transport_flow", "dkd", "standardize"),
    *("normalized_entropy", "pseudo_label", "top_probability", "weighted_mean"),
    *("hard_cross_entropy", "hard_mse", "token_cross_entropy", "span_cross_entropy"),
    *("class_means", "class_thresholds", "sure_and_unsure", "cheaper_layers_weigh_more"),
    *("moved_unit", "cosine_matrix"),
    *("balanced_positive_weights", "balanced_weights", "binary_cross_entropy", "focal_factor"),
    *("listwise_cross_entropy", "ranked_pairs", "pair_contrast", "query_similarities"),
    *("aligned_attention", "aligned_scores", "aligned_states", "character_overlap"),
    *("sample_tokens", "sampled_cross_entropy", "top_tokens", "topk_kl"),
}

# Of a vocabulary's logits they copy the positions that count, and so read how many those are.
READS_A_COUNT = {
    *("token_soft_cross_entropy", "token_soft_kl", "token_jsd", "token_jsd reversed"),
    "token_skewed_kl",
}

LOSSES = [name for name in CASES if "attention_weights" not in name]
MASKED = [name for name, case in CASES.items() if case.masked]


def draw(shape, kind, seed):
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return values.softmax(-1) if kind == "probabilities" else values


def sample(name):
    case = CASES[name]
    student = draw(case.student, case.kind, 1)
    teacher = draw(case.teacher or case.student, case.kind, 2)
    mask = torch.tensor([[i < n for i in range(TOKENS)] for n in LENGTHS])
    return student, teacher, mask


def call(name, student, teacher, mask, put=lambda tensor: tensor):
    case = CASES[name]
    arguments = (student, teacher, mask) if case.masked else (student, teacher)
    extra = {k: put(v) if isinstance(v, torch.Tensor) else v for k, v in (case.extra or {}).items()}
    return getattr(functional, name.split()[0])(*arguments, **extra)


def padded(values, dims, fill):
    """`values` at the start of a tensor twice as long in the token dimensions."""
    shape = [n * 2 if i in dims else n for i, n in enumerate(values.shape)]
    longer = torch.full(shape, fill)
    longer[tuple(slice(0, n) for n in values.shape)] = values
    return longer


def test_every_function_has_a_case():
    assert {name.split()[0] for name in CASES} | OTHERS == set(functional.__all__)


@pytest.mark.parametrize("fill", [0.0, 7.0, 1e30, float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("name", MASKED)
def test_padding_to_twice_the_length_changes_nothing(name, fill):
    case = CASES[name]
    student, teacher, mask = sample(name)
    student.requires_grad_()
    value = call(name, student, teacher, mask)
    (gradient,) = torch.autograd.grad(value, student)

    longer = padded(student.detach(), case.token_dims, fill).requires_grad_()
    longer_mask = torch.cat([mask, torch.zeros_like(mask)], 1)
    longer_value = call(name, longer, padded(teacher, case.token_dims, fill), longer_mask)
    (longer_gradient,) = torch.autograd.grad(longer_value, longer)

    assert longer_value.item() == pytest.approx(value.item(), abs=1e-6)
    expected = padded(gradient, case.token_dims, 0.0)
    torch.testing.assert_close(longer_gradient, expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("fill", [0.0, 1e30, float("-inf"), float("nan")])
@pytest.mark.parametrize("name", MASKED)
def test_masked_positions_reach_neither_value_nor_gradient(name, fill):
    """Holes anywhere, also at the front (left padding): the same as with tame values there."""
    student, teacher, _ = sample(name)
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 0, 1, 0, 1], [0, 0, 0, 0, 1], [1, 1, 1, 1, 1]]).bool()
    value = call(name, student, teacher, mask)
    for dim in CASES[name].token_dims:
        shape = [BATCH] + [TOKENS if i == dim else 1 for i in range(1, student.dim())]
        student = torch.where(mask.view(shape), student, fill)
        teacher = torch.where(mask.view(shape), teacher, fill)
    student.requires_grad_()
    dirty = call(name, student, teacher, mask)
    dirty.backward()
    assert dirty.item() == pytest.approx(value.item(), abs=1e-6)
    assert student.grad.isfinite().all()
    for dim in CASES[name].token_dims:
        per_token = student.grad.movedim(dim, 1).flatten(2).abs().sum(-1)
        assert (per_token[~mask] == 0).all()


@pytest.mark.parametrize("name", MASKED)
def test_an_example_without_valid_position_contributes_0_and_still_counts(name):
    student, teacher, mask = sample(name)
    parts = [
        call(name, student[i : i + 1], teacher[i : i + 1], mask[i : i + 1]).item()
        for i in range(BATCH)
    ]
    mask = mask.clone()
    mask[1] = False
    student.requires_grad_()
    value = call(name, student, teacher, mask)
    assert value.item() == pytest.approx((parts[0] + parts[2] + parts[3]) / 4, abs=1e-6)
    value.backward()
    assert student.grad.isfinite().all()
    assert (student.grad[1] == 0).all()
    assert call(name, student, teacher, torch.zeros_like(mask)).item() == 0.0


@pytest.mark.parametrize("name", MASKED)
def test_weight_of_an_example_does_not_depend_on_its_length(name):
    """The batch's value is the plain mean of its examples' values, each taken alone."""
    student, teacher, mask = sample(name)
    alone = [
        call(name, student[i : i + 1], teacher[i : i + 1], mask[i : i + 1]).item()
        for i in range(BATCH)
    ]
    assert call(name, student, teacher, mask).item() == pytest.approx(sum(alone) / BATCH, abs=1e-6)


@pytest.mark.parametrize("name", MASKED)
def test_integer_masks_are_taken(name):
    student, teacher, mask = sample(name)
    value = call(name, student, teacher, mask)
    assert call(name, student, teacher, mask.long()).item() == value.item()


@pytest.mark.parametrize("name", LOSSES)
def test_identical_inputs_give_0(name):
    student, _, mask = sample(name)
    value = call(name, student, student.clone(), mask)
    if name == "soft_cross_entropy":  # its least value is the entropy, not 0
        entropy = torch.distributions.Categorical(logits=student).entropy().mean()
        assert value.item() == pytest.approx(entropy.item(), abs=1e-6)
    elif "cross_entropy" in name:  # likewise: a minimum
        moving = student.clone().requires_grad_()
        call(name, moving, student, mask).backward()
        assert moving.grad.abs().max().item() == pytest.approx(0.0, abs=1e-6)
    else:
        assert value.item() == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("name", LOSSES)
def test_a_step_along_the_gradient_lowers_the_loss(name):
    """Catches a sign turned round or the two sides swapped."""
    student, teacher, mask = sample(name)
    student.requires_grad_()
    value = call(name, student, teacher, mask)
    (gradient,) = torch.autograd.grad(value, student)
    stepped = call(name, student.detach() - 1e-3 * gradient, teacher, mask)
    assert stepped < value


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CASES)
def test_half_precision_inputs_give_a_float32_result(name, dtype):
    student, teacher, mask = sample(name)
    student, teacher = student.to(dtype), teacher.to(dtype)
    value = call(name, student, teacher, mask)
    assert value.dtype == torch.float32
    # Rounding of the inputs aside, nothing is lost: the same numbers given as float32 agree.
    torch.testing.assert_close(value, call(name, student.float(), teacher.float(), mask))


@pytest.mark.parametrize("name", CASES)
def test_autocast_changes_no_bit(name):
    student, teacher, mask = sample(name)
    outside = call(name, student, teacher, mask)
    with torch.autocast("cpu", torch.bfloat16):
        inside = call(name, student, teacher, mask)
    assert inside.dtype == torch.float32
    assert torch.equal(inside, outside)


@pytest.mark.parametrize("name", CASES)
def test_gradient_equals_finite_differences(name):
    student, teacher, mask = sample(name)
    student, teacher = student.double().requires_grad_(), teacher.double().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda s, t: call(name, s, t, mask), (student, teacher), fast_mode=True
    )


def test_nothing_waits_for_the_device():
    """Fake tensors hold no data: reading a value or a data-dependent shape raises."""
    samples = {name: sample(name) for name in CASES}
    with FakeTensorMode() as mode:
        for name, tensors in samples.items():
            student, teacher, mask = map(mode.from_tensor, tensors)
            if name in READS_A_COUNT:
                with pytest.raises(DynamicOutputShapeException):
                    call(name, student, teacher, mask)
                continue
            call(name, student.requires_grad_(), teacher, mask, mode.from_tensor).sum().backward()
        hidden, mask = torch.randn(2, 3, 4), torch.ones(2, 3).bool()
        for how in ("cls", "mean", "last"):
            functional.pool(hidden, mask, how)
        negatives = torch.randn(3, 2, 4)
        functional.info_nce(hidden[0], hidden[0], negatives, mask.T, temperature=0.1)
        functional.mix(hidden, hidden, 0.5)
        scores, queries = hidden[0, 0], torch.zeros(4, dtype=torch.long)
        functional.listwise_cross_entropy(scores, hidden[0, 1], queries)
        functional.margin_mse(scores, hidden[0, 1], queries, hidden[0, 2])
        functional.ranked_pairs(scores, hidden[0, 1], queries, weighting="ndcg_loss2_plus")
        labels = torch.zeros(2, dtype=torch.long)
        functional.error_weighted_cross_entropy(hidden[0, :2], hidden[:, :2], labels)
        functional.error_weighted_mse(hidden[0, 0], hidden[:, 0], hidden[0, 1])
        functional.hard_cross_entropy(hidden[:, 0], labels)
        functional.hard_mse(hidden[:, 0, 0], hidden[:, 1, 0])
        functional.span_cross_entropy(hidden[..., :2], labels, labels, mask)
        functional.class_means(hidden[:, 0, 0], labels, hidden[0, 0])
        functional.sure_and_unsure(*hidden[..., 0].T, hidden[:, 1, 1])
        functional.moved_unit(hidden[:, 0], hidden[:, 1], mask[:, 0], momentum=0.5)
        functional.relations(hidden.unsqueeze(1), mask)
        functional.relation_scores(hidden.unsqueeze(1), hidden.unsqueeze(1), mask)
        with pytest.raises(DataDependentOutputException):  # the oracle itself can fail
            mask.any().item()
