"""Whole runs and trainings of static students: by the usual methods, commands, resume and refusals."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from string import ascii_lowercase

import numpy as np
import onnx
import pytest
import torch
from static_models import batch, outputs, student
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerFast
from typer.testing import CliRunner

import limbeck
import several_labels as several
import tiny_runs as tiny
from limbeck.cli.app import app
from limbeck.data import RowsAsked
from limbeck.exporting.export_model import export, refused
from limbeck.exporting.settings import ExportSettings
from limbeck.recipe import Recipe
from limbeck.recipe.quick import training_for
from limbeck.run import prepare
from limbeck.runtimes.manifest import Attempt, Conversion
from limbeck.scoring.evaluation import evaluation_of
from limbeck.static import RowAdam, StaticReader, StaticStudent, static_student, token_vectors
from limbeck.support.errors import LimbeckError
from quick_cases import quick


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("static")
    tiny.save(tiny.knowing_teacher(), folder / "teacher")
    tiny.write_csv(folder / "rows.csv", 120)
    return folder


@pytest.fixture(scope="module")
def settings(place):
    return {
        "teacher": str(place / "teacher"), "task": "mine", "data": str(place / "rows.csv"),
        "text_columns": ["review"], "label_column": "verdict", "max_length": 16, "batch_size": 16,
        "student.static": True, "student.width": 8, "student.pairs": 50, "floor": False, "epochs": 8, "lr": 2e-2,
    }  # fmt: skip


@pytest.fixture(scope="module")
def run(place, settings):
    return limbeck.distill(Recipe.load("kd", **settings), out=place / "run")


def test_activations_are_not_computed_again_where_there_are_no_layers(settings, tmp_path) -> None:
    recipe = Recipe.load("kd", **settings, activation_checkpointing=True)
    with pytest.raises(LimbeckError, match="activation_checkpointing: StaticStudent"):
        limbeck.distill(recipe, out=tmp_path / "run")


def test_stored_outputs_alone_teach_a_fresh_student_with_a_tokenizer_of_its_own(
    place, settings, tmp_path
) -> None:
    """No teacher's folder is needed, such as where a language model has labeled the rows."""
    store = tmp_path / "store"
    limbeck.label(
        place / "teacher",
        place / "rows.csv",
        text_columns=["review"],
        out=str(store),
        outputs=["logits"],
    )
    own = {"teacher": None, "outputs": [str(store)], "student.init": "fresh"}
    with pytest.raises(LimbeckError, match=r"student\.tokenizer=30000 is trained on the texts"):
        limbeck.distill(Recipe.load("kd", **settings | own), out=tmp_path / "refused")
    with pytest.raises(LimbeckError, match=r"student\.init=fresh student\.tokenizer=30000"):
        usual = Recipe.load("kd", **settings | own | {"student.init": "teacher"})
        limbeck.distill(usual, out=tmp_path / "refused")
    recipe = Recipe.load("kd", **settings | own, **{"student.tokenizer": 100})
    made = limbeck.distill(recipe, out=tmp_path / "run")
    assert made.scores["dev"]["primary"] > 90
    assert len(StaticReader(made.path / "student").arrays["vectors.weight"]) <= 100
    printed("card", made.path)
    assert (
        "| student's start | random weights |" in (made.path / "student" / "README.md").read_text()
    )


def printed(*words) -> str:
    done = CliRunner().invoke(app, [*map(str, words)])
    assert done.exit_code == 0, done.output
    return done.output


