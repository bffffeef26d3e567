"""Terms of an encoder–decoder name their stack: each sees that stack's states under its mask."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from pydantic import TypeAdapter

from limbeck.activations import capture
from limbeck.objectives import Loss, ModelShape, Objectives, Shape, TermSpec
from limbeck.support.step_state import StepState
from limbeck.teachers.teacher import Teacher

LAST = {"kind": "last-to-last"}


@functools.cache
def t5(layers: int, width: int, heads: int) -> Any:
    torch.manual_seed(layers)
    config = hf.T5Config(
        vocab_size=40,
        d_model=width,
        d_kv=4,
        d_ff=16,
        num_layers=layers,
        num_heads=heads,
        decoder_start_token_id=0,
        initializer_factor=1.0,
    )
    return hf.T5ForConditionalGeneration(config).eval()


def batch(more: int = 0) -> dict[str, torch.Tensor]:
    """Two texts of 5 and 3 tokens and answers of 3 and 2, `more` padding behind both."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.zeros(2, 5 + more, dtype=torch.long)
    answers = torch.zeros(2, 3 + more, dtype=torch.long)
    mask, known = torch.zeros_like(ids), torch.zeros_like(answers)
    for row, (length, short) in enumerate(((5, 3), (3, 2))):
        ids[row, :length] = torch.randint(5, 40, (5,), generator=generator)[:length]
        answers[row, :short] = torch.randint(5, 40, (3,), generator=generator)[:short]
        mask[row, :length] = 1
        known[row, :short] = 1
    # A word that comes twice: without positions its embeddings are the same vector.
    ids[0, 2] = ids[0, 0]
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "decoder_input_ids": answers,
        "decoder_attention_mask": known,
    }


def value(term: dict[str, Any], more: int = 0, heads: tuple[int, int] = (2, 2)) -> torch.Tensor:
    student, teacher = t5(2, 8, heads[0]), t5(4, 12, heads[1])
    specs = TypeAdapter(dict[str, TermSpec]).validate_python({"term": term})
    torch.manual_seed(3)
    objectives = Objectives(Loss(specs), Shape(ModelShape.of(student), ModelShape.of(teacher)))
    examples, step_state = batch(more), StepState()
    ours = capture(student, examples, objectives.request("student", step_state))
    theirs = Teacher(teacher)(examples, objectives.request("teacher", step_state))
    return objectives(ours, theirs, examples, step_state)["term"]


MAP = {"to": "teacher", "sides": "student"}
TERMS = [
    *({"compare": "attention_kl", "stack": s} for s in ("encoder", "decoder", "cross")),
    *({"compare": "attention_mse", "stack": s} for s in ("encoder", "decoder", "cross")),
    *({"compare": "hidden_mse", "stack": s, "project": MAP} for s in ("encoder", "decoder")),
    *(
        {"compare": "relation_kl", "of": of, "stack": s}
        for of in ("query", "key", "value")
        for s in ("encoder", "decoder", "cross")
    ),
    {"compare": "word_relation_kl", "stack": "decoder"},
    {
        "compare": "relation_kl",
        "of": "query",
        "stack": "cross",
        "mapping": {"kind": "attention", "student_layers": "M", "read": "mean"},
    },
]


@pytest.mark.parametrize("term", TERMS, ids=lambda t: f"{t['compare']} {t['stack']}")
def test_padding_of_either_text_changes_nothing(term):
    short, long = value({"mapping": LAST} | term), value({"mapping": LAST} | term, more=3)
    assert short > 0
    torch.testing.assert_close(long, short, atol=1e-5, rtol=1e-4)
    short.backward()
    gradients = [w.grad for w in t5(2, 8, 2).parameters() if w.grad is not None]
    assert gradients and all(gradient.isfinite().all() for gradient in gradients)
    t5(2, 8, 2).zero_grad()


def test_a_repeated_word_does_not_break_the_gradient():
    mapping = {"kind": "explicit", "layers": {0: 0}}
    for compare in ("word_relation_kl", "word_relation_mse"):
        value({"compare": compare, "mapping": mapping, "stack": "encoder"}).backward()
        embedding = t5(2, 8, 2).get_input_embeddings().weight
        assert embedding.grad.isfinite().all()
        t5(2, 8, 2).zero_grad()


@pytest.mark.parametrize(("of", "tokens"), [("query", (3, 2)), ("key", (5, 3))])
def test_relations_across_are_among_answers_or_among_texts(of, tokens):
    """Cross-attention: queries are the decoder's, keys and values the encoder's."""
    term = {"compare": "relation_kl", "of": of, "stack": "cross", "mapping": LAST}
    features: list[np.ndarray] = []
    for model in (t5(2, 8, 2), t5(4, 12, 3)):
        linear = getattr(model.decoder.block[-1].layer[1].EncDecAttention, of[0])
        keep = lambda module, given, made: features.append(made.double().numpy())  # noqa: E731
        hook = linear.register_forward_hook(keep)
        with torch.no_grad():
            model(**batch(), use_cache=False)
        hook.remove()
    total = 0.0
    for b, count in enumerate(tokens):
        for h in range(2):
            rows = []
            for side in features:
                x = np.split(side[b, :count], 2, axis=-1)[h]
                scores = np.exp(x @ x.T / np.sqrt(x.shape[-1]))
                rows.append(scores / scores.sum(-1, keepdims=True))
            total += (rows[1] * np.log(rows[1] / rows[0])).sum() / count / 4
    assert value(term, heads=(2, 3)).item() == pytest.approx(total, rel=1e-4)
