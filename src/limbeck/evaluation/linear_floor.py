"""The floor: a linear model's scores from words, on a run's own rows and labels. Part of `limbeck.evaluation`.

TF-IDF of words and pairs of words, then logistic regression (one against the rest) or ridge regression, all of
scikit-learn. A teacher that does not beat it should not be distilled, nor a student be shipped.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from datasets import Dataset
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier

from limbeck.tasks import Results, Task
from limbeck.tasks.abstract_type import labelled_rows

MOST_ROWS = 20_000
# Together about half a minute of one core: characters of training text, and features that are not zero times classes.
_MOST_CHARACTERS = 6_000_000
_MOST_WORK = 30_000_000
_LONGEST_TEXT = 10_000
_MOST_FEATURES = 100_000
# Chinese, Japanese and Korean are written without spaces: each character is a word.
_WORD = r"(?u)[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|\w+"
_STRENGTH = 10.0
_UNSEEN = 1e-9


def has_floor(task: Task) -> bool:
    """Whether the task is one of text with classes, several labels a row, or numbers."""
    return task.kind.labels_texts


@dataclass(frozen=True)
class LinearFloor:
    """A fitted linear model on TF-IDF.

    Attributes:
        task: whose rows it reads.
        vectorizer: makes features of text.
        model: of scikit-learn.
        rows: how many it was fitted on.
        given: how many rows there were.
        taught: of the rows it was fitted on, those whose labels are a teacher's.
    """

    task: Task
    vectorizer: TfidfVectorizer
    model: Any
    rows: int
    given: int
    taught: int = 0

    @property
    def cut(self) -> bool:
        """Whether it was fitted on fewer rows than there were."""
        return self.rows < self.given

    def results(self, task: Task, rows: Dataset) -> Results:
        """Scores and predictions of loaded rows, as the task's own models are scored.

        Args:
            task: the run's, with the thresholds that decide.
            rows: with labels.
        """
        return task.kind.results_of_classifier(task, self._outputs(rows), rows)

    def _outputs(self, rows: Dataset) -> np.ndarray:
        """Logits (n, C), or numbers (n, 1)."""
        features = _features(self.vectorizer, _texts(self.task, rows))
        if self.task.regression:
            return np.asarray(self.model.predict(features)).reshape(-1, 1)
        found = np.asarray(self.model.predict_proba(features))
        probabilities = np.full((len(rows), len(self.task.labels)), _UNSEEN)
        probabilities[:, self.model.classes_] = np.maximum(found, _UNSEEN)
        return self.task.kind.logits_from(probabilities)


def fit_floor(
    task: Task, rows: Dataset, seed: int, taught: Mapping[int, Any] | None = None
) -> LinearFloor | None:
    """Fit a linear model on the labeled rows, and on others by a teacher's labels.

    Args:
        task: of classes, several labels a row, or numbers.
        rows: loaded training rows.
        seed: samples rows where there are too many.
        taught: place of a row without a label → the label that its teacher gives it.

    Returns None where there is nothing to learn: no labels, a single class, or no words.
    """
    labels = np.array(rows.with_format("numpy")[task.label_column][:])
    for place, label in (taught or {}).items():
        labels[place] = label
    known = np.flatnonzero(labelled_rows(labels))
    rng = np.random.default_rng(seed)
    order = known[rng.permutation(len(known))[:MOST_ROWS]]
    texts = _texts(task, rows.select(order))
    sizes = np.cumsum(np.sum([[len(text) for text in column] for column in texts], axis=0))
    chosen = int(np.searchsorted(sizes, _MOST_CHARACTERS, side="right")) if len(order) else 0
    texts, order = [column[:chosen] for column in texts], order[:chosen]
    words = TfidfVectorizer(
        token_pattern=_WORD, ngram_range=(1, 2), sublinear_tf=True, max_features=_MOST_FEATURES
    )
    try:
        words.fit([text for column in texts for text in column])
    except ValueError:  # an empty vocabulary
        return None
    features = _features(words, texts)
    outputs = 1 if task.regression else max(len(task.labels) - (len(task.labels) == 2), 1)
    work = np.cumsum(np.diff(features.indptr)) * outputs
    chosen = int(np.searchsorted(work, _MOST_WORK, side="right"))
    features, order = features[:chosen], order[:chosen]
    if not len(order) or (chosen < len(known) and chosen < 2 * outputs):
        return None
    right = labels[order]
    if not task.regression and right.ndim == 1 and len(np.unique(right)) < 2:
        return None
    with warnings.catch_warnings():
        # A class that no row has, and steps that end before they have converged.
        warnings.simplefilter("ignore")
        model = _model(task, seed).fit(features, right)
    fitted = {*order.tolist()}
    return LinearFloor(
        task=task,
        vectorizer=words,
        model=model,
        rows=len(order),
        given=len(known),
        taught=sum(place in fitted for place in taught or ()),
    )


def _model(task: Task, seed: int) -> Any:
    if task.regression:
        return Ridge(alpha=1.0, solver="sparse_cg", random_state=seed)
    # The dual of liblinear is some fifteen times as fast on sparse text as a softmax over all classes.
    one = LogisticRegression(
        C=_STRENGTH, solver="liblinear", dual=True, max_iter=200, random_state=seed
    )
    return OneVsRestClassifier(one)


def _texts(task: Task, rows: Dataset) -> list[list[str]]:
    return [
        [(text or "")[:_LONGEST_TEXT] for text in rows[name][:]]
        for name in task.text_columns
        if name in rows.column_names
    ]


def _features(words: TfidfVectorizer, texts: Sequence[list[str]]) -> sparse.csr_matrix:
    """The TF-IDF of one text; for two texts both, their common and differing words, and their cosine."""
    parts = [words.transform(column) for column in texts]
    if len(parts) == 2:
        first, second = parts
        shared = first.multiply(second).tocsr()
        parts += [shared, abs(first - second), sparse.csr_matrix(shared.sum(axis=1))]
    return sparse.hstack(parts, format="csr")
