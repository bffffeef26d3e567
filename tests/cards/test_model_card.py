"""The model card: what the Hub's own library reads of it, what it says, and what it never says."""

from __future__ import annotations

import json
import logging
import re
import shutil
from types import SimpleNamespace

import pytest
import yaml
from huggingface_hub import ModelCard
from huggingface_hub.repocard_data import model_index_to_eval_results
from typer.testing import CliRunner

from card_runs import add_bench, add_export, make_run
from limbeck import predict
from limbeck.cards import CardSettings
from limbeck.cards.card import MARKER, is_ours, write_card
from limbeck.cards.facts import PIPELINES, StudentFacts, hub_name, public_name, usage, without_paths
from limbeck.cards.metadata import HUB_METRICS, metadata
from limbeck.cards.tables import score_table
from limbeck.cli.app import app
from limbeck.recipe import Recipe
from limbeck.records import Record
from limbeck.run import distill
from limbeck.run.finish import refresh
from limbeck.support.errors import LimbeckError
from limbeck.tasks import TASKS
from limbeck.tasks.text import TEXT
from limbeck.training import DistillationTrainer
from synthetic_records import a_run, a_teacher
from tiny_language_models import save_language_model

# The fields of a model card's metadata that the Hub documents, and their types.
HUB_FIELDS = {
    "language": list, "license": str, "library_name": str, "tags": list, "datasets": list,
    "metrics": list, "base_model": (str, list), "pipeline_tag": str, "model-index": list,
}  # fmt: skip
HUB_PIPELINES = {
    "text-classification", "token-classification", "question-answering", "fill-mask",
    "image-classification", "text2text-generation", "text-generation",
    "sentence-similarity",
}  # fmt: skip
HUB_METRIC_NAMES = {"accuracy", "f1", "matthews_correlation", "pearsonr", "spearmanr"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run that no test may change."""
    return make_run(tmp_path_factory.mktemp("secret-folder"))


@pytest.fixture
def run(made, tmp_path):
    shutil.copytree(made.parent, tmp_path / "place")
    return tmp_path / "place" / made.name


def card_of(run) -> ModelCard:
    return ModelCard.load(run / "student" / "README.md")


def front_matter(run) -> dict:
    text = (run / "student" / "README.md").read_text(encoding="utf-8")
    assert text.startswith("---\n")
    return yaml.safe_load(text.split("---\n")[1])


def section(text: str, title: str) -> str:
    return re.split(rf"^#+ {title}$", text, flags=re.MULTILINE)[1].split("\n## ")[0]


# ---- every run ----


def test_every_run_leaves_a_card_that_the_hub_can_read(made):
    card, record = card_of(made), Record.load(made)
    assert card.data.pipeline_tag == "text-classification"
    assert card.data.library_name == "transformers"
    assert "knowledge-distillation" in card.data.tags
    name, results = model_index_to_eval_results(front_matter(made)["model-index"])
    assert name == made.name
    found = {result.metric_type: result.metric_value for result in results}
    assert found["accuracy"] == pytest.approx(record.scores["dev"]["accuracy"] / 100, abs=1e-4)
    assert {result.dataset_split for result in results} == {"validation"}
    assert {result.dataset_name for result in results} == {"reviews"}


def test_the_metadata_are_fields_that_the_hub_documents(made):
    found = front_matter(made)
    assert found.keys() <= HUB_FIELDS.keys()
    for key, value in found.items():
        assert isinstance(value, HUB_FIELDS[key]), key
    assert set(PIPELINES.values()) == HUB_PIPELINES
    assert set(HUB_METRICS.values()) | {"accuracy"} == HUB_METRIC_NAMES


def test_a_card_names_no_folder_of_the_machine(run):
    add_export(run)
    add_bench(run)
    refresh(run)
    text = (run / "student" / "README.md").read_text(encoding="utf-8")
    assert str(run.parent) not in text and "secret-folder" not in text
    assert not re.search(r"(?<![\w<])/(tmp|home|work|root|Users|var)/", text)


def test_a_card_says_what_was_measured(made):
    text, record = card_of(made).text, Record.load(made)
    kept = record.kept
    first = text.split("\n## ")[0]  # before anything else
    assert f"**Score:** dev accuracy {record.scores['dev']['accuracy']:.1f}" in first
    assert f": {100 * kept.share:.1f} % kept (95 % interval" in first and "**Size:**" in first
    assert "Warning" not in first and "| primary |" not in text
    assert f"interval {100 * kept.low:.1f} to {100 * kept.high:.1f}," in text
    for one in record.classes:
        row = next(line for line in section(text, "By class").splitlines() if one.name in line)
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        recall, theirs, delta = cells[5:8]
        assert (recall, theirs) == (f"{one.recall:.1f}", f"{one.teacher_recall:.1f}")
        signed = float(delta.replace("−", "-"))
        assert signed == pytest.approx(one.recall - one.teacher_recall, abs=0.06)
    assert "distilled by `kd` from `teacher`" in text
    assert "| the teacher's weights, 2 layers picked by skip (2, 4) |" in text
    assert "the spread over seeds is not known" in text
    said = section(text, "Limits")
    assert f"{record.examples.dev} dev rows" in said and "cut at 24 tokens" in said
    assert "Their language is not recorded" in said


def test_its_lines_load_the_model_and_run_from_its_folder(made, capsys, monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", card_of(made).text, flags=re.DOTALL)
    monkeypatch.chdir(made / "student")
    exec(code, {})
    label, probability = capsys.readouterr().out.split()
    assert label in ("negative", "positive") and 0.5 <= float(probability) <= 1


def test_a_text_to_text_student_is_asked_by_the_prompt_of_its_training():
    config = {"text_prompt": "own first: {0} second: {1}"}
    student = SimpleNamespace(
        kind=TEXT, config=config, texts=2, labels=[], max_length=24, own_architecture=False
    )
    said = usage(student, "name", local=False)
    assert 'tokenizer("own first: The first text. second: The second text.", truncation' in said


@pytest.mark.parametrize("chat", [True, False])
def test_a_student_that_generates_is_asked_as_predict_asks_it(chat, tmp_path, monkeypatch, capsys):
    save_language_model(tmp_path / "student", chat=chat)
    record = SimpleNamespace(recipe={"text_columns": ["prompt", "answer"]}, task="own")
    said = usage(StudentFacts(tmp_path, record), "name", local=True)
    monkeypatch.chdir(tmp_path / "student")
    exec(said, {})
    (found,) = predict(tmp_path / "student", ["A text."], max_new_tokens=32)
    assert capsys.readouterr().out.strip() == found["prediction"]


def test_no_share_is_kept_of_a_score_whose_best_is_the_lowest():
    teacher = a_teacher()
    teacher.scores = {"dev": {"accuracy": 50.0, "perplexity": 4.0, "primary": 50.0}}
    scores = {"dev": {"accuracy": 40.0, "perplexity": 8.0, "primary": 40.0}}
    rows = score_table(a_run("kd", 1, 40.0, teacher=teacher, scores=scores), ["dev"]).cells[1:]
    assert [row[-1] for row in rows] == ["80.0 %", "–"]


def test_rows_that_chose_nothing_are_told_from_other_domains(run):
    record = Record.load(run)
    assert "No other rows were scored" in section(card_of(run).text, "Limits")
    record.scores |= {
        "test of held-out.csv #1a2b3c4d": {"primary": 71.3},
        "imdb": {"primary": 64.2},
    }
    record.save(run)
    refresh(run)
    said = section(card_of(run).text, "Limits")
    assert "On rows that chose nothing it scores 71.3 (test of held-out.csv)." in said
    assert "Out of domain it scores 64.2 (" in said and "1a2b3c4d" not in said


def test_names_of_classes_are_text_and_no_markup(run):
    """Names come from a user's file: they may hold tags, links, pipes and line breaks."""
    record, evil = Record.load(run), "<b>a</b>|[x](http://y)\n# b"
    config = json.loads((run / "student" / "config.json").read_text(encoding="utf-8"))
    config["id2label"]["1"] = evil
    (run / "student" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    found = record.classification["dev"]
    for one in found.classes:
        if one.name == "positive":
            one.name, one.recall = evil, 3.0
    record.save(run)
    refresh(run)
    text = card_of(run).text
    said = "\\<b\\>a\\</b\\>\\|\\[x\\](http://y) # b"
    assert (
        text.count(said) == 2 and text.count("\\<b\\>a") == 3
    )  # summary, table of classes, limits
    assert "<b>" not in text and "[x]" not in text


def test_a_finished_run_with_a_new_card_is_still_whole(run, monkeypatch):
    """Nobody trains a run again because its card was written again."""
    recipe = Recipe.recorded(Record.load(run).recipe, str(run))
    refresh(run)
    monkeypatch.setattr(DistillationTrainer, "__init__", lambda self, *_, **__: pytest.fail())
    assert distill(recipe, out=run).record.status == "finished"


# ---- exports and benches ----


def test_exports_and_bench_enter_the_card(run):
    add_export(run)
    add_bench(run)
    refresh(run)
    text = card_of(run).text
    assert "| onnx-int8 | int8 dynamic, per channel |" in text and "99.0 %" in text
    assert "at most 0.5: passed" in text
    assert "abc123" in text and "| teacher | torch | fp32 | 1 | 32 | 1 | 12.0 | 13.0 |" in text
    assert "| this model | onnxruntime | fp32 | 1 | 32 | 1 | 1.50 |" in text


def test_what_a_bench_says_of_itself_enters_the_card(run):
    """Weights that are mapped are memory too; times of a busy machine come with a warning."""
    add_bench(run)
    record = Record.load(run)
    record.bench.waited = 0.05
    record.bench.rows[0].memory_mib, record.bench.rows[0].mapped_mib = 6.0, 80.4
    record.save(run)
    refresh(run)
    text = section(card_of(run).text, "Size and latency")
    assert re.search(r"\| teacher \| torch .* 86 \|", text) and "busy" not in text
    record.bench.waited = 0.76
    record.save(run)
    refresh(run)
    assert "waited for a core for up to 76 %" in section(card_of(run).text, "Size and latency")


def test_a_report_is_written_again_where_there_was_one(run):
    refresh(run)
    assert not (run / "report.html").exists()
    (run / "report.html").write_text("old")
    add_export(run)
    add_bench(run)
    refresh(run)
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "onnx-int8" in page and "25 % of torch" in page
    assert "abc123" in page and "batch 1, 32 tokens, 1 thread" in page


def test_the_similarity_of_layers_survives_another_page(tmp_path):
    record = a_run("kd", 1, 80.0, teacher=a_teacher(), layer_similarity=[[0.9, 0.2], [0.3, None]])
    record.save(tmp_path)
    (tmp_path / "report.html").write_text("old")
    refresh(tmp_path)
    assert "Layer similarity" in (tmp_path / "report.html").read_text(encoding="utf-8")


# ---- what a person says ----


def test_what_is_said_is_kept_by_later_cards(run):
    line = ["card", str(run), "--license", "mit", "--language", "en", "de", "--base-model", "a/b"]
    ended = CliRunner().invoke(app, line)
    assert ended.exit_code == 0, ended.output
    refresh(run)
    found = front_matter(run)
    assert found["license"] == "mit" and found["language"] == ["en", "de"]
    assert found["base_model"] == "a/b"
    assert "No license" not in card_of(run).text


def test_a_persons_card_stays(run, caplog):
    card = run / "student" / "README.md"
    card.write_text("# Mine\n")
    assert not is_ours(card)
    with pytest.raises(LimbeckError, match="written by a person"):
        write_card(run)
    with caplog.at_level(logging.WARNING):
        refresh(run)
    assert "stays as it is" in caplog.text and card.read_text() == "# Mine\n"
    other = write_card(run, out=run / "CARD.md")
    assert MARKER in other.read_text(encoding="utf-8")


def test_a_run_that_has_not_finished_gets_none(tmp_path):
    a_run("kd", 1, None, status="failed").save(tmp_path)
    with pytest.raises(LimbeckError, match="is failed"):
        write_card(tmp_path)


def test_settings_that_cannot_be_read_are_named(run):
    (run / "card.json").write_text(json.dumps({"licence": "mit"}))
    with pytest.raises(LimbeckError, match=r"card\.json: unknown setting 'licence'"):
        write_card(run)


# ---- spread ----


def saved(folder, method, seed, score, **changes):
    record = a_run(method, seed, score, task="rte", teacher=a_teacher(), **changes)
    record.save(folder / f"{method}-{seed}")
    return folder / f"{method}-{seed}"


def test_several_runs_give_the_spread_and_tests(tmp_path):
    for seed in (1, 2, 3):
        saved(tmp_path / "runs", "kd", seed, 80.0 + seed)
        saved(tmp_path / "runs", "finetune", seed, 70.0 + 2 * seed)
    run = tmp_path / "runs" / "kd-1"
    text = write_card(run, CardSettings(seeds=[str(tmp_path / "runs")])).read_text()
    spread = section(text, "Over several runs")
    assert "82.0 ± 1.0" in spread and "74.0 ± 2.0" in spread
    assert "finetune" in spread and "spread over seeds is not known" not in text
    # 81, 82, 83 against 72, 74, 76: differences 9, 8, 7, t = 13.9, p = 0.005.
    assert "▲" in spread


def test_runs_of_other_rows_are_refused(tmp_path):
    run = saved(tmp_path / "a", "kd", 1, 80.0)
    other = saved(tmp_path / "b", "kd", 2, 80.0)
    record = Record.load(other)
    record.examples.fingerprints["dev"] = "another"
    record.save(other)
    with pytest.raises(LimbeckError, match="other dev rows"):
        write_card(run, CardSettings(seeds=[str(other)]))


# ---- names ----


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("/home/ada/runs/teacher", "teacher"),
        ("runs/big/student", "big"),
        ("C:\\models\\mine", "mine"),
        ("~/rows.csv", "rows.csv"),
        ("given:teacher@0123", "teacher"),
        ("hub", "hub"),
        ("student", "student"),
        (".", "model"),
    ],
)
def test_names_without_places(place, name):
    assert public_name(place) == name


