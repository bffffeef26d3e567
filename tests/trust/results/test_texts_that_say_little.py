"""Rows whose scores would say little: dev rows that were trained on, and text the tokenizer cannot read."""

from __future__ import annotations

from collections import Counter

import numpy as np
from datasets import Dataset

import tiny_runs as tiny
from limbeck.preflight import check
from limbeck.preflight.data_checks import near_copies, rows_in_train
from limbeck.tasks import EMBEDDING, Task, get_task

SST2 = get_task("sst2")


def split(texts: list[str]) -> Dataset:
    rows = range(len(texts))
    return Dataset.from_dict(
        {"sentence": texts, "label": [row % 2 for row in rows], "index": list(rows)}
    )


def found(train: list[str], dev: list[str]) -> list[str]:
    problems = check(
        task=SST2,
        rows={"train": split(train), "dev": split(dev)},
        student=tiny.bert(2),
        tokenizer=tiny.tokenizer(),
        max_length=20,
    ).problems
    return [f"{problem.severity}: {problem.message}" for problem in problems]


def film(number: int) -> str:
    """Texts of other words each."""
    return " ".join(word for place, word in enumerate(tiny.WORDS) if (number + 1) >> place & 1)


def test_dev_rows_that_are_trained_on_are_counted():
    train = [film(row) for row in range(40)]
    (warning,) = found(train, [film(row) for row in range(38, 58)])
    assert warning.startswith("warning: dev: 2 of 20 rows are also training rows, so scores")


def test_a_few_repetitions_are_the_datas_own():
    train = [film(row) for row in range(40)]
    assert found(train, [film(row) for row in range(39, 59)]) == [
        "note: dev: 1 of 20 rows are also training rows"
    ]
    assert found(train, [film(row) for row in range(40, 60)]) == []


def test_case_and_outer_whitespace_make_no_other_row():
    train = ["a good film", "Bad plot"]
    dev = ["A Good Film ", "\tbad plot", "a  good film", "good film"]
    assert rows_in_train(SST2, {"train": split(train), "dev": split(dev)}) == {"dev": 2}


def test_a_text_with_one_other_word_in_ten_is_a_near_copy():
    text = "a slow and sad film of a boy who leaves his home town for the sea"
    words = text.split()
    one, two = [*words, "again"], [*words, "and", "sings"]  # 16 of 17 words, and of 18
    dev = [" ".join(own) for own in (words, one, two, words[:13], words[::-1])]
    dev += [", ".join(words) + "!", "a sad film", "a sad sad film"]
    rows = {"train": split([" ".join(words), "A film: sad"]), "dev": split(dev)}
    assert rows_in_train(SST2, rows) == {"dev": 1}
    assert near_copies(SST2, rows) == {"dev": 5}
    said = "note: dev: 4 of 8 rows share nine tenths of their words with a training row"
    assert said in found(["A film: sad", " ".join(words)], dev)


def test_near_copies_are_those_of_a_comparison_of_all_pairs():
    """Texts of few words, so that many are near, and words of all frequencies."""
    random = np.random.default_rng(0)

    def some(count: int) -> list[str]:
        lengths = random.integers(5, 30, count)
        return [" ".join(map(str, random.geometric(0.6, length))) for length in lengths]

    train, dev = some(600), some(100)
    bags = {text: Counter(text.split()) for text in (*train, *dev)}

    def alike(one: str, other: str) -> float:
        both = (bags[one] & bags[other]).total()
        return both / (bags[one].total() + bags[other].total() - both)

    expected = sum(any(alike(one, other) >= 0.9 for other in train) for one in dev)
    assert 5 < expected < 95
    rows = {"train": split(train), "dev": split(dev)}
    assert near_copies(SST2, rows) == {"dev": expected}


def test_dev_and_test_rows_are_counted_each_by_themselves():
    rows = {
        "train": split(["a", "b", "c"]),
        "dev": split(["c", "d"]),
        "test": split(["b", "b", "a"]),
    }
    assert rows_in_train(SST2, rows) == {"dev": 1, "test": 3}


def test_an_embedding_model_reads_the_texts_of_a_row_one_by_one():
    """Pairs that are scored beside single sentences that are trained on."""
    task = Task("own", "own", ("sentence1", "sentence2"), (), (), "", kind=EMBEDDING)

    def pairs(*rows: tuple[str, str]) -> Dataset:
        first, second = zip(*rows, strict=True)
        return Dataset.from_dict({"sentence1": list(first), "sentence2": list(second)})

    rows = {
        "train": pairs(("a", ""), ("B", ""), ("c", "d")),
        "dev": pairs(("a", "b"), ("d", "a"), ("a", "e"), ("e", "f")),
    }
    assert rows_in_train(task, rows) == {"dev": 2}


def test_of_pairs_both_texts_have_to_be_there():
    mrpc = get_task("mrpc")
    rows = {
        "sentence1": [film(row) for row in range(20)],
        "label": [row % 2 for row in range(20)],
        "index": list(range(20)),
    }
    second = {
        "train": [film(row) for row in range(20)],
        "dev": [film(row + 1) for row in range(20)],
    }
    splits = {name: Dataset.from_dict(rows | {"sentence2": own}) for name, own in second.items()}
    names = {"id2label": dict(enumerate(mrpc.labels))}
    settings = {
        "task": mrpc,
        "student": tiny.bert(2, **names),
        "tokenizer": tiny.tokenizer(),
        "max_length": 20,
    }
    assert check(rows=splits, **settings).problems == []
    (problem,) = check(rows={"train": splits["train"], "dev": splits["train"]}, **settings).problems
    assert "20 of 20 rows are also training rows" in problem.message


def test_text_of_another_language_is_noticed():
    train = [f"ein {film(row)} mit Worten aus" for row in range(40)]
    dev = [f"und {film(row)} noch einige" for row in range(12)]
    (warning,) = found(train, dev)
    assert "student: its tokenizer does not know" in warning
    assert "40 training rows, which all become '[UNK]'" in warning


def test_another_language_is_noticed_at_the_end_and_without_spaces():
    """Rows are drawn from the whole file; one unknown token may be a whole row."""
    known = [film(row) for row in range(60)] * 20
    for other in ("ein langer Satz mit vielen Worten", "ประโยคยาวที่ไม่มีช่องว่าง"):
        warnings = found(known + [other] * 1200, ["plot"])
        assert any("student: its tokenizer does not know" in warning for warning in warnings)


def test_an_unknown_token_here_and_there_is_not():
    train = [film(row + 8) + (" Worte" if row % 2 else "") for row in range(40)]
    assert found(train, [film(row + 60) for row in range(12)]) == []
