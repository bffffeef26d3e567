"""Every task type's predictions, held against transformers' own pipelines."""

from __future__ import annotations

import json
import math
import shutil

import numpy as np
import pyarrow.parquet as parquet
import pytest
import torch
from datasets import Dataset
from PIL import Image
from transformers import (
    AutoModel,
    AutoModelForImageClassification,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BertConfig,
    BertForTokenClassification,
    LlamaConfig,
    LlamaForTokenClassification,
    RobertaTokenizer,
    pipeline,
)

import image_sets as sets
import kind_models as kinds
import tiny_runs as tiny
from limbeck import LimbeckError, predict
from limbeck.data import RowsAsked
from limbeck.predicting.predict_rows import write_predictions
from limbeck.records.facts import ClassFacts, ClassificationScores, ModelScores
from limbeck.scoring import ScoredModel
from limbeck.tasks.rules import ROW
from limbeck.tasks.spans import OFFSETS, SPANS, best_spans
from limbeck.tasks.task import TASKS
from synthetic_records import a_run
from tokenizer_families import _trained, family

TEXTS = tiny.sentences(23)
TAGGED = ["ann saw rome .", "annabelle lee saw the cat .", "who saw lee in rome ?", "the cat"]


def asked(task: str, folder: str, **settings):
    return pipeline(task, model=folder, device="cpu", **settings)


def test_labels_and_scores_are_the_pipelines(folders) -> None:
    """In the rows' order, whatever order batches have."""
    found = predict(folders["sentence"], TEXTS, output=["labels", "scores"], batch_size=4)
    theirs = asked("text-classification", folders["sentence"])(TEXTS)
    assert [row["text"] for row in found] == TEXTS
    assert [row["prediction"] for row in found] == [one["label"] for one in theirs]
    assert {row["prediction"] for row in found} == {"positive", "negative"}
    np.testing.assert_allclose(
        [row["score"] for row in found], [one["score"] for one in theirs], rtol=1e-5
    )


def test_probabilities_and_logits_are_by_class(folders) -> None:
    found = predict(folders["sentence"], TEXTS, output=["probabilities", "logits"])
    every = asked("text-classification", folders["sentence"], top_k=None)
    raw = every(TEXTS, function_to_apply="none")
    for row, likely, logits in zip(found, every(TEXTS), raw, strict=True):
        for name, ours, theirs in (
            ("probabilities", row["probabilities"], likely),
            ("logits", row["logits"], logits),
        ):
            expected = {one["label"]: one["score"] for one in theirs}
            assert ours.keys() == expected.keys(), name
            assert all(math.isclose(ours[k], expected[k], rel_tol=1e-4) for k in ours), name


def test_pairs_are_read_as_pairs(folders) -> None:
    rows = [{"premise": a, "hypothesis": b} for a, b in zip(TEXTS, reversed(TEXTS), strict=True)]
    found = predict(folders["sentence"], rows, output=["scores"])
    pairs = [{"text": row["premise"], "text_pair": row["hypothesis"]} for row in rows]
    theirs = [asked("text-classification", folders["sentence"])(pair) for pair in pairs]
    np.testing.assert_allclose(
        [row["score"] for row in found], [one["score"] for one in theirs], rtol=1e-5
    )


def test_a_regression_gives_its_number(folders) -> None:
    found = predict(folders["regression"], TEXTS)
    classify = asked("text-classification", folders["regression"])
    theirs = classify(TEXTS, function_to_apply="none")
    np.testing.assert_allclose(
        [row["prediction"] for row in found], [one["score"] for one in theirs], rtol=1e-4
    )
    with pytest.raises(LimbeckError, match=r"output probabilities: .* is of a number"):
        predict(folders["regression"], TEXTS, output=["labels", "probabilities"])


