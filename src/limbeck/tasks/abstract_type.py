"""The interface of a task type. Part of `limbeck.tasks`."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
from datasets import ClassLabel, Dataset, Value
from scipy.special import softmax
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

from limbeck.functional.labels import NO_LABEL
from limbeck.functional.partial_logits import PartialLogits
from limbeck.support.errors import LimbeckError
from limbeck.support.registry import Registry
from limbeck.tasks import rules
from limbeck.tasks.candidates import AskedTexts, CandidateReading
from limbeck.tasks.metrics import SampledScore, SampledUnits
from limbeck.tasks.modality import TEXT_READING, Processor, Reading

# Predictions and scores of a model's outputs, and the score of chance.


class ScoredOutputs(ABC):
    """The half of a `TaskType` that reads a model's outputs."""

    name: ClassVar[str]
    """As it is registered."""

    def named(self, task: rules.TaskLike, prediction: Any) -> str:
        """A row's prediction in words."""
        return str(prediction)

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Of logits (n, C) the classes' probabilities, float64."""
        found: np.ndarray = softmax(logits.astype(np.float64), axis=1)
        return found

    def compact_outputs(self, model: PreTrainedModel, batch: rules.Batch, logits: Tensor) -> Tensor:
        """The outputs that evaluation keeps of a batch, (B, …): as little as the scores need, by default the logits."""
        return logits

    def beside_teacher(self, student: Tensor, teacher: Tensor, batch: rules.Batch) -> Tensor:
        """Compare the logits of a language model that generates with its teacher's; (3,).

        Returns:
            how many places count, at how many the likeliest token is the same, and the sum of KL(teacher ‖ student).

        Raises:
            LimbeckError: the type is another.
        """
        raise LimbeckError(f"task type {self.name} generates no text", "compare predictions")

    def results(
        self, task: rules.TaskLike, outputs: np.ndarray, of: rules.ScoredSplit
    ) -> rules.Results:
        """Scores of all predictions on a split.

        By default for complete examples with one label each.
        """
        return self.results_of_rows(task, outputs, of.rows)

    def results_of_rows(
        self, task: rules.TaskLike, outputs: np.ndarray, rows: Dataset
    ) -> rules.Results:
        """Scores and predictions of logits (n, C), or numbers (n, 1), of loaded rows that are complete examples.

        Raises:
            LimbeckError: the type's outputs are of something else.
        """
        raise LimbeckError(
            f"task type {self.name} has no outputs of complete examples", "give a model"
        )

    def sampled_units(self, task: rules.TaskLike, kept: rules.Kept) -> SampledUnits | None:
        """The units that score intervals resample, of predictions that `results` kept: by default the rows. None if the
        kept predictions do not identify them."""
        return SampledUnits("rows", kept)

    def sampled_score(
        self, task: rules.TaskLike, metric: str, kept: rules.Kept
    ) -> SampledScore | None:
        """The metric of samples of the units, `kept` by unit; None of one that has no interval over them."""
        return None

    def predicts_numbers(self, task: rules.TaskLike) -> bool:
        """Whether a row's prediction is a number, so that two models hardly ever predict the same."""
        return False

    @abstractmethod
    def baseline(self, task: rules.TaskLike, labels: rules.Labels) -> tuple[float, str]:
        """The best primary score of always making one prediction, 0 to 100, and that prediction.

        `labels` is the label column of some rows. Raises LimbeckError for an empty column.
        """

    def predictions_of(self, labels: rules.Labels) -> int:
        """How many predictions the rows with these labels need: one each."""
        return len(labels)

    def baseline_of_rows(self, task: rules.TaskLike, rows: Dataset) -> tuple[float, str]:
        """As `baseline`, of loaded rows."""
        return self.baseline(task, rows[task.label_column][:])


