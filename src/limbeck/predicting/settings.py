"""What is asked of a prediction, and who reads the rows of a task type. Part of `limbeck.predicting`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from limbeck import tasks
from limbeck.activations.request import Pool
from limbeck.embedding import TextPrompts, modules_of
from limbeck.embedding.folder import SENTENCE
from limbeck.predicting.about_model import AboutModel
from limbeck.predicting.readers import (
    EMBEDDINGS,
    OUTPUTS,
    ClassReader,
    EmbeddingReader,
    ImageReader,
    NumberReader,
    PromptedReader,
    RowReader,
    SpanReader,
    TextReader,
)
from limbeck.predicting.tags import TagReader
from limbeck.support.errors import LimbeckError, Problem, unknown
from limbeck.tasks import TEXT_READING

_USUAL_POOLING = "mean"
PRECISIONS = ("fp32", "bf16")


@dataclass(frozen=True)
class PredictSettings:
    """How rows are predicted.

    Attributes:
        output: some of `labels`, `scores` (the probability of the label), `ranks` (of a query's passages),
            `probabilities`, `logits`, `embeddings`.
        text_columns: the columns that the model reads.
        keep: the columns that stand beside the predictions; all by default, `["none"]` for none.
        prefix: of the names of the predicted columns.
        pooling: how hidden states become an embedding: mean over real tokens, cls or last.
        prompt: what the texts are, sentence, query or passage, which says which of an embedding model's own prompts
            stands before them.
        batch_size: examples of a pass.
        max_length: tokens read of a row; by default what the model was trained or exported with (of
            an embedding model what its folder says), else 512 at most.
        max_new_tokens: of a generated text; by default what the checkpoint says; of a run or a known task as
            many as its longest class name has, at least 10.
        precision: fp32 or bf16.
        chunk_rows: rows that are read, predicted and written at once, the work that a kill may cost.
        csv_safe: in CSV and TSV write an apostrophe before text that begins with =, +, -, @, a tab or a carriage
            return, which spreadsheets run as a formula.
        overwrite: replace the file that is written.
    """

    output: Sequence[str] = ("labels",)
    text_columns: Sequence[str] = ()
    keep: Sequence[str] | None = None
    prefix: str = ""
    pooling: str = _USUAL_POOLING
    prompt: str = SENTENCE
    batch_size: int = 32
    max_length: int | None = None
    max_new_tokens: int | None = None
    precision: str = "fp32"
    chunk_rows: int | None = None
    csv_safe: bool = False
    overwrite: bool = False

    def __post_init__(self) -> None:
        """A name alone is a list of one."""
        for name in ("output", "text_columns", "keep"):
            value = getattr(self, name)
            if isinstance(value, str):
                object.__setattr__(self, name, (value,))

    @property
    def asked(self) -> frozenset[str]:
        """The outputs."""
        return frozenset(self.output)

    def problems(self) -> list[Problem]:
        """What is wrong with the settings themselves."""
        found = [unknown("output", name, OUTPUTS) for name in self.output if name not in OUTPUTS]
        if not self.output:
            found.append(Problem("no output is named", f"choices: {', '.join(OUTPUTS)}"))
        choices = {
            "pooling": get_args(Pool),
            "prompt": TextPrompts._fields,
            "precision": PRECISIONS,
        }
        for name, known in choices.items():
            if getattr(self, name) not in known:
                found.append(unknown(name, getattr(self, name), known))
        for name in ("batch_size", "max_length", "max_new_tokens", "chunk_rows"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int) and value >= 1):
                found.append(Problem(f"{name} {value!r}", "give a whole number of at least 1"))
        return found

    def problems_with(self, facts: AboutModel, target: Path | None, to_csv: bool) -> list[Problem]:
        """What the model does not give, or the file cannot hold."""
        name, embeds, asked = facts.name, facts.kind.embeds, self.asked
        embeddings = EMBEDDINGS in asked
        source = "name the run or the checkpoint that it was exported from"
        checks = (
            (
                self.prompt != SENTENCE and not (embeds and embeddings),
                f"prompt {self.prompt}: {name} is asked for {', '.join(self.output)}, and prompts are of embedding "
                "models, asked for embeddings",
                "leave it out",
            ),
            (
                embeddings and facts.exported and not embeds,
                f"output embeddings: {name} is an exported model, whose file holds no hidden states",
                source,
            ),
            (
                embeddings and embeds and self.pooling != _USUAL_POOLING,
                f"pooling {self.pooling}: {name} is an embedding model, which has its own",
                "leave it out",
            ),
            (
                embeddings and to_csv,
                f"output embeddings: {target or 'CSV'} cannot hold lists of numbers",
                "write Parquet or JSON lines: --to FILE.parquet, --to FILE.jsonl",
            ),
            (
                facts.exported and self.precision != "fp32",
                f"precision {self.precision}: {name} is an exported model, whose file says its precision",
                "leave the precision out",
            ),
        )
        return [Problem(said, fix) for wrong, said, fix in checks if wrong]


_READERS: dict[str, type[RowReader]] = {
    "tokens": TagReader,
    "spans": SpanReader,
    "image": ImageReader,
}


def reader_of(facts: AboutModel, settings: PredictSettings, columns: int) -> RowReader:
    """Who reads the rows for a model.

    Args:
        columns: how many hold its input.

    Raises:
        LimbeckError: outputs that its task type does not have.
    """
    kind = facts.kind
    if settings.asked == {EMBEDDINGS} and kind.reads is TEXT_READING:
        own = modules_of(facts.model.config)
        # A name that is no prompt's is said with all else that is wrong.
        before = "" if own is None else own.text_prompts._asdict().get(settings.prompt, "")
        if before:
            return PromptedReader(facts, tasks.SENTENCE, columns, before)
        return EmbeddingReader(facts, tasks.SENTENCE, columns)
    reader: RowReader
    if kind.classes_as_text:
        reader = TextReader(facts, kind, columns, settings.max_new_tokens)
    elif kind.name in _READERS:
        reader = _READERS[kind.name](facts, kind, columns)
    elif kind.problem_of(facts.regression) is not None:
        reader = (NumberReader if facts.regression else ClassReader)(facts, kind, columns)
    else:
        raise LimbeckError(
            f"{facts.name} is of task type {kind.name}, which has no predictions of rows",
            "ask for embeddings alone: --output embeddings",
        )
    _check_outputs(facts, reader, settings.output)
    return reader


def _check_outputs(facts: AboutModel, reader: RowReader, output: Sequence[str]) -> None:
    given = (*reader.outputs, *((EMBEDDINGS,) if reader.one_pass else ()))
    what = "a number" if facts.regression else f"task type {facts.kind.name}"
    problems = [
        Problem(
            f"output {name}: {facts.name} is of {what}, which has none",
            f"choices: {', '.join(given)}"
            + ("" if reader.one_pass else "; embeddings alone, without labels"),
        )
        for name in output
        if name in OUTPUTS and name not in given
    ]
    if problems:
        raise LimbeckError(problems)
