"""What commands share: how a line is read, the options that are recipe settings, commands that others register.

A flag and a `key=value` argument can name the same recipe setting (`--layers 3` is `student.layers=3`), so both end
in one mapping, and two different values for one setting are an error that names both.
"""

import functools
import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, make_dataclass
from inspect import Parameter
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer
from rich.markup import escape
from typer.core import TyperCommand
from typer.models import OptionInfo

from limbeck.cli.console import show_loading
from limbeck.recipe.fields import descriptions, plain_defaults
from limbeck.support.errors import LimbeckError, Problem, raise_problems
from limbeck.support.plain import read_yaml
from limbeck.support.registry import Registry
from limbeck.support.settings import Settings

DATA, STUDENT, TRAINING = "Task and data", "Student", "Training"

# The recipe settings that are flags of `distill` and `finetune`, by their section of the help.
TEACHING = {
    "teacher": str, "teachers": list[str], "outputs": list[str], "missing_outputs": str,
    "output_classes": list[str], "unlabelled": list[str],
}  # fmt: skip
ROWS = {
    "task": str, "data": str, "parallel": list[str], "dev": str, "test": str, "dev_share": float, "test_share": float,
    "group_column": str, "text_columns": list[str], "label_column": str, "classes": list[str],
    "labels": str, "kind": str, "max_length": int,
}  # fmt: skip
SHAPE = {
    "layers": list[str], "pick": str, "hidden": int, "heads": int, "ffn": int, "vocabulary": str,
    "embedding_bits": int, "static": bool,
}  # fmt: skip
TAUGHT = {"cache": str, "min_confidence": float}
TRAINED = {
    "settings": str, "quality": str, "epochs": float, "max_steps": int, "lr": float, "batch_size": int,
    "accumulation": int, "warmup": float, "patience": int, "seed": int, "precision": str,
    "compile": bool, "attention": str, "report_to": list[str], "plugin": list[str],
}  # fmt: skip
_KEYS = {
    "student": "student.init",
    "model": "student.init",
    "layers": "student.layers",
    "static": "student.static",
    "pick": "student.pick",
    "vocabulary": "student.vocabulary",
    "hidden": "student.hidden",
    "heads": "student.heads",
    "ffn": "student.ffn",
    "embedding_bits": "student.embedding_bits",
    "plugin": "plugins",
}
SETTINGS = {
    flag: _KEYS.get(flag, flag)
    for flag in ("method", "student", "model", *TEACHING, *ROWS, *SHAPE, *TAUGHT, *TRAINED)
}
"""Flag → recipe setting."""

# List options whose values may themselves be settings: they end at the next option only.
TAKES_SETTINGS = frozenset({"--grid"})

_SETTING = re.compile(r"([A-Za-z_][\w.-]*)=(.*)", re.DOTALL)


class ManyValues(TyperCommand):
    """A command whose list options take their values side by side: `--text-columns first second`.

    The list ends at the next option, at a recipe file (`*.yaml`) and, unless the option takes them
    (`TAKES_SETTINGS`), at a `key=value` argument.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the option's name before each of its values, as the parser below expects.

        Raises:
            LimbeckError: an option of one value that is given twice.
        """
        lists = {name for parameter in self.params for name in _names_of_list(parameter)}
        _refuse_repeated(args, _names_of_one(self.params), lists)
        return super().parse_args(ctx, list(_repeat_names(args, lists)))


class Loads(ManyValues):
    """A command that needs PyTorch, which takes a while to load: it reports at once that it has begun."""

    def invoke(self, ctx: Any) -> Any:
        """Say so, and run the command."""
        show_loading(ctx.command_path)
        return super().invoke(ctx)


def _names_of_list(parameter: Any) -> Sequence[str]:
    many = parameter.param_type_name == "option" and parameter.multiple
    return parameter.opts if many else ()


def _names_of_one(parameters: Sequence[Any]) -> set[str]:
    options = [one for one in parameters if one.param_type_name == "option"]
    return {
        name
        for one in options
        if not (one.multiple or one.is_flag or one.count)
        for name in one.opts
    }


def _refuse_repeated(arguments: Sequence[str], single: set[str], lists: set[str]) -> None:
    given = Counter(name for argument in arguments if (name := argument.split("=")[0]) in single)
    raise_problems(
        [
            Problem(
                f"{name}: given {times} times, and it takes one value",
                f"write several as {name}s A B" if f"{name}s" in lists else "give it once",
            )
            for name, times in given.items()
            if times > 1
        ]
    )


def _repeat_names(arguments: Sequence[str], lists: set[str]) -> Iterator[str]:
    current = None  # the list option whose values are being read
    has_value = False
    for argument in arguments:
        if argument in lists:
            current, has_value = argument, False
        elif _ends_list(argument, current):
            current = None
        elif current is not None:
            if has_value:
                yield current
            has_value = True
        yield argument


def _ends_list(argument: str, option: str | None) -> bool:
    if is_setting(argument):
        return option not in TAKES_SETTINGS
    return argument.startswith("-") or is_recipe_file(argument)


