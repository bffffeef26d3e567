"""Plain values that a user wrote: YAML and JSON read without guessing, and checked before anyone uses them.

Below everything else. YAML 1.1, which PyYAML follows, reads `1:30` as 90, `010` as 8, `yes` as true
and `1e-4` as a word, and both it and JSON let a later key replace an earlier one of the same name.
Here a number is a decimal number, and true and false are the only truth values. A key that occurs
twice, nesting without end, a number that no setting can hold and text that cannot be written down
again raise an error with their place.
"""

import json
import math
import re
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any

import yaml

from limbeck.support.errors import LimbeckError

LARGEST_WHOLE = 2**63 - 1
"""Whole numbers beyond it, and their negatives, fit into no setting and no column."""
_DEEPEST = 32
_MOST_VALUES = 100_000

_NULL = re.compile(r"~|null|Null|NULL|")
_TRUTH = re.compile(r"true|True|TRUE|false|False|FALSE")
_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_DECIMAL = re.compile(
    r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*|(?=[eE])))([eE][-+]?[0-9]+)?"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
# JSON's escapes can encode characters that no text file can hold; NUL ends a path for the operating system.
_UNWRITABLE = re.compile("[\ud800-\udfff\x00]")


def regular(path: Path) -> Path:
    """Return the path itself. Raises LimbeckError if it is not a file: reading a pipe may wait forever."""
    if not path.is_file():
        found = "is a folder" if path.is_dir() else "is a pipe or a device"
        raise LimbeckError(
            f"{path} {found if path.exists() else 'does not exist'}", "name a file on disk"
        )
    return path


