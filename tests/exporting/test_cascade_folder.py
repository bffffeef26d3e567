"""`limbeck cascade`: two models measured on rows, written as one folder that is scored like a model."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from typer.testing import CliRunner

import limbeck
import several_labels as several
import tiny_runs as tiny
from limbeck.cards.card import write_card
from limbeck.cards.push import push_files
from limbeck.cards.settings import CardSettings
from limbeck.cli.app import app
from limbeck.data import RowsAsked
from limbeck.exporting.cascade import cascade, curve_table, lines_of
from limbeck.exporting.export_model import export
from limbeck.latency.benching import bench
from limbeck.latency.cascades import cascade_lines
from limbeck.latency.contenders import contenders
from limbeck.latency.settings import BenchSettings
from limbeck.predicting.predict_rows import predict
from limbeck.runtimes.cascade import CASCADE_NAME, read_cascade
from limbeck.scoring import scored_model
from limbeck.scoring.scored_model import ScoredModel
from limbeck.support.errors import LimbeckError

OWN = {"task": "reviews", "text_columns": ["review"], "label_column": "verdict"}


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> tuple[Path, Path, Path]:
    """A random model, one that knows the answers, and 60 rows."""
    place = tmp_path_factory.mktemp("cascade")
    fast = tiny.save(tiny.bert(1, seed=3, initializer_range=0.4), place / "fast")
    slow = tiny.save(tiny.knowing_teacher(2), place / "slow")
    return fast, slow, tiny.write_csv(place / "reviews.csv", 60)


def logits_by_hugging_face(folder: Path, texts: list[str]) -> np.ndarray:
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        return model(**tokenizer(texts, padding=True, return_tensors="pt")).logits.numpy()


def renumbered(model: Path, place: Path) -> Path:
    """The same model under a tokenizer that numbers two words the other way round."""
    shutil.copytree(model, place)
    words = json.loads((place / "tokenizer.json").read_text())
    vocab = words["model"]["vocab"]
    vocab["good"], vocab["bad"] = swapped = vocab["bad"], vocab["good"]
    (place / "tokenizer.json").write_text(json.dumps(words))
    weights = load_file(place / "model.safetensors")
    table = weights["bert.embeddings.word_embeddings.weight"]
    table[[*swapped]] = table[[*swapped[::-1]]].clone()
    save_file(weights, place / "model.safetensors", {"format": "pt"})
    return place


def asked(data: Path) -> RowsAsked:
    return RowsAsked(data=str(data), **OWN)


def test_the_folder_answers_as_a_loop_over_its_members_does(models, tmp_path):
    fast, slow, data = models
    made = cascade([fast, slow], tmp_path / "both", asked(data), wanted={"agreement": 80.0})
    opened = ScoredModel.open(tmp_path / "both")
    loaded = opened.rows()
    scored = opened.score(loaded)
    texts = loaded.rows["sentence"][:]
    first, last = (logits_by_hugging_face(one, texts) for one in (fast, slow))
    right = []
    for row, (one, other) in enumerate(zip(first, last, strict=True)):
        scaled = np.exp(one / made.members[0].temperature)
        sure = scaled.max() / scaled.sum() >= made.members[0].threshold
        right.append((one if sure else other).argmax() == loaded.rows["label"][row])
    assert scored.results.scores["primary"] == pytest.approx(100 * np.mean(right))
    assert 0 < made.chosen.sent[0] < 1
    assert made.chosen.score == pytest.approx(100 * np.mean(right))
    agreement = np.mean(scored.outputs.argmax(1) == last.argmax(1))
    assert made.chosen.agreement == pytest.approx(100 * agreement)
    assert 100 * agreement >= 80


def same_when_scored_one_by_one(members, rows, place, monkeypatch):
    """By the general scorer, which computes the score of each cascade from its outputs."""
    counted = cascade(members, place / "counted", rows, wanted={"agreement": 80.0})
    monkeypatch.setattr("limbeck.exporting.cascade.primary_of_samples", lambda *of: None)
    made = cascade(members, place / "made", rows, wanted={"agreement": 80.0})
    assert counted.chosen.thresholds == made.chosen.thresholds
    ours, theirs = (
        [one.score for one in (*found.members, *found.curve, found.shown)]
        for found in (counted, made)
    )
    assert ours == pytest.approx(theirs, abs=1e-9)
    assert len({*ours}) > 5


def test_counted_scores_are_those_of_the_general_scorer(models, tmp_path, monkeypatch):
    fast, slow, data = models
    same_when_scored_one_by_one([fast, slow], asked(data), tmp_path, monkeypatch)


@pytest.mark.slow
def test_counted_scores_of_several_labels_are_those_of_the_general_scorer(tmp_path, monkeypatch):
    config = several.knowing_teacher(1).config
    config.initializer_range = 0.4
    torch.manual_seed(3)
    fast = tiny.save(type(several.knowing_teacher(1))(config), tmp_path / "fast")
    slow = tiny.save(several.knowing_teacher(2), tmp_path / "slow")
    data = several.write_rows(tmp_path / "rows.jsonl", 60)
    rows = RowsAsked("own", str(data), None, ["review"], "tags")
    same_when_scored_one_by_one([fast, slow], rows, tmp_path, monkeypatch)


@pytest.mark.slow
def test_the_folder_can_be_moved_and_its_members_removed(models, tmp_path):
    fast, slow, data = models
    for one in (fast, slow):
        shutil.copytree(one, tmp_path / one.name)
    cascade([tmp_path / "fast", tmp_path / "slow"], tmp_path / "made", asked(data))
    before = ScoredModel.open(tmp_path / "made")
    score = before.score(before.rows()).results.scores
    shutil.rmtree(tmp_path / "fast")
    shutil.rmtree(tmp_path / "slow")
    (tmp_path / "made").rename(tmp_path / "moved")
    opened = ScoredModel.open(tmp_path / "moved")
    assert opened.score(opened.rows()).results.scores == score


@pytest.mark.slow
def test_rows_without_labels_are_judged_by_the_slow_model(models, tmp_path):
    fast, slow, data = models
    text = tmp_path / "plain.csv"
    lines = data.read_text(encoding="utf-8").splitlines()
    text.write_text("\n".join(line.split(",")[0] for line in lines), encoding="utf-8")
    made = cascade([fast, slow], tmp_path / "made", unlabelled=text, wanted={"agreement": 90.0})
    assert (made.judged_by, made.metric) == ("agreement", "agreement")
    assert made.members[1].score == 100.0
    assert made.chosen.agreement >= 90.0
    assert curve_table(made).cells[0][2:] == ["agreement"]
    card = (tmp_path / "made" / "README.md").read_text(encoding="utf-8")
    assert "limbeck predict FOLDER" in card and "limbeck evaluate" not in card


def test_a_wish_that_no_threshold_meets_is_refused_with_what_can_be(models, tmp_path):
    fast, slow, data = models
    with pytest.raises(
        LimbeckError, match=r"cost 0: .*fast alone costs \d+ % of .*slow"
    ) as refused:
        cascade([fast, slow], tmp_path / "made", asked(data), wanted={"cost": 0.0})
    assert refused.value.problems[0].fix.startswith("allow more")
    assert not (tmp_path / "made").exists()


def test_everything_wrong_is_said_together(models, tmp_path):
    fast, _, data = models
    with pytest.raises(LimbeckError) as refused:
        cascade([fast], tmp_path / "made", asked(data), wanted={"score": 101.0, "cost": 5.0})
    assert "name two or three" in str(refused.value)
    assert "wanted together" in str(refused.value)
    assert "score 101: out of range" in str(refused.value)
    with pytest.raises(LimbeckError, match="fast is named twice"):
        cascade([fast, fast], tmp_path / "made", asked(data))


def test_rows_beside_a_file_of_text_are_refused(models, tmp_path):
    fast, slow, data = models
    rows = RowsAsked("reviews", str(data), "dev", ["review"], "verdict")
    with pytest.raises(LimbeckError) as refused:
        cascade([fast, slow], tmp_path / "made", rows, unlabelled=data)
    found = [one.message.split()[0] for one in refused.value.problems]
    assert found == ["task", "data", "split", "label_column"]


def test_a_class_that_the_models_do_not_know_is_named(models, tmp_path):
    fast, slow, _ = models
    (tmp_path / "rows.csv").write_text("review,verdict\ngood film,positive\nbad plot,strange\n")
    with pytest.raises(LimbeckError, match="it does not know 'strange'"):
        cascade([fast, slow], tmp_path / "made", asked(tmp_path / "rows.csv"))


def test_each_member_reads_texts_of_its_own_length(models, tmp_path):
    fast, slow, data = models
    short = shutil.copytree(slow, tmp_path / "short")
    settings = json.loads((short / "tokenizer_config.json").read_text())
    (short / "tokenizer_config.json").write_text(json.dumps(settings | {"model_max_length": 4}))
    made = cascade([fast, short], tmp_path / "made", asked(data), wanted={"agreement": 80.0})
    lengths = [one.max_length for one in made.members]
    assert lengths[1] == 4 < lengths[0]
    opened = ScoredModel.open(tmp_path / "made")
    scored = opened.score(opened.rows())
    sure = made.members[0].is_sure(
        logits := logits_by_hugging_face(fast, texts_of(opened)), opened.kind
    )
    assert sure.any() and np.allclose(scored.outputs[sure], logits[sure], atol=1e-5)
    assert scored.results.scores["primary"] == pytest.approx(made.chosen.score)


def test_a_checkpoint_reads_more_than_the_run_that_names_the_rows(tmp_path):
    rows = tiny.write_csv(tmp_path / "rows.csv", 60)
    own = {"data": str(rows), **OWN, "student.layers": 1, "epochs": 1, "max_length": 3}
    teacher = tiny.save(tiny.knowing_teacher(2), tmp_path / "slow")
    recipe = limbeck.Recipe.load("kd", teacher=str(teacher), **own)
    run = limbeck.distill(recipe, out=tmp_path / "run", report=False).path
    made = cascade([run, teacher], tmp_path / "made")
    assert made.members[0].max_length == 3 < made.members[1].max_length
    split = ScoredModel.open(run).rows()
    texts = list(split.rows["sentence"])
    right = logits_by_hugging_face(teacher, texts).argmax(1) == np.array(split.rows["label"])
    assert made.members[1].score == pytest.approx(100 * right.mean())


def texts_of(model: ScoredModel) -> list[str]:
    return list(model.rows().rows["sentence"])


def test_what_has_no_confidence_is_refused_before_any_row_is_read(models, tmp_path):
    numbers = tiny.save(tiny.bert(1, seed=0, num_labels=1), tmp_path / "numbers")
    nowhere = RowsAsked(data=str(tmp_path / "nowhere.csv"), task="stsb")
    with pytest.raises(LimbeckError) as refused:
        cascade([models[0], numbers], tmp_path / "made", nowhere)
    model, task = refused.value.problems
    assert model.message == f"cascade: {numbers}: a number has no confidence to decide by"
    assert task.message == "cascade: task stsb: a number has no confidence to decide by"
    assert "kind sentence, multi-label, image" in model.fix and "pair-score" not in model.fix
    assert "nowhere.csv" not in str(refused.value)


@pytest.mark.slow
def test_a_cascade_is_no_member(models, tmp_path):
    fast, slow, data = models
    cascade([fast, slow], tmp_path / "made", asked(data))
    with pytest.raises(LimbeckError, match="made is a cascade itself"):
        cascade([fast, tmp_path / "made"], tmp_path / "again", asked(data))


def test_nan_is_said_of_the_member_that_gives_it(models, tmp_path):
    fast, slow, data = models
    broken = tiny.bert(1, seed=3)
    with torch.no_grad():
        broken.classifier.bias[0] = float("nan")
    place = tiny.save(broken, tmp_path / "broken")
    for members in ([place, slow], [fast, place]):
        with pytest.raises(LimbeckError, match=r"broken gives NaN .* for 60 of 60 rows"):
            cascade(members, tmp_path / "made", asked(data))


def test_a_member_with_other_classes_is_named(models, tmp_path, monkeypatch):
    fast, slow, data = models
    monkeypatch.delattr(ScoredModel, "outputs")  # before any of them runs
    three = tiny.save(tiny.bert(1, seed=3, num_labels=3), tmp_path / "three")
    with pytest.raises(LimbeckError, match=r"model .*three: it has 3 outputs"):
        cascade([fast, three, slow], tmp_path / "made", asked(data))


def test_text_without_labels_is_named_as_such(models, tmp_path):
    fast, slow, data = models
    plain = tmp_path / "plain.csv"
    plain.write_text("\n".join(row.split(",")[0] for row in data.read_text().splitlines()))
    for rows in (RowsAsked(data=str(plain), text_columns=["review"]), asked(plain)):
        with pytest.raises(LimbeckError, match=r"label column(.|\n)*--unlabelled .*plain.csv"):
            cascade([fast, slow], tmp_path / "made", rows)


def test_rows_to_score_of_which_some_have_no_label_are_refused(models, tmp_path):
    fast, slow, data = models
    rows = data.read_text().splitlines()
    rows[2:4] = [row.replace("negative", "").replace("positive", "nan") for row in rows[2:4]]
    (tmp_path / "gaps.csv").write_text("\n".join(rows) + "\n")
    gaps = asked(tmp_path / "gaps.csv")
    with pytest.raises(LimbeckError, match=r"'dev' of reviews: 2 of 60 rows have no label"):
        cascade([fast, slow], tmp_path / "made", gaps)
    with pytest.raises(LimbeckError, match=r"'dev' of reviews: 2 of 60 rows have no label"):
        ScoredModel.open(slow).rows(gaps)


def test_members_of_one_name_are_told_apart(models, tmp_path):
    fast, slow, data = models
    members = [tmp_path / "small" / "onnx", tmp_path / "large" / "onnx"]
    for source, place in zip((fast, slow), members, strict=True):
        shutil.copytree(source, place)
    made = cascade(members, tmp_path / "made", asked(data))
    said = "\n".join(lines_of(made))
    alone = [f"{one.score:.1f}" for one in made.members]
    assert f"(alone small/onnx {alone[0]}, large/onnx {alone[1]})" in said
    answers = predict(tmp_path / "made", data, text_columns=["review"])
    assert {row["answered_by"] for row in answers} <= {"small/onnx", "large/onnx"}


@pytest.fixture
def clock(monkeypatch):
    """A clock on which loading takes 5 s, then 15 s, a tokenizer 9 s, and each row that a model reads 2 ms."""
    now = [0.0]

    def takes(seconds):
        now[0] += seconds

    load, passes = ScoredModel.load, scored_model.compact_outputs_of
    tokenizer = scored_model.read_processor
    pauses = itertools.cycle((5.0, 15.0))
    monkeypatch.setattr(
        ScoredModel, "load", lambda *a, **k: [takes(next(pauses)), load(*a, **k)][1]
    )
    monkeypatch.setattr(scored_model, "read_processor", lambda *a: [takes(9.0), tokenizer(*a)][1])
    monkeypatch.setattr(
        scored_model,
        "compact_outputs_of",
        lambda model, rows, *a: [takes(0.002 * len(rows)), passes(model, rows, *a)][1],
    )
    clock = SimpleNamespace(perf_counter=lambda: now[0])
    monkeypatch.setattr("limbeck.exporting.cascade.time", clock)


def test_a_cascade_slower_than_its_last_model_is_said(models, tmp_path):
    fast, slow, data = models
    made = cascade([fast, slow], tmp_path / "made", asked(data), wanted={"agreement": 80.0})
    members = [one.model_copy(update={"seconds": 0.01}) for one in made.members]
    for seconds, said in ((0.011, True), (0.009, False)):
        chosen = made.chosen.model_copy(update={"seconds": seconds})
        lines = lines_of(made.model_copy(update={"members": members, "chosen": chosen}))
        assert any("slow alone is faster" in line for line in lines) is said


@pytest.mark.slow
def test_a_members_time_is_that_of_its_passes_without_loading(models, tmp_path, clock):
    fast, slow, data = models
    made = cascade([fast, slow], tmp_path / "made", asked(data))
    assert [one.seconds for one in made.members] == pytest.approx([0.002, 0.002])


@pytest.mark.slow
def test_bench_says_what_a_row_of_the_whole_cascade_takes(models, tmp_path, clock):
    fast, slow, data = models
    made = cascade([fast, slow], tmp_path / "made", asked(data), wanted={"agreement": 80.0})
    settings = BenchSettings(batch_sizes=(2, 1), lengths=(4,), passes=5, warm_up=1)
    report = bench([tmp_path / "made"], settings, out=tmp_path / "bench")
    first, last = (one.p50 / 2 for one in report.measurements[:2])
    assert [one.model for one in report.measurements[:2]] == ["1-fast", "2-slow"]
    share = made.chosen.sent[0]
    line = next(one for one in report.notes if one.startswith("made: "))
    assert line in (tmp_path / "bench" / "bench.md").read_text()
    expected, terms, measured = re.fullmatch(
        r"made: (\S+) ms a row expected \((.*); batch 2, 4 tokens, 1 thread\); "
        r"(\S+) ms measured on its rows, with tokenization\.",
        line,
    ).groups()
    assert float(expected) == pytest.approx(first + share * last, rel=5e-3)
    assert terms == f"{first:.3g} + {100 * share:.1f} % × {last:.3g}"
    assert float(measured) == pytest.approx(2 * (1 + made.chosen.sent[0]), rel=5e-3)


@pytest.mark.slow
def test_bench_reads_the_text_that_chose_the_thresholds_or_says_why_not(models, tmp_path, clock):
    fast, slow, data = models
    text = tmp_path / "plain.csv"
    lines = data.read_text(encoding="utf-8").splitlines()
    text.write_text("\n".join(line.split(",")[0] for line in lines), encoding="utf-8")
    cascade([fast, slow], tmp_path / "made", unlabelled=text, wanted={"agreement": 90.0})
    place, settings = str(tmp_path / "made"), BenchSettings(lengths=(4,), passes=5, warm_up=1)
    (line,) = cascade_lines([place], [], bench([place], settings).measurements)
    assert "no expected time" in line and "measured on its rows" in line
    text.unlink()
    (line,) = cascade_lines([place], [], bench([place], settings).measurements)
    assert "its rows cannot be read" in line and "plain.csv" in line


@pytest.mark.slow
def test_a_changed_member_is_seen(models, tmp_path):
    fast, slow, data = models
    cascade([fast, slow], tmp_path / "made", asked(data))
    config = next((tmp_path / "made").glob("1-*/config.json"))
    changed = json.loads(config.read_text()) | {"vocab_size": 3}
    config.unlink()  # the file itself is the member's own
    config.write_text(json.dumps(changed))
    with pytest.raises(LimbeckError, match=r"damaged: 1-fast/config\.json"):
        read_cascade(tmp_path / "made")


def test_the_command_says_what_was_measured_and_writes_the_picture(models, tmp_path):
    fast, slow, data = models
    out = tmp_path / "made"
    line = [
        "cascade",
        str(fast),
        str(slow),
        "--data",
        str(data),
        "--task",
        "reviews",
        "--out",
        str(out),
    ]
    line += ["--text-columns", "review", "--label-column", "verdict", "--max-drop", "5"]
    done = CliRunner().invoke(app, line)
    assert done.exit_code == 0, done.output
    assert "fast sends on rows where it is less than" in done.output
    assert "times as fast as slow alone" in done.output
    assert (out / "curve.svg").read_text().startswith("<svg")
    assert "limbeck evaluate" in (out / "README.md").read_text()
    alone = {one.name: one.score for one in read_cascade(out).members}
    first, *_, last = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (out / "README.md").read_text().splitlines()
        if line.endswith(" % |")
    )
    # All rows or none sent on: each model's score alone; a row of all costs both models.
    assert (first[0], first[2]) == ("0.0 %", f"{alone[str(fast)]:.1f}")
    assert (last[0], last[2], last[3]) == ("100.0 %", f"{alone[str(slow)]:.1f}", "100.0 %")
    assert int(first[1]) < int(last[1]) and int(last[1]) > 100
    assert "rows to slow" in done.output
    assert json.loads((out / CASCADE_NAME).read_text())["wanted"] == {"max_drop": 5.0}
    scored = CliRunner().invoke(app, ["evaluate", str(out)])
    assert scored.exit_code == 0, scored.output
    again = CliRunner().invoke(app, line)
    assert again.exit_code == 2
    assert "the existing cascade would be replaced" in again.output


def test_predict_gives_the_answers_that_evaluate_scores(models, tmp_path):
    fast, slow, data = models
    # The slow model with another tokenizer: rows are read anew by the member that answers them.
    other = renumbered(slow, tmp_path / "other")
    made = cascade([fast, other], tmp_path / "made", asked(data), wanted={"agreement": 80.0})
    opened = ScoredModel.open(tmp_path / "made")
    loaded = opened.rows()
    expected = opened.score(loaded).outputs
    rows = [{"review": text} for text in loaded.rows["sentence"][:]]
    found = predict(
        tmp_path / "made", rows, output=["labels", "logits"], text_columns=["review"], batch_size=7
    )
    given = np.array([[row["logits"][name] for name in ("negative", "positive")] for row in found])
    assert np.allclose(given, expected, atol=1e-5)
    assert 0 < made.chosen.sent[0] < 1
    by = [row["answered_by"] for row in found]
    assert by.count("other") / len(by) == pytest.approx(made.chosen.sent[0])
    own = logits_by_hugging_face(fast, [row["review"] for row in rows])
    for name, ours, theirs in zip(by, given, own, strict=True):
        assert name == "other" or (name == "fast" and np.allclose(ours, theirs, atol=1e-5))
    names = np.array(["negative", "positive"])
    assert [row["prediction"] for row in found] == names[expected.argmax(1)].tolist()
    with pytest.raises(LimbeckError, match="is a cascade, whose models have different embeddings"):
        predict(tmp_path / "made", rows, output=["embeddings"])


@pytest.mark.slow
def test_the_whole_folder_is_pushed_and_its_members_are_timed(models, tmp_path):
    fast, slow, data = models
    cascade([fast, slow], tmp_path / "made", asked(data), wanted={"agreement": 80.0})
    sent = push_files(tmp_path / "made", "me/made")
    made = tmp_path / "made"
    there = {one.relative_to(made).as_posix() for one in made.rglob("*") if one.is_file()}
    assert {one.name for one in sent} == there
    said = next(one.content for one in sent if one.name == CASCADE_NAME)
    assert isinstance(said, bytes) and str(tmp_path).encode() not in said
    for one in sent:  # what was sent is a cascade that answers alike
        place = tmp_path / "copy" / one.name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(
            one.content if isinstance(one.content, bytes) else one.content.read_bytes()
        )
    rows = [{"review": "a good film"}, {"review": "a bad plot"}]
    found, again = (
        predict(tmp_path / name, rows, text_columns=["review"]) for name in ("made", "copy")
    )
    assert [row["prediction"] for row in found] == [row["prediction"] for row in again]
    assert [one.path.name for one in contenders([str(tmp_path / "made")])] == ["1-fast", "2-slow"]
    assert write_card(tmp_path / "made") == tmp_path / "made" / "README.md"
    with pytest.raises(LimbeckError, match="is a cascade, whose card takes no settings"):
        write_card(tmp_path / "made", CardSettings(license="mit"))


@pytest.mark.slow
def test_an_exported_checkpoint_is_a_member(models, tmp_path):
    """It has no recipe: its manifest says how long texts are."""
    fast, slow, data = models
    rows = {"text_columns": ["review"], "label_column": "verdict", "max_length": 9}
    export(slow, "reviews", data, out=tmp_path / "int8", format="onnx-int8", max_drop=100, **rows)
    made = cascade(
        [fast, tmp_path / "int8"], tmp_path / "made", asked(data), wanted={"agreement": 80.0}
    )
    assert made.members[1].max_length == 9
    assert predict(tmp_path / "made", [{"review": "a good film"}], text_columns=["review"])


def test_the_share_sent_on_is_that_of_the_written_thresholds(models, tmp_path):
    """It was the mean of two other thresholds', which each half of the rows chose for the other."""
    fast, slow, data = models
    made = cascade([fast, slow], tmp_path / "made", asked(data), wanted={"agreement": 90.0})
    answered = [
        row["answered_by"] for row in predict(tmp_path / "made", data, text_columns=["review"])
    ]
    share = 100 * answered.count("slow") / len(answered)
    (line,) = (one for one in lines_of(made) if "reach slow" in one)
    assert f"with these thresholds {share:.1f} % of rows" in line
    assert not any("saves no time" in one for one in lines_of(made)[:-1])
    slower = [made.members[0].model_copy(update={"seconds": 9.0}), made.members[1]]
    said = lines_of(made.model_copy(update={"members": slower}))
    assert "fast is slower than slow, and saves no time: name the fastest first" in said
    for threshold, line in (
        (0.0, "sends nothing on: it meets the goal alone"),
        (1.5, "sends everything on"),
    ):
        members = [one.model_copy(update={"threshold": threshold}) for one in made.members]
        assert lines_of(made.model_copy(update={"members": members}))[0] == f"fast {line}"


def test_rows_that_a_member_was_trained_on_are_said(models, tmp_path):
    _, slow, data = models
    how = {"data": str(data), **OWN, "epochs": 1, "floor": False, "student.init": str(slow)}
    run = limbeck.distill("finetune", out=tmp_path / "run", report=False, **how).path
    made = cascade([run, slow], tmp_path / "made", asked(data))
    assert made.known == {str(run): 60}
    said = "60 of these rows are training or dev rows of run: its score measures memorization"
    assert said in lines_of(made)
    assert "measures memorization" in (tmp_path / "made" / "README.md").read_text()
    others = tiny.write_csv(tmp_path / "others.csv", 90).read_text().splitlines()
    (tmp_path / "others.csv").write_text(
        "\n".join([others[0], *(f"indeed {one}" for one in others[1:])])
    )
    assert not cascade([run, slow], tmp_path / "other", asked(tmp_path / "others.csv")).known
