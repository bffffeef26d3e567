"""Text in, text out: GLUE as T5 reads it. Part of `limbeck.tasks`.

The input names the task and each column ("mrpc sentence1: … sentence2: …"), the target is the
class's name, or for a regression the number to the nearest 0.2 (Raffel et al. 2020, §2.4 and
App. D). Scores are of greedily generated predictions. What names no class counts as wrong, as in T5's own metrics: in
accuracy and F1 as a class other than the right one, in Matthews' correlation as one more class.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import transformers
from datasets import Dataset
from torch import Tensor

from limbeck.activations.compat import TEXT_TO_TEXT
from limbeck.functional.labels import NO_LABEL
from limbeck.support.errors import LimbeckError
from limbeck.tasks import abstract_type, modality, rules
from limbeck.tasks.classes import SENTENCE, constant_class
from limbeck.tasks.metrics import SampledScore, matthews, mean_of
from limbeck.tasks.positions import LabelledPositions

# Longer than any class name of GLUE; a batch with longer targets generates as far as they go.
_LONGEST = 10
PROMPT = "text_prompt"
"""The entry of a student's configuration that holds the prompt of its training."""
# T5's own answer for text that is no number, and for text that names no class.
_NO_NUMBER = -1.0
_NO_CLASS = -1


TARGET = "target"
"""The column of stored outputs and of labeled rows with the decoder's target text."""


@abstract_type.task_type("text")
class Text(LabelledPositions):
    """Classification and regression by generated label words."""

    summary = "GLUE as text to text: generated label words (T5)"
    auto = transformers.AutoModelForSeq2SeqLM
    heads = TEXT_TO_TEXT
    classes_as_text = True
    generates = True
    row_layout = "one label"
    key_columns = (TARGET,)
    over_vocabulary = True
    prompt: str | None = None
    """The prompt that a model was trained with, with {0}, {1}, … for a row's texts, if in its configuration."""

    def of_model(self, config: transformers.PretrainedConfig) -> "Text":
        """With the prompt of its training, whatever task the rows are called by."""
        found = copy(self)
        found.prompt = getattr(config, PROMPT, None)
        return found

    def answers(self, other: abstract_type.TaskType) -> bool:
        """Rows of one class or number, in words."""
        return other.row_layout == "one label"

    def counted_logits(self, batch: rules.Batch, logits: np.ndarray) -> Any:
        """The targets'."""
        return batch["labels"].numpy() != NO_LABEL

    def need_labels(self, task: Any, rows: Dataset, setting: str = "") -> None:
        """The decoder reads one of each row."""
        labels = rows.with_format("numpy")[task.label_column][:]
        missing = int((~abstract_type.labelled_rows(labels)).sum())
        refused = abstract_type.no_unlabelled(self)
        if missing and refused is not None:
            raise LimbeckError(
                f"{setting}task {task.name!r}: {missing} of {len(rows)} training rows have no label, and {refused.why}",
                "label them or take them out",
            )

    def ship_with(self, config: transformers.PretrainedConfig, task: rules.TaskLike) -> None:
        """The prompt of its training."""
        setattr(config, PROMPT, prompt_of(task))

    def results_of_classifier(self, task: Any, outputs: np.ndarray, rows: Dataset) -> rules.Results:
        """In words, as the type's own models answer."""
        found = SENTENCE.results_of_rows(replace(task, kind=SENTENCE), outputs, rows)
        for column in ("prediction", "label"):
            found.predictions[column] = [label_word(task, one) for one in found.predictions[column]]
        return found

    def features(self, task: rules.TaskLike) -> dict[str, Any]:
        """As classification."""
        return SENTENCE.features(task)

    def texts(self, task: rules.TaskLike, rows: Mapping[str, Sequence[Any]]) -> list[list[str]]:
        """One text a row: the task's name, then each column with its name, in alphabetical order."""
        if self.prompt is not None:
            read = zip(*(rows[name] for name in task.text_columns), strict=True)
            return [[self.prompt.format(*row) for row in read]]
        names = sorted(task.text_columns)
        columns = zip(*(rows[name] for name in names), strict=True)
        prompts = [
            " ".join([task.name, *(f"{n}: {text}" for n, text in zip(names, row, strict=True))])
            for row in columns
        ]
        return [prompts]

    def encode(
        self, task: rules.TaskLike, tokenizer: modality.Processor, max_length: int, rows: rules.Rows
    ) -> rules.Rows:
        """The prompt as input, the label word as `labels`."""
        encoded = modality.encode_cut(tokenizer, *self.texts(task, rows), max_length=max_length)
        columns = rules.columns_of(encoded, rows)
        if task.label_column in rows:
            words = [label_word(task, label) for label in rows[task.label_column]]
            columns["labels"] = tokenizer(text_target=words)["input_ids"]
        return columns

    def pad_labels(
        self, rows: list[dict[str, Any]], tokenizer: modality.Processor, width: int
    ) -> dict[str, Tensor]:
        """Target tokens (B, longest target), then −100."""
        longest = max((len(row.get("labels", ())) for row in rows), default=0)
        padded = super().pad_labels(rows, tokenizer, longest)
        if tokenizer.padding_side == "left" and padded:
            # A decoder's targets begin at its first step, wherever its inputs are padded.
            valid = padded["labels"] != NO_LABEL
            order = torch.argsort((~valid).int(), dim=1, stable=True)
            padded["labels"] = padded["labels"].gather(1, order)
        return padded

    def compact_outputs(
        self, model: transformers.PreTrainedModel, batch: rules.Batch, logits: Tensor
    ) -> Tensor:
        """Greedily generated token ids (B, T)."""
        longest = batch["labels"].shape[1] if "labels" in batch else 0
        generator: Any = model  # every encoder-decoder with a language head generates
        found: Tensor = generator.generate(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            max_new_tokens=max(_LONGEST, longest),
            do_sample=False,
            num_beams=1,
        )
        return found

    def results(
        self, task: rules.TaskLike, outputs: np.ndarray, of: rules.ScoredSplit
    ) -> rules.Results:
        """The task's own metrics of the generated words; both sides as words by example."""
        encoded, rows, tokenizer = of
        given = [
            _decoded(tokenizer, [token for token in row if token >= 0]) for row in outputs.tolist()
        ]
        right = rows[task.label_column][:]
        scores = _scores(task, read_words(task, tokenizer, given), np.asarray(right))
        kept = {
            "index": encoded["index"][:],
            "prediction": given,
            "label": [label_word(task, label) for label in right],
        }
        return rules.Results(dict(scores), kept)

    def sampled_score(
        self, task: rules.TaskLike, metric: str, kept: rules.Kept
    ) -> SampledScore | None:
        """As classification, of classes; numbers are kept as words, rounded, which have another correlation."""
        if task.regression:
            return None
        known = {word: number for number, word in enumerate(task.labels)}
        right = np.array([known[word] for word in kept["label"]])
        given = np.array([known.get(word, _NO_CLASS) for word in kept["prediction"]])
        if metric != "matthews":
            given = _wrong_for_none(given, right, len(known))
        return SENTENCE.sampled_score(
            task, metric, {"prediction": given.tolist(), "label": right.tolist()}
        )

    def baseline(self, task: rules.TaskLike, labels: rules.Labels) -> tuple[float, str]:
        """The majority class; a constant has no correlation with anything."""
        return constant_class(task, np.asarray(labels))


