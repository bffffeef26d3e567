"""Whole runs of CR-ILD's recipes for encoder–decoders: another width and head count, every stack."""

from __future__ import annotations

import functools
import json
import math
from importlib import import_module
from pathlib import Path

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file

import tiny_runs as tiny
from limbeck.lab.study.measured_step import measure, untrained
from limbeck.recipe import Recipe
from limbeck.run import Result, distill
from limbeck.run.prepare import prepare
from limbeck.support.errors import LimbeckError
from limbeck.training import DistillationTrainer

# The package's attribute of that name is the function.
module = import_module("limbeck.run.train")

# The teacher: 3 layers in both stacks, 16 wide, 2 heads of 8.
FRESH = {"d_model": 24, "num_heads": 4, "num_layers": 2, "num_decoder_layers": 2}
TERMS = ("query", "key", "value", "hidden")
CONSISTENCY = ("attention_consistency", "hidden_consistency")
# Two layers of the student's decoder, three of the teacher's.
UNIFORM = {"kind": "uniform", "student_layers": "1..M"}
ATTENTION = {"compare": "attention_kl", "stack": "cross", "mapping": {"kind": "last-to-last"}}


@pytest.fixture(scope="module")
def recipe(settings, teachers):
    """`recipe("l-ild-t5", {"hidden": None})`: a short run, with other terms in its first stage."""

    def make(method="l-ild-t5", terms=None, config=None, **changes) -> Recipe:
        given = settings("text", teacher=str(teachers["text"].path), batch_size=8)
        given |= {"student.init": "fresh", "student.config": FRESH | (config or {})}
        given |= {
            "epochs": 6,
            "first_stage.epochs": 2,
            "first_stage.lr": 5e-3,
            "first_stage.batch_size": 16,
        }
        given |= {f"first_stage.objectives.{key}": term for key, term in (terms or {}).items()}
        del given["kind"]  # the recipe's own
        return Recipe.load(method, **given | changes)

    return make


def train(recipe: Recipe, folder: Path) -> Result:
    return distill(recipe, out=folder, report=False)


@pytest.fixture(scope="module")
def shipped(recipe, tmp_path_factory):
    """`shipped("l-ild-t5")`: a run of the recipe as it is; dropout is on."""

    @functools.cache
    def run(method: str) -> Result:
        made = recipe(method, config={"dropout_rate": 0.1})
        return train(made, tmp_path_factory.mktemp(method) / "run")

    return run


@pytest.fixture
def killed(monkeypatch):
    """`killed(recipe, folder, 2, "step_begin", 3)`: the process ends there in stage 2."""

    def run(recipe: Recipe, folder: Path, stage: int, event: str, at: int) -> None:
        numbers = iter((1, 2))

        def build(*args, **kwargs):
            trainer = DistillationTrainer(*args, **kwargs)
            if next(numbers) == stage:
                trainer.add_callback(tiny.Kill(event, at))
            return trainer

        with monkeypatch.context() as patched:
            patched.setattr(module, "DistillationTrainer", build)
            with pytest.raises(tiny.KilledError):
                train(recipe, folder)

    return run


@pytest.fixture
def first_stage(killed, tmp_path):
    """The weights that a recipe's first stage changed, by name, and its last epoch's terms."""

    def run(made: Recipe) -> tuple[set[str], dict[str, float]]:
        killed(made, tmp_path / "run", 2, "train_begin", 0)
        kept = (tmp_path / "run" / "checkpoints" / "first_stage").glob("checkpoint-*")
        checkpoint = max(kept, key=lambda path: int(path.name.rpartition("-")[2]))
        after = load_file(checkpoint / "distiller.safetensors")
        before = prepare(made).student.state_dict()
        moved = {
            name
            for name, old in before.items()
            # Of weights that are tied one is stored.
            if f"student.{name}" in after and not torch.equal(old, after[f"student.{name}"])
        }
        *_, last = json.loads((checkpoint / "progress.json").read_text())["epochs"]
        terms = {name: value for name, value in last["train"].items() if name != "loss"}
        assert all(math.isfinite(value) and value > 0 for value in terms.values())
        return moved, terms

    return run


# ---- as shipped ----


