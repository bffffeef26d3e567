"""Runs that read what the teacher said: the same terms, the same draws, the model asked once."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import torch

import tiny_runs as tiny
from limbeck.activations import capture
from limbeck.input_transforms.input_transform import as_inputs
from limbeck.objectives import ModelShape, Objectives, Shape
from limbeck.outputs import building
from limbeck.outputs.building import build
from limbeck.outputs.cache import Store
from limbeck.outputs.columns import Ask
from limbeck.outputs.stored_teacher import CachedTeacher
from limbeck.recipe import Recipe, catalog
from limbeck.run import distill
from limbeck.support.errors import LimbeckError
from limbeck.support.step_state import StepState
from limbeck.teachers.teacher import Teacher

GIVEN = {"pkd": {"objectives.patience.mapping.layers": {1: 4}}}


def kinds_of(stage: Recipe) -> set[tuple[object, ...]]:
    """What may be stored wrongly of a stage's terms: weights, temperatures and chosen layers are left out."""
    terms = stage.model_dump(mode="json")["objectives"].values()
    found: set[tuple[object, ...]] = {("curriculum", stage.curriculum and stage.curriculum.order)}
    for term in terms:
        mapping, project = term.get("mapping") or {}, term.get("project") or {}
        parts = (
            mapping.get("kind"),
            mapping.get("combine"),
            term.get("pool"),
            project.get("sides"),
        )
        found.add((term["compare"], term.get("compare_layers"), *parts))
    return found


def stages() -> Iterator[object]:
    """A stage of every method; the ones with no kind of term that an earlier one lacks are slow."""
    seen: set[tuple[object, ...]] = set()
    for method in catalog.names():
        # Padding counts, or the teacher's dropout is on.
        if method in ("tinybert-released", "bert-emd-released", "contextual-kd-released"):
            continue
        for stage in Recipe.load(method, **GIVEN.get(method, {})).stages():
            recipe = stage.recipe
            # T5's are in the tests of its runs: this teacher is a BERT, and has classes.
            others = ("text", "pair-score", "embedding")
            if not recipe.needs_teacher or recipe.transform is not None or recipe.kind in others:
                continue
            new = kinds_of(recipe) - seen
            seen |= new
            yield pytest.param(method, stage.number, marks=() if new else pytest.mark.slow)


@pytest.fixture(autouse=True)
def store(monkeypatch, tmp_path) -> Store:
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "store"))
    return Store(tmp_path / "store")


@pytest.fixture
def passes(monkeypatch) -> list[int]:
    """Examples of every pass that a live teacher makes."""
    seen: list[int] = []
    live = Teacher.__call__

    def counting(self, inputs, request):
        seen.append(len(as_inputs(inputs).batch["input_ids"]))
        return live(self, inputs, request)

    monkeypatch.setattr(Teacher, "__call__", counting)
    return seen


def examples(rows: list[int]) -> dict[str, torch.Tensor]:
    lengths = [7, 4, 6, 5][: max(rows) + 1]
    generator = torch.Generator().manual_seed(2)
    text = torch.randint(4, 14, (4, 7), generator=generator)
    width = max(lengths[row] for row in rows)
    mask = torch.stack([(torch.arange(width) < lengths[row]).long() for row in rows])
    return {
        "input_ids": text[rows, :width] * mask,
        "attention_mask": mask,
        "labels": torch.tensor([0, 1, 1, 0])[rows],
        "index": torch.tensor(rows),
    }


