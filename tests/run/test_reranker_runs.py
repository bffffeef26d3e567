"""Rerankers from candidates in files to a student that sentence-transformers scores as limbeck does."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, BertForSequenceClassification

import kind_models as tiny
import tiny_runs
from limbeck import label
from limbeck.data.row_ids import row_ids
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.run.in_place import open_outputs
from limbeck.run.prepare import prepare
from limbeck.run.rows import load_rows
from limbeck.scoring import evaluate, evaluation_of
from limbeck.scoring.evaluation import compare_runs
from limbeck.students import build_student
from limbeck.support.errors import LimbeckError
from limbeck.tasks import PAIR_SCORE, task_type_of
from limbeck.training import DistillationConfig, DistillationTrainer

WORDS = ["ann", "annabelle", "lee", "saw", "the", "cat", "and", "in", "."]


def candidates(count: int, seed: int) -> list[dict]:
    """Queries with four to six passages, of which those about rome are relevant."""
    generator = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        query = " ".join([*generator.choice(WORDS, 3), *WORDS[: number % 7]])
        size = int(generator.integers(4, 7))
        passages = [" ".join(generator.choice(WORDS, 4)) + f" {word}" for word in WORDS[:size]]
        relevant = set(generator.permutation(size)[: 1 + number % 2].tolist())
        passages = [
            f"rome {text}" if place in relevant else text for place, text in enumerate(passages)
        ]
        labels = [float(place in relevant) for place in range(size)]
        rows.append({"query": f"{query} {seed}{number}", "passages": passages, "labels": labels})
    return rows


def write(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("reranker")
    (folder / "data").mkdir()
    write(folder / "data/train.jsonl", candidates(24, 1))
    write(folder / "data/dev.jsonl", candidates(12, 2))
    config = tiny.model("spans", layers=3).config
    config.num_labels = 1
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        BertForSequenceClassification(config).save_pretrained(folder / "model")
    tiny.tokenizer().save_pretrained(folder / "model")
    return folder


def recipe(place: Path, method: str, **changes) -> Recipe:
    given = {"kind": "pair-score", "task": "own", "data": str(place / "data"), "epochs": 2,
             "batch_size": 12, "max_length": 32, "lr": 5e-3, "seed": 3}  # fmt: skip
    return Recipe.load(method, **given | changes)


@pytest.fixture(scope="module")
def teacher(place):
    given = recipe(place, "finetune", epochs=6, **{"student.init": str(place / "model")})
    return distill(given, out=place / "teacher", report=False)


def taught(place, teacher, method: str, **changes) -> Recipe:
    two = {"student.init": "teacher", "student.layers": 2, "teacher": str(teacher.path)}
    return recipe(place, method, **two | changes)


@pytest.fixture(scope="module")
def student(place, teacher):
    return distill(taught(place, teacher, "listwise-kl"), out=place / "student")


def test_a_teacher_learns_what_is_relevant(teacher) -> None:
    assert teacher.scores["dev"].keys() == {"ndcg@10", "mrr@10", "primary"}
    assert teacher.scores["dev"]["primary"] == teacher.scores["dev"]["ndcg@10"] > 85


@pytest.mark.slow
def test_the_shipped_student_is_a_model_and_a_cross_encoder(place, student) -> None:
    """sentence-transformers' own evaluator comes to the scores of the record."""
    from sentence_transformers import CrossEncoder
    from sentence_transformers.cross_encoder.evaluation import CrossEncoderRerankingEvaluator

    shipped = student.path / "student"
    plain = AutoModelForSequenceClassification.from_pretrained(shipped)
    assert plain.config.num_hidden_layers == 2 and plain.config.num_labels == 1
    assert task_type_of(plain) is PAIR_SCORE
    samples = [
        {
            "query": row["query"],
            "positive": [p for p, y in zip(row["passages"], row["labels"], strict=True) if y],
            "negative": [p for p, y in zip(row["passages"], row["labels"], strict=True) if not y],
        }
        for row in candidates(12, 2)
    ]
    model = CrossEncoder(str(shipped), device="cpu")
    theirs = CrossEncoderRerankingEvaluator(samples, at_k=10, write_csv=False)(model)
    for name in ("ndcg@10", "mrr@10"):
        assert student.scores["dev"][name] == pytest.approx(100 * theirs[name], abs=1e-3)
    pairs = [(row["query"], passage) for row in candidates(12, 2) for passage in row["passages"]]
    answers = json.loads((student.path / "predictions.json").read_text())["dev"]
    # No sigmoid in between.
    np.testing.assert_allclose(model.predict(pairs), answers["prediction"], atol=1e-4)


