"""How well a passage answers a query, as one number: cross-encoders that rerank. Part of `limbeck.tasks`.

A row is a query with one of its candidates. Rows with the same query are candidates of one another: the losses of
lists and the scores compare them among themselves, and batches hold them together. It has the head of a regression;
its outputs are taken as they are, without a sigmoid.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from hashlib import blake2b
from itertools import starmap
from typing import Any

import numpy as np
from datasets import Dataset, Value
from scipy.stats import rankdata
from torch import Tensor
from transformers import PretrainedConfig

from limbeck import functional as F
from limbeck.support.errors import LimbeckError
from limbeck.tasks import abstract_type, metrics, rules
from limbeck.tasks.candidates import QUERY_ID, SCORED, texts_of_rows
from limbeck.tasks.classes import Sentence
from limbeck.tasks.modality import Processor, encode_cut

METRICS_OF_RANKS = ("ndcg@10", "mrr@10")
QUERY = "query"
"""Of kept predictions, which are of one query's candidates: the same number."""

_MARK = "limbeck_task_type"
# What sentence-transformers' CrossEncoder reads; its own choice for one output is a sigmoid.
_CROSS_ENCODER = {"activation_fn": "torch.nn.modules.linear.Identity"}


@abstract_type.task_type("pair-score")
class PairScore(Sentence):
    """Relevance of a passage for a query."""

    summary = "how well a passage answers a query: rerankers (cross-encoders)"
    label_names = ("labels", QUERY_ID)
    extra_columns = (QUERY_ID,)
    weighs_classes = False
    whole_text = False
    usual_pick = "skip"
    group_column = QUERY_ID
    candidates = SCORED
    distilled_by = "listwise-kl"

    def task_fields(self, task: rules.TaskLike) -> dict[str, Any]:
        """None can be read so.

        Raises:
            LimbeckError: always: the rows of known tasks are no queries with candidates.
        """
        raise LimbeckError(
            f"kind: {self.name} is for queries with candidates, and the rows of task {task.name!r} have no candidates",
            "name a file of your own with queries and candidates, and another task",
        )

    def student_config(self, config: PretrainedConfig) -> PretrainedConfig:
        """With the mark that its output is a score as it is."""
        marked = deepcopy(config)
        setattr(marked, _MARK, self.name)
        marked.sentence_transformers = dict(_CROSS_ENCODER)
        return marked

    def agreement_metrics(self, task: rules.TaskLike) -> tuple[str, ...]:
        """The rank correlation within each query's candidates."""
        return ("rank_agreement",)

    def claims(self, config: PretrainedConfig) -> bool:
        """A student of this type; other cross-encoders might be a regression."""
        return getattr(config, _MARK, None) == self.name

    def disown(self, config: PretrainedConfig) -> PretrainedConfig:
        """Without that mark."""
        if not self.claims(config):
            return config
        plain = deepcopy(config)
        for name in (_MARK, "sentence_transformers"):
            delattr(plain, name)
        return plain

    def encode(
        self, task: rules.TaskLike, tokenizer: Processor, max_length: int, rows: rules.Rows
    ) -> rules.Rows:
        """As a pair of texts, with a number of the query that follows from its text."""
        columns = super().encode(task, tokenizer, max_length, rows)
        columns[QUERY_ID] = query_ids(rows[task.text_columns[0]]).tolist()
        return columns

    def groups_of(self, task: rules.TaskLike, rows: Mapping[str, Sequence[Any]]) -> np.ndarray:
        """Each row's query, as a number."""
        return query_ids(rows[task.text_columns[0]])

    def check_rows(self, task: rules.TaskLike, rows: Dataset) -> list[str]:
        """Queries with a single candidate each leave nothing to rank, and grades of 0 alone nothing to find."""
        queries = query_ids(rows[task.text_columns[0]][:])
        count = len(np.unique(queries))
        if count == len(queries):
            return [f"each of {count} queries has one candidate, so that nothing can be ranked"]
        grades = np.asarray(rows[task.label_column][:], dtype=np.float64)
        known = grades[~np.isnan(grades)]
        if len(known) and not (known > 0).any():
            return [
                f"no query of {count} has a candidate with a grade above 0, so that nothing can be found"
            ]
        return []

    def hard_label(
        self, logits: Tensor, batch: rules.Batch, rule: rules.HardRule = rules.PLAIN
    ) -> Tensor:
        """Cross-entropy of each query's candidates with shares in proportion to their grades; logits (B, 1)."""
        rules.need_labels(batch, ("labels",))
        return F.listwise_cross_entropy(
            SCORED.scores(logits, batch), SCORED.grades(batch), SCORED.queries(batch)
        )

    def file_labels(
        self, task: rules.TaskLike, outputs: np.ndarray, of: rules.ScoredSplit
    ) -> tuple[list[Any], Any]:
        """A passage's place from below among its query's passages: grades of candidates are not negative."""
        queries, scores = query_ids(of.rows[task.text_columns[0]][:]), outputs.reshape(-1)
        ranks = np.empty(len(scores))
        for query in np.unique(queries):
            ranks[queries == query] = rankdata(scores[queries == query]) - 1
        return ranks.tolist(), Value("float64")

    def results_of_rows(
        self, task: rules.TaskLike, outputs: np.ndarray, rows: Dataset
    ) -> rules.Results:
        """As `results`, of rows that need not be encoded."""
        scores = np.asarray(outputs, dtype=np.float64).reshape(-1)
        grades = np.asarray(rows[task.label_column][:], dtype=np.float64)
        rules.need_rows(task, grades)
        _check(task, scores, grades)
        queries = query_ids(rows[task.text_columns[0]][:])
        found = metrics.scores_by_query(task.metrics, scores, grades, queries)
        means = metrics.mean_scores(found, f"task {task.name!r}")
        kept = {
            "index": rows["index"][:],
            "prediction": scores.tolist(),
            "label": grades.tolist(),
            # Whose candidate each is, by small numbers.
            QUERY: np.unique(queries, return_inverse=True)[1].tolist(),
        }
        return rules.Results(means | {"primary": means[task.primary]}, kept)

    def sampled_units(self, task: rules.TaskLike, kept: rules.Kept) -> metrics.SampledUnits | None:
        """Queries with something relevant, each with the scores and grades of its candidates.

        None for predictions of an earlier version, which did not record their queries.
        """
        if QUERY not in kept:
            return None
        lists = metrics.by_query(np.asarray(kept[QUERY]))
        scores = np.asarray(kept["prediction"], dtype=np.float64)
        grades = np.nan_to_num(np.asarray(kept["label"], dtype=np.float64))
        ranked = [rows for rows in lists if (grades[rows] > 0).any()]
        by_unit = {"prediction": [scores[rows] for rows in ranked]}
        return metrics.SampledUnits(
            "queries", by_unit | {"label": [grades[rows] for rows in ranked]}
        )

    def sampled_score(
        self, task: rules.TaskLike, metric: str, kept: rules.Kept
    ) -> metrics.SampledScore | None:
        """The mean of the metric over queries, whose candidates' scores and grades are kept; also of a correlation."""
        if metric != "spearman" and not metrics.is_ranking_metric(metric):
            return None
        sides = zip(kept["prediction"], kept["label"], strict=True)
        found = np.array([*starmap(metrics.ranking_metric(metric), sides)])
        return metrics.ratio_of_sums(found, np.ones(len(found)))

    def baseline(self, task: rules.TaskLike, labels: rules.Labels) -> tuple[float, str]:
        """Whose candidates the labels are is not known here; see `baseline_of_rows`."""
        rules.need_rows(task, labels)
        return 0.0, "one score"

    def baseline_of_rows(self, task: rules.TaskLike, rows: Dataset) -> tuple[float, str]:
        """The score if all candidates tie: the mean over all orders."""
        same = self.results_of_rows(task, np.zeros(len(rows)), rows)
        return same.scores["primary"], "one score for every candidate"

    def spread_rows(self, task: rules.TaskLike, rows: Dataset, wanted: int) -> Dataset:
        """About this many rows: all candidates of evenly spaced queries."""
        if wanted >= len(rows):
            return rows
        groups = metrics.by_query(query_ids(rows[task.text_columns[0]][:]))
        count = max(1, round(len(groups) * wanted / len(rows)))
        places = np.linspace(0, len(groups) - 1, min(count, len(groups))).round().astype(int)
        return rows.select(np.sort(np.concatenate([groups[place] for place in places])).tolist())


