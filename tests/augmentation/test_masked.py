"""The masked language model's words are those of transformers' own pipeline."""

from __future__ import annotations

import numpy as np
import pytest
import tiny_language as tiny
import torch
import transformers as hf

from limbeck.lab.augmentation.candidates import Hidden, Vocabulary, best_words, scores_at, words_of

WHOLE = {"good", "bad", "film", "plot", "slow", "long", "end", "the", "a", "is", "and", "not",
         "fine", "dull", "joy", "ly", "funny"}  # fmt: skip


def test_whole_words_are_no_ends_of_words_no_signs_and_no_special_tokens():
    vocabulary = Vocabulary(tiny.tokenizer())
    assert {vocabulary.words[i] for i in np.flatnonzero(vocabulary.whole)} == WHOLE


def test_whole_words_of_a_byte_level_vocabulary_stand_behind_a_space(tmp_path):
    pieces = [
        "<s>",
        "<pad>",
        "</s>",
        "<unk>",
        "<mask>",
        "Ġ",
        *"goodfilm",
        "Ġgood",
        "ing",
        "Ġ1",
        "go",
    ]
    ids = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    ids |= {"oo": len(ids), "Ġg": len(ids) + 1, "Ġgoo": len(ids) + 2}
    core = hf.RobertaTokenizer(
        vocab=ids, merges=[("Ġ", "g"), ("o", "o"), ("Ġg", "oo"), ("Ġgoo", "d")]
    )
    vocabulary = Vocabulary(core)
    words = {vocabulary.words[i] for i in np.flatnonzero(vocabulary.whole)}
    assert words == {"g", "goo", "good"}  # "ing" and "go" stand behind a space in no text
    (encoding,) = vocabulary.encode(["good good(good"], 20)
    found = vocabulary.hidden(encoding, words_of("good good(good", "all"))
    # The first word is read like any other; the last is no word behind a space.
    assert [one is not None for one in found] == [True, True, False]


@pytest.mark.parametrize("count", [1, 4, 15])
def test_candidates_are_the_pipelines_best_words(count):
    model, tokenizer = tiny.model(), tiny.tokenizer()
    vocabulary = Vocabulary(tokenizer)
    pipeline = hf.pipeline("fill-mask", model=model, tokenizer=tokenizer, device="cpu")
    asked, texts = [], []
    for text in tiny.TEXTS:
        (encoding,) = vocabulary.encode([text], 40)
        words = words_of(text, "all")
        for word, one in zip(words, vocabulary.hidden(encoding, words), strict=True):
            if one is not None:
                asked.append(one)
                texts.append(f"{text[: word.start]}[MASK]{text[word.end :]}")
    assert len(texts) > 20
    found = best_words(model, vocabulary, asked, count, precision="fp32")
    for text, ids in zip(texts, found.tolist(), strict=True):
        best = [answer["token_str"] for answer in pipeline(text, top_k=len(tiny.PIECES))]
        assert [vocabulary.words[i] for i in ids] == [w for w in best if w in WHOLE][:count]


def test_words_of_several_pieces_and_unknown_ones_are_not_hidden():
    vocabulary = Vocabulary(tiny.tokenizer())
    text = "slowly it 1999 dullest good"
    (encoding,) = vocabulary.encode([text], 40)
    words = words_of(text, "all")
    hidden = vocabulary.hidden(encoding, words)
    found = {word.text: one for word, one in zip(words, hidden, strict=True)}
    assert {word for word, one in found.items() if one is not None} == {"good"}
    assert found["good"].ids[found["good"].place] == tiny.PIECES.index("good")


def test_words_behind_the_longest_input_are_not_hidden():
    vocabulary = Vocabulary(tiny.tokenizer())
    (encoding,) = vocabulary.encode(["good film slow plot"], 4)
    found = vocabulary.hidden(encoding, words_of("good film slow plot", "all"))
    assert [one is not None for one in found] == [True, True, False, False]


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_scores_of_one_place_are_those_of_the_whole_text(family):
    model = tiny.model(family)
    ids = torch.randint(5, len(tiny.PIECES), (3, 9), generator=torch.Generator().manual_seed(1))
    valid = torch.ones_like(ids)
    valid[1, 6:] = 0
    ids[1, 6:] = 0
    places = torch.tensor([0, 5, 8])
    with torch.no_grad():
        whole = model(input_ids=ids, attention_mask=valid).logits
    torch.testing.assert_close(
        scores_at(model, ids, valid, places), whole[torch.arange(3), places], rtol=1e-4, atol=1e-5
    )
    with torch.no_grad():  # and nothing stays behind
        assert model(input_ids=ids, attention_mask=valid).logits.shape == whole.shape


def test_batches_and_padding_change_nothing(monkeypatch):
    model, vocabulary = tiny.model(), Vocabulary(tiny.tokenizer())
    asked = [
        Hidden(np.array([2, *[5 + (row + i) % 15 for i in range(row % 7 + 1)], 3]), 1)
        for row in range(30)
    ]
    told = []
    together = best_words(model, vocabulary, asked, 5, precision="fp32", advance=told.append)
    assert sum(told) == 30
    alone = [best_words(model, vocabulary, [one], 5, precision="fp32")[0] for one in asked]
    assert np.array_equal(together, np.stack(alone))
