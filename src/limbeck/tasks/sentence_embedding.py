"""One vector for a sentence, compared by the cosine or the inner product. Part of `limbeck.tasks`.

Training rows are sentences, taken one by one, of which a teacher's embeddings are all there is to know; or tuples of a
query, a passage that belongs to it, and passages that do not. A text is an example, and knows its tuple. A scored pair
(STS) is two examples, which meet again in `results`; of a task of retrieval each text is one, a query or a passage.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from datasets import Dataset, Value
from torch import Tensor
from transformers import PretrainedConfig

from limbeck import embedding
from limbeck import functional as F
from limbeck.embedding.embedder import WAYS
from limbeck.embedding.folder import BARE, COSINE, SENTENCE, DenseModule, set_modules
from limbeck.support.errors import LimbeckError
from limbeck.tasks import metrics, modality, pair_score, retrieval, rules
from limbeck.tasks.abstract_type import TASK_TYPES, TaskType, task_type
from limbeck.tasks.candidates import (
    EMBEDDED,
    GRADE,
    QUERY_ID,
    UNGRADED,
    AskedTexts,
    TextOfRow,
    asked_alone,
    asked_pairs,
    texts_of_rows,
)


@task_type("embedding")
@dataclass(frozen=True)
class Embedding(TaskType):
    """Sentence embeddings, learned from a teacher's and scored by the similarity of pairs, or by retrieval.

    `models` reads checkpoints; `width` gives the student a linear map to this many numbers, shipped with it; `prompts`
    are prefixes of texts, in training and scored rows alike. `max_tokens` are read of texts that are
    scored, and by the shipped student; None: as many as of training rows. `similarity` compares two embeddings.
    """

    models: embedding.SentenceEmbedders = embedding.SENTENCE_EMBEDDERS
    width: int | None = None
    prompts: embedding.TextPrompts = BARE
    max_tokens: int | None = None
    similarity: str | None = None

    summary = "an embedding for a sentence; scored by the correlation with similarities (STS), or by retrieval"
    # transformers' Trainer scores batches that have labels; of a sentence nothing is known but its number.
    label_names = ("index",)
    constant = True
    embeds = True
    usual_pick = "upper"
    rows_without_labels = True
    one_example_a_row = False
    needed_texts = 1
    extra_columns = (QUERY_ID, GRADE)
    group_column = QUERY_ID
    candidates = EMBEDDED
    distilled_by = "embedding-mse"
    split_columns = (retrieval.JUDGED, retrieval.GRADES, metrics.TEACHER_EMBEDDING)
    scoring_columns = (rules.ROW,)
    becomes = {  # noqa: RUF012  (read-only by convention, as all traits are)
        "hard_label": None,
        "soft_cross_entropy": "embedding_mse",
        "soft_kl": "embedding_mse",
        "logit_mse": "embedding_mse",
    }

    @property
    def auto(self) -> embedding.SentenceEmbedders:
        """What loads its models."""
        return self.models

    def embedding_as(
        self,
        pooling: str | None = None,
        normalize: bool | None = None,
        width: int | None = None,
        prompts: Mapping[str, str] = rules.NO_PROMPTS,
        max_tokens: int | None = None,
        similarity: str | None = None,
    ) -> "Embedding":
        """The type of a run with these settings; None, or no prompt, leaves a model's own."""
        return replace(
            self,
            models=embedding.SentenceEmbedders(pooling, normalize),
            width=width,
            prompts=self.prompts.changed(**prompts),
            max_tokens=max_tokens or self.max_tokens,
            similarity=similarity or self.similarity,
        )

    def of_model(self, config: PretrainedConfig) -> "Embedding":
        """With the prompts, the tokens of a text and the similarity that the model has."""
        known = embedding.modules_of(config)
        if known is None:
            return self
        return replace(
            self,
            prompts=known.text_prompts,
            max_tokens=known.max_tokens,
            similarity=known.similarity,
        )

    def scored_length(self, max_length: int) -> int:
        """Length limit of the shipped student."""
        return self.max_tokens or max_length

    def of_teacher(self, config: PretrainedConfig) -> TaskType:
        """A cross-encoder reads each text together with the query of its tuple."""
        return pair_score.CROSS_ENCODED if pair_score.is_cross_encoder(config) else self

    @property
    def stored_as(self) -> TaskType:
        """Scores of a query with a passage."""
        return pair_score.PAIR_SCORE

    def asked_texts(
        self, task: rules.TaskLike, rows: Mapping[str, Sequence[Any]], *, alone: bool = False
    ) -> AskedTexts:
        """Every passage of a tuple with its query, or every text separately."""
        return asked_alone(task, rows) if alone else asked_pairs(task, rows)

    def student_config(self, config: PretrainedConfig) -> PretrainedConfig:
        """With a linear map to the student's width, where one is set, and what its texts are read and scored by."""
        known = embedding.modules_of(config) or embedding.EmbeddingModules(
            self.models.pooling or "mean", self.models.normalize is not False
        )
        if self.width is not None and (known.dense is None or known.dense.width != self.width):
            known = replace(known, dense=DenseModule(self.width))
        if self.width is not None:
            known = replace(known, truncate=None)
        known = replace(
            known,
            max_tokens=self.max_tokens or known.max_tokens,
            similarity=self.similarity or known.similarity,
        )
        set_modules(config, known.prompted(self.prompts))
        return config

    def agreement_metrics(self, task: rules.TaskLike) -> tuple[str, ...]:
        """The rank correlation of the similarities of pairs, and the mean cosine of both models' embeddings."""
        return ("rank_agreement", COSINE)

    def claims(self, config: PretrainedConfig) -> bool:
        """Whether a saved model is an embedding model."""
        names = getattr(config, "architectures", None) or ()
        return embedding.modules_of(config) is not None and not any("For" in name for name in names)

    def features(self, task: rules.TaskLike) -> dict[str, Any]:
        """Texts, all but the first of which may be empty, and the similarity of the first two, NaN if unknown."""
        texts = {column: Value("string") for column in task.text_columns}
        return texts | {task.label_column: Value("float32")}

    def texts(self, task: rules.TaskLike, rows: Mapping[str, Sequence[Any]]) -> list[list[str]]:
        """All sentences in one list."""
        return [self._prompted(texts_of_rows(task, rows))]

    def _prompted(self, found: Sequence[TextOfRow]) -> list[str]:
        """Texts as a model reads them."""
        return [getattr(self.prompts, one.kind) + one.text for one in found]

    def compared_texts(
        self, task: rules.TaskLike, rows: Mapping[str, Sequence[Any]]
    ) -> list[list[tuple[str, ...]]]:
        """Each text separately."""
        found: list[list[tuple[str, ...]]] = [[] for _ in rows[task.text_columns[0]]]
        for one in texts_of_rows(task, rows):
            found[one.place].append((one.text,))
        return found

    def check_rows(self, task: rules.TaskLike, rows: Dataset) -> list[str]:
        """Pairs with a similarity and one text."""
        scored = ~np.isnan(np.asarray(rows.with_format("numpy")[task.label_column][:]))
        alone = np.array([not text.strip() for text in rows[task.text_columns[1]][:]])
        wrong = np.flatnonzero(scored & alone)
        if not len(wrong):
            return []
        first = f"first row {wrong[0] + 1}"
        return [f"{len(wrong)} of {len(rows)} rows of pairs have one text ({first})"]

    def encode(
        self, task: rules.TaskLike, tokenizer: modality.Processor, max_length: int, rows: rules.Rows
    ) -> rules.Rows:
        """An example for each sentence; `row` names its row of the split, the other columns its role there."""
        found = texts_of_rows(task, rows)
        encoded = modality.encode_cut(tokenizer, self._prompted(found), max_length=max_length)
        columns: rules.Rows = {**encoded, rules.CUT: rules.truncated(encoded)}
        columns[rules.ROW] = [rows["index"][one.place] for one in found]
        return columns | _tuples(task, rows, found)

    def hard_label(
        self, logits: Tensor, batch: rules.Batch, rule: rules.HardRule = rules.PLAIN
    ) -> Tensor:
        """0: there are no labels."""
        return 0.0 * logits.float().sum()

    def soft_label(
        self, student: Tensor, teacher: Tensor, batch: rules.Batch, rule: rules.SoftRule
    ) -> Tensor:
        """Squared error of embeddings (B, d)."""
        return F.embedding_mse(student, teacher, weights=batch.get(rules.EXAMPLE_WEIGHTS))

    def results(
        self, task: rules.TaskLike, outputs: np.ndarray, of: rules.ScoredSplit
    ) -> rules.Results:
        """Correlations of the model's similarity of each pair with its label, times 100; and the similarity by row.

        Of a task of retrieval metrics of the ranks, by query.

        Raises:
            LimbeckError: embeddings that are not finite; rows that are no scored pairs, or not to be searched.
        """
        encoded, rows, _ = of
        rules.need_finite(task, outputs, "embeddings")
        if retrieval.retrieves(task):
            return retrieval.retrieval_results(task, outputs, rows, self.similarity or COSINE)
        right = np.asarray(rows.with_format("numpy")[task.label_column][:], dtype=np.float64)
        pairs = (
            np.asarray(encoded[rules.ROW][:]).reshape(-1, 2)
            if len(encoded) == 2 * len(rows)
            else None
        )
        if pairs is None or (pairs[:, 0] != pairs[:, 1]).any() or np.isnan(right).any():
            raise LimbeckError(
                f"task {task.name!r}: rows that are scored have to be pairs of texts with a similarity",
                "give a file with two text columns and a number for each pair (dev: FILE)",
            )
        embedded = outputs.reshape(len(rows), 2, -1).astype(np.float64)
        if task.primary in retrieval.TRANSLATION_METRICS:
            return retrieval.translation_results(embedded, rows, self.similarity or COSINE)
        given = WAYS[self.similarity or COSINE].of_pairs(embedded)
        scores = {
            name: metrics.METRICS[name](given, right)
            for name in task.metrics
            if name in metrics.METRICS
        }
        if metrics.TEACHER_EMBEDDING in rows.column_names:
            taught = np.asarray(rows[metrics.TEACHER_EMBEDDING][:], dtype=np.float64)
            # A student of another width has no numbers to compare.
            if taught.shape == embedded[:, 0].shape:
                both = np.stack([embedded[:, 0], taught], axis=1)
                scores[COSINE] = 100 * float(WAYS[COSINE].of_pairs(both).mean())
        kept = {"index": rows["index"][:], "prediction": given.tolist(), "label": right.tolist()}
        return rules.Results(scores | {"primary": scores[task.primary]}, kept)

    def sampled_units(self, task: rules.TaskLike, kept: rules.Kept) -> metrics.SampledUnits:
        """Scored pairs, or queries for retrieval: the kept rows."""
        return metrics.SampledUnits("queries" if retrieval.retrieves(task) else "pairs", kept)

    def sampled_score(
        self, task: rules.TaskLike, metric: str, kept: rules.Kept
    ) -> metrics.SampledScore | None:
        """Correlations over pairs; for retrieval the mean over queries."""
        given, right = kept["prediction"], kept["label"]
        if metric in metrics.CORRELATIONS:
            return metrics.correlation(given, right, ranks=metric == "spearman")
        by_row = retrieval.retrieves(task) or metric in retrieval.TRANSLATION_METRICS
        primary = by_row and metric == task.primary
        return metrics.ratio_of_sums(given, right) if primary else None

    def predicts_numbers(self, task: rules.TaskLike) -> bool:
        """Cosines, or how much a query finds."""
        return True

    def spread_rows(self, task: rules.TaskLike, rows: Dataset, wanted: int) -> Dataset:
        """Some pairs; for retrieval some queries with their judged passages, and other passages."""
        if not retrieval.retrieves(task):
            return super().spread_rows(task, rows, wanted)
        return rows.select(retrieval.some_retrieval_rows(rows, wanted))

    def baseline(self, task: rules.TaskLike, labels: rules.Labels) -> tuple[float, str]:
        """A constant has no correlation with anything, and finds next to nothing."""
        rules.need_rows(task, labels)
        return 0.0, "one similarity for all"


def _tuples(
    task: rules.TaskLike, rows: Mapping[str, Sequence[Any]], sentences: Sequence[TextOfRow]
) -> rules.Rows:
    """The tuple of each sentence, and its role there: query, relevant or irrelevant passage.

    Rows whose first two texts have a similarity are tuples, and queries with unjudged passages. Other
    sentences are alone, by numbers below 0.
    """
    index = rows["index"]
    labels = rows.get(task.label_column) or [math.nan] * len(index)
    width = len(task.text_columns)
    numbers, grades = [], []
    for place, number, _, kind in sentences:
        judged, asks = not math.isnan(labels[place]), number == 0
        alone = kind == SENTENCE and not judged
        grade = float(number == 1) if judged else UNGRADED
        numbers.append(-1 - index[place] * width - number if alone else index[place])
        grades.append(math.nan if alone or asks else grade)
    return {QUERY_ID: numbers, GRADE: grades}


EMBEDDING = TASK_TYPES.get("embedding")