def query_ids(queries: Sequence[str]) -> np.ndarray:
    """Numbers of queries by their texts, int64 (n,), the same in every file and split."""
    known: dict[str, int] = {}
    for text in queries:
        if text not in known:
            digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
            known[text] = int.from_bytes(digest, "big") >> 1
    return np.fromiter((known[text] for text in queries), np.int64, len(queries))


def _check(task: rules.TaskLike, scores: np.ndarray, grades: np.ndarray) -> None:
    if scores.shape != grades.shape:
        raise LimbeckError(
            f"task {task.name!r}: {len(scores)} scores of {len(grades)} candidates",
            "use a model with 1 output",
        )
    rules.need_finite(task, scores, "predictions")


PAIR_SCORE = abstract_type.TASK_TYPES.get("pair-score")


# Tuples of texts as a cross-encoder reads them, which teaches an embedding model.
#
# Where the student has a text, the teacher has the query of its tuple together with it, so that its
# one output is the score of that passage. A query alone is read too, but its score is not
# used.


_HEAD = "ForSequenceClassification"


class CrossEncodedTuples(PairScore):
    """An example for each text of a row, as of an embedding model: the row's first text and it as a pair."""

    name = "embedding (as pairs)"
    scoring_columns = (rules.ROW,)

    def encode(
        self, task: rules.TaskLike, tokenizer: Processor, max_length: int, rows: rules.Rows
    ) -> rules.Rows:
        """Pairs, in the order of the texts."""
        found = texts_of_rows(task, rows)
        queries = [rows[task.text_columns[0]][one.place] for one in found]
        passages = [one.text if one.number else "" for one in found]
        encoded = encode_cut(tokenizer, queries, passages, max_length=max_length)
        columns: rules.Rows = {**encoded, rules.CUT: rules.truncated(encoded)}
        columns[rules.ROW] = [rows["index"][one.place] for one in found]
        return columns


CROSS_ENCODED = CrossEncodedTuples()


def is_cross_encoder(config: PretrainedConfig) -> bool:
    """Whether a saved model has one output for a pair of texts."""
    names = getattr(config, "architectures", None) or [""]
    return str(names[0]).endswith(_HEAD) and config.num_labels == 1