@pytest.mark.parametrize(
    ("method", "terms"),
    [
        ("l-ild-t5", TERMS),
        ("l-ild-t5-attention", ("attention",)),
        ("cr-ild-t5", (*TERMS, *CONSISTENCY)),
    ],
)
@pytest.mark.slow
def test_a_student_of_another_width_and_head_count(method, terms, recipe, shipped):
    run = shipped(method)
    first, last = run.record.epochs[:2], run.record.epochs[2:]
    assert [epoch.stage for epoch in run.record.epochs] == [1, 1, *[2] * 6]
    assert all(epoch.train.keys() == {"loss", *terms} for epoch in first)
    assert all(math.isfinite(v) and v > 0 for epoch in first for v in epoch.train.values())
    assert [epoch.active_layers[terms[0]] for epoch in first] == [[[2, 3]]] * 2
    assert all(epoch.train.keys() == {"loss", "hard"} for epoch in last)
    assert last[-1].train["hard"] < last[0].train["hard"]
    # Stage 2 asks no teacher.
    assert [stage.teacher_flops > 0 for stage in run.record.stages] == [True, False]
    student = hf.AutoModelForSeq2SeqLM.from_pretrained(run.path / "student")
    config = student.config
    assert config.text_prompt == "own sentence: {0}"
    assert (config.d_model, config.num_heads, config.num_decoder_layers) == (24, 4, 2)
    # Scored by what it writes: the same words, generated again without limbeck.
    words = hf.AutoTokenizer.from_pretrained(run.path / "student")
    answers = json.loads((run.path / "predictions.json").read_text())["dev"]
    rows = [json.loads(line) for line in dev_file(recipe()).read_text().splitlines()]
    prompts = words(
        [f"own sentence: {row['t']}" for row in rows], padding=True, return_tensors="pt"
    )
    written = words.batch_decode(
        student.generate(
            input_ids=prompts["input_ids"],
            attention_mask=prompts["attention_mask"],
            max_new_tokens=10,
        ),
        skip_special_tokens=True,
    )
    assert answers["prediction"] == [answer.strip() for answer in written]
    right = sum(a == row["y"] for a, row in zip(answers["prediction"], rows, strict=True))
    assert right > 0
    assert run.scores["dev"]["accuracy"] == pytest.approx(100 * right / len(rows))


def dev_file(made: Recipe) -> Path:
    return Path(made.data) / "dev.jsonl"


# ---- each stack ----


def test_terms_of_the_encoder_leave_the_decoder_alone(recipe, first_stage):
    moved, terms = first_stage(
        recipe("cr-ild-t5", {f"{name}.stack": "encoder" for name in (*TERMS, *CONSISTENCY)})
    )
    assert terms.keys() == {*TERMS, *CONSISTENCY}
    assert not [name for name in moved if name.startswith("decoder.block")]
    assert "encoder.block.1.layer.1.DenseReluDense.wo.weight" in moved


@pytest.mark.parametrize(
    ("terms", "top", "still"),
    [
        # Queries, keys and values of the last layer's self-attention: what it makes of them rests.
        ({"hidden": None}, "layer.0.SelfAttention.{}", "layer.1.EncDecAttention.{}"),
        # Of its attention to the encoder: queries are the decoder's, keys and values the encoder's.
        (
            {"hidden": None} | {f"{name}.stack": "cross" for name in TERMS[:3]},
            "layer.1.EncDecAttention.{}",
            "layer.2.DenseReluDense.w{}",
        ),
    ],
    ids=["decoder", "cross"],
)
@pytest.mark.slow
def test_relations_move_their_own_attention_and_what_lies_below(
    terms, top, still, recipe, first_stage
):
    moved, found = first_stage(recipe(terms=terms))
    assert found.keys() == set(TERMS[:3])
    assert {f"decoder.block.1.{top.format(what)}.weight" for what in "qkv"} <= moved
    assert not {f"decoder.block.1.{still.format(what)}.weight" for what in "qkvio"} & moved
    assert "decoder.block.0.layer.1.EncDecAttention.o.weight" in moved
    assert "encoder.block.1.layer.0.SelfAttention.v.weight" in moved


def test_scores_of_relation_heads_move_queries_and_keys(recipe, first_stage):
    moved, found = first_stage(recipe("l-ild-t5-attention"))
    assert found.keys() == {"attention"}
    own = "decoder.block.1.layer.0.SelfAttention.{}.weight"
    assert {what for what in "qkvo" if own.format(what) in moved} == {"q", "k"}
    assert "decoder.block.0.layer.1.EncDecAttention.o.weight" in moved


