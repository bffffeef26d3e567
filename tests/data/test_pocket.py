"""Pocket GLUE as a whole: splits, sizes, balance, determinism, vocabulary and tokenizer."""

import hashlib
import inspect

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from fresh_process import printed_by
from limbeck.lab import pocket
from limbeck.support.errors import LimbeckError
from limbeck.tasks import IMAGE
from limbeck.tasks.task import TASKS, get_task

GLUE_BY_SIZE = ("mnli", "qqp", "qnli", "sst2", "cola", "stsb", "mrpc", "rte", "wnli")
OUT_OF_DOMAIN = ("imdb", "paws", "scitail")


@pytest.fixture(scope="module")
def loaded():
    return {task: pocket.load(task) for task in (*GLUE_BY_SIZE, *OUT_OF_DOMAIN)}


def rows(split, task):
    return list(zip(*(split[column][:] for column in get_task(task).text_columns), strict=True))


@pytest.mark.slow
def test_there_is_a_pocket_version_of_every_glue_task_with_its_columns_and_splits(loaded):
    read = {name for name, task in TASKS.items() if task.kind is not IMAGE}
    assert set(loaded) < set(pocket.SIZES) == read
    for name, splits in loaded.items():
        task = get_task(name)
        assert set(splits) == {"train", *task.dev_splits}
        for split in splits.values():
            assert split.column_names == [*task.text_columns, "label", "index"]
            assert split["index"][:] == list(range(len(split)))
        assert (len(splits["train"]), len(splits["dev"])) == pocket.SIZES[name]


@pytest.mark.slow
def test_sizes_are_in_the_order_of_glue_and_within_a_factor_of_twenty(loaded):
    sizes = [len(loaded[task]["train"]) for task in GLUE_BY_SIZE]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == len(sizes)
    assert sizes[0] <= 20 * sizes[-1]
    assert all(len(split["dev"]) >= 500 for split in loaded.values())


@pytest.mark.slow
def test_no_text_occurs_twice_within_or_across_splits(loaded):
    for task, splits in loaded.items():
        everything = [row for split in splits.values() for row in rows(split, task)]
        assert len(set(everything)) == len(everything), task


@pytest.mark.slow
def test_label_shares_are_near_those_of_glue(loaded):
    positive = {"cola": 0.70, "sst2": 0.50, "mrpc": 0.68, "qqp": 0.37, "paws": 0.44, "imdb": 0.50,
                "qnli": 0.50, "rte": 0.50, "wnli": 0.50}  # fmt: skip
    for task, share in positive.items():
        for split in loaded[task].values():
            labels = split["label"][:]
            assert set(labels) == {0, 1}
            assert sum(labels) / len(labels) == pytest.approx(share, abs=0.1), task
    for split in loaded["mnli"].values():
        labels = split["label"][:]
        assert all(labels.count(c) / len(labels) == pytest.approx(1 / 3, abs=0.1) for c in range(3))
    scores = loaded["stsb"]["train"]["label"][:]
    assert min(scores) == 0.0
    assert max(scores) == 5.0
    assert len({round(score, 2) for score in scores}) >= 10


def fingerprint(splits):
    digest = hashlib.sha256()
    for name in sorted(splits):
        digest.update(repr(sorted(splits[name].to_dict().items())).encode())
    return digest.hexdigest()


@pytest.mark.slow
def test_same_seed_same_rows_other_seed_other_rows(loaded):
    assert fingerprint(pocket.load("wnli")) == fingerprint(loaded["wnli"])
    other = pocket.load("wnli", seed=1)
    assert fingerprint(other) != fingerprint(loaded["wnli"])


@pytest.mark.slow
def test_rows_do_not_depend_on_the_hash_seed_of_python(loaded):
    code = (
        "import hashlib\nfrom limbeck.lab import pocket\n"
        + inspect.getsource(fingerprint)
        + "print(fingerprint(pocket.load('mnli')), fingerprint(pocket.load('rte')))"
    )
    assert printed_by(code).split() == [fingerprint(loaded["mnli"]), fingerprint(loaded["rte"])]


