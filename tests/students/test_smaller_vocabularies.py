"""A smaller vocabulary reads what it kept as before, and all else in pieces."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders
from tokenizers.models import BPE, WordPiece
from tokenizers.pre_tokenizers import ByteLevel
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForSequenceClassification,
    T5Config,
    T5ForConditionalGeneration,
)

import tiny_runs as tiny
from limbeck.embedding import SENTENCE_EMBEDDERS
from limbeck.static import static_student, token_counts
from limbeck.students.vocabulary import (
    shrink_vocabulary,
    tokens_to_keep,
    trimmed,
    with_rows,
)
from limbeck.support.errors import LimbeckError
from tokenizer_families import FAMILIES, corpus, family, texts

UNSEEN = [
    *texts(80, seed=1),
    "never before: zebra Zürich кот 北海道 ☃ \U00010348 \x07 <s> [SEP] <0x41> Å ﬁ  two  spaces",
    "",
    "x" * 150,
]


def counted(name: str, share: int = 2) -> np.ndarray:
    """How often each token occurs in a part of the corpus."""
    tokenizer = family(name)
    size = max(tokenizer.get_vocab().values()) + 1
    return token_counts(tokenizer, corpus()[::share], size)


def smaller(name: str, wanted: str):
    kept = tokens_to_keep(family(name), counted(name), wanted, row_bytes=400)
    return kept, trimmed(family(name), kept)


@pytest.mark.parametrize("wanted", ["90%", "corpus"])
@pytest.mark.parametrize("name", FAMILIES)
def test_what_was_kept_is_encoded_as_before_and_all_else_in_pieces(name, wanted, tmp_path):
    before = family(name)
    kept, after = smaller(name, wanted)
    after.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert len(after) == len(kept) < len(before)
    same = 0
    for text in [*corpus()[:200], *UNSEEN]:
        old, new = before(text)["input_ids"], after(text)["input_ids"]
        assert loaded(text)["input_ids"] == new
        if set(old) <= set(kept):
            same += 1
            assert [kept[one] for one in new] == old
        unknown = before.unk_token_id
        if unknown is not None:
            assert new.count(after.unk_token_id) == old.count(unknown)
        assert after.decode(new) == before.decode(old)
    assert same > 20
    pair = corpus()[3], corpus()[5]
    old, new = before(*pair), after(*pair)
    if set(old["input_ids"]) <= set(kept):
        assert [kept[one] for one in new["input_ids"]] == old["input_ids"]
    for one in ("pad", "cls", "sep", "mask", "bos", "eos", "unk"):
        assert getattr(after, f"{one}_token") == getattr(before, f"{one}_token")
        number = getattr(before, f"{one}_token_id")
        if number is not None:
            assert kept[getattr(after, f"{one}_token_id")] == number


def segmentations(word: str):
    """All ways to cut a word."""
    for cuts in itertools.product([False, True], repeat=len(word) - 1):
        places = [0, *(at + 1 for at, cut in enumerate(cuts) if cut), len(word)]
        yield [word[one:other] for one, other in itertools.pairwise(places)]


def test_unigram_takes_the_likeliest_of_the_pieces_that_stay_by_their_former_scores():
    kept, after = smaller("xlm-roberta", "85%")
    model = json.loads(family("xlm-roberta").backend_tokenizer.to_str())["model"]
    scores = {model["vocab"][number][0]: model["vocab"][number][1] for number in kept}
    words = {word for text in corpus()[:60] for word in text.split() if 1 < len(word) < 9}
    changed = 0
    for word in sorted(words):
        spelled = "▁" + word
        ways = [way for way in segmentations(spelled) if all(one in scores for one in way)]
        if not ways:
            continue
        found = after.tokenize(word)
        best = max(sum(scores[one] for one in way) for way in ways)
        assert sum(scores[one] for one in found) == pytest.approx(best, abs=1e-6)
        changed += found != family("xlm-roberta").tokenize(word)
    assert changed > 5


def test_bpe_merges_the_pairs_that_stay_in_their_former_order():
    kept, after = smaller("gpt2", "85%")
    names = {number: token for token, number in family("gpt2").get_vocab().items()}
    stay = {names[number] for number in kept}
    merges = json.loads(family("gpt2").backend_tokenizer.to_str())["model"]["merges"]
    words = {word for text in corpus()[:60] for word in family("gpt2").tokenize(text)}
    changed = 0
    for word in sorted(words):
        pieces = list(word)
        for left, right in merges:  # in the order in which they were learned
            if not {left, right, left + right} <= stay:
                continue
            at = 0
            while at < len(pieces) - 1:
                if (pieces[at], pieces[at + 1]) == (left, right):
                    pieces[at : at + 2] = [left + right]
                at += 1
        encoded = after.backend_tokenizer.model.tokenize(word)
        assert [one.value for one in encoded] == pieces
        changed += pieces != [word]
    assert changed > 5


def test_sizes_are_at_most_what_was_asked_for_and_the_most_frequent_tokens_stay():
    counts = counted("bert-uncased")
    by_number = tokens_to_keep(family("bert-uncased"), counts, "300", row_bytes=400)
    by_bytes = tokens_to_keep(family("bert-uncased"), counts, "0.1204MB", row_bytes=400)
    assert len(by_number) == 300
    assert len(by_bytes) == 301
    gone = set(range(len(counts))) - set(by_number)
    whole = [number for number in by_number if len(family("bert-uncased").decode([number])) > 3]
    assert max(counts[sorted(gone)]) <= max(counts[whole])
    for share in ("80%", "95%"):
        kept = tokens_to_keep(family("bert-uncased"), counts, share, row_bytes=400)
        assert counts[kept].sum() / counts.sum() >= float(share[:-1]) / 100
    with pytest.raises(LimbeckError, match="have to stay"):
        tokens_to_keep(family("bert-uncased"), counts, "20", row_bytes=400)


def test_a_tokenizer_of_whole_words_is_refused():
    with pytest.raises(LimbeckError, match="WordLevel tokenizer has no pieces"):
        tokens_to_keep(tiny.tokenizer(), np.ones(14), "corpus", row_bytes=4)


SHAPE = {
    "hidden_size": 16,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "intermediate_size": 24,
}


def test_a_token_with_a_sign_that_has_no_token_stays():
    listed = ["[UNK]", "a", "b", "##a", "##b", "ab", "##ab", "ad", "dab", "##da"]
    backend = Tokenizer(WordPiece({one: at for at, one in enumerate(listed)}, unk_token="[UNK]"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]")
    kept = tokens_to_keep(tokenizer, np.zeros(len(listed)), "corpus", row_bytes=4)
    assert [listed[one] for one in kept] == ["[UNK]", "a", "b", "##a", "##b", "ad", "dab", "##da"]
    assert trimmed(tokenizer, kept).tokenize("abab") == ["a", "##b", "##a", "##b"]


def test_an_embedding_model_gives_the_same_embeddings(tmp_path):
    before = family("bert-uncased")
    config = BertConfig(vocab_size=len(before), pad_token_id=before.pad_token_id, **SHAPE)
    model = SENTENCE_EMBEDDERS.from_config(config).eval()
    found = shrink_vocabulary(model, before, [corpus()[:20]], "corpus")
    found.model.save_pretrained(tmp_path)
    loaded = SENTENCE_EMBEDDERS.from_pretrained(str(tmp_path)).eval()
    old, new = (
        one(corpus()[:20], padding=True, return_tensors="pt") for one in (before, found.tokenizer)
    )
    assert len(found.kept) < len(before)
    assert torch.allclose(model(**old).logits, loaded(**new).logits, atol=1e-6)


def ids_of(name: str) -> dict[str, int]:
    tokenizer = family(name)
    named = ("pad", "bos", "eos")
    return {f"{one}_token_id": getattr(tokenizer, f"{one}_token_id") for one in named}


def model_for(name: str):
    torch.manual_seed(0)
    size = len(family(name)) + 3  # some checkpoints have rows that no token uses
    if name == "roberta":
        return RobertaForSequenceClassification(
            RobertaConfig(vocab_size=size, **SHAPE, **ids_of(name))
        )
    if name == "bert-cased":
        return BertForMaskedLM(BertConfig(vocab_size=size, **SHAPE, pad_token_id=1))
    if name == "t5":
        numbers = ids_of(name) | {"decoder_start_token_id": 0}
        return T5ForConditionalGeneration(
            T5Config(
                vocab_size=size, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2, **numbers
            )
        )
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=size, n_embd=16, n_head=2, n_layer=2, tie_word_embeddings=False, **ids_of(name))
    )  # fmt: skip


@pytest.mark.parametrize("name", ["roberta", "bert-cased", "t5", "llama-3"])
def test_a_model_gives_the_same_outputs_of_texts_whose_tokens_all_stay(name, tmp_path):
    model, before = model_for(name).eval(), family(name)
    suppressed = before(corpus()[0], add_special_tokens=False)["input_ids"][0]
    if model.can_generate():
        model.generation_config.suppress_tokens = [suppressed]
    found = shrink_vocabulary(model, before, [corpus()[::2]], "95%")
    found.model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path).eval()
    compared = 0
    for text in corpus()[:60]:
        old = before(text, return_tensors="pt")["input_ids"]
        if not set(old[0].tolist()) <= set(found.kept):
            continue
        new = found.tokenizer(text, return_tensors="pt")["input_ids"]
        extra = [{}, {}]
        if name == "t5":
            extra = [{"decoder_input_ids": one[:, :3]} for one in (old, new)]
        wanted = model(input_ids=old, **extra[0]).logits
        given = loaded(input_ids=new, **extra[1]).logits
        if wanted.shape[-1] == model.config.vocab_size:
            wanted = wanted[..., list(found.kept)]
        assert torch.allclose(given, wanted, atol=1e-6)
        compared += 1
    assert compared > 5
    assert loaded.config.vocab_size == len(found.kept) == found.model.config.vocab_size
    for one in ("pad", "bos", "eos"):
        number = getattr(model.config, f"{one}_token_id")
        if number is not None:
            assert found.kept[getattr(loaded.config, f"{one}_token_id")] == number
    if loaded.can_generate():
        assert loaded.generation_config.eos_token_id == loaded.config.eos_token_id
        (number,) = loaded.generation_config.suppress_tokens
        assert found.kept[number] == suppressed


def test_what_a_text_comes_to_is_counted():
    model, before = model_for("bert-cased"), family("bert-cased")
    found = shrink_vocabulary(model, before, [corpus()[:50], corpus()[50:100]], "90%")
    report = found.report([corpus()[:30], corpus()[30:100]])
    old = [before(one, add_special_tokens=False)["input_ids"] for one in corpus()[:100]]
    new = [found.tokenizer(one, add_special_tokens=False)["input_ids"] for one in corpus()[:100]]
    flat = [one for row in old for one in row]
    assert report.coverage == pytest.approx(np.mean([one in found.kept for one in flat]))
    assert report.before == pytest.approx(np.mean([len(row) for row in old]))
    assert report.after == pytest.approx(np.mean([len(row) for row in new]))
    assert report.after > report.before
    assert found.megabytes[1] == pytest.approx(len(found.kept) * 16 * 4 / 1e6)


def test_a_trained_static_student_with_word_pairs_is_refused_and_a_fresh_one_keeps_its_vectors():
    tokenizer = family("bert-cased")
    kept = tokens_to_keep(tokenizer, counted("bert-cased"), "90%", row_bytes=4)
    student = static_student(tokenizer, 8, num_labels=2, pairs=50)
    found = with_rows(student, kept)
    assert torch.equal(found.vectors.weight, student.vectors.weight[kept])
    assert torch.equal(found.counted, student.counted[kept])
    with torch.no_grad():
        student.pairs.weight.add_(1.0)
    with pytest.raises(LimbeckError, match="word pairs of a trained static student"):
        with_rows(student, kept)


def test_a_padding_token_from_which_positions_are_counted_keeps_its_number():
    model = model_for("roberta")
    with pytest.raises(LimbeckError, match="counts positions from the padding token"):
        with_rows(model, [1, 2, 3, 0, *range(4, 300)])


@pytest.mark.parametrize("name", FAMILIES)
def test_what_a_text_leaves_free_goes_to_the_first_tokens_that_texts_can_have(name):
    tokenizer, counts = family(name), counted(name)
    used = tokens_to_keep(tokenizer, counts, "corpus", row_bytes=400)
    kept = tokens_to_keep(tokenizer, counts, str(len(used) + 40), row_bytes=400)
    more = sorted({*kept} - {*used})
    assert {*used} < {*kept} and len(more) <= 40
    last = more[-1] if len(more) == 40 else len(counts)
    for number in sorted({*range(last)} - {*kept}):
        text = tokenizer.decode([number])
        assert tokenizer(text, add_special_tokens=False)["input_ids"] != [number]


def test_white_space_of_byte_level_tokenizers_is_text():
    """Indentation and blank lines, which byte-level BPE has tokens for."""
    numbers = {one: at for at, one in enumerate(["a", "Ġ", "Ċ", "ĠĠ", "ĊĊ", "ĠĠĠĠ", "Ġa"])}
    merges = [("Ġ", "Ġ"), ("Ċ", "Ċ"), ("ĠĠ", "ĠĠ"), ("Ġ", "a")]
    backend = Tokenizer(BPE(numbers, merges))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    assert tokenizer("a    ")["input_ids"] == [0, 5]
    assert tokens_to_keep(tokenizer, np.zeros(7), "100", row_bytes=4) == [*range(7)]


def test_a_tokenizer_without_parts_beside_its_model_is_filled_too():
    numbers = {"[UNK]": 0, "a": 1, "b": 2, "ab": 3, "##b": 4, "ba": 5, "##a": 6}
    backend = Tokenizer(WordPiece(numbers, unk_token="[UNK]"))
    bare = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]")
    assert tokens_to_keep(bare, np.zeros(7), "6", row_bytes=4) == [0, 1, 2, 3, 4, 6]
    assert tokens_to_keep(bare, np.zeros(7), "corpus", row_bytes=4) == [0, 1, 2, 4, 6]