def test_a_recipe_says_what_is_not_usual_and_means_the_same(made):
    (shown,) = re.findall(r"```yaml\n(.*?)```", card_of(made).text, flags=re.DOTALL)
    found = yaml.safe_load(shown)
    assert found["student"] == {"layers": 2} and "optimizer" not in found
    whole = Recipe.recorded(Record.load(made).recipe, str(made)).model_dump(mode="json")
    usual = {key: whole[key] for key in ("teacher", "data", "cache", "plugins", "report_to")}
    said = Recipe.model_validate({**found, **usual}).model_dump(mode="json")
    own = {"family", "summary", "paper", "formula", "log_steps", "save_steps", "workers"}
    assert {k: v for k, v in said.items() if k not in own} == {
        k: v for k, v in whole.items() if k not in own
    }


def test_a_recipe_without_paths():
    given = {"teacher": "/a/b", "list": ["x/y.csv", 3], "text": "plain words", "lr": 1e-4}
    assert without_paths({"formula": "a/b"}) == {"formula": "a/b"}  # of the method's, no path
    assert without_paths(given) == {
        "teacher": "b", "list": ["y.csv", 3], "text": "plain words", "lr": 1e-4,
    }  # fmt: skip


def test_a_base_model_is_what_a_teachers_card_names(run, tmp_path):
    assert hub_name("nobody/nothing") is None
    assert hub_name(str(run)) is None
    write_card(run, CardSettings(base_model=["google/bert"]))
    assert hub_name(str(run)) == hub_name(str(run / "student")) == "google/bert"


def test_glue_is_english_and_has_its_dataset(tmp_path):
    record = a_run("kd", 1, 80.0, task="mrpc", teacher=a_teacher(), data="/somewhere/glue")
    found = metadata(StudentFacts(tmp_path, record), CardSettings(), "me/small").to_dict()
    assert found["datasets"] == ["nyu-mll/glue"] and found["language"] == ["en"]
    (entry,) = found["model-index"]
    assert entry["name"] == "small"
    assert entry["results"][0]["dataset"] == {
        "name": "MRPC", "type": "nyu-mll/glue", "config": "mrpc", "split": "validation",
    }  # fmt: skip
    assert TASKS["mrpc"].hub is not None
