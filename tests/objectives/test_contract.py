"""What every stage of every shipped recipe promises, whatever the models: padding, masks, half
precision, families, other widths and head counts.

One table names the settings of each recipe. A recipe that is not in it fails here, so none escapes.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
import transformers as hf

from limbeck.activations import Passes, capture
from limbeck.embedding import SENTENCE_EMBEDDERS
from limbeck.input_transforms import Mixture, StepInputs
from limbeck.objectives import Loss, MappedTerm, ModelShape, Objectives, Shape
from limbeck.objectives.consistency import Consistency
from limbeck.objectives.contrastive import Contrast
from limbeck.recipe import Recipe, Stage, catalog
from limbeck.support.errors import LimbeckError
from limbeck.support.step_state import StepState
from limbeck.tasks import get_task_type
from limbeck.teachers.teacher import Teacher
from quick_cases import ONE_OF_A_KIND

VOCABULARY, PAD, CLASSES = 40, 1, 3
LENGTHS = (6, 4, 5)
# Tokens of the answers that an encoder–decoder reads and writes.
ANSWERS = (2, 3, 1)
ROWS = 12

# What a recipe needs besides its name; all of them are listed.
SETTINGS: dict[str, dict[str, Any]] = {
    method: {}
    for method in (
        *("alp-kd", "alp-minilmv2", "alp-no", "alp-po", "alp-sparse", "bert-emd", "ckd-no"),
        *("bert-emd-released", "contextual-kd-released"),
        *("ckd-po", "codir", "contextual-kd", "cr-ild", "cr-ild-released", "cr-ild-t5"),
        *("dist", "dkd", "kd-standardized", "llkd", "logit-mse", "pseudo-label"),
        *("distilbert", "emd-ild", "finetune", "internal-kd", "internal-kd-pid"),
        *("internal-kd-pid-soft", "internal-kd-pid-soft-hard", "internal-kd-sid"),
        *("internal-kd-sid-soft", "internal-kd-sid-soft-hard", "internal-kd-soft"),
        *("internal-kd-soft-cos", "internal-kd-soft-kl", "kd", "kd-soft", "l-ild"),
        *(
            "l-ild-mixup",
            "l-ild-t5",
            "l-ild-t5-attention",
            "minilm",
            "minilmv2",
            "pkd-1",
            "pkd-12",
            "pkd-6",
        ),
        *("pkd-first", "pkd-last", "pkd-released", "pkd-skip", "rail-kd-c", "rail-kd-l"),
        *("rail-tinybert", "tinybert", "tinybert-released", "u-ild"),
        *("skd-uniform", "skd-teacher-rank", "skd-student-rank", "skd-adaptive", "wkd-uniform"),
        *("skd-best-of", "skd-td", "embedding-mse", "embedding-cosine", "embedding-similarity"),
        *("embedding-lists", "embedding-contrast", "embedding-margin"),
        *("lambda-loss", "listwise-kl", "margin-mse", "ranknet"),
        *("wkd-teacher-rank", "wkd-student-rank", "mt-bert", "takd"),
    )
} | {"pkd": {"objectives.patience.mapping.layers": {1: 4}}}

# What counts padding, because it is defined to.
COUNTS_PADDING = {
    ("tinybert-released", 1): "means over all positions; masked scores are zeros that count",
    ("cr-ild-released", 1): "masks on keys only: padded queries and padded hidden states count",
    ("bert-emd-released", 1): "means over all positions; masked scores are zeros that count",
    ("contextual-kd-released", 1): "padding within a window around a token counts",
}
# Head with head: impossible where the two models have not the same number.
BY_HEADS = ("attention_kl", "attention_cross_entropy", "attention_mse")


@functools.cache
def model(family: str, layers: int, width: int, heads: int, seed: int) -> Any:
    """A tiny random classifier, or text-to-text model, of a family, in eval mode."""
    torch.manual_seed(seed)
    if family == "t5":
        config = hf.T5Config(
            vocab_size=VOCABULARY,
            pad_token_id=PAD,
            decoder_start_token_id=PAD,
            d_model=width,
            d_kv=width // heads,
            d_ff=2 * width,
            num_layers=layers,
            num_heads=heads,
        )
        return hf.T5ForConditionalGeneration(config).eval()
    if family == "embedder":
        config = hf.BertConfig(
            vocab_size=VOCABULARY, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
            intermediate_size=2 * width, pad_token_id=PAD, max_position_embeddings=32, initializer_range=0.2,
        )  # fmt: skip
        return SENTENCE_EMBEDDERS.from_config(config).eval()
    sizes = {"vocab_size": VOCABULARY, "num_labels": CLASSES, "pad_token_id": PAD}
    sizes |= {"max_position_embeddings": 32, "initializer_range": 0.2}
    if family == "reranker":
        family, sizes["num_labels"] = "bert", 1
    if family == "distilbert":
        config = hf.DistilBertConfig(
            **sizes, dim=width, n_layers=layers, n_heads=heads, hidden_dim=2 * width
        )
        return hf.DistilBertForSequenceClassification(config).eval()
    sizes |= {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
    sizes |= {"intermediate_size": 2 * width}
    if family == "roberta":
        return hf.RobertaForSequenceClassification(hf.RobertaConfig(**sizes)).eval()
    return hf.BertForSequenceClassification(hf.BertConfig(**sizes)).eval()


# (teacher), (student): family, layers, width, heads. By the kind that a recipe names, if any.
PAIRS = {
    None: {
        "RoBERTa to DistilBERT": (("roberta", 12, 8, 2), ("distilbert", 3, 8, 2)),
        "24 to 6 layers, narrower": (("bert", 24, 12, 2), ("roberta", 6, 8, 2)),
    },
    "text": {
        "T5 to T5": (("t5", 4, 8, 2), ("t5", 2, 8, 2)),
        "T5 of 3 heads to one of 2, narrower": (("t5", 6, 12, 3), ("t5", 3, 8, 2)),
    },
    "embedding": {
        "as wide": (("embedder", 4, 8, 2), ("embedder", 2, 8, 2)),
        "narrower": (("embedder", 6, 12, 2), ("embedder", 3, 8, 2)),
    },
}
PAIRS["pair-score"] = {"narrower": (("reranker", 6, 12, 2), ("reranker", 3, 8, 2))}
OTHER_HEADS = {
    "pair-score": (("reranker", 24, 16, 4), ("reranker", 6, 8, 2)),
    None: (("roberta", 24, 16, 4), ("bert", 6, 8, 2)),
    "text": (("t5", 24, 16, 4), ("t5", 6, 8, 2)),
    "embedding": (("embedder", 24, 16, 4), ("embedder", 6, 8, 2)),
}


@functools.cache
def stage_of(method: str, number: int) -> Stage:
    return Recipe.load(method, **SETTINGS.get(method, {})).stages()[number - 1]


class Step:
    """One stage of a recipe on one pair of models; where inputs are mixed, 0 with 1 and 2 alone."""

    def __init__(
        self, stage: Stage, pair: tuple[tuple[str, int, int, int], ...], drop: tuple[str, ...] = ()
    ) -> None:
        (teacher, student) = pair
        self.student = model(*student, seed=1)
        self.teacher = Teacher(model(*teacher, seed=0))
        torch.manual_seed(2)
        kind = get_task_type(stage.recipe.kind or "sentence")
        sides = ModelShape.of(self.student), ModelShape.of(self.teacher.model)
        shape = Shape(*sides, kind=kind, rows=ROWS)
        terms = {name: s for name, s in stage.recipe.objectives.items() if s.compare not in drop}
        # In eval mode neither the memory nor the masses change from one call to the next.
        self.objectives = Objectives(Loss(terms, stage.recipe.curriculum), shape).eval()
        self.transform = stage.recipe.transform
        self.batch = functools.partial(batch, stage.recipe.kind)
        # Without a curriculum one moment says it all.
        places = (0.0, 0.5, 0.95) if stage.recipe.curriculum else (0.5,)
        self.moments = [
            StepState(seed=3, epoch=1, step=3, progress=p, passes=3 * p) for p in places
        ]
        for term in self.objectives.terms.values():
            if isinstance(term, Contrast):
                rows = torch.arange(ROWS)
                term.memory.remember(rows, torch.randn(ROWS, 128), rows % CLASSES)

    def __call__(
        self, batch: dict[str, torch.Tensor], step_state: StepState
    ) -> dict[str, torch.Tensor]:
        asked = [self.objectives.request(s, step_state) for s in ("student", "teacher", "clean")]
        inputs = StepInputs(batch)
        if self.transform is not None:
            partner = torch.tensor([1, 0, 2])[: len(batch["labels"])]
            inputs = StepInputs(
                batch, self.transform, Mixture(partner, 0.7, self.transform.spec.at)
            )
        run = functools.partial(capture, self.student)
        student = inputs.of_student(self.student, asked[0], asked[2], run, Passes())
        teacher = self.teacher(inputs, asked[1])
        return self.objectives(student, teacher, batch, step_state)

    def gradients(
        self, found: dict[str, torch.Tensor], step_state: StepState
    ) -> list[torch.Tensor]:
        """Of the weighted total, for every weight it reaches."""
        weights = [*self.student.parameters(), *self.objectives.parameters()]
        total = self.objectives.total(found, step_state)
        gradients = torch.autograd.grad(total, weights, allow_unused=True)
        return [gradient for gradient in gradients if gradient is not None]


def batch(
    kind: str | None, times: int = 1, examples: int = len(LENGTHS)
) -> dict[str, torch.Tensor]:
    """The first `examples`, padded to `times` the longest one's length."""
    tokens = times * max(LENGTHS)
    generator = torch.Generator().manual_seed(5)
    text = torch.randint(5, VOCABULARY, (len(LENGTHS), max(LENGTHS)), generator=generator)
    ids = torch.full((examples, tokens), PAD)
    mask = torch.zeros(examples, tokens, dtype=torch.long)
    for row, length in enumerate(LENGTHS[:examples]):
        ids[row, :length] = text[row, :length]
        mask[row, :length] = 1
    labels = torch.tensor([0, 2, 1])
    if kind == "text":
        labels = torch.full((len(ANSWERS), times * max(ANSWERS)), -100)
        for row, length in enumerate(ANSWERS):
            labels[row, :length] = torch.randint(5, VOCABULARY, (length,), generator=generator)
    labels = labels[:examples]
    index = torch.arange(examples)
    own = {"query_id": torch.full((examples,), 4)} if kind in ("pair-score", "embedding") else {}
    if kind == "embedding":
        own["grade"] = torch.tensor([float("nan"), 1, 0])[:examples]
    return own | {"input_ids": ids, "attention_mask": mask, "labels": labels, "index": index}


