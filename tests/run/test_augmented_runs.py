"""Whole runs on augmented rows: what trains on them, what they cost once, what is refused."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file

import tiny_runs as tiny
from closeness import assert_trained_alike, travelled
from limbeck.lab.augmentation import augmented_run as augment_rows
from limbeck.lab.augmentation.augmented_run import with_augmented_examples
from limbeck.outputs.cache import Store
from limbeck.outputs.remembering import RememberingTeacher
from limbeck.records import Record
from limbeck.report import write_report
from limbeck.run import distill
from limbeck.run.prepare import prepare
from limbeck.support.errors import LimbeckError
from limbeck.tables.notes import comparability_notes
from limbeck.teachers.teacher import Teacher

MASK = "[MASK]"


@pytest.fixture(scope="module")
def language(place) -> Path:
    """A masked language model with the run's vocabulary and a token to hide words by."""
    folder = place / "language"
    tokenizer = tiny.tokenizer()
    tokenizer.add_special_tokens({"mask_token": MASK})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        config = tiny.bert(1, vocab_size=len(tokenizer), initializer_range=0.5).config
        hf.BertForMaskedLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def more(recipe, language):
    """`more("kd")`: a recipe that augments its rows."""

    def make(method="kd-soft", **changes):
        own = {"augment.model": str(language), "augment.examples": 3, "augment.words": "all"}
        return recipe(method, **(own | changes))

    return make


@pytest.fixture(autouse=True)
def store(monkeypatch, tmp_path) -> Store:
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "store"))
    return Store(tmp_path / "store")


@pytest.fixture
def asked(monkeypatch) -> list[int]:
    """Tokens masked by every pass of a masked language model."""
    seen: list[int] = []
    module = import_module("limbeck.lab.augmentation.candidates")
    real = module.best_words

    def counting(model, vocabulary, hidden, *rest, **named):
        seen.append(len(hidden))
        return real(model, vocabulary, hidden, *rest, **named)

    monkeypatch.setattr(module, "best_words", counting)
    return seen


def weights(run) -> dict[str, torch.Tensor]:
    return load_file(run.path / "student" / "model.safetensors")


def test_a_run_trains_on_rows_and_copies_and_says_so(more, tmp_path, asked, store):
    run = distill(more(batch_size=32), tmp_path / "run", report=False)
    examples = run.record.examples
    plain = 54  # of 60 rows a tenth is the dev split
    assert examples.train == plain + examples.augmented and plain < examples.augmented <= 3 * plain
    assert examples.dev == 6
    assert run.record.stages[0].rows == examples.train
    assert run.record.cost.student_examples == 2 * examples.train  # two epochs
    (entry,) = store.entries()
    assert (
        entry.manifest.content == "augmented examples" and entry.manifest.rows == examples.augmented
    )
    assert Record.load(run.path).examples == examples
    assert len(asked) == 1 and asked[0] > 20
    # They are made once for every seed and method.
    second = distill(more("rail-kd-l", seed=2, max_steps=1), tmp_path / "two", report=False)
    assert len(asked) == 1 and len(store.entries()) == 1
    assert second.record.examples == examples


@pytest.mark.slow
def test_the_same_command_gives_the_same_student(more, tmp_path, store):
    first = distill(more(), tmp_path / "one", report=False)
    for entry in store.entries():
        store.remove(entry)
    second = distill(more(), tmp_path / "two", report=False)
    assert first.scores == second.scores
    assert all(torch.equal(weights(first)[name], w) for name, w in weights(second).items())


@pytest.mark.slow
def test_answers_about_copies_are_stored_like_any_other(more, tmp_path):
    live = distill(more(cache="never"), tmp_path / "live", report=False)
    stored = distill(more(cache="always"), tmp_path / "stored", report=False)
    again = distill(more(cache="always"), tmp_path / "again", report=False)
    assert stored.record.execution.teacher_outputs == {"1": "stored"}
    assert again.record.cost.teacher_flops == 0 < stored.record.cost.teacher_flops
    assert_trained_alike(weights(stored), weights(live), travelled=travelled(live.record))
    assert all(torch.equal(weights(again)[name], w) for name, w in weights(stored).items())