def test_a_multi_label_model_gives_every_class_that_is_likely(folders) -> None:
    found = predict(folders["multi"], TEXTS, output=["labels", "scores", "probabilities"])
    theirs = asked("text-classification", folders["multi"], top_k=None)(TEXTS)
    for row, every in zip(found, theirs, strict=True):
        scores = {one["label"]: one["score"] for one in every}
        assert row["prediction"] == [name for name in sorted(scores) if scores[name] >= 0.5]
        assert row["score"] == [row["probabilities"][name] for name in row["prediction"]]
        assert all(math.isclose(row["probabilities"][k], scores[k], rel_tol=1e-4) for k in scores)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_embeddings_are_the_last_hidden_states_pooled(folders, pooling) -> None:
    """Of the pipeline's states, which it computes row by row and so without padding."""
    found = predict(folders["sentence"], TEXTS, output=["labels", "embeddings"], pooling=pooling)
    base = AutoModel.from_pretrained(folders["sentence"])
    states = pipeline(
        "feature-extraction", base, tokenizer=AutoTokenizer.from_pretrained(folders["sentence"])
    )(TEXTS)
    expected = [
        np.array(one[0]).mean(0) if pooling == "mean" else np.array(one[0][0]) for one in states
    ]
    np.testing.assert_allclose([row["embedding"] for row in found], expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["masked", "tokens", "spans", "text"])
def test_any_model_of_text_has_embeddings(folders, kind) -> None:
    found = predict(folders[kind], TAGGED, output=["embeddings"])
    assert {len(row["embedding"]) for row in found} == {16}
    assert {*found.rows[0]} == {"text", "embedding"}


def test_entities_are_the_pipelines(folders) -> None:
    found = predict(folders["tokens"], TAGGED, output=["labels", "scores"])
    tag = asked("token-classification", folders["tokens"], aggregation_strategy="first")
    for row, theirs in zip(found, tag(TAGGED), strict=True):
        ours = [(one["label"], one["start"], one["end"]) for one in row["prediction"]]
        assert ours == [(one["entity_group"], one["start"], one["end"]) for one in theirs]
        assert [one["text"] for one in row["prediction"]] == [
            row["text"][start:end] for _, start, end in ours
        ]
        np.testing.assert_allclose(row["score"], [one["score"] for one in theirs], rtol=1e-4)
    assert any(len(row["prediction"]) for row in found)


@pytest.mark.parametrize("name", ["roberta", "xlm-roberta"])
def test_words_of_pieces_without_a_sign_end_at_white_space(name, tmp_path) -> None:
    """RoBERTa splits "Bob's" before it makes pieces; in rows of words it is one word with one tag."""
    prefixed = RobertaTokenizer(add_prefix_space=True)  # as lists of words are read
    tokenizer = _trained(prefixed) if name == "roberta" else family(name)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, id2label=dict(enumerate(["O", "B-X", "I-X", "B-Y", "I-Y"])),
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        BertForTokenClassification(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    texts = [" Is Bob's U.S. flag New-York ?", " a.b c'd e-f", " What 's up , doc", " x"]
    rows = predict(str(tmp_path), [{"tokens": text.split()} for text in texts])
    for found, row in zip(predict(str(tmp_path), texts), rows, strict=True):
        said = [
            f"{word}/{one['label']}" for one in found["prediction"] for word in one["text"].split()
        ]
        pairs = zip(row["tokens"], row["prediction"], strict=True)
        assert said == [f"{word}/{tag[2:]}" for word, tag in pairs if tag != "O"]
    assert said or row["prediction"] == ["O"]


def test_words_get_a_tag_each(folders) -> None:
    """The first piece of each word has its tag, as the model sees it."""
    rows = [{"tokens": text.split()} for text in TAGGED]
    found = predict(folders["tokens"], rows, output=["labels", "probabilities"], batch_size=2)
    every = asked("token-classification", folders["tokens"], ignore_labels=[])
    for row, pieces in zip(found, every(TAGGED), strict=True):
        firsts = [one for one in pieces if not one["word"].startswith("##")]
        assert row["prediction"] == [one["entity"] for one in firsts]
        likely = [max(one.values()) for one in row["probabilities"]]
        np.testing.assert_allclose(likely, [one["score"] for one in firsts], rtol=1e-4)


def test_written_next_to_predictions_tags_have_their_names(folders, tmp_path) -> None:
    tags = [kinds.TAGS[place % len(kinds.TAGS)] for place in range(4)]
    rows = [{"tokens": ["ann", "saw", "rome", "."], "tags": tags}] * 3
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    asked_rows = RowsAsked(task="mine", data=str(tmp_path / "rows.jsonl"))
    write_predictions(folders["tokens"], tmp_path / "p.jsonl", asked_rows)
    found = json.loads((tmp_path / "p.jsonl").read_text().splitlines()[0])
    assert found["tags"] == tags and {*found["prediction"]} <= {*kinds.TAGS}


def test_predictions_of_models_that_write_are_their_texts(folders, tmp_path) -> None:
    """No probabilities were asked for, and were missed; of prompt and answer the prompt is read."""
    classes = [{"sentence": text, "label": "positive"} for text in TEXTS[:6]]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, classes)))
    rows = RowsAsked(task="sst2", data=str(tmp_path / "rows.jsonl"), label_column="label")
    write_predictions(folders["text"], tmp_path / "p.jsonl", rows)
    found = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert [{*row} for row in found] == [{"sentence", "label", "prediction"}] * 6
    asks = [{"prompt": "ann saw", "answer": "rome ."}] * 3
    (tmp_path / "asks.jsonl").write_text("\n".join(map(json.dumps, asks)))
    rows = RowsAsked(task="mine", data=str(tmp_path / "asks.jsonl"))
    write_predictions(folders["causal-lm"], tmp_path / "c.jsonl", rows)
    (found, *_) = map(json.loads, (tmp_path / "c.jsonl").read_text().splitlines())
    assert found["answer"] == "rome ." and isinstance(found["prediction"], str)