def read_text(path: Path) -> str:
    """Return a text file's content. Raises LimbeckError if it is not text in UTF-8."""
    try:
        return regular(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise LimbeckError(f"{path} is not UTF-8: {error.reason}", "save it as UTF-8") from None


def read_yaml(text: str, where: str) -> Any:
    """The one YAML document in `text` as dictionaries, lists, text, numbers, truth values and None.

    `where` names the text in messages. Anchors and `<<` work. Raises LimbeckError naming the line
    for text that is not YAML, for aliases that make millions of values out of a few lines, and for errors
    of `check_plain`.
    """
    try:
        value = yaml.load(text, _Loader)
        count = _count(value, {})
    except yaml.YAMLError as error:
        raise LimbeckError(f"{where} is not YAML: {_said(error)}", "fix it") from None
    except RecursionError:
        raise LimbeckError(f"{where} is not YAML: nested too deep", "fix it") from None
    if count > _MOST_VALUES:
        raise LimbeckError(
            f"{where}: more than {_MOST_VALUES} values with its aliases written out",
            "check that the right file is named, or use fewer aliases",
        )
    return check_plain(value, where)


def _count(value: Any, counted: dict[int, int]) -> int:
    """Values in it with aliases written out; visits each aliased list or mapping once."""
    if not isinstance(value, list | dict):
        return 1
    if id(value) not in counted:
        counted[id(value)] = 0  # one that holds itself is for `check_plain` to refuse
        items = value.values() if isinstance(value, dict) else value
        counted[id(value)] = 1 + sum(_count(item, counted) for item in items)
    return counted[id(value)]


def write_yaml(value: Any, *, width: int | None = None) -> str:
    """YAML that `read_yaml` and readers of YAML 1.1 read as the same value, keys in their order."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=width)


def read_json(
    text: str | bytes, where: str, *, constant: Callable[[str], Any] | None = None
) -> Any:
    """The JSON value in `text`; `constant` replaces NaN and infinity, which are errors without it.

    Raises LimbeckError naming the line for text that is not JSON, and for errors of `check_plain`.
    """
    try:
        value = loads(text, constant=constant)
    except ValueError as error:
        raise LimbeckError(
            f"{where} is not valid JSON ({json_reason(error)})",
            "the file was cut or edited: write it again",
        ) from None
    return check_plain(value, where)


def loads(text: str | bytes, *, constant: Callable[[str], Any] | None = None) -> Any:
    """`json.loads` that raises ValueError also for duplicate keys and for endless nesting."""
    try:
        if constant is None and isinstance(text, str):
            return _DECODER.decode(text)  # made once: a decoder takes as long as a short line
        return json.loads(text, object_pairs_hook=_object, parse_constant=constant)
    except RecursionError:
        raise ValueError("nested too deep") from None


def json_reason(error: ValueError) -> str:
    """What `loads` found wrong, and the line where it is known."""
    if isinstance(error, json.JSONDecodeError):
        return f"line {error.lineno}: {error.msg}"
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8: {error.reason}"
    return str(error).split(";")[0]


def check_plain(value: Any, where: str, place: tuple[str, ...] = ()) -> Any:
    """The same value in plain types: NumPy's scalars as numbers, tuples as lists, paths as text.

    Raises LimbeckError for numbers that are not finite or beyond 64 bits, for text that cannot be
    written as UTF-8, for nesting without end, and for values of another type, each with its `place`: `recipe: a.b`.
    """

    def refused(what: str, fix: str) -> LimbeckError:
        return LimbeckError(f"{where}: {'.'.join(place[:4])}{': ' * bool(place)}{what}", fix)

    if len(place) > _DEEPEST:
        raise refused("nested too deep", f"at most {_DEEPEST} levels")
    if isinstance(value, Mapping):
        if wrong := [key for key in value if not isinstance(key, str | int | None)]:
            raise refused(f"the key {wrong[0]!r:.40} is no name", "write name: value")
        return {
            key if _is_plain(key) else check_plain(key, where, place): (
                item if _is_plain(item) else check_plain(item, where, (*place, str(key)))
            )
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [
            item if _is_plain(item) else check_plain(item, where, (*place, str(at)))
            for at, item in enumerate(value, start=1)
        ]
    if isinstance(value, Path):
        value = str(value)
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # NumPy's, or a tensor
        value = value.item()
    if isinstance(value, str) and not encodable(value):
        wrong_text = f"{value!r:.60} holds characters that cannot be written as UTF-8"
        raise refused(wrong_text, "take them out")
    if isinstance(value, int) and abs(value) > LARGEST_WHOLE:
        raise refused("a number beyond 64 bits", "write a smaller number")
    if isinstance(value, float) and not math.isfinite(value):
        raise refused(f"{value} is no finite number", "write a number")
    if not isinstance(value, str | int | float | None):
        kind = type(value).__name__
        raise refused(f"a value of type {kind}", "write text, a number, true or false")
    return value


def _is_plain(value: Any) -> bool:
    """Whether nothing is to be checked further: most of a long record is short text and numbers."""
    kind = type(value)
    if kind is str:
        return encodable(value)
    return value is None or (kind in _NUMBERS and -LARGEST_WHOLE <= value <= LARGEST_WHOLE)


def encodable(text: str) -> bool:
    """Whether text can be written to a file and named to the operating system."""
    return _UNWRITABLE.search(text) is None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in made if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} occurs twice")
    return made


_DECODER = json.JSONDecoder(object_pairs_hook=_object)
_NUMBERS = frozenset({bool, int, float})


class _Loader(yaml.SafeLoader):
    """YAML 1.2's numbers and truth values, no key twice."""

    yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """As PyYAML's, where the last of several values for one key wins."""
        seen = set()
        for key_node, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):
                if key in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key!r:.60} occurs twice", key_node.start_mark
                    )
                seen.add(key)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """Quotes text that either reading of YAML would take for something else."""

    yaml_implicit_resolvers: dict[Any, Any] = {  # noqa: RUF012
        first: list(pairs) for first, pairs in yaml.SafeDumper.yaml_implicit_resolvers.items()
    }


def _scalars(
    name: str, pattern: re.Pattern[str], firsts: list[str], make: Callable[[str], Any]
) -> None:
    """Read what matches as `name`, and refuse anything else that claims to be one."""
    tag = f"tag:yaml.org,2002:{name}"
    whole = re.compile(f"(?:{pattern.pattern})$")

    def construct(loader: _Loader, node: Any) -> Any:
        text = loader.construct_scalar(node)
        wrong = f"{text!r:.60} is no {name}"
        if whole.match(text) is not None:
            try:
                return make(text)
            except ValueError:  # Python reads no more than some thousand digits
                wrong = f"a number of {len(text)} digits"
        raise yaml.constructor.ConstructorError(None, None, wrong, node.start_mark)

    _Loader.add_constructor(tag, construct)
    for kind in (_Loader, _Dumper):
        kind.add_implicit_resolver(tag, whole, firsts)


def _float(text: str) -> float:
    return float(text.replace(".", "", 1) if text[-1] in "fFnN" else text)


_scalars("null", _NULL, ["~", "n", "N", ""], lambda _: None)
_scalars("bool", _TRUTH, list("tTfF"), lambda text: text.lower() == "true")
_scalars("int", _WHOLE, list("-+0123456789"), int)
_scalars("float", _DECIMAL, list("-+.0123456789"), _float)
_Loader.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile("<<$"), ["<"])


def _said(error: yaml.YAMLError) -> str:
    """PyYAML's message in one line, with the line it means."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"{problem}, line {mark.line + 1}" if mark is not None else problem
