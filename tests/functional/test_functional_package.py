"""The package's surface: what it exports, and that tests (and only tests) enforce its shapes."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import limbeck.functional as functional
from limbeck.support.errors import LimbeckError

EXPORTED = {
    "aligned_attention": "overlap probabilities",
    "aligned_scores": "overlap scores",
    "aligned_states": "overlap states",
    "character_overlap": "student_spans teacher_spans student_mask teacher_mask",
    "attention_cross_entropy": "student_scores teacher_scores query_mask key_mask=None *causal=False",
    "attention_kl": "student_probs teacher_probs query_mask key_mask=None",
    "attention_mse": "student_scores teacher_scores query_mask key_mask=None *causal=False",
    "attention_weights": "student teacher allowed=None",
    "cosine_distance": "student teacher mask=None",
    "cosine_matrix": "embeddings",
    "embedding_cosine": "student teacher *weights=None",
    "embedding_mse": "student teacher *weights=None",
    "similarity_kl": "student teacher *temperature=1.0",
    "similarity_mse": "student teacher",
    "dist": "student_logits teacher_logits *beta=2.0 *gamma=2.0 *temperature=1.0",
    "dkd": "student_logits teacher_logits labels *alpha=1.0 *beta=8.0 *temperature=4.0 *weights=None",
    "error_weighted_cross_entropy": "student_logits teacher_logits labels *temperature=1.0 *weights=None",
    "error_weighted_mse": "student_outputs teacher_outputs labels",
    "hidden_mse": "student teacher mask",
    "class_means": "values classes default",
    "class_thresholds": "confidence shares",
    "cheaper_layers_weigh_more": "moved mass",
    "hard_cross_entropy": "logits labels *class_weights=None *gamma=0.0",
    "balanced_positive_weights": "positives rows",
    "balanced_weights": "rows",
    "binary_cross_entropy": "logits labels *positive_weights=None *gamma=0.0",
    "binary_kl": "student_logits teacher_logits *temperature=1.0 *scale_by_t2=False *weights=None",
    "binary_soft_cross_entropy": "student_logits teacher_logits *temperature=1.0 *scale_by_t2=False *weights=None",
    "focal_factor": "log_probability gamma",
    "hard_mse": "outputs labels",
    "moved_unit": "old new known *momentum",
    "span_cross_entropy": "logits starts ends mask",
    "span_soft_cross_entropy": "student_logits teacher_logits mask *temperature=1.0 *scale_by_t2=False",
    "span_soft_kl": "student_logits teacher_logits mask *temperature=1.0 *scale_by_t2=False",
    "sure_and_unsure": "confidence uncertainty least_confidence least_uncertainty",
    "token_cross_entropy": "logits labels *class_weights=None *gamma=0.0",
    "token_jsd": "student_logits teacher_logits mask *beta=0.5 *temperature=1.0 *scale_by_t2=False",
    "token_skewed_kl": "student_logits teacher_logits mask *skew=0.1 *reverse=False *temperature=1.0 "
    "*scale_by_t2=False",
    "token_soft_cross_entropy": "student_logits teacher_logits mask *temperature=1.0 *scale_by_t2=False",
    "token_soft_kl": "student_logits teacher_logits mask *temperature=1.0 *scale_by_t2=False",
    "info_nce": "student positive negatives mask=None *temperature",
    "layer_relation_kl": "student teacher mask *mean_over=valid",
    "layer_relation_mse": "student teacher mask *mean_over=valid",
    "listwise_cross_entropy": "scores grades queries",
    "listwise_kl": "student teacher queries *temperature=1.0 *scale_by_t2=False",
    "margin_mse": "student teacher queries grades=None",
    "ranked_pairs": "scores targets queries *weighting=uniform",
    "pair_contrast": "embeddings queries grades tokens=None *temperature",
    "query_similarities": "embeddings queries grades",
    "mix": "a b lam",
    "mse": "student teacher *weights=None",
    "normalized_mse": "student teacher",
    "pool": "hidden mask how",
    "rank_distribution": "scores",
    "relation_kl": "student teacher mask",
    "relation_mse": "student_scores teacher_scores query_mask key_mask=None *causal=False",
    "relation_scores": "queries keys query_mask key_mask=None",
    "relations": "features mask",
    "soft_cross_entropy": "student_logits teacher_logits *temperature=1.0 *scale_by_t2=False *weights=None",
    "soft_kl": "student_logits teacher_logits *temperature=1.0 *scale_by_t2=False *weights=None",
    "normalized_entropy": "logits",
    "pseudo_label": "student_logits teacher_logits *weights=None",
    "sample_tokens": "logits n *temperature=1.0 *generator=None",
    "sampled_cross_entropy": "student_logits sampled_ids sampled_counts *temperature=1.0 *weights=None",
    "top_probability": "logits",
    "top_tokens": "logits k *temperature=1.0",
    "topk_kl": "student_logits topk_ids topk_logprobs tail_logprob *temperature=1.0 *weights=None",
    "weighted_mean": "values weights=None",
    "sparse_attention_weights": "student teacher allowed=None *transform=sparsemax",
    "standardize": "logits",
    "transport_flow": "costs student_weights teacher_weights",
    "word_relation_kl": "student teacher mask *mean_over=valid",
    "word_relation_mse": "student teacher mask *window=21 *mean_over=valid",
}


def test_exports_exactly_these_names():
    assert functional.__all__ == sorted(EXPORTED)


@pytest.mark.parametrize("name", EXPORTED)
def test_signature(name):
    def shown(parameter):
        star = "*" if parameter.kind is inspect.Parameter.KEYWORD_ONLY else ""
        default = "" if parameter.default is inspect.Parameter.empty else f"={parameter.default}"
        return star + parameter.name + default

    parameters = inspect.signature(getattr(functional, name)).parameters.values()
    assert " ".join(map(shown, parameters)) == EXPORTED[name]


def test_shapes_in_signatures_are_enforced_here():
    with pytest.raises(Exception, match="Type-check error"):
        functional.hidden_mse(torch.ones(2, 3, 4), torch.ones(2, 3, 5), torch.ones(2, 3).bool())


# What a user's process sees: no hook, no beartype, no POT or scipy until needed, and still no
# silent broadcasting.
WITHOUT_HOOK = """
import sys, torch
import limbeck.functional as f
assert "beartype" not in sys.modules and "ot" not in sys.modules
assert not hasattr(f.mse, "__wrapped__")
a, bools = torch.ones(2, 3, 4), torch.ones(2, 3).bool()
maps = torch.ones(2, 2, 3, 3)
for call in [
    lambda: f.mse(a, a[:, :1]),
    lambda: f.normalized_mse(a, a[:, :1]),
    lambda: f.cosine_distance(a, a[:, :1]),
    lambda: f.cosine_distance(a, a, bools[:, :1]),
    lambda: f.hidden_mse(a, a[:1], bools),
    lambda: f.hidden_mse(a, a, bools[:1]),
    lambda: f.pool(a, bools[:1], "cls"),
    lambda: f.soft_kl(a[0], a[0, :, :1]),
    lambda: f.binary_kl(a[0], a[0, :, :1]),
    lambda: f.binary_soft_cross_entropy(a[0], a[0, :1]),
    lambda: f.binary_cross_entropy(a[0], a[0, :, :1]),
    lambda: f.token_soft_kl(a, a[:, :1], bools),
    lambda: f.token_jsd(a, a[:, :1], bools),
    lambda: f.token_jsd(a, a, bools, beta=1.5),
    lambda: f.token_skewed_kl(a, a, bools, skew=1),
    lambda: f.token_soft_cross_entropy(a, a[..., :1], bools),
    lambda: f.span_soft_kl(a[..., :2], a[:1, :, :2], bools),
    lambda: f.span_soft_cross_entropy(a[..., :2], a[..., :1], bools),
    lambda: f.attention_kl(maps, maps[:, :1], bools),
    lambda: f.attention_kl(maps, maps, bools[:, :1]),
    lambda: f.attention_mse(maps, maps, bools, bools[:1]),
    lambda: f.relation_kl(maps, maps[:, :1], bools),
    lambda: f.relation_mse(maps, maps[:, :1], bools),
    lambda: f.relation_mse(maps, maps, bools, bools[:1]),
    lambda: f.relation_scores(maps, maps[:, :1], bools),
    lambda: f.relation_scores(maps, maps[..., :1], bools),
    lambda: f.relation_scores(maps, maps, bools[:1]),
    lambda: f.relations(maps, bools[:1]),
    lambda: f.word_relation_kl(a, a[:1], bools),
    lambda: f.word_relation_kl(a, a, bools[:1]),
    lambda: f.word_relation_mse(a, a[:, :1], bools),
    lambda: f.layer_relation_kl(maps, maps[:, :, :1], bools[:, :2]),
    lambda: f.layer_relation_mse(maps, maps, bools[:1]),
    lambda: f.sparse_attention_weights(a, a[:1]),
    lambda: f.sparse_attention_weights(a, a, transform="softmax"),
    lambda: f.attention_weights(a, a[:1]),
    lambda: f.attention_weights(a, a, bools),
    lambda: f.info_nce(a[0], a[0], a[:1], temperature=1.0),
    lambda: f.info_nce(a[:, 0], a[:, 0], a, bools[:, :1], temperature=1.0),
    lambda: f.listwise_kl(a[0, 0], a[0, 0, :1], a[0, 0].long()),
    lambda: f.listwise_cross_entropy(a[0, 0], a[0, 0], a[0, 0, :1].long()),
    lambda: f.margin_mse(a[0, 0], a[0, 0], a[0, 0].long(), a[0, 0, :1]),
    lambda: f.ranked_pairs(a[0, 0], a[0, 0, :1], a[0, 0].long()),
    lambda: f.ranked_pairs(a[0, 0], a[0, 0], a[0, 0].long(), weighting="ndcg"),
    lambda: f.pair_contrast(a[0], a[0, :1, 0].long(), a[0, :, 0], temperature=1.0),
    lambda: f.pair_contrast(a[0], a[0, :, 0].long(), a[0, :, 0], temperature=0),
    lambda: f.query_similarities(a[0], a[0, :, 0].long(), a[0, :1, 0]),
    lambda: f.mix(a, a[:1], 0.5),
    lambda: f.transport_flow(a[0], a[0, 0], a[0, 0]),
]:
    try:
        call()
    except Exception as error:
        assert type(error).__name__ == "LimbeckError", repr(error)
        print(error)
    else:
        raise AssertionError("accepted")