@pytest.mark.slow
def test_every_word_is_known_and_every_example_is_short(loaded):
    tokenizer = pocket.tokenizer()
    for task, splits in loaded.items():
        for split in splits.values():
            part = split.select(range(min(500, len(split))))
            texts = [part[column][:] for column in get_task(task).text_columns]
            encoded = tokenizer(*texts)
            assert not any(tokenizer.unk_token_id in ids for ids in encoded["input_ids"])
            assert max(map(len, encoded["input_ids"])) <= 48
            for column in texts:
                words = [tokenizer.convert_tokens_to_ids(text.split()) for text in column[:20]]
                assert tokenizer(column[:20], add_special_tokens=False)["input_ids"] == words


def test_special_tokens_stand_first_and_a_mark_opens_the_second_text():
    tokenizer = pocket.tokenizer()
    assert tokenizer.convert_ids_to_tokens(range(5)) == [
        "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]",
    ]  # fmt: skip
    encoded = tokenizer("dull plot", "witty cast", padding="max_length", max_length=10)
    tokens = tokenizer.convert_ids_to_tokens(encoded["input_ids"])
    second = ["[MASK]", "witty", "cast", "[SEP]"]
    assert tokens == ["[CLS]", "dull", "plot", "[SEP]", *second, "[PAD]", "[PAD]"]
    assert encoded["attention_mask"] == [1] * 8 + [0] * 2
    assert tokenizer("strange plot")["input_ids"][1] == tokenizer.unk_token_id


def test_tokenizer_survives_saving_and_loading(tmp_path):
    tokenizer = pocket.tokenizer()
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert again.get_vocab() == tokenizer.get_vocab()
    text = ("every dog runs .", "it is false that no animal moves .")
    assert dict(again(*text)) == dict(tokenizer(*text))
    assert again.pad_token_id == 0
    assert again.model_max_length == tokenizer.model_max_length


@pytest.mark.parametrize("texts", [(["dull plot"],), (["dull plot"], ["witty cast"])])
def test_teacher_is_deep_narrow_and_small_and_takes_what_the_tokenizer_gives(texts):
    tokenizer = pocket.tokenizer()
    config = pocket.teacher_config(3)
    assert config.num_hidden_layers >= 12
    model = AutoModelForSequenceClassification.from_config(config)
    assert sum(p.numel() for p in model.parameters()) < 1_000_000
    batch = tokenizer(*texts, return_tensors="pt")
    assert set(batch) == {"input_ids", "attention_mask"}
    assert model(**batch).logits.shape == (1, 3)
    assert model.config.vocab_size == len(tokenizer)
    assert model.config.max_position_embeddings >= tokenizer.model_max_length


def test_one_label_is_regression_and_any_field_can_be_changed():
    config = pocket.teacher_config(1, num_hidden_layers=2)
    torch.manual_seed(0)
    assert (config.num_labels, config.problem_type, config.num_hidden_layers) == (
        1,
        "regression",
        2,
    )
    model = AutoModelForSequenceClassification.from_config(config)
    labels = torch.tensor([2.5])
    ids = torch.tensor([[2, 7, 3]])
    loss = model(input_ids=ids, labels=labels).loss
    assert loss.item() == pytest.approx((model(input_ids=ids).logits.item() - 2.5) ** 2, rel=1e-5)


def test_settings_are_there_for_every_task_that_is_trained():
    assert set(pocket.RECOMMENDED) >= set(GLUE_BY_SIZE)


def test_unknown_task_names_the_nearest():
    with pytest.raises(LimbeckError, match="did you mean 'mrpc'"):
        pocket.load("mrcp")


@pytest.mark.slow
def test_no_paraphrase_is_a_copy(loaded):
    for task in ("mrpc", "qqp", "paws"):
        assert all(first != second for first, second in rows(loaded[task]["train"], task))


@pytest.mark.slow
def test_every_word_of_the_vocabulary_is_used(loaded):
    used = {
        word
        for task, splits in loaded.items()
        for split in splits.values()
        for row in rows(split, task)
        for text in row
        for word in text.split()
    }
    assert set(pocket.tokenizer().get_vocab()) - used == set(pocket.tokenizer().all_special_tokens)