@pytest.mark.slow
def test_it_is_tested_against_its_teacher_over_queries(place, teacher, student) -> None:
    found, kept = student.record.row_tests["dev"], student.record.kept
    gap = student.scores["dev"]["ndcg@10"] - teacher.scores["dev"]["ndcg@10"]
    assert (found.rows, found.unit, found.mcnemar) == (12, "queries", None)
    assert found.difference.difference == pytest.approx(gap)
    assert (kept.rows, kept.unit, kept.paired) == (12, "queries", True)
    assert "paired bootstrap over 12 queries" in (student.path / "report.html").read_text("utf-8")
    assert evaluation_of(student.path).row_tests == found
    two = compare_runs(student.path, teacher.path)
    assert two.agreement is None and two.tests == found


def test_scored_again_it_has_the_same_scores(student) -> None:
    assert evaluate(student.path) == pytest.approx(student.scores["dev"])


def test_rows_in_which_nothing_can_be_ranked_have_no_score(teacher, tmp_path) -> None:
    """One candidate a query is always the first: they scored 100."""
    alone = [row | {"passages": row["passages"][:1], "labels": [1.0]} for row in candidates(12, 3)]
    with pytest.raises(LimbeckError, match="each of 12 queries has one candidate"):
        evaluate(teacher.path, data=str(write(tmp_path / "alone.jsonl", alone)))


@pytest.mark.parametrize("method", [pytest.param("kd", marks=pytest.mark.slow), "rail-kd-l"])
@pytest.mark.slow
def test_methods_of_other_task_types_rank_as_well(place, teacher, tmp_path, method) -> None:
    run = distill(taught(place, teacher, method, epochs=1), out=tmp_path / "run", report=False)
    assert 0 < run.scores["dev"]["mrr@10"] <= 100
    assert all(np.isfinite(value) for value in run.record.epochs[0].train.values())


@pytest.mark.parametrize("kills", [[("epoch_end", 8), ("save", 12)]], ids=str)
@pytest.mark.slow
def test_killed_and_continued_it_ends_as_unbroken(place, teacher, tmp_path, monkeypatch, kills):
    given = taught(place, teacher, "margin-mse", candidates=4, checkpoint_steps=3)
    unbroken = distill(given, out=tmp_path / "unbroken", report=False)
    for kill in kills:

        def build(*args, kill=kill, **kwargs):
            trainer = DistillationTrainer(*args, **kwargs)
            trainer.add_callback(tiny_runs.Kill(*kill))
            return trainer

        with monkeypatch.context() as patched:
            patched.setattr("limbeck.run.train.DistillationTrainer", build)
            with pytest.raises(tiny_runs.KilledError):
                distill(given, out=tmp_path / "run", report=False)
    again = distill(given, out=tmp_path / "run", report=False)
    for file in ("student/model.safetensors", "predictions.json"):
        assert (again.path / file).read_bytes() == (unbroken.path / file).read_bytes()
    ours, theirs = again.record.epochs, unbroken.record.epochs
    assert [(e.train, e.dev) for e in ours] == [(e.train, e.dev) for e in theirs]


