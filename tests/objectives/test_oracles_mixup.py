"""CR-ILD's terms, from mixtures made by hand and given to Hugging Face's models as `inputs_embeds`."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from inside import Inside, attention_kl, hidden_mse, maps_kl, mean, soft_label, softmax, squares
from tiny_pairs import LENGTHS, batch, bert, build, stage_recipe, terms

from limbeck.input_transforms import Mixture, Mixup, MixupSpec
from limbeck.support.step_state import StepState

SHARE = 0.3
PARTNER = (2, 0, 1, 3)


class Mixing:
    """Both models on the mixed and, the student, on the clean batch."""

    def __init__(self, method: str, *, share: float, partner: tuple[int, ...], **given) -> None:
        self.student, self.teacher = bert(3, 8, seed=1), bert(6, 12, seed=0)
        self.examples, self.share, self.partner = batch(), share, partner
        # Union: as long as the longer of the two.
        lengths = [max(LENGTHS[b], LENGTHS[partner[b]]) for b in range(4)]
        self.mask = torch.tensor([[int(n < length) for n in range(7)] for length in lengths])
        self.at = stage_recipe(method, 1).mixup.at
        self.s, self.t = self.mixed_side(self.student), self.mixed_side(self.teacher)
        self.clean = Inside.of_examples(self.student, self.examples)
        self.objectives = build(method, self.student, self.teacher, stage=1, **given)

    def mixed_side(self, model) -> Inside:
        ids, mask = self.examples["input_ids"], self.examples["attention_mask"]
        if self.at == "word_embeddings":
            words = model.bert.embeddings.word_embeddings(ids).detach()
            return Inside.of(model, inputs_embeds=self.blend(words), attention_mask=self.mask)
        entry = self.blend(model.bert.embeddings(ids).detach())
        return Inside.of(model, entry=entry, input_ids=ids, attention_mask=self.mask | mask)

    def blend(self, values):
        rows = [
            self.share * values[b] + (1 - self.share) * values[self.partner[b]] for b in range(4)
        ]
        return torch.stack(rows) if isinstance(values, torch.Tensor) else np.stack(rows)

    def found(self) -> dict[str, float]:
        mixture = Mixture(torch.tensor(self.partner), self.share, self.at)
        seen = terms(
            self.objectives, self.student, self.teacher, self.examples, StepState(), mixture
        )
        return {name: value.item() for name, value in seen.items()}

    @property
    def weight(self) -> np.ndarray:
        (weight,) = self.objectives["hidden"].parameters()
        return weight.detach().double().numpy()

    def ild(self) -> dict[str, float]:
        """The last layers on mixed input."""
        return {
            "attention": attention_kl(self.s, self.t, 3, 6),
            "hidden": hidden_mse(self.s, self.t, 3, 6, self.weight),
        }


@pytest.mark.parametrize("detach", [False, True])
def test_cr_ild(detach):
    given = {"first_stage.objectives.attention_consistency.detach_target": detach}
    mixing = Mixing("cr-ild", share=SHARE, partner=PARTNER, **given)
    tokens = [mixing.s.real(b) for b in range(4)]
    blended_maps = mixing.blend(mixing.clean.maps[3])
    blended_states = mixing.blend(mixing.clean.hidden[3])
    # The mixed input's map is the target, KL( MHA(mix) ‖ mix(MHA, MHA) ), over the union's tokens.
    r_mha = maps_kl(
        lambda *place: max(float(blended_maps[place]), 1e-12),
        lambda *place: float(mixing.s.maps[3][place]),
        tokens,
        tokens,
    )
    r_ir = mean(
        mean(squares(mixing.s.hidden[3][b, n], blended_states[b, n]) for n in tokens[b])
        for b in range(4)
    )
    expected = mixing.ild() | {"attention_consistency": r_mha, "hidden_consistency": r_ir}
    assert mixing.found() == pytest.approx(expected, rel=5e-5)


def test_l_ild_mixup_is_cr_ild_without_consistency():
    mixing = Mixing("l-ild-mixup", share=SHARE, partner=PARTNER)
    assert mixing.found() == pytest.approx(mixing.ild(), rel=5e-5)


def test_of_whole_shares_nothing_is_left_to_be_consistent_about():
    mixing = Mixing("cr-ild", share=1.0, partner=(0, 1, 2, 3))
    found = mixing.found()
    assert found["attention_consistency"] == pytest.approx(0, abs=1e-6)
    assert found["hidden_consistency"] == pytest.approx(0, abs=1e-6)


def test_cr_ild_released():
    """Mixed behind the embeddings' normalisation, clean targets in turn, every map over the example's
    own keys (of its partner where that is the target), hidden states behind one W_H with bias.
    """
    share, partner = 0.7, (3, 2, 1, 0)
    mixing = Mixing("cr-ild-released", share=share, partner=partner)
    weight, bias = (w.detach().double().numpy() for w in mixing.objectives["hidden"].parameters())

    def over(side: Inside, layer: int, b: int, h: int, q: int, keys: list[int]) -> list[float]:
        return softmax(side.score(layer, b, h, q, k) for k in keys)

    def crossed(target, b: int, keys: list[int]) -> float:
        """CE of the student's last map of mixed input b with a target's, every row."""
        return mean(
            -sum(
                t * math.log(s)
                for t, s in zip(target(h, q, keys), over(mixing.s, 3, b, h, q, keys), strict=True)
            )
            for h in range(2)
            for q in range(7)
        )

    def clean_map(b: int):
        return lambda h, q, keys: over(mixing.clean, 3, b, h, q, keys)

    def square(given: np.ndarray, target: np.ndarray) -> float:
        return mean(squares(given[n], target[n]) for n in range(7))

    def through(states: np.ndarray) -> np.ndarray:
        return states @ weight.T + bias

    def both(distance) -> float:
        return mean(
            share * distance(b, b) + (1 - share) * distance(b, partner[b]) for b in range(4)
        )

    own = [mixing.clean.real(b) for b in range(4)]
    expected = {
        "attention": mean(
            crossed(lambda h, q, keys, b=b: over(mixing.t, 6, b, h, q, keys), b, own[b])
            for b in range(4)
        ),
        "hidden": mean(
            square(through(mixing.s.hidden[3][b]), mixing.t.hidden[6][b]) for b in range(4)
        ),
        "attention_consistency": both(lambda b, j: crossed(clean_map(j), b, own[j])),
        "hidden_consistency": both(
            lambda b, j: square(through(mixing.s.hidden[3][b]), through(mixing.clean.hidden[3][j]))
        ),
    }
    assert mixing.found() == pytest.approx(expected, rel=5e-5)


def test_cr_ild_released_s_second_stage():
    """τ = 2 and τ²."""
    student, teacher, examples = bert(3, 8, seed=1), bert(6, 12, seed=0), batch()
    s, t = Inside.of_examples(student, examples), Inside.of_examples(teacher, examples)
    objectives = build("cr-ild-released", student, teacher)
    found = terms(objectives, student, teacher, examples)["soft"].item()
    assert found == pytest.approx(4 * soft_label(s, t, 2.0), rel=1e-5)


def test_weights_warm_up():
    """From 0 to .1 over the first tenth, then .1; the release by whole epochs over the run."""
    student, teacher = bert(3, 8, seed=1), bert(6, 12, seed=0)
    objectives = build("cr-ild", student, teacher, stage=1)
    for name in ("attention_consistency", "hidden_consistency"):
        weights = [objectives.weight(name, StepState(progress=p)) for p in (0, 0.05, 0.1, 0.5, 1)]
        assert weights == pytest.approx([0, 0.05, 0.1, 0.1, 0.1])
    assert (
        objectives.weight("attention", StepState()) == objectives.weight("hidden", StepState()) == 1
    )
    released = build("cr-ild-released", student, teacher, stage=1)
    # 4 epochs of 10 steps.
    weights = [
        released.weight(
            "hidden_consistency", StepState(progress=s / 40, epoch=s // 10, passes=s / 10)
        )
        for s in (0, 5, 9, 10, 19, 20, 35, 39)
    ]
    assert weights == pytest.approx([0, 0, 0, 0.025, 0.025, 0.05, 0.075, 0.075])


# ---- the draw ----


def draw(spec, examples, step_state):
    batch = {"input_ids": torch.zeros(examples, 2, dtype=torch.long)}
    return Mixup(spec).draw(batch, step_state, torch.device("cpu"))


def draws(**spec):
    return [
        draw(MixupSpec(**spec), 6, StepState(seed=3, step=step, epoch=step // 7))
        for step in range(400)
    ]


def test_a_draw_follows_seed_and_step_alone():
    spec = MixupSpec()
    first = draw(spec, 6, StepState(seed=3, step=5))
    again = draw(spec, 6, StepState(seed=3, step=5, epoch=2, progress=0.5))
    assert torch.equal(first.partner, again.partner) and first.share == again.share
    for other in (StepState(seed=4, step=5), StepState(seed=3, step=6)):
        assert draw(spec, 6, other).share != first.share


def test_partners_are_permutations_and_shares_are_beta():
    found = draws()
    assert all(sorted(mixture.partner.tolist()) == list(range(6)) for mixture in found)
    assert len({tuple(mixture.partner.tolist()) for mixture in found}) > 250
    shares = np.array([mixture.share for mixture in found])
    # Beta(1, 1): mean ½, standard deviation 1/√12; Beta(3, 3): 1/√28.
    assert shares.mean() == pytest.approx(0.5, abs=0.05)
    assert shares.std() == pytest.approx(1 / math.sqrt(12), abs=0.02)
    narrow = np.std([mixture.share for mixture in draws(alpha=3)])
    assert narrow == pytest.approx(1 / math.sqrt(28), abs=0.02)


def test_the_release_s_draw():
    found = draws(partner="reversed", at="embedding_output", dominant=True)
    assert all(mixture.partner.tolist() == [5, 4, 3, 2, 1, 0] for mixture in found)
    assert all(mixture.share >= 0.5 and mixture.at == "embedding_output" for mixture in found)
    plain = draws(partner="reversed")
    assert [m.share for m in found] == [max(m.share, 1 - m.share) for m in plain]
