"""Tasks: nine GLUE tasks, three out-of-domain sets and images, their columns, labels and scores.

The data stage of a training step starts here. Whatever the source of the rows, the columns, the
class order and the metrics are the ones written below: they follow the Hugging Face Hub's copy of
GLUE, so that a model fine-tuned elsewhere means the same thing by class 1. Regression is a
classification task without classes; tasks with another kind of answer set their kind.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from limbeck.support.errors import LimbeckError, Problem, check_choice
from limbeck.support.plain import read_text, read_yaml
from limbeck.tasks import image, language_models, positions, spans
from limbeck.tasks.abstract_type import TaskType, get_task_type
from limbeck.tasks.classes import SENTENCE
from limbeck.tasks.metrics import METRICS, RANKED_METRICS, mean_of
from limbeck.tasks.rules import USUAL, Thresholds, check_outputs
from limbeck.vision import Normalisation


@dataclass(frozen=True)
class HubSource:
    """Where the Hub keeps a task, and what that repository calls the columns."""

    repository: str
    config: str
    text_columns: tuple[str, ...]
    label_column: str = "label"
    revision: str | None = None


@dataclass(frozen=True)
class ImageTraits:
    """Facts about a task's images.

    `side`: height and width in pixels, unless a checkpoint's image processor sets them.
    `flip`: whether a mirror image is of the same class.
    """

    side: int = 32
    normalisation: Normalisation = field(default_factory=Normalisation)
    flip: bool = False


@dataclass(frozen=True)
class Task:
    """One task: text or an image in, a class or a number out.

    `labels` holds the class names in id order, none for regression. `primary` is the score that
    selects checkpoints: a metric, or metrics joined by "+" for their mean. `out_of_domain` names
    the task a student of this one is also scored on, `label_column` the column every loaded split
    carries its class id or number in, `kind` the task type (`limbeck.tasks`). `text_columns` of
    an image task is the image's column. `dev_is_test`: the published test split is what every epoch
    is scored on, as the papers of that task do. `bounds` are the lowest and highest number a
    regression's label may be, where they are known.
    """

    name: str
    title: str
    text_columns: tuple[str, ...]
    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    primary: str
    label_column: str = "label"
    dev_splits: tuple[str, ...] = ("dev",)
    out_of_domain: str | None = None
    hub: HubSource | None = None
    test_is_labelled: bool = False
    kind: TaskType = SENTENCE
    image_traits: ImageTraits = field(default_factory=ImageTraits)
    dev_is_test: bool = False
    said: Problem | None = None
    """How a user's own labels were read, and how to change that."""
    bounds: tuple[float, float] | None = None
    thresholds: Thresholds = USUAL
    """Of several labels a row, how likely a class has to be: numbers, or how they are tuned."""

    @property
    def regression(self) -> bool:
        """Whether the label is a number instead of a class."""
        return self.kind.row_layout == "one label" and not self.labels

    @property
    def outputs(self) -> int:
        """How many numbers a model of this task puts out: its classes, or one."""
        return len(self.labels) or 1

    @property
    def one_class(self) -> bool:
        """Whether each row is of one of several classes, which a head decides."""
        return 1 < self.kind.outcomes(self.outputs) < math.inf

    @property
    def one_number(self) -> bool:
        """Whether each row has one number, which a head gives."""
        return self.kind.is_number(self.outputs)

    @property
    def scored_splits(self) -> tuple[str, ...]:
        """The splits that a run is scored on if they exist: first those for selection, then test."""
        return (*self.dev_splits, "test")

    def evaluation_splits(self, splits: Iterable[str]) -> tuple[str, ...]:
        """Which of the loaded `splits` to score.

        The dev splits, since GLUE's test labels are not public; for the out-of-domain sets their
        test split where it is there (RAIL-KD, §4.1).
        """
        present = set(splits)
        if self.test_is_labelled and "test" in present:
            return ("test",)
        return tuple(split for split in self.dev_splits if split in present)

    def scores(self, predictions: np.ndarray, labels: np.ndarray) -> dict[str, float]:
        """Every metric of the task and "primary", 0 to 100.

        `predictions` [n, classes] are logits or probabilities, or [n, 1] or [n] numbers for
        regression; `labels` [n] are class ids or numbers. Raises LimbeckError for shapes that do
        not fit, for no rows, and for predictions that are not finite.
        """
        predictions, labels = np.asarray(predictions), np.asarray(labels).reshape(-1)
        self._check(predictions, labels)
        if self.regression:
            predicted = predictions.reshape(-1).astype(np.float64)
            labels = labels.astype(np.float64)
        else:
            predicted = predictions.argmax(axis=1)
            labels = labels.astype(np.int64)
        scores = {
            name: METRICS[name](predicted, labels)
            if name in METRICS
            else RANKED_METRICS[name](predictions, labels)
            for name in self.metrics
        }
        return scores | {"primary": mean_of(self.primary, scores)}

    def _check(self, predictions: np.ndarray, labels: np.ndarray) -> None:
        if len(labels) == 0:
            raise LimbeckError(f"task {self.name!r}: there are no rows to score", "check the split")
        flat = self.regression and predictions.ndim == 1
        check_outputs(self, predictions, (len(labels),) if flat else (len(labels), self.outputs))