class TaskType(ScoredOutputs):
    """One task type. They are stateless; there is one object of each.

    Attributes:
        auto: the AutoModel class of the head.
        label_names: the columns of a batch that hold the labels.
        extra_columns: columns of a batch that the losses read and no model names.
        heads: names of model classes that are its heads, where they do not end as its AutoModel's do.
        weighs_classes: whether the labels' loss can count classes by weights, and hard examples more
            (`HardRule`).
        classes_as_text: whether a decoder writes the label, and so reads it in training.
        generates: whether a model answers with text, token by token.
        rows_without_labels: whether training rows are texts, and need no labels: all that is learned follows
            from them.
        language_model: whether the text of a row is its own label, and a trained model may be trained further.
        problem_type: transformers' name for the head's objective, if the head's class alone does
            not determine it.
        constant: whether a model's outputs for an example are the same in every epoch, with one row of
            logits.
        reads: the modality of an example: text, or an image.
        whole_text: whether a class or number of a text is read off one token.
        embeds: whether logits are one vector (B, d) for each example, whose numbers are no classes.
        one_example_a_row: whether each row is one example, whatever it holds.
        row_layout: form of a label in loaded rows and users' files: a class id or number of the row, a number for
            each of its classes, or another form.
        key_columns: columns that identify a row's stored outputs, in addition to the texts.
        needed_texts: how many of the first text columns every row has to fill; None: all.
        becomes: terms of methods that mean another one here, by `compare`; None: nothing, so that they are
            left out.
        group_column: the column of a batch whose equal numbers mark rows of one group, such as
            the candidates of one query; None if each row is separate.
        candidates: reads scores of candidates from its models' outputs; None without candidates.
        distilled_by: the recommended method if none is named.
        split_columns: optional columns of a loaded split that `results` reads in addition to texts and
            labels.
        scoring_columns: columns of an encoded split that only `results` reads: they never reach a batch.
        ordered: whether its classes are ordered from low to high by their ids.
        over_vocabulary: whether the logits are over a vocabulary, of which a teacher's may be kept in part.
    """

    summary: ClassVar[str]
    auto: ClassVar[Any]
    label_names: ClassVar[tuple[str, ...]] = ("labels",)
    extra_columns: ClassVar[tuple[str, ...]] = ()
    heads: ClassVar[frozenset[str]] = frozenset()
    weighs_classes: ClassVar[bool] = False
    classes_as_text: ClassVar[bool] = False
    generates: ClassVar[bool] = False
    rows_without_labels: ClassVar[bool] = False
    language_model: ClassVar[bool] = False
    problem_type: ClassVar[str | None] = None
    constant: ClassVar[bool] = False
    reads: ClassVar[Reading] = TEXT_READING
    whole_text: ClassVar[bool] = False
    embeds: ClassVar[bool] = False
    one_example_a_row: ClassVar[bool] = True
    row_layout: ClassVar[Literal["one label", "several labels", "own"]] = "own"
    key_columns: ClassVar[tuple[str, ...]] = ()
    needed_texts: ClassVar[int | None] = None
    becomes: ClassVar[Mapping[str, str | None]] = MappingProxyType({})
    group_column: ClassVar[str | None] = None
    candidates: ClassVar[CandidateReading | None] = None
    distilled_by: ClassVar[str] = "kd"
    split_columns: ClassVar[tuple[str, ...]] = ()
    scoring_columns: ClassVar[tuple[str, ...]] = ()
    ordered: ClassVar[bool] = False

    # ---- a head's outputs and classes ----

    def outcomes(self, outputs: int, *, exclusive: bool = True) -> float:
        """Number of outcomes of the logits of a head with this many outputs: an example's classes, `inf` for a
        vocabulary, 0 for none.

        Args:
            outputs: of the head.
            exclusive: count only mutually exclusive outcomes; otherwise also classes of which several may apply.
        """
        return 0

    def is_number(self, outputs: int) -> bool:
        """Whether a head with this many outputs gives one number for an example."""
        return False

    def weighs(self, outputs: int) -> bool:
        """Whether the labels' loss of such a head can count its classes by weights."""
        return self.weighs_classes and not self.is_number(outputs)

    def class_names(self, names: Sequence[str]) -> tuple[str, ...]:
        """The class names among the names of a head's outputs; () if it does not choose a class."""
        return ()

    def problem_of(self, regression: bool) -> str | None:
        """transformers' name for the objective of a head of complete examples; None for other heads."""
        return self.problem_type

    def over_classes(self, loss: Tensor, classes: int) -> Tensor:
        """A soft label of this many classes as a mean over them."""
        return loss / classes

    def regresses(self, task: rules.Labelled) -> bool:
        """Whether the head gives a number for each example."""
        return self.constant and task.regression

    def class_ids(self, task: rules.Labelled, values: Sequence[Any]) -> np.ndarray:
        """Labels or predictions as class ids (n,), one for each row or word; a name that is no class is the last id."""
        flat = [
            item for value in values for item in (value if isinstance(value, list) else [value])
        ]
        known = {name: number for number, name in enumerate(task.labels)}
        none = len(task.labels)
        return np.array(
            [known.get(item, none) if isinstance(item, str) else item for item in flat],
            dtype=np.int64,
        )

    def row_classes(self, task: rules.Labelled) -> tuple[str, ...]:
        """The classes that a row's label names, one or several; () for numbers, tags and answers."""
        return task.labels if self.labels_examples else ()

    @property
    def labels_texts(self) -> bool:
        """Whether rows are texts with a label each: a class, several of them, or a number."""
        return self.labels_examples and self.reads.in_columns

    def answers(self, other: "TaskType") -> bool:
        """Whether models of this type can answer rows of another as well as of their own."""
        return self.name == other.name

    def shown_texts(self, task: rules.TaskLike, rows: Dataset) -> dict[str, Sequence[Any]] | None:
        """The text columns of loaded rows, to show next to predictions; None if texts have no label."""
        if not self.labels_texts:
            return None
        return {name: rows[name][:] for name in task.text_columns}

    def compared_texts(
        self, task: rules.TaskLike, rows: Mapping[str, Sequence[Any]]
    ) -> list[list[tuple[str, ...]]]:
        """The texts of each row to look up among other rows: all together, or each separately."""
        return [[texts] for texts in zip(*self.texts(task, rows), strict=True)]

    def written_label(self, task: rules.Labelled, label: Any) -> Any:
        """A loaded label as a file of one's own has it: a class's name, several of them, a number; None for none."""
        known = type(label) is int and 0 <= label < len(task.labels)
        return task.labels[label] if known else label

    def file_labels(
        self, task: rules.TaskLike, outputs: np.ndarray, of: rules.ScoredSplit
    ) -> tuple[list[Any], Any]:
        """A model's predictions as the labels of a user's file, and their `datasets` type.

        Args:
            task: with the classes, and the model's decision rule for them (`decided_by`).
            outputs: the model's, as evaluation keeps them.
            of: the rows that they are about.
        """
        feature = Value("float64") if task.regression else ClassLabel(names=list(task.labels))
        return self.labels_of_outputs(task, outputs), feature

    def labels_of_outputs(self, task: rules.Labelled, outputs: np.ndarray) -> list[Any]:
        """Labels, as a label column has them, of a head's numbers (n, 1) or its classes' probabilities (n, C).

        Args:
            task: with the classes.
            outputs: of complete examples. Where several classes may hold, each does from ½ on.
        """
        if task.regression:
            return outputs.reshape(-1).tolist()
        found: list[Any] = outputs.argmax(axis=1).tolist()
        return found

    def logits_from(self, probabilities: np.ndarray) -> np.ndarray:
        """Logits of which a row's classes have these probabilities (n, C)."""
        found: np.ndarray = np.log(probabilities)
        return found

    def counted_logits(self, batch: rules.Batch, logits: np.ndarray) -> Any:
        """Index of the logits of a batch that count, without padding."""
        mask = batch.get("attention_mask")
        if logits.ndim < 3 or mask is None or mask.shape != logits.shape[:2]:
            return slice(None)
        return mask.numpy().astype(bool)

    def tuned(self, task: Any, thresholds: Any) -> Any:
        """The task with thresholds to be tuned or given; None where no outputs are decided by any."""
        return None

    @property
    def continues_texts(self) -> bool:
        """Whether predictions are texts that continue a row, and not classes in words."""
        return self.generates and not self.classes_as_text

    def keeps_labels(self, task: rules.TaskLike) -> bool:
        """Whether rows that teach without labels are read with them all the same."""
        return self.classes_as_text or task.label_column in task.text_columns

    def need_labels(self, task: Any, rows: Dataset, setting: str = "") -> None:
        """Raise LimbeckError for training rows without a label where every example needs one to be read.

        Args:
            task: whose rows they are.
            rows: loaded ones.
            setting: whose rows they are, as `first_stage: `.
        """

    def decided_by(self, task: Any, config: PretrainedConfig) -> Any:
        """The task with the rule in a model's configuration for turning outputs into classes."""
        return task

    def ship_with(self, config: PretrainedConfig, task: rules.TaskLike) -> None:
        """Write into a student's configuration the facts of its training that its users need."""

    @property
    def repeats(self) -> bool:
        """Whether an example is read and answered alike in every epoch."""
        return self.constant and not self.resampled

    @property
    def taught_labels(self) -> bool:
        """Whether unlabeled training rows get a teacher's labels, because this type cannot train without."""
        return no_unlabelled(self) is not None and not self.rows_without_labels

    @property
    def encodes_in_turn(self) -> bool:
        """Whether rows may be encoded batch by batch: each is one text, and the same in every epoch."""
        return self.repeats and self.reads is TEXT_READING and self.one_example_a_row

    def results_of_classifier(self, task: Any, outputs: np.ndarray, rows: Dataset) -> rules.Results:
        """As `results_of_rows`, of a plain classifier's logits (n, C), or numbers (n, 1), in the models' place."""
        return self.results_of_rows(task, outputs, rows)

    @property
    def has_label_loss(self) -> bool:
        """Whether there are labels to learn from."""
        return self.becomes.get("hard_label", "") is not None

    @property
    def labels_examples(self) -> bool:
        """Whether a label is of a complete example: a class, several of them, or a number."""
        return self.row_layout != "own"

    @property
    def scored_by_rows(self) -> bool:
        """Whether a score needs a label of each row: not of each word, and of no list that is ranked."""
        alone = self.candidates is None and not self.rows_without_labels
        return alone and self.labels_examples and self.reads.in_columns

    @property
    def resampled(self) -> str:
        """What of an example is another in every epoch of training, in words; "" for nothing."""
        return ""

    def viewed(self, crop: int | None, flip: bool) -> "TaskType":
        """The type of a task whose training images are cropped and mirrored so; text is as it is."""
        return self

    def scored_length(self, max_length: int) -> int:
        """Tokens that are read of a row that is scored, where training reads `max_length`."""
        return max_length

    def of_model(self, config: PretrainedConfig) -> "TaskType":
        """The type as a model with this configuration reads its rows."""
        return self

    def of_teacher(self, config: PretrainedConfig) -> "TaskType":
        """The type by which a teacher with this configuration reads the examples: this one, unless it answers them in
        another way."""
        return self

    @property
    def stored_as(self) -> "TaskType":
        """The type as of which outputs are stored that teach the examples: this one, unless they answer other rows."""
        return self

    def asked_texts(
        self, task: rules.TaskLike, rows: Mapping[str, Sequence[Any]], *, alone: bool = False
    ) -> AskedTexts | None:
        """Whose stored outputs teach the examples of some rows; None for the rows' own.

        Args:
            alone: the outputs are of each text separately, as embeddings are.
        """
        return None

    def task_fields(self, task: rules.TaskLike) -> dict[str, Any]:
        """What changes of a known task that is read as one of this type.

        Raises:
            LimbeckError: it cannot be.
        """
        return {}

    def agreement_metrics(self, task: rules.TaskLike) -> tuple[str, ...]:
        """The metrics that compare predictions with a teacher's, the primary one first."""
        return ("agreement",)

    # ---- models ----

    @property
    def scored_at_once(self) -> int:
        """Examples in a batch that is scored: few where each token has logits over a vocabulary."""
        return 8 if self.over_vocabulary else 64

    @property
    def usual_pick(self) -> str:
        """The rule by which a student's layers are picked where none is named."""
        return "skip" if self.whole_text else "first"

    def student_config(self, config: PretrainedConfig) -> PretrainedConfig:
        """The configuration of a student of this type, from the one it starts from."""
        return config

    def claims(self, config: PretrainedConfig) -> bool:
        """Whether a saved model is of this type by more than its class's name."""
        return False

    def disown(self, config: PretrainedConfig) -> PretrainedConfig:
        """The configuration without what this type claims it by."""
        return config

    # ---- rows ----

    @abstractmethod
    def features(self, task: rules.TaskLike) -> dict[str, Any]:
        """The `datasets` types of the text columns and the label column of a loaded split."""

    def label_feature(self, task: rules.TaskLike) -> Any:
        """The `datasets` type of an encoded row's labels; None where it is left to what `encode` gives."""
        return None

    @abstractmethod
    def encode(
        self, task: rules.TaskLike, tokenizer: Processor, max_length: int, rows: rules.Rows
    ) -> rules.Rows:
        """Encode some rows (with `index`): a batch's inputs, labels, and the column `CUT`.

        Rows without the label column come out without labels.
        """

    def texts(self, task: rules.TaskLike, rows: Mapping[str, Sequence[Any]]) -> list[list[str]]:
        """The text columns as plain text: one list a column."""
        return [list(rows[column]) for column in task.text_columns]

    def lengths_of(self, tokenizer: Processor, columns: Sequence[list[str]]) -> list[int]:
        """Tokens of rows by their texts, one list a column; special tokens included, nothing truncated."""
        special = tokenizer.num_special_tokens_to_add(pair=len(columns) == 2)
        encoded = [tokenizer(texts, add_special_tokens=False, verbose=False) for texts in columns]
        each = (map(len, one["input_ids"]) for one in encoded)
        return [special + sum(row) for row in zip(*each, strict=True)]

    def groups_of(
        self, task: rules.TaskLike, rows: Mapping[str, Sequence[Any]]
    ) -> np.ndarray | None:
        """Group number of each loaded row, (n,); None without groups."""
        return None

    def spread_rows(self, task: rules.TaskLike, rows: Dataset, wanted: int) -> Dataset:
        """About this many rows, evenly spaced, that can be scored separately."""
        count = min(wanted, len(rows))
        return rows.select(np.linspace(0, len(rows) - 1, count).round().astype(int).tolist())

    def check_rows(self, task: rules.TaskLike, rows: Dataset) -> list[str]:
        """Errors in loaded labels, in words; empty if there are no errors."""
        return []

    # ---- batches ----

    def pad_labels(
        self, rows: list[dict[str, Any]], tokenizer: Processor, width: int
    ) -> dict[str, Tensor]:
        """The columns that no tokenizer pads, taken out of `rows`, as tensors `width` wide."""
        return {}

    def draw(
        self, batch: dict[str, Tensor], tokenizer: Processor, seed: int, epoch: int
    ) -> dict[str, Tensor]:
        """The batch as it looks in an epoch: training counts from 1, 0 is evaluation.

        A function of its arguments alone.
        """
        return batch

    # ---- losses ----

    def head_labels(self, task: rules.Labelled) -> tuple[str, ...] | None:
        """Names of the head's outputs in id order; None where the vocabulary decides them."""
        return None

    @abstractmethod
    def hard_label(
        self, logits: Tensor, batch: rules.Batch, rule: rules.HardRule = rules.PLAIN
    ) -> Tensor:
        """The labels' loss, a float32 scalar: per example first, then over the labelled ones of the batch.

        0 if no row has a label, with a gradient of 0. Only a type that `weighs_classes` is given
        another rule than the plain one.
        """

    def balanced_weights(self, labels: rules.Labels, classes: int) -> Tensor | None:
        """Weights (C,) by which all classes count alike, by the encoded label column of the training rows; None where
        classes have no weights."""
        return None

    @abstractmethod
    def soft_label(
        self, student: Tensor, teacher: Tensor, batch: rules.Batch, rule: rules.SoftRule
    ) -> Tensor:
        """The student's distribution against the teacher's, where the labels' loss looks too."""

    def places(self, batch: rules.Batch) -> Tensor | None:
        """Which places of logits (B, N, C) count, (B, N); None where each example has one row of logits.

        Raises LimbeckError for a batch without labels, if they are needed for this.
        """
        return None

    over_vocabulary: ClassVar[bool] = False

    def soft_label_of_tokens(
        self, student: Tensor, teacher: PartialLogits, batch: rules.Batch, rule: rules.SoftRule
    ) -> Tensor:
        """As `soft_label`, for the stored part of the teacher's distribution over a vocabulary.

        Raises:
            LimbeckError: the type has no vocabulary.
        """
        raise LimbeckError(f"tokens: task type {self.name} has no vocabulary", "leave it out")


