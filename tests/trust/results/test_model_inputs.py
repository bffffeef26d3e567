"""Each model reads what its own tokenizer would have made, whoever else reads the same batch.

The oracle is Hugging Face's: the teacher's tokenizer and forward pass on the same texts.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pair_runs as pairs
import pytest
import torch
import transformers as hf
from datasets import Dataset
from tokenizers.processors import TemplateProcessing

import tiny_runs as tiny
from limbeck.activations import Request
from limbeck.data import add_inputs, encode
from limbeck.input_transforms import Mixup, MixupSpec, StepInputs
from limbeck.lab.augmentation.augmented_run import with_augmented_examples
from limbeck.lab.measures import linear_cka
from limbeck.outputs.cache import Store
from limbeck.outputs.remembering import RememberingTeacher
from limbeck.preflight import ask_teacher
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.run.check import check_run
from limbeck.run.finish import similarity
from limbeck.run.prepare import prepare
from limbeck.run.prepared import Prepared
from limbeck.run.rows import load_rows, stage_rows
from limbeck.support.step_state import StepState
from limbeck.tasks import get_task
from limbeck.teachers.teacher import Teacher
from limbeck.teachers.team import EnsembleTeam, SampledTeam
from quick_cases import quick

SEEN = Request.hidden([1, 4], pool="mean") | Request.hidden([2]) | Request.of_logits()
HIDDEN = {"compare": "hidden_mse", "mapping": {"kind": "last-to-last"}}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """Teachers that read a second text as such, one that was never told of it, and students of both sorts."""
    folder = tmp_path_factory.mktemp("pairs")
    pairs.write_pairs(folder / "pairs.csv", 60)
    pairs.save(pairs.segmented(), folder / "teacher", pairs.WITH)
    pairs.save(pairs.segmented(), folder / "untold", pairs.WITHOUT)
    pairs.save(pairs.segmented(6), folder / "six", pairs.WITHOUT)
    pairs.save(pairs.distilbert(), folder / "student", pairs.WITHOUT)
    pairs.save(tiny.bert(2), folder / "bert", pairs.WITH)
    return folder


@pytest.fixture(autouse=True)
def store(monkeypatch, tmp_path) -> Store:
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "store"))
    return Store(tmp_path / "store")


@pytest.fixture
def recipe(place):
    """`recipe("kd", teacher=…)`: names of the place's folders stand for their paths."""

    def make(method: str = "kd", **changes) -> Recipe:
        for key in ("teacher", "student.init", "first_stage.teacher"):
            if isinstance(changes.get(key), str):
                changes[key] = str(place / changes[key])
        return Recipe.load(method, **pairs.settings(place, **changes))

    return make


def texts_in(rows: Dataset, numbers: list[int]) -> list[tuple[str, ...]]:
    """The rows' texts by their numbers."""
    known = zip(rows["sentence1"][:], rows["sentence2"][:], strict=True)
    by_number = dict(zip(rows["index"][:], known, strict=True))
    return [by_number[number] for number in numbers]


def asked(prepared: Prepared, stage: int = -1, request: Request = SEEN):
    """What the teacher of a stage says of some of its rows, and the numbers of those."""
    inputs = prepared.stages[stage]
    some = inputs.rows.encoded.select(range(3, 12))
    return inputs.teacher, inputs.rows.collator(prepared.tokenizer)(list(some)), request


# ---- whole runs ----


@pytest.mark.parametrize(
    ("method", "cache", "tolerance"),
    # On disk hidden states are float16.
    quick(
        ("kd", "always", 1e-5),
        of=[("kd", "never", 1e-5), ("kd", "always", 1e-5), ("rail-kd-l", "always", 2e-3)],
    ),
)
def test_a_teacher_has_its_segments_beside_a_student_without(
    recipe, tmp_path, monkeypatch, method, cache, tolerance
):
    made = recipe(method, cache=cache)
    watched = pairs.Watched(monkeypatch)
    distill(made, tmp_path / "run", report=False)
    _, rows = load_rows(made)
    assert len(watched.steps) == 7
    for numbers, trace, _ in watched.steps:
        assert pairs.compare(trace, made.teacher, texts_in(rows["train"], numbers), tolerance)


