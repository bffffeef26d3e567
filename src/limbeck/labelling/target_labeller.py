"""A text-to-text model as a labeller: part of its vocabulary's logits at every token of a row's target.

Part of `limbeck.labelling`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from limbeck.activations import Request
from limbeck.data import Collator
from limbeck.data.row_ids import row_ids
from limbeck.data.text_rows import TextRows, read_target_rows
from limbeck.functional.partial_logits import CHOICES, KeptTokens
from limbeck.labelling.model_labeller import labelled_batch, values_of
from limbeck.outputs import Ask, digest_of_model, digest_of_tokenizer
from limbeck.outputs.building import ask
from limbeck.outputs.columns import IDS, INDEX, LOGITS, REST, VALUES, OutputLayout
from limbeck.recipe import Recipe
from limbeck.records.runs_meant import members_at
from limbeck.students import read_config
from limbeck.support.errors import LimbeckError, Problem
from limbeck.tasks import TEXT, TEXT_READING, Processor, Task, kind_of_config
from limbeck.teachers.labeller import KeepsTokens, Labeller, Row, Scores
from limbeck.teachers.teacher import Teacher

USUAL = "top64"
"""What is kept unless another part is asked for."""


class TargetLabeller:
    """An encoder-decoder that is fine-tuned to write labels, and its tokenizer.

    Its decoder reads the target (teacher forcing), as in training. Which tokens are sampled of a row follows from the
    row's id alone.

    Args:
        model: with a language head.
        tokenizer: its own.
        name: what the store calls it.
        task: the name with which prompts begin.
        keep: `top64`, `sample64`, with `@T` behind it at a temperature.
        max_length: tokens it reads of a prompt.
        precision: fp32, or bf16 autocast.
        batch_size: rows of a pass.

    Raises:
        LimbeckError: no such part of the vocabulary, or a tokenizer that cannot be used.
    """

    kind = TEXT.name
    classes: tuple[str, ...] = ()
    outputs = (IDS, VALUES, REST)

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: Processor,
        *,
        name: str,
        task: str,
        keep: str = USUAL,
        max_length: int = 128,
        precision: str = "fp32",
        batch_size: int = 64,
    ) -> None:
        self.name, self.task, self.batch_size = name, task, batch_size
        self.precision, self.max_length = precision, max_length
        head: Any = model.get_output_embeddings()
        self._vocabulary = int(head.weight.shape[0])
        self._kept = KeptTokens.parse(keep)
        problems = TEXT_READING.problems(tokenizer, max_length, 1)
        if self._kept.how == "top" and self._kept.count > self._vocabulary:
            problems.append(
                Problem(
                    f"outputs: {LOGITS}:{keep} of teacher {name}, whose vocabulary has {self._vocabulary:,} tokens",
                    f"keep at most {self._vocabulary}",
                )
            )
        if problems:
            raise LimbeckError(problems)
        self._tokenizer = tokenizer
        self._collate = Collator(tokenizer, kind=TEXT)
        self._teacher = Teacher(model)
        self._digest: str | None = None
        self.truncated: frozenset[int] = frozenset()

    @property
    def kept_tokens(self) -> tuple[str, int]:
        """What is kept, and of how many tokens."""
        return str(self._kept), self._vocabulary

    def to(self, device: torch.device | str) -> TargetLabeller:
        """Move the model. Returns itself."""
        self._teacher.to(device)
        return self

    def fingerprint(self) -> dict[str, Any]:
        """Digests of model and tokenizer, the length limit, the precision, and the task's name in the prompts."""
        self._digest = self._digest or digest_of_model(self._teacher.model)
        return {
            "model": self._digest,
            "tokenizer": digest_of_tokenizer(self._tokenizer),
            "max_length": self.max_length,
            "precision": self.precision,
            "task": self.task,
        }

    def score(self, rows: Sequence[Row]) -> Scores:
        """One pass: ids, numbers and the rest at every token of each row's target, the last of its columns."""
        *columns, target = rows[0]
        texts: dict[str, list[Any]] = {name: [row[name] for row in rows] for name in rows[0]}
        words = [*dict.fromkeys(texts[target])]
        task = Task(
            self.task, self.task, tuple(columns), tuple(words), (), "", label_column=target, kind=TEXT
        )  # fmt: skip
        ids = row_ids([*texts.values()]).tolist()
        numbers = [words.index(word) for word in texts[target]]
        numbered = texts | {target: numbers, INDEX: ids}
        batch, self.truncated = labelled_batch(self._collate, task, self.max_length, numbered)
        moved = {name: value.to(self._teacher.device) for name, value in batch.items()}
        wanted = Request.of_logits(self._kept)
        trace = ask(self._teacher, moved, wanted, self.precision)
        layout = OutputLayout.of(trace, Ask(Request()))
        return values_of(trace, layout)