@functools.cache
def distinct_stages() -> list[tuple[str, int]]:
    """Method and number of every stage; of those with the same terms (soft labels) one."""
    found: dict[str, tuple[str, int]] = {}
    told = {"objectives", "curriculum", "mixup", "kind"}
    for method in catalog.names():
        for stage in Recipe.load(method, **SETTINGS.get(method, {})).stages():
            keys = stage.recipe.model_dump(include=told)
            found.setdefault(repr(keys), (method, stage.number))
    return list(found.values())


every_stage = pytest.mark.parametrize(("method", "number"), distinct_stages())
on_every_pair = pytest.mark.parametrize(
    ("method", "number", "pair"),
    [
        # The first pair shows what a method does; that no width or depth matters, a few show by default.
        pytest.param(
            *(method, number, pair),
            id=f"{method}-{number}-{name}",
            marks=[pytest.mark.slow] * (place > 0 and method not in ONE_OF_A_KIND),
        )
        for method, number in distinct_stages()
        for place, (name, pair) in enumerate(PAIRS[stage_of(method, number).recipe.kind].items())
    ],
)


def test_every_recipe_is_listed():
    assert sorted(catalog.names()) == sorted(SETTINGS), "list the recipe in SETTINGS above"


@on_every_pair
def test_padding_to_twice_the_length_changes_no_term(method, number, pair):
    step = Step(stage_of(method, number), pair)
    seen, unmoved = set(), []
    for step_state in step.moments:
        with torch.no_grad():
            short, long = step(step.batch(), step_state), step(step.batch(2), step_state)
        seen |= set(short)
        for name, value in short.items():
            assert value.shape == () and value.isfinite()
            unmoved.append(torch.allclose(long[name], value, rtol=0, atol=1e-5))
    assert seen == set(step.objectives.weights)
    assert all(unmoved) == ((method, number) not in COUNTS_PADDING)


