"""What the students of `embeddings.py` find: MRPC's pairs as queries and passages.

A query is the first sentence of a dev pair that people call a paraphrase, relevant to it is the second one, and the
corpus holds the second sentences of all dev pairs and both sentences of all test pairs. None of these sentences was
trained on but where MRPC has one in its training file too.

    python benchmarks/embedding_retrieval.py --data GLUE_DIR --work DIR   # scores the students that lie in DIR
    python benchmarks/embedding_retrieval.py [--markdown]                 # prints what is kept
    python benchmarks/embedding_retrieval.py --data GLUE_DIR --overlap    # passages that are trained on

A difference is mean nDCG@10 of a method's students less that of the embedding MSE's at the same depth, over the seeds
that both have; its interval and p are as in `embeddings_table.py`.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from embeddings import BASELINE, METHODS, drawn_sentences
from embeddings_table import mean_text, p_text, place_of, text_of
from limbeck.data import RowsAsked
from limbeck.evaluation.compare import Comparison, holm, seeds_and_rows
from limbeck.records.record import read_raw
from limbeck.scoring import ScoredModel
from limbeck.students import resolve_checkpoint
from limbeck.support.files import write_whole
from study import RECORDS, records_of

KEPT = RECORDS / "embedding_retrieval.json"
TEACHER = "teacher"
TRAINED = 12_000
HEADINGS = (
    "layers", "learns by", "nDCG@10", "MRR@10", "seeds", "% of the teacher's", "against embedding MSE (95 %)",
    "p (Holm)",
)  # fmt: skip


def make_folder(data: Path, folder: Path) -> None:
    """Write queries, corpus and judgements in BEIR's layout, if they are not there."""
    if (folder / "qrels" / "dev.tsv").exists():
        return
    dev, test = (_pairs(data / "MRPC" / f"{split}.tsv") for split in ("dev", "test"))
    others = [*(second for _, second, _ in dev), *(text for one in test for text in one[:2])]
    corpus = {text: f"p{number}" for number, text in enumerate(dict.fromkeys(others))}
    queries: dict[str, str] = {}
    judged = []
    for first, second, label in dev:
        if label != "1":
            continue
        query = queries.setdefault(first, f"q{len(queries)}")
        judged.append((query, corpus[second]))
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for name, texts in (("queries", queries), ("corpus", corpus)):
        lines = [json.dumps({"_id": number, "text": text}) for text, number in texts.items()]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    rows = ["query-id\tcorpus-id\tscore", *(f"{q}\t{p}\t1" for q, p in dict.fromkeys(judged))]
    (folder / "qrels" / "dev.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")


def _pairs(path: Path) -> list[tuple[str, str, str]]:
    """First and second sentence, and the label (of a test file the row's number)."""
    with path.open(encoding="utf-8-sig", newline="") as stream:
        rows = csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
        next(rows)
        return [(row[3].strip(), row[4].strip(), row[0]) for row in rows]


