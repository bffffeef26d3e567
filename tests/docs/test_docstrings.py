"""The public names describe their parameters, and their examples call what there is, with what it takes."""

from __future__ import annotations

import ast
import inspect
import re
from textwrap import dedent

import pytest
from pydantic import BaseModel

import limbeck

OBJECTS = {name: getattr(limbeck, name) for name in limbeck.__all__ if name != "functional"}
FUNCTIONS = [name for name, one in OBJECTS.items() if inspect.isfunction(one)]
SHOWN = [
    *FUNCTIONS,
    *("DistillationConfig", "DistillationTrainer", "OnnxPredictor", "Recipe", "Teacher"),
]
# Of a Trainer what transformers describes; of errors and terms what their own pages describe.
ELSEWHERE = {"DistillationConfig", "DistillationTrainer", "LimbeckError", "MappedTerm"}


def parameters(name: str) -> list[str]:
    given = inspect.signature(OBJECTS[name]).parameters.values()
    return [one.name for one in given if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]


@pytest.mark.parametrize("name", sorted({*OBJECTS} - ELSEWHERE))
def test_every_parameter_is_described(name):
    one = OBJECTS[name]
    if isinstance(one, type) and issubclass(one, BaseModel):
        assert [key for key, field in one.model_fields.items() if not field.description] == []
        return
    text = inspect.getdoc(one)
    described = re.findall(r"^    (\w+): ", text, re.MULTILINE)
    assert [own for own in parameters(name) if own not in described] == []


@pytest.mark.parametrize("name", SHOWN)
def test_an_example_calls_what_there_is(name):
    (code,) = re.findall(r"```python\n(.*?)```", inspect.getdoc(OBJECTS[name]), re.DOTALL)
    calls = [
        (ast.unparse(node.func), node)
        for node in ast.walk(ast.parse(dedent(code)))
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("limbeck.")
    ]
    assert any(called.startswith(f"limbeck.{name}") for called, _ in calls)
    for called, node in calls:
        function = limbeck
        for part in called.split(".")[1:]:
            function = getattr(function, part)
        named = {one.arg: None for one in node.keywords if one.arg}
        inspect.signature(function).bind(*node.args, **named)
