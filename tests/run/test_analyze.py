"""Analyses of whole runs against Hugging Face and scikit-learn; what is written, shown and refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from typer.testing import CliRunner

import tiny_runs as tiny
from limbeck.cli.app import app
from limbeck.lab.analysis import ANALYSES, AnalysedRun, analyze, measure
from limbeck.lab.analysis.analysed_run import stage_problems
from limbeck.lab.views.analysis_views import VIEWS, read_numbers, write_numbers
from limbeck.records import Record
from limbeck.run import distill
from limbeck.support.errors import LimbeckError


@pytest.fixture(scope="module")
def attending(place, recipe, tmp_path_factory):
    """A student that learns by an attention mapping."""
    given = recipe("alp-kd", epochs=1, batch_size=27)
    return distill(given, out=tmp_path_factory.mktemp("alp") / "run", report=False).path


def states_of(folder, texts) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Hugging Face's hidden states (layers of (n, tokens, d)) and the mask."""
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    batch = AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        return model(**batch, output_hidden_states=True).hidden_states, batch["attention_mask"]


def texts_of(run, split: str) -> tuple[list[str], np.ndarray]:
    """The rows of a split, as the run's kept predictions number them in the file."""
    opened = AnalysedRun(run)
    rows = opened.rows(split)
    return rows["sentence"][:], opened.labels(rows)


def test_every_analysis_has_a_view() -> None:
    assert set(ANALYSES) == set(VIEWS)


def test_probing_is_scikit_learn_on_hugging_face_states(finished) -> None:
    found = measure("probing", [finished.path], models=["student"])["student"]
    assert found.layers == (0, 1, 2, 3)
    # The first token's embedding is the same in all rows: what a probe finds there is rounding.
    assert found.scores[1:] == pytest.approx(probes_of(finished.path, "student")[1:])


def test_probes_are_scored_on_the_rows_they_were_fitted_on_where_that_is_asked(finished) -> None:
    """CR-ILD, Figure 11 a."""
    found = measure("probing", [finished.path], split="train", models=["student"])["student"]
    assert found.fitted and found.scored_rows == found.train_rows
    texts, labels = texts_of(finished.path, "train")
    states = states_of(finished.path / "student", texts)[0][-1][:, 0]
    scaled = StandardScaler().fit_transform(states)
    probe = LogisticRegression(max_iter=2000).fit(scaled, labels)
    assert found.scores[-1] == pytest.approx(100 * probe.score(scaled, labels))


def probes_of(run, model: str) -> list[float]:
    """Scores of scikit-learn's probes of a run's rows on the states of one of its model folders."""
    (train, y), (dev, right) = (texts_of(run, split) for split in ("train", "dev"))
    fitted, scored = (states_of(run / model, texts)[0] for texts in (train, dev))
    found = []
    for own, other in zip(fitted, scored, strict=True):
        scale = StandardScaler().fit(own[:, 0])
        probe = LogisticRegression(max_iter=2000).fit(scale.transform(own[:, 0]), y)
        found.append(100 * probe.score(scale.transform(other[:, 0]), right))
    return found


@pytest.mark.slow
def test_probes_of_numbers_are_scikit_learns_ridge_on_hugging_face_states(recipe, tmp_path) -> None:
    tiny.save(tiny.knowing_teacher(4, regression=True), tmp_path / "teacher")
    file = tiny.write_csv(tmp_path / "stars.csv", 60, regression=True)
    given = {"data": str(file), "teacher": str(tmp_path / "teacher"), "epochs": 1}
    run = distill(recipe("alp-kd", **given), out=tmp_path / "run").path
    found = measure("probing", [run], models=["student"])["student"]
    opened = AnalysedRun(run)
    (train, y), (dev, right) = (
        (rows["sentence"][:], rows["label"][:]) for rows in map(opened.rows, ("train", "dev"))
    )
    fitted, scored = (states_of(run / "student", texts)[0] for texts in (train, dev))
    assert found.scores[0] == 0  # the first token's embedding is the same in all rows
    for layer, score in list(enumerate(found.scores))[1:]:
        scale = StandardScaler().fit(fitted[layer][:, 0])
        probe = Ridge().fit(scale.transform(fitted[layer][:, 0]), y)
        rho = spearmanr(probe.predict(scale.transform(scored[layer][:, 0])), right).statistic
        assert score == pytest.approx(100 * rho, abs=1e-6)
    assert (found.layers, found.measure) == ((0, 1, 2, 3), "Spearman's ρ")
    (panel,) = VIEWS.get("probing").panels({"student": found})
    assert panel.axes[0].get_ylabel() == "100 × Spearman's ρ"


