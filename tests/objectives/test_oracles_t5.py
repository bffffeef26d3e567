"""CR-ILD's terms for a T5, from what Hugging Face's own decoder holds and mixtures made by hand."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from inside import Inside, eager, hidden_mse, maps_kl, mean, relations_kl, squares
from tiny_pairs import ANSWERS, LENGTHS, PAD, answers, batch, build, t5, terms

from limbeck.input_transforms import Mixture
from limbeck.support.errors import LimbeckError
from limbeck.support.step_state import StepState

SHARE = 0.3
PARTNER = (2, 0, 1, 3)
KINDS = ("query", "key", "value")


class Decoder(Inside):
    """The decoder of a T5: its self-attention and hidden states."""

    @classmethod
    def of(cls, model, entry=None, **inputs) -> Decoder:
        twin = eager(model)
        with torch.no_grad():
            out = twin(**inputs, output_hidden_states=True, output_attentions=True)
        maps = enumerate(out.decoder_attentions, 1)
        return cls(
            [state.double().numpy() for state in out.decoder_hidden_states],
            {layer: found.double().numpy() for layer, found in maps},
            out.logits.double().numpy(),
            inputs["decoder_attention_mask"].bool().numpy(),
            list(twin.decoder.block),
            twin.config.num_heads,
        )

    def of_head(self, what, layer, heads=None):
        """A T5 scales its states to mean square 1 before it makes queries, keys and values."""
        block = self.layers[layer - 1].layer[0]
        states = self.hidden[layer - 1]
        scale = np.sqrt((states**2).mean(-1, keepdims=True) + block.layer_norm.variance_epsilon)
        states = states / scale * block.layer_norm.weight.double().numpy(force=True)
        weight = getattr(block.SelfAttention, what[0]).weight.double().numpy(force=True)
        return np.stack(np.split(states @ weight.T, heads or self.heads, axis=-1), axis=1)


def mask_of(lengths) -> torch.Tensor:
    return torch.tensor([[int(n < length) for n in range(max(lengths))] for length in lengths])


class Pair:
    """Teacher and student of different depth, width and head count, each asked by itself."""

    def __init__(self, method: str, **given) -> None:
        self.student, self.teacher = t5(2, 8, seed=1), t5(3, 12, seed=0, heads=3)
        self.examples = batch() | {"labels": answers()}
        self.objectives = build(method, self.student, self.teacher, stage=1, **given)

    @functools.cached_property
    def words(self) -> torch.Tensor:
        """What the decoder reads: the answer, one step later."""
        given = [[PAD, *row[:-1]] for row in self.examples["labels"].tolist()]
        return torch.tensor([[PAD if word == -100 else word for word in row] for row in given])

    def clean(self, model) -> Decoder:
        return Decoder.of(
            model,
            input_ids=self.examples["input_ids"],
            attention_mask=self.examples["attention_mask"],
            decoder_input_ids=self.words,
            decoder_attention_mask=mask_of(ANSWERS),
        )

    def mixed(self, model, share: float = SHARE) -> Decoder:
        words = model.shared.weight.detach()
        union = [[max(of[b], of[PARTNER[b]]) for b in range(4)] for of in (LENGTHS, ANSWERS)]
        return Decoder.of(
            model,
            inputs_embeds=blend(words[self.examples["input_ids"]], share),
            attention_mask=mask_of(union[0]),
            decoder_inputs_embeds=blend(words[self.words], share),
            decoder_attention_mask=mask_of(union[1]),
        )

    def found(self, mixture: Mixture | None = None) -> dict[str, float]:
        seen = terms(
            self.objectives, self.student, self.teacher, self.examples, StepState(), mixture
        )
        return {name: value.item() for name, value in seen.items()}

    def ild(self, s: Decoder, t: Decoder) -> dict[str, float]:
        """The last layers, in the student's two relation heads."""
        (weight,) = self.objectives["hidden"].parameters()
        assert weight.shape == (12, 8)
        compared = {what: relations_kl(s, t, what, 2, 3, heads=2) for what in KINDS}
        return compared | {"hidden": hidden_mse(s, t, 2, 3, weight.detach().double().numpy())}


def blend(values, share: float = SHARE):
    rows = [share * values[b] + (1 - share) * values[PARTNER[b]] for b in range(4)]
    return torch.stack(rows) if isinstance(values, torch.Tensor) else np.stack(rows)


def test_l_ild_t5():
    pair = Pair("l-ild-t5")
    expected = pair.ild(pair.clean(pair.student), pair.clean(pair.teacher))
    assert all(value > 1e-4 for value in expected.values())
    assert pair.found() == pytest.approx(expected, rel=5e-5)


def test_cr_ild_t5_mixes_the_words_of_both_stacks():
    pair = Pair("cr-ild-t5")
    s, t, own = pair.mixed(pair.student), pair.mixed(pair.teacher), pair.clean(pair.student)
    tokens = [s.real(b) for b in range(4)]
    assert [len(places) for places in tokens] == [2, 3, 3, 2]
    maps, states = blend(own.maps[2]), blend(own.hidden[2])
    r_mha = maps_kl(
        lambda *place: max(float(maps[place]), 1e-12),
        lambda *place: float(s.maps[2][place]),
        tokens,
        tokens,
    )
    r_ir = mean(mean(squares(s.hidden[2][b, n], states[b, n]) for n in tokens[b]) for b in range(4))
    expected = pair.ild(s, t) | {"attention_consistency": r_mha, "hidden_consistency": r_ir}
    assert all(value > 1e-4 for value in expected.values())
    mixture = Mixture(torch.tensor(PARTNER), SHARE, "word_embeddings")
    assert pair.found(mixture) == pytest.approx(expected, rel=5e-5)


def test_an_entry_mixed_behind_the_embeddings_would_leave_the_decoder_unmixed():
    pair = Pair("cr-ild-t5")
    mixture = Mixture(torch.tensor(PARTNER), SHARE, "embedding_output")
    with pytest.raises(LimbeckError, match=r"embedding_output(.|\n)*at: word_embeddings"):
        pair.found(mixture)
