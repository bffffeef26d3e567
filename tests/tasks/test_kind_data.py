"""How rows of each kind become tokens, labels and batches: worked by hand on word pieces."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from datasets import Dataset
from sklearn.metrics import matthews_corrcoef
from transformers import DataCollatorWithPadding

import kind_models as tiny
from limbeck.data import Collator, encode
from limbeck.data.splits import make_split
from limbeck.support.errors import LimbeckError
from limbeck.support.machine import SentBatch
from limbeck.tasks import MASKED, SPANS, TASKS, TEXT, TOKENS, ScoredSplit, Task, as_kind
from numberless import META, numbers_are_told_apart

NER = Task("n", "n", ("tokens",), tiny.TAGS, ("f1",), "f1", label_column="tags", kind=TOKENS)
QA = Task("q", "q", ("question", "context"), (), ("f1",), "f1", label_column="answers", kind=SPANS)
MLM = Task("m", "m", ("text",), (), ("accuracy",), "accuracy", label_column="text", kind=MASKED)


def tagged(*rows):
    words, tags = zip(*rows, strict=True)
    return make_split(NER, {"tokens": list(words)}, list(tags))


def asked(*rows):
    questions, contexts, answers = zip(*rows, strict=True)
    found = [
        {"text": [a], "answer_start": [c.index(a)]} for a, c in zip(answers, contexts, strict=True)
    ]
    return make_split(QA, {"question": list(questions), "context": list(contexts)}, found)


# ---- token classification ----


def test_the_first_piece_of_a_word_carries_its_tag():
    rows = tagged((["annabelle", "lee", "saw", "rome"], [1, 2, 0, 3]), (["the", "cat"], [0, 0]))
    encoded, cut = encode(rows, NER, tiny.tokenizer(), 16)
    # [CLS] ann ##a ##belle lee saw rome [SEP]
    assert encoded["input_ids"][0] == [2, 5, 6, 7, 8, 9, 10, 3]
    assert encoded["labels"][0] == [-100, 1, -100, -100, 2, 0, 3, -100]
    assert (encoded["words"][0], cut) == ([0, 1, 2, 3], 0)
    for side, first in (("right", [-100, 0, 0, -100]), ("left", [-100, 0, 0, -100])):
        batch = Collator(tiny.tokenizer(side), kind=TOKENS)(list(encoded))
        padding = [-100] * 4
        expected = first + padding if side == "right" else padding + first
        assert batch["labels"][1].tolist() == expected
        assert batch.keys() == {"input_ids", "attention_mask", "index", "labels"}


def test_words_beyond_the_limit_count_as_outside():
    rows = tagged((["annabelle", "saw", "rome"], [1, 0, 3]))
    encoded, cut = encode(rows, NER, tiny.tokenizer(), 6)  # [CLS] ann ##a ##belle saw [SEP]
    assert cut == 1
    results = TOKENS.results(NER, np.array([[1, 0]]), ScoredSplit(encoded, rows, tiny.tokenizer()))
    assert results.predictions == {"index": [0], "prediction": [[1, 0, 0]], "label": [[1, 0, 3]]}
    # One entity proposed and right, of two.
    assert results.scores["precision"] == 100
    assert results.scores["recall"] == 50
    assert results.scores["primary"] == pytest.approx(200 / 3)
    assert results.scores["accuracy"] == pytest.approx(200 / 3)


def test_entities_are_right_only_as_a_whole():
    rows = tagged((["ann", "lee", "in", "rome"], [1, 2, 0, 3]), (["ann", "saw"], [1, 0]))
    encoded, _ = encode(rows, NER, tiny.tokenizer(), 16)
    half = TOKENS.results(
        NER,
        np.array([[1, 0, 0, 3], [0, 0, -100, -100]]),
        ScoredSplit(encoded, rows, tiny.tokenizer()),
    )
    # Proposed: ann (cut short), rome; right: ann lee, rome, ann. One of two, one of three.
    assert half.scores["precision"] == 50
    assert half.scores["recall"] == pytest.approx(100 / 3)
    assert half.scores["f1"] == pytest.approx(40)


def test_answers_do_not_depend_on_the_side_of_padding():
    rows = tagged((["annabelle", "lee"], [1, 2]), (["the"], [0]))
    encoded, _ = encode(rows, NER, tiny.tokenizer(), 16)
    found = []
    for side in ("right", "left"):
        batch = Collator(tiny.tokenizer(side), kind=TOKENS)(list(encoded))
        # A tag for each piece that its id decides, so that it moves with the piece.
        logits = torch.nn.functional.one_hot(batch["input_ids"] % 4, 4).float()
        found.append(TOKENS.compact_outputs(None, batch, logits)[:, :2].tolist())
    assert found == [[[5 % 4, 8 % 4], [14 % 4, -100]]] * 2


# ---- question answering ----


def test_windows_of_a_long_context():
    rows = asked(("who ?", "the cat saw ann and lee in rome . the cat saw the cat .", "lee"))
    encoded, cut = encode(rows, QA, tiny.tokenizer(), 12)
    assert cut == 0
    assert len(encoded) > 1
    assert set(encoded["row"]) == {0}
    assert encoded["index"][:] == list(range(len(encoded)))
    held = [
        row
        for row in encoded
        if 8 in row["input_ids"]  # lee
    ]
    for row in held:
        at = row["input_ids"].index(8)
        assert (row["start_positions"], row["end_positions"]) == (at, at)
    for row in encoded:
        if 8 not in row["input_ids"]:
            assert (row["start_positions"], row["end_positions"]) == (0, 0)
        # [CLS] who ? [SEP] … [SEP]: the first token and the context may answer.
        context = len(row["input_ids"]) - 5
        assert row["context_mask"] == [1, 0, 0, 0] + [1] * context + [0]
        starts = [start for start, _ in row["offsets"] if start >= 0]
        assert len(starts) == context
    overlap = set(map(tuple, encoded["offsets"][0])) & set(map(tuple, encoded["offsets"][1]))
    assert len(overlap - {(-1, -1)}) == 12 // 3


def test_the_best_span_over_all_windows_is_the_answer():
    rows = asked(
        ("who ?", "the cat saw annabelle and lee in rome .", "annabelle and lee"),
        ("who ?", "the cat saw rome .", "cat"),
    )
    encoded, _ = encode(rows, QA, tiny.tokenizer(), 13)
    logits = np.full((len(encoded), 13, 2), -5.0)
    for number, row in enumerate(encoded):
        logits[number, 0] = 9.0  # "not here" is never proposed
        if row["row"] == 0 and row["start_positions"]:
            logits[number, row["start_positions"], 0] = 4.0
            logits[number, row["end_positions"], 1] = 4.0
        elif row["row"] == 0:
            logits[number, 4] = 1.0  # another window is less sure of its own
        else:
            logits[number, 6, 0] = 3.0  # "saw": starts behind the best end
            logits[number, 5, 1] = 3.5
            logits[number, 7, 1] = 3.0  # "saw rome"
    results = SPANS.results(QA, logits, ScoredSplit(encoded, rows, tiny.tokenizer()))
    assert results.predictions["prediction"] == ["annabelle and lee", "saw rome"]
    assert results.predictions["label"] == [["annabelle and lee"], ["cat"]]
    assert results.scores == {"exact_match": 50.0, "f1": 50.0, "primary": 50.0}


def test_positions_move_with_left_padding():
    rows = asked(("who ?", "the cat saw rome .", "rome"), ("who ?", "lee", "lee"))
    encoded, _ = encode(rows, QA, tiny.tokenizer(), 16)
    left = Collator(tiny.tokenizer("left"), kind=SPANS)(list(encoded))
    assert left["input_ids"][1, left["start_positions"][1]] == 8
    assert left["input_ids"][0, left["end_positions"][0]] == 10
    assert left["context_mask"][1].tolist() == [0] * 4 + [1, 0, 0, 0, 1, 0]
    logits = torch.arange(10.0).reshape(1, 10, 1).expand(2, 10, 2)
    moved = SPANS.compact_outputs(None, left, logits)
    assert moved[1, :6, 0].tolist() == [4, 5, 6, 7, 8, 9]


def test_a_question_that_leaves_no_room():
    rows = asked(("who the cat saw ann and lee in rome ?", "the cat", "cat"))
    with pytest.raises(LimbeckError, match=r"10 tokens(.|\n)*raise max_length"):
        encode(rows, QA, tiny.tokenizer(), 14)


# ---- masked words ----


def hidden(batch):
    return [
        {place: label for place, label in enumerate(row) if label != -100}
        for row in batch["labels"].tolist()
    ]


def test_words_are_hidden_by_seed_epoch_and_index_alone():
    texts = ["the cat saw ann and lee in rome ."] * 6 + ["rome"]
    rows = make_split(MLM, {"text": texts}, None)
    encoded, _ = encode(rows, MLM, tiny.tokenizer(), 16)
    collate = Collator(tiny.tokenizer(), kind=MASKED)
    whole = collate(list(encoded))
    original = DataCollatorWithPadding(tiny.tokenizer())(
        [{k: r[k] for k in ("input_ids", "attention_mask")} for r in encoded]
    )
    for row, found in enumerate(hidden(whole)):
        assert len(found) == 1  # 15 % of 9 tokens, and of 1
        for place, label in found.items():
            assert original["input_ids"][row, place] == label
            assert label not in (0, 2, 3)
    by_epoch = [collate.for_epoch(dict(whole), seed=1, epoch=epoch) for epoch in range(20)]
    assert len({str(hidden(batch)) for batch in (*by_epoch, whole)}) == 21
    # The same row in another batch, sampled after another epoch, is hidden alike.
    alone = collate([encoded[3]])
    again = collate.for_epoch(collate.for_epoch(alone, seed=1, epoch=4), seed=1, epoch=7)
    assert hidden(again)[0] == hidden(by_epoch[7])[3]
    assert torch.equal(again["input_ids"][0], by_epoch[7]["input_ids"][3][:11])
    seeds = {str(hidden(collate.for_epoch(alone, seed=seed, epoch=7))) for seed in range(9)}
    assert len(seeds) > 3
    assert torch.equal(collate(list(encoded))["input_ids"], whole["input_ids"])


def test_words_are_hidden_on_the_host_and_sent():
    rows = make_split(MLM, {"text": ["the cat saw ann and lee in rome ."] * 3}, None)
    collate = Collator(tiny.tokenizer(), kind=MASKED)
    host = collate(list(encode(rows, MLM, tiny.tokenizer(), 16)[0]))
    given = SentBatch({name: value.to(META) for name, value in host.items()}, host)
    with numbers_are_told_apart() as sent:
        found = collate.for_epoch(given, seed=1, epoch=2)
    assert sent == ["_to_copy"] * 2  # what is read, and what was hidden
    assert found["input_ids"].device == found["labels"].device == META


def test_eight_in_ten_hidden_words_are_masked():
    rows = make_split(MLM, {"text": ["the cat saw ann and lee in rome . the"] * 2000}, None)
    encoded, _ = encode(rows, MLM, tiny.tokenizer(), 16)
    batch = Collator(tiny.tokenizer(), kind=MASKED)(list(encoded))
    chosen = batch["labels"] != -100
    now, before = batch["input_ids"][chosen], batch["labels"][chosen]
    assert len(now) == 4000  # 15 % of 10, half to even
    assert (now == 4).float().mean().item() == pytest.approx(0.8 + 0.1 / 18, abs=0.03)
    assert (now == before).float().mean().item() == pytest.approx(0.1 + 0.1 / 18, abs=0.02)


def test_masked_scores_by_hand():
    labels = torch.tensor([[-100, 1, 0], [2, -100, -100]])
    probabilities = torch.tensor([[[0.25, 0.5, 0.25]] * 3, [[0.5, 0.25, 0.25]] * 3])
    answers = MASKED.compact_outputs(None, {"labels": labels}, probabilities.log())
    rows = make_split(MLM, {"text": ["a", "b"]}, None)
    encoded = Dataset.from_dict({"index": [0, 1]})
    results = MASKED.results(MLM, answers.numpy(), ScoredSplit(encoded, rows, tiny.tokenizer()))
    # Right ones have 1/2, 1/4, 1/4: the geometric mean of 2, 4 and 4 is 32^(1/3).
    assert results.scores["perplexity"] == pytest.approx(32 ** (1 / 3))
    assert results.scores["accuracy"] == results.scores["primary"] == pytest.approx(100 / 3)
    assert results.predictions == {"index": [0, 1], "prediction": [1, 0], "label": [2, 1]}


# ---- text to text ----


def test_prompts_and_targets_are_t5s():
    mrpc = as_kind(TASKS["mrpc"], "text")
    rows = {"sentence2": ["b"], "sentence1": ["a"]}
    assert TEXT.texts(mrpc, rows) == [["mrpc sentence1: a sentence2: b"]]
    mnli = as_kind(TASKS["mnli"], "text")
    assert TEXT.texts(mnli, {"premise": ["p"], "hypothesis": ["h"]}) == [
        ["mnli hypothesis: h premise: p"]
    ]
    from limbeck.tasks.text import label_word

    assert [label_word(mrpc, label) for label in (0, 1)] == ["not_equivalent", "equivalent"]
    stsb = as_kind(TASKS["stsb"], "text")
    assert [label_word(stsb, x) for x in (3.8, 3.75, 0.0, 2.57, 5.0)] == [
        "3.8", "3.8", "0.0", "2.6", "5.0",
    ]  # fmt: skip


def pocket_text(task, texts, labels):
    from limbeck.lab import pocket

    known = as_kind(TASKS[task], "text")
    rows = make_split(known, texts, labels)
    words = pocket.text_tokenizer()
    encoded, _ = encode(rows, known, words, 32)
    return known, rows, words, encoded


def test_generated_words_are_scored_and_unknown_ones_are_wrong():
    texts = {"sentence1": ["dull plot"] * 5, "sentence2": ["warm cast"] * 5}
    task, rows, words, encoded = pocket_text("mrpc", texts, [1, 1, 0, 0, 1])
    assert [words.decode(ids) for ids in encoded["labels"][:2]] == ["equivalent </s>"] * 2
    batch = Collator(words, kind=TEXT)(list(encoded))
    assert batch["labels"].shape == (5, 2)
    vocabulary = words.get_vocab()
    end = vocabulary["</s>"]
    yes, no, junk = (vocabulary[w] for w in ("equivalent", "not_equivalent", "plot"))
    answers = np.array(
        [
            [0, yes, end, -100],
            [0, junk, end, 0],
            [0, no, end, 0],
            [0, yes, end, 0],
            [0, yes, yes, end],
        ]
    )
    results = TEXT.results(task, answers, ScoredSplit(encoded, rows, words))
    # Right: the first and the third.
    assert results.scores["accuracy"] == 40
    assert results.predictions["prediction"] == [
        "equivalent", "plot", "not_equivalent", "equivalent", "equivalent equivalent",
    ]  # fmt: skip
    assert results.predictions["label"][2] == "not_equivalent"
    # Proposed equivalent: rows 1 and 4; right ones: 1, 2, 5: precision 1/2, recall 1/3.
    assert results.scores["f1"] == pytest.approx(40)


@pytest.mark.parametrize("named", [0, 2, 4])
def test_words_that_name_no_class_are_one_more_class_to_matthews(named):
    """Of four rows so many are named rightly; the judge is scikit-learn, given −1, as T5's own metric gives it."""
    right = [0, 1, 1, 0]
    task, rows, words, encoded = pocket_text("cola", {"sentence": ["a"] * 4}, right)
    spelled = [words(task.labels[label])["input_ids"] for label in right[:named]]
    spelled += [words("plot")["input_ids"]] * (4 - named)
    longest = max(map(len, spelled))
    ids = np.array([[0, *one, *[0] * (longest - len(one))] for one in spelled])
    results = TEXT.results(task, ids, ScoredSplit(encoded, rows, words))
    judge = matthews_corrcoef(right, [*right[:named], *[-1] * (4 - named)])
    assert results.scores["matthews"] == pytest.approx(100 * judge)
    assert results.scores["primary"] == results.scores["matthews"]
    assert results.scores["matthews"] >= 0 and (named or results.scores["matthews"] == 0)
    sampled = TEXT.sampled_score(task, "matthews", results.predictions)
    assert sampled(np.arange(4)[None]) == pytest.approx(100 * judge)