@pytest.mark.slow
def test_with_as_many_heads_attention_to_the_encoder_is_compared_head_by_head(recipe, first_stage):
    terms = dict.fromkeys(TERMS) | {"cross": ATTENTION}
    moved, found = first_stage(recipe(terms=terms, config={"num_heads": 2}))
    assert found.keys() == {"cross"}
    cross = "decoder.block.1.layer.1.EncDecAttention.{}.weight"
    assert {what for what in "qkv" if cross.format(what) in moved} == {"q", "k"}


@pytest.mark.slow
def test_all_layers_of_the_decoder(recipe, tmp_path):
    mapped = {f"{name}.mapping": UNIFORM for name in TERMS}
    first, *_ = train(recipe(terms=mapped, epochs=1), tmp_path / "run").record.epochs
    # L/M = 1½, rounded up.
    assert first.active_layers == {name: [[1, 2], [2, 3]] for name in TERMS}
    assert all(math.isfinite(first.train[name]) and first.train[name] > 0 for name in TERMS)


# ---- stored teacher outputs ----


def from_storage_and_live(made, folder: Path) -> None:
    """The same terms in every epoch, wherever the teacher's outputs come from."""
    stored, live = (
        train(made(cache=cache), folder / cache).record for cache in ("always", "never")
    )
    assert stored.execution.teacher_outputs == {"1": "stored"}
    assert live.execution.teacher_outputs == {"1": "live"}
    assert len(stored.epochs) == len(live.epochs) > 0
    for ours, theirs in zip(stored.epochs, live.epochs, strict=True):
        assert ours.train == pytest.approx(theirs.train, rel=2e-3)


@pytest.mark.slow
def test_relations_of_the_decoder_from_storage(recipe, tmp_path):
    cross = {"compare": "relation_kl", "of": "value", "stack": "cross", "mapping": UNIFORM}
    scores = {"compare": "relation_mse", "of": "query_key", "stack": "cross", "mapping": UNIFORM}
    terms = {"cross": cross, "scores": scores}
    from_storage_and_live(lambda **given: recipe(terms=terms, epochs=1, **given), tmp_path)


@pytest.mark.slow
def test_the_soft_label_of_every_written_token_from_storage(settings, teachers, tmp_path):
    def made(**given) -> Recipe:
        given |= {"teacher": str(teachers["text"].path), "student.layers": 2}
        return Recipe.load("kd", **settings("text", **given))

    from_storage_and_live(made, tmp_path)


# ---- stopping and resuming ----


@pytest.mark.slow
def test_killed_in_either_stage_it_ends_as_unbroken(recipe, shipped, killed, tmp_path):
    """Mixed inputs, dropout and learned maps: all draws go on where they stood."""
    unbroken = shipped("cr-ild-t5")
    made = recipe("cr-ild-t5", config={"dropout_rate": 0.1}, checkpoint_steps=2)
    for stage, event, at in ((1, "step_begin", 3), (2, "step_begin", 4)):
        killed(made, tmp_path / "run", stage, event, at)
    resumed = train(made, tmp_path / "run")
    for file in ("student/model.safetensors", "predictions.json"):
        assert (resumed.path / file).read_bytes() == (unbroken.path / file).read_bytes(), file
    assert resumed.scores == unbroken.scores
    epochs = [[epoch.train for epoch in run.record.epochs] for run in (resumed, unbroken)]
    assert epochs[0] == epochs[1]


# ---- text without labels ----


