"""A smaller vocabulary: tokens that a text does not need leave a tokenizer, and their rows a model's tables.

Part of `limbeck.students`. Tokens that spell a text stay: added (special) tokens, single characters, bytes, and tokens
with a character that has no token of its own. So a text is read in more pieces, and with no unknown token where it had
none. An exception is WordPiece with tokens of such characters: it reads a text without a removed token from the left,
and may no longer come to them. For a BPE token, its merge parts stay too. If no token of a text was removed, it is
encoded as before.
"""

import copy
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from limbeck.activations.compat import SameClass
from limbeck.static import StaticStudent, token_counts
from limbeck.students import pretrained
from limbeck.support.errors import LimbeckError

_MB = 1e6
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_TOKEN_ID = re.compile(r"_token_ids?$|suppress_tokens$")
_KINDS = ("WordPiece", "BPE", "Unigram")


class TokenizerFile:
    """The content of a `tokenizer.json`, and which of its tokens need which others.

    Raises:
        LimbeckError: it is no tokenizer of the tokenizers library, or its tokens have no pieces.
    """

    def __init__(self, tokenizer: Any) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        self._backend: Any = backend
        self.content = json.loads(backend.to_str()) if isinstance(backend, Tokenizer) else {}
        self.model = self.content.get("model", {"type": type(tokenizer).__name__})
        if self.model["type"] not in _KINDS:
            raise LimbeckError(
                f"student.vocabulary: a {self.model['type']} tokenizer has no pieces for the words that would leave",
                f"leave it out; it is for tokenizers of the tokenizers library by {', '.join(_KINDS)}",
            )
        vocab = self.model["vocab"]
        self.unigram = isinstance(vocab, list)
        self.ids: dict[str, int] = (
            {one[0]: at for at, one in enumerate(vocab)} if self.unigram else vocab
        )
        self._prefix = self.model.get("continuing_subword_prefix") or ""
        self._suffix = self.model.get("end_of_word_suffix") or ""
        merges = self.model.get("merges", ())
        self._ranks = {tuple(pair): rank for rank, pair in enumerate(merges)}

    def spelled(self, token: str) -> list[str]:
        """The single characters of a token, as tokens of this vocabulary are written."""
        prefix, suffix = self._prefix, self._suffix
        inner = bool(prefix) and token.startswith(prefix) and token != prefix
        bare = token.removeprefix(prefix) if inner else token
        ends = bool(suffix) and bare.endswith(suffix) and bare != suffix
        bare = bare.removesuffix(suffix) if ends else bare
        pieces = [prefix * (inner or at > 0) + sign for at, sign in enumerate(bare)]
        return [*pieces[:-1], pieces[-1] + suffix * ends] if pieces else [token]

    def merged_from(self, token: str) -> set[int]:
        """The tokens that BPE makes on its way to a token, itself among them; none if no merges lead there."""
        pieces, found = self.spelled(token), set()
        while len(pieces) > 1:
            known = [
                (self._ranks[pair], at)
                for at, pair in enumerate(pairwise(pieces))
                if pair in self._ranks
            ]
            if not known:
                return set()
            _, at = min(known)
            pieces[at : at + 2] = [self._joined(*pieces[at : at + 2])]
            found.add(self.ids[pieces[at]])
        return found

    def _joined(self, left: str, right: str) -> str:
        return left + right.removeprefix(self._prefix)

    def made(self, token: str) -> bool:
        """Whether some text has this token: `[unused7]` is in no text, as its brackets are tokens of their own."""
        read, splits = self._backend.normalizer, self._backend.pre_tokenizer
        text, decoder = token.removeprefix(self._prefix), self._backend.decoder
        if decoder is not None:
            decoded = decoder.decode([text])
            text = decoded.strip() or decoded
        text = text if read is None else read.normalize_str(text)
        one_word = splits is None or len(splits.pre_tokenize_str(text)) == 1
        at_once = not self._ranks or self.model.get("ignore_merges")
        return one_word and bool(at_once or self.merged_from(token))

    def always(self) -> set[int]:
        """The tokens that stay whatever a text needs."""
        stay = {one["id"] for one in self.content["added_tokens"]}
        for token, number in self.ids.items():
            pieces = self.spelled(token)
            if (
                len(pieces) == 1
                or _BYTE.fullmatch(token)
                or any(one not in self.ids for one in pieces)
            ):
                stay.add(number)
        if self.unigram:
            # An unknown character costs a little more than the least likely token.
            scores = [score for _, score in self.model["vocab"]]
            stay.add(scores.index(min(scores)))
        unknown = self.model["unk_id" if self.unigram else "unk_token"]
        unknown = unknown if self.unigram else self.ids.get(unknown)
        return stay if unknown is None else stay | {unknown}

    def with_tokens(self, place: Mapping[int, int]) -> Tokenizer:
        """The tokenizer with some of the tokens alone, by their old number under which new one."""
        model, vocab = dict(self.model), self.model["vocab"]
        if self.unigram:
            model["vocab"] = [one for at, one in enumerate(vocab) if at in place]
            model["unk_id"] = place.get(model["unk_id"])
        else:
            model["vocab"] = {token: place[at] for token, at in vocab.items() if at in place}
        if "merges" in model:
            stay = model["vocab"]
            model["merges"] = [
                pair for pair in model["merges"] if {*pair, self._joined(*pair)} <= stay.keys()
            ]
        content = self.content | {"model": model}
        content["added_tokens"] = [
            one | {"id": place[one["id"]]} for one in content["added_tokens"]
        ]
        content["post_processor"] = _renumbered(content["post_processor"], place)
        if content["padding"] is not None:
            content["padding"] = content["padding"] | {
                "pad_id": place.get(content["padding"]["pad_id"], 0)
            }
        return Tokenizer.from_str(json.dumps(content))


