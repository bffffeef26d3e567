"""A prompt that is bound to a task's classes and columns: everything that may be wrong with it is said here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase

from limbeck.labelling.language_models.prompt import (
    CLASS,
    Prompt,
    PromptTemplate,
    Row,
    parse_template,
)
from limbeck.support.errors import LimbeckError, Problem, unknown

_TEXT, _CLASSES, _EXAMPLES, _ANSWER = "text", "classes", "examples", "answer"


@dataclass(frozen=True)
class BoundPrompt:
    """Writes the prompt of a row.

    Attributes:
        prompt: its settings.
        classes: names in id order.
        columns: the text columns of a row.
        answers: what the model is to answer for each class.
        verbalizations: the words of each class.
    """

    prompt: Prompt
    classes: tuple[str, ...]
    columns: tuple[str, ...]
    answers: tuple[str, ...]
    verbalizations: tuple[str, ...]
    _template: PromptTemplate
    _text: PromptTemplate
    _fixed: Mapping[str, str]
    _aliases: Mapping[str, str]

    def text(self, row: Row) -> str:
        """What is asked about a row, without the system's message.

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
        written = {_TEXT: self._text.fill(texts | self._aliased(texts))}
        return self._template.fill({**texts, **self._aliased(texts), **self._fixed, **written})

    @property
    def uses(self) -> dict[str, int]:
        """The columns whose texts stand in a prompt, and how often each does."""
        direct, written = self._template.counts, self._text.counts
        found: Counter[str] = Counter()
        for name, times in direct.items():
            if name == _TEXT:
                for inner, each in written.items():
                    found[self._aliases.get(inner, inner)] += times * each
            elif name not in self._fixed:
                found[self._aliases.get(name, name)] += times
        return dict(found)

    def _aliased(self, texts: Mapping[str, str]) -> dict[str, str]:
        return {alias: texts[name] for alias, name in self._aliases.items()}

    def whole(self, row: Row) -> str:
        """The same behind the system's message, for a model without roles."""
        system = self.prompt.system
        return f"{system}\n\n{self.text(row)}" if system else self.text(row)

    def messages(self, row: Row) -> list[dict[str, str]]:
        """The same as messages of a chat."""
        said = [{"role": "user", "content": self.text(row)}]
        if self.prompt.system:
            said.insert(0, {"role": "system", "content": self.prompt.system})
        return said

    def content_free(self) -> list[dict[str, str]]:
        """Rows without content, to calibrate against."""
        return [dict.fromkeys(self.columns, text) for text in self.prompt.content_free]


def bind_prompt(
    prompt: Prompt,
    classes: Sequence[str],
    columns: Sequence[str],
    *,
    sampled: Sequence[Mapping[str, str]] = (),
    aliases: Mapping[str, str] | None = None,
) -> BoundPrompt:
    """The prompt for a task.

    Args:
        classes: names in id order.
        columns: the text columns of a row.
        sampled: examples from `few_shot.sample_examples`, behind those of the prompt.
        aliases: other names of columns, which a prompt may use too.

    Raises:
        LimbeckError: templates that name what there is not, columns called as what a template names itself,
            classes without a verbalization or with another's, unknown classes, examples that lack a column or a
            class; all of it together.
    """
    classes, columns = tuple(classes), tuple(columns)
    aliases = dict(aliases or {})
    names = (*columns, *aliases)
    problems: list[Problem] = _class_problems(prompt, classes)
    if prompt.examples_per_class and not sampled:
        problems.append(
            Problem(
                f"examples_per_class: {prompt.examples_per_class}, but there are no labelled training rows",
                "name data with a labelled train split, or write examples of your own",
            )
        )
    named, wrong = parse_template("template", prompt.template, [*names, _TEXT, _CLASSES, _EXAMPLES])
    template, problems = named, problems + wrong
    row_text, wrong = parse_template("text", prompt.text or _default_text(columns), names)
    problems += wrong
    example, wrong = parse_template("example", prompt.example, [*names, _TEXT, _ANSWER])
    problems += wrong
    problems += _use_problems(prompt, template, names, bool(prompt.examples or sampled))
    given = [
        {aliases.get(name, name): text for name, text in one.items()} for one in prompt.examples
    ]
    problems += _name_problems(prompt, names, bool(prompt.examples or sampled))
    problems += _example_problems(given, classes, columns)
    if problems:
        raise LimbeckError(problems)
    assert template is not None and row_text is not None and example is not None
    words = tuple(_words(prompt, name) for name in classes)
    answers = words if prompt.answers == "verbalizations" else _letters(len(classes))
    known = dict(zip(classes, answers, strict=True))
    examples = ""
    for one in (*given, *sampled):
        texts = {name: one[name] for name in columns}
        texts |= {alias: texts[name] for alias, name in aliases.items()}
        last = {_TEXT: row_text.fill(texts), _ANSWER: known[one[CLASS]]}
        examples += example.fill(texts | last)
    fixed = {_CLASSES: _listed(prompt, classes, words, answers), _EXAMPLES: examples}
    return BoundPrompt(prompt, classes, columns, answers, words, template, row_text, fixed, aliases)