@pytest.mark.slow
def test_a_teacher_that_remembers_other_copies_is_asked_anew(more, place, tmp_path):
    live = distill(more(cache="never"), tmp_path / "live", report=False)
    shared = RememberingTeacher(Teacher.load(place / "teacher"))
    for seed, name in ((7, "other"), (0, "same")):
        own = more(**{"augment.seed": seed})
        shown = distill(own, tmp_path / name, report=False, live_teacher=shared)
    # What is remembered was asked in batches of other rows, which may round otherwise.
    assert_trained_alike(weights(shown), weights(live), travelled=travelled(live.record))


@pytest.mark.slow
def test_a_first_stage_on_the_same_rows_has_the_copies_and_one_of_its_own_has_not(more, tmp_path):
    both = distill(more("l-ild", epochs=1), tmp_path / "both", report=False).record
    assert [stage.rows for stage in both.stages] == [both.examples.train] * 2
    own = more("l-ild", epochs=1, **{"first_stage.train_rows": 20})
    assert [s.rows for s in distill(own, tmp_path / "own", report=False).record.stages] == [
        20,
        both.examples.train,
    ]


@pytest.mark.slow
def test_a_killed_run_goes_on_with_the_same_copies(more, tmp_path, monkeypatch, asked):
    straight = distill(more(), tmp_path / "straight", report=False)
    recipe = more(checkpoint_steps=4)
    resumed = tiny.continued(recipe, tmp_path / "killed", 9)
    assert all(torch.equal(weights(straight)[name], w) for name, w in weights(resumed).items())
    assert len(asked) == 1


