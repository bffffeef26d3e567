"""Oracles: the page parsed as HTML, and the numbers put into the synthetic records."""

from __future__ import annotations

import itertools
import re
import warnings
from html.parser import HTMLParser

import numpy as np
import pytest
from matplotlib.collections import QuadMesh
from matplotlib.colors import to_hex
from matplotlib.text import Text

from limbeck.records import Record
from limbeck.records.facts import ClassFacts, ClassificationScores, KeptFacts
from limbeck.report import write_report
from limbeck.report.page import Content, curve, seconds_split
from limbeck.report.plots import Series, confusion_map, line_panel, value_cells
from limbeck.report.svg import Panel, standalone
from limbeck.support.errors import LimbeckError
from limbeck.tables import build_table
from synthetic_records import a_run, a_study, a_teacher

pytestmark = pytest.mark.drawn

VOID = {"meta", "link", "br", "hr", "img", "input", "path", "use", "line", "rect"}


class Page(HTMLParser):
    """Tags, ids, addresses and text of a page; fails on tags closed in the wrong order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.labels: list[str] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        values = dict(attrs)
        if "id" in values:
            self.ids.append(values["id"])
        for name in ("href", "src", "xlink:href"):
            if name in values:
                self.addresses.append(values[name])
        if tag == "svg" and values.get("role") == "img":
            self.labels.append(values.get("aria-label", ""))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> tuple[str, Page]:
    out = tmp_path_factory.mktemp("study") / "study.html"
    runs = [*a_study(), a_run("alp-kd", 1, None, status="failed", error="loss <not> finite")]
    matrix = np.array([[0.9, 0.2, 0.1], [0.3, 0.4, 0.8]])
    path = write_report(runs, out, title="Three & nine", similarity={"kd, seed 1": matrix})
    assert path == out
    text = path.read_text(encoding="utf-8")
    return text, Page(text)


def test_the_page_is_whole_and_asks_the_network_for_nothing(study):
    text, page = study
    assert all(address.startswith("#") for address in page.addresses)
    assert not re.search(r"@import|url\((?!#)", text)
    assert "script" not in page.tags
    assert len(page.ids) == len(set(page.ids))
    for address in page.addresses:
        assert address[1:] in page.ids
    assert set(re.findall(r"url\(#([^)]*)\)", text)) <= set(page.ids)


def test_the_headline_table_has_the_studys_numbers(study):
    _, page = study
    for expected in ("73.0 ± 2.0", "76.1 ± 1.1 ▲", "690M", "5.00 ± 0.40", "83.9", "failed"):
        assert expected in page.text
    assert "▲ above, ▼ below finetune" in page.text
    assert "Three & nine" in page.text
    assert "19 runs (18 finished, 1 failed)" in page.text


def test_users_text_is_escaped(study):
    text, page = study
    assert "<not>" not in text
    assert "loss <not> finite" in page.text


def test_every_drawing_says_in_words_what_it_shows(study):
    _, page = study
    assert page.labels
    said = "\n".join(page.labels)
    # Dots, curves, terms, similarity and cost, in numbers that were put in.
    assert "kd 71.0, 73.0, 75.0; rail-kd-l 75.0, 76.1, 77.2; teacher 90.0" in said
    assert "primary dev score by epoch: finetune from 63 to 71" in said
    assert "RTE: rail. rail by epoch: rail-kd-l from 0.9 to 0.3" in said
    assert "nearest teacher layer: 1 to 1; 2 to 3" in said
    assert "kd student 70, teacher 40, evaluation 8, preparation 0, team 0, other 4" in said


def test_every_colour_belongs_to_the_page(study):
    text, _ = study
    used = set(re.findall(r"var\(--([\w-]+)\)", text))
    defined = set(re.findall(r"--([\w-]+):", text))
    assert used <= defined
    assert "#0a0b" not in text
    assert "#0a1b" not in text


@pytest.mark.slow
def test_the_same_records_give_the_same_page(tmp_path):
    runs = [a_run("kd", 1, 80.0), a_run("kd", 2, 81.0)]
    first = write_report(runs, tmp_path / "a.html").read_text()
    assert write_report(runs, tmp_path / "b.html").read_text() == first


def test_a_single_run_has_a_report_in_its_folder(tmp_path):
    path = write_report([a_run("rail-kd-l", 1, 73.0)], tmp_path)
    assert path == tmp_path / "report.html"
    page = Page(path.read_text())
    for section in ("results", "curves", "terms", "cost", "runs"):
        assert section in page.ids
    assert "scores" not in page.ids  # one dot would repeat the table
    assert "similarity" not in page.ids
    assert "layers: 3" in page.text  # the recipe
    assert "Sparrow 9000" in page.text


def test_the_score_comes_first_and_a_constant_student_before_everything(tmp_path):
    record = a_run("kd", 1, 80.0, teacher=a_teacher())
    record.kept = KeptFacts(share=0.912, low=0.88, high=0.94, rows=100)
    page = write_report([record], tmp_path).read_text(encoding="utf-8")
    big = re.findall(r'<p class="card-big">(.*?)</p>', page)
    assert big[0] == "80.0" and 'class="alert"' not in page
    assert (
        "91.2 % of the teacher&#39;s score (95 % interval 88.0 to 94.0, bootstrap over 100 dev rows)"
        in page
    )
    classes = [
        ClassFacts.model_construct(name="no", rows=50, recall=0.0, precision=None),
        ClassFacts.model_construct(name="yes", rows=50, recall=100.0, precision=50.0),
    ]
    found = ClassificationScores.model_construct(rows=100, names=["no", "yes"], classes=classes)
    record.classification = {"dev": found}
    assert Content([record], [record], build_table([record])).alerts() == [
        f"The student of {record.student.layers} layers by kd, seed 1 predicts 'yes' for every dev row, which needs "
        "no model; train it longer, at another rate or on more rows."
    ]


def test_a_phone_and_a_screen_reader_can_use_the_page(study):
    """What axe-core checks and its rules call serious or moderate, without a browser."""
    text, page = study
    assert '<html lang="en">' in text and 'content="width=device-width, initial-scale=1"' in text
    regions = re.findall(r'role="region" aria-label="([^"]+)"', text)
    assert regions and len(regions) == len({*regions}) == text.count("<table")
    # Whatever may scroll takes the keyboard's focus; no heading of a table is empty.
    assert text.count("<figure") == text.count('<figure tabindex="0">') > 0
    assert text.count('class="scroll"') == text.count('class="scroll" tabindex="0"')
    assert not re.search(r"<th[^>]*>\s*</th>", text)
    levels = [int(tag[1]) for tag in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and all(b - a <= 1 for a, b in itertools.pairwise(levels))


def luminance(colour: str) -> float:
    """Relative luminance of WCAG 2.2."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_colours_contrast(study):
    """WCAG 2.2: text 4.5 (1.4.3), lines and marks 3 (1.4.11), in both schemes."""
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    schemes = study[0].partition("</style>")[0].split("@media (prefers-color-scheme: dark)")
    for scheme in schemes:
        named = dict(re.findall(r"--([\w-]+): (#\w{6});", scheme.partition("* {")[0]))
        assert len(named) == 15
        for name, colour in named.items():
            if name.startswith("series"):
                assert contrast(colour, named["paper"]) >= 3, name
            elif name in ("ink", "muted", "accent", "good", "bad"):
                assert min(contrast(colour, named[on]) for on in ("paper", "ground")) >= 4.5, name


