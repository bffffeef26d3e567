"""--parallel: a student learns the teacher's embedding of a text for its translations."""

import gzip
import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import TranslationEvaluator
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from transformers import AutoModel, AutoTokenizer
from typer.testing import CliRunner

import limbeck
import tiny_runs as tiny
from embedding.tiny_embedders import embedder
from limbeck.cli.app import app
from limbeck.embedding import SENTENCE_EMBEDDERS
from limbeck.recipe import Recipe
from limbeck.run.distill import plan_run
from limbeck.static import write_model2vec
from limbeck.support.errors import LimbeckError

SETTINGS = {"student.layers": 1, "epochs": 1, "max_length": 24}
TURNED = str.maketrans("abcdefghijklmnopqrstuvwxyz", "bcdefghijklmnopqrstuvwxyza")


def pairs(count: int = 150) -> list[tuple[str, str]]:
    """Sentences, and the same with every word turned round."""
    draw, found = random.Random(0), dict[str, str]()
    while len(found) < count:
        words = draw.choices(tiny.WORDS, k=draw.randint(3, 9))
        found[" ".join(words)] = " ".join(word[::-1] for word in words)
    return [*found.items()]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A teacher, and translations in files of four forms."""
    folder = tmp_path_factory.mktemp("translations")
    embedder(3).save_pretrained(folder / "teacher")
    tiny.tokenizer().save_pretrained(folder / "teacher")
    rows = pairs()
    bare = "".join(f"{source}\t{other}\n" for source, other in rows)
    (folder / "bare.tsv").write_text(bare)
    (folder / "named.tsv").write_text("english\tturned\n" + bare)
    (folder / "packed.tsv.gz").write_bytes(gzip.compress(bare.encode()))
    columns = dict(zip(("en", "xx"), map(list, zip(*rows, strict=True)), strict=True))
    Dataset.from_dict(columns).to_parquet(folder / "rows.parquet")
    three = "".join(f"{source}\t{other}\t{other} {other}\n" for source, other in rows)
    (folder / "three.tsv").write_text(three)
    return folder


def recipe(place: Path, *files: str, **settings) -> Recipe:
    own = {"teacher": str(place / "teacher"), "parallel": [str(place / name) for name in files]}
    return Recipe.load(None, **{**own, **SETTINGS, **settings})


@pytest.mark.parametrize("swapped", [False, True])
def test_a_first_column_that_the_teacher_splits_more_is_warned_of(place, tmp_path, caplog, swapped):
    rows = [(source, f"{other} {other}") for source, other in pairs()]
    lines = ("\t".join(reversed(row) if swapped else row) for row in rows)
    (place / "order.tsv").write_text("\n".join(lines) + "\n")
    plan_run(recipe(place, "order.tsv"), tmp_path / "run")
    assert ("check the order of the columns" in caplog.text) is swapped


def test_every_form_of_file_has_the_same_rows_and_learns_the_source(place, tmp_path):
    teacher = SENTENCE_EMBEDDERS.from_pretrained(place / "teacher").eval()
    tokenizer = AutoTokenizer.from_pretrained(place / "teacher")
    known = {}
    for name in ("bare.tsv", "named.tsv", "packed.tsv.gz", "rows.parquet"):
        planned = plan_run(recipe(place, name), tmp_path / name).recipe
        train = Dataset.from_parquet(planned.data)
        known[name] = dict(zip(train["sentence"], map(tuple, train["embedding"]), strict=True))
        assert planned.method == "embedding-mse" and planned.kind == "embedding"
    assert (
        known["bare.tsv"] == known["named.tsv"] == known["packed.tsv.gz"] == known["rows.parquet"]
    )
    # A source and its translation have one embedding: the source's, by the teacher alone.
    found, there = known["bare.tsv"], dict(pairs())
    trained = [source for source in there if source in found]
    assert len(trained) == 120 and len(found) == 240
    for source in trained[:5]:
        with torch.no_grad():
            expected = teacher(**tokenizer(source, return_tensors="pt")).logits[0].numpy()
        assert found[source] == found[there[source]]
        assert np.allclose(found[source], expected, atol=1e-5)


def test_held_out_texts_are_in_no_training_row(place, tmp_path):
    planned = plan_run(recipe(place, "three.tsv"), tmp_path / "run").recipe
    train = {*Dataset.from_parquet(planned.data)["sentence"]}
    for split in ("dev", "test"):
        rows = Dataset.from_parquet(getattr(planned, split))
        assert len(rows) == 30
        assert train.isdisjoint(rows["source"]) and train.isdisjoint(rows["translation"])
    # Two translations of one source are two rows of it, and neither may be held out alone.
    assert all(dict(pairs())[source] in train for source in train & {*dict(pairs())})


def test_translations_are_found_as_sentence_transformers_finds_them(place, tmp_path):
    made = limbeck.distill(recipe(place, "bare.tsv"), tmp_path / "run", report=False)
    assert_scores_are_theirs(made, SentenceTransformer(str(made.path / "student"), device="cpu"))


def assert_scores_are_theirs(made, model: SentenceTransformer) -> None:
    """The test scores are those of sentence-transformers' evaluator."""
    rows = Dataset.from_parquet(made.record.recipe["test"])
    judge = TranslationEvaluator(list(rows["source"]), list(rows["translation"]), write_csv=False)
    theirs, ours = judge(model), made.record.scores["test"]
    assert ours["to_translation"] == pytest.approx(100 * theirs["src2trg_accuracy"])
    assert ours["to_source"] == pytest.approx(100 * theirs["trg2src_accuracy"])
    assert ours["primary"] == pytest.approx(100 * theirs["mean_accuracy"])