def test_stored_scores_teach_as_their_teacher_does(place, teacher, tmp_path) -> None:
    """A file of candidates with a teacher's scores, and no labels beside them."""
    model = AutoModelForSequenceClassification.from_pretrained(teacher.path / "student").eval()
    words, stored = tiny.tokenizer(), []
    for row in candidates(24, 1):
        texts = [row["query"]] * len(row["passages"]), row["passages"]
        with torch.no_grad():
            scores = model(**words(*texts, padding=True, return_tensors="pt")).logits[:, 0]
        stored.append({**row, "labels": None, "scores": scores.tolist()})
    (tmp_path / "data").mkdir()
    file = write(tmp_path / "data/train.jsonl", stored)
    (tmp_path / "data/dev.jsonl").write_bytes((place / "data/dev.jsonl").read_bytes())
    changes = {"epochs": 1, "student.init": str(place / "model"), "student.layers": 2}
    live = taught(place, teacher, "listwise-kl", **changes)
    ours = recipe(place, "listwise-kl", outputs=[str(file)], data=str(tmp_path / "data"), **changes)
    runs = [
        distill(given, out=tmp_path / name, report=False)
        for name, given in (("live", live), ("stored", ours))
    ]
    # What is added to all scores has a gradient of 0 but for rounding, of which Adam makes steps of any size.
    terms = [run.record.epochs[0].train["list"] for run in runs]
    assert terms[1] == pytest.approx(terms[0], rel=1e-4)
    first, second = (
        np.array(json.loads((run.path / "predictions.json").read_text())["dev"]["prediction"])
        for run in runs
    )
    np.testing.assert_allclose(second - second.mean(), first - first.mean(), atol=1e-4)


@pytest.mark.parametrize("foreign", [False, True])
def test_a_labelled_file_of_candidates_is_a_store_and_a_table_that_teach(
    place, teacher, tmp_path, foreign
) -> None:
    """Candidates in lists go in as they are; a cross-encoder that nobody marked answers with scores too."""
    model = AutoModelForSequenceClassification.from_pretrained(teacher.path / "student").eval()
    shipped = model
    if foreign:
        shipped = BertForSequenceClassification(PAIR_SCORE.disown(model.config))
        shipped.load_state_dict(model.state_dict())
    shipped.save_pretrained(tmp_path / "scorer")
    words = tiny.tokenizer()
    words.save_pretrained(tmp_path / "scorer")
    store = label(
        tmp_path / "scorer", place / "data", out=tmp_path / "store", to=tmp_path / "scores.jsonl"
    )
    assert store.kind == ("sentence" if foreign else "pair-score")
    pairs = [
        (row["query"], text)
        for rows in (candidates(12, 2), candidates(24, 1))
        for row in rows
        for text in row["passages"]
    ]
    with torch.no_grad():
        encoded = words(*map(list, zip(*pairs, strict=True)), padding=True, return_tensors="pt")
        scores = model(**encoded).logits[:, 0].numpy()
    lines = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    assert [(line["query"], line["passage"]) for line in lines] == pairs
    np.testing.assert_allclose([line["score"] for line in lines], scores, atol=1e-5)
    # Training finds every row in both, and dev's scores are those of the teacher's own run.
    given = recipe(place, "listwise-kl")
    task, splits = load_rows(given)
    for place_of_outputs in (tmp_path / "store", tmp_path / "scores.jsonl"):
        outputs = open_outputs(str(place_of_outputs), task, given)
        outputs.check_known(row_ids([splits["train"][name][:] for name in task.text_columns]))
        ids = row_ids([splits["dev"][name][:] for name in task.text_columns])
        found = PAIR_SCORE.results_of_rows(task, outputs.logits(ids), splits["dev"])
        assert found.scores == pytest.approx(teacher.scores["dev"])