def is_setting(argument: str) -> bool:
    """Whether an argument has the form `key=value`."""
    return _SETTING.fullmatch(argument) is not None


def is_recipe_file(argument: str) -> bool:
    """Whether an argument names a recipe file rather than a recipe of limbeck's own."""
    return argument.endswith((".yaml", ".yml"))


def parse_settings(arguments: Sequence[str]) -> dict[str, Any]:
    """`key=value` arguments as a mapping; values are YAML: `null`, `true`, `[2, 4]`.

    Raises:
        LimbeckError: all arguments without `=`, values that are no YAML, keys with two values.
    """
    settings: dict[str, Any] = {}
    problems = []
    for argument in arguments:
        match = _SETTING.fullmatch(argument)
        if match is None:
            problems.append(
                Problem(
                    f"{argument!r} is neither an option nor a setting",
                    "write settings as key=value, for example epochs=3 or student.layers=3",
                )
            )
            continue
        key, text = match.groups()
        try:
            value = parse_value(text, f"{argument!r:.80}")
        except LimbeckError as error:
            fix = f"write a YAML value, in quotes if it holds special signs: {key}='\"…\"'"
            problems += [Problem(problem.message, fix) for problem in error.problems]
            continue
        if key in settings and settings[key] != value:
            problems.append(_clash(f"{key}={settings[key]}", f"{key}={text}"))
        settings[key] = value
    raise_problems(problems)
    return settings


def parse_value(text: str, setting: str = "a setting") -> Any:
    """Parse a setting's value as YAML; plain text stays as typed. Raises LimbeckError if there is no value."""
    plain = text.strip()
    if not plain:
        raise LimbeckError(
            f"{setting} has no value", "write null for the default, or '\"\"' for an empty text"
        )
    # `query: ` is a prompt that many models have, and to YAML a key without a value, which no setting takes.
    if plain.endswith(":") and plain[0] not in "{[\"'":
        return text
    value = read_yaml(text, f"the value of {setting}")
    return text if value == plain else value


def parse_axes(arguments: Sequence[str]) -> dict[str, list[Any]]:
    """`key=v1,v2` arguments as key → values; each value is YAML: `student.layers=3,[2,4,6]`.

    Raises:
        LimbeckError: what `parse_settings` finds.
    """
    pairs = (argument.partition("=") for argument in arguments)
    return parse_settings([f"{key}=[{values}]" for key, _, values in pairs])


def merge(flags: Mapping[str, Any], arguments: Sequence[str]) -> dict[str, Any]:
    """Flags that were given and `key=value` arguments as one mapping of recipe settings.

    Raises:
        LimbeckError: flags and `key=value` arguments that disagree, or what `parse_settings` finds.
    """
    settings = parse_settings(arguments)
    problems = []
    for name, value in flags.items():
        key = SETTINGS[name]
        group, _, part = key.rpartition(".")
        flag = f"--{name.replace('_', '-')} {_shown(value)}"
        if key in settings and settings[key] != value:
            problems.append(_clash(flag, f"{key}={_shown(settings[key])}"))
        elif group in settings and not _agrees(settings[group], part, value):
            problems.append(_clash(flag, f"{group}={_shown(settings[group])}"))
        settings[key] = value
    raise_problems(problems)
    return settings


