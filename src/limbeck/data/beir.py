"""Queries, a corpus and what of it is relevant, in BEIR's layout. Part of `limbeck.data`.

A folder holds `queries.jsonl` and `corpus.jsonl`, an object a line with `_id` and `text` (of the corpus also a
`title`, which may be empty), and `qrels/SPLIT.tsv` with a header line and the columns query-id, corpus-id, score
(Thakur et al. 2021).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from limbeck.data.table import read_table
from limbeck.support.errors import LimbeckError, Problem, raise_problems

QUERIES, CORPUS, QRELS = "queries.jsonl", "corpus.jsonl", "qrels"
_COLUMNS = ("query-id", "corpus-id", "score")
NEAREST = 20
"""Passages for a query in addition to the judged ones: the nearest by TF-IDF that were not judged."""
_SPLITS = ("train", "dev", "test")
_AT_ONCE = 256

Grades = dict[str, dict[str, float]]
"""By query the grades of the passages that were judged, 0 for not relevant."""
Pairs = tuple[list[str], list[str], list[float]]
"""Queries, passages and grades, one row per pair."""


@dataclass(frozen=True)
class RetrievalSet:
    """One split of a folder.

    `queries`: text by id, for judged queries of the split. `corpus`: by id title and text in one. `qrels`: their
    grades.
    """

    queries: Mapping[str, str]
    corpus: Mapping[str, str]
    qrels: Grades


def is_beir(path: Path) -> bool:
    """Whether a folder looks like one of these."""
    return path.is_dir() and any((path / name).exists() for name in (QUERIES, CORPUS, QRELS))


def beir_splits(folder: Path) -> list[str]:
    """Which splits a folder judges, in alphabetical order.

    Raises:
        LimbeckError: a file of the layout is missing, all that are in one list.
    """
    splits = sorted(file.stem for file in (folder / QRELS).glob("*.tsv"))
    missing = [name for name in (QUERIES, CORPUS) if not (folder / name).is_file()]
    missing += [] if splits else [f"{QRELS}/SPLIT.tsv"]
    fix = f"a folder in BEIR's layout holds {QUERIES}, {CORPUS} and {QRELS}/train.tsv, dev.tsv or test.tsv"
    if missing:
        raise LimbeckError([Problem(f"{folder} has no {name}", fix) for name in missing])
    return splits


def scored_splits(folder: Path, found: Mapping[str, Any], *, alone: bool = True) -> dict[str, Any]:
    """Choose the splits of a folder that are scored: dev and test.

    Args:
        folder: for the message.
        found: rows by split, without train.
        alone: whether test is dev where there is no other.

    Raises:
        LimbeckError: there is neither.
    """
    if not found:
        raise LimbeckError(
            f"{folder} has no qrels/dev.tsv and no qrels/test.tsv to score a student on",
            "add one of them",
        )
    return {"dev": found["test"]} if alone and [*found] == ["test"] else {**found}


def read_beir(folder: Path, split: str) -> RetrievalSet:
    """One split's queries, the corpus and the grades.

    Args:
        folder: in BEIR's layout.
        split: the name of a file of `qrels`.

    Raises:
        LimbeckError: a file is missing or has another layout, an id occurs twice, or the grades name a query
            or a passage that does not exist.
    """
    splits = beir_splits(folder)
    if split not in splits:
        raise LimbeckError(
            f"{folder} has no {QRELS}/{split}.tsv", f"splits that are there: {', '.join(splits)}"
        )
    queries = _texts(folder / QUERIES)
    corpus = _texts(folder / CORPUS)
    place = folder / QRELS / f"{split}.tsv"
    qrels = _grades(place)
    strange = {
        QUERIES: [query for query in qrels if query not in queries],
        CORPUS: [one for judged in qrels.values() for one in judged if one not in corpus],
    }
    problems = [
        Problem(
            f"{place}: {len(ids)} ids are not in {name}, the first {ids[0]!r}",
            "remove those lines, or add the missing ids",
        )
        for name, ids in strange.items()
        if ids
    ]
    raise_problems(problems)
    return RetrievalSet({query: queries[query] for query in qrels}, corpus, qrels)


def _texts(path: Path) -> dict[str, str]:
    """Text by id, behind a title where there is one."""
    table = read_table(path)
    table.need(["_id", "text"])
    fix = 'write {"_id": "q1", "text": "…"}, one object per line, ids as text'
    names = [name for name in ("_id", "title", "text") if name in table.columns]
    found: dict[str, str] = {}
    columns = (table.texts(name, fix=fix) for name in names)
    for row, (name, *parts) in enumerate(zip(*columns, strict=True), start=1):
        if name in found:
            raise LimbeckError(f"{path}, row {row}: the id {name!r} occurs twice", "remove one")
        found[name] = " ".join(parts).strip()
        if not found[name]:
            raise LimbeckError(f"{path}, row {row}: {name!r} has no text", "fill the gap")
    return found


def _grades(path: Path) -> Grades:
    table = read_table(path)
    table.need(_COLUMNS)
    queries, passages = (table.texts(name) for name in _COLUMNS[:2])
    scores = table.numbers(_COLUMNS[2], fix="expected a number, 0 or more")
    found: Grades = {}
    for row, (query, passage, grade) in enumerate(zip(queries, passages, scores, strict=True), 1):
        judged = found.setdefault(query, {})
        if passage in judged:
            raise LimbeckError(
                f"{path}, row {row}: {passage!r} is judged twice for query {query!r}",
                "take one out",
            )
        # TREC marks passages that are worse than not relevant with numbers below 0.
        judged[passage] = max(grade, 0.0)
    return found


# ---- as pairs to train on ----


def read_beir_pairs(folder: Path) -> dict[str, Pairs]:
    """Return judged pairs by split, and passages that share words with the query, with grade 0.

    Most grades name relevant passages only, and a reranker learns from passages that only look relevant.

    Raises:
        LimbeckError: as `read_beir`; the folder contains no split.
    """
    found = beir_splits(folder)
    known = [split for split in _SPLITS if split in found]
    if not known:
        raise LimbeckError(
            f"{folder} has qrels of {', '.join(found)}",
            f"name the files {', '.join(f'{split}.tsv' for split in _SPLITS)}",
        )
    return {split: _pairs(read_beir(folder, split)) for split in known}


def _pairs(found: RetrievalSet) -> Pairs:
    ids = [*found.corpus]
    near = nearest([*found.queries.values()], [*found.corpus.values()], NEAREST)
    pairs: Pairs = ([], [], [])
    for (query, text), places in zip(found.queries.items(), near, strict=True):
        judged = found.qrels[query]
        candidates = judged | {ids[place]: 0.0 for place in places if ids[place] not in judged}
        # Passages of other ids may have one text; the first, which was judged, speaks for it.
        texts: dict[str, float] = {}
        for passage, grade in candidates.items():
            texts.setdefault(found.corpus[passage], grade)
        pairs[0].extend([text] * len(texts))
        pairs[1].extend(texts)
        pairs[2].extend(texts.values())
    return pairs


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
