"""A tag for every word: named entities and the like, scored by complete entities. Part of `limbeck.tasks`.

A word may be cut into several pieces; its first piece carries the tag, the others carry no label
(Devlin et al. 2019, §5.3). Entities are counted as CoNLL-2003's own script counts them (`seqeval`):
right only with both ends and the type right.
"""

import math
import operator
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import transformers
from datasets import ClassLabel, Dataset, List, Value
from seqeval import metrics as entities
from seqeval.metrics.sequence_labeling import get_entities
from torch import Tensor

from limbeck import functional as F
from limbeck.activations.compat import TOKEN_CLASSIFIERS
from limbeck.functional import labelled_positions
from limbeck.functional.labels import NO_LABEL
from limbeck.functional.partial_logits import PartialLogits, partial_soft_label
from limbeck.support.errors import Problem
from limbeck.tasks import metrics, modality, rules
from limbeck.tasks.abstract_type import TASK_TYPES, TaskType, task_type
from limbeck.tasks.classes import balanced_over

# Task types with labels at positions of a text: tags, masked tokens, target words.


class LabelledPositions(TaskType):
    """A class, or a word of the vocabulary, at every position whose label is not −100."""

    def outcomes(self, outputs: int, *, exclusive: bool = True) -> float:
        """Words of a vocabulary; tags are not of an example."""
        return math.inf if self.over_vocabulary else 0

    def targets(self, batch: rules.Batch) -> Tensor:
        """Target of the logits of each position, (B, N); −100 for none.

        Raises LimbeckError for a batch without labels.
        """
        rules.need_labels(batch, self.label_names)
        return batch["labels"]

    def pad_labels(
        self, rows: list[dict[str, Any]], tokenizer: modality.Processor, width: int
    ) -> dict[str, Tensor]:
        """Labels (B, width), padded with −100 on the side where the ids are padded; empty for unlabeled rows."""
        if "labels" not in rows[0]:
            return {}
        labels = [row.pop("labels") for row in rows]
        left = tokenizer.padding_side == "left"
        return {"labels": rules.pad_column(labels, width, NO_LABEL, left=left)}

    def places(self, batch: rules.Batch) -> Tensor:
        """The labelled ones."""
        return self.targets(batch) != NO_LABEL

    def hard_label(
        self, logits: Tensor, batch: rules.Batch, rule: rules.HardRule = rules.PLAIN
    ) -> Tensor:
        """Cross-entropy of logits (B, N, C) over each example's labelled positions."""
        return F.token_cross_entropy(logits, self.targets(batch), **rule._asdict())

    def soft_label(
        self, student: Tensor, teacher: Tensor, batch: rules.Batch, rule: rules.SoftRule
    ) -> Tensor:
        """The two sides' distributions at each example's labelled positions."""
        distance = F.token_soft_kl if rule.compare == "soft_kl" else F.token_soft_cross_entropy
        return distance(student, teacher, self.places(batch), **rule.at)

    def soft_label_of_tokens(
        self, student: Tensor, teacher: PartialLogits, batch: rules.Batch, rule: rules.SoftRule
    ) -> Tensor:
        """The student's distribution against the stored part of the teacher's, at the labeled positions."""
        kl = rule.compare == "soft_kl"
        distance = labelled_positions.divergences if kl else labelled_positions.cross_entropies
        return partial_soft_label(
            student, teacher, self.places(batch), distance=distance, **rule.at
        )


_ENTITY_SCORES = {
    "f1": entities.f1_score,
    "precision": entities.precision_score,
    "recall": entities.recall_score,
}
_USUAL_TAG = re.compile(r"O|[BIES]-.+")
_MARK = re.compile(r"([BILUES])(?:[-_](.+))?", re.IGNORECASE)
# Last and Unit of BILOU are End and Single of IOBES.
_SAME_MARK = {"L": "E", "U": "S"}
ONE_TYPE = "entity"
"""Type of all entities where tags name none: B, I, O."""
OUTSIDE = "O"
_WORDS = "words"
"""The column that holds, for each labelled piece in order, which word it begins."""