@pytest.mark.slow
def test_what_is_stored_is_found_by_what_the_teacher_read(recipe, tmp_path, store):
    """Alike for every student; other answers of the same weights under another tokenizer."""
    for number, changes in enumerate(
        [{}, {"student.init": "bert"}, {"teacher": "untold"}], start=1
    ):
        distill(recipe(cache="always", **changes), tmp_path / str(number), report=False)
        assert len(store.entries()) == (1 if number < 3 else 2)


@pytest.mark.slow
def test_remembered_answers_are_those_of_the_teachers_own_inputs(recipe, tmp_path, monkeypatch):
    made = recipe()
    live = RememberingTeacher(Teacher.load(made.teacher))
    watched = pairs.Watched(monkeypatch)
    distill(made, tmp_path / "one", report=False, live_teacher=live)
    _, rows = load_rows(made)
    steps = len(watched.steps)
    monkeypatch.setattr(RememberingTeacher, "_learn", None)  # nothing is asked a second time
    distill(recipe(**{"student.init": "bert"}), tmp_path / "two", report=False, live_teacher=live)
    assert len(watched.steps) == 2 * steps
    for numbers, trace, _ in watched.steps:
        pairs.compare(trace, made.teacher, texts_in(rows["train"], numbers))


# ---- each student and each teacher ----


@pytest.mark.parametrize("student", ["student", "bert"])
@pytest.mark.parametrize("teacher", ["teacher", "untold"])
def test_every_pair_of_tokenizers(recipe, student, teacher):
    made = recipe(teacher=teacher, **{"student.init": student})
    prepared = prepare(made)
    answering, batch, request = asked(prepared)
    trace = answering(batch, request)
    texts = texts_in(prepared.train.raw, batch["index"].tolist())
    assert pairs.compare(trace, made.teacher, texts) == 4
    # The student's batch has what its own tokenizer makes, and nothing else that its pass would take.
    made_by_itself = {"token_type_ids"} if student == "bert" else set()
    assert ({*batch} & {"token_type_ids"}) == made_by_itself


def test_a_teacher_that_knows_one_segment(recipe, place):
    """RoBERTa's table has a single row: the student's second segment would be out of its range."""
    config = hf.RobertaConfig(**(tiny.bert(4).config.to_dict() | {"type_vocab_size": 1}))
    config.max_position_embeddings, config.architectures = 40, None
    torch.manual_seed(2)
    model = hf.RobertaForSequenceClassification(config)
    pairs.save(model, place / "roberta", pairs.WITHOUT)
    made = recipe(teacher="roberta", **{"student.init": "bert"})
    prepared = prepare(made)
    teacher, batch, request = asked(prepared)
    texts = texts_in(prepared.train.raw, batch["index"].tolist())
    assert pairs.compare(teacher(batch, request), made.teacher, texts) == 4


@pytest.mark.slow
def test_members_of_a_team_read_each_in_its_own_way(recipe, place):
    members = [str(place / name) for name in ("teacher", "six")]
    for method, kind in (("skd-uniform", SampledTeam), ("mt-bert", EnsembleTeam)):
        made = recipe(method, teacher=None, teachers=members)
        prepared = prepare(made)
        team, batch, _ = asked(prepared)
        assert isinstance(team, kind)
        texts = texts_in(prepared.train.raw, batch["index"].tolist())
        for place_in_team, folder in enumerate(members):
            logits, _, _ = pairs.by_hugging_face(folder, texts)
            if isinstance(team, SampledTeam):
                answering = team.at(StepState(seed=1, teacher=place_in_team))
                found = answering(batch, Request.of_logits()).logits
            else:
                found = team(batch, Request.of_logits()).each[place_in_team]
            torch.testing.assert_close(found, logits, rtol=1e-5, atol=1e-5)


def test_mixed_inputs_have_the_segments_of_the_example_itself(recipe):
    made = recipe("l-ild-mixup")
    prepared = prepare(made)
    teacher, batch, request = asked(prepared, stage=0)
    inputs = StepInputs.of(batch, Mixup(MixupSpec()), StepState(seed=4), torch.device("cpu"))
    mixture = inputs.sampled
    trace = teacher(inputs, request)
    texts = texts_in(prepared.train.raw, batch["index"].tolist())
    words = hf.AutoTokenizer.from_pretrained(made.teacher)
    model = hf.AutoModelForSequenceClassification.from_pretrained(made.teacher).eval()
    own = words(*map(list, zip(*texts, strict=True)), padding=True, return_tensors="pt")
    embedded = model.get_input_embeddings()(own["input_ids"])
    mask = own["attention_mask"]
    mixed = {
        "inputs_embeds": mixture.share * embedded + (1 - mixture.share) * embedded[mixture.partner],
        "attention_mask": mask | mask[mixture.partner],
        "token_type_ids": own["token_type_ids"],
    }
    with torch.no_grad():
        right = model(**mixed).logits
    torch.testing.assert_close(trace.logits, right, rtol=1e-5, atol=1e-5)


