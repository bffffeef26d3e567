"""What a run measures about itself, worked out by hand."""

from __future__ import annotations

import json
import math
import time

import pytest
import torch
from torch import nn

from limbeck.training import checkpoints
from limbeck.training.progress import Clock, LabelledTerms, Parts, Progress, Stopwatch, Window

CPU = torch.device("cpu")


def values(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def test_a_window_averages_what_was_added_since_it_was_cleared():
    window = Window()
    assert window.means() == {}
    window.add(("loss", "hard"), values(1.0, 4.0))
    window.add(("loss", "hard"), values(2.0, 6.0))
    assert window.means() == {"loss": 1.5, "hard": 5.0}
    window.clear()
    assert window.means() == {}
    window.add(("loss", "hard"), values(7.0, 8.0))
    assert window.means() == {"loss": 7.0, "hard": 8.0}


def test_terms_that_come_and_go_are_averaged_over_the_times_they_came():
    window = Window()
    window.add(("loss", "cosine"), values(1.0, 4.0))
    window.add(("loss", "soft"), values(2.0, 8.0))
    window.add(("loss", "cosine"), values(3.0, 6.0))
    window.add(("loss", "soft", "cosine"), values(4.0, 1.0, 5.0))
    assert window.sums() == {"loss": 10.0, "cosine": 15.0, "soft": 9.0}
    assert window.means() == {"loss": 2.5, "cosine": 5.0, "soft": 4.5}
    again = Window()
    again.restore(json.loads(json.dumps(window.state())), CPU)
    for either in (window, again):
        either.add(("loss", "soft"), values(1.0, 1 / 3))
    assert again.groups.keys() == window.groups.keys()
    assert (again.sums(), again.means()) == (window.sums(), window.means())
    window.clear()
    assert window.sums() == window.means() == {}


def test_terms_of_labels_are_averaged_over_labelled_examples():
    """By hand: 1 of 4 examples with a label and a loss of 6, none, 3 of 4 with a mean of 2: 12 of 4 examples."""
    progress = Progress()
    for hard, soft, count in ((6.0, 1.0, 1), (0.0, 2.0, 0), (2.0, 6.0, 3)):
        terms = {"soft": torch.tensor(soft), "hard": torch.tensor(hard)}
        of_labels = LabelledTerms({"hard": terms["hard"]}, count)
        progress.add(terms, torch.tensor(hard + soft), labelled=of_labels)
    for window in (progress.since_log, progress.this_epoch):
        assert window.means() == {"loss": 17 / 3, "soft": 3.0, "hard": 3.0}
        assert window.labelled() == 4
        assert window.sums()["hard"] == 8.0  # of batch means, as a curriculum watches them
    again = Progress()
    again.restore(json.loads(json.dumps(progress.state())), CPU)
    terms = {"hard": torch.tensor(4.0), "soft": torch.tensor(0.0)}
    for one in (progress, again):  # as many as a device alone may know
        last = LabelledTerms({"hard": terms["hard"]}, torch.tensor(4))
        one.add(terms, torch.tensor(4.0), labelled=last)
        assert one.this_epoch.means()["hard"] == 28 / 8 and one.this_epoch.labelled() == 8
    progress.since_log.clear()
    assert progress.since_log.labelled() is None
    none = LabelledTerms({"hard": torch.tensor(0.0)}, 0)
    progress.add({"hard": torch.tensor(0.0)}, torch.tensor(0.0), labelled=none)
    assert progress.since_log.means() == {"loss": 0.0} and progress.since_log.labelled() == 0


def test_a_window_does_not_write_into_what_it_was_given():
    window, given = Window(), values(1.0)
    window.add(("loss",), given)
    window.add(("loss",), values(5.0))
    assert given.item() == 1.0


def test_a_window_comes_back_exactly_through_json():
    window = Window()
    for number in (0.1, 1 / 3, 1e-17, 12345.678):
        window.add(("loss",), values(number))
    again = Window()
    again.restore(json.loads(json.dumps(window.state())), CPU)
    for either in (window, again):
        either.add(("loss",), values(math.pi))
    assert again.means() == window.means()
    empty = Window()
    empty.restore(json.loads(json.dumps(Window().state())), CPU)
    assert empty.means() == {}


def test_a_stopwatch_counts_by_cause():
    stopwatch = Stopwatch()
    for cause, seconds in (("teacher", 0.02), ("evaluation", 0.01), ("teacher", 0.03)):
        with stopwatch.measure(cause, CPU):
            time.sleep(seconds)
    read = stopwatch.read()
    assert read.keys() == {"teacher", "evaluation"}
    assert read["teacher"] >= 0.05
    assert read["evaluation"] >= 0.01


def test_a_stopwatch_gives_away_a_copy():
    stopwatch = Stopwatch()
    stopwatch.read()["teacher"] = 9.0
    assert stopwatch.read() == {}


def test_a_clock_goes_on_from_an_earlier_start(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    clock = Clock()
    assert clock.read() == 0.0
    clock.before = 5.0
    assert clock.read() == 5.0
    clock.start()
    now[0] = 103.0
    assert clock.read() == 8.0
    assert clock.stop() == 8.0
    assert clock.read() == 0.0
    clock.start()
    now[0] = 104.0
    assert clock.stop() == 1.0


def test_progress_keeps_two_windows_of_one_stream():
    progress = Progress()
    progress.add({"hard": torch.tensor(2.0, requires_grad=True)}, torch.tensor(1.0))
    progress.since_log.clear()
    progress.add({"hard": torch.tensor(4.0)}, torch.tensor(3.0))
    assert progress.since_log.means() == {"loss": 3.0, "hard": 4.0}
    assert progress.this_epoch.means() == {"loss": 2.0, "hard": 3.0}
    (sums,) = progress.this_epoch.groups.values()
    assert (sums.dtype, sums.tolist()[-1]) == (torch.float64, 2)
    assert not sums.requires_grad


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_progress_names_what_is_no_longer_a_number(broken):
    progress = Progress()
    terms = {"hard": torch.tensor(2.0), "soft": torch.tensor(broken)}
    progress.add(terms, torch.tensor(broken))
    progress.add({"hard": torch.tensor(2.0), "soft": torch.tensor(1.0)}, torch.tensor(1.0))
    assert progress.non_finite() == ["loss", "soft"]
    progress.this_epoch.clear()
    assert progress.non_finite() == []


def test_progress_comes_back_through_a_checkpoint(tmp_path):
    progress = Progress(parts=Parts(clock=lambda: 0.0))
    progress.parts.restore({"training": 3.0})
    progress.add({"hard": torch.tensor(0.1)}, torch.tensor(0.3))
    progress.epochs.append({"epoch": 1, "train": {"loss": 0.25}})
    progress.stopwatch.seconds["teacher"] = 1.5
    progress.epoch_clock.before = 2.0
    layer = nn.Linear(2, 2)
    checkpoints.save(tmp_path / "new" / "checkpoint-1", layer, progress.state())
    again, other = Progress(parts=Parts(clock=lambda: 0.0)), nn.Linear(2, 2)
    checkpoints.load_weights(tmp_path / "new" / "checkpoint-1", other)
    again.restore(checkpoints.load_progress(tmp_path / "new" / "checkpoint-1"), CPU)
    assert json.dumps(again.state()) == json.dumps(progress.state())
    assert torch.equal(other.weight, layer.weight)
    assert torch.equal(other.bias, layer.bias)


def test_weights_that_do_not_fit_are_an_error(tmp_path):
    checkpoints.save(tmp_path, nn.Linear(2, 2), {})
    with pytest.raises(RuntimeError, match="bias"):
        checkpoints.load_weights(tmp_path, nn.Linear(2, 2, bias=False))


def whole_checkpoint(folder):
    folder.mkdir()
    for name in ("distiller", "optimizer", "scheduler", "rng_state"):
        (folder / f"{name}.safetensors").touch()
    for name in ("trainer_state.json", "progress.json"):
        (folder / name).write_text("{}")
    checkpoints.seal(folder)
    return folder


def test_the_last_whole_checkpoint_has_the_highest_step(tmp_path):
    assert checkpoints.last_whole(tmp_path / "nowhere") is None
    assert checkpoints.last_whole(tmp_path) is None
    for name in ("checkpoint-9", "checkpoint-100", "checkpoint-20", "checkpoint-best", "other-200"):
        whole_checkpoint(tmp_path / name)
    assert checkpoints.last_whole(tmp_path).name == "checkpoint-100"


def test_a_checkpoint_that_is_written_again_is_not_whole_meanwhile(tmp_path):
    folder = whole_checkpoint(tmp_path / "checkpoint-1")
    assert checkpoints.last_whole(tmp_path) == folder
    checkpoints.save(folder, nn.Linear(2, 2), {})
    assert checkpoints.last_whole(tmp_path) is None


def test_several_processes_of_one_run_are_one(monkeypatch):
    """Every process adds up all of them; the first alone carries a checkpoint's sums on."""
    from limbeck.training import progress as module

    windows = [Window(), Window()]
    windows[0].add(("loss",), values(1.0))
    windows[0].add(("loss", "soft"), values(3.0, 4.0))
    windows[1].add(("loss",), values(2.0))
    windows[1].add(("loss",), values(6.0))
    windows[1].add(("loss", "soft"), values(5.0, 2.0))
    others = iter([])

    def summed(totals):  # what the other process holds of the group is added
        return totals + next(others)

    def ask(what):
        nonlocal others
        others = iter(list(windows[1].groups.values()))
        return what()

    monkeypatch.setattr(module, "summed", summed)
    assert ask(windows[0].sums) == {"loss": 17.0, "soft": 6.0}
    assert ask(windows[0].means) == {"loss": 3.4, "soft": 3.0}
    state = ask(windows[0].state)
    assert state == [
        {"names": ("loss",), "sums": [9.0], "count": 3},
        {"names": ("loss", "soft"), "sums": [8.0, 6.0], "count": 2},
    ]
    for rank, kept in enumerate([[[9.0, 3.0], [8.0, 6.0, 2.0]], [[0.0] * 2, [0.0] * 3]]):
        monkeypatch.setattr(module, "is_first", lambda rank=rank: rank == 0)
        window = Window()
        window.restore(state, CPU)
        assert [sums.tolist() for sums in window.groups.values()] == kept