def test_a_run_learns_and_ships_a_folder_that_reads_alone(run, place) -> None:
    assert run.scores["dev"]["primary"] == 100
    record = json.loads((run.path / "record.json").read_text())
    assert record["student"]["layers"] == 0
    # 250 epochs would be 1,500 steps of few rows; of many ten are enough.
    assert training_for(96, 16, 0.0) == (30.0, 2e-3)
    assert training_for(9_600, 128, 0.0) == (20.0, 2e-3)
    assert training_for(67_000, 128, 0.0) == (10.0, 2e-3)
    shipped = AutoModelForSequenceClassification.from_pretrained(run.path / "student")
    assert isinstance(shipped, StaticStudent)
    assert (shipped.config.hidden_size, shipped.config.pairs) == (8, 50)
    assert (shipped.config.head_width, shipped.config.token_dropout) == (64, 0.3)
    assert shipped.config.id2label == {0: "negative", 1: "positive"}
    texts = ["good film", "the bad plot very slow"]
    said = subprocess.run(
        [sys.executable, run.path / "student" / "predict.py", *texts],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    np.testing.assert_allclose(json.loads(said.stdout), outputs(shipped, texts), atol=1e-5)
    # A long text is truncated as in training.
    long = ["bad film " * 10 + "good " * 40]
    with torch.no_grad():
        cut = shipped(**batch(long, truncation=True, max_length=16)).logits
    np.testing.assert_allclose(StaticReader(run.path / "student")(long), cut, atol=1e-5)


def test_commands_take_it_like_any_other(run, place) -> None:
    assert "100.0" in printed("evaluate", run.path)
    printed("predict", run.path, place / "rows.csv", "--to", place / "said.csv")
    assert len((place / "said.csv").read_text().splitlines()) == 121
    printed("card", run.path)
    card = (run.path / "student" / "README.md").read_text()
    assert "A StaticStudent model" in card
    assert "0-layer" not in card
    assert "import limbeck.static" in card
    assert "| student's start | the teacher's vectors of each token |" in card
    sent = printed("push", run.path, "me/fast", "--dry-run")
    for name in ("config.json", "model.safetensors", "predict.py", "tokenizer.json", "README.md"):
        assert f"  {name}\n" in sent
    assert "nothing is sent" in sent
    assert " 0 " in printed("table", run.path)


@pytest.mark.slow
def test_it_is_timed_like_any_other(run, place) -> None:
    """By a process of its own."""
    words = ("--passes", "5", "--lengths", "8", "--out", place / "bench")
    assert "torch" in printed("bench", run.path, *words)


@pytest.mark.parametrize(
    "form", quick("numpy-int8", of=("onnx", "onnx-int8", "numpy", "numpy-int8"))
)
def test_exports_are_measured_and_run(form, run, place) -> None:
    shown = printed("export", run.path, "--format", form)
    assert "shipped" in shown
    assert ("StaticReader(" in shown) == form.startswith("numpy")
    assert "class StaticReader" not in shown
    folder, target = run.path / "exported" / form, place / f"{form}.csv"
    manifest = json.loads((folder / "export.json").read_text())
    assert manifest["measured"]["scores"]["primary"] == 100
    assert manifest["measured"]["logits"]["largest_difference"] < (0.5 if "int8" in form else 1e-4)
    if form == "onnx-int8":  # the head stays in float
        graph = onnx.load(folder / "model.onnx").graph
        assert {one.op_type for one in graph.node} & {"DequantizeLinear"}
        assert not {one.op_type for one in graph.node} & {"MatMulInteger", "DynamicQuantizeLinear"}
    printed("evaluate", folder)
    printed("predict", folder, place / "rows.csv", "--to", target)
    assert len(target.read_text().splitlines()) == 121
    said = subprocess.run(
        [sys.executable, folder / "predict.py", "good film"], capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr


def test_word_pairs_are_left_out_of_model2vec_at_a_measured_price(run, place) -> None:
    inference = pytest.importorskip("model2vec.inference")
    printed("export", run.path, "--format", "model2vec", "--max-drop", "100")
    folder = run.path / "exported" / "model2vec"
    measured = json.loads((folder / "export.json").read_text())["measured"]
    config = json.loads((folder / "config.json").read_text())
    assert config["score_change_without_word_pairs"] == -measured["drop"]
    pipeline = inference.StaticModelPipeline.from_pretrained(folder)
    bare = AutoModelForSequenceClassification.from_pretrained(run.path / "student")
    bare.pairs, texts = None, ["good film", "the bad plot very slow"]
    expected = outputs(bare, texts).softmax(-1)
    np.testing.assert_allclose(pipeline.predict_proba(texts), expected, atol=1e-5)
    done = CliRunner().invoke(app, ["evaluate", str(folder)])
    assert "is for model2vec and sentence-transformers; limbeck does not run it" in done.output


@pytest.mark.parametrize(("words", "dropout"), [(8, 0.3), (60, 0.5)])
def test_a_fresh_students_settings_follow_the_length_of_the_texts(
    settings, tmp_path, words, dropout
) -> None:
    lines = [f"{' '.join(['good bad film plot'] * (words // 4))},{n % 2}" for n in range(120)]
    (tmp_path / "rows.csv").write_text("review,verdict\n" + "\n".join(lines) + "\n")
    given = {
        "teacher": None,
        "student.init": "fresh",
        "student.tokenizer": str(settings["teacher"]),
    }
    given |= {"data": str(tmp_path / "rows.csv"), "max_length": 64, "epochs": 1}
    run = limbeck.distill(Recipe.load("finetune", **settings | given), out=tmp_path / "run")
    assert run.student.config.token_dropout == dropout


def test_model2vecs_cut_after_some_characters_is_measured(tmp_path) -> None:
    """It reads as many characters as its limit has tokens of median length: here 8, of texts of 30."""
    inference = pytest.importorskip("model2vec.inference")
    words = ["[PAD]", "[UNK]", *ascii_lowercase, "film", "excellent", "dreadful"]
    core = Tokenizer(WordLevel({word: place for place, word in enumerate(words)}, "[UNK]"))
    core.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, unk_token="[UNK]", pad_token="[PAD]")
    made = static_student(tokenizer, 2, pairs=0, num_labels=2, head_width=0)
    with torch.no_grad():
        for weight in made.parameters():
            weight.zero_()
        made.weights.weight[:] = 1.0
        made.vectors.weight[-2:] = 9 * torch.eye(2)
        made.head[-1].weight.copy_(torch.eye(2))
    for part in (made, tokenizer):
        part.save_pretrained(tmp_path / "student")
    rows = [("film film film film " + words[-2 + n % 2], n % 2) for n in range(40)]
    lines = "\n".join(f"{text},{label}" for text, label in rows)
    (tmp_path / "rows.csv").write_text(f"text,label\n{lines}\n")
    asked = {"text_columns": ["text"], "label_column": "label", "max_length": 8}
    given = (tmp_path / "student", "mine", str(tmp_path / "rows.csv"))
    found = export(*given, **asked, out=tmp_path / "out", format="model2vec", max_drop=100)
    measured = found.manifest.measured
    assert measured.torch_scores["accuracy"] == 100
    pipeline = inference.StaticModelPipeline.from_pretrained(found.path)
    predicted = pipeline.predict([text for text, _ in rows])
    hits = np.mean(
        [
            int(str(one).rsplit("_")[-1]) == label
            for one, (_, label) in zip(predicted, rows, strict=True)
        ]
    )
    assert measured.scores["accuracy"] == 100 * hits < 60
    with pytest.raises(LimbeckError, match=r"model2vec .*loses 50\.00 points"):
        export(*given, **asked, out=tmp_path / "gated", format="model2vec")


def test_a_loss_by_word_pairs_is_refused_with_what_keeps_them() -> None:
    settings = ExportSettings.checked({"format": "model2vec"})
    tried = [Attempt(conversion=Conversion(name="fp32", precision="fp32"), error="no room")]
    (problem,) = refused("student", None, settings, tried).problems
    assert "--format numpy" in problem.fix and "student.pairs=0" in problem.fix


def test_other_models_have_no_such_formats(place) -> None:
    with pytest.raises(LimbeckError, match=r"format numpy: .* is no static student"):
        export(place / "teacher", "mine", str(place / "rows.csv"), format="numpy")


@pytest.mark.slow
def test_a_number_a_text(place, settings) -> None:
    tiny.save(tiny.knowing_teacher(regression=True), place / "numbers")
    tiny.write_csv(place / "numbers.csv", 120, regression=True)
    given = {"teacher": str(place / "numbers"), "data": str(place / "numbers.csv"), "epochs": 2}
    found = limbeck.distill(Recipe.load("kd", **(settings | given)), out=place / "number")
    assert found.student.config.problem_type == "regression"
    assert found.student.config.num_labels == 1


def test_seeds_share_one_pass_of_the_teacher_over_the_vocabulary(
    place, settings, tmp_path, monkeypatch
) -> None:
    passes = []

    def counted(*given):
        passes.append(given)
        return token_vectors(*given)

    monkeypatch.setattr(prepare, "token_vectors", counted)
    monkeypatch.setattr(prepare, "_READ", {})

    def made(seed: int, **more):
        asked = {**settings, "epochs": 1, "seed": seed, **more}
        return limbeck.distill(Recipe.load("kd", **asked), out=tmp_path / f"{seed}{len(passes)}")

    first, second = made(1).student, made(2).student
    assert len(passes) == 1
    assert not torch.equal(first.head[0].weight, second.head[0].weight)
    other = tiny.save(tiny.knowing_teacher(layers=3), tmp_path / "other")
    made(1, teacher=str(other))
    assert len(passes) == 2


@pytest.mark.slow
def test_several_labels_a_row(tmp_path) -> None:
    """Each label has a probability of its own: the sigmoid of its output, also in the shipped NumPy folder."""
    place = several.place_of(tmp_path)
    given = {"student.static": True, "student.width": 8, "student.layers": None}
    recipe = several.recipe_of(place, "kd", classes=list(several.CLASSES), **given)
    found = limbeck.distill(recipe, out=tmp_path / "run")
    config = found.student.config
    assert config.problem_type == "multi_label_classification"
    assert tuple(config.id2label.values()) == several.CLASSES
    printed("export", found.path, "--format", "numpy", "--max-drop", "100")
    texts = ["good film", "the bad plot very slow"]
    read = StaticReader(found.path / "exported" / "numpy")(texts)
    rows = [{"review": text} for text in texts]
    said = limbeck.predict(found.path / "exported" / "numpy", rows, output=["probabilities"])
    for outputs_of_row, row in zip(read, said, strict=True):
        for place_of_label, name in enumerate(several.CLASSES):
            expected = 1 / (1 + math.exp(-outputs_of_row[place_of_label]))
            assert row["probabilities"][name] == pytest.approx(expected, abs=1e-5)


def test_a_finished_student_is_no_start_for_other_labels_or_tables(run, place, settings) -> None:
    lines = ["review,verdict", *(f"good film,{'xyz'[row % 3]}" for row in range(60))]
    (place / "other.csv").write_text("\n".join(lines) + "\n")
    given = {**settings, "student.init": str(run.path), "data": str(place / "other.csv")}
    del given["teacher"]
    with pytest.raises(LimbeckError, match=r"student\.init .*: .* is a static student, and only"):
        limbeck.distill(Recipe.load("finetune", **given), out=place / "refused")
    given = {
        name: value for name, value in given.items() if name[:8] != "student." or "init" in name
    }
    said = r"student\.init .*: a static student for negative, positive, and the task has x, y, z"
    with pytest.raises(LimbeckError, match=said):
        limbeck.distill(Recipe.load("finetune", **given), out=place / "refused")


@pytest.mark.slow
def test_another_start_and_tokenizer(place, settings) -> None:
    """Random numbers; a student that goes on from a finished one is like any checkpoint."""
    given = {**settings, "student.init": "fresh", "epochs": 1}
    first = limbeck.distill(Recipe.load("kd-soft", **given), out=place / "fresh")
    assert first.student.vectors.weight.std() < 0.05
    given = {**settings, "student.init": str(place / "fresh"), "epochs": 1}
    del given["student.static"], given["student.width"], given["student.pairs"]
    second = limbeck.distill(Recipe.load("kd-soft", **given), out=place / "second")
    assert isinstance(second.student, StaticStudent)


@pytest.mark.parametrize(
    ("method", "changes", "said"),
    [
        ("rail-kd-l", {}, r"objectives.rail: it compares layers, and a static student has no layers"),
        ("kd", {"mixup.alpha": 1.0}, r"mixup: mixup works inside layers.*\n.*leave mixup out"),
        ("kd", {"student.layers": 2}, r"student\.layers: a static student has no layers to choose"),
        ("kd", {"optimizer": "sgd"}, r"optimizer: sgd does not read the sparse gradients"),
        ("kd", {"student.static": False}, r"student\.width: has an effect only with student\.static"),
        ("kd", {"student.width": 99}, r"student\.width 99: the teacher's vectors have 16 numbers"),
    ],
)  # fmt: skip
def test_what_it_cannot_do_is_refused_by_name(
    settings, method, changes, said, place, monkeypatch
) -> None:
    monkeypatch.delattr(prepare, "token_vectors")  # before the teacher reads its vocabulary
    with pytest.raises(LimbeckError, match=said):
        limbeck.distill(Recipe.load(method, **(settings | changes)), out=place / "refused")


# The Trainer.


def trained(folder, *callbacks, **given):
    made = student(num_labels=2, pairs=30, head_width=4, token_dropout=0.5)
    return tiny.trainer_of(
        made,
        limbeck.DistillationConfig(
            str(folder), num_train_epochs=2, per_device_train_batch_size=4, save_steps=1, seed=7,
            save_strategy="steps", report_to=[],
            dataloader_pin_memory=False, **given,
        ),
        teacher=tiny.knowing_teacher(),
        train_dataset=tiny.rows(22),
        data_collator=limbeck.data.Collator(tiny.tokenizer()),
        callbacks=[*callbacks],
    )  # fmt: skip


def test_a_training_that_is_killed_ends_as_an_unbroken_one(tmp_path) -> None:
    whole = trained(tmp_path / "whole")
    torch.manual_seed(1)
    whole.train()
    assert type(getattr(whole.optimizer, "optimizer", whole.optimizer)) is RowAdam
    torch.manual_seed(2)
    with pytest.raises(tiny.KilledError):
        trained(tmp_path / "killed", tiny.Kill("step_begin", 7)).train()
    torch.manual_seed(3)
    resumed = trained(tmp_path / "killed")
    resumed.train(resume_from_checkpoint=True)
    for name, value in whole.student.state_dict().items():
        assert torch.equal(value, resumed.student.state_dict()[name]), name


def test_layer_terms_are_refused_by_name_in_the_trainer(tmp_path) -> None:
    with pytest.raises(
        LimbeckError, match="the student has no layers over tokens, as a static student"
    ):
        trained(tmp_path, method="rail-kd-l")


def test_without_clipping_the_norm_is_logged(tmp_path) -> None:
    trainer = trained(tmp_path, max_grad_norm=0.0, logging_steps=1)
    trainer.train()
    assert all(
        entry["grad_norm"] > 0 for entry in trainer.state.log_history if "grad_norm" in entry
    )


def test_classes_in_the_teachers_order_are_those_of_evaluate_and_export(place, settings, tmp_path):
    """Not in the order in which the rows' own are found, which is that of the alphabet."""
    teacher = tiny.knowing_teacher()
    with torch.no_grad():
        teacher.classifier.weight.copy_(teacher.classifier.weight.flip(0))
        teacher.classifier.bias.copy_(teacher.classifier.bias.flip(0))
    teacher.config.id2label = {0: "positive", 1: "negative"}
    teacher.config.label2id = {"positive": 0, "negative": 1}
    given = settings | {"teacher": str(tiny.save(teacher, tmp_path / "teacher"))}
    made = limbeck.distill(Recipe.load("kd", **given), out=tmp_path / "run", report=False)
    found = evaluation_of(made.path, RowsAsked(split="dev")).scores
    assert found["primary"] == made.scores["dev"]["primary"] > 90
    export(made.path, format="numpy", out=tmp_path / "numpy")