def _renumbered(part: Any, place: Mapping[int, int]) -> Any:
    """A post-processor with the new numbers of its tokens: `ids` of a template, `["[SEP]", 102]` of BERT's."""
    if isinstance(part, list):
        return [_renumbered(one, place) for one in part]
    if not isinstance(part, dict):
        return part
    found = {name: _renumbered(one, place) for name, one in part.items()}
    for name in found.keys() & {"sep", "cls"}:
        found[name] = [part[name][0], place[part[name][1]]]
    if isinstance(found.get("ids"), list):
        found["ids"] = [place[one] for one in part["ids"]]
    return found


def tokens_to_keep(tokenizer: Any, counts: np.ndarray, wanted: str, *, row_bytes: int) -> list[int]:
    """The tokens of a smaller vocabulary, by the number they have, in the order of their new ones.

    Args:
        tokenizer: one of transformers with a `tokenizers` backend.
        counts: how often each token occurs in the text that is to be read, (V,).
        wanted: `8000` tokens at most, `12MB` of the table of embeddings, tokens that make up `95%` of the text's, or
            all that the text uses (`corpus`). If a number or a size leaves room, unused tokens fill it, in the order
            of their numbers: most tokenizers have frequent tokens first.
        row_bytes: of one token's row in that table.

    Raises:
        LimbeckError: fewer tokens than have to stay, or as `TokenizerFile`.
    """
    file = TokenizerFile(tokenizer)
    stay, names = file.always(), {number: token for token, number in file.ids.items()}
    limit, enough = len(counts), float(counts.sum())
    if wanted.endswith("%"):
        enough *= float(wanted[:-1]) / 100
    elif wanted != "corpus":
        enough = math.inf
        limit = int(float(wanted[:-2]) * _MB / row_bytes) if wanted.endswith("MB") else int(wanted)
    if limit < len(stay):
        raise LimbeckError(
            f"student.vocabulary: {wanted} is {limit:,} tokens, and {len(stay):,} of the tokenizer have to stay "
            "(special tokens, single characters)",
            f"set it to {len(stay)} or more ({math.ceil(10 * len(stay) * row_bytes / _MB) / 10}MB)",
        )
    covered = counts[list(stay)].sum()
    for token in np.argsort(-counts, kind="stable").tolist():
        if covered >= enough or len(stay) == limit:
            break
        if not counts[token] and (token not in names or not file.made(names[token])):
            continue
        new = ({token} | file.merged_from(names[token]) if token in names else {token}) - stay
        if len(stay) + len(new) <= limit:
            stay |= new
            covered += counts[list(new)].sum()
    return sorted(stay, key=lambda number: (number not in names, number))


def trimmed(tokenizer: Any, kept: Sequence[int]) -> Any:
    """A copy of a tokenizer with the tokens of `tokens_to_keep` alone: token j is `kept[j]` of before.

    Raises:
        LimbeckError: the tokenizers library numbers its tokens in another way.
    """
    place = {old: new for new, old in enumerate(kept)}
    made = copy.deepcopy(tokenizer)
    made._tokenizer = TokenizerFile(tokenizer).with_tokens(place)
    expected = {token: place[old] for token, old in tokenizer.get_vocab().items() if old in place}
    if made.get_vocab() != expected:
        raise LimbeckError(
            f"student.vocabulary: the added tokens of this {type(tokenizer).__name__} cannot be renumbered",
            "leave it out",
        )
    return made


