"""A user's file registers a mapping, a source of data and a type of task, and a student is trained by them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import limbeck
import tiny_runs as tiny
from limbeck.cli.app import app
from limbeck.data import DATA_READERS, load_task
from limbeck.mappings import MAPPINGS
from limbeck.recipe import Recipe
from limbeck.records import Record
from limbeck.support import registry as plugins
from limbeck.support.errors import LimbeckError
from limbeck.support.registry import load_plugins
from limbeck.tasks import TASK_TYPES

OWN = """
from datasets import DatasetDict
from pydantic import Field

import limbeck
from limbeck.data import DataReader, with_held_out_dev
from limbeck.mappings import FixedMapping, MappingSpec
from limbeck.tasks import Task
from limbeck.tasks.classes import Sentence


@limbeck.mapping("every-nth")
class EveryNth(MappingSpec):
    n: int = Field(2, gt=0, description="teacher layers for one of the student's")

    def build(self, depths):
        layers = depths.student_layers("1..M")
        return FixedMapping(layers, tuple((self.n * layer,) for layer in layers))


@limbeck.data_reader("films")
class Films(DataReader):
    def reads(self, request):
        return request.text.startswith("films:")

    def read(self, request):
        count = int(request.text.removeprefix("films:"))
        texts = [f"a VERY {('bad', 'good')[n % 2]} film" for n in range(count)]
        task = Task("films", "Films", ("text",), ("negative", "positive"), ("accuracy",), "accuracy")
        labels = [n % 2 for n in range(count)]
        return task, with_held_out_dev(task, {"text": texts}, labels, request.seed)


@limbeck.task_type("lower-case")
class LowerCase(Sentence):
    def texts(self, task, rows):
        return [[text.lower() for text in column] for column in super().texts(task, rows)]
"""

REGISTRIES = (MAPPINGS, DATA_READERS, TASK_TYPES)
TERM = {"compare": "cosine_distance", "pool": "cls", "mapping": {"kind": "every-nth", "n": 2}}


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch) -> Iterator[Path]:
    """The user's file; what it registers is gone behind the test."""
    load_task(None, "digits")  # those that ship are registered when data are first asked for
    known = [dict(registry._known) for registry in REGISTRIES]
    monkeypatch.setattr(plugins, "_LOADED", {})
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "store"))
    path = tmp_path / "own.py"
    path.write_text(OWN, encoding="utf-8")
    yield path
    for registry, before in zip(REGISTRIES, known, strict=True):
        registry._known = before
    for name in [name for name in sys.modules if name.startswith("limbeck_plugin_")]:
        del sys.modules[name]


def test_all_three_train_a_student_by_the_command_line_and_by_python(own, tmp_path):
    teacher = tiny.save(tiny.knowing_teacher(4), tmp_path / "teacher")
    settings = {
        "plugins": [str(own)],
        "task": "films",
        "data": "films:40",
        "kind": "lower-case",
        "student.layers": 2,
        "max_length": 16,
        "max_steps": 2,
        "objectives.layers": TERM,
    }
    result = limbeck.distill(
        "kd-soft", out=tmp_path / "one", teacher=str(teacher), report=False, **settings
    )
    trained_by = Recipe.load(tmp_path / "one" / "recipe.yaml").objectives["layers"].mapping
    assert trained_by.model_dump() == {"kind": "every-nth", "combine": "sum", "n": 2}
    # Without the file's own reading of capital letters every "VERY" would be unknown.
    task, rows = load_task("films", "films:40", kind="lower-case")
    codes = task.kind.encode(task, tiny.tokenizer(), 16, {**rows["dev"][:], "index": [0]})
    assert tiny.tokenizer().unk_token_id not in codes["input_ids"][0]
    ran = CliRunner().invoke(
        app,
        [
            *("distill", "--method", "kd-soft", "--teacher", str(teacher), "--plugin", str(own)),
            *("--data", "films:40", "--task", "films", "--kind", "lower-case", "--layers", "2"),
            *("--max-length", "16", "--out", str(tmp_path / "two"), "max_steps=2"),
            "objectives.layers={compare: cosine_distance, pool: cls, mapping: {kind: every-nth}}",
        ],
    )
    assert ran.exit_code == 0, ran.output
    assert Record.load(tmp_path / "two").scores["dev"] == result.record.scores["dev"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"mapping": {"kind": "every-nht"}}, "did you mean 'every-nth'"),
        (
            {"mapping": {"kind": "every-nth", "m": 2}},
            "unknown key in objectives.layers.mapping: 'm'",
        ),
        (
            {"mapping": {"kind": "every-nth", "n": 0}},
            "objectives.layers.mapping.n: Input should be",
        ),
        ({"mapping": {"kind": "skip", "n": 2}}, "unknown key in objectives.layers.mapping: 'n'"),
    ],
)
def test_a_mapping_of_ones_own_is_refused_as_those_that_ship(own, changes, said):
    with pytest.raises(LimbeckError) as caught:
        Recipe.load("kd", plugins=[str(own)], **{"objectives.layers": TERM | changes})
    assert said in str(caught.value)


def test_an_own_source_is_asked_before_those_that_ship_and_may_have_tasks_of_its_own(own, tmp_path):
    with pytest.raises(LimbeckError, match="no such file or folder"):
        load_task("films", "films:4")
    with pytest.raises(LimbeckError, match="unknown task 'films'"):
        Recipe.load("kd", task="films")
    load_plugins([own])
    assert Recipe.load("kd", task="films", data="films:4").task == "films"
    assert list(DATA_READERS)[-1] == "films"


def test_what_is_not_whole_is_refused_where_it_is_registered():
    with pytest.raises(LimbeckError, match=r"is no limbeck\.data\.DataReader"):

        @limbeck.data_reader("half")
        class Half(limbeck.data.DataReader):
            def reads(self, request):
                return False

    with pytest.raises(
        LimbeckError, match=r"no complete limbeck\.tasks\.TaskType, it lacks .*encode"
    ):

        @limbeck.task_type("half")
        class Quarter(limbeck.tasks.TaskType):
            pass
