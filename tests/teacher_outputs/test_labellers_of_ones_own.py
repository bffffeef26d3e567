"""What a labeller of one's own may return: one value for each class, and probabilities that are some."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import limbeck
from limbeck.cli.app import app
from limbeck.outputs.store import open_store
from limbeck.support.errors import LimbeckError
from limbeck.teachers.labeller import RowsMissingError


class Own:
    name, kind, batch_size = "own", "sentence", 8
    outputs = ("probabilities",)

    def __init__(self, answer: Any, classes: tuple[str, ...] = ("bad", "so", "good")) -> None:
        self.answer, self.classes = answer, classes

    def fingerprint(self) -> dict[str, str]:
        return {"model": "own"}

    def score(self, rows: list[dict[str, str]]) -> Any:
        return self.answer(len(rows))


def label(place, labeller, **given):
    (place / "rows.txt").write_text("".join(f"text {number}\n" for number in range(20)))
    return limbeck.label(labeller, place / "rows.txt", out=place / "store", **given)


def invoke(*arguments: Any) -> str:
    done = CliRunner().invoke(app, ["outputs", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done.output


def probabilities(*row: float):
    return lambda count: {"probabilities": np.array([row] * count, np.float32)}


@pytest.mark.parametrize(
    ("labeller", "said"),
    [
        (Own(probabilities(0.5, 0.5)), r"probabilities is \(8, 2\), and it has 3 classes"),
        (Own(probabilities(-3, 9, 0.5)), "probabilities from -3 to 9, which are no probabilities"),
        (
            Own(lambda count: {"probabilities": np.zeros(count)}, ()),
            r"is \(8,\), and it has no classes, but one number per row\n.*shape \(8, 1\)",
        ),
        (Own(lambda count: [0.5] * count), "score returned a list, no outputs by their names"),
    ],
    ids=["width", "range", "number", "list"],
)
@pytest.mark.parametrize("to", [None, "labels.csv"])
def test_what_comes_to_no_label_is_refused_before_a_row_is_stored(tmp_path, labeller, said, to):
    with pytest.raises(LimbeckError, match=said):
        label(tmp_path, labeller, to=None if to is None else tmp_path / to)
    assert not list(tmp_path.glob("store/shard*")) and not (tmp_path / "labels.csv").exists()


def test_rows_without_outputs_are_said_of_a_store_and_of_its_copy(tmp_path):
    class Silent(Own):
        def score(self, rows):
            said = {
                at: "silent"
                for at, row in enumerate(rows)
                if next(iter(row.values())).endswith("3")
            }
            if said:
                raise RowsMissingError(said)
            return self.answer(len(rows))

    store = label(tmp_path, Silent(probabilities(0.2, 0.3, 0.5)), missing_rows="drop")
    assert len(store) == 18
    copied = invoke("copy", tmp_path / "store", tmp_path / "copy")
    assert copied.startswith(f"{tmp_path}/copy: 18 rows")
    for name in ("store", "copy"):
        assert len(open_store(tmp_path / name)) == 18
        assert "silent" in (tmp_path / name / "missing.json").read_text()
        assert "18 of 20: 2 have no outputs" in invoke("show", tmp_path / name)