def metrics_for_tags(tags: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Metrics and primary score: entity F1 if tags mark entities (`entity_tags`), otherwise accuracy."""
    if entity_tags(tags) is not None:
        return ("f1", "precision", "recall", "accuracy"), "f1"
    return ("accuracy",), "accuracy"


def entity_tags(tags: Sequence[str]) -> tuple[str, ...] | None:
    """Spell tags that mark entities as IOBES does (B-, I-, E-, S-, O); None where they mark none.

    Beside IOB and IOBES: BILOU, small letters, an underscore for the hyphen, and B, I, O without a type. Where tags are
    spelled in one of these ways an "O" is among them: other tags (parts of speech) may look like a few of them.
    """
    if all(_USUAL_TAG.fullmatch(tag) for tag in tags):
        return tuple(tags)
    outside = [tag for tag in tags if tag.upper() == OUTSIDE]
    found = [_MARK.fullmatch(tag) for tag in tags if tag not in outside]
    marks = [one for one in found if one is not None]
    typed = {one[2] is not None for one in marks}
    if not outside or len(marks) < len(found) or len(typed) != 1:
        return None
    if typed == {False} and not {one[1].upper() for one in marks} & {"B", "I"}:
        return None
    return tuple(OUTSIDE if tag in outside else _as_iobes(tag) for tag in tags)


def _as_iobes(tag: str) -> str:
    found = _MARK.fullmatch(tag)
    assert found is not None
    mark = found[1].upper()
    return f"{_SAME_MARK.get(mark, mark)}-{found[2] or ONE_TYPE}"


def said_of_tags(tags: Sequence[str]) -> Problem:
    """Say before a run how a user's own tags are scored."""
    entities_of = entity_tags(tags)
    if entities_of is not None:
        types = sorted({tag.partition("-")[2] for tag in entities_of} - {""})
        return Problem(
            f"tags mark entities of {len(types)} types ({', '.join(types[:8])}): complete entities are scored (F1)",
            "",
            "note",
        )
    return Problem(
        f"tags: {len(tags)} tags that mark no entities ({', '.join(tags[:8])}): words are scored (accuracy)",
        "entities are marked by B-TYPE, I-TYPE and O (also BILOU, IOBES, or B, I and O alone), in every tag",
        "note",
    )


@task_type("tokens")
class Tokens(LabelledPositions):
    """Token classification."""

    summary = "a tag for every word; scored by complete entities"
    auto = transformers.AutoModelForTokenClassification
    heads = TOKEN_CLASSIFIERS
    scoring_columns = (_WORDS,)
    weighs_classes = True

    def class_names(self, names: Sequence[str]) -> tuple[str, ...]:
        """The tags."""
        return tuple(names)

    def features(self, task: rules.TaskLike) -> dict[str, Any]:
        """A list of words, and as many tag ids."""
        return {
            task.text_columns[0]: List(Value("string")),
            task.label_column: List(ClassLabel(names=list(task.labels))),
        }

    def texts(self, task: rules.TaskLike, rows: Mapping[str, Sequence[Any]]) -> list[list[str]]:
        """The words joined by spaces."""
        return [[" ".join(words) for words in rows[task.text_columns[0]]]]

    def check_rows(self, task: rules.TaskLike, rows: Dataset) -> list[str]:
        """Rows whose words and tags differ in number, and tags the task does not know."""
        words, tags = rows[task.text_columns[0]][:], rows[task.label_column][:]
        uneven = sum(len(w) != len(t) for w, t in zip(words, tags, strict=True))
        known = range(len(task.labels))
        strange = sorted({tag for row in tags for tag in row if tag not in known})
        wrong = []
        if uneven:
            wrong.append(f"{uneven} of {len(rows)} rows have not as many tags as words")
        if strange:
            wrong.append(f"tags that are not 0..{len(task.labels) - 1}: {strange[:5]}")
        return wrong

    def encode(
        self, task: rules.TaskLike, tokenizer: modality.Processor, max_length: int, rows: rules.Rows
    ) -> rules.Rows:
        """Words come as lists; the first piece of each word carries its tag."""
        encoded = modality.encode_cut(
            tokenizer, rows[task.text_columns[0]], max_length=max_length, is_split_into_words=True
        )
        columns = rules.columns_of(encoded, rows)
        if task.label_column not in rows:
            return columns
        columns["labels"], columns[_WORDS] = [], []
        for row, tags in enumerate(rows[task.label_column]):
            pieces = encoded.word_ids(row)
            firsts = [
                word if word is not None and word != before else None
                for before, word in pairwise([None, *pieces])
            ]
            columns["labels"].append([NO_LABEL if w is None else tags[w] for w in firsts])
            columns[_WORDS].append([word for word in firsts if word is not None])
        return columns

    def agreement_metrics(self, task: rules.TaskLike) -> tuple[str, ...]:
        """The overlap of entities, where tags mark some, and the share of equal tags."""
        entities = task.labels and entity_tags(task.labels) is not None
        return ("overlap", "agreement") if entities else ("agreement",)

    def head_labels(self, task: rules.Labelled) -> tuple[str, ...]:
        """The tags."""
        return task.labels

    def balanced_weights(self, labels: rules.Labels, classes: int) -> Tensor:
        """By the number of words with each tag."""
        return balanced_over(np.array([tag for row in labels for tag in row], np.int64), classes)

    def compact_outputs(
        self, model: transformers.PreTrainedModel, batch: rules.Batch, logits: Tensor
    ) -> Tensor:
        """The likeliest tag of each labelled position in order, then −100."""
        valid = self.targets(batch) != NO_LABEL
        tags = logits.argmax(-1).masked_fill(~valid, NO_LABEL)
        # Labeled ones first, in their order: then it does not matter on which side padding is.
        order = torch.argsort((~valid).int(), dim=1, stable=True)
        return tags.gather(1, order)

    def results(
        self, task: rules.TaskLike, outputs: np.ndarray, of: rules.ScoredSplit
    ) -> rules.Results:
        """Entity F1, precision and recall, and tag accuracy."""
        right = [list(tags) for tags in of.rows[task.label_column]]
        given = self._tags(task, outputs, of)
        kept = {"index": of.encoded["index"][:], "prediction": given, "label": right}
        return rules.Results(_scores(task, given, right), kept)

    def _tags(
        self, task: rules.TaskLike, outputs: np.ndarray, of: rules.ScoredSplit
    ) -> list[list[int]]:
        """The tag of every word; "O" of one beyond the length limit (the first tag, where the task has no "O")."""
        spelled = entity_tags(task.labels) or task.labels
        outside = spelled.index(OUTSIDE) if OUTSIDE in spelled else 0
        given = [[outside] * len(words) for words in of.rows[task.text_columns[0]]]
        for row, (words, found) in enumerate(zip(of.encoded[_WORDS], outputs, strict=True)):
            for word, tag in zip(words, found.tolist(), strict=False):
                given[row][word] = tag
        return given

    def file_labels(
        self, task: rules.TaskLike, outputs: np.ndarray, of: rules.ScoredSplit
    ) -> tuple[list[Any], Any]:
        """A tag for every word."""
        return self._tags(task, outputs, of), self.features(task)[task.label_column]

    def sampled_score(
        self, task: rules.TaskLike, metric: str, kept: rules.Kept
    ) -> metrics.SampledScore | None:
        """Tag accuracy, and entity F1: 2 hits over the predicted and the right entities."""
        rows = [*zip(kept["prediction"], kept["label"], strict=True)]
        names = entity_tags(task.labels) or task.labels
        if metric == "accuracy":
            hits = [sum(map(operator.eq, given, right)) for given, right in rows]
            return metrics.ratio_of_sums(hits, [len(right) for _, right in rows])
        if metric != "f1":
            return None
        found = [[{*get_entities([names[tag] for tag in tags])} for tags in row] for row in rows]
        hits = [2 * len(given & right) for given, right in found]
        return metrics.ratio_of_sums(hits, [len(given) + len(right) for given, right in found])

    def baseline(self, task: rules.TaskLike, labels: rules.Labels) -> tuple[float, str]:
        """Every word with one tag: no entity anywhere, or each word an entity of one type."""
        rules.need_rows(task, labels)
        right = [list(tags) for tags in labels]
        scores = [
            (_scores(task, [[tag] * len(tags) for tags in right], right)["primary"], name)
            for tag, name in enumerate(task.labels)
        ]
        return max(scores, key=lambda entry: entry[0])


def _scores(
    task: rules.TaskLike, given: list[list[int]], right: list[list[int]]
) -> dict[str, float]:
    pairs = [pair for rows in zip(given, right, strict=True) for pair in zip(*rows, strict=True)]
    scores = {"accuracy": 100 * sum(a == b for a, b in pairs) / max(len(pairs), 1)}
    if metrics.plain_metric(task.primary) != "accuracy":
        spelled = entity_tags(task.labels) or task.labels
        names = [[[spelled[tag] for tag in row] for row in side] for side in (right, given)]
        for metric, score in _ENTITY_SCORES.items():
            scores[metric] = 100 * float(score(*names, zero_division=0))
    if metrics.is_agreement(task.primary):
        return metrics.as_agreement(scores, task.metrics)
    return scores | {"primary": scores[task.primary]}


TOKENS = TASK_TYPES.get("tokens")