def flags_given(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe settings that were typed, from a command's parameters.

    `--layers 3` is a number of layers, `--layers 2 4 6` lists them, `--layers "{encoder: 3, decoder: 1}"` names stacks.
    """
    given = {name: value for name, value in parameters.items() if name in SETTINGS}
    if layers := [parse_value(str(one), "--layers") for one in given.get("layers") or ()]:
        given["layers"] = layers[0] if len(layers) == 1 else layers
    # The parser gives an empty list for a list option that was not typed.
    return {name: value for name, value in given.items() if value not in (None, [])}


def _agrees(group: Any, part: str, value: Any) -> bool:
    """Whether a group of settings leaves one of its parts open, or gives it the same value."""
    return group is None or (isinstance(group, Mapping) and group.get(part, value) == value)


def _clash(first: str, second: str) -> Problem:
    return Problem(f"{first} and {second} disagree", "give the setting once, or twice the same")


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def flags(panel: str, types: Mapping[str, Any]) -> type:
    """A group of options for recipe settings, all of them optional, in one part of the help."""
    options = [
        (name, Annotated[of | None, setting(name, panel)], None) for name, of in types.items()
    ]
    return make_dataclass("Flags", options, frozen=True)


def settings_flags(panel: str, group: type[Settings]) -> type:
    """A group of options for all settings of a class, whose descriptions are the help."""
    options: list[tuple[str, Any, Any]] = []
    for name, field in group.model_fields.items():
        of, text = _type_of(field.annotation), str(field.description)
        usual = None if field.is_required() else field.get_default(call_default_factory=True)
        extra: Any = field.json_schema_extra or {}
        flag = extra.get("flag", f"--{name.replace('_', '-')}")
        if usual not in (None, False, (), []):
            shown = flag if usual is True else usual
            listed = shown if isinstance(shown, tuple) else [shown]
            text += f" [default: {' '.join(map(str, listed))}]"
        alone = of is not bool or usual is False  # others are --NAME or --no-NAME
        names = [flag] if alone else []
        made = typer.Option(*names, help=escape(text), rich_help_panel=panel)
        kind, default = (bool, False) if usual is False else (of | None, None)
        options.append((name, Annotated[kind, made], default))
    return make_dataclass("Flags", options, frozen=True)


_PLAIN = {bool: "", int: "NUMBER", float: "NUMBER", Path: "PATH"}


def plain_types(command: Callable[..., None]) -> Callable[..., None]:
    """Name the types of a command's options as a user does: NUMBER, TEXT, PATH, and nothing for a switch."""
    for one in inspect.signature(command, eval_str=True).parameters.values():
        option = getattr(one.annotation, "__metadata__", [None])[0]
        if isinstance(option, OptionInfo) and option.metavar is None:
            of = _type_of(get_args(one.annotation)[0])
            many = get_origin(of) is list
            option.metavar = _PLAIN.get(get_args(of)[0] if many else of, "TEXT") + " …" * many
    return command


def _type_of(annotation: Any) -> Any:
    """What typer parses a setting's value as."""
    origin = get_origin(annotation)
    if origin is Literal:
        return type(get_args(annotation)[0])
    if origin in (list, tuple):
        many: Any = list
        return many[_type_of(get_args(annotation)[0])]
    parts = [one for one in get_args(annotation) if one is not NoneType]
    return _type_of(parts[0]) if parts else annotation


def takes_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter of the command that is a dataclass by one option per field.

    A field's annotation and default are the option's, as for any parameter of a typer command. The
    command itself is called by name with a dataclass of the typed values; for a group that only
    annotates a mapping (`Annotated[dict, flags(…)]`), with the values that `typed` returns.
    """
    parameters = inspect.signature(command, eval_str=True).parameters
    groups: dict[str, Any] = {}
    options: list[Parameter] = []
    for name, one in parameters.items():
        group = getattr(one.annotation, "__metadata__", [one.annotation])[0]
        if isinstance(group, type) and is_dataclass(group):
            groups[name] = group
            options += _options_of(group)
        else:
            options.append(one)

    @functools.wraps(command)
    def grouped(**given: Any) -> None:
        for name, group in groups.items():
            made = group(**{one.name: given.pop(one.name) for one in fields(group)})
            given[name] = made if parameters[name].annotation is group else typed(made)
        command(**given)

    # Keyword-only, so that an option with a default may precede one without.
    named = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in options]
    grouped.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]  # read by typer, as by `inspect`
    grouped.__annotations__ = {one.name: one.annotation for one in named}
    return grouped


def _options_of(group: Any) -> list[Parameter]:
    annotations = get_type_hints(group, include_extras=True)
    return [
        Parameter(
            one.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if one.default is MISSING else one.default,
            annotation=annotations[one.name],
        )
        for one in fields(group)
    ]


def typed(group: Any) -> dict[str, Any]:
    """Return the options of a group that have a value; the callee's own defaults apply to the others.

    The parser gives an empty list for a list option that was not typed.
    """
    values = {one.name: getattr(group, one.name) for one in fields(group)}
    return {name: value for name, value in values.items() if value not in (None, [])}


def setting(name: str, panel: str | None = None) -> Any:
    """The option `--name` of a recipe setting, with the recipe field's description as its help.

    The default is shown as a part of it: left out, a flag leaves the word to the recipe, whose method may have
    another.
    """
    key = SETTINGS[name]
    text = descriptions()[key]
    default = plain_defaults().get(key)
    if default not in (None, False):
        text += (
            f" [default: {default:g}]" if isinstance(default, float) else f" [default: {default}]"
        )
    return typer.Option(help=escape(text), rich_help_panel=panel)


Plugins = Annotated[
    list[str] | None,
    typer.Option(
        help="Python files to load first; they register a task type or a data reader, for example."
    ),
]


@dataclass(frozen=True)
class ScoredRows:
    """The rows to score; by default the run's own."""

    task: Annotated[
        str | None, typer.Option(help="The task to score on; default: the run's own.")
    ] = None
    data: Annotated[
        str | None,
        typer.Option(help="'hub', 'pocket', a GLUE folder or a file; default: the run's own."),
    ] = None
    split: Annotated[
        str | None, typer.Option(help="The split; by default the one the task is scored on.")
    ] = None
    text_columns: Annotated[list[str] | None, setting("text_columns")] = None
    label_column: Annotated[str | None, setting("label_column")] = None


# The groups of commands in the help, in their order.
START, TRAIN, USE, COMPARE, STUDY = (
    "Start here",
    "Train",
    "Use and ship",
    "Compare runs",
    "Many runs",
)
PANELS = (START, TRAIN, USE, COMPARE, STUDY)


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        run: the function, whose parameters are its options.
        panel: its group in the help, one of `PANELS`.
        example: a complete line, the end of its own help.
        parser: how its line is read.
    """

    run: Callable[..., Any]
    panel: str
    example: str
    parser: type[TyperCommand] = Loads


COMMANDS: Registry[Command] = Registry("command")
"""By name; within a group, the help has them in this order."""