TASK_TYPES: Registry[TaskType] = Registry("kind")
"""One object of each type of task, by the name that a recipe's `kind` has for it."""

Type = TypeVar("Type", bound=type[TaskType])


def task_type(name: str) -> Callable[[Type], Type]:
    """A class decorator that makes a type of task known: a recipe's `kind: name`.

    Args:
        name: the value of `kind` in a recipe.

    Example:
        ```python
        @limbeck.task_type("lower-case")
        class LowerCase(limbeck.tasks.classes.Sentence): ...  # with `texts`: docs/extending.md
        ```

    Raises:
        LimbeckError: the class leaves out something that a task type must define, or the name is
            another type's.
    """

    def known(found: Type) -> Type:
        lacking = sorted(getattr(found, "__abstractmethods__", ()))
        if not issubclass(found, TaskType) or lacking:
            raise LimbeckError(
                f"task type {name!r}: {found.__name__} is no complete limbeck.tasks.TaskType"
                + (f", it lacks {', '.join(lacking)}" if lacking else ""),
                "inherit from it, or from a similar type, and add the missing parts",
            )
        found.name = name
        TASK_TYPES.register(name)(found())
        return found

    return known


# All types of task by name, and the type a model's head is of.


_SEVERAL = "multi_label_classification"


def get_task_type(name: str) -> TaskType:
    """The type of that name; raises LimbeckError with the nearest name if it does not exist."""
    return TASK_TYPES.get(name, "kind")