def with_rows(model: PreTrainedModel, kept: Sequence[int]) -> PreTrainedModel:
    """The same model with some tokens alone: row j of each table over the vocabulary is row `kept[j]` of before.

    Embeddings, a head over the vocabulary and its bias, and the numbers of special tokens in both configurations.

    Raises:
        LimbeckError: a model whose positions or word pairs depend on the tokens' numbers, or that has no plain table.
    """
    size, place = _table(model).shape[0], {old: new for new, old in enumerate(kept)}
    if isinstance(model, StaticStudent) and model.pairs is not None and model.pairs.weight.any():
        raise LimbeckError(
            "student.vocabulary: the word pairs of a trained static student belong to its tokens' numbers",
            "train a new one: student.static=true with student.vocabulary, from its teacher",
        )
    data = _moved(model.config.to_dict(), place)
    data[model.config.attribute_map.get("vocab_size", "vocab_size")] = len(kept)
    config: PretrainedConfig = type(model.config).from_dict(data)
    target = pretrained.fresh_model(config, seed=0, auto=SameClass(model))
    nn.Module.to(target, dtype=_table(model).dtype)
    if len(_table(target)) != len(kept):
        raise _without_table(model)
    if getattr(model, "generation_config", None) is not None:
        own = model.generation_config
        target.generation_config = type(own).from_dict(_moved(own.to_dict(), place))
    padded = [
        name
        for name, part in model.named_modules()
        if isinstance(part, nn.Embedding)
        and part.padding_idx is not None
        and len(part.weight) != size
    ]
    if padded and config.pad_token_id != model.config.pad_token_id:
        raise LimbeckError(
            f"student.vocabulary: {padded[0]} counts positions from the padding token's number, which would change",
            "leave it out",
        )
    rows, theirs = torch.tensor(kept), model.state_dict()
    taken = {
        key: _rows_of(theirs[key], own.shape, size, rows)
        for key, own in target.state_dict().items()
    }
    target.load_state_dict(taken)
    target.train(model.training)
    return target


def _table(model: PreTrainedModel) -> Tensor:
    found = getattr(model.get_input_embeddings(), "weight", None)
    if not isinstance(found, Tensor):
        raise _without_table(model)
    return found


def _without_table(model: PreTrainedModel) -> LimbeckError:
    return LimbeckError(
        f"student.vocabulary: a {type(model).__name__} has no plain table of word embeddings",
        "leave it out",
    )


def _rows_of(weight: Tensor, shape: Sequence[int], size: int, rows: Tensor) -> Tensor:
    """A weight in a smaller shape: along the axis over the vocabulary the rows that stay."""
    for axis, (own, other) in enumerate(zip(shape, weight.shape, strict=True)):
        if own != other and (own, other) == (len(rows), size):
            weight = weight.index_select(axis, rows)
    return weight


def _moved(config: dict[str, Any], place: Mapping[int, int]) -> dict[str, Any]:
    """A configuration with the new numbers of special tokens; removed tokens become None."""
    moved = dict(config)
    for name, ids in config.items():
        if _TOKEN_ID.search(name) and isinstance(ids, list):
            moved[name] = [place[one] for one in ids if one in place] or None
        elif _TOKEN_ID.search(name) and isinstance(ids, int):
            moved[name] = place.get(ids)
    return moved


@dataclass(frozen=True)
class TextReport:
    """How some text is read with the smaller vocabulary.

    Attributes:
        coverage: share of its tokens that stay complete, 0 to 1.
        before, after: mean length of a text in tokens, special ones left out.
        unknown_before, unknown_after: unknown tokens in it.
    """

    coverage: float
    before: float
    after: float
    unknown_before: int = 0
    unknown_after: int = 0


@dataclass(frozen=True)
class Shrunk:
    """A model and its tokenizer with a smaller vocabulary.

    Attributes:
        kept: the former number of each token.
        before: tokens of the former table.
        megabytes: of the former and the new table, in the model's precision.
    """

    model: PreTrainedModel
    tokenizer: Any
    former: Any
    kept: tuple[int, ...]
    before: int
    megabytes: tuple[float, float]

    def report(self, texts: Iterable[Sequence[str]]) -> TextReport:
        """How some text, given in batches, is read before and after."""
        old, new = np.zeros(self.before), np.zeros(len(self.kept))
        rows = 0
        for batch in texts:
            rows += len(batch)
            old += token_counts(self.former, batch, len(old))
            new += token_counts(self.tokenizer, batch, len(new))
        unknown = [
            0 if one.unk_token_id is None else int(counts[one.unk_token_id])
            for one, counts in ((self.former, old), (self.tokenizer, new))
        ]
        share = old[list(self.kept)].sum() / max(1.0, old.sum())
        return TextReport(
            float(share), old.sum() / max(1, rows), new.sum() / max(1, rows), *unknown
        )


def shrink_vocabulary(
    model: PreTrainedModel, tokenizer: Any, texts: Iterable[Sequence[str]], wanted: str
) -> Shrunk:
    """Leave a model and its tokenizer the tokens that texts (given in batches) need, as `wanted` specifies.

    Raises:
        LimbeckError: as `tokens_to_keep`, `trimmed` and `with_rows`.
    """
    TokenizerFile(tokenizer)  # others raise an error before any text is read
    table = _table(model)
    size, row_bytes = len(table), table.shape[1] * table.element_size()
    counts = np.zeros(size)
    for batch in texts:
        counts += token_counts(tokenizer, batch, size)
    kept = tokens_to_keep(tokenizer, counts, wanted, row_bytes=row_bytes)
    megabytes = (size * row_bytes / _MB, len(kept) * row_bytes / _MB)
    smaller = trimmed(tokenizer, kept)
    return Shrunk(with_rows(model, kept), smaller, tokenizer, tuple(kept), size, megabytes)