@pytest.fixture(scope="module")
def two_stages(recipe, tmp_path_factory):
    """A run that has kept its student of the first stage."""
    first = {"objectives": {"hidden": {"compare": "hidden_mse", "mapping": {"kind": "uniform"}}}}
    kept = recipe("kd-soft", epochs=1, batch_size=27, first_stage=first, keep_first_stage=True)
    return distill(kept, out=tmp_path_factory.mktemp("two") / "run", report=False).path


@pytest.mark.slow
def test_after_its_first_stage_a_student_is_looked_at_by_hand(two_stages) -> None:
    found = measure("probing", [two_stages], models=["student"], stage="first")
    assert list(found) == ["first-stage student"]
    expected = probes_of(two_stages, "first_stage")
    assert found["first-stage student"].scores == pytest.approx(expected)
    # Another student than the finished one, which `last` is.
    looks = [
        measure("similarity", [two_stages], rows=8, stage=stage)[name].cosine
        for stage, name in (("first", "first-stage student"), ("last", "student"))
    ]
    assert looks[0] != looks[1]
    assert looks[1] == measure("similarity", [two_stages], rows=8)["student"].cosine


def test_a_first_stage_that_is_not_there_is_said_with_its_fix(finished, two_stages) -> None:
    for run, stage, said in (
        (finished.path, "first", "rail-kd-l trains in one stage"),
        (finished.path, "frist", "unknown stage: 'frist'"),
    ):
        with pytest.raises(LimbeckError, match=said):
            measure("probing", [run], stage=stage)
    with pytest.raises(LimbeckError, match="convergence reads records"):
        measure("convergence", [two_stages], stage="first")
    recipe = AnalysedRun(two_stages).recipe.model_copy(update={"keep_first_stage": False})
    (problem,) = stage_problems("first", recipe)
    assert "has not been kept" in problem.message
    assert problem.fix == "train it with keep_first_stage=true"


def test_similarity_is_that_of_hugging_face_states(finished, place) -> None:
    found = measure("similarity", [finished.path], rows=8)["student"]
    texts = texts_of(finished.path, "dev")[0][:8]
    sides = [states_of(folder, texts) for folder in (f"{finished.path}/student", place / "teacher")]
    pooled = [
        [(layer * mask[..., None]).sum(1) / mask.sum(1, keepdim=True) for layer in states[1:]]
        for states, mask in sides
    ]
    for row, mine in enumerate(pooled[0]):
        for column, theirs in enumerate(pooled[1]):
            cosines = [
                float(torch.dot(a, b) / (a.norm() * b.norm()))
                for a, b in zip(mine, theirs, strict=True)
            ]
            assert found.cosine[row][column] == pytest.approx(np.mean(cosines), abs=1e-5)
            assert found.cka[row][column] == pytest.approx(
                hsic(mine, theirs) / np.sqrt(hsic(mine, mine) * hsic(theirs, theirs)), abs=1e-5
            )


def hsic(left: torch.Tensor, right: torch.Tensor) -> float:
    """Gretton's estimator, Σ over pairs of doubly centred inner products; by loops."""
    tables = []
    for states in (left, right):
        gram = np.array([[float(torch.dot(a, b)) for b in states] for a in states])
        rows, everything = gram.mean(axis=1), gram.mean()
        tables.append(
            [
                [gram[i, j] - rows[i] - rows[j] + everything for j in range(len(gram))]
                for i in range(len(gram))
            ]
        )
    count = len(tables[0])
    return sum(tables[0][i][j] * tables[1][i][j] for i in range(count) for j in range(count))


def test_layer_attention_is_alp_kds_softmax(attending, place) -> None:
    found = measure("layer-attention", [attending], rows=5, examples=5)["attention"]
    texts = texts_of(attending, "dev")[0][:5]
    student, teacher = (states_of(f, texts)[0] for f in (attending / "student", place / "teacher"))
    assert (found.student_layers, found.teacher_layers) == ((1, 2), (1, 2, 3, 4))
    for row in range(5):
        for place_in, layer in enumerate(found.student_layers):
            dots = [float(student[layer][row, 0] @ teacher[k][row, 0]) for k in (1, 2, 3, 4)]
            powers = [np.exp(dot - max(dots)) for dot in dots]
            expected = [power / sum(powers) for power in powers]
            assert found.examples[row][place_in] == pytest.approx(expected, abs=1e-5)
    assert np.sum(found.mean, axis=1) == pytest.approx([1, 1])


