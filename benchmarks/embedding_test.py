"""What the students of `embeddings.py` say of STS-B's test pairs, which none of them was selected on.

GLUE's test file has the pairs without similarities. These come from a CSV file of first sentence, second sentence and
similarity in its order, without headings, as `data/stsb-en-test.csv` of github.com/PhilipMay/stsb-multi-mt; it is
refused where a sentence differs from GLUE's.

    python benchmarks/embedding_test.py --data GLUE_DIR --similarities CSV --work DIR

Resumable; two processes may work on it. `python benchmarks/embeddings_table.py --test` prints the table.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from filelock import FileLock

from embeddings import COSINES, SIMILARITIES
from limbeck.data import RowsAsked
from limbeck.lab.study import SharedRuns
from limbeck.records import write_collection
from limbeck.records.record import read_raw
from limbeck.scoring import ScoredModel
from limbeck.students import resolve_checkpoint
from study import records_of

STUDY = "embeddings_test"
TEACHER = "teacher"
PEOPLE = "people"
"""Under which the record keeps the similarities that people gave."""


def make_pairs(data: Path, similarities: Path, target: Path) -> list[float]:
    """Write GLUE's test pairs with their similarities, a table with headings, and return the similarities."""
    with (data / "STS-B" / "test.tsv").open(encoding="utf-8-sig", newline="") as stream:
        rows = csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
        next(rows)
        wanted = [(row[7].strip(), row[8].strip()) for row in rows]
    with similarities.open(encoding="utf-8", newline="") as stream:
        found = [(one.strip(), two.strip(), float(score)) for one, two, score in csv.reader(stream)]
    if [row[:2] for row in found] != wanted:
        raise SystemExit(
            f"{similarities} does not hold the sentences of {data / 'STS-B' / 'test.tsv'} in its order"
        )
    with target.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([("sentence1", "sentence2", "score"), *found])
    return [score for _, _, score in found]


def measure(work: Path, pairs: Path, similarities: list[float]) -> None:
    """Score the teacher and every student with a record that lies in `work` and has no cosines yet."""
    _keep(work, PEOPLE, {SIMILARITIES: similarities})
    for name in (TEACHER, *read_raw(records_of("embeddings"))):
        model = work / name if name == TEACHER else work / name / "student"
        if not (model / "config.json").is_file():
            continue
        with SharedRuns(work).claimed(f"test-{name}") as ours:
            if ours and name not in read_raw(records_of(STUDY)):
                scored = ScoredModel.open(resolve_checkpoint(model))
                rows = scored.rows(RowsAsked(data=str(pairs), split="dev"))
                results = scored.score(rows).results
                cosines = [round(value, 4) for value in results.predictions["prediction"]]
                _keep(work, name, {COSINES: cosines})
                print(f"{name}: {results.scores['spearman']:.2f}", flush=True)


def _keep(work: Path, name: str, record: dict[str, list[float]]) -> None:
    with FileLock(work / "records.lock"):
        path = records_of(STUDY)
        write_collection(path, (read_raw(path) if path.is_file() else {}) | {name: record})


def main() -> None:
    """Score what a folder holds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="GLUE folder")
    parser.add_argument("--similarities", type=Path, required=True, help="CSV of GLUE's test pairs")
    parser.add_argument(
        "--work", type=Path, required=True, help="where embeddings.py made its students"
    )
    args = parser.parse_args()
    work = args.work.resolve()
    pairs = work / "sts-test.csv"
    measure(work, pairs, make_pairs(args.data, args.similarities, pairs))


if __name__ == "__main__":
    main()