@pytest.mark.parametrize(("method", "number"), [*stages()])
def test_every_term_from_storage_equals_the_live_one(method, number, tmp_path):
    stage = Recipe.load(method, **GIVEN.get(method, {})).stages()[number - 1].recipe
    teacher = Teacher(tiny.bert(12, seed=1, initializer_range=0.3))
    student = tiny.bert(3, seed=2, initializer_range=0.3).eval()
    shape = Shape(ModelShape.of(student), ModelShape.of(teacher.model), rows=8)
    torch.manual_seed(4)
    objectives = Objectives(stage.loss, shape).eval()
    asked = objectives.ever("teacher")
    wanted = Ask(asked, objectives.differences("teacher").items)
    parts = [examples([0, 3]), examples([2, 1])]
    stored = Store(tmp_path / "own")
    with stored.writing("key") as folder:
        build(folder, teacher, parts, wanted, precision="fp32")
    cached = CachedTeacher(teacher, stored.find("key"))
    # Two epochs, so that a random map draws twice; the ends of a run, for a curriculum.
    for progress, epoch in ((0.0, 0), (0.4, 1), (0.99, 2)):
        step_state = StepState(
            seed=3, epoch=epoch, step=epoch, progress=progress, passes=3 * progress
        )
        batch = examples([0, 1, 2, 3])
        ours = capture(student, batch, objectives.request("student", step_state))
        now = objectives.request("teacher", step_state)
        assert asked | now == asked
        live = objectives(ours, teacher(batch, now), batch, step_state)
        read = objectives(ours, cached(batch, now), batch, step_state)
        assert live.keys() == read.keys()
        for name, value in live.items():
            torch.testing.assert_close(read[name], value, rtol=1e-3, atol=1e-7, msg=name)


def stored_run(recipe, path, **settings):
    return distill(recipe(cache="always", **settings), path, report=False)


@pytest.mark.slow
def test_the_teacher_is_asked_once_for_every_seed_and_epoch(recipe, tmp_path, passes, store, place):
    first = stored_run(recipe, tmp_path / "one", seed=1).record
    # One pass of 54 rows, in a single batch; before it pre-flight and the estimate look at a few,
    # and at the end it is scored on dev.
    assert passes.count(54) == 1 and sorted(passes)[-2] < 20
    assert first.execution.teacher_outputs == {"1": "stored"}
    assert len(store.entries()) == 1
    manifest = json.loads((store.entries()[0].path / "manifest.json").read_text())
    assert manifest["teacher"]["name"] == str(place / "teacher")
    assert manifest["rows"]["count"] == 54 and manifest["classes"] == ["negative", "positive"]
    assert manifest["task"] == "reviews" and manifest["settings"]["precision"] == "fp32"
    passes.clear()
    second = stored_run(recipe, tmp_path / "two", seed=2).record
    assert max(passes) < 20 and len(store.entries()) == 1
    assert first.cost.teacher_flops > 0 and second.cost.teacher_flops == 0
    epochs = [
        [tuple(map(tuple, e.active_layers["rail"])) for e in r.epochs] for r in (first, second)
    ]
    assert len({draw for record in epochs for draw in record}) > 1  # all from one entry