def test_agreement_and_calibration_are_those_of_the_record(finished) -> None:
    record = Record.load(finished.path)
    noted = record.classification["dev"]
    told = {}
    found = measure(
        "agreement",
        [finished.path],
        watch=lambda name: lambda done, total: told.update({name: (done, total)}),
    )["student"]
    assert told == dict.fromkeys(["teacher over rows", "student over rows"], (6, 6))
    assert found.rows == noted.rows
    counts = [cell.count for cell in found.cells]
    assert 100 * (counts[0] + counts[2]) / found.rows == pytest.approx(noted.student.accuracy)
    assert 100 * (counts[0] + counts[1]) / found.rows == pytest.approx(noted.teacher.accuracy)
    curves = measure("calibration", [finished.path])
    assert list(curves) == ["student", "teacher"]
    for name, curve in curves.items():
        known = getattr(noted, name)
        assert curve.error == pytest.approx(known.calibration_error, abs=1e-3)
        assert [p.rows for p in curve.points] == [p.rows for p in known.reliability]


def test_noise_of_nothing_is_the_recorded_score(finished) -> None:
    found = measure("noise", [finished.path], deviations=[0, 50.0], repeats=2, models=["teacher"])
    calm, wild = found["teacher"].points
    known = Record.load(finished.path).teacher.scores["dev"]["primary"]
    assert calm.scores == pytest.approx((known,))
    assert len(wild.scores) == 2
    # It is right by construction, by its embeddings.
    assert min(wild.losses) > calm.losses[0]


def test_attention_maps_are_hugging_faces(finished, place) -> None:
    wanted = {"row": 2, "head": 2, "pairs": [[1, 3], [3, 4]]}
    found = measure("attention-maps", [finished.path], **wanted)["student"]
    text = texts_of(finished.path, "dev")[0][2]
    expected, folders = [], (f"{finished.path}/student", place / "teacher")
    for folder in folders:
        model = AutoModelForSequenceClassification.from_pretrained(
            folder, attn_implementation="eager"
        ).eval()
        batch = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")
        with torch.no_grad():
            expected.append(model(**batch, output_attentions=True).attentions)
    for pair, (mine, theirs) in zip(found.pairs, wanted["pairs"], strict=True):
        own, other = expected[0][mine - 1][0], expected[1][theirs - 1][0]
        assert np.array(pair.student) == pytest.approx(own[1].numpy(), abs=1e-5)
        assert np.array(pair.teacher) == pytest.approx(other[1].numpy(), abs=1e-5)
        by_token = (other * (other / own).log()).sum(-1)
        assert pair.divergence == pytest.approx(float(by_token.mean()), abs=1e-4)
    assert found.student_tokens == ("[CLS]", *text.split(), "[SEP]")


def test_attention_maps_that_are_not_there(finished) -> None:
    for wanted, said in (
        ({"row": 600}, "row 600 of 6 rows"),
        ({"head": 3}, "has no head 3"),
        ({"pairs": [[4, 1]]}, "the student has no layer 4"),
    ):
        with pytest.raises(LimbeckError, match=said):
            measure("attention-maps", [finished.path], **wanted)


@pytest.mark.slow
def test_pca_and_loss_surface_of_a_run(finished, place) -> None:
    found = measure("pca", [finished.path], rows=5, teacher_layer=0)["student"]
    texts = texts_of(finished.path, "dev")[0][:5]
    mine = states_of(f"{finished.path}/student", texts)[0][3][:, 0]
    theirs = states_of(place / "teacher", texts)[0][0][:, 0]
    expected = torch.cosine_similarity(mine, theirs).tolist()
    assert found.cosines == pytest.approx(expected, abs=1e-5)
    with pytest.raises(LimbeckError, match="the student has no layer 9"):
        measure("pca", [finished.path], student_layer=9)
    around = measure("loss-surface", [finished.path], points=3, rows=6)["student"]
    noise = measure("noise", [finished.path], deviations=[0], models=["student"])["student"]
    assert around.own == pytest.approx(noise.points[0].losses[0], abs=1e-6)
    with pytest.raises(LimbeckError, match="leaves the model itself out"):
        measure("loss-surface", [finished.path], points=4)