def test_a_batch_holds_whole_queries(place, teacher) -> None:
    prepared = prepare(taught(place, teacher, "listwise-kl"))
    from limbeck.run.check import query_problems

    found = query_problems(prepared)
    sizes = [len(row["passages"]) for row in candidates(24, 1)]
    assert len(found) <= 1 and all(problem.severity == "warning" for problem in found)
    assert [len([*rows]) for _, rows in groupby(prepared.train.encoded["query_id"])] == sizes
    few = query_problems(prepare(taught(place, teacher, "listwise-kl", batch_size=4)))
    assert "are not in one batch" in few[0].message


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"candidates": 20}, "candidates: 20, and batches have 12 rows"),
        ({"labelled_share": 0.5}, "labelled_share"),
        ({"method": "dist"}, "dist compares classes"),
    ],
)
def test_what_does_not_fit_is_said_before_the_first_step(place, teacher, tmp_path, changes, said):
    given = taught(place, teacher, changes.pop("method", "listwise-kl"), **changes)
    with pytest.raises(LimbeckError, match=said):
        distill(given, out=tmp_path / "run", report=False)


def test_candidates_of_rows_that_are_none(tmp_path, place) -> None:
    rows = tiny_runs.write_csv(tmp_path / "rows.csv", 30, regression=True)
    given = Recipe.load(
        "finetune", data=str(rows), task="own", text_columns=["review"], label_column="verdict",
        candidates=4, max_length=24, **{"student.init": str(place / "model")},
    )  # fmt: skip
    with pytest.raises(LimbeckError, match="no candidates of queries"):
        distill(given, out=tmp_path / "run", report=False)


@pytest.mark.slow
def test_a_cross_encoder_of_sentence_transformers_teaches(place, tmp_path) -> None:
    """Release 6 lists the modules of cross-encoders too, which are no embedding model's."""
    from sentence_transformers import CrossEncoder

    theirs = CrossEncoder(str(place / "model"), num_labels=1, device="cpu")
    theirs.save_pretrained(str(tmp_path / "theirs"))
    assert (tmp_path / "theirs" / "modules.json").exists()
    given = recipe(
        place, "listwise-kl", teacher=str(tmp_path / "theirs"), max_steps=1, kind="pair-score"
    )
    run = distill(given, out=tmp_path / "run", report=False)
    assert task_type_of(run.student) is PAIR_SCORE


@pytest.mark.slow
def test_a_foreign_student_is_marked_when_it_is_built(teacher) -> None:
    plain = PAIR_SCORE.disown(teacher.student.config)
    foreign = BertForSequenceClassification(plain)
    args = DistillationConfig("out", method="listwise-kl", report_to="none", use_cpu=True)
    with pytest.raises(LimbeckError, match="PAIR_SCORE"):
        DistillationTrainer(build_student(foreign, layers=1), foreign, args)
    marked = build_student(foreign, layers=1, kind=PAIR_SCORE)
    assert DistillationTrainer(marked, foreign, args).kind is PAIR_SCORE


def test_the_shipped_student_reads_as_many_tokens_as_its_scores_are_of(place, tmp_path) -> None:
    """Of passages longer than that, sentence-transformers comes to the run's own scores."""
    from sentence_transformers import CrossEncoder

    rows = [
        {**row, "passages": [f"{text} " * 5 for text in row["passages"]]}
        for row in candidates(8, 3)
    ]
    for split in ("train", "dev"):
        write(tmp_path / f"{split}.jsonl", rows)
    given = {"data": str(tmp_path), "max_length": 16, "max_steps": 1}
    start = {"student.init": str(place / "model")}
    run = distill(recipe(place, "finetune", **given, **start), out=tmp_path / "run", report=False)
    pairs = [(row["query"], passage) for row in rows for passage in row["passages"]]
    answers = json.loads((run.path / "predictions.json").read_text())["dev"]
    theirs = CrossEncoder(str(run.path / "student"), device="cpu").predict(pairs)
    np.testing.assert_allclose(theirs, answers["prediction"], atol=1e-4)