def task_type_of(model: PreTrainedModel) -> TaskType:
    """The type of a model's head; by default sentence classification.

    Raises:
        LimbeckError: several labels for inputs other than text, which no task type has.
    """
    problem = getattr(model.config, "problem_type", None)
    found = _by_class(type(model).__name__, problem)
    claimed = _claimed(model.config)
    headless = "For" not in type(model).__name__
    if claimed is not None and (headless or claimed.auto is found.auto):
        return claimed
    if problem == _SEVERAL and found.row_layout != "several labels":
        raise LimbeckError(
            f"a {type(model).__name__} of several labels a row ({problem}) is of no task type",
            "use single-label classification or regression, or a model of texts",
        )
    return found


def kind_of_config(config: PretrainedConfig) -> TaskType:
    """The type of the head a saved model had; classification where the configuration names none."""
    names = getattr(config, "architectures", None) or [""]
    by_class = _by_class(names[0], getattr(config, "problem_type", None))
    return _claimed(config) or by_class


def _claimed(config: PretrainedConfig) -> TaskType | None:
    """The type that a configuration marks by more than a class's name."""
    return next((one for one in map(TASK_TYPES.get, TASK_TYPES) if one.claims(config)), None)


def _by_class(name: str, problem: str | None) -> TaskType:
    """By the classes that a type names as its heads, otherwise by how its AutoModel's classes end.

    Among several types with one head, the one of that problem, otherwise one without a problem type.
    """
    types = [TASK_TYPES.get(known) for known in TASK_TYPES]
    named = [one for one in types if name in one.heads]
    ending = [one for one in types if name.endswith(_ending(one))]
    found = [*named, *ending] or [one for one in types if one.auto is types[0].auto]
    of_problem = [one for one in found if problem is not None and one.problem_type == problem]
    others = [one for one in found if one.problem_type is None]
    return next(iter((*of_problem, *others)), TASK_TYPES.get("sentence"))


