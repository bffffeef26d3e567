"""What is read of a store in a teacher's place: its classes, a team's members, votes."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from transformers import BertConfig

import tiny_runs as tiny
from limbeck import label
from limbeck.data.row_ids import row_ids
from limbeck.outputs.stored_teacher import as_logits
from limbeck.outputs.writer import remove_store
from limbeck.preflight.model_checks import check_labels
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.run.in_place import open_outputs, stored_teachers
from limbeck.run.inputs import places
from limbeck.run.rows import load_rows
from limbeck.support.errors import LimbeckError
from limbeck.tasks import SENTENCE, Task

TEXTS = tiny.sentences(7)
CLASSES = ("negative", "positive")
TASK = Task("reviews", "reviews", ("sentence",), CLASSES, ("accuracy",), "accuracy", kind=SENTENCE)


@dataclass
class Says:
    """A labeller whose values are the letters of a text, from a number on."""

    name: str = "letters"
    classes: tuple[str, ...] = CLASSES
    outputs: tuple[str, ...] = ("logits",)
    start: int = 0
    kind: str = "sentence"
    batch_size: int = 4

    def fingerprint(self):
        return {"start": self.start}

    def score(self, rows):
        lengths = np.array([len(row["sentence"]) + self.start for row in rows], dtype=np.float32)
        numbers = np.stack([lengths, lengths / 3], axis=1)
        votes = np.stack([lengths % 6, 5 - lengths % 6], axis=1)
        shares = votes / votes.sum(1, keepdims=True)
        known = {"logits": numbers, "votes": votes, "probabilities": shares}
        return {name: known[name] for name in self.outputs}


class Words(Says):
    """One value for each of its classes, however many."""

    def score(self, rows):
        found = np.zeros((len(rows), len(self.classes)), dtype=np.float32)
        return {"logits": found}


LENGTHS = np.array([len(text) for text in TEXTS], dtype=np.float32)
IDS = row_ids([TEXTS])


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "rows.txt"
    path.write_text("\n".join(TEXTS))
    return path


@pytest.fixture
def stored(file, tmp_path):
    """`stored(Says(), …)`: the place of their store."""

    def make(*labellers, name: str = "store") -> str:
        label([*labellers], file, out=tmp_path / name)
        return str(tmp_path / name)

    return make


def of_outputs(*outputs: str, method: str = "kd-soft", **changes) -> Recipe:
    own = {
        "task": "reviews",
        "data": "rows.csv",
        "text_columns": ["sentence"],
        "label_column": "label",
    }
    return Recipe.load(method, outputs=[*outputs], **own, **changes)


def read(place: str, **changes) -> np.ndarray:
    return open_outputs(place, TASK, of_outputs(place, **changes)).logits(IDS)


# ---- classes ----

STRAIGHT = np.stack([LENGTHS, LENGTHS / 3], axis=1)
TURNED = STRAIGHT[:, ::-1]
LIST = ["positive", "negative"]


@pytest.mark.parametrize(
    ("classes", "said", "expected"),
    [
        (("positive", "negative"), None, TURNED),
        (("Negative", " POSITIVE"), None, STRAIGHT),
        (("LABEL_0", "LABEL_1"), None, STRAIGHT),
        (("LABEL_1", "LABEL_0"), None, TURNED),
        (("LABEL_0", "LABEL_1"), LIST, TURNED),
        (("LABEL_1", "LABEL_0"), LIST, STRAIGHT),
        (("yes", "no"), LIST, TURNED),
        (("Positive", "Negative"), LIST, TURNED),
        (("yes", "no"), ["Positive", "Negative"], TURNED),
    ],
)
def test_classes_of_a_store_are_the_datas_by_name_or_as_is_said(stored, classes, said, expected):
    place = stored(Says(classes=classes))
    np.testing.assert_array_equal(read(place, output_classes=said), expected)


@pytest.mark.parametrize(
    "own",
    [("Negative", "POSITIVE"), ("LABEL_0", "LABEL_1"), ("no", "yes"), ("negative",), ("a", "b", "c")],
)  # fmt: skip
def test_a_store_serves_where_the_live_teacher_does(stored, own):
    """Of other names a live teacher's predictions have the last word, and a store's owner."""
    config = BertConfig(id2label=dict(enumerate(own)))
    said = check_labels("teacher", config, TASK)
    live = not [one for one in said if one.severity == "error" or "other names" in one.message]
    try:
        read(stored(Words(classes=own)))
    except LimbeckError:
        assert not live
    else:
        assert live


def test_an_order_that_nobody_said_is_warned_of(stored, caplog):
    place = stored(Says(classes=("LABEL_0", "LABEL_1")))
    with caplog.at_level(logging.WARNING):
        read(place)
    (said,) = caplog.messages
    assert "LABEL_0, LABEL_1" in said and "order, negative, positive; output_classes=" in said
    caplog.clear()
    read(place, output_classes=LIST)
    assert not caplog.messages


def test_other_classes_are_an_error_with_both_lists_and_what_it_advises_works(stored):
    place = stored(Says(classes=("no", "yes")))
    with pytest.raises(LimbeckError) as caught:
        read(place)
    (problem,) = caught.value.problems
    assert "holds the classes no, yes; the data's are negative, positive" in problem.message
    assert "output_classes='[CLASS, CLASS, …]'" in problem.fix
    np.testing.assert_array_equal(read(place, output_classes=[*CLASSES]), STRAIGHT)


@pytest.mark.parametrize(
    ("classes", "said", "what", "fix"),
    [
        (CLASSES, LIST, "itself names negative, positive", "leave it out"),
        (("no", "yes"), ["no", "yes"], "the data's classes are negative, positive, the classes of", "name each of the"),
        (("a", "b", "c"), LIST, "the classes of .* a, b, c", "name each of the"),
        (("a", "b", "c"), None, "holds the classes a, b, c", "name outputs of this task"),
        (("negative", "neutral", "positive"), None, "the data's are", "classes='.negative, neutral, positive.'"),
    ],
)  # fmt: skip
def test_what_is_said_of_classes_that_do_not_fit(stored, classes, said, what, fix):
    place = stored(Words(classes=classes))
    with pytest.raises(LimbeckError, match=f"(?s){what}.*{fix}"):
        read(place, output_classes=said)


def test_a_class_of_a_store_that_no_row_has_stays_a_class(stored, tmp_path):
    classes = ("positive", "absent", "negative")
    table = tmp_path / "rows.csv"
    labels = [CLASSES[number % 2] for number in range(len(TEXTS))]
    lines = [f"{text},{label}" for text, label in zip(TEXTS, labels, strict=True)]
    table.write_text("\n".join(["sentence,label", *lines]))

    def task_of(place: str):
        return load_rows(of_outputs(place).model_copy(update={"data": str(table)}))

    task, rows = task_of(stored(Words(classes=classes)))
    assert task.labels == classes
    kept = {row["sentence"]: classes[row["label"]] for row in rows["train"]}
    assert kept.items() <= dict(zip(TEXTS, labels, strict=True)).items()
    # With the same classes, or others, their order is the data's.
    for others in (classes[::2], ("LABEL_0", "LABEL_1", "LABEL_2")):
        assert task_of(stored(Words(classes=others), name=others[0]))[0].labels == CLASSES
    assert task_of("nowhere")[0].labels == CLASSES


def test_of_several_outputs_the_order_is_for_those_without_the_datas_names(stored):
    """What one needs is no contradiction of what another says by its names."""
    places = [stored(Says()), stored(Says(classes=("LABEL_0", "LABEL_1")), name="generic")]
    given = of_outputs(*places, method="wkd-uniform", output_classes=LIST)
    named = stored_teachers(given, TASK, tiny.tokenizer())
    found = [one.teacher.outputs.logits(IDS) for one in named]
    np.testing.assert_array_equal(found, [STRAIGHT, TURNED])


def test_an_order_of_classes_where_there_are_none_is_refused(stored):
    numbers = Task("r", "r", ("sentence",), (), ("pearson",), "pearson", kind=SENTENCE)
    place = stored(Says())
    with pytest.raises(LimbeckError, match="outputs for r are of no classes"):
        stored_teachers(of_outputs(place, output_classes=LIST), numbers, tiny.tokenizer())


# ---- a team's members ----


def test_members_of_a_teams_store_are_the_teachers_that_it_was_made_of(stored):
    members = [Says("one"), Says("two", classes=("POSITIVE", "negative"), start=2)]
    team = stored(*members, name="team")
    alone = [stored(member, name=member.name) for member in members]
    given = of_outputs(f"{team}#one", f"{team}#two", method="wkd-uniform")
    found = stored_teachers(given, TASK, tiny.tokenizer())
    expected = stored_teachers(of_outputs(*alone, method="wkd-uniform"), TASK, tiny.tokenizer())
    assert [one.name for one in found] == ["team#one", "team#two"]
    assert [one.teacher.outputs.about["member"] for one in found] == ["one", "two"]
    for mine, theirs in zip(found, expected, strict=True):
        ours, own = mine.teacher.outputs, theirs.teacher.outputs
        assert ours.ids.tolist() == own.ids.tolist()
        np.testing.assert_array_equal(ours.logits(IDS), own.logits(IDS))
    # The mean is still there under the store's own name.
    mean = np.mean([one.teacher.outputs.logits(IDS) for one in expected], axis=0)
    np.testing.assert_allclose(read(team), mean, rtol=1e-6)


def test_whoever_is_no_member_is_said_with_those_that_are(stored):
    team = stored(Says("small"), Says("large", start=2))
    with pytest.raises(LimbeckError, match=r"(?s)'larg'.*did you mean 'large'.*small, large"):
        read(f"{team}#larg")
    with pytest.raises(LimbeckError, match=r"(?s)is of letters alone.*leave #large out"):
        read(stored(Says(), name="single") + "#large")
    with pytest.raises(LimbeckError, match="nowhere does not exist"):
        read("nowhere#large")


def test_a_folder_with_the_mark_in_its_name_is_itself(stored):
    np.testing.assert_array_equal(read(stored(Says(), name="run#3")), STRAIGHT)


def test_the_store_of_a_member_is_not_written_over(tmp_path):
    found = dict(places({"outputs": [f"{tmp_path}#one"]}))
    assert found == {"outputs": tmp_path}


# ---- votes ----


def test_a_store_of_votes_is_read_by_its_votes(stored):
    """As an endpoint's: 0 of 5 votes do not rule a class out."""
    place = stored(Says(outputs=("votes", "probabilities")))
    found = open_outputs(place, TASK, of_outputs(place))
    assert found.what == "votes"
    first = LENGTHS % 6
    assert {0.0, 5.0} & {*first.tolist()}  # unanimous rows are among them
    likely = torch.from_numpy(found.logits(IDS)).softmax(-1)[:, 0]
    assert likely.tolist() == pytest.approx([(votes + 0.5) / 6 for votes in first.tolist()])


