"""Teachers whose parts accelerate places on CPU and on disk: every result is that of the teacher loaded plainly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file
from typer.testing import CliRunner

import limbeck
import tiny_runs as tiny
from limbeck.activations import Request, capture
from limbeck.cli.app import app
from limbeck.data import Collator
from limbeck.embedding import SENTENCE_EMBEDDERS
from limbeck.outputs.key import digest_of_model
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.scoring import evaluation_of
from limbeck.students import load_model
from limbeck.support.errors import LimbeckError
from limbeck.support.machine import is_spread
from limbeck.tasks import CAUSAL_LM, SENTENCE

SIZES = {
    "vocab_size": 14, "hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 1,
    "intermediate_size": 24, "max_position_embeddings": 64, "initializer_range": 0.4, "pad_token_id": 0,
    "bos_token_id": 2, "eos_token_id": 3,
}  # fmt: skip
CLASSES = {"id2label": {0: "negative", 1: "positive"}, "label2id": {"negative": 0, "positive": 1}}
AUTO = {
    "encoder": hf.AutoModelForSequenceClassification,
    "decoder": hf.AutoModelForSequenceClassification,
    "embedder": hf.AutoModel,
    "causal": hf.AutoModelForCausalLM,
}


def made(kind: str) -> hf.PreTrainedModel:
    if kind == "encoder":
        return tiny.knowing_teacher(4)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if kind == "embedder":
            own = {name: SIZES[name] for name in SIZES if name != "num_key_value_heads"}
            return hf.BertModel(hf.BertConfig(**own))
        tied = kind == "causal"
        return AUTO[kind].from_config(hf.LlamaConfig(**SIZES, **CLASSES, tie_word_embeddings=tied))


def parts(folder: Path, kind: str) -> dict[str, str]:
    """Embeddings, the second layer and the head on disk, all else on the CPU."""
    names = load_model(folder, auto=SENTENCE_EMBEDDERS if kind == "embedder" else None).state_dict()
    away = ("embed", ".1.", "classifier", "score", "lm_head")
    return {
        name.rpartition(".")[0]: "disk" if any(one in name for one in away) else "cpu"
        for name in names
    }


def places(model: hf.PreTrainedModel) -> dict[str, torch.device]:
    return {name: weight.device for name, weight in model.named_parameters(remove_duplicate=False)}


def taught(model: hf.PreTrainedModel) -> hf.PreTrainedModel:
    """A language model that has seen the texts: pre-flight refuses a teacher that knows nothing."""
    batch = tiny.tokenizer()(
        tiny.sentences(40), padding=True, return_tensors="pt", return_token_type_ids=False
    )
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(60):
        model(**batch, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


@pytest.fixture(scope="session")
def folders(tmp_path_factory) -> dict[str, Path]:
    found = {}
    for kind in AUTO:
        found[kind] = tmp_path_factory.mktemp(kind)
        model = made(kind)
        (taught(model) if kind == "causal" else model).save_pretrained(found[kind])
        tiny.tokenizer().save_pretrained(found[kind])
    lines = "\n".join(tiny.sentences(40))
    found["texts"] = found["causal"] / "texts.txt"
    found["texts"].write_text(lines)
    return found


def student_of(run: Any) -> dict[str, torch.Tensor]:
    return load_file(run.path / "student" / "model.safetensors")


def assert_same(first: Any, second: Any) -> None:
    weights, others = student_of(first), student_of(second)
    assert weights.keys() == others.keys()
    assert all(torch.equal(weights[name], others[name]) for name in weights)
    assert first.scores == second.scores
    losses = [[entry.train for entry in run.record.epochs] for run in (first, second)]
    assert losses[0] == losses[1]


@pytest.mark.parametrize(("kind", "method", "settings"), [
    ("encoder", "rail-kd-l", {}), ("encoder", "minilm", {}), ("encoder", "kd", {"cache": "always"}),
    ("embedder", "embedding-mse", {}), ("causal", "kd", {}),
    ("causal", "rail-kd-l", {"precision": "bf16", "attention": "sdpa"}),
])  # fmt: skip
def test_a_run_is_that_of_the_teacher_loaded_plainly(
    kind, method, settings, place, folders, tmp_path, monkeypatch
):
    # Outputs that other tests stored are not there.
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "cache"))
    given = {"teacher": str(folders[kind]), "max_steps": 4, "batch_size": 8, "max_length": 24, "seed": 3,
             "student.layers": 2, "cache": "never", "lr": 1e-2}  # fmt: skip
    if kind == "encoder":
        given |= {"task": "reviews", "data": str(place / "reviews.csv"), "text_columns": ["review"],
                  "label_column": "verdict"}  # fmt: skip
    else:
        given |= {
            "kind": {"embedder": "embedding", "causal": "causal-lm"}[kind],
            "data": str(folders["texts"]),
        }
    given |= settings
    plain = distill(Recipe.load(method, **given), out=tmp_path / "plain", report=False)
    given["teacher_device_map"] = parts(folders[kind], kind)
    spread = distill(Recipe.load(method, **given), out=tmp_path / "spread", report=False)
    assert_same(plain, spread)
    if given["cache"] == "always":  # the weights are the same: so are the stored outputs
        assert [len(run.record.execution.stored) for run in (plain, spread)] == [1, 0]


@pytest.mark.parametrize(("kind", "method"), [
    ("encoder", "rail-kd-l"), ("decoder", "minilmv2"), ("causal", "kd"),
])  # fmt: skip
def test_a_model_passed_to_the_trainer_stays_where_it_is(kind, method, folders, tmp_path):
    rows, task_type = tiny.rows(24), CAUSAL_LM if kind == "causal" else SENTENCE
    if kind == "causal":
        rows = rows.remove_columns("labels").add_column("labels", rows["input_ids"][:])
    students = []
    for device_map in (None, parts(folders[kind], kind)):
        teacher = AUTO[kind].from_pretrained(folders[kind], device_map=device_map)
        assert is_spread(teacher) == (device_map is not None)
        where = places(teacher)
        student = limbeck.build_student(load_model(folders[kind]), layers=2)
        args = limbeck.DistillationConfig(
            method=method, output_dir=tmp_path / str(is_spread(teacher)), max_steps=4, use_cpu=True,
            per_device_train_batch_size=6, report_to="none", learning_rate=1e-2,
        )  # fmt: skip
        trainer = limbeck.DistillationTrainer(
            student,
            teacher,
            args,
            train_dataset=rows,
            data_collator=Collator(tiny.tokenizer(), kind=task_type),
        )
        trainer.train()
        assert places(teacher) == where
        students.append(student.state_dict())
    assert all(torch.equal(students[0][name], students[1][name]) for name in students[0])


@pytest.mark.parametrize("kind", ["encoder", "decoder", "causal"])
def test_every_activation_and_the_fingerprint_are_the_plain_models(kind, folders):
    plain = load_model(folders[kind])
    spread = load_model(folders[kind], loading={"device_map": parts(folders[kind], kind)})
    assert is_spread(spread) and any(weight.is_meta for weight in spread.parameters())
    batch = dict(tiny.tokenizer()(tiny.sentences(5), padding=True, return_tensors="pt"))
    everything = Request.hidden(range(5)) | Request.hidden([2], "mean") | Request.attention([1, 2])
    for request in (everything | Request.of_logits(), everything, Request.hidden([1], "cls")):
        with torch.no_grad():
            one, two = capture(plain, batch, request), capture(spread, batch, request)
        assert one.values.keys() == two.values.keys()
        assert all(torch.equal(one.values[seen], two.values[seen]) for seen in one.values)
        assert one.logits is None or torch.equal(one.logits, two.logits)
    assert digest_of_model(plain) == digest_of_model(spread)


@pytest.fixture
def spread_by_auto(monkeypatch, folders):
    """`auto` on a machine whose memory the teacher does not fit: by hand, as no such machine is here."""
    from limbeck.students import pretrained

    by_folder = {str(folders[kind]): parts(folders[kind], kind) for kind in AUTO}
    loaded = []
    load = pretrained.load_checkpoint

    def by_hand(path, **settings):
        loading = dict(settings.get("loading") or {})
        if loading.get("device_map") == "auto":
            loading["device_map"] = by_folder[str(path)]
        model, head = load(path, **(settings | {"loading": loading}))
        loaded.append(is_spread(model))
        return model, head

    monkeypatch.setattr(pretrained, "load_checkpoint", by_hand)
    return loaded


def test_labels_scores_and_predictions_are_the_plain_models(
    place, folders, spread_by_auto, tmp_path
):
    data, teacher = str(place / "reviews.csv"), str(folders["encoder"])
    rows = ["--data", data, "--text-columns", "review"]
    found = []
    for name, how in (("plain", []), ("spread", ["--device-map", "auto"])):
        out = tmp_path / name
        for command in (
            ["label", "--teacher", teacher, *rows, "--out", str(out / "store"), "--to", str(out / "labels.csv")],
            ["predict", teacher, data, "--text-columns", "review", "--to", str(out / "rows.jsonl"),
             "--output", "logits", "embeddings"],
        ):  # fmt: skip
            done = CliRunner().invoke(app, [*command, *how])
            assert done.exit_code == 0, done.output
        command = [
            "evaluate",
            teacher,
            *rows,
            "--task",
            "reviews",
            "--label-column",
            "verdict",
            "--json",
        ]
        scores = CliRunner().invoke(app, [*command, *how])
        assert scores.exit_code == 0, scores.output
        found.append(
            [
                (out / "labels.csv").read_text(),
                (out / "rows.jsonl").read_text(),
                json.loads(scores.stdout),
            ]
        )
    assert found[0] == found[1]
    assert spread_by_auto == [False] * 3 + [True] * 3


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_language_model_labels_and_writes_as_the_plain_one(
    precision, folders, spread_by_auto, tmp_path
):
    prompt = {"template": "{text} film", "verbalizations": {"n": "bad", "p": "good"}}
    (tmp_path / "prompt.yaml").write_text(json.dumps(prompt))
    found = []
    for name, how in (("plain", {}), ("spread", {"device_map": "auto"})):
        limbeck.label(
            str(folders["causal"]), str(folders["texts"]), prompt=tmp_path / "prompt.yaml", out=tmp_path / name,
            to=tmp_path / f"{name}.csv", precision=precision, **how,
        )  # fmt: skip
        folder, texts = str(folders["causal"]), tiny.sentences(3)
        written = list(limbeck.predict(folder, texts, max_new_tokens=4, **how))
        found.append([(tmp_path / f"{name}.csv").read_text(), written])
    assert found[0] == found[1]
    assert spread_by_auto == [False, False, True, True]


def test_what_cannot_be_placed_is_refused(recipe, folders, monkeypatch, tmp_path):
    choices = "choices: auto, balanced, balanced_low_0, sequential"
    with pytest.raises(LimbeckError, match=f"teacher_device_map.*atuo(?s:.*){choices}"):
        recipe("kd", teacher_device_map="atuo")
    with pytest.raises(LimbeckError, match=f"device_map.*atuo(?s:.*){choices}"):
        limbeck.label(str(folders["encoder"]), ["good"], out=tmp_path / "store", device_map="atuo")
    with pytest.raises(LimbeckError, match=f"device_map.*atuo(?s:.*){choices}"):
        evaluation_of(folders["encoder"], device_map="atuo")
    with pytest.raises(LimbeckError, match="teacher_device_map: has an effect only with teacher"):
        recipe("finetune", teacher_device_map="auto")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(LimbeckError, match="start one process"):
        load_model(folders["encoder"], loading=limbeck.students.placement("auto"))