@cache
def _ending(task_type: TaskType) -> str:
    return str(task_type.auto.__name__).removeprefix("AutoModel")


# Rows without a label: which task types may train on them, and how a label column marks them. A class
# id is −100 without a label, and a number NaN (with several labels per row, each of them), in
# loaded rows, in encoded ones and in batches alike.


class TaskOfKind(rules.TaskLike, Protocol):
    """A task with its type."""

    @property
    def kind(self) -> TaskType:
        """Its type."""


def absent_label(task: TaskOfKind) -> float | int | list[float]:
    """The value in the label column of an unlabeled row."""
    if task.kind.row_layout == "several labels":
        return [float("nan")] * len(task.labels)
    return float("nan") if task.regression else NO_LABEL


def marked(task: TaskOfKind, labels: Iterable[Any]) -> list[Any]:
    """Class ids or numbers as a column holds them, from a list with None for unlabeled rows."""
    absent = absent_label(task)
    return [absent if label is None else label for label in labels]


def labelled_rows(labels: Any) -> np.ndarray:
    """Which rows have a label, (n,) of bool, by a loaded or encoded label column of class ids or numbers,
    or of a number for each class (n, C)."""
    values = np.asarray(labels)
    known = ~np.isnan(values) if values.dtype.kind == "f" else values != NO_LABEL
    found: np.ndarray = known if known.ndim == 1 else known.all(axis=1)
    return found


class NoUnlabelled(NamedTuple):
    """Why rows without labels are no part of a task type's training rows, in words, and what to do with them."""

    why: str
    instead: str


def no_unlabelled(kind: TaskType) -> NoUnlabelled | None:
    """Why a task type cannot mix unlabeled rows with labeled ones; None if it can."""
    if kind.rows_without_labels:
        return NoUnlabelled("its rows need no labels", "give these rows with the others: --data")
    if not kind.reads.in_columns:
        return NoUnlabelled(
            f"{kind.reads.noun}s are read from folders that are their labels",
            "put these files into the folders of their classes",
        )
    if kind.classes_as_text:
        return NoUnlabelled(
            "its decoder reads the label's word in every step, of a soft label too",
            "give them labels first (limbeck predict)",
        )
    if not kind.labels_examples:
        return NoUnlabelled(
            "where its losses look is known from the labels",
            "give them labels first (limbeck predict)",
        )
    return None
