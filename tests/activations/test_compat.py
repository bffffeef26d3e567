"""What is private to transformers is named in one file."""

import ast
import importlib
from pathlib import Path

import transformers

import limbeck
from syntax import nodes_of

Nodes = tuple[ast.AST, ...]
SOURCE = Path(limbeck.__file__).parent
COMPAT = SOURCE / "activations" / "compat.py"
# Names of transformers' own objects that start with an underscore; limbeck's own privates are its.
PRIVATE = {
    name
    for owner in (
        transformers.PreTrainedModel,
        transformers.PretrainedConfig,
        transformers.PreTrainedTokenizerFast,
        transformers.PreTrainedTokenizerBase,
        transformers.GenerationMixin,
        transformers.AttentionInterface,
    )
    for name in dir(owner)
    if name.startswith("_") and not name.startswith("__")
} | {"_attn_implementation", "_commit_hash", "_name_or_path", "_can_record_outputs"}
# Of torch's modules, which models are: public enough for torch's own users.
PRIVATE -= set(dir(importlib.import_module("torch").nn.Module))
PUBLIC_MODULES = {
    "transformers",
    "transformers.exporters",
    "transformers.integrations",
    "transformers.modeling_outputs",
    "transformers.trainer_pt_utils",
    "transformers.trainer_utils",
    "transformers.training_args",
    "transformers.utils",
}
# A model's class of its own fills the hooks that transformers leaves to it; Trainer's subclass has
# Trainer's, and is no model.
SUBCLASSES = ("lab/cifar_nets.py", "training/")


FILES = sorted(path for path in SOURCE.rglob("*.py") if path != COMPAT)


def named(nodes: Nodes) -> set[str]:
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    asked = {
        node.args[1].value
        for node in nodes
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") in ("getattr", "hasattr", "setattr")
        and isinstance(node.args[1], ast.Constant)
    }
    return attributes | asked


def own_names(nodes: Nodes) -> set[str]:
    """What a file itself defines or sets on `self`."""
    made = {
        node.name
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    stored = {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    return made | stored


def test_the_look_has_something_to_find() -> None:
    assert named(nodes_of(COMPAT)) & PRIVATE == {
        "_attn_implementation",
        "_can_record_outputs",
        "_from_config",
    }


def test_no_other_file_names_what_is_private() -> None:
    for path in FILES:
        nodes = nodes_of(path)
        place = path.relative_to(SOURCE).as_posix()
        if not place.startswith(SUBCLASSES):
            assert not (named(nodes) & PRIVATE) - own_names(nodes), place
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("transformers"):
                assert node.module in PUBLIC_MODULES, (
                    f"{place}: {node.module}: of activations/compat"
                )
                assert not [one.name for one in node.names if one.name.startswith("_")], place
            if isinstance(node, ast.Import):
                modules = {one.name for one in node.names if one.name.startswith("transformers")}
                assert modules <= PUBLIC_MODULES, place