def test_a_question_without_end_is_cut_and_stops_no_other_row(folders) -> None:
    rows = [
        {"question": "who " * length + "?", "context": "ann saw rome and lee"}
        for length in (2, 90, 3)
    ]
    found = predict(folders["spans"], rows, max_length=24)
    assert found.cut == 1 and all(row["prediction"] for row in found)
    alone = [predict(folders["spans"], [row], max_length=24).rows[0] for row in rows]
    assert [row["prediction"] for row in found] == [row["prediction"] for row in alone]


def test_words_beyond_the_limit_have_no_tag(folders) -> None:
    found = predict(folders["tokens"], [{"tokens": ["ann", "saw", "rome", "."]}], max_length=5)
    assert found.rows[0]["prediction"][3] is None and found.cut == 1
    assert None not in found.rows[0]["prediction"][:3]


def test_entities_have_no_probabilities_by_word(folders) -> None:
    with pytest.raises(LimbeckError, match="rows of text are answered with entities"):
        predict(folders["tokens"], TAGGED, output=["probabilities"])


def test_answers_are_spans_of_their_contexts(folders) -> None:
    """By the logits of each row alone; start and end among the context's tokens and the first."""
    rows = [{"question": "who ?", "context": text} for text in TAGGED[:3]]
    found = predict(folders["spans"], rows, output=["labels", "scores"])
    model = AutoModelForQuestionAnswering.from_pretrained(folders["spans"])
    tokenizer = AutoTokenizer.from_pretrained(folders["spans"])
    for row, answer in zip(rows, found, strict=True):
        encoded = tokenizer(
            row["question"], row["context"], return_offsets_mapping=True, return_tensors="pt"
        )
        inside = [at for at, side in enumerate(encoded.sequence_ids(0)) if side == 1]
        offsets = encoded.pop("offset_mapping")[0].tolist()
        with torch.no_grad():
            out = model(**encoded)
        starts = torch.softmax(out.start_logits[0][[0, *inside]], 0)[1:].tolist()
        ends = torch.softmax(out.end_logits[0][[0, *inside]], 0)[1:].tolist()
        score, first, last = max(
            (starts[a] * ends[b], a, b) for a in range(len(inside)) for b in range(a, len(inside))
        )
        start, end = offsets[inside[first]][0], offsets[inside[last]][1]
        assert (answer["start"], answer["end"]) == (start, end)
        assert answer["prediction"] == row["context"][start:end]
        assert math.isclose(answer["score"], score, rel_tol=1e-4)


def test_a_long_context_is_read_in_windows(folders) -> None:
    long = {"question": "who ?", "context": " ".join(TAGGED * 4)}
    found = predict(folders["spans"], [long], max_length=16)
    tokenizer = AutoTokenizer.from_pretrained(folders["spans"])
    task = TASKS["squad"]
    rows = {name: [long[name]] for name in task.text_columns} | {"index": [0]}
    encoded = SPANS.encode(task, tokenizer, 16, rows)
    assert len(encoded[ROW]) > 3
    model = AutoModelForQuestionAnswering.from_pretrained(folders["spans"])
    logits = []
    for ids in encoded["input_ids"]:
        with torch.no_grad():
            out = model(torch.tensor([ids]))
        logits.append(torch.stack([out.start_logits[0], out.end_logits[0]], -1).numpy())
    best = best_spans(encoded[ROW], encoded[OFFSETS], logits)[0]
    assert (found.rows[0]["start"], found.rows[0]["end"]) == (best.start, best.end)