def test_generated_numbers():
    texts = {"sentence1": ["a"] * 4, "sentence2": ["b"] * 4}
    task, rows, words, encoded = pocket_text("stsb", texts, [0.0, 1.0, 4.0, 5.0])
    ids = [words.get_vocab()[w] for w in ("0.0", "1.0", "4.0", "plot")]
    results = TEXT.results(
        task, np.array([[0, token] for token in ids]), ScoredSplit(encoded, rows, words)
    )
    right, given = [0.0, 1.0, 4.0, 5.0], [0.0, 1.0, 4.0, -1.0]
    expected = 100 * np.corrcoef(right, given)[0, 1]
    assert results.scores["pearson"] == pytest.approx(expected)


def test_class_names_the_tokenizer_cannot_tell_apart():
    task = Task("own", "own", ("sentence",), ("Good", "good"), ("accuracy",), "accuracy", kind=TEXT)
    from limbeck.lab import pocket
    from limbeck.tasks.text import read_words

    with pytest.raises(LimbeckError, match="rename the classes"):
        read_words(task, pocket.text_tokenizer(), ["good"])


def test_no_other_task_becomes_text():
    with pytest.raises(LimbeckError, match="is of kind tokens, not text"):
        as_kind(TASKS["ner"], "text")
    with pytest.raises(LimbeckError, match="unknown kind 'token'"):
        as_kind(TASKS["sst2"], "token")