@on_every_pair
def test_a_fully_masked_example_adds_nothing_and_breaks_nothing(method, number, pair):
    step = Step(stage_of(method, number), pair)
    masked = step.batch()
    masked["attention_mask"][-1] = 0
    if masked["labels"].dim() == 2:
        masked["labels"][-1] = -100
    for step_state in step.moments:
        found, without = step(masked, step_state), step(step.batch(examples=2), step_state)
        for name, value in found.items():
            assert value.isfinite(), name
            term = step.objectives[name]
            counted = (method, number) in COUNTS_PADDING
            if isinstance(term, MappedTerm | Consistency) and not counted:
                expected = without[name] * 2 / 3
                torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-6, msg=name)
        assert all(gradient.isfinite().all() for gradient in step.gradients(found, step_state))


@on_every_pair
def test_under_autocast_terms_stay_float32_and_gradients_finite(method, number, pair):
    step = Step(stage_of(method, number), pair)
    for step_state in step.moments:
        with torch.autocast("cpu", torch.bfloat16):
            found = step(step.batch(), step_state)
        with torch.no_grad():
            exact = step(step.batch(), step_state)
        for name, value in found.items():
            assert value.dtype == torch.float32 and value.isfinite(), name
            # bfloat16 keeps 8 bits, and a dozen layers add up.
            torch.testing.assert_close(value, exact[name], rtol=0.1, atol=0.05, msg=name)
        gradients = step.gradients(found, step_state)
        assert all(gradient.isfinite().all() for gradient in gradients)
        assert any(gradient.abs().max() > 0 for gradient in gradients)


@every_stage
def test_24_layers_of_4_heads_teach_6_of_2(method, number):
    """RAIL-KD's 24 → 6: all but comparisons of head with head, which name what to use instead."""
    stage = stage_of(method, number)
    heads_differ = OTHER_HEADS[stage.recipe.kind]
    by_heads = [name for name, s in stage.recipe.objectives.items() if s.compare in BY_HEADS]
    if by_heads:
        with pytest.raises(LimbeckError, match=r"2 attention heads, the teacher 4") as caught:
            Step(stage, heads_differ)
        refused = caught.value.problems
        assert [problem.message.split(":")[0] for problem in refused] == [
            f"objectives.{name}" for name in by_heads
        ]
        assert all("minilmv2" in problem.fix for problem in refused)
    if stage.recipe.curriculum and by_heads:
        return  # its order names the refused term; cosines alone are internal-kd-soft-cos
    step = Step(stage, heads_differ, drop=BY_HEADS)
    (step_state,) = step.moments
    found = step(step.batch(), step_state)
    assert len(found) == len(stage.recipe.objectives) - len(by_heads) > 0
    assert all(value.isfinite() for value in found.values())
    assert any(gradient.abs().max() > 0 for gradient in step.gradients(found, step_state))