def test_a_dev_file_of_graded_pairs_across_languages_is_scored_by_their_similarity(place, tmp_path):
    rows = enumerate(pairs()[:20])
    lines = [f"{source}\t{other}\t{1 + number % 5}" for number, (source, other) in rows]
    graded = "\n".join(["sentence1\tsentence2\tscore", *lines])
    (tmp_path / "graded.tsv").write_text(graded)
    asked = recipe(place, "bare.tsv", dev=str(tmp_path / "graded.tsv"), max_steps=1)
    scores = limbeck.distill(asked, tmp_path / "run", report=False).record.scores
    assert {*scores} == {"dev"} and scores["dev"]["primary"] == scores["dev"]["spearman"]


def test_grades_are_never_scored_as_translations(place, tmp_path):
    rows = [f"{source}\t{other}" for source, other in pairs()[:20]]
    plain = "\n".join(["source\ttranslation", *rows])
    graded = "\n".join(["source\ttranslation\tscore", *(f"{row}\t{len(row) % 5}" for row in rows)])
    (tmp_path / "plain.tsv").write_text(plain)
    (tmp_path / "graded.tsv").write_text(graded)
    dev, test = str(tmp_path / "plain.tsv"), str(tmp_path / "graded.tsv")
    with pytest.raises(LimbeckError, match="dev holds translations, and test pairs with simil"):
        limbeck.distill(recipe(place, "bare.tsv", dev=dev, test=test), tmp_path / "both")
    asked = recipe(place, "bare.tsv", dev=test, max_steps=1)
    run = limbeck.distill(asked, tmp_path / "run", report=False)
    assert run.record.scores["dev"]["primary"] == run.record.scores["dev"]["spearman"]
    assert {*limbeck.evaluate(run.path, data=test)} >= {"spearman"}


def test_a_list_of_translations_is_several_translations(place, tmp_path):
    rows = [{"en": source, "xx": [other, f"{other} {other}"]} for source, other in pairs()]
    (tmp_path / "lists.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = [
        plan_run(recipe(place, file), tmp_path / str(number)).recipe
        for number, file in enumerate((str(tmp_path / "lists.jsonl"), "three.tsv"))
    ]
    one, other = (Dataset.from_parquet(planned.data)["sentence"] for planned in found)
    assert [*one] == [*other]


