"""Where a static student starts: from random numbers, or from one pass of its teacher over the vocabulary.

Part of `limbeck.static`. The teacher reads each token as a text of its own. The vectors are rotated and cut to the
student's width. In students that embed, each is weighted by how rare its token is in the training texts: without any
training this keeps most of an embedding teacher's similarities. At the teacher's width nothing is rotated, since losses
compare such embeddings with the teacher's number by number.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from limbeck.embedding import EmbeddingModules, SentenceEmbedder
from limbeck.embedding.folder import set_modules
from limbeck.functional.hidden import pool
from limbeck.static.model import StaticConfig, StaticStudent
from limbeck.support.errors import LimbeckError, unknown
from limbeck.support.machine import device_of, evaluating

RARITY = 1e-3
"""a of the weights a / (a + p), where p is a token's share of the texts' tokens."""
CLASSIFIER = {"pairs": 200_000, "pair_power": 1.0, "head_width": 64, "token_dropout": 0.5}
"""Default settings of a student with labels."""
FEW_SHORT = {**CLASSIFIER, "pair_power": 0.5, "token_dropout": 0.3}
"""Default settings for at most `FEW` texts with at most `SHORT` tokens in the mean.

They were better on 5,000 questions, over five seeds. They were worse on 67,000 short sentences of SST-2, in each of
two seeds, and on newsgroups' long posts, in one.
"""
FEW, SHORT = 20_000, 32
_BATCH = 512
_TEXTS = 10_000
_SAMPLE = 1000


def static_student(
    tokenizer: Any, width: int = 256, texts: Sequence[str] = (), **settings: Any
) -> StaticStudent:
    """Make a student of random token vectors that counts every token but the special ones.

    Args:
        tokenizer: a tokenizer of transformers with a `tokenizers` backend.
        width: numbers of a token vector.
        texts: training texts; their number and length decide settings that are left out (`CLASSIFIER`, `FEW_SHORT`).
        settings: of its `StaticConfig`, such as `num_labels=3`, `problem_type`, `embeds=True`, `pairs=0`.

    Raises:
        LimbeckError: the tokenizer has no `tokenizers` backend.
    """
    if not isinstance(getattr(tokenizer, "backend_tokenizer", None), Tokenizer):
        raise LimbeckError(
            f"student.static: {type(tokenizer).__name__} is not a tokenizer of the tokenizers library",
            "use a teacher with a tokenizer.json, or train one with train_tokenizer",
        )
    if not settings.get("embeds"):
        settings = {**_usual(tokenizer, texts), **settings}
    size = max(tokenizer.get_vocab().values()) + 1
    pad = tokenizer.pad_token_id
    config = StaticConfig(vocab_size=size, hidden_size=width, pad_token_id=pad, **settings)
    if settings.get("embeds"):
        set_modules(config, EmbeddingModules("mean", config.normalize))
    student = StaticStudent(config)
    student.counted[tokenizer.all_special_ids] = False
    return student


def from_teacher(
    teacher: PreTrainedModel,
    tokenizer: Any,
    texts: Sequence[str],
    width: int = 256,
    *,
    teacher_tokenizer: Any = None,
    pooling: str | None = None,
    read: Callable[..., np.ndarray] | None = None,
    **settings: Any,
) -> StaticStudent:
    """Make a student whose token vectors and weights are the teacher's (see the module).

    Args:
        teacher: an encoder with any head.
        tokenizer: the student's.
        texts: training texts, for the frequency of each token; otherwise as in `static_student`.
        width: numbers of a token vector, at most the teacher's.
        teacher_tokenizer: the teacher's, where the student has another one.
        pooling: `mean`, `cls` or `last`: how the teacher's token states become one vector. If left out, `cls` where
            the tokenizer begins texts with such a token; otherwise an embedding model's own, and `mean` for others.
        read: replaces `token_vectors`, for callers that keep its results.
        settings: as in `static_student`; labels and normalization are the teacher's unless given.

    Raises:
        LimbeckError: the student is wider than the teacher.
    """
    most = token_vectors(teacher, tokenizer, teacher_tokenizer, pooling, size=1).shape[1]
    if width > most:
        raise LimbeckError(
            f"student.width {width}: the teacher's vectors have {most} numbers",
            f"set width to at most {most}",
        )
    student = static_student(tokenizer, width, texts, **_as_taught(teacher, settings))
    found = (read or token_vectors)(teacher, tokenizer, teacher_tokenizer, pooling)
    counts = token_counts(tokenizer, texts, len(found))
    shares = counts / max(1.0, counts.sum())
    with torch.no_grad():
        counted = student.counted.numpy()
        used = counted & (shares > 0)
        fitted = found[used if used.sum() > width else counted]
        turned = found - fitted.mean(0)
        if width < found.shape[1]:
            turned = turned @ principal_axes(fitted, width)
        student.vectors.weight.copy_(torch.from_numpy(turned))
        if student.embedding_width:  # a class may depend on frequent words: what, who, not
            student.weights.weight[:, 0] = torch.from_numpy(RARITY / (RARITY + shares))
    return student


def _as_taught(teacher: PreTrainedModel, settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of a student that answers what its teacher answers."""
    if isinstance(teacher, SentenceEmbedder):
        return {"embeds": True, "normalize": teacher.behind.normalize, **settings}
    if {"embeds", "num_labels", "id2label"} & set(settings):
        return settings
    names = ("id2label", "label2id", "problem_type")
    return {**{name: getattr(teacher.config, name) for name in names}, **settings}


