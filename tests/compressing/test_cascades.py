"""Cascades of measured models: chosen on one half, scored on the other, their costs those of both models."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from datasets import Dataset

from limbeck.compressing import cascades as module
from limbeck.compressing.budget import Budget, Costs
from limbeck.compressing.cascades import cascades
from limbeck.compressing.front import FrontPoint
from limbeck.data import load_task
from limbeck.exporting import cascade as exporting
from limbeck.scoring.scored_model import EncodedSplit, LoadedSplit, Scored

ROWS = 400


@pytest.fixture
def halves(tmp_path, monkeypatch):
    """Rows in two halves, and what a fast and a slow model put out about them: where the fast one is unsure, it is
    right half of the time; the slow one is nearly always right."""
    chance = np.random.default_rng(0)
    found = {}
    for name in ("dev", "test"):
        labels = chance.integers(0, 2, ROWS)
        path = tmp_path / f"{name}.csv"
        lines = [f"{name} {row},{'ab'[label]}\n" for row, label in enumerate(labels)]
        path.write_text("text,label\n" + "".join(lines))
        task, splits = load_task(None, str(path), for_training=False)
        rows = splits["dev"]
        encoded = Dataset.from_dict({"labels": rows["label"][:], "index": list(range(ROWS))})
        loaded = LoadedSplit(task=task, data=str(path), name=name, rows=rows)
        split = EncodedSplit(loaded, task, encoded, None, 16)
        sure = chance.random(ROWS) < 0.6
        right = np.where(sure, chance.random(ROWS) < 0.99, chance.random(ROWS) < 0.5)
        margin = np.where(sure, 6.0, 0.5) * chance.uniform(0.5, 1, ROWS)
        slow_right = chance.random(ROWS) < 0.97
        for model, correct, margins in (
            ("fast", right, margin),
            ("slow", slow_right, np.full(ROWS, 4.0)),
        ):
            sign = np.where(correct == (labels == 1), 1, -1) * margins
            outputs = np.stack([-sign, sign], axis=1) / 2
            result = SimpleNamespace(scores={"primary": 100 * correct.mean()})
            found.setdefault(model, []).append(Scored(split, outputs, result))
    for name in ("fast", "slow"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.onnx").write_bytes(name.encode())

    def opened(path):
        folder = str(tmp_path / path)
        return exporting.ScoredModel(path, folder, "onnxruntime", SimpleNamespace())

    monkeypatch.setattr(module.ScoredModel, "open", opened)
    return found


def points(halves) -> list[FrontPoint]:
    made = []
    for name, kind, size, latency in (("fast", "student", 2e6, 0.1), ("slow", "teacher", 9e6, 2.0)):
        chosen, score = (one.results.scores["primary"] for one in halves[name])
        made.append(
            FrontPoint(
                name=name, kind=kind, precision="int8", costs=Costs(size, latency, size, size),
                chosen_on=chosen, score=score, path=name,
            )
        )  # fmt: skip
    return made


def by_a_loop(halves, threshold: float, temperature: float, half: int) -> tuple[float, float]:
    """Score and share of rows sent on, row by row."""
    correct = sent = 0
    fast, slow = (halves[name][half] for name in ("fast", "slow"))
    for row, label in enumerate(fast.split.loaded.rows["label"][:]):
        numbers = [np.exp(value / temperature) for value in fast.outputs[row]]
        answer = fast.outputs[row].argmax()
        if max(numbers) / sum(numbers) < threshold:
            sent += 1
            answer = slow.outputs[row].argmax()
        correct += answer == label
    return 100 * correct / ROWS, sent / ROWS


def test_a_cascade_costs_both_models_and_scores_on_rows_that_choose_nothing(halves, tmp_path):
    budget = Budget.parse("latency=1.2ms")
    (found,) = cascades(points(halves), halves, budget, tmp_path / "cascades")
    manifest = exporting.CascadeManifest.model_validate_json(
        (tmp_path / "cascades" / found.path.rpartition("/")[2] / "cascade.json").read_text()
    )
    member = manifest.members[0]
    _, sent = by_a_loop(halves, member.threshold, member.temperature, 0)
    score, sent_of_others = by_a_loop(halves, member.threshold, member.temperature, 1)
    assert found.score == pytest.approx(score)
    assert found.costs.latency == pytest.approx(0.1 + sent * 2.0) and found.costs.latency <= 1.2
    assert (found.costs.size, found.costs.memory, found.costs.parameters) == (11e6, 11e6, 11e6)
    assert found.fits and found.on_front and found.kind == "cascade"
    assert f"{100 * sent_of_others:.1f} %" in found.name
    # Better than the fast one alone, which alone fits.
    assert found.chosen_on > points(halves)[0].chosen_on + 5


def test_a_share_of_the_score_is_kept_by_the_fewest_rows(halves, tmp_path):
    (found,) = cascades(
        points(halves), halves, Budget.parse("size=20MB,score=97%"), tmp_path / "cascades"
    )
    least = 0.97 * points(halves)[1].chosen_on
    assert found.chosen_on >= least
    # Fewer rows sent on, by rank of the fast model's confidence, keep less.
    fast, slow = (halves[name][0] for name in ("fast", "slow"))
    labels = np.array(fast.split.loaded.rows["label"][:])
    order = np.argsort(np.abs(fast.outputs[:, 1] - fast.outputs[:, 0]))
    sent = (found.costs.latency - 0.1) / 2.0
    fewer = round(sent * ROWS) - ROWS // 100
    answers = fast.outputs.argmax(1)
    answers[order[:fewer]] = slow.outputs.argmax(1)[order[:fewer]]
    assert 100 * (answers == labels).mean() < least


@pytest.mark.parametrize("text", ["size=10MB", "latency=0.05ms", "parameters=5M,latency=1ms"])
def test_no_cascade_where_the_budget_has_no_room(halves, tmp_path, text):
    assert cascades(points(halves), halves, Budget.parse(text), tmp_path / "cascades") == []


def test_rows_that_score_choose_nothing(halves, tmp_path):
    budget = Budget.parse("latency=1.2ms")
    (first,) = cascades(points(halves), halves, budget, tmp_path / "first")
    for one in halves["slow"][1:]:
        one.outputs[:] = -one.outputs
    (second,) = cascades(points(halves), halves, budget, tmp_path / "second")
    assert (first.chosen_on, first.costs) == (second.chosen_on, second.costs)
    assert second.score < first.score - 10
