"""Students of embeddings in a file, as people have them of services: no teacher model is there."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import tiny_embedders as tiny
import torch
from safetensors.torch import load_file

from limbeck import predict
from limbeck.activations import Request
from limbeck.data.outputs_file import read_embeddings_file
from limbeck.data.row_ids import row_ids
from limbeck.objectives import ModelShape
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.run.prepare import prepare
from limbeck.support.errors import LimbeckError
from limbeck.teachers.teacher import Teacher
from limbeck.teachers.team import EnsembleTeam

TEXTS = tiny.sentences(40)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Sentences, an encoder that teaches, two students' starts, and what sentence-transformers says of the teacher."""
    folder = tmp_path_factory.mktemp("stored")
    tiny.write_sentences(folder / "sentences.txt")
    tiny.write_pairs(folder / "pairs.tsv")
    tiny.encoder(folder / "teacher", layers=3)
    tiny.encoder(folder / "start", layers=1)
    tiny.encoder(folder / "narrow", layers=1, width=8)
    model = tiny.sentence_transformer(folder / "teacher")
    write(folder / "encoded.parquet", TEXTS, model.encode(TEXTS, normalize_embeddings=True))
    return folder


def write(path, texts, values, column="sentence"):
    table = {column: texts, "embedding": [[float(number) for number in row] for row in values]}
    if path.suffix == ".parquet":
        parquet.write_table(
            pa.table(table | {"embedding": pa.array(table["embedding"], pa.list_(pa.float32()))}),
            path,
        )
    else:
        rows = (dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True))
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def recipe(place, method="embedding-mse", *, live=False, start="start", **given):
    whose = {"teacher": "teacher"} if live else {"outputs": ["encoded.parquet"]}
    usual = {
        "kind": "embedding", "student.init": str(place / start), "student.layers": 1, "batch_size": 8,
        "data": str(place / "sentences.txt"), "dev": str(place / "pairs.tsv"), "lr": 1e-3,
        "max_length": 24, "max_steps": 6, "precision": "fp32", "cache": "never",
    }  # fmt: skip
    for key, value in whose.items():
        usual[key] = str(place / value) if live else [str(place / one) for one in value]
    return Recipe.load(method, **(usual | given))


def test_every_text_has_the_embedding_of_its_row(place):
    prepared = prepare(recipe(place))
    (stage,) = prepared.stages
    order = np.random.default_rng(0).permutation(len(TEXTS))
    batch = stage.collator(prepared.tokenizer)([stage.rows.encoded[int(n)] for n in order])
    found = stage.members[0](batch, Request.of_logits()).logits.numpy()
    model = tiny.sentence_transformer(place / "teacher")
    expected = model.encode([TEXTS[n] for n in order], normalize_embeddings=True)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert ModelShape.of(stage.members[0].model).outputs == 16


@pytest.mark.slow
@pytest.mark.parametrize(("method", "start"), [
    ("embedding-mse", "start"), ("embedding-cosine", "start"), ("embedding-similarity", "start"),
    ("embedding-mse", "narrow"), ("embedding-similarity", "narrow"),
])  # fmt: skip
def test_the_student_is_the_one_that_the_model_makes(method, start, place, tmp_path):
    runs = [
        distill(
            recipe(place, method, live=live, start=start), out=tmp_path / f"{live}", report=False
        )
        for live in (True, False)
    ]
    live, stored = (load_file(run.path / "student/model.safetensors") for run in runs)
    for name, weight in live.items():
        torch.testing.assert_close(stored[name], weight, atol=1e-6, rtol=1e-5)
    first, second = (run.record.epochs[-1].train["loss"] for run in runs)
    assert second == pytest.approx(first, rel=1e-5)
    assert runs[1].record.teacher is None and runs[1].record.outputs[0].about["width"] == 16


