"""The page of a compression, of the recorded one of the README."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from limbeck.compressing.front import FrontPoint
from limbeck.compressing.page import write_front

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