def kept_word(outputs: Sequence[str] | None, name: str) -> str:
    """What is to be kept of the vocabulary, from `--outputs`.

    Raises:
        LimbeckError: anything but one `logits:PART`.
    """
    words = [*dict.fromkeys(outputs or (f"{LOGITS}:{USUAL}",))]
    parts = [word.removeprefix(f"{LOGITS}:") for word in words]
    problems = [
        Problem(
            f"outputs: {word!r} of teacher {name}, which is text-to-text and has logits over its vocabulary at every "
            "token of a target",
            f"choices: {LOGITS}:{CHOICES}",
        )
        for word, part in zip(words, parts, strict=True)
        if part == word or not _is_kept(part)
    ]
    if not problems and len(words) > 1:
        problems.append(
            Problem(
                f"outputs: {', '.join(words)}: a store keeps one part of a vocabulary", "name one"
            )
        )
    if problems:
        raise LimbeckError(problems)
    return parts[0]


def _is_kept(word: str) -> bool:
    try:
        KeptTokens.parse(word)
    except LimbeckError:
        return False
    return True


# Whether a text-to-text teacher labels, so that rows need the text that its decoder writes.


def writes_targets(teachers: Sequence[str | Labeller], outputs: Sequence[str] | None) -> bool:
    """Whether one of them answers in words; its layers alone need no targets."""
    if outputs and not any(word.split(":")[0] == LOGITS for word in outputs):
        return False
    paths = [path for one in teachers if isinstance(one, str) for path in members_at(one)]
    return any(isinstance(one, KeepsTokens) for one in teachers) or any(
        kind_of_config(read_config(path)) is TEXT for path in paths
    )


def target_rows(
    teachers: Sequence[str | Labeller],
    data: str | Path | None,
    *,
    task: str | None,
    text_columns: Sequence[str],
    label_column: str | None,
    unlabelled: Sequence[str | Path],
    to: str | Path | None,
    max_rows: int,
) -> tuple[str, TextRows]:
    """The task's name in the prompts, and rows with targets.

    Args:
        task: by default that of the teacher's own run.

    Raises:
        LimbeckError: several teachers, rows without targets, a table of labels, a task without a name, or as
            `read_target_rows`.
    """
    named = next((one for one in teachers if isinstance(one, str)), None)
    records = {} if named is None else members_at(named)
    problems = []
    if len(teachers) > 1 or len(records) > 1:
        problems.append(
            Problem(
                "teacher: several, and of parts of a vocabulary there is no mean",
                "label with one text-to-text teacher",
            )
        )
    if unlabelled or data is None:
        problems.append(
            Problem(
                "unlabelled: a text-to-text teacher is asked for each token of a row's target, which these rows lack",
                "give labelled rows with --data; `limbeck predict` writes what the model itself answers",
            )
        )
    if to is not None:
        problems.append(
            Problem(
                "to: a text-to-text teacher is asked about the targets that are there, so there are no labels to write",
                "leave it out; `limbeck predict` writes what the model itself answers",
            )
        )
    if problems:
        raise LimbeckError(problems)
    assert data is not None  # refused above
    for path, record in records.items():
        own = None if record is None else Recipe.recorded(record.recipe, path)
        task = task or (None if own is None else own.task)
    found, rows = read_target_rows(
        data, task=task, text_columns=text_columns, label_column=label_column, max_rows=max_rows
    )
    return found.name, rows