def test_values_are_readable_in_their_cells():
    with Panel("", "") as axes:
        value_cells(axes, np.linspace(0, 1, 101)[None], low=0.0, high=1.0)
    (cells,) = (one for one in axes.collections if isinstance(one, QuadMesh))
    for cell, text in zip(cells.get_facecolor(), axes.texts, strict=True):
        assert contrast(to_hex(cell), text.get_color()) >= 4.5, text.get_text()


def test_a_drawing_as_a_file_is_on_white_with_the_pages_light_colours(study):
    """A transparent drawing has dark text on the dark page of a viewer."""
    panel = confusion_map("Student", ["no"], ["no"], np.eye(1))
    text = standalone(panel.svg).decode()
    assert re.search(r'<svg[^>]* width="\d+" style="background: #ffffff"', text)
    assert "var(" not in text and re.search(r"--muted: (#\w{6})", study[0])[1] in text


def test_a_legend_covers_no_line():
    line = Series("agreement", 0, (1.0, 2.0), (3.0, 4.0), (3.0, 4.0), (3.0, 4.0))
    panel = line_panel(
        "", [line] * 3, x_label="", y_label="", reference=("teacher", 5.0), legend=True
    )
    (legend,) = panel.figure.legends
    assert not legend.get_window_extent().overlaps(panel.axes[0].get_window_extent())


def test_code_wraps_so_that_no_hidden_part_needs_the_keyboard(study):
    assert re.search(r"\npre \{ white-space: pre-wrap; overflow-wrap: anywhere;", study[0])