@pytest.fixture(scope="module")
def whole(recipe, tmp_path_factory):
    """An unbroken run from storage."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIMBECK_CACHE", str(folder / "store"))
        return stored_run(recipe, folder / "run")


def test_a_run_from_storage_ends_where_the_live_one_ends(recipe, tmp_path, whole):
    stored = whole.record
    live = distill(recipe(cache="never"), tmp_path / "live", report=False).record
    assert live.execution.teacher_outputs == {"1": "live"}
    for ours, theirs in zip(stored.epochs, live.epochs, strict=True):
        assert ours.active_layers == theirs.active_layers
        for name, value in theirs.train.items():
            assert ours.train[name] == pytest.approx(value, rel=2e-3), name


@pytest.mark.slow
def test_another_request_has_an_entry_of_its_own(recipe, tmp_path, store):
    stored_run(recipe, tmp_path / "rail", max_steps=1)
    stored_run(recipe, tmp_path / "kd", method="kd", max_steps=1)
    held = [entry.outputs.settings["holds"] for entry in store.entries()]
    assert ["logits"] in held and len(held) == 2
    # Random layers: every one that may be sampled.
    rail = next(names for names in held if len(names) > 1)
    assert [f"hidden of main layer {k}, pool=mean" for k in (1, 2, 3)] == rail[:3]


@pytest.mark.slow
def test_stages_on_the_same_rows_share_a_pass(recipe, tmp_path, store):
    record = stored_run(recipe, tmp_path / "run", method="l-ild").record
    assert record.execution.teacher_outputs == {"1": "stored", "2": "stored"}
    assert len(store.entries()) == 1
    # The pass they share counts once, in FLOPs and in seconds.
    first, second = record.stages
    assert first.teacher_flops > 0 and second.teacher_flops == 0
    built = store.entries()[0].outputs.costs["seconds"]
    assert record.cost.teacher_seconds >= built


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        pytest.param({"method": "cr-ild"}, "mixed again", marks=pytest.mark.slow),
        ({"method": "kd", "teacher_dropout": True}, "dropout"),
    ],
)
@pytest.mark.slow
def test_what_changes_every_step_is_not_stored(recipe, tmp_path, settings, why, store):
    with pytest.raises(LimbeckError, match=f"cache: always, but .*{why}"):
        stored_run(recipe, tmp_path / "run", **settings)
    assert store.entries() == []
    record = distill(recipe(**settings, batch_size=27), tmp_path / "auto", report=False).record
    assert "stored" not in record.execution.teacher_outputs.values()


@pytest.mark.parametrize(
    ("seconds", "limit", "answers"),
    [(100.0, 20.0, "stored"), (1.0, 20.0, "live"), (100.0, 1e-6, "live")],
)
def test_auto_decides_by_time_and_room(recipe, tmp_path, monkeypatch, seconds, limit, answers):
    told = building.measure

    def slow(*args, **kwargs):
        return building.Estimate(told(*args, **kwargs).bytes, seconds, 0.0)

    monkeypatch.setattr(building, "measure", slow)
    given = recipe(cache_limit=limit, batch_size=27)
    record = distill(given, tmp_path / "run", report=False).record
    assert record.execution.teacher_outputs == {"1": answers}


def test_always_refuses_what_is_too_large(recipe, tmp_path, store):
    with pytest.raises(LimbeckError, match=r"always, but it would take .* cache_limit 1e-06 GiB"):
        stored_run(recipe, tmp_path / "run", cache_limit=1e-6)
    assert store.entries() == []


@pytest.mark.parametrize("cache", ["auto", "always"])
@pytest.mark.slow
def test_a_teacher_beyond_float16_is_asked_live_or_refused(recipe, tmp_path, monkeypatch, cache):
    large = tiny.knowing_teacher(4)
    with torch.no_grad():
        large.bert.encoder.layer[1].output.LayerNorm.weight.fill_(1e6)
    path = str(tiny.save(large, tmp_path / "large"))
    monkeypatch.setattr(building, "_WORTH_SECONDS", -1e9)
    # A teacher that knows nothing is only warned of; its weights are what matters here.
    settings = {"teacher": path, "cache": cache, "batch_size": 27}
    if cache == "always":
        with pytest.raises(LimbeckError, match="float16"):
            distill(recipe(**settings), tmp_path / "run", report=False)
        return
    record = distill(recipe(**settings), tmp_path / "run", report=False).record
    assert record.execution.teacher_outputs == {"1": "live"}


@pytest.mark.slow
def test_one_pass_saves_nothing(recipe, tmp_path, monkeypatch):
    told = building.measure

    def slow(*args, **kwargs):
        return building.Estimate(told(*args, **kwargs).bytes, 1000.0, 0.0)

    monkeypatch.setattr(building, "measure", slow)
    record = distill(recipe(epochs=1, batch_size=27), tmp_path / "run", report=False).record
    assert record.execution.teacher_outputs == {"1": "live"}


@pytest.mark.slow
def test_a_continued_run_reads_on_and_ends_bit_equal(recipe, tmp_path, monkeypatch, whole):
    with monkeypatch.context() as patch:
        patch.setattr(CachedTeacher, "__call__", stop_after(CachedTeacher.__call__, 9))
        with pytest.raises(KeyboardInterrupt):
            stored_run(recipe, tmp_path / "cut", checkpoint_steps=2)
    continued = stored_run(recipe, tmp_path / "cut", checkpoint_steps=2)
    for name, value in whole.student.state_dict().items():
        assert torch.equal(value, continued.student.state_dict()[name]), name


def stop_after(call, steps):
    left = [steps]

    def stopping(*args, **kwargs):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return call(*args, **kwargs)

    return stopping


@pytest.mark.slow
def test_a_start_that_went_live_stays_live(recipe, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Teacher, "__call__", stop_after(Teacher.__call__, 10))
        with pytest.raises(KeyboardInterrupt):
            distill(recipe(checkpoint_steps=2), tmp_path / "run", report=False)
    monkeypatch.setattr(building, "_WORTH_SECONDS", -1e9)  # now it would pay
    record = distill(recipe(checkpoint_steps=2), tmp_path / "run", report=False).record
    assert record.execution.teacher_outputs == {"1": "live"}
