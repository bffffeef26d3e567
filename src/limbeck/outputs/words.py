"""What may be asked of a model to be stored, in the words of `limbeck label --outputs`. Part of `limbeck.outputs`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from transformers import PreTrainedModel

from limbeck.activations import ActivationKey, Request, number_of_layers
from limbeck.activations.request import Pool, What
from limbeck.outputs.columns import LOGITS
from limbeck.outputs.stored_teacher import FLOAT32
from limbeck.outputs.writer import PROBABILITIES
from limbeck.support.errors import LimbeckError, Problem

_POOLS = "|".join(get_args(Pool))
_HIDDEN = "hidden"
_WHATS: dict[str, What] = {
    _HIDDEN: "hidden",
    "attention": "probabilities",
    "scores": "scores",
    "query": "query",
    "key": "key",
    "value": "value",
}
_LAYERED = re.compile(rf"({'|'.join(_WHATS)}):(-?\d+)(?::({_POOLS}))?(:{FLOAT32})?")
CHOICES = (
    "logits, probabilities, hidden:LAYER[:cls|mean|last], and attention, scores, query, key, value:LAYER; "
    f"layers in float16, or in float32 with :{FLOAT32} behind them; of a text-to-text model logits:topK, logits:sampleN"
)
"""What may be asked of a model, as messages list it."""


@dataclass(frozen=True)
class ModelOutputs:
    """What is asked of a model.

    Attributes:
        request: what its passes record.
        logits: whether the logits themselves are kept.
        probabilities: whether the classes' are.
        exact: layers that are kept in float32; others are in float16.
    """

    request: Request
    logits: bool
    probabilities: bool
    exact: frozenset[ActivationKey] = frozenset()

    @classmethod
    def parse(cls, words: Sequence[str], model: PreTrainedModel) -> ModelOutputs:
        """From `--outputs`; layers count from 1, −1 is the last, 0 the embeddings.

        Raises:
            LimbeckError: an output nobody knows, or a layer the model has not.
        """
        request, exact, problems = Request(), Request(), list[Problem]()
        for word in words:
            if word in (LOGITS, PROBABILITIES):
                request |= Request.of_logits()
                continue
            found = _LAYERED.fullmatch(word)
            if found is None or (found[1] != _HIDDEN and found[3]):
                problems.append(Problem(f"outputs: unknown {word!r}", f"choices: {CHOICES}"))
                continue
            layer, depth = int(found[2]), number_of_layers(model)
            layer += (depth + 1) * (layer < 0)
            if not (found[1] != _HIDDEN) <= layer <= depth:
                problems.append(_no_such_layer(word, depth, embeddings=found[1] == _HIDDEN))
                continue
            key = ActivationKey(_WHATS[found[1]], layer, found[3])  # type: ignore[arg-type]  # the words are those of the type
            one = Request(frozenset([key]))
            request |= one
            exact |= one if found[4] else Request()
        if problems:
            raise LimbeckError(problems)
        return cls(request, LOGITS in words, PROBABILITIES in words, exact.items)


def _no_such_layer(word: str, depth: int, *, embeddings: bool) -> Problem:
    return Problem(
        f"outputs: {word}: the model has layers 1 to {depth}",
        f"choices: 1 to {depth}, counted from the end -{depth} to -1"
        + (", and 0, the embeddings" if embeddings else ""),
    )


def word_of(seen: ActivationKey, *, exact: bool = False) -> str | None:
    """The word that asks for it; None for what `limbeck label` does not store."""
    if seen.stack != "main":
        return None
    words = {what: word for word, what in _WHATS.items()}
    parts = [words[seen.what], str(seen.layer), *([seen.pool] if seen.pool else [])]
    return ":".join(parts + [FLOAT32] * exact)
