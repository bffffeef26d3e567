"""Every shipped method, from Python: a user's own models, rows, collator, metrics and callback."""

from __future__ import annotations

import json
from typing import Any

import own_rows as own
import pytest
import torch
from transformers import PrinterCallback

import tiny_runs
from limbeck.embedding import SENTENCE_EMBEDDERS
from limbeck.recipe import Recipe, Stage, catalog
from limbeck.support.errors import LimbeckError
from limbeck.training import DistillationConfig, DistillationTrainer
from quick_cases import ONE_OF_A_KIND, quick

# What a method leaves to its user, or to small data.
GIVEN: dict[str, dict[str, Any]] = {
    "pkd": {"objectives.patience.mapping.layers": {1: 4}},
    "skd-adaptive": {"team.holdout": 4},
}


def logged(stage: Stage) -> set[str]:
    """Names of a stage's logged means: its terms, and the share of examples that count."""
    return {*stage.recipe.objectives, *(["counted"] if stage.recipe.example_weights else [])}


@pytest.mark.parametrize("method", quick(*ONE_OF_A_KIND, of=catalog.names()))
def test_every_method_trains_whole(tmp_path, capsys, method):
    # Tiny models have few positions, and some releases pad every batch to all of max_length.
    recipe = Recipe.load(method, **GIVEN.get(method, {}), max_length=12)
    text, lists, embeds = (recipe.kind == one for one in ("text", "pair-score", "embedding"))
    teachers = [own.t5(4, 1)] if text else [own.bert(12, 1)]
    if recipe.team is not None:
        teachers.append(own.bert(4, 2))
    student = own.t5(2) if text else own.bert(3)
    if lists:
        teachers, student = [own.reranker(12, 1)], own.reranker(3)
    if embeds:
        teachers, student = [own.embedder(12, 1)], own.embedder(3)
    before = {name: value.clone() for name, value in student.state_dict().items()}
    rows = own.prompts() if text else own.candidates() if lists else own.sentences()
    if embeds:
        rows = own.tuples()
    collator, watch = own.OwnCollator(text=text), own.Watch()
    trainer = DistillationTrainer(
        student,
        (teachers if recipe.team else teachers[0]) if recipe.needs_teacher else None,
        # Layers that learn one after the other have a step each, and the answers one.
        DistillationConfig.like(
            own.arguments(tmp_path, max_steps=5 if recipe.curriculum else 2),
            method=recipe,
            first_stage={"max_steps": 2} if recipe.first_stage else None,
        ),
        train_dataset=rows,
        eval_dataset=rows,
        data_collator=collator,
        compute_metrics=own.first_is_best if lists else own.accuracy,
        callbacks=[watch],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    *earlier, last = recipe.stages()
    expected = {part: logged(s) for part, s in zip(["first_stage"], earlier, strict=False)}
    found = own.terms_by_part(trainer.state.log_history)
    if "best-of" in method:
        assert len(found) == 1 and next(iter(found)).startswith("tries/")
    else:
        assert found == expected | {"": logged(last)}
    for part in trainer.parts:
        if part.name != "first_stage":
            assert own.terms_by_part(part.log_history)[part.name] == logged(last)
    folders = {str(tmp_path / part.name) for part in trainer.parts}
    if "best-of" not in method:
        folders.add(str(tmp_path))
    assert folders <= set(watch.steps)
    assert set(map(watch.steps.get, folders)) <= {2, 5}
    assert collator.calls > 0
    # As in transformers, metrics are of labeled rows; those of an embedding model have no labels.
    assert ("eval_mine" in trainer.evaluate()) is not embeds
    assert trainer.predict(rows).predictions is not None
    after = trainer.student.state_dict()
    assert trainer.student is student
    assert any(not torch.equal(after[name], before[name]) for name in before)
    trainer.save_model(str(tmp_path / "shipped"))
    load = SENTENCE_EMBEDDERS if embeds else type(student)
    again = load.from_pretrained(str(tmp_path / "shipped")).state_dict()
    assert all(torch.equal(again[name], after[name]) for name in after)


@pytest.mark.parametrize(
    ("method", "parts"),
    [
        ("takd", ["assistants/01-middle", "assistants/02-small"]),
        ("skd-student-rank", ["students/small", "students/large", "students/middle"]),
        ("wkd-teacher-rank", []),
        pytest.param(
            "skd-best-of",
            ["tries/uniform", "tries/teacher-rank", "tries/student-rank"],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_teams_are_made_ready_part_by_part(tmp_path, method, parts):
    given = {"small": own.bert(2, 1), "large": own.bert(6, 2), "middle": own.bert(4, 3)}
    kept = {
        name: {key: value.clone() for key, value in model.state_dict().items()}
        for name, model in given.items()
    }
    trainer = DistillationTrainer(
        own.bert(2),
        given,
        DistillationConfig.like(own.arguments(tmp_path, max_steps=1), method=method),
        train_dataset=own.sentences(),
        eval_dataset=own.sentences(),
        data_collator=own.OwnCollator(),
    )
    trainer.train()
    assert [part.name for part in trainer.parts] == parts
    for name, model in given.items():  # the user's teachers are as they were
        assert all(torch.equal(value, kept[name][key]) for key, value in model.state_dict().items())


@pytest.fixture
def assistants_of(tmp_path):
    """Train a chain whose assistants learn next to nothing, and return their weights by folder."""

    def train(teachers: dict[str, Any], **settings: Any) -> dict[str, Any]:
        trainer = DistillationTrainer(
            own.bert(2),
            teachers,
            DistillationConfig.like(
                own.arguments(
                    tmp_path / "out", max_steps=1, learning_rate=1e-12, save_strategy="steps"
                ),
                method="takd",
            ),
            train_dataset=own.sentences(),
            eval_dataset=own.sentences(),
            data_collator=own.OwnCollator(),
            **settings,
        )
        trainer.train()
        return {part.name: part.student.state_dict() for part in trainer.parts}

    return train


def tuned(model: Any) -> Any:
    """As if it had been fine-tuned in this process."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.5)
    return model


@pytest.mark.parametrize("by", ["folder", "record", "nothing"])
def test_an_assistant_starts_from_its_pretrained_weights(tmp_path, assistants_of, caplog, by):
    """The paper's meaning, as in a run: from before the fine-tuning, by the run's record or by what was loaded."""
    pretrained = own.bert(2, 1)
    pretrained.bert.save_pretrained(tmp_path / "pretrained")
    load = type(pretrained).from_pretrained
    small = tuned(load(tmp_path / "pretrained"))
    if by == "record":
        small.save_pretrained(tmp_path / "run" / "student")
        recipe = {"student": {"init": str(tmp_path / "pretrained")}}
        (tmp_path / "run" / "record.json").write_text(json.dumps({"schema": 1, "recipe": recipe}))
        small = load(tmp_path / "run" / "student")
    if by == "nothing":
        small.save_pretrained(tmp_path / "elsewhere")
        small = load(tmp_path / "elsewhere")
    ((name, found),) = assistants_of({"small": small, "large": own.bert(4, 2)}).items()
    assert name == "assistants/01-small"
    expected = small.state_dict() if by == "nothing" else pretrained.state_dict()
    body = [key for key in expected if key.startswith("bert.")]
    assert body and all(torch.allclose(found[key], expected[key], atol=1e-6) for key in body)
    said = "assistant small starts from its given weights" in caplog.text
    assert said is (by == "nothing")


def test_the_best_of_a_trainers_largest_teachers_starts_the_chain(assistants_of):
    knowing, turned = own.tiny.knowing_teacher(2), own.tiny.knowing_teacher(2)
    with torch.no_grad():
        turned.classifier.weight.neg_()  # always wrong
    assert list(assistants_of({"wrong": turned, "right": knowing})) == ["assistants/01-wrong"]


def test_teachers_are_weighed_by_the_rank_of_their_scores(tmp_path):
    """SKDBERT Eq. 2: π_n = r_n / Σ r, the worst teacher's rank 1; here by the loss on the user's rows."""
    knowing, turned = own.tiny.knowing_teacher(2), own.tiny.knowing_teacher(2)
    with torch.no_grad():
        turned.classifier.weight.neg_()  # always wrong
    trainer = DistillationTrainer(
        own.bert(2),
        [turned, own.bert(2, 1), knowing],
        DistillationConfig.like(own.arguments(tmp_path, max_steps=1), method="wkd-teacher-rank"),
        train_dataset=own.sentences(),
        eval_dataset=own.sentences(),
        data_collator=own.OwnCollator(),
    )
    trainer.train()
    assert trainer.teacher.weights == pytest.approx([1 / 6, 2 / 6, 3 / 6])


@pytest.mark.slow
def test_the_best_of_three_is_the_students(tmp_path):
    scores = {"uniform": 0.2, "teacher-rank": 0.9, "student-rank": 0.5}

    class Scoring(DistillationTrainer):
        def evaluate(self, *args, **kwargs):
            metrics = super().evaluate(*args, **kwargs)
            name = str(self.args.output_dir).rsplit("/", 1)[-1]
            return metrics | {"eval_mine": scores.get(name, 0.0)}

    trainer = tiny_runs.trainer_of(
        own.bert(2),
        own.arguments(tmp_path, max_steps=1, metric_for_best_model="mine"),
        kind=Scoring,
        teacher=[own.bert(2, 1), own.bert(3, 2)],
        method="wkd-uniform",
        train_dataset=own.sentences(),
        eval_dataset=own.sentences(),
        data_collator=own.OwnCollator(),
    )
    best = tiny_runs.trainer_of(
        own.bert(2),
        trainer.args,
        kind=Scoring,
        teacher=[own.bert(2, 1), own.bert(3, 2)],
        method=Recipe.load("skd-best-of", **{"team.student_epochs": None}),
        train_dataset=own.sentences(),
        eval_dataset=own.sentences(),
        data_collator=own.OwnCollator(),
    )
    result = best.train()
    assert {entry["part"] for entry in best.state.log_history} == {"tries/teacher-rank"}
    assert result.metrics["eval_mine"] == 0.9
    assert result.global_step == 1


def test_a_width_that_a_release_pads_to_holds_for_the_users_collator_too(tmp_path):
    """TinyBERT's released code counts padding: the wider a batch, the larger its terms."""
    logged = []
    for width in (8, 12):
        trainer = DistillationTrainer(
            own.bert(2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
            own.bert(4, 1, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
            DistillationConfig.like(
                own.arguments(tmp_path, max_steps=1),
                method=Recipe.load("tinybert-released", max_length=width),
                first_stage={"max_steps": 1},
            ),
            train_dataset=own.sentences().select([0, 1]),
            data_collator=own.OwnCollator(),
        )
        widths = []
        trainer.student.get_input_embeddings().register_forward_hook(
            lambda module, given, found, widths=widths: widths.append(found.shape[1])
        )
        trainer.train()
        assert set(widths) == {width}
        logged.append(trainer.parts[0].log_history[0]["term/hidden"])
    assert logged[0] != logged[1]


def test_a_row_longer_than_that_width_is_an_error(tmp_path):
    trainer = DistillationTrainer(
        own.bert(2),
        own.bert(4, 1),
        DistillationConfig.like(
            own.arguments(tmp_path), method=Recipe.load("tinybert-released", max_length=4)
        ),
        train_dataset=own.sentences(),
        data_collator=own.OwnCollator(),
    )
    with pytest.raises(LimbeckError, match="pad_to 4: a batch has"):
        trainer.train()