def _words(prompt: Prompt, name: str) -> str:
    """A class's words. Outer space is none of them: what stands before an answer is the prompt's to say."""
    own = name.replace("_", " ")
    given = own if prompt.verbalizations is None else prompt.verbalizations.get(name, "")
    return given.strip()


def _letters(count: int) -> tuple[str, ...]:
    """A, B, … Z; more classes than that are refused before."""
    return tuple(ascii_uppercase[:count])


def _default_text(columns: Sequence[str]) -> str:
    if len(columns) == 1:
        return f"Text: {{{columns[0]}}}"
    return "\n".join(f"{name.capitalize()}: {{{name}}}" for name in columns)


def _listed(
    prompt: Prompt, classes: Sequence[str], words: Sequence[str], answers: Sequence[str]
) -> str:
    """The list of answers, each with what it means where that is known."""
    letters = prompt.answers == "letters"
    lines = [f"Answer with {'the letter of ' if letters else ''}one of:"]
    for name, word, answer in zip(classes, words, answers, strict=True):
        meaning = f": {prompt.descriptions[name]}" if name in prompt.descriptions else ""
        lines.append(f"{answer}. {word}{meaning}" if letters else f"- {word}{meaning}")
    return "\n".join(lines)


def _class_problems(prompt: Prompt, classes: tuple[str, ...]) -> list[Problem]:
    if len(classes) < 2:
        return [
            Problem(
                "a language model labels with classes, and the task has fewer than two",
                "name a task with classes",
            )
        ]
    problems = []
    for setting in ("verbalizations", "descriptions"):
        named = getattr(prompt, setting) or {}
        problems += [
            unknown(f"class in {setting}", name, classes) for name in named if name not in classes
        ]
    words = {name: _words(prompt, name) for name in classes}
    problems += [
        Problem(f"verbalizations: class {name!r} has none", f"write {name}: WORDS")
        for name, word in words.items()
        if not word
    ]
    # Case and outer space are not held against a model's answer.
    for text, count in Counter(word.casefold() for word in words.values() if word).items():
        if count > 1:
            same = [name for name, word in words.items() if word.casefold() == text]
            problems.append(
                Problem(
                    f"verbalizations: {' and '.join(same)} are both {text!r}",
                    "give each class its own",
                )
            )
    most = len(ascii_uppercase)
    if prompt.answers == "letters" and len(classes) > most:
        problems.append(
            Problem(
                f"answers: letters are for up to {most} classes, and there are {len(classes)}",
                "set answers: verbalizations",
            )
        )
    return problems


def _use_problems(
    prompt: Prompt, template: PromptTemplate | None, columns: tuple[str, ...], examples: bool
) -> list[Problem]:
    """What is set and would not be read, and rows that would not be seen."""
    if template is None:
        return []
    problems = []
    if not template.names & {_TEXT, *columns}:
        problems.append(
            Problem("template: no text of the row stands in it", "put {text} into it at its place")
        )
    if examples and _EXAMPLES not in template.names:
        problems.append(
            Problem(
                "there are examples, and template has no {examples}",
                "put {examples} into it, or leave them out",
            )
        )
    listed = {
        "descriptions": bool(prompt.descriptions),
        "answers: letters": prompt.answers == "letters",
    }
    problems += [
        Problem(
            f"{setting}: they stand in the list of classes, and template has no {{classes}}",
            "put {classes} into it at its place",
        )
        for setting, used in listed.items()
        if used and _CLASSES not in template.names
    ]
    unread = {
        "example": (not examples, "there are no examples"),
        "seed": (not prompt.examples_per_class, "examples_per_class is 0, so none are sampled"),
        "content_free": (prompt.calibrate is False, "calibrate is false"),
    }
    problems += [
        Problem(f"{setting}: nothing would read it, as {reason}", "leave it out")
        for setting, (idle, reason) in unread.items()
        if idle and setting in prompt.model_fields_set
    ]
    return problems


def _name_problems(prompt: Prompt, names: tuple[str, ...], examples: bool) -> list[Problem]:
    """Columns called as what a template names itself, which would stand in place of their texts."""
    own = {_CLASSES: "the list of classes", _EXAMPLES: "the examples"}
    if examples:
        own[CLASS] = "an example's class"
    if examples and "example" in prompt.model_fields_set:
        own[_ANSWER] = "an example's answer"
    return [
        Problem(f"column {name!r}: in a prompt this is {meant}", "give the column another name")
        for name, meant in own.items()
        if name in names
    ]


def _example_problems(
    examples: Sequence[Mapping[str, str]], classes: tuple[str, ...], columns: tuple[str, ...]
) -> list[Problem]:
    problems = []
    for number, one in enumerate(examples, start=1):
        where = f"examples, number {number}"
        problems += [
            Problem(f"{where}: no {name!r}", f"write {name}: TEXT")
            for name in (*columns, CLASS)
            if name not in one
        ]
        problems += [
            unknown(f"key in {where}", name, [*columns, CLASS])
            for name in one
            if name not in (*columns, CLASS)
        ]
        if CLASS in one and one[CLASS] not in classes:
            problems.append(unknown(f"class in {where}", one[CLASS], classes))
    return problems
