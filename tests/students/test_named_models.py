"""Models by their shape: the paper's own table of sizes, and what is no shape."""

import re

import pytest
from student_models import TASK
from transformers import BertForSequenceClassification

import tiny_runs as tiny
from limbeck.students import TEAMS, build_student, named_model, read_tokenizer, starts_random
from limbeck.support.errors import LimbeckError

# SKDBERT, Table 12: layers, width, heads and millions of parameters of T01 to T14.
TABLE_12 = [
    (8, 128, 2, 5.6), (10, 128, 2, 6.0), (12, 128, 2, 6.4),
    (8, 256, 4, 14.3), (10, 256, 4, 15.9), (12, 256, 4, 17.5),
    (8, 512, 8, 41.4), (10, 512, 8, 47.7), (12, 512, 8, 54.0),
    (8, 768, 12, 81.1), (10, 768, 12, 95.3), (12, 768, 12, 110),
    (24, 1024, 16, 335), (24, 1024, 16, 335),
]  # fmt: skip


class BertsVocabulary:
    """As much of bert-base-uncased's tokenizer as a configuration needs."""

    pad_token_id = 0

    def __len__(self) -> int:
        return 30522


def test_the_papers_team_is_its_table_12() -> None:
    shapes = [named_model(name) for name in TEAMS["paper"]]
    assert [(one.layers, one.width, one.heads) for one in shapes] == [row[:3] for row in TABLE_12]
    assert [one.name for one in shapes][-2:] == ["bert-24-1024-16", "bert-24-1024-16-wwm"]


@pytest.mark.parametrize(
    ("name", "row"),
    [
        pytest.param(*case, marks=[pytest.mark.slow] * (place % 4 > 0))
        for place, case in enumerate(zip(TEAMS["paper"][:9], TABLE_12, strict=False))
    ],
)
def test_random_weights_have_the_papers_number_of_parameters(name: str, row: tuple) -> None:
    config = named_model(f"{name}:random").config(BertsVocabulary())
    model = build_student(config, task=TASK)
    assert isinstance(model, BertForSequenceClassification)
    millions = sum(weight.numel() for weight in model.parameters()) / 1e6
    assert millions == pytest.approx(row[3], abs=0.06)


@pytest.mark.parametrize(
    ("name", "repository"),
    [
        ("bert-8-128-2", "google/bert_uncased_L-8_H-128_A-2"),
        ("bert-10-512-8", "google/bert_uncased_L-10_H-512_A-8"),
        ("bert-12-768-12", "google-bert/bert-base-uncased"),
        ("bert-24-1024-16", "google-bert/bert-large-uncased"),
        ("bert-24-1024-16-wwm", "google-bert/bert-large-uncased-whole-word-masking"),
    ],
)
def test_where_the_hub_keeps_them(name: str, repository: str) -> None:
    named = named_model(name)
    assert named.repository == repository
    assert not named.random
    assert not starts_random(name)


def test_pocket_shapes_are_random_and_on_no_hub() -> None:
    for name in TEAMS["pocket"]:
        named = named_model(name)
        assert named.random
        assert named.repository is None
        assert starts_random(name)
    depths = {named_model(name).layers for name in TEAMS["pocket"]}
    widths = {named_model(name).width for name in TEAMS["pocket"]}
    assert len(TEAMS["pocket"]) >= 8
    assert len(depths) >= 4
    assert len(widths) >= 2


@pytest.mark.parametrize(
    "name", ["runs/t", "bert-base-uncased", "teacher", "pocket", "./bert-8-128-2", "bert"]
)
def test_other_names_are_left_alone(name: str) -> None:
    assert named_model(name) is None


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("bert-8-128", "is no model's shape"),
        ("pocket-99999999-8-1", "is no model's shape"),
        ("bert-8-128-2-random", "is no model's shape"),
        ("bert-8-128-3:random", "HEADS has to divide WIDTH"),
        ("pocket-0-32-2", "is no model's shape"),
        ("bert-3-128-2", "bert-3-128-2:random"),
        ("bert-8-128-4", "the Hub has no BERT of the shape"),
        ("bert-8-128-2-wwm", "is no model's shape"),
        ("bert-24-1024-16-wwm:random", "masking of complete words"),
    ],
)
def test_a_shape_that_is_none_is_explained(name: str, said: str) -> None:
    with pytest.raises(LimbeckError, match=re.escape(said)):
        named_model(name)


def test_a_folder_that_looks_like_a_shape_stays_a_folder(tmp_path, monkeypatch) -> None:
    (tmp_path / "bert-8-128").mkdir()
    monkeypatch.chdir(tmp_path)
    assert named_model("bert-8-128") is None


def test_tokenizers_are_read_from_a_folder_a_run_and_nowhere_else(tmp_path) -> None:
    tiny.tokenizer().save_pretrained(tmp_path / "words")
    tiny.save(tiny.bert(1), tmp_path / "run" / "student")
    wanted = tiny.tokenizer().get_vocab()
    assert read_tokenizer(tmp_path / "words").get_vocab() == wanted
    assert read_tokenizer(tmp_path / "run").get_vocab() == wanted
    (tmp_path / "empty").mkdir()
    with pytest.raises(LimbeckError, match="empty' cannot be read"):
        read_tokenizer(tmp_path / "empty")