def test_few_votes_on_many_classes_say_what_they_say():
    """Five of five: one further vote, shared by 77 classes, takes a sixth of the probability, not nine tenths."""
    votes = np.zeros((1, 77))
    votes[0, 3] = 5
    (shares,) = torch.from_numpy(as_logits("votes", votes)).softmax(-1)
    assert shares[3].item() == pytest.approx((5 + 1 / 77) / 6)
    assert shares.min().item() == pytest.approx(1 / 77 / 6)


def test_a_team_of_voters_has_its_members_votes(stored):
    team = stored(*(Says(name, outputs=("votes",)) for name in ("one", "two")))
    with pytest.raises(LimbeckError, match=r"(?s)holds nothing, and none of .*#one"):
        read(team)
    assert open_outputs(f"{team}#two", TASK, of_outputs(f"{team}#two")).what == "votes"


# ---- whole runs ----


def test_a_store_behind_a_url_that_was_made_again_is_noticed(place, recipe, tmp_path):
    data, url = place / "reviews.csv", f"memory://{tmp_path.name}/store"
    given = recipe("kd-soft", teacher=None, outputs=[url], max_steps=1)
    names = {"text_columns": ["review"], "out": url}
    label(Says(outputs=("logits",)), data, **names)
    distill(given, out=tmp_path / "run", report=False)
    distill(given, out=tmp_path / "run", report=False)
    remove_store(url)
    label(Says(outputs=("logits",), start=2), data, **names)
    with pytest.raises(LimbeckError, match="has finished, with other teacher than"):
        distill(given, out=tmp_path / "run", report=False)


@pytest.mark.slow
@pytest.mark.parametrize("teacher", ["generic", "voter"])
def test_own_data_is_labelled_and_learned_from(request, place, tmp_path, teacher):
    whom = Says(outputs=("votes", "probabilities"))
    if teacher == "generic":
        model = tiny.knowing_teacher(4)
        model.config.id2label = {0: "LABEL_0", 1: "LABEL_1"}
        whom = tiny.save(model, tmp_path / "hub")
    data = place / "reviews.csv"
    label(whom, data, text_columns=["review"], out=tmp_path / "store")
    make_recipe = request.getfixturevalue("recipe")
    given = make_recipe("kd-soft", teacher=None, outputs=[str(tmp_path / "store")], epochs=1)
    run = distill(given, out=tmp_path / "run", report=False)
    assert run.record.outputs[0].what == ("logits" if teacher == "generic" else "votes")
