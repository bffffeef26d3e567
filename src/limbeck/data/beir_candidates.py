"""A folder in BEIR's layout as queries with candidates: what was judged, and passages that share words with it.

Part of `limbeck.data`. Grades name little but what is relevant, and a reranker learns from what only looks so. The
nearest passages by TF-IDF stand beside what was judged.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy import sparse

from limbeck.data.beir_files import RetrievalSet, beir_splits, read_beir
from limbeck.support.errors import LimbeckError

NEAREST = 20
"""Passages beside what was judged of a query: the nearest by TF-IDF that were not judged."""
_SPLITS = ("train", "dev", "test")
_AT_ONCE = 256

Columns = tuple[list[str], list[str], list[float]]


def read_beir_pairs(folder: Path, max_rows: int) -> dict[str, Columns]:
    """By split queries, passages and grades, a row a pair; what was not judged has grade 0.

    Raises:
        LimbeckError: as `read_beir`; there is none of the splits.
    """
    found = beir_splits(folder)
    known = [split for split in _SPLITS if split in found]
    if not known:
        raise LimbeckError(
            f"{folder} has qrels of {', '.join(found)}",
            f"name the files {', '.join(f'{split}.tsv' for split in _SPLITS)}",
        )
    return {split: _pairs(read_beir(folder, split, max_rows)) for split in known}


def _pairs(found: RetrievalSet) -> Columns:
    ids = [*found.corpus]
    near = nearest([*found.queries.values()], [*found.corpus.values()], NEAREST)
    queries: list[str] = []
    passages: list[str] = []
    grades: list[float] = []
    for (query, text), places in zip(found.queries.items(), near, strict=True):
        judged = _with_candidates(found.qrels[query], [ids[place] for place in places])
        # Passages of other ids may have one text; the first, which was judged, speaks for it.
        texts: dict[str, float] = {}
        for passage, grade in judged.items():
            texts.setdefault(found.corpus[passage], grade)
        queries += [text] * len(texts)
        passages += texts
        grades += texts.values()
    return queries, passages, grades


def _with_candidates(judged: dict[str, float], near: list[str]) -> dict[str, float]:
    return judged | {name: 0.0 for name in near if name not in judged}


def nearest(queries: list[str], corpus: list[str], count: int) -> np.ndarray:
    """Places of the passages with the greatest cosine of TF-IDF to each query, (queries, count or fewer)."""
    # Here and not at the top: slow to import, and few runs read such folders.
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = TfidfVectorizer(sublinear_tf=True, dtype=np.float32)
    passages = words.fit_transform(corpus)
    asked = sparse.csr_matrix(words.transform(queries))
    kept = min(count, len(corpus))
    found = []
    for start in range(0, len(queries), _AT_ONCE):
        scores = (asked[start : start + _AT_ONCE] @ passages.T).toarray()
        found.append(np.argsort(-scores, axis=1, kind="stable")[:, :kept])
    return np.concatenate(found)
