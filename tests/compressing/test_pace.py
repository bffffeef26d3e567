"""What a training on more rows will take, by numbers worked out by hand."""

from __future__ import annotations

from types import SimpleNamespace

from limbeck.compressing.costs import Costs
from limbeck.compressing.pace import Pace
from limbeck.compressing.shapes import StudentShape
from limbeck.compressing.trials import Candidate, Trial

ONE = Candidate(shape=StudentShape(0, width=256), precision="int8", method="kd", rate=1.0)


def a_trial(**own) -> Trial:
    """100 s on 1,000 rows in 5 epochs: 10 s of steps, 5 s of the export, 85 s of reading the vocabulary."""
    costs = Costs(size=1.0, latency=1.0, parameters=1.0, memory=1.0)
    known = {"rows": 1000, "score": 80.0, "seconds": 100.0, "fixed": 5.0, "learning": 10.0}
    return Trial(candidate=ONE, costs=costs, epochs=5.0, **known | own)


def a_pace(trial: Trial) -> Pace:
    model = SimpleNamespace(predicted=lambda shape, form: trial.costs)
    epochs = {
        "epochs": lambda shape, rows: 5.0,
        "least_epochs": lambda shape, rows: 1.0,
        "most_epochs": lambda shape, rows: 15.0,
    }
    return Pace(SimpleNamespace(model=model, **epochs), [trial])


def test_only_steps_grow_with_rows() -> None:
    # Eleven times the steps, and a millisecond for each of 10,000 further rows to be read.
    assert a_trial().expected(11_000, 5.0) == 90 + 110 + 10
    assert a_trial().expected(1000, 10.0) == 90 + 20
    assert a_trial().expected(1000, 1.0) == 90 + 2


def test_no_training_reads_fewer_rows_than_its_trial() -> None:
    pace = a_pace(a_trial())
    assert pace.rows_for(ONE, seconds=1.0, count=60_000) == 1000
    assert pace.rows_for(ONE, seconds=1.0, count=600) == 600
    fitting = pace.rows_for(ONE, seconds=300.0, count=60_000)
    assert pace.training(ONE, fitting) <= 300 < pace.training(ONE, int(fitting / 0.85))


def test_epochs_give_way_before_rows() -> None:
    """With the margin of a fifth, 60,000 rows take 1.2 × (90 + 59) s, and 1.2 × 120 s an epoch."""
    pace = a_pace(a_trial())
    assert pace.extent_for(ONE, seconds=900.0, count=60_000, seeds=2) == (60_000, 5.0)
    # Six epochs with both seeds take 2 × 1.2 × (149 + 720) s = 2,085.6 s.
    assert pace.extent_for(ONE, seconds=2085.0, count=60_000, seeds=2) == (60_000, 5.0)
    assert pace.extent_for(ONE, seconds=2086.0, count=60_000, seeds=2) == (60_000, 6.0)
    assert pace.extent_for(ONE, seconds=1e5, count=60_000, seeds=2) == (60_000, 15.0)
    assert pace.extent_for(ONE, seconds=500.0, count=60_000, seeds=2) == (60_000, 2.0)
    # One epoch of 53,667 rows would take all of the time: rows are cut by tenths.
    assert pace.extent_for(ONE, seconds=300.0, count=60_000, seeds=2) == (48_600, 1.0)