# ---- other rows than the run's ----


@pytest.mark.slow
def test_a_first_stage_on_a_corpus_and_with_a_teacher_of_its_own(recipe, tmp_path):
    (tmp_path / "corpus.txt").write_text("\n".join(tiny.sentences(40)), encoding="utf-8")
    corpus = {"source": str(tmp_path / "corpus.txt"), "size": 12, "seed": 2}
    stage = {"objectives": {"hidden": HIDDEN}, "corpus": corpus}
    for changes in ({}, {"first_stage.teacher": "teacher", "teacher": "untold"}):
        made = recipe("kd-soft", first_stage=stage, **changes)
        first = made.stages()[0]
        prepared = prepare(made)
        teacher, batch, request = asked(prepared, stage=0)
        _, raw = stage_rows(first, prepared.tokenizer, prepared.task.kind.reads)
        texts = texts_in(raw, batch["index"].tolist())
        assert pairs.compare(teacher(batch, request), first.recipe.teacher, texts) == 4


def test_a_first_stage_on_fewer_rows(recipe):
    stage = {"objectives": {"hidden": HIDDEN}, "train_rows": 20}
    made = recipe("kd-soft", first_stage=stage)
    prepared = prepare(made)
    teacher, batch, request = asked(prepared, stage=0)
    texts = texts_in(prepared.train.raw, batch["index"].tolist())
    assert pairs.compare(teacher(batch, request), made.teacher, texts) == 4


def test_rows_that_are_held_out(recipe, place):
    members = [str(place / name) for name in ("teacher", "six")]
    team = {"use": "sample", "by": "adaptive", "holdout": 7}
    made = recipe("skd-adaptive", teacher=None, teachers=members, team=team)
    prepared = prepare(made)
    sampled, batch, _ = asked(prepared)
    texts = texts_in(prepared.train.raw, batch["index"].tolist())
    trace = sampled.members[0](batch, Request.of_logits())
    pairs.compare(trace, members[0], texts)


@pytest.mark.parametrize("teacher", ["teacher", "double"])
def test_copies_with_other_words(recipe, place, teacher):
    """The teacher of other tokens reads the copies by its own tokenizer too."""
    save_double(place)
    words = pairs.tokenizer(pairs.WITHOUT)
    words.add_special_tokens({"mask_token": "[MASK]"})
    torch.manual_seed(3)
    language = hf.BertForMaskedLM(tiny.bert(1, vocab_size=len(words)).config)
    language.save_pretrained(place / "language")
    words.save_pretrained(place / "language")
    copies = {"model": str(place / "language"), "examples": 2, "words": "all"}
    made = recipe("kd-soft", teacher=teacher, augment=copies)
    prepared = prepare(made)
    before = len(prepared.train.encoded)
    inputs = with_augmented_examples(prepared).last
    assert len(inputs.rows.encoded) > before + 20
    some = inputs.rows.encoded.select(range(before - 3, before + 6))
    batch = inputs.rows.collator(prepared.tokenizer)(list(some))
    texts = texts_in(inputs.rows.raw, batch["index"].tolist())
    trace = inputs.teacher(batch, Request.of_logits())
    assert pairs.compare(trace, made.teacher, texts) == 1


def test_a_teacher_that_joins_later_reads_the_rows_of_every_stage_in_its_own_way(recipe):
    """The last of a chain is trained when the rows are there; a first stage's own rows are no exception."""
    first = {"objectives": {"hidden": HIDDEN}, "train_rows": 20}
    prepared = prepare(recipe("kd-soft", first_stage=first))
    (one,) = prepared.named
    last = replace(one, name="last", teacher=Teacher.load(one.path))
    joined = prepared.read_by(last).taught_by(last.teacher)
    for place in (0, 1):
        teacher, batch, request = asked(joined, stage=place)
        texts = texts_in(joined.stages[place].rows.raw, batch["index"].tolist())
        assert teacher.model is last.teacher.model
        assert pairs.compare(teacher(batch, request), one.path, texts) == 1 + len(request.items)
        # What was prepared before stays what it was.
        assert prepared.stages[place].teacher.model is one.teacher.model
    assert last.teacher.inputs is None