def as_kind(task: Task, kind: str | None) -> Task:
    """The same rows as a task of another kind: classification as text to text, and back.

    Raises LimbeckError for an unknown kind, or rows that cannot be read so.
    """
    if kind is None or kind == task.kind.name:
        return task
    wanted = get_task_type(kind)
    same_input = task.kind.reads is wanted.reads
    if not (task.kind.row_layout == wanted.row_layout == "one label" and same_input):
        raise LimbeckError(
            f"kind: task {task.name!r} is of kind {task.kind.name}, not {kind}",
            "leave kind out; classification tasks can also be read as kind text",
        )
    return replace(task, kind=wanted, **wanted.task_fields(task))


def judged_by_teacher(task: Task) -> Task:
    """The same rows with a teacher's predictions as their labels: scores are the agreement with it."""
    metrics = task.kind.agreement_metrics(task)
    return replace(task, metrics=metrics, primary=metrics[0], said=None)


# The tasks that are known by name, from `datasets.yaml`.


_TYPES = {
    one.name: one
    for one in (SENTENCE, image.IMAGE, language_models.MASKED, spans.SPANS, positions.TOKENS)
}


def image_metrics(classes: int) -> tuple[str, ...]:
    """Accuracy, and top-5 accuracy where it can be missed."""
    return ("accuracy", "top5") if classes > 5 else ("accuracy",)


def _known(name: str, said: dict[str, Any]) -> Task:
    """One entry of the file: keys of a task, lists as tuples."""
    given = _tuples(said)
    images, hub = given.pop("images", None), given.pop("hub", None)
    if images is not None:
        pixels = {key: images[key] for key in ("mean", "std") if key in images}
        flip = images.get("flip", False)
        given["image_traits"] = ImageTraits(images["side"], Normalisation(**pixels), flip)
    if hub is not None:
        given["hub"] = HubSource(**{"text_columns": given["text_columns"], **hub})
    return Task(name, **{**given, "kind": _TYPES[given.get("kind", SENTENCE.name)]})


def _tuples(said: dict[str, Any]) -> dict[str, Any]:
    plain = {key: tuple(one) if isinstance(one, list) else one for key, one in said.items()}
    return {key: _tuples(one) if isinstance(one, dict) else one for key, one in plain.items()}


_FILE = Path(__file__).with_name("datasets.yaml")
TASKS: dict[str, Task] = {
    name: _known(name, said) for name, said in read_yaml(read_text(_FILE), _FILE.name).items()
}

# MNLI's three classes fold into SciTail's two; the other pairs differ in their names alone.
_PROJECTIONS: dict[tuple[str, str], dict[str, str]] = {
    ("mnli", "scitail"): {
        "entailment": "entails",
        "neutral": "neutral",
        "contradiction": "neutral",
    },
    ("qqp", "paws"): {"not_duplicate": "different_meaning", "duplicate": "paraphrase"},
    ("sst2", "imdb"): {"negative": "neg", "positive": "pos"},
}


def get_task(name: str) -> Task:
    """The task of that name; raises LimbeckError with the nearest name if it does not exist."""
    check_choice("task", name, TASKS)
    return TASKS[name]


def project(predictions: np.ndarray, source: Task, target: Task) -> np.ndarray:
    """Predictions [n, classes of `source`] as predictions [n, classes of `target`], for scoring.

    The predicted class is taken first and translated after, so an MNLI student that predicts
    "contradiction" answers "neutral" on SciTail. Each row of the result is 1 at the translated
    class and 0 elsewhere. Two tasks with the same class names, whatever their order, or two
    regressions need no translation table. Raises LimbeckError for a pair of tasks whose classes do
    not correspond.
    """
    predictions = np.asarray(predictions)
    if source.kind is not target.kind or not source.kind.constant:
        raise LimbeckError(
            f"a student of {source.name!r} ({source.kind.name}) cannot be scored on "
            f"{target.name!r} ({target.kind.name})",
            "name a task of classes or numbers for a student of classes or numbers",
        )
    if source.kind.row_layout == "several labels":
        raise LimbeckError(
            f"a student of {source.name!r} may give a row several classes, which are not translated",
            f"name the task that it was trained on, {source.name}",
        )
    if source.regression and target.regression:
        return predictions
    names = _PROJECTIONS.get((source.name, target.name))
    if names is None and source.labels and set(source.labels) == set(target.labels):
        names = {label: label for label in source.labels}
    if names is None:
        known = ", ".join(f"{a} → {b}" for a, b in _PROJECTIONS)
        raise LimbeckError(
            f"a student of {source.name!r} cannot be scored on {target.name!r}: their classes do not correspond",
            f"known pairs: {known}; or two tasks with the same class names",
        )
    if predictions.ndim != 2 or predictions.shape[1] != len(source.labels):
        raise LimbeckError(
            f"predictions of shape {predictions.shape} for the {len(source.labels)} classes of {source.name!r}",
            "use the student that was trained on that task",
        )
    translated = np.array([target.labels.index(names[label]) for label in source.labels])
    found: np.ndarray = np.eye(len(target.labels))[translated[predictions.argmax(axis=1)]]
    return found