@pytest.mark.slow
def test_a_corpus_teaches_the_encoder(recipe, first_stage, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("Ann saw rome. The cat saw lee. Lee and ann saw rome.\n" * 6, encoding="utf-8")
    given = {"first_stage.corpus": {"source": str(text), "size": 12}}
    encoder = {f"{name}.stack": "encoder" for name in TERMS}
    moved, found = first_stage(recipe(terms=encoder, **given))
    assert found.keys() == set(TERMS)
    assert not [name for name in moved if name.startswith("decoder.block")]


OTHERS = [{"t": "ann saw the cat", "y": "cat"}, {"t": "lee saw rome", "y": "rome"}] * 6


@pytest.fixture
def supplement(recipe, tmp_path) -> Recipe:
    """A first stage on another task's rows, with other answers."""
    return recipe(**other_rows(tmp_path))


def other_rows(place: Path) -> dict:
    for split in ("train", "dev"):
        lines = "\n".join(map(json.dumps, OTHERS))
        (place / f"{split}.jsonl").write_text(lines, encoding="utf-8")
    own = {"task": "others", "data": str(place), "text_columns": ["t"], "label_column": "y"}
    return {f"first_stage.{key}": value for key, value in own.items()}


@pytest.mark.slow
def test_a_supplementary_task_teaches_the_decoder(supplement, first_stage):
    """Its answers are the decoder's input (CR-ILD, App. F.3)."""
    moved, found = first_stage(supplement)
    assert found.keys() == set(TERMS)
    assert any(name.startswith("decoder.block.1") for name in moved)


def test_a_decoder_reads_the_answers_of_the_supplements_own_rows(supplement):
    prepared = prepare(supplement)
    stage, _ = supplement.stages()
    assert stage.supplementary
    labels = prepared.stages[0].rows.encoded["labels"]
    words = {prepared.tokenizer.decode(ids, skip_special_tokens=True).strip() for ids in labels}
    assert words == {"cat", "rome"}


@pytest.mark.slow
def test_labels_and_logits_of_a_supplement_are_those_of_its_own_rows(
    recipe, teachers, first_stage, tmp_path
):
    """Its one batch holds all rows, so its terms are Hugging Face's loss and, by hand, Σ −p_T log p_S."""
    terms = {"hard": {"compare": "hard_label"}, "soft": {"compare": "soft_cross_entropy"}}
    one = {"first_stage.epochs": 1, "first_stage.batch_size": len(OTHERS), "first_stage.warmup": 0}
    made = recipe(
        "l-ild-t5-attention", terms={"attention": None} | terms, **one, **other_rows(tmp_path)
    )
    moved, found = first_stage(made)
    assert "decoder.block.1.layer.0.SelfAttention.v.weight" in moved
    words = hf.AutoTokenizer.from_pretrained(teachers["text"].path / "student")
    batch = words([f"others t: {row['t']}" for row in OTHERS], padding=True, return_tensors="pt")
    labels = words(text_target=[row["y"] for row in OTHERS], padding=True, return_tensors="pt")
    targets = labels["input_ids"].masked_fill(labels["attention_mask"] == 0, -100)
    asked = {key: batch[key] for key in ("input_ids", "attention_mask")} | {"labels": targets}
    teacher = hf.AutoModelForSeq2SeqLM.from_pretrained(teachers["text"].path / "student").eval()
    with torch.no_grad():
        mine, theirs = prepare(made).student.eval()(**asked), teacher(**asked)
    assert found["hard"] == pytest.approx(float(mine.loss), rel=1e-5)
    rows = []
    for row, tokens in enumerate(targets.tolist()):
        steps = [step for step, token in enumerate(tokens) if token != -100]
        for step in steps:
            theirs_now, mine_now = (side.logits[row, step].double() for side in (theirs, mine))
            rows.append(-float(theirs_now.softmax(-1) @ mine_now.log_softmax(-1)))
    assert found["soft"] == pytest.approx(sum(rows) / len(rows), rel=1e-5)


def test_rows_without_a_label_are_refused_where_a_decoder_reads_them(recipe, tmp_path):
    terms = {"attention": None, "hard": {"compare": "hard_label"}}
    own = other_rows(tmp_path)
    rows = [OTHERS[0] | {"y": ""}, *OTHERS[1:]]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    said = f"first_stage: task 'others': 1 of {len(OTHERS)} training rows have no label"
    with pytest.raises(LimbeckError, match=said):
        prepare(recipe("l-ild-t5-attention", terms=terms, **own))


def test_a_step_of_a_decoder_is_measured_with_its_targets(recipe):
    made = recipe()
    cost = measure(made, untrained(made))
    assert (cost.batch, cost.rows, cost.dev_rows) == (8, 35, 5)
    assert cost.train > 0 and cost.forward > 0 and cost.teacher > 0


@pytest.mark.slow
def test_rows_read_as_text_have_copies_with_other_words(settings, place, tmp_path):
    language = place["masked"][1]  # random, but whole
    own = {"augment.model": str(language), "augment.examples": 2, "augment.words": "all"}
    recipe = Recipe.load("finetune", **settings("text", epochs=1, **own))
    examples = distill(recipe, out=tmp_path / "run", report=False).record.examples
    assert examples.train == 35 + examples.augmented and examples.augmented > 35