@pytest.fixture(scope="module")
def three(place, recipe, tmp_path_factory) -> list:
    """Three students of one start, by three methods."""
    folder = tmp_path_factory.mktemp("three")
    own = {"student.init": str(place / "teacher"), "student.layers": 3, "max_steps": 3}
    rates = {"finetune": 1e-4, "kd": 1e-3, "pkd-last": 5e-3}
    asked = {method: recipe(method, lr=rate, **own) for method, rate in rates.items()}
    return [distill(one, out=folder / method, report=False).path for method, one in asked.items()]


def loss_by_hugging_face(run, count: int) -> float:
    """The mean cross-entropy of a student's own first dev rows, by transformers alone."""
    texts, labels = texts_of(run, "dev")
    model = AutoModelForSequenceClassification.from_pretrained(run / "student").eval()
    batch = AutoTokenizer.from_pretrained(run / "student")(
        texts[:count], padding=True, return_tensors="pt"
    )
    with torch.no_grad():
        return float(model(**batch, labels=torch.tensor(labels[:count])).loss)


@pytest.mark.drawn
@pytest.mark.slow
def test_the_corners_of_a_plane_have_the_losses_of_the_students_alone(three) -> None:
    """CR-ILD, Figure 10: θ₀ + α (θ₁ − θ₀) + β (θ₂ − θ₀)."""
    own, *others = three
    found = measure("loss-surface", [own], through=[*map(str, others)], points=3, rows=6)["student"]
    assert [corner.name for corner in found.corners] == ["finetune", "kd", "pkd-last"]
    assert [corner.at for corner in found.corners] == [(0, 0), (1, 0), (0, 1)]
    expected = [loss_by_hugging_face(run, 6) for run in three]
    assert [corner.loss for corner in found.corners] == pytest.approx(expected, abs=1e-5)
    assert len({round(loss, 3) for loss in expected}) == 3
    assert (found.steps, found.own) == ((-1.0, 0.5, 2.0), found.corners[0].loss)


@pytest.mark.slow
@pytest.mark.drawn
def test_the_corners_of_a_plane_are_called_as_they_are_named(three) -> None:
    own, *others = three
    called = {"a": str(others[0]), "b": str(others[1])}
    again = analyze("loss-surface", [own], through=called, points=3, rows=6, out=own.parent / "x")
    assert [corner.name for corner in again.parts["student"].corners] == ["finetune", "a", "b"]
    assert read_numbers(again.files[0]) == again.parts
    svg = next(path for path in again.files if path.suffix == ".svg").read_text(encoding="utf-8")
    assert "towards a" in svg and "towards b" in svg


@pytest.mark.slow
def test_a_plane_of_too_few_students_is_refused(three, tmp_path) -> None:
    own, other, _ = map(str, three)
    for through, said in (
        ([other], "through"),
        ([other, str(tmp_path)], "is no run folder"),
        ([other, other], "is named twice"),
    ):
        with pytest.raises(LimbeckError, match=said):
            measure("loss-surface", [own], through=through, points=3, rows=6)


@pytest.mark.slow
def test_students_that_span_no_plane_are_refused(three, place, recipe, tmp_path) -> None:
    own, other, _ = map(str, three)
    small = {"max_steps": 1, "student.layers": 2, "student.init": str(place / "teacher")}
    shallow = distill(recipe("kd", **small), out=tmp_path / "shallow").path
    with pytest.raises(
        LimbeckError, match="shallow is another kind of model: only one of the two has"
    ):
        measure("loss-surface", [own], through=[other, str(shallow)], points=3, rows=6)
    # Weights of the same shapes, and rows that are read otherwise: cut after the first word.
    settings = small | {"student.layers": 3, "lr": 1e-4, "max_length": 3}
    brief = distill(recipe("kd", **settings), out=tmp_path / "brief").path
    with pytest.raises(
        LimbeckError, match=r"brief has a loss of .* on these rows, and its weights"
    ):
        measure("loss-surface", [own], through=[other, str(brief)], points=3, rows=6)


@pytest.mark.drawn
@pytest.mark.slow
def test_every_drawing_is_made(finished, attending, tmp_path) -> None:
    small = {
        "loss-surface": {"points": 3, "rows": 4},
        "noise": {"deviations": [0, 1], "repeats": 1},
    }
    for name in ANALYSES:
        run = attending if name == "layer-attention" else finished.path
        parts = measure(name, [run], **small.get(name, {}))
        panels = VIEWS.get(name).panels(parts)
        assert all("<svg" in panel.svg and panel.alt for panel in panels)
        assert len({panel.title for panel in panels}) == len(panels) > 0
        write_numbers(tmp_path / f"{name}.json", name, {}, parts)
        assert read_numbers(tmp_path / f"{name}.json") == parts