# ---- tokens that differ though the vocabularies agree ----


def save_double(place: Path) -> None:
    """A teacher that puts two marks between texts, as RoBERTa does."""
    words = pairs.tokenizer(pairs.WITH)
    words.backend_tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    pairs.segmented().save_pretrained(place / "double")
    words.save_pretrained(place / "double")


def test_other_marks_between_texts_are_other_tokens(recipe, place):
    save_double(place)
    made = recipe(teacher="double")
    prepared = prepare(made)
    teacher, batch, _ = asked(prepared)
    texts = texts_in(prepared.train.raw, batch["index"].tolist())
    trace = teacher(batch, Request.of_logits())
    assert pairs.compare(trace, made.teacher, texts) == 1
    # States of layers meet too: those of single tokens by their characters.
    layers = prepare(recipe("pkd-skip", teacher="double"))
    assert [one.teacher.own_tokens is not None for one in layers.named] == [True]


def test_texts_cut_on_the_other_side_are_other_tokens(recipe, place):
    pairs.save(pairs.segmented(), place / "leftward", pairs.WITH, truncation_side="left")
    made = recipe("pkd-skip", teacher="leftward", max_length=9)
    assert [one.teacher.own_tokens is not None for one in prepare(made).named] == [True]


# ---- what else looks at a teacher ----


def test_the_score_of_a_teacher_is_that_of_its_own_inputs(recipe):
    made = recipe()
    prepared = prepare(made)
    (one,) = prepared.named
    dev = prepared.splits["dev"]
    found = ask_teacher(prepared.task, one.teacher.model, one.tokenizer, dev, made.max_length)
    texts = texts_in(dev, dev["index"][:])
    logits, _, _ = pairs.by_hugging_face(made.teacher, texts)
    torch.testing.assert_close(torch.tensor(found.predictions), logits, rtol=1e-5, atol=1e-5)


def test_layers_are_compared_as_each_model_reads(recipe):
    made = recipe()
    prepared = prepare(made)
    dev = prepared.splits["dev"]
    texts = texts_in(dev, dev["index"][:])
    views = []
    for folder in (made.student.init, made.teacher):
        _, hidden, mask = pairs.by_hugging_face(folder, texts)
        weights = mask.unsqueeze(-1).float()
        views.append([(h * weights).sum(1) / weights.sum(1) for h in hidden[1:]])
    right = torch.tensor([[linear_cka(s, t) for t in views[1]] for s in views[0]])
    # Centred features of six examples: rounding of the states counts a few thousand times.
    torch.testing.assert_close(
        torch.tensor(similarity(prepared)).double(), right.double(), rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "given token_type_ids as its own tokenizer makes them"),
        (
            {"teacher": "untold", "student.init": "bert"},
            "not given token_type_ids, which its own does not make",
        ),
        ({"teacher": "double"}, "reads every training row by its own tokenizer"),
        ({"teacher": "untold"}, None),
    ],
)
def test_preflight_says_what_is_done(recipe, place, tmp_path, capsys, changes, said):
    save_double(place)
    made = recipe(**changes)
    check_run(prepare(made), show=True)
    shown = " ".join(capsys.readouterr().err.split())
    assert (said in shown) if said else ("token_type_ids" not in shown)


def test_questions_and_contexts_have_their_segments_in_every_window():
    task = get_task("squad")
    context = " ".join(tiny.WORDS * 3)
    rows = Dataset.from_dict(
        {
            "question": ["good film", "the slow end"],
            "context": [context, "a very long plot"],
            "answers": [
                {"text": ["bad"], "answer_start": [5]},
                {"text": ["long"], "answer_start": [7]},
            ],
            "index": [0, 1],
        }
    )
    own, other = pairs.tokenizer(pairs.WITHOUT), pairs.tokenizer(pairs.WITH)
    encoded, _ = encode(rows, task, own, 16)
    more, inputs = add_inputs(encoded, rows, task, own, other, 16)
    assert len(more) > 2
    for row in more:
        ids, types = row["input_ids"], row["teacher_token_type_ids"]
        second = ids.index(3) + 1  # behind the first mark
        assert types == [0] * second + [1] * (len(ids) - second)
    assert inputs.own == {"token_type_ids": "teacher_token_type_ids"}