def test_a_build_that_is_killed_leaves_nothing_and_the_next_one_starts_anew(
    more, tmp_path, monkeypatch, store
):
    def killed(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(augment_rows, "augmented_examples_of", killed)
        with pytest.raises(KeyboardInterrupt):
            distill(more(), tmp_path / "run", report=False)
    assert store.entries() == [] and not list(store.folder.glob("*part"))
    again = distill(more(max_steps=1), tmp_path / "again", report=False)
    assert again.record.examples.augmented > 0


@pytest.mark.slow
def test_room_is_made_for_copies(more, tmp_path, store):
    distill(more(), tmp_path / "one", report=False)
    distill(more(cache_limit=1e-9, **{"augment.seed": 5}), tmp_path / "two", report=False)
    (entry,) = store.entries()
    assert entry.manifest.content == "augmented examples"


@pytest.mark.slow
def test_tables_and_reports_tell_rows_with_copies_from_rows_without(more, recipe, tmp_path):
    records = [
        distill(own, tmp_path / name, report=False).record
        for name, own in (("more", more("kd", epochs=1)), ("plain", recipe("kd-soft", epochs=1)))
    ]
    notes = comparability_notes(records)
    rows = records[0].examples
    assert any(
        f"training rows {rows.train}, {rows.augmented} of them augmented" in n for n in notes
    )
    write_report(records, tmp_path / "report.html", title="both")
    assert "of them augmented" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_rows_that_are_held_out_have_no_copies_and_keep_their_numbers(more):
    recipe = more()
    prepared = prepare(recipe)
    every = prepared.train.encoded
    held = every.select(range(0, len(every), 3))
    left = every.select([i for i in range(len(every)) if i % 3])
    augmented = with_augmented_examples(prepared.holding_out(held, left))
    numbers, held = augmented.train.encoded["index"][:], held["index"][:]
    added = len(numbers) - len(left)
    assert augmented.last.holdout["index"][:] == held and prepared.train.encoded is every
    assert not set(numbers) & set(held)
    assert len(numbers) == len(set(numbers)) == len(every) - len(held) + added
    assert 0 < added <= 3 * (len(every) - len(held))


def test_the_teachers_word_vectors_do_without_a_language_model(more, place):
    own = {"augment.replace_by": "nearest", "augment.model": "teacher"}
    prepared = prepare(more(**own))
    teacher = hf.AutoModel.from_pretrained(place / "teacher")
    vectors = prepared.augmenter.model.get_input_embeddings().weight
    torch.testing.assert_close(vectors, teacher.get_input_embeddings().weight)
    before = len(prepared.train.encoded)
    assert before < len(with_augmented_examples(prepared).train.encoded) <= 4 * before


# Refusals, before any work


def refused(recipe) -> str:
    with pytest.raises(LimbeckError) as caught:
        prepare(recipe)
    assert all(problem.fix for problem in caught.value.problems)
    return str(caught.value)


def test_a_checkpoint_without_a_trained_head_is_refused(more, place):
    said = refused(more(**{"augment.model": str(place / "teacher")}))
    assert "augment.model" in said and "--kind masked" in said
    assert "no such folder" in refused(more(**{"augment.model": str(place / "none" / "at all")}))


def test_rows_of_which_nothing_can_be_replaced_are_refused(more, tmp_path):
    (tmp_path / "vectors.txt").write_text("xyzzy 1 0\nplugh 0 1\n", encoding="utf-8")
    own = {"augment.replace_by": "nearest", "augment.model": None}
    prepared = prepare(more(**own, **{"augment.embeddings": str(tmp_path / "vectors.txt")}))
    with pytest.raises(LimbeckError, match="none of the 54 training rows has a word"):
        with_augmented_examples(prepared)


def test_nobodys_word_vectors_are_refused(more):
    own = {"augment.replace_by": "nearest", "augment.model": "teacher", "teacher": None}
    assert "augment.model: teacher, and none is given" in refused(more("finetune", **own))


def test_a_tokenizer_without_a_mask_token_is_refused(more, language, tmp_path):
    hf.AutoModelForMaskedLM.from_pretrained(language).save_pretrained(tmp_path / "model")
    tiny.tokenizer().save_pretrained(tmp_path / "model")
    assert "no mask token" in refused(more(**{"augment.model": str(tmp_path / "model")}))


def test_a_missing_file_of_vectors_is_refused(more, tmp_path):
    assert "augment.embeddings" in refused(more(**{"augment.embeddings": str(tmp_path / "none")}))


def test_rows_of_other_kinds_are_refused(more, tmp_path):
    path = tmp_path / "tags.jsonl"
    lines = [{"tokens": ["good", "film"], "tags": ["O", "B-X"]}] * 20
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    own = {"kind": "tokens", "text_columns": ["tokens"], "label_column": "tags"}
    said = refused(more(data=str(path), **own))
    assert "augment: task" in said and "kind tokens" in said


@pytest.mark.slow
def test_several_teachers_teach_copies_too(more, place, tmp_path, watch_training):
    """SKD with augmentation: stored teacher outputs as live ones; rows held out are neither copied nor trained on."""
    tiny.save(tiny.knowing_teacher(6), place / "deep")
    names = [str(place / "teacher"), str(place / "deep")]
    teachers = {"teacher": None, "teachers": names, "epochs": 1}
    seen: list[set[int]] = []
    watch_training(lambda trainer, inputs: seen.append(set(inputs["index"].tolist())))
    held = {"team.by": "adaptive", "team.holdout": 14, "team.block": 2}
    record = distill(
        more("skd-uniform", **teachers, **held), tmp_path / "adaptive", report=False
    ).record
    rows = set().union(*seen)
    assert len(rows) == record.examples.train == 40 + record.examples.augmented
    # Copies are numbered from 54 on.
    assert len([number for number in rows if number < 54]) == 40
    live = distill(more("skd-uniform", cache="never", **teachers), tmp_path / "live", report=False)
    stored = distill(
        more("skd-uniform", cache="always", **teachers), tmp_path / "stored", report=False
    )
    for one, other in zip(live.record.epochs, stored.record.epochs, strict=True):
        assert one.sampled == other.sampled
        assert one.train == pytest.approx(other.train, rel=1e-3)
