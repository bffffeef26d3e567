import multiprocessing

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from fresh_process import printed_by
from limbeck.data import Collator, encode
from limbeck.data.splits import make_split
from limbeck.support.errors import LimbeckError
from limbeck.tasks import TASKS

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "c", "d"]


def word_tokenizer(**special):
    backend = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    backend.pre_tokenizer = Whitespace()
    backend.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]"} | special
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **names,
    )


def pairs(labels=(1, 0, 1)):
    texts = {"sentence1": ["a b", "a a a a", "d"], "sentence2": ["c", "b b b", "c c c c c c"]}
    return make_split(TASKS["mrpc"], texts, None if labels is None else list(labels))


def test_pairs_are_encoded_and_cut_from_the_longer_text():
    encoded, truncated = encode(pairs(), TASKS["mrpc"], word_tokenizer(), max_length=8)
    assert encoded["input_ids"][:] == [
        [2, 4, 5, 3, 6, 3],
        [2, 4, 4, 4, 3, 5, 5, 3],
        [2, 7, 3, 6, 6, 6, 6, 3],
    ]
    assert encoded["token_type_ids"][0] == [0, 0, 0, 0, 1, 1]
    assert encoded["labels"][:] == [1, 0, 1]
    assert encoded["index"][:] == [0, 1, 2]
    assert truncated == 2
    assert set(encoded.column_names) == {
        "input_ids", "token_type_ids", "attention_mask", "labels", "index",
    }  # fmt: skip
    assert encoded.features["labels"].dtype == "int64"


def test_nothing_is_cut_when_all_fits():
    encoded, truncated = encode(pairs(), TASKS["mrpc"], word_tokenizer(), max_length=10)
    assert truncated == 0
    assert [len(ids) for ids in encoded["input_ids"]] == [6, 10, 10]


def test_single_texts_and_numbers():
    split = make_split(TASKS["sst2"], {"sentence": ["a", "b c"]}, [0, 1])
    encoded, _ = encode(split, TASKS["sst2"], word_tokenizer(), max_length=8)
    assert encoded["input_ids"][:] == [[2, 4, 3], [2, 5, 6, 3]]
    scores = make_split(TASKS["stsb"], {"sentence1": ["a"], "sentence2": ["b"]}, [3.8])
    encoded, _ = encode(scores, TASKS["stsb"], word_tokenizer(), max_length=8)
    assert encoded.features["labels"].dtype == "float32"
    assert encoded["labels"][0] == pytest.approx(3.8)


def test_no_labels_no_label_column():
    encoded, _ = encode(pairs(None), TASKS["mrpc"], word_tokenizer(), max_length=8)
    assert "labels" not in encoded.column_names


def test_a_slice_keeps_its_row_numbers():
    encoded, _ = encode(pairs().select([2, 0]), TASKS["mrpc"], word_tokenizer(), max_length=8)
    assert encoded["index"][:] == [2, 0]


def test_encoding_refuses_what_cannot_work():
    tokenizer = word_tokenizer()
    with pytest.raises(LimbeckError, match="max_length 3 leaves no room"):
        encode(pairs(), TASKS["mrpc"], tokenizer, max_length=3)
    with pytest.raises(LimbeckError, match="lack the columns question1, question2"):
        encode(pairs(), TASKS["qqp"], tokenizer, max_length=8)
    with pytest.raises(LimbeckError, match="empty"):
        encode(pairs().select([]), TASKS["mrpc"], tokenizer, max_length=8)


def test_fingerprint_ignores_the_tokenizers_past():
    fresh, used = word_tokenizer(), word_tokenizer()
    used(["a b c d"] * 3, truncation=True, max_length=3, padding=True)
    prints = [encode(pairs(), TASKS["mrpc"], t, 8)[0]._fingerprint for t in (fresh, used, used)]
    assert len(set(prints)) == 1
    assert encode(pairs(), TASKS["mrpc"], fresh, 9)[0]._fingerprint != prints[0]
    assert encode(pairs((0, 0, 1)), TASKS["mrpc"], fresh, 8)[0]._fingerprint != prints[0]


@pytest.mark.slow
def test_fingerprint_is_the_same_in_another_process():
    code = (
        "from test_encoding import *\n"
        "print(encode(pairs(), TASKS['mrpc'], word_tokenizer(), 8)[0]._fingerprint)"
    )
    here = encode(pairs(), TASKS["mrpc"], word_tokenizer(), 8)[0]._fingerprint
    assert printed_by(code).strip() == here


def test_batches_are_as_wide_as_their_longest_row():
    tokenizer = word_tokenizer()
    encoded, _ = encode(pairs(), TASKS["mrpc"], tokenizer, max_length=8)
    batch = Collator(tokenizer)([encoded[0], encoded[1]])
    assert batch["input_ids"].tolist() == [[2, 4, 5, 3, 6, 3, 0, 0], [2, 4, 4, 4, 3, 5, 5, 3]]
    assert batch["attention_mask"].tolist() == [[1] * 6 + [0] * 2, [1] * 8]
    assert batch["labels"].tolist() == [1, 0]
    assert batch["labels"].dtype == batch["index"].dtype == torch.int64
    assert type(batch) is dict
    wide = Collator(tokenizer, pad_to_multiple_of=5)([encoded[0]])
    assert wide["input_ids"].shape == (1, 10)


def test_numbers_are_float32_and_absent_labels_stay_absent():
    tokenizer = word_tokenizer()
    split = make_split(TASKS["stsb"], {"sentence1": ["a", "b"], "sentence2": ["b", "b"]}, [3, 0])
    encoded, _ = encode(split, TASKS["stsb"], tokenizer, max_length=8)
    batch = Collator(tokenizer)([encoded[0], encoded[1]])
    assert batch["labels"].dtype == torch.float32
    assert batch["labels"].tolist() == [3.0, 0.0]
    unlabelled, _ = encode(pairs(None), TASKS["mrpc"], tokenizer, max_length=8)
    assert "labels" not in Collator(tokenizer)([unlabelled[0]])


def test_a_tokenizer_without_padding_is_refused():
    with pytest.raises(LimbeckError, match="no padding token"):
        Collator(word_tokenizer(pad_token=None))


@pytest.mark.slow
def test_spawned_workers_deliver_the_same_batches():
    tokenizer = word_tokenizer()
    encoded, _ = encode(pairs(), TASKS["mrpc"], tokenizer, max_length=8)
    loaders = [
        torch.utils.data.DataLoader(
            encoded, batch_size=2, collate_fn=Collator(tokenizer), num_workers=workers,
            multiprocessing_context=multiprocessing.get_context("spawn") if workers else None,
        )
        for workers in (0, 1)
    ]  # fmt: skip
    for here, there in zip(*loaders, strict=True):
        assert all(torch.equal(here[name], there[name]) for name in here)
