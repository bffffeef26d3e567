"""What limbeck uses of the Trainer's private parts stands in one list, which is whole."""

import ast
import functools
import inspect
from pathlib import Path

import pytest
from transformers import Trainer, TrainingArguments, trainer

import limbeck
from limbeck.support.errors import LimbeckError
from limbeck.training import DistillationTrainer, checkpoints
from limbeck.training.checkpoints import PRIVATES, Resumes
from syntax import nodes_of

SOURCE = Path(limbeck.__file__).parent


def private(owner: type) -> set[str]:
    return {name for name in dir(owner) if name.startswith("_") and not name.startswith("__")}


METHODS = private(Trainer)
OWN = {
    name
    for kind in DistillationTrainer.__mro__
    if kind.__module__.startswith("limbeck.")
    for name in vars(kind)
}
OVERRIDDEN = sorted(OWN & METHODS)
# What a Trainer keeps of its state, which no class shows: set but for the last two.
ATTRIBUTES = {"_created_lr_scheduler", "_signature_columns", "_train_batch_size", "_trial"}
KEPT = {
    node.attr
    for node in ast.walk(ast.parse(inspect.getsource(trainer)))
    if isinstance(node, ast.Attribute)
    and isinstance(node.ctx, ast.Store)
    and node.attr.startswith("_")
} - METHODS


@functools.cache
def mentioned() -> set[str]:
    """The attributes that limbeck's code names, also as text of a `getattr`."""
    found = set()
    for node in (node for path in sorted(SOURCE.rglob("*.py")) for node in nodes_of(path)):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "").endswith("attr"):
            found |= {one.value for one in node.args[1:2] if isinstance(one, ast.Constant)}
    return found


def test_the_list_is_whole_and_has_nothing_else():
    assert OWN & METHODS | mentioned() & METHODS == set(PRIVATES)
    assert mentioned() & KEPT == ATTRIBUTES
    # Fields that a command line may give as JSON.
    assert mentioned() & private(TrainingArguments) == {"_VALID_DICT_FIELDS"}


@pytest.mark.parametrize("name", OVERRIDDEN)
def test_an_override_takes_what_the_trainer_s_own_takes(name):
    ours = inspect.signature(getattr(DistillationTrainer, name)).parameters
    if not any(one.kind is one.VAR_POSITIONAL for one in ours.values()):
        assert list(ours) == list(inspect.signature(getattr(Trainer, name)).parameters)


def test_a_trainer_without_them_is_refused_before_it_trains(monkeypatch, tmp_path):
    monkeypatch.setattr(checkpoints, "PRIVATES", (*PRIVATES, "_write_it_all"))
    made = object.__new__(DistillationTrainer)
    with pytest.raises(LimbeckError, match="no _write_it_all"):
        Resumes.train(made)
