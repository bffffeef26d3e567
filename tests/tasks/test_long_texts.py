"""Long texts are cut before they are tokenized, and no token of what a model reads is another one."""

from __future__ import annotations

import random

import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from limbeck.tasks.modality import encode_cut
from quick_cases import quick

TEXT = "the film is good, bad or very slow; 1234567 people can't wait naïve 日本語の映画 привет 🙂"
WORDS = TEXT.split()


def corpus(seed: int, count: int) -> str:
    """Words between all kinds of spaces."""
    pick = random.Random(seed)
    spaces = [" "] * 20 + ["\n", "\t", "  ", "\n\n", "   ", "\u00a0", "\u2028", "\r\n"]
    return "".join(pick.choice(WORDS) + pick.choice(spaces) for _ in range(count))


def made(model, trainer, *, normalizer=None, pre_tokenizer=None, **more) -> PreTrainedTokenizerFast:
    backend = Tokenizer(model)
    if normalizer is not None:
        backend.normalizer = normalizer
    if pre_tokenizer is not None:
        backend.pre_tokenizer = pre_tokenizer
    backend.train_from_iterator([corpus(seed, 300) for seed in range(5)], trainer)
    ids = [("[CLS]", backend.token_to_id("[CLS]")), ("[SEP]", backend.token_to_id("[SEP]"))]
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ids
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="[UNK]", pad_token="[PAD]", **more
    )


SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
BPE = {"vocab_size": 400, "special_tokens": SPECIAL, "show_progress": False}
GPT4 = "|".join(
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
        r"[^\r\n\p{L}\p{N}]?\p{L}+",
        r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    )
)
FROM_THE_RIGHT = r"\d{1,3}(?=(?:\d{3})*\b)|\D+"
MAKERS = {
    "wordpiece": lambda: made(
        models.WordPiece(unk_token="[UNK]"), trainers.WordPieceTrainer(**BPE),
        normalizer=normalizers.BertNormalizer(), pre_tokenizer=pre_tokenizers.BertPreTokenizer(),
    ),
    "byte-level": lambda: made(
        models.BPE(), trainers.BpeTrainer(**BPE, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()),
        pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=True),
    ),
    "byte-level, another pattern": lambda: made(
        models.BPE(), trainers.BpeTrainer(**BPE, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()),
        pre_tokenizer=pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(GPT4), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]),
    ),
    "digits from the right": lambda: made(
        models.BPE(unk_token="[UNK]"), trainers.BpeTrainer(**BPE),
        pre_tokenizer=pre_tokenizers.Sequence([
            pre_tokenizers.Whitespace(),
            pre_tokenizers.Split(Regex(FROM_THE_RIGHT), "isolated"),
        ]),
    ),
    "unigram": lambda: made(
        models.Unigram(), trainers.UnigramTrainer(**BPE, unk_token="[UNK]"),
        normalizer=normalizers.Sequence([
            normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " "),
        ]),
        pre_tokenizer=pre_tokenizers.Metaspace(),
    ),
    "no words at all": lambda: made(
        models.BPE(unk_token="[UNK]"), trainers.BpeTrainer(**BPE, max_token_length=8),
        normalizer=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
    ),
    "words": lambda: made(
        models.WordLevel(unk_token="[UNK]"), trainers.WordLevelTrainer(**BPE),
        pre_tokenizer=pre_tokenizers.WhitespaceSplit(),
    ),
    "cut on the left": lambda: made(
        models.WordLevel(unk_token="[UNK]"), trainers.WordLevelTrainer(**BPE),
        pre_tokenizer=pre_tokenizers.Whitespace(), truncation_side="left",
    ),
}  # fmt: skip
LONG = {
    "words": corpus(7, 500),
    "one letter": "a " * 1500,
    "a long word first": "x" * 1500 + " " + corpus(8, 300),
    "one word": "goodbad" * 500,
    "spaces first": " " * 1500 + corpus(9, 300),
    "spaces inside": "good film" + " \n" * 900 + corpus(10, 200) + "\t" * 700,
    "digits": "1234567890" * 120 + " 12345678 " * 150,
    "no spaces": "日本語の映画、" * 400,
    "marks": "e\u0301" * 700 + " n\u0303 " * 300,
    "zero width": "\u200b\u00ad\x00" * 700 + corpus(11, 200),
    "faces": "🙂👩‍👩‍👧 " * 300,
    "punctuation": ";\n\n!? " * 400,
    "short": "good film",
    "empty": "",
}


@pytest.fixture(
    scope="module",
    params=quick("wordpiece", "byte-level", "unigram", "cut on the left", of=MAKERS),
)
def tokenizer(request):
    return MAKERS[request.param]()


def same(ours, theirs) -> None:
    assert dict(ours) == dict(theirs)
    assert [bool(one.overflowing) for one in ours.encodings] == [
        bool(one.overflowing) for one in theirs.encodings
    ]
    assert [one.word_ids for one in ours.encodings] == [one.word_ids for one in theirs.encodings]


@pytest.mark.parametrize("limit", [8, 33])
def test_texts_have_the_tokens_of_the_whole_text(tokenizer, limit):
    texts = list(LONG.values())
    how = {"return_offsets_mapping": True}
    ours = encode_cut(tokenizer, texts, max_length=limit, **how)
    same(ours, tokenizer(texts, truncation=True, max_length=limit, **how))


@pytest.mark.parametrize("limit", [65, pytest.param(66, marks=pytest.mark.slow)])
def test_pairs_share_the_room_as_whole_texts_do(tokenizer, limit):
    """Whose the odd token is hangs on which of two long texts is longer."""
    some = ["words", "digits", "no spaces", "short"]
    # The tokenizer itself joins every piece that it leaves of one with every piece of the other, in a time that grows
    # with the square of the pieces: texts are little longer than what is cut, and pieces no shorter than need be.
    pairs = [(LONG[a][:1650], LONG[b][:1600]) for a in some for b in some]
    pairs += [("good " * 400, "bad " * 401), ("good " * 401, "bad " * 400)]
    first, second = zip(*pairs, strict=True)
    ours = encode_cut(tokenizer, first, second, max_length=limit)
    same(ours, tokenizer([*first], [*second], truncation=True, max_length=limit))


def test_lists_of_words_have_the_tokens_of_the_whole_list(tokenizer):
    if not tokenizer.backend_tokenizer.pre_tokenizer:
        pytest.skip("reads no lists of words")
    rows = [text.split(" ") for text in LONG.values()]
    rows += [["good", LONG["words"], "bad"], ["x" * 9000] * 3, ["\u200b"] * 5000 + ["good"]]
    how = {"is_split_into_words": True}
    ours = encode_cut(tokenizer, rows, max_length=16, **how)
    same(ours, tokenizer(rows, truncation=True, max_length=16, **how))


def test_no_tokenizer_sees_megabytes():
    tokenizer, seen = MAKERS["wordpiece"](), []

    class Spy:
        def __getattr__(self, name):
            return getattr(tokenizer, name)

        def __call__(self, texts, **how):
            seen.append(max(map(len, texts)))
            return tokenizer(texts, **how)

    ours = encode_cut(Spy(), ["good film " * 60_000, "bad"], max_length=32)
    assert len(ours["input_ids"][0]) == 32
    assert max(seen) < 10_000