def overlap(data: Path) -> tuple[int, int, int]:
    """Count the passages, those in MRPC's training file, and those that the students learned from."""
    with tempfile.TemporaryDirectory() as place:
        make_folder(data, Path(place))
        lines = (Path(place) / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    passages = {json.loads(line)["text"] for line in lines}
    train = {text for one in _pairs(data / "MRPC" / "train.tsv") for text in one[:2]}
    return len(passages), len(passages & train), len(passages & {*drawn_sentences(data, TRAINED)})


def measure(work: Path, folder: Path) -> None:
    """Score the teacher and every student with a record that lies in `work` and has no score yet."""
    kept = read_kept()
    for name in (TEACHER, *read_raw(records_of("embeddings"))):
        model = work / name if name == TEACHER else work / name / "student"
        if name in kept or not (model / "config.json").is_file():
            continue
        scored = ScoredModel.open(resolve_checkpoint(model))
        results = scored.score(scored.rows(RowsAsked(data=str(folder), split="dev"))).results
        kept[name] = {
            "scores": {key: round(value, 3) for key, value in results.scores.items()},
            "by_query": [round(value, 4) for value in results.predictions["prediction"]],
        }
        write_whole(KEPT, json.dumps(kept) + "\n")
        print(f"{name}: {kept[name]['scores']['ndcg@10']:.2f}", flush=True)


def read_kept() -> dict[str, Any]:
    """Student (its cell's name) → its scores, and by query its nDCG@10, of 1."""
    return json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.is_file() else {}


def rows(kept: dict[str, Any]) -> list[tuple[str, ...]]:
    """The table's cells, line by line."""
    methods = {name: one["method"] for name, one in read_raw(records_of("embeddings")).items()}
    found: dict[tuple[int, str], dict[int, Any]] = {}
    for name, one in kept.items():
        place = place_of(name)
        if place is not None:
            (layers, _, _), seed = place
            found.setdefault((layers, methods[name]), {})[seed] = one
    names = list(METHODS)
    order = sorted(found, key=lambda key: (-key[0], names.index(key[1])))
    tested = {
        key: _compared(found[key], found[key[0], BASELINE])
        for key in order
        if key[1] != BASELINE and found[key].keys() & found.get((key[0], BASELINE), {}).keys()
    }
    twins = {key: same for key in tested for same in tested if found[same] == found[key]}
    corrected = holm(
        {key: one.p for key, one in tested.items() if one.p is not None and twins[key] == key}
    )
    corrected |= {key: corrected[twins[key]] for key in tested if twins[key] in corrected}
    teacher = kept[TEACHER]["scores"]
    top = (
        "6",
        "the teacher",
        f"{teacher['ndcg@10']:.2f}",
        f"{teacher['mrr@10']:.2f}",
        "–",
        "100",
        "–",
        "–",
    )
    return [
        top,
        *(_row(key, found[key], teacher, tested.get(key), corrected.get(key)) for key in order),
    ]


def _compared(own: dict[int, Any], others: dict[int, Any]) -> Comparison:
    """The difference in points of nDCG@10, its interval, and p: seeds and queries both vary."""
    seeds = sorted(own.keys() & others.keys())
    gaps = np.array(
        [
            100 * (np.array(own[seed]["by_query"]) - np.array(others[seed]["by_query"]))
            for seed in seeds
        ]
    )
    by_query = gaps.mean(axis=0)
    return seeds_and_rows(gaps.mean(axis=1), (by_query.sum() - by_query) / (len(by_query) - 1))


def _row(
    key: tuple[int, str],
    runs: dict[int, Any],
    teacher: dict[str, float],
    result: Comparison | None,
    p: float | None,
) -> tuple[str, ...]:
    scores = [one["scores"]["ndcg@10"] for one in runs.values()]
    return (
        str(key[0]),
        key[1],
        mean_text(scores),
        f"{mean(one['scores']['mrr@10'] for one in runs.values()):.2f}",
        str(len(scores)),
        f"{100 * mean(scores) / teacher['ndcg@10']:.1f}",
        text_of(result),
        p_text(p),
    )


def markdown(lines: list[tuple[str, ...]]) -> str:
    """As the docs have it."""
    marks = ("---:", ":---", "---:", "---:", "---:", "---:", "---:", "---:")
    return "\n".join("| " + " | ".join(row) + " |" for row in (HEADINGS, marks, *lines))


def main() -> None:
    """Score what a folder holds, if one is named, then print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="GLUE folder")
    parser.add_argument("--work", type=Path, help="where embeddings.py made its students")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--overlap", action="store_true")
    args = parser.parse_args()
    if args.overlap and args.data is not None:
        passages, train, learned = overlap(args.data)
        print(f"of {passages:,} passages {train} are in MRPC's training file, {learned} trained on")
        return
    if args.work is not None and args.data is not None:
        folder = args.work.resolve() / "mrpc-retrieval"
        make_folder(args.data, folder)
        measure(args.work.resolve(), folder)
    lines = rows(read_kept())
    if args.markdown:
        print(markdown(lines))
        return
    table = Table(*HEADINGS, title="Sentence embedders: paraphrases found among MRPC's sentences")
    for line in lines:
        table.add_row(*line)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