def test_texts_are_generated(folders) -> None:
    found = predict(
        folders["text"], TAGGED, output=["labels", "scores"], max_new_tokens=4, batch_size=3
    )
    model = AutoModelForSeq2SeqLM.from_pretrained(folders["text"]).eval()
    tokenizer = AutoTokenizer.from_pretrained(folders["text"])
    for row in found:
        ids = tokenizer(row["text"], return_tensors="pt")
        made = model.generate(
            input_ids=ids["input_ids"], attention_mask=ids["attention_mask"],
            max_new_tokens=4, do_sample=False,
        )  # fmt: skip
        assert row["prediction"] == tokenizer.decode(made[0], skip_special_tokens=True).strip()
        # The probability of what was generated, token by token, by one pass of its own.
        with torch.no_grad():
            logits = model(
                input_ids=ids["input_ids"], decoder_input_ids=made[:, :-1]
            ).logits.log_softmax(-1)
        total = sum(logits[0, at, token].item() for at, token in enumerate(made[0, 1:]))
        assert math.isclose(row["score"], math.exp(total), rel_tol=1e-3)


@pytest.mark.slow
def test_a_text_to_text_run_reads_the_prompt_of_its_training(folders, tmp_path) -> None:
    """Which names the user's own task; and it writes as many tokens as its longest class name has."""
    run = tmp_path / "run"
    record = a_run("kd", 1, 80.0)
    record.recipe |= {
        "task": "cats", "kind": "text", "text_columns": ["said"], "label_column": "right",
    }  # fmt: skip
    long = "the cat and " * 4
    record.classification["dev"] = ClassificationScores(
        rows=2,
        student=ModelScores(accuracy=0.0, macro_f1=0.0),
        classes=[ClassFacts(name=name, rows=1) for name in ("no", long)],
    )
    record.save(run)
    shutil.copytree(folders["text"], run / "student")
    model = AutoModelForSeq2SeqLM.from_pretrained(folders["text"]).eval()
    tokenizer = AutoTokenizer.from_pretrained(folders["text"])
    longest = len(tokenizer(long)["input_ids"])
    assert longest > 10
    expected = []
    for text in TAGGED:
        ids = tokenizer(f"cats sentence: {text}", return_tensors="pt")
        made = model.generate(
            input_ids=ids["input_ids"], attention_mask=ids["attention_mask"],
            max_new_tokens=longest, do_sample=False,
        )  # fmt: skip
        expected.append(tokenizer.decode(made[0], skip_special_tokens=True).strip())
    rows = [{"id": number, "said": text} for number, text in enumerate(TAGGED)]
    assert max(len(text.split()) for text in expected) > 10
    for named in (run, run / "student"):
        assert [row["prediction"] for row in predict(named, rows)] == expected
    # A copy of the student's folder knows it by its configuration, and is scored by it whatever the rows are called.
    model.config.text_prompt = "cats sentence: {0}"
    copied = tmp_path / "copied"
    model.save_pretrained(copied)
    tokenizer.save_pretrained(copied)
    found = predict(copied, TAGGED, max_new_tokens=longest)
    assert [row["prediction"] for row in found] == expected
    lines = [{"text": text, "label": text} for text in TAGGED * 3]
    (tmp_path / "other.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    other = RowsAsked(
        data=str(tmp_path / "other.jsonl"), text_columns=["text"], label_column="label"
    )
    model = ScoredModel.open(copied)
    scored = model.score(model.rows(other))
    written = scored.results.predictions["prediction"]
    assert all(
        text.startswith(one) or one.startswith(text)
        for one, text in zip(written, expected * 3, strict=True)
    )
    # Of the checkpoint alone nobody knows the prompt.
    bare = predict(folders["text"], TAGGED, max_new_tokens=longest)
    assert [row["prediction"] for row in bare] != expected


def test_a_masked_language_model_has_embeddings_alone(folders) -> None:
    with pytest.raises(LimbeckError, match="no predictions of rows"):
        predict(folders["masked"], TAGGED)