"""


@pytest.mark.slow
def test_without_the_hook_misfits_are_refused_and_nothing_slow_is_loaded():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT_HOOK], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("fix: ") == 46
    assert "the student has shape (2, 3, 4), the teacher (2, 1, 4)" in done.stdout
    assert done.stdout.count("give both models one label set, or one vocabulary") == 4


@pytest.mark.parametrize("temperature", [0, 0.0, -1.0, float("nan")])
def test_temperature_must_be_positive(temperature):
    logits = torch.zeros(1, 2)
    with pytest.raises(LimbeckError, match="temperature is"):
        functional.soft_kl(logits, logits, temperature=temperature)
    with pytest.raises(LimbeckError, match="temperature is"):
        functional.info_nce(logits, logits, torch.zeros(1, 1, 2), temperature=temperature)


REFERENCE = Path(__file__).parents[2] / "docs" / "functional.md"


def test_the_page_of_losses_names_functions_that_exist():
    table = re.findall(r"^\|.*\|$", REFERENCE.read_text(encoding="utf-8"), re.MULTILINE)
    named = [name for row in table for name in re.findall(r"`(\w+)`", row.split("|")[2])]
    assert len(named) > 40
    assert {*named} <= {*functional.__all__}


def test_the_example_on_the_reference_page_runs():
    (example,) = re.findall(r"```python\n(.*?)```", REFERENCE.read_text(encoding="utf-8"), re.S)
    values = {}
    exec(example, values)
    assert values["hidden"].shape == values["soft"].shape == ()