def prompt_of(task: rules.TaskLike) -> str:
    """The prompt of a task's rows, with {0}, {1}, … for the texts in their order."""
    fields = {name: [f"{{{at}}}"] for at, name in enumerate(task.text_columns)}
    prompts: list[list[str]] = TEXT.texts(task, fields)
    return prompts[0][0]


def label_word(task: rules.TaskLike, label: float) -> str:
    """The target text of a label: its class's name, or the number to the nearest 0.2."""
    return f"{round(label * 5) / 5:.1f}" if task.regression else task.labels[int(label)]


def answer_limit(task: rules.TaskLike, tokenizer: transformers.PreTrainedTokenizerBase) -> int:
    """New tokens that a greedy answer may have: enough for every class's name and its end."""
    names = () if task.regression else task.labels
    return max(_LONGEST, *(len(tokenizer(text_target=name)["input_ids"]) for name in names), 0)


def read_words(
    task: rules.TaskLike, tokenizer: transformers.PreTrainedTokenizerBase, given: Sequence[str]
) -> np.ndarray:
    """Generated words as class ids, or as numbers [n]; −1 for a text that is no class's name, or no number.

    Raises LimbeckError when two classes look alike to the tokenizer.
    """
    if task.regression:
        return np.array([_number(word) for word in given])
    classes: dict[str, int] = {}
    for number, name in enumerate(task.labels):
        # As the tokenizer spells it: it may drop case, or not know the word.
        word = _decoded(tokenizer, tokenizer(name)["input_ids"])
        if word in classes or not word:
            raise LimbeckError(
                f"task {task.name!r}: the tokenizer reads the class {name!r} as {word!r}"
                + (f", like {task.labels[classes[word]]!r}" if word else ""),
                "rename the classes in words that the tokenizer knows and distinguishes",
            )
        classes[word] = number
    return np.array([classes.get(word, _NO_CLASS) for word in given])


def _wrong_for_none(given: np.ndarray, right: np.ndarray, classes: int) -> np.ndarray:
    """Class ids [n] with a class other than the right one where none is named."""
    return np.where(given == _NO_CLASS, (right.astype(np.int64) + 1) % classes, given)


def _scores(task: rules.TaskLike, given: np.ndarray, right: np.ndarray) -> dict[str, float]:
    """Every metric of class ids, or numbers, as `read_words` has them."""
    if task.regression:
        return task.scores(given, right)
    wrong = _wrong_for_none(given, right, len(task.labels))
    scores = task.scores(np.eye(len(task.labels))[wrong], right)
    if "matthews" in scores:  # as always a wrong class it would be −100 for naming no class at all
        scores["matthews"] = matthews(given, right)
        scores["primary"] = mean_of(task.primary, scores)
    return scores


def _decoded(tokenizer: transformers.PreTrainedTokenizerBase, tokens: list[int]) -> str:
    return str(tokenizer.decode(tokens, skip_special_tokens=True)).strip()


def _number(word: str) -> float:
    try:
        number = float(word)
    except ValueError:
        return _NO_NUMBER
    return number if np.isfinite(number) else _NO_NUMBER


TEXT = abstract_type.TASK_TYPES.get("text")