def principal_axes(vectors: np.ndarray, width: int) -> np.ndarray:
    """The axes (D, width) along which vectors (n, D) differ most; also of fewer vectors than axes.

    The largest number of each is positive, so that machines agree on the signs.
    """
    _, axes = np.linalg.eigh(np.cov(vectors, rowvar=False))
    axes = axes[:, ::-1][:, :width].astype(np.float32)
    largest = np.abs(axes).argmax(0)
    found: np.ndarray = axes * np.sign(axes[largest, np.arange(width)])
    return found


def _usual(tokenizer: Any, texts: Sequence[str]) -> dict[str, Any]:
    """A classifier's settings by the number and the length of its texts."""
    some = texts[:: 1 + len(texts) // _SAMPLE]
    size = max(tokenizer.get_vocab().values()) + 1
    tokens = token_counts(tokenizer, some, size).sum() / max(1, len(some))
    return FEW_SHORT if len(texts) <= FEW and tokens <= SHORT else CLASSIFIER


def token_counts(tokenizer: Any, texts: Sequence[str], size: int) -> np.ndarray:
    """How often each of `size` tokens occurs in texts."""
    counts = np.zeros(size)
    for start in range(0, len(texts), _TEXTS):
        some = list(texts[start : start + _TEXTS])
        coded = tokenizer(some, add_special_tokens=False, verbose=False)
        ids = np.concatenate([np.asarray(row, np.int64) for row in coded["input_ids"]])
        counts += np.bincount(ids, minlength=size)
    return counts


def token_vectors(
    teacher: PreTrainedModel,
    tokenizer: Any,
    teacher_tokenizer: Any = None,
    pooling: str | None = None,
    *,
    size: int | None = None,
) -> np.ndarray:
    """The teacher's vectors (V, D) of a tokenizer's tokens, each read as a text of its own.

    A token that the teacher's own tokenizer does not know is read as its text. `size` takes the first tokens.
    """
    reading = tokenizer if teacher_tokenizer is None else teacher_tokenizer
    if pooling is None and reading.cls_token_id in _marks(reading)[0]:
        pooling = "cls"
    found = []
    with evaluating(teacher):
        for batch in _token_batches(tokenizer, teacher_tokenizer, size):
            batch = {name: value.to(device_of(teacher)) for name, value in batch.items()}
            found.append(_pooled(teacher, batch, pooling).float().cpu().numpy())
    return np.concatenate(found)


def _pooled(teacher: Any, batch: dict[str, Tensor], pooling: str | None) -> Tensor:
    if pooling is None and isinstance(teacher, SentenceEmbedder):
        found: Tensor = teacher(**batch).logits
        return found
    encoder = teacher.get_encoder() if teacher.config.is_encoder_decoder else teacher.base_model
    return pool(encoder(**batch).last_hidden_state, batch["attention_mask"], pooling or "mean")


def _token_batches(
    tokenizer: Any, teacher_tokenizer: Any, size: int | None
) -> Iterator[dict[str, Tensor]]:
    """Inputs of the teacher, in the order of the tokens' numbers."""
    size = size or max(tokenizer.get_vocab().values()) + 1
    before, after = _marks(tokenizer)
    for start in range(0, size, _BATCH):
        tokens = range(start, min(start + _BATCH, size))
        if teacher_tokenizer is None:
            ids = torch.tensor([[*before, token, *after] for token in tokens])
            yield {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        else:
            texts = [tokenizer.decode([token]).removeprefix("##").strip() for token in tokens]
            coded = teacher_tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
            yield {name: coded[name] for name in ("input_ids", "attention_mask")}


def _marks(tokenizer: Any) -> tuple[list[int], list[int]]:
    """The special tokens that a tokenizer puts before and behind a text."""
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    whole = tokenizer("a")["input_ids"]
    added = len(whole) - len(bare)
    before = next(place for place in range(added + 1) if whole[place : place + len(bare)] == bare)
    return whole[:before], whole[before + len(bare) :]


def train_tokenizer(
    texts: Iterable[str], size: int, kind: str = "wordpiece", *, lower_case: bool = True
) -> PreTrainedTokenizerFast:
    """Train a tokenizer on texts, for a language that the teacher's does not know.

    Args:
        texts: in any language.
        size: tokens, at most.
        kind: `wordpiece`, which begins words at spaces and punctuation, or `unigram`, for text without spaces too.
        lower_case: read text in lower case.
    """
    special = ["[PAD]", "[UNK]"]
    if kind == "wordpiece":
        core = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        core.normalizer = normalizers.BertNormalizer(lowercase=lower_case, strip_accents=False)
        core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        core.decoder = decoders.WordPiece()
        trainer: Any = trainers.WordPieceTrainer(
            vocab_size=size, special_tokens=special, show_progress=False
        )
    elif kind == "unigram":
        core = Tokenizer(models.Unigram())
        steps = [normalizers.NFKC(), *([normalizers.Lowercase()] if lower_case else [])]
        core.normalizer = normalizers.Sequence(steps)
        core.pre_tokenizer = pre_tokenizers.Metaspace()
        core.decoder = decoders.Metaspace()
        trainer = trainers.UnigramTrainer(
            vocab_size=size, special_tokens=special, unk_token="[UNK]", show_progress=False
        )
    else:
        raise LimbeckError([unknown("tokenizer kind", kind, ("wordpiece", "unigram"))])
    core.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="[PAD]", unk_token="[UNK]")