def test_text_in_drawings_has_one_size(study):
    """Drawings are scaled alike, whatever their width: a unit is 1.3 px, on a phone at least 1.05."""
    drawn = re.findall(
        r'style="width: (\d+)px; min-width: (\d+)px"[^>]*viewBox="0 0 ([\d.]+)', study[0]
    )
    assert drawn
    for width, least, units in drawn:
        assert int(width) == pytest.approx(1.3 * float(units), abs=1)
        assert int(least) == pytest.approx(1.05 * float(units), abs=1)


def test_a_bare_record_and_a_failed_run_still_have_a_report(tmp_path):
    bare = Record(kind="distill", method="kd", task="tickets", data="/d/mine.csv", seed=0)
    bare.fail("killed")
    page = Page(write_report([bare], tmp_path / "bare.html").read_text())
    assert "killed" in page.text
    finished = a_run("kd", 1, 80.0, epochs=1)
    finished.cost.total_seconds = None
    finished.epochs[0].dev = {}
    write_report([finished], tmp_path / "short.html")


def test_a_bad_place_is_a_clear_error(tmp_path):
    runs = [a_run("kd", 1, 80.0)]
    (tmp_path / "file").write_text("")
    with pytest.raises(LimbeckError, match="cannot write"):
        write_report(runs, tmp_path / "file" / "x.html")


def test_a_curve_is_the_mean_with_its_lowest_and_highest_seed():
    runs = [a_run("kd", 1, 80.0, epochs=2), a_run("kd", 2, 84.0, epochs=3)]
    found = curve("kd", 0, runs, lambda epoch: epoch.dev.get("primary"))
    assert found is not None
    # 76, 80 and 76, 80, 84: the third epoch belongs to one run alone
    assert (found.x, found.mean) == ((1.0, 2.0, 3.0), (76.0, 80.0, 84.0))
    runs[1].epochs[0].dev["primary"] = 70.0
    found = curve("kd", 0, runs, lambda epoch: epoch.dev.get("primary"))
    assert found is not None
    assert (found.low[0], found.mean[0], found.high[0]) == (70.0, 73.0, 76.0)
    assert curve("kd", 0, [], lambda epoch: epoch.seconds) is None


def test_epochs_of_two_stages_follow_each_other():
    run = a_run("kd", 1, 80.0, epochs=3)
    for epoch, (stage, number) in zip(run.epochs, ((1, 1), (1, 2), (2, 1)), strict=True):
        epoch.stage, epoch.epoch = stage, number
        epoch.train["loss"] = 10.0 * stage + number
        epoch.dev = epoch.dev if stage == 2 else {}
    found = curve("kd", 0, [run], lambda epoch: epoch.train["loss"])
    assert found is not None
    assert (found.x, found.mean) == ((1.0, 2.0, 3.0), (11.0, 12.0, 21.0))
    scored = curve("kd", 0, [run], lambda epoch: epoch.dev.get("primary"))
    assert scored is not None and scored.x == (3.0,)


def test_time_that_no_part_claims_is_other():
    parts = seconds_split([a_run("kd", 1, 80.0), a_run("kd", 3, 80.0)])
    # Totals 121 and 123; 70 + 40 + 8 are accounted for
    claimed = {"student": 70.0, "teacher": 40.0, "evaluation": 8.0, "preparation": 0, "team": 0}
    assert parts == claimed | {"other": 4.0}


def test_what_a_drawing_says_stands_inside_it():
    scores = Series("kd", 0, (100, 1000, 10000), (61.5, 72.0, 80.25), (60, 71, 80), (63, 73, 81))
    panel = line_panel("Scores", [scores], x_label="labeled examples", y_label="accuracy of dev")
    said = ("Scores", "labeled examples", "accuracy of dev")
    texts = [text for text in panel.figure.findobj(Text) if text.get_text() in said]
    assert len(texts) == 3
    sides = np.array([text.get_window_extent().extents for text in texts])
    assert (sides[:, :2] >= -0.5).all()
    assert (sides[:, 2:] <= panel.figure.bbox.extents[2:] + 0.5).all()


def test_a_sign_that_matplotlib_has_no_font_for_is_left_to_the_browser():
    """Warnings are errors here."""
    panel = Panel("Größe 🙂", "a class with a face")
    with panel as axes:
        axes.plot([0, 1], [0, 1])
    assert "Größe 🙂" in panel.svg


@pytest.mark.parametrize("classes", [2, 12])
def test_a_name_of_any_length_leaves_room_for_the_drawing(classes):
    names = ["7" * 5000, *map(str, range(1, classes))]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = confusion_map("Student", names, names, np.eye(classes)).svg
    assert f"{'7' * 29}…" in drawn
