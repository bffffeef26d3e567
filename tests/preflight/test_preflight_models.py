"""Layers, tokenizers, vocabularies, positions and classes that do not fit."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from preflight_runs import SST2, WORDS, config, model, tokenizer, words_of
from transformers import (
    DebertaV2Config,
    DebertaV2ForSequenceClassification,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForSequenceClassification,
)

from limbeck.activations import Request
from limbeck.preflight import errors_of
from limbeck.preflight.data_checks import other_problem, unsaid_problem
from limbeck.preflight.model_checks import (
    check_labels,
    check_positions,
    check_request,
    check_static,
    check_tokenizers,
    check_vocabulary,
)
from limbeck.static import static_student
from limbeck.support.positions import table_length
from limbeck.tasks import MULTI_LABEL, get_task


def test_requests_beyond_the_model():
    two = model()
    assert check_request("teacher", two, Request.hidden([0, 2]) | Request.of_logits()) == []
    found = check_request("teacher", two, Request.hidden([1, 3, 5]))
    assert len(found) == 1
    assert "layer 3, 5" in found[0].message and "layers 1..2" in found[0].message
    found = check_request("student", two, Request.hidden([1], stack="decoder"))
    assert "no stack 'decoder'" in found[0].message
    deberta = DebertaV2ForSequenceClassification(
        DebertaV2Config(
            hidden_size=16,
            num_attention_heads=2,
            intermediate_size=24,
            num_hidden_layers=2,
            vocab_size=10,
        )
    )
    found = check_request("student", deberta, Request.attention([1], "query"))
    assert "query cannot be seen in a DebertaV2" in found[0].message


def test_tokenizers_that_agree_or_not():
    texts = ["a good film", "bad plot"]
    assert check_tokenizers(tokenizer(), tokenizer(), texts) == []
    moved = check_tokenizers(tokenizer(), tokenizer(WORDS[::-1]), texts)
    assert "6 of them under another id" in moved[0].message and moved[0].severity == "error"
    assert "'a good film' as different ids" in moved[1].message
    longer = check_tokenizers(tokenizer(), tokenizer([*WORDS, "new"]), texts)
    assert [problem.severity for problem in longer] == ["warning"]
    other = check_tokenizers(tokenizer(), tokenizer(["un", "deux"]), texts)
    assert "4 are shared" in other[0].message and other[0].severity == "error"
    assert other[0].fix.endswith("compare logits alone (kd), for which each may read in its own")
    # Logits over the vocabulary cannot be compared either.
    over = check_tokenizers(tokenizer(), tokenizer(["un", "deux"]), texts, over_vocabulary=True)
    assert over[0].fix == "choose a student with the teacher's vocabulary"
    swapped = check_tokenizers(
        tokenizer(), tokenizer(special=["[UNK]", "[PAD]", "[CLS]", "[SEP]"]), texts
    )
    assert "pad 0 and 1; unk 1 and 0" in words_of(swapped)


def test_a_static_student_of_two_texts_is_warned_of():
    static, pairs = static_student(tokenizer(), num_labels=2), get_task("mrpc")
    assert check_static("student", static, SST2) == []
    assert check_static("student", model(), pairs) == []
    (found,) = check_static("student", static, pairs)
    assert "sentence1 and sentence2 as one text" in found.message and found.severity == "warning"


def test_vocabulary_must_fit_the_embeddings():
    assert check_vocabulary("student", model(), tokenizer()) == []
    found = check_vocabulary("student", model(vocab_size=8, pad_token_id=1), tokenizer())
    assert "ids reach 9, the embeddings 7" in found[0].message
    assert "pads with id 1" in found[1].message and found[1].severity == "warning"
    unpadded = PreTrainedTokenizerFast(tokenizer_object=tokenizer().backend_tokenizer)
    unpadded.eos_token = "[SEP]"
    (found,) = check_vocabulary("student", model(), unpadded)
    assert "no padding token" in found.message
    end = unpadded.convert_tokens_to_ids("[SEP]")
    assert '"pad_token": "[SEP]" into its tokenizer_config.json' in found.fix
    assert f'"pad_token_id": {end} into its config.json' in found.fix


def test_positions():
    assert check_positions("student", model(), 16) == []
    assert "17 is beyond the 16" in check_positions("student", model(), 17)[0].message
    settings = config().to_dict() | {"pad_token_id": 1, "max_position_embeddings": 18}
    settings.pop("model_type")
    roberta = RobertaForSequenceClassification(RobertaConfig(**settings)).eval()
    assert check_positions("student", roberta, 16) == []
    assert table_length(roberta.config) == 16
    assert errors_of(check_positions("student", roberta, 17))
    ids = torch.full((1, 17), 5)  # Hugging Face itself agrees: 16 fit, 17 do not
    roberta(input_ids=ids[:, :16])
    with pytest.raises((IndexError, RuntimeError)):
        roberta(input_ids=ids)


@pytest.mark.parametrize(
    ("names", "severity", "words"),
    [
        (("negative", "positive"), None, ""),
        (("Negative", "POSITIVE"), None, ""),
        (("positive", "negative"), "error", "another order"),
        (("LABEL_0", "LABEL_1"), "warning", "have no names"),
        (("neg", "pos"), "warning", "other names"),
        (("a", "b", "c"), "error", "has 3 outputs"),
    ],
)
def test_labels(names, severity, words):
    found = check_labels("teacher", config(id2label=dict(enumerate(names))), SST2)
    assert [problem.severity for problem in found] == ([severity] if severity else [])
    assert words in words_of(found)


@pytest.mark.parametrize(("trained", "rows", "words"), [
    ("single_label_classification", MULTI_LABEL, "trained for one class per row (single_label_classification)"),
    ("regression", MULTI_LABEL, "trained for a number (regression)"),
    (None, MULTI_LABEL, "does not state whether it was trained for one class per row"),
    ("multi_label_classification", MULTI_LABEL, ""), (None, SST2.kind, ""),
    ("multi_label_classification", SST2.kind, "trained for any number of classes per row"),
])  # fmt: skip
def test_one_class_a_row_or_any_number(trained, rows, words):
    task, own = replace(SST2, kind=rows), config(problem_type=trained)
    found = other_problem("teacher", own, task) + unsaid_problem("teacher", own, task)
    assert len(found) == bool(words) and words in words_of(found)


def test_labels_of_regression():
    stsb = get_task("stsb")
    assert check_labels("teacher", config(id2label={0: "anything"}), stsb) == []
    assert "2 outputs" in words_of(check_labels("teacher", config(), stsb))
