"""Embedding models in a `DistillationTrainer`, and as labellers."""

from __future__ import annotations

import numpy as np
import pytest
import tiny_embedders as tiny
import torch
from datasets import Dataset

from limbeck import DistillationConfig, DistillationTrainer, build_student
from limbeck.labelling.model_labeller import ModelLabeller
from limbeck.support.errors import LimbeckError


def trainer(folder, method, teacher=None, *, evaluate=False):
    student = build_student(tiny.embedder(), layers=2)
    teacher = teacher or tiny.embedder()
    args = DistillationConfig(
        str(folder / "out"), method=method, max_steps=2, report_to="none", use_cpu=True,
        learning_rate=0.01, warmup_steps=0, save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    rows = Dataset.from_dict({**tiny.tiny.tokenizer()(tiny.sentences(8))})
    return DistillationTrainer(
        student, teacher, args, train_dataset=rows, processing_class=tiny.tiny.tokenizer(),
        eval_dataset=rows.add_column("index", range(8)) if evaluate else None,
    )  # fmt: skip


def test_what_is_saved_embeds_in_sentence_transformers_as_the_student_does(tmp_path):
    made = trainer(tmp_path, "embedding-mse")
    before = {name: value.clone() for name, value in made.student.state_dict().items()}
    made.train()
    assert any((value != before[name]).any() for name, value in made.student.state_dict().items())
    made.save_model(str(tmp_path / "small"))
    texts = tiny.sentences(5, seed=3)
    theirs = tiny.sentence_transformer(tmp_path / "small").encode(texts)
    batch = tiny.tiny.tokenizer()(texts, return_tensors="pt", padding=True)
    with torch.no_grad():
        ours = made.student.eval()(**batch).logits.numpy()
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_methods_of_classes_have_no_term_of_labels(tmp_path):
    made = trainer(tmp_path, "kd", evaluate=True)
    assert {name: term.compare for name, term in made.plan.recipe.objectives.items()} == {
        "soft": "embedding_mse"
    }
    assert made.plan.recipe.formula == "L = 1/2 embedding_mse" and [*made.objectives.terms] == [
        "soft"
    ]
    found = made.evaluate()
    assert "eval_loss" not in found and "eval_runtime" in found


def test_labels_alone_teach_an_embedding_model_nothing(tmp_path):
    with pytest.raises(LimbeckError, match="finetune learns from labels alone, and kind embedding"):
        trainer(tmp_path, "finetune").train()


def test_an_embedding_is_no_label(tmp_path):
    with pytest.raises(LimbeckError, match="--output embeddings"):
        ModelLabeller(tiny.embedder(), tiny.tiny.tokenizer(), name="theirs")
    hidden = ModelLabeller(
        tiny.embedder(), tiny.tiny.tokenizer(), name="theirs", outputs=["hidden:-1:mean"]
    )
    assert hidden.outputs == ("hidden-main-4-mean",)


def test_a_teacher_that_does_not_embed_is_refused(tmp_path):
    with pytest.raises(LimbeckError, match="the teacher gives none"):
        trainer(tmp_path, "embedding-mse", tiny.tiny.bert(4))