def test_images_by_path_by_pattern_and_as_bytes(folders, tmp_path) -> None:
    root = sets.write_pictures(tmp_path / "images", {"3": 20, "7": 200}, each=3)
    paths = sorted(root.glob("*/*"))
    found = predict(folders["image"], str(root / "*" / "*"), output=["labels", "scores"])
    assert [row["image"] for row in found] == [str(path) for path in paths]
    by_bytes = predict(folders["image"], [{"image": path.read_bytes()} for path in paths])
    bare = [*map(sets.opened, paths)]
    opened = [{"image": image} for image in bare]
    for rows in (opened, bare, Dataset.from_list(opened)):  # datasets decodes its images
        again = predict(folders["image"], rows)
        assert [row["prediction"] for row in again] == [row["prediction"] for row in found]
    csv = tmp_path / "paths.csv"  # a blank cell ended all rows
    csv.write_text(
        "".join(f"{line}\n" for line in ("image,row", f"{paths[0]},1", ",2", f"{paths[1]},3"))
    )
    some = predict(folders["image"], csv)
    kept = [found.rows[0]["prediction"], None, found.rows[1]["prediction"]]
    assert [row["prediction"] for row in some] == kept and some.blank == 1
    assert [row["prediction"] for row in by_bytes] == [row["prediction"] for row in found]
    processor = sets.image_processor(8)
    model = AutoModelForImageClassification.from_pretrained(folders["image"]).eval()
    for row in found:
        with Image.open(row["image"]) as image, torch.no_grad():
            pixels = processor([image.convert("RGB")], return_tensors="pt")["pixel_values"]
            likely = model(pixels).logits.softmax(-1)[0]
        assert row["prediction"] == str(int(likely.argmax()))
        assert math.isclose(row["score"], float(likely.max()), rel_tol=2e-2)  # pixels are rounded


def test_beside_predictions_of_images_are_the_paths_of_their_files(folders, tmp_path) -> None:
    root = sets.write_pictures(tmp_path / "images" / "train", {"3": 20, "7": 200}, each=3)
    rows = RowsAsked(task="mine", data=str(root.parent))
    write_predictions(folders["image"], tmp_path / "p.jsonl", rows)
    found = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert {row["image"] for row in found} <= {str(path) for path in root.glob("*/*")}
    assert [{*row} for row in found] == [{"image", "label", "prediction", "probabilities"}] * len(
        found
    )


def test_parquet_holds_embeddings_as_lists_and_probabilities_by_class(folders, tmp_path) -> None:
    path = tmp_path / "rows.parquet"
    predict(
        folders["sentence"], [*TEXTS, None], to=path,
        output=["labels", "probabilities", "embeddings"],
    )  # fmt: skip
    table = parquet.read_table(path)
    assert table.column_names == ["text", "prediction", "probabilities", "embedding"]
    assert str(table.schema.field("embedding").type) == "list<element: float>"
    states = np.array(table["embedding"].to_pylist()[:-1])
    assert states.shape == (len(TEXTS), tiny.WIDTH)
    assert [table[name][-1].as_py() for name in table.column_names] == [None] * 4


def test_a_model_that_has_diverged_is_no_prediction(folders, tmp_path) -> None:
    model = tiny.knowing_teacher(1)
    with torch.no_grad():
        model.classifier.bias.fill_(torch.nan)
    with pytest.raises(LimbeckError, match="no finite numbers"):
        predict(tiny.save(model, tmp_path / "model"), TEXTS)


def test_tags_are_found_behind_padding(tmp_path) -> None:
    tokenizer = kinds.tokenizer("left")
    # Its positions are relative, so padding on the left changes nothing.
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=len(tokenizer), num_hidden_layers=1, num_labels=3, pad_token_id=0, **shape
    )
    model = LlamaForTokenClassification(config).eval()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    words = [text.split() for text in TAGGED]
    found = predict(tmp_path, [{"tokens": row} for row in words])
    batch = tokenizer(words, is_split_into_words=True, padding=True, return_tensors="pt")
    with torch.no_grad():
        tags = model(**batch).logits.argmax(-1).tolist()
    for number, row in enumerate(found):
        ids = batch.word_ids(number)
        firsts = [ids.index(word) for word in range(len(words[number]))]
        assert row["prediction"] == [f"LABEL_{tags[number][at]}" for at in firsts]
