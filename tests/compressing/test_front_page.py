"""The page of a compression, of the recorded one of the README."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from limbeck.cli.app import app
from limbeck.compressing.compress import CompressResult
from limbeck.compressing.front import FrontPoint
from limbeck.compressing.page import drawing, write_front

pytestmark = pytest.mark.drawn

RECORD = Path(__file__).parents[2] / "benchmarks/records/compress_sst2.json"


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("front")
    found = json.loads(RECORD.read_text(encoding="utf-8"))
    write_front(folder, [FrontPoint.model_validate(one) for one in found["points"]], found)
    return (folder / "front.html").read_text(encoding="utf-8")


def test_a_row_is_named_by_its_model_and_no_heading_is_empty(page):
    assert not re.search(r"<(th|h\d)\b[^>]*>\s*</\1>", page)
    front = page.partition('id="trials"')[0]
    rows = re.findall(r'<tr><th scope="row"[^>]*>(.*?)</th><td[^>]*>(.*?)</td>', front)
    assert ("teacher", "●\u00a0over") in rows
    assert ("6 layers, ffn 384, 3,800 tokens, kd", "★●") in rows
    assert len(rows) == 7


def test_a_wide_drawing_has_the_pages_width(page):
    """The rule of a single drawing cut it off at 540 of its 861 px."""
    assert 'class="drawings wide single"' in page
    assert [*re.findall(r"\n(\.drawings\.single[^{]*) \{", page)] == [".drawings.single:not(.wide)"]


def test_the_axes_have_marks_between_powers_of_ten(tmp_path):
    """Sizes from 23 to 62 MB had none."""
    found = json.loads(RECORD.read_text(encoding="utf-8"))
    points = [FrontPoint.model_validate(one) for one in found["points"]][:2]
    costs = [replace(one.costs, size=23e6 + at * 39e6) for at, one in enumerate(points)]
    both = [one.model_copy(update={"costs": own}) for one, own in zip(points, costs, strict=True)]
    size, _ = drawing(both, "accuracy").axes
    low, high = size.get_xlim()
    assert sum(low <= one <= high for one in size.get_xticks()) >= 2


@pytest.mark.parametrize(
    ("kind", "run", "command"),
    [
        ("student", "a b/run", "limbeck push 'a b/run' USER/NAME"),
        ("cascade", "", "limbeck push small/one USER/NAME"),
        # The teacher's export is in no run, and `push` does not read it.
        ("teacher", "", "limbeck predict small/one ROWS.csv --to predictions.csv"),
    ],
)
def test_the_next_command_is_one_for_the_recommended_model(monkeypatch, kind, run, command):
    found = json.loads(RECORD.read_text(encoding="utf-8"))
    points = [FrontPoint.model_validate(one | {"recommended": False}) for one in found["points"]]
    shipped = {"kind": kind, "run": run, "path": "small/one", "recommended": True}
    result = CompressResult(Path("small"), [*points, points[0].model_copy(update=shipped)], found)
    monkeypatch.setattr("limbeck.compressing.compress.compress", lambda *_, **__: result)
    ended = CliRunner().invoke(app, ["compress", "teacher", "--budget", "size=6MB"])
    assert command in " ".join(ended.stdout.split())