def test_a_static_student_with_a_tokenizer_of_its_own(place, tmp_path):
    own = {
        "student.layers": None,
        "student.static": True,
        "student.tokenizer": 300,
    }
    made = limbeck.distill(recipe(place, "bare.tsv", **own), tmp_path / "run", report=False)
    tokenizer = AutoTokenizer.from_pretrained(made.path / "student")
    assert 50 < len(tokenizer) <= 300
    word = tiny.WORDS[0][::-1]
    assert tokenizer.tokenize(word) == [word]  # the teacher's tokenizer does not know it
    assert made.record.recipe["lr"] == 2e-3  # a static student's, though its teacher is a store
    student = AutoModel.from_pretrained(made.path / "student")
    # By default as wide as a teacher of less than 256 numbers.
    assert student.config.hidden_size == embedder(3).config.hidden_size
    card = (made.path / "student" / "README.md").read_text(encoding="utf-8")
    assert "| teacher | teacher |" in card and "from `teacher`" in card
    write_model2vec(student, tokenizer, tmp_path / "shipped")
    module = StaticEmbedding.from_model2vec(str(tmp_path / "shipped"))
    model = SentenceTransformer(modules=[module], device="cpu")
    assert_scores_are_theirs(made, model)
    again = limbeck.distill(recipe(place, "bare.tsv", **own), tmp_path / "run", report=False)
    assert again.record == made.record


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"data": "more.txt"}, "data: more.txt together with parallel"),
        ({"text_columns": ["de", "en"]}, "text_columns: .* together with parallel"),
        ({"dev_share": 0.2}, "dev_share: 0.2 together with parallel"),
        ({"test": "more.csv"}, "test: more.csv, and there is no dev file"),
        ({"kind": "sentence"}, "kind: sentence, and translations teach embeddings"),
        ({"teacher": None}, "parallel: there is no teacher"),
        ({"student.tokenizer": 300}, "word embeddings come from teacher"),
    ],
)
def test_what_does_not_go_together_is_refused(place, tmp_path, settings, said):
    with pytest.raises(LimbeckError, match=said):
        limbeck.distill(recipe(place, "bare.tsv", **settings), tmp_path / "run", report=False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("one\nanother\n", "has one column"),
        ("".join(f"{n} a\t{n} b\n" for n in range(40)), "40 different translations"),
        ("Editor\tEditor\nA tool\tEin Werkzeug\n", "write a line of names above it"),
    ],
)
def test_files_that_teach_nothing_are_refused(place, tmp_path, text, said):
    (tmp_path / "few.tsv").write_text(text)
    with pytest.raises(LimbeckError, match=said):
        limbeck.distill(recipe(place, str(tmp_path / "few.tsv")), tmp_path / "run", report=False)


def test_a_first_column_without_text_is_no_source(place, tmp_path):
    rows = [{"id": n, "en": en, "de": de} for n, (en, de) in enumerate(pairs())]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(LimbeckError, match="its first column, 'id', holds no text"):
        limbeck.distill(recipe(place, str(tmp_path / "rows.jsonl")), tmp_path / "run", report=False)


def test_the_command_says_what_it_scored(place, tmp_path):
    teacher, files = str(place / "teacher"), (str(place / "bare.tsv"), str(place / "three.tsv"))
    options = (
        "--layers",
        "1",
        "--epochs",
        "1",
        "--max-length",
        "24",
        "--out",
        str(tmp_path / "run"),
    )
    found = CliRunner().invoke(
        app, ["distill", "--teacher", teacher, "--parallel", *files, *options]
    )
    assert found.exit_code == 0, found.output
    assert "test translation_accuracy" in found.output
    assert f"reading {', '.join(files)}, loading {teacher}" in " ".join(found.output.split())


def test_beside_a_dev_file_every_translation_is_trained_on(place, tmp_path):
    draw = "".join(f"dev {n} a\tdev {n} b\n" for n in range(12))
    (tmp_path / "dev.tsv").write_text("source\ttranslation\n" + draw)
    own = recipe(place, "bare.tsv", dev=str(tmp_path / "dev.tsv"), max_steps=1)
    record = limbeck.distill(own, tmp_path / "run", report=False).record
    assert {*Dataset.from_parquet(record.recipe["data"])["sentence"]} == {
        text for pair in pairs() for text in pair
    }
    assert record.examples.train == 300 and record.recipe["test"] is None


def test_translations_that_share_their_texts_are_no_held_out_rows(place, tmp_path):
    text = "".join(f"one source\tits translation {n}\n" for n in range(200))
    (tmp_path / "alike.tsv").write_text(text)
    with pytest.raises(LimbeckError, match=r"200 different translations .* too few to hold 20 out"):
        limbeck.distill(recipe(place, str(tmp_path / "alike.tsv")), tmp_path / "run", report=False)


def test_a_file_without_translations_is_named_beside_one_with_some(place, tmp_path):
    (tmp_path / "empty.tsv").write_text("english\tgerman\nonly a source\t\n\tonly a translation\n")
    own = recipe(place, "bare.tsv", str(tmp_path / "empty.tsv"))
    with pytest.raises(LimbeckError, match=r"empty\.tsv: no row has a text and a translation"):
        limbeck.distill(own, tmp_path / "run", report=False)
