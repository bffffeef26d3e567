"""A language model's prompt for a row: its settings, and the prompt bound to classes and columns."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from string import Formatter, ascii_uppercase
from typing import Annotated, Any, Literal

from pydantic import Field

from limbeck.support import files, plain
from limbeck.support.errors import LimbeckError, Problem, problem_list, raise_problems, unknown
from limbeck.support.settings import Settings

CONTENT_FREE = ("", "N/A", "[MASK]")
"""The inputs without content of Zhao et al. 2021, §5."""
CLASS = "class"
"""The key of an example's class, next to its columns."""
QUESTION = "question"
"""The name of a question in a template."""

Filled = Annotated[str, Field(min_length=1)]
Row = Mapping[str, str]


class Prompt(Settings):
    """A prompt of a task; every field may be left out.

    Attributes:
        template: the model's input, with its answer left open at the end. It may name `{classes}` (the list of
            answers), `{examples}`, `{text}` (the row as `text` writes it) and the row's columns by name; `{{` is a
            brace.
        text: how the texts of a row are written, out of the row's columns; None: a line for each column.
        system: a message that goes before; with a chat template in the system's name.
        verbalizations: class → the words that represent it; None: the class's own name, `_` read as a space.
        descriptions: class → its meaning, shown in `{classes}`.
        answers: whether the model is to answer with a verbalization, or with the letter of one in the list.
        examples: rows with their class under `class`.
        example: how an example is written, out of `{text}`, the columns and `{answer}`.
        chat: whether the prompt is put into the tokenizer's chat template; None: where it has one.
        calibrate: divide by the probabilities that the classes have for inputs without content (contextual
            calibration, Zhao et al. 2021); None: wherever there are probabilities to divide.
        normalize_length: score a verbalization by its mean log-probability per token, not the sum; of classes alone.
        score: two answers, the worse first: the row's label is the log-odds of the second. With one answer of one token
            the label is its logit. Or answer → number: the label is the expected number. None: the label is a class.
        questions: class → a yes/no question, shown in `{question}`; each runs on each row, and its log-odds are
            the logit of a class that does not exclude others.
        roles: of a chat template that has roles for a row's columns, in their order, instead of `template`.
        chat_template_kwargs: arguments of the chat template, as `enable_thinking: false`.
    """

    template: Filled = "{classes}\n\n{examples}{text}\nAnswer:"
    text: Filled | None = None
    system: Filled | None = None
    verbalizations: dict[str, str] | None = None
    descriptions: dict[str, Filled] = Field(default_factory=dict)
    answers: Literal["verbalizations", "letters"] = "verbalizations"
    examples: list[dict[str, str]] = Field(default_factory=list)
    example: Filled = "{text}\nAnswer: {answer}\n\n"
    chat: bool | None = None
    calibrate: bool | None = None
    normalize_length: bool = True
    score: list[Filled] | dict[Filled, float] | None = None
    questions: dict[Filled, Filled] = Field(default_factory=dict)
    roles: list[Filled] = Field(default_factory=list)
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)

    def words(self, name: str) -> str:
        """A class's words. Outer space is not part of them: the prompt defines the space before an answer."""
        own = name.replace("_", " ")
        return (own if self.verbalizations is None else self.verbalizations.get(name, "")).strip()


def columns_of(prompt: Prompt) -> tuple[str, ...]:
    """The columns that its templates name, in their order; `text` where they name none."""
    own = {"text", "classes", "examples", QUESTION}
    templates = (prompt.template, prompt.text or "")
    named = [
        name for template in templates for _, name, _, _ in Formatter().parse(template) if name
    ]
    return tuple(dict.fromkeys(name for name in named if name not in own)) or ("text",)


def read_prompt(path: str | Path) -> Prompt:
    """The prompt in a YAML file.

    Raises:
        LimbeckError: there is no such file, it is not YAML, or settings in it are unknown or of the wrong type,
            all of them named.
    """
    value = plain.read_yaml(plain.read_text(files.at_home(path)), str(path)) or {}
    if not isinstance(value, dict):
        raise LimbeckError(f"{path} holds no settings", "write setting: value, as template: …")
    return Prompt.checked(value, f" in {path}")