@pytest.mark.slow
def test_predicted_embeddings_teach_and_are_scored(place, tmp_path):
    first, second, _ = zip(*tiny.pairs(), strict=True)
    (tmp_path / "all.txt").write_text("\n".join([*TEXTS, *first, *second]) + "\n")
    stored = tmp_path / "stored.parquet"
    predict(place / "teacher", tmp_path / "all.txt", to=stored, output="embeddings")
    given = {"embedding.normalize": False, "embedding.width": 16, "outputs": [str(stored)]}
    run = distill(recipe(place, start="narrow", **given), out=tmp_path / "run", report=False)
    assert np.isfinite(run.scores["dev"]["spearman"])
    model = tiny.sentence_transformer(place / "teacher")
    # Embeddings that are not of length 1 are compared by inner products.
    sides = [model.encode([*texts]) for texts in (first, second)]
    from scipy.stats import spearmanr

    expected = 100 * spearmanr((sides[0] * sides[1]).sum(1), [s for *_, s in tiny.pairs()])[0]
    assert run.record.outputs[0].scores["dev"]["spearman"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("given", "message"), [
    ({"method": "rail-kd-l"}, "normalized_mse compares layers, and .* holds embeddings alone"),
    ({"data": "more.txt"}, "knows nothing of 1 of 41 training rows, the first of them 'good good good'"),
    ({"student.init": "teacher"}, "(?i)student"),
])  # fmt: skip
def test_what_embeddings_cannot_teach_is_refused(given, message, place, tmp_path):
    (place / "more.txt").write_text("\n".join([*TEXTS, "good good good"]) + "\n")
    method = given.get("method", "embedding-mse")
    others = {
        key: str(place / value) if key == "data" else value
        for key, value in given.items()
        if key != "method"
    }
    with pytest.raises(LimbeckError, match=message):
        distill(recipe(place, method, **others), out=tmp_path / "run")


def test_embeddings_of_different_widths_have_no_mean():
    members = [Teacher(tiny.embedder(layers=1, width=width)) for width in (16, 8)]
    with pytest.raises(LimbeckError, match="have no mean: large of 16, small of 8 numbers"):
        EnsembleTeam(members, ["large", "small"], [0.5, 0.5])


# ---- files ----


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
@pytest.mark.parametrize("column", ["sentence", "text", "body"])
def test_files_of_embeddings(suffix, column, tmp_path):
    texts, values = ["a", "b", "a"], np.array([[1.0, 2], [3, 4], [1, 2.001]], dtype=np.float32)
    path = write(tmp_path / f"rows.{suffix}", texts, values, column)
    found = read_embeddings_file(path, [column] if column == "body" else [])
    assert found.values.dtype == np.float32
    told = dict(zip(found.ids.tolist(), found.values.tolist(), strict=True))
    assert [told[one] for one in row_ids([["a", "b"]]).tolist()] == [[1, 2], [3, 4]]


def test_fixed_lists_doubles_and_text_are_embeddings_too(tmp_path):
    values = pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float64(), 2))
    parquet.write_table(pa.table({"text": ["a", "b"], "embedding": values}), tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text('text,embedding\na,"[1, 2.0]"\nb,"[3, 4]"\n')
    one, other = (read_embeddings_file(tmp_path / name) for name in ("a.parquet", "a.csv"))
    np.testing.assert_array_equal(one.values, other.values)
    np.testing.assert_array_equal(one.ids, other.ids)


@pytest.mark.parametrize(("rows", "message"), [
    ([("a", [1, 2]), ("b", [1])], r"row 2: embedding are \[1\], expected 2 numbers"),
    ([("a", [1, 2]), ("b", None)], "row 2: embedding are None"),
    ([("a", [1, 2]), ("b", [1, None])], "row 2: embedding are"),
    ([("a", "x")], "row 1: embedding is 'x', expected a list of numbers"),
    ([("a", [1, 2]), ("b", [3, 4]), ("a", [2, 1])], "row 3: the text of row 1 again, with other outputs"),
    ([("a", [1, float("inf")])], "row 1: embedding are .*, with a number that is not finite"),
])  # fmt: skip
def test_what_is_no_embedding_is_refused(rows, message, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"text": t, "embedding": e}) + "\n" for t, e in rows))
    if "inf" in str(rows):
        values = pa.array([rows[0][1]], pa.list_(pa.float32()))
        path = tmp_path / "rows.parquet"
        parquet.write_table(pa.table({"text": ["a"], "embedding": values}), path)
    with pytest.raises(LimbeckError, match=message):
        read_embeddings_file(path)


def test_a_file_without_texts_says_which_columns_it_may_have(tmp_path):
    path = write(tmp_path / "rows.jsonl", ["a"], [[1.0]], "body")
    with pytest.raises(
        LimbeckError, match="no column sentence or text or query or passage of the texts"
    ):
        read_embeddings_file(path)
