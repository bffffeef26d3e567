"""Models by their shape: `bert-8-128-2` is a BERT of 8 layers, width 128 and 2 heads.

The names are SKD's names of its teachers (SKDBERT, Table 12);
any other layers, width and heads make a name too. `bert-8-128-2` alone means the weights that the
Hub has for that shape, `bert-8-128-2:random` random ones; `pocket-4-32-2` is the pocket model in
that shape, whose weights are always random.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from transformers import BertConfig, PretrainedConfig, PreTrainedTokenizerBase

from limbeck.support.errors import LimbeckError
from limbeck.support.registry import Registry
from limbeck.tasks import Task

RANDOM = ":random"
BERT_VOCABULARY = "google-bert/bert-base-uncased"
"""The tokenizer of all BERTs that have a name here."""

# Turc et al. 2019 trained these with 64 numbers a head, and the last as BERT had it already.
_MINIATURE_LAYERS, _MINIATURE_WIDTHS = (2, 4, 6, 8, 10, 12), (128, 256, 512, 768)
_RELEASED = {
    "bert-12-768-12": "google-bert/bert-base-uncased",
    "bert-24-1024-16": "google-bert/bert-large-uncased",
    "bert-24-1024-16-wwm": "google-bert/bert-large-uncased-whole-word-masking",
}

_NAME = re.compile(r"(bert|pocket)-(\d+)-(\d+)-(\d+)(?:(-wwm)?(:random)?)")
# More take minutes to list, and no model has them.
_MOST_LAYERS = 1000
_ALMOST = re.compile(r"(bert|pocket)-\d+(-\d+.*)?")


@dataclass(frozen=True)
class NamedCnn:
    """A CNN that is known by its name alone, as `resnet-20`.

    Attributes:
        config: from `image_size`, a side in pixels, to its configuration.
    """

    config: Callable[..., PretrainedConfig]


@dataclass(frozen=True)
class ToyModels:
    """Models from random weights that learn generated tasks in minutes.

    Attributes:
        config_of: from a task, and perhaps `layers`, `width` and `heads`, to a configuration.
        tokenizer_of: from a task to the tokenizer of its model.
    """

    config_of: Callable[..., PretrainedConfig]
    tokenizer_of: Callable[[Task], PreTrainedTokenizerBase]


NAMED_CNNS: Registry[NamedCnn] = Registry("named CNN")
TOY_MODELS: Registry[ToyModels] = Registry("toy model")


def names_cnn(init: object) -> bool:
    """Whether an `init` names a CNN by its name."""
    return init in tuple(NAMED_CNNS)


@dataclass(frozen=True)
class NamedModel:
    """A model that a name describes.

    Attributes:
        name: as it is written, without `:random`.
        family: `bert` or `pocket`.
        layers, width, heads: its shape; its feed-forward layers follow from the width.
        random: whether its weights are random, not read.
    """

    name: str
    family: str
    layers: int
    width: int
    heads: int
    random: bool

    @property
    def repository(self) -> str | None:
        """The Hub's name of its weights; None if the Hub does not have them."""
        if self.name in _RELEASED:
            return _RELEASED[self.name]
        small = self.layers in _MINIATURE_LAYERS and self.width in _MINIATURE_WIDTHS
        if self.family == "bert" and small and self.width == 64 * self.heads:
            return f"google/bert_uncased_L-{self.layers}_H-{self.width}_A-{self.heads}"
        return None

    def config(self, tokenizer: PreTrainedTokenizerBase) -> PretrainedConfig:
        """A BERT's configuration in this shape, with the tokenizer's vocabulary."""
        return BertConfig(
            vocab_size=len(tokenizer),
            pad_token_id=tokenizer.pad_token_id,
            num_hidden_layers=self.layers,
            hidden_size=self.width,
            num_attention_heads=self.heads,
            intermediate_size=4 * self.width,
        )


def named_model(init: str) -> NamedModel | None:
    """The model that `init` names by its shape; None if it is no such name.

    A folder of that name is written with its path: `./bert-8-128-2`.

    Raises LimbeckError for a malformed name of this type, and for weights the Hub does not have.
    """
    match = _NAME.fullmatch(init)
    if match is None and (_ALMOST.fullmatch(init) is None or Path(init).exists()):
        return None
    named = None if match is None else _of_name(match)
    if named is None:
        raise LimbeckError(
            f"student.init: {init!r} is no model's shape",
            "write bert-LAYERS-WIDTH-HEADS, as in bert-8-128-2 (the Hub's weights) or bert-8-128-2:random; or "
            "pocket-LAYERS-WIDTH-HEADS; HEADS has to divide WIDTH, and the one model with masking of complete words is "
            "bert-24-1024-16-wwm",
        )
    if not named.random and named.repository is None:
        raise LimbeckError(
            f"student.init: the Hub has no BERT of the shape {named.name}",
            f"take random weights: {named.name}{RANDOM}; there are weights for "
            f"{', '.join(map(str, _MINIATURE_LAYERS))} layers of width "
            f"{', '.join(map(str, _MINIATURE_WIDTHS))} with a head for each 64, and {', '.join(list(_RELEASED)[1:])}",
        )
    return named


def _of_name(match: re.Match[str]) -> NamedModel | None:
    """The model of a name in its parts; None where no model has such a shape."""
    family, *shape, masked, random = match.groups()
    layers, width, heads = map(int, shape)
    name = match.string.removesuffix(RANDOM)
    is_random = family == "pocket" or random is not None
    if min(layers, width, heads) < 1 or layers > _MOST_LAYERS or width % heads:
        return None
    if masked and (is_random or name not in _RELEASED):
        return None
    return NamedModel(name, family, layers, width, heads, is_random)


def starts_random(init: object) -> bool:
    """Whether an `init` names a model whose weights are random."""
    if not isinstance(init, str):
        return False
    named = _NAME.fullmatch(init) is not None
    return (
        init == "pocket"
        or (named and init.startswith("pocket-"))
        or (named and init.endswith(RANDOM))
    )


_SIZES = ((128, 2), (256, 4), (512, 8), (768, 12))
TEAMS: dict[str, tuple[str, ...]] = {
    "paper": (
        *(f"bert-{layers}-{width}-{heads}" for width, heads in _SIZES for layers in (8, 10, 12)),
        "bert-24-1024-16",
        "bert-24-1024-16-wwm",
    ),
    "pocket": tuple(
        f"pocket-{layers}-{width}-{heads}"
        for width, heads in ((32, 2), (64, 4))
        for layers in (2, 4, 6, 8)
    ),
}
"""Teams by name: SKD's fourteen teachers, T01 to T14 (Table 12), and eight that learn in minutes."""