def prompt_digest(prompt: Prompt) -> str:
    """Digest of all its settings; labels depend on them."""
    settings = prompt.model_dump(mode="json")
    # Prompts without them keep the digest that their stores and answers have from before there were any.
    later = ("score", "questions", "roles", "chat_template_kwargs")
    content = {name: value for name, value in settings.items() if value or name not in later}
    # A scale's order is the order of its answers in `{classes}`.
    content |= {"score": [*prompt.score.items()]} if isinstance(prompt.score, dict) else {}
    written = json.dumps(content, sort_keys=True)
    return hashlib.blake2b(written.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class BoundPrompt:
    """Writes the prompt of a row.

    Attributes:
        prompt: its settings.
        classes: names in id order; for a score its answers.
        columns: the text columns of a row, and the question where there are some.
        answers: the model's possible answer for each class.
        verbalizations: the words of each class.
    """

    prompt: Prompt
    classes: tuple[str, ...]
    columns: tuple[str, ...]
    answers: tuple[str, ...]
    verbalizations: tuple[str, ...]
    _text: str
    _fixed: Mapping[str, str]

    def text(self, row: Row) -> str:
        """The prompt about a row, without the system's message.

        Raises:
            LimbeckError: the row lacks a column.
        """
        if lacking := [name for name in self.columns if name not in row]:
            raise LimbeckError(
                f"a row has no {', '.join(map(repr, lacking))}: the prompt is bound to the columns "
                f"{', '.join(self.columns)}, and the row has {', '.join(row) or 'none'}",
                f"bind_prompt(columns={tuple(row)!r}), or name the row's texts as the prompt does",
            )
        texts = {name: row[name] for name in self.columns}
        written = {"text": self._text.format_map(texts)}
        return self.prompt.template.format_map({**texts, **self._fixed, **written})

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes that rows are labeled with; none where the label is a number."""
        return self.classes if self.prompt.score is None else tuple(self.prompt.questions)

    @property
    def reads_logit(self) -> bool:
        """Whether the label is the logit of one token."""
        return isinstance(self.prompt.score, list) and len(self.prompt.score) == 1

    def asked(self, rows: Sequence[Row]) -> list[Row]:
        """The inputs of prompts: each row, or each row with each question in turn."""
        questions = self.prompt.questions.values()
        return [{**row, QUESTION: one} for row in rows for one in questions] or [*rows]

    @property
    def uses(self) -> frozenset[str]:
        """The columns whose texts are in a prompt."""
        if self.prompt.roles:
            return frozenset(self.columns)
        names = _names_in(self.prompt.template)
        names = (names - {"text"}) | (_names_in(self._text) if "text" in names else set())
        return frozenset(names - self._fixed.keys() - {QUESTION})

    def whole(self, row: Row) -> str:
        """The same behind the system's message, for a model without roles."""
        system = self.prompt.system
        return f"{system}\n\n{self.text(row)}" if system else self.text(row)

    def texts_in(self, asked: str) -> dict[str, str] | None:
        """The texts of the row in a prompt like this; None for another prompt.

        Where a text could end at several places the first one is taken.
        """
        system = f"{self.prompt.system}\n\n" if self.prompt.system else ""
        found = self._slots.fullmatch(asked.removeprefix(system).strip())
        if found is None:
            return None
        texts = found.groupdict()
        return {name: texts.get(f"c{at}", "") for at, name in enumerate(self.columns)}

    @cached_property
    def _slots(self) -> re.Pattern[str]:
        """The pattern of `text`, with a group for each column in it."""
        marks = {name: f"\0{number}\0" for number, name in enumerate(self.columns)}
        pattern, seen = "", set()
        for place, piece in enumerate(self.text(marks).strip().split("\0")):
            if place % 2 == 0:
                pattern += re.escape(piece)
            else:
                name = f"c{piece}"
                pattern += f"(?P={name})" if name in seen else f"(?P<{name}>.*?)"
                seen.add(name)
        return re.compile(pattern, re.DOTALL)

    def messages(self, row: Row) -> list[dict[str, str]]:
        """The same as messages of a chat."""
        said = [{"role": "user", "content": self.text(row)}]
        if self.prompt.roles:
            pairs = zip(self.prompt.roles, self.columns, strict=True)
            said = [{"role": role, "content": row[name]} for role, name in pairs]
        if self.prompt.system:
            said.insert(0, {"role": "system", "content": self.prompt.system})
        return said

    def content_free(self) -> list[dict[str, str]]:
        """Rows without content, to calibrate against."""
        return [dict.fromkeys(self.columns, text) for text in CONTENT_FREE]


def bind_prompt(prompt: Prompt, classes: Sequence[str], columns: Sequence[str]) -> BoundPrompt:
    """The prompt for a task.

    Args:
        classes: names in id order; a score has its own.
        columns: the text columns of a row.

    Raises:
        LimbeckError: templates with unknown names, columns with a template's reserved names,
            classes without a verbalization or with another's, unknown classes, examples that lack a column or a
            class; all of it together.
    """
    classes, columns = tuple(prompt.score or classes), tuple(columns)
    row_text = prompt.text or "\n".join(
        f"{'Text' if len(columns) == 1 else name.capitalize()}: {{{name}}}" for name in columns
    )
    problems = _class_problems(prompt, classes) + _score_problems(prompt, columns)
    columns += (QUESTION,) if prompt.questions else ()
    wrong = _template_problems(
        "template", prompt.template, [*columns, "text", "classes", "examples"]
    )
    problems += wrong or _use_problems(prompt, columns)
    problems += _template_problems("text", row_text, columns)
    problems += _template_problems("example", prompt.example, [*columns, "text", "answer"])
    own = {"classes", "examples"} | ({CLASS, "answer"} if prompt.examples else set())
    problems += [
        Problem(f"column {name!r} has a name that a prompt gives itself", "give it another name")
        for name in columns
        if name in own or columns.count(name) > 1
    ]
    problems += _example_problems(prompt.examples, classes, columns)
    raise_problems(problems)
    words = tuple(prompt.words(name) for name in classes)
    lettered = prompt.answers == "letters"
    answers = tuple(ascii_uppercase[: len(classes)]) if lettered else words
    examples = ""
    for one in prompt.examples:
        texts = {name: one[name] for name in columns}
        last = {"text": row_text.format_map(texts), "answer": answers[classes.index(one[CLASS])]}
        examples += prompt.example.format_map(texts | last)
    lines = [f"Answer with {'the letter of ' if lettered else ''}one of:"]
    for name, word, answer in zip(classes, words, answers, strict=True):
        meaning = f": {prompt.descriptions[name]}" if name in prompt.descriptions else ""
        lines.append(f"{answer}. {word}{meaning}" if lettered else f"- {word}{meaning}")
    fixed = {"classes": "\n".join(lines), "examples": examples}
    return BoundPrompt(prompt, classes, columns, answers, words, row_text, fixed)


def _names_in(template: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(template) if name is not None}


@problem_list
def _template_problems(setting: str, template: str, names: Sequence[str]) -> Iterator[Problem]:
    """The problem with a template: it may name values in braces, and do nothing else with them."""
    try:
        parsed = list(Formatter().parse(template))
    except ValueError as error:
        yield Problem(f"{setting}: {error}", "write {{ or }} for a brace that names no value")
        return

    for _, name, form, conversion in parsed:
        if form or conversion:
            yield Problem(f"{setting}: {{{name}}} is formatted", f"write {{{name}}} alone")
        elif name is not None and name not in names:
            yield unknown(f"name in {setting}", name, names)


@problem_list
def _class_problems(prompt: Prompt, classes: tuple[str, ...]) -> Iterator[Problem]:
    if len(classes) < 2 and not isinstance(prompt.score, list):
        yield Problem(
            "a language model labels with classes, and the task has fewer than two",
            "name a task with classes",
        )
        return
    yield from (
        unknown(f"class in {setting}", name, classes)
        for setting in ("verbalizations", "descriptions")
        for name in getattr(prompt, setting) or {}
        if name not in classes
    )
    # Case is not held against a model's answer.
    words = {name: prompt.words(name).casefold() for name in classes}
    yield from (
        Problem(f"verbalizations: class {name!r} has no words", f"write {name}: WORDS")
        for name, own in words.items()
        if not own
    )
    yield from (
        Problem(f"verbalizations: {one} and {other} are both {words[one]!r}", "give each its own")
        for one, other in combinations(classes, 2)
        if words[one] and words[one] == words[other]
    )
    most = len(ascii_uppercase)
    if prompt.answers == "letters" and len(classes) > most:
        yield Problem(
            f"answers: letters are for up to {most} classes, and there are {len(classes)}",
            "set answers: verbalizations",
        )


@problem_list
def _score_problems(prompt: Prompt, columns: tuple[str, ...]) -> Iterator[Problem]:
    """What does not go with a score, with questions and with roles."""
    answers = len(prompt.score) if isinstance(prompt.score, list) else 0
    two = answers == 2
    if answers > 2:
        yield Problem(
            f"score: the log-odds are of two answers, and there are {answers}",
            "write score: [no, yes], or score: {ANSWER: NUMBER, …} for the expected number",
        )
    if prompt.questions and not two:
        yield Problem("questions: they need two answers", "add score: [no, yes]")
    if prompt.score and prompt.calibrate:
        said = "calibrate: it would add one number to all log-odds, and is for classes"
        yield Problem(said, "leave it out with score")
    if prompt.roles and len(prompt.roles) != len(columns):
        said = f"roles: {len(prompt.roles)} for the columns {', '.join(columns)}"
        yield Problem(said, "name a role of the chat template for each column")


def _use_problems(prompt: Prompt, columns: Sequence[str]) -> list[Problem]:
    """Settings that the template does not use, and rows that it would not show."""
    named = _names_in(prompt.template)
    needed = {"examples"} if prompt.examples else set()
    needed |= {"classes"} if prompt.descriptions or prompt.answers == "letters" else set()
    needed |= {QUESTION} if prompt.questions else set()
    if not named & {"text", *columns} - {QUESTION}:
        needed.add("text")
    if prompt.roles:
        return []
    return [
        Problem(f"template: it needs {{{name}}}", f"insert {{{name}}} at its place")
        for name in sorted(needed - named)
    ]


@problem_list
def _example_problems(
    examples: Sequence[Mapping[str, str]], classes: tuple[str, ...], columns: tuple[str, ...]
) -> Iterator[Problem]:

    keys = [*columns, CLASS]
    for number, one in enumerate(examples, start=1):
        where = f"examples, number {number}"
        if {*one} != {*keys}:
            said = f"{where}: it has {', '.join(one) or 'nothing'}, expected {', '.join(keys)}"
            yield Problem(said, "write a line NAME: TEXT for each")
        elif one[CLASS] not in classes:
            yield unknown(f"class in {where}", one[CLASS], classes)