@pytest.mark.slow
@pytest.mark.drawn
def test_numbers_and_figures_are_kept_and_shown(copied) -> None:
    page = copied / "report.html"
    assert "Linear probes" not in page.read_text(encoding="utf-8")
    found = analyze("probing", [copied], rows=10)
    names = {path.name for path in found.files}
    assert names == {"probing.json", "probing.svg", "probing.png"}
    assert all(path.parent == copied / "analysis" for path in found.files)
    assert read_numbers(copied / "analysis" / "probing.json") == found.parts
    svg = (copied / "analysis" / "probing.svg").read_text(encoding="utf-8")
    # Colours of its own: neither the page's variables nor what stands for them.
    assert "#0072b2" in svg
    assert "var(--" not in svg
    assert "#0a0b" not in svg
    assert "#0a1b" not in svg
    assert (copied / "analysis" / "probing.png").read_bytes().startswith(b"\x89PNG")
    assert "Linear probes" in page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_two_runs_stand_in_one_figure(finished, attending, tmp_path) -> None:
    with pytest.raises(LimbeckError, match="2 runs and no folder"):
        analyze("calibration", [finished.path, attending])
    other = attending.rename(attending.parent / "other")
    try:
        found = analyze("calibration", [finished.path, other], out=tmp_path)
    finally:
        other.rename(attending)
    assert list(found.parts) == ["run", "other", "teacher"]
    assert {path.parent for path in found.files} == {tmp_path}
    assert not (finished.path / "analysis").exists()


def test_what_is_wrong_is_said_together(finished, copied, tmp_path) -> None:
    with pytest.raises(
        LimbeckError, match=r"unknown analysis 'probes'[\s\S]*did you mean 'probing'"
    ):
        measure("probes", [finished.path])
    with pytest.raises(LimbeckError) as caught:
        measure("probing", [tmp_path], layers=3, rows=0)
    said = str(caught.value)
    assert "unknown setting of analysis probing: 'layers'" in said
    assert "rows: Input should be greater than 0 (got 0)\n    fix: give another value" in said
    assert "is no run folder" in said
    with pytest.raises(LimbeckError, match="no term of rail-kd-l has an attention mapping"):
        measure("layer-attention", [finished.path])
    (copied / "student" / "model.safetensors").unlink()
    with pytest.raises(LimbeckError, match="weights of the student are not there any more"):
        measure("probing", [copied])
    with pytest.raises(LimbeckError, match="unknown split 'tset'"):
        measure("noise", [finished.path], split="tset")


def test_a_run_without_a_teacher_says_so(place, recipe, tmp_path) -> None:
    alone = distill(recipe("finetune", max_steps=1), out=tmp_path / "alone").path
    with pytest.raises(LimbeckError, match="has no teacher of its own"):
        measure("agreement", [alone])
    found = measure("agreement", [alone], teacher=str(place / "teacher"))["student"]
    assert found.cells[0].count + found.cells[1].count == found.rows  # right by construction
    assert list(measure("calibration", [alone])) == ["student"]


@pytest.mark.slow
def test_learned_maps_that_are_gone_are_refused(place, recipe, tmp_path) -> None:
    tiny.save(tiny.bert(3, hidden_size=8), tmp_path / "narrow")
    narrow = recipe("alp-kd", epochs=1, **{"student.init": str(tmp_path / "narrow")})
    run = distill(narrow, out=tmp_path / "run").path
    with pytest.raises(LimbeckError, match="maps that are learned with the student"):
        measure("layer-attention", [run])
    assert measure("similarity", [run], rows=4)["student"].cosine is None


def test_the_command(copied, tmp_path) -> None:
    listed = CliRunner().invoke(app, ["analyze"])
    assert listed.exit_code == 0
    assert all(name in listed.output for name in ANALYSES)
    words = ["analyze", "agreement", str(copied), "rows=6", "--out", str(tmp_path), "--report"]
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 0, ended.output
    assert str(tmp_path / "agreement.png") in ended.output
    kept = json.loads((copied / "analysis" / "agreement.json").read_text(encoding="utf-8"))
    assert kept["settings"] == {"rows": 6, "examples": 3}
    assert "Who is right where" in (copied / "report.html").read_text(encoding="utf-8")
    refused = CliRunner().invoke(app, ["analyze", "agreement", str(copied), "out=x"])
    assert refused.exit_code == 2
    assert "write it as an option" in refused.output
