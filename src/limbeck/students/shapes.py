"""Models by their shape: `bert-8-128-2` is a BERT of 8 layers, width 128 and 2 heads.

The names are those of SKD's teachers (SKDBERT, Table 12);
any other layers, width and heads make a name too. `bert-8-128-2` alone means the weights that the
Hub has for that shape, `bert-8-128-2:random` random ones; `pocket-4-32-2` is the pocket model in
that shape, whose weights are always random.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from transformers import BertConfig, PretrainedConfig, PreTrainedTokenizerBase

from limbeck.support.errors import LimbeckError, Problem
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
        """Where the Hub keeps its weights; None if there are none."""
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

    Raises LimbeckError for what looks like such a name and is none, heads that do not divide the
    width, and weights the Hub does not have.
    """
    match = _NAME.fullmatch(init)
    if match is None:
        if _ALMOST.fullmatch(init) and not Path(init).exists():
            raise LimbeckError(
                f"student.init: {init!r} is no model's shape",
                "write bert-LAYERS-WIDTH-HEADS, as in bert-8-128-2 (the Hub's weights) or "
                "bert-8-128-2:random; or pocket-LAYERS-WIDTH-HEADS",
            )
        return None
    family, layers, width, heads, masked, random = match.groups()
    pocket = family == "pocket"
    name = init.removesuffix(RANDOM)
    named = NamedModel(
        name, family, int(layers), int(width), int(heads), pocket or random is not None
    )
    if min(named.layers, named.width, named.heads) < 1 or named.width % named.heads:
        raise LimbeckError(
            f"student.init: {init!r} has {heads} heads of {width} numbers",
            "name at least one layer, and a width that the number of heads divides",
        )
    refuse_beyond(named.layers, named.width, f"student.init: {init!r}")
    if masked and (named.random or pocket or name not in _RELEASED):
        raise LimbeckError(
            f"student.init: {init!r}: whole-word masking is a way of pretraining, and there is one "
            "model of it",
            "write bert-24-1024-16-wwm, or leave -wwm out",
        )
    if not named.random and named.repository is None:
        raise LimbeckError(
            f"student.init: the Hub has no BERT of the shape {name}",
            f"take random weights: {name}{RANDOM}; there are weights for "
            f"{', '.join(map(str, _MINIATURE_LAYERS))} layers of width "
            f"{', '.join(map(str, _MINIATURE_WIDTHS))} with a head for each 64, and "
            f"{', '.join(list(_RELEASED)[1:])}",
        )
    return named


def starts_random(init: object) -> bool:
    """Whether an `init` names a model whose weights are random."""
    if not isinstance(init, str):
        return False
    return init == "pocket" or (_NAME.fullmatch(init) is not None and _of_random_weights(init))


def _of_random_weights(name: str) -> bool:
    return name.startswith("pocket-") or name.endswith(RANDOM)


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


# Sizes that no model has, refused before anyone builds a billion layers one by one. Below
# `checkpoints` and `transplanting`, which read and build models.


_MOST = {
    "num_hidden_layers": 10_000,
    "num_layers": 10_000,
    "num_decoder_layers": 10_000,
    "encoder_layers": 10_000,
    "decoder_layers": 10_000,
    "num_attention_heads": 10_000,
    "hidden_size": 1_000_000,
    "intermediate_size": 10_000_000,
    "vocab_size": 100_000_000,
}
# A float32 model of so many parameters takes 4 TB.
_MOST_PARAMETERS = 10**12


def refuse_impossible(config: PretrainedConfig, what: str) -> None:
    """Raise LimbeckError for a configuration whose sizes are no positive numbers, or beyond any model's."""
    problems = []
    sizes: dict[str, int] = {}
    for name, most in _MOST.items():
        own = config.attribute_map.get(name, name)
        value = getattr(config, own, None)
        if value is None or isinstance(value, list | tuple):
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            problems.append(
                Problem(f"{what}: {own} is {value!r:.40}", f"write a whole number from 1 to {most}")
            )
        else:
            sizes[name] = value
    problems += _indivisible(config, sizes, what)
    width = sizes.get("hidden_size", 1)
    layers = sizes.get("num_hidden_layers", 1)
    parameters = width * (sizes.get("vocab_size", 1) + 4 * layers * width)
    if not problems and parameters > _MOST_PARAMETERS:
        problems.append(
            Problem(f"{what}: its sizes come to more than {parameters:.0e} parameters", "lower one")
        )
    if problems:
        raise LimbeckError(problems)


def refuse_beyond(layers: int, width: int, what: str) -> None:
    """Raise LimbeckError for a shape beyond any model's, before a configuration lists its layers."""
    for name, value in (("num_hidden_layers", layers), ("hidden_size", width)):
        if value > _MOST[name]:
            raise LimbeckError(
                f"{what}: {name} is {value}", f"write a whole number from 1 to {_MOST[name]}"
            )


def _indivisible(config: PretrainedConfig, sizes: dict[str, int], what: str) -> list[Problem]:
    """A width that the heads have to share evenly, as they do where they have no width of their own.

    Rotary positions turn a head's numbers in pairs: there it has to be even.
    """
    width, heads = sizes.get("hidden_size"), sizes.get("num_attention_heads")
    own = any(
        getattr(config, name, None) for name in ("head_dim", "d_kv", "d_head", "embedding_size")
    )
    if width is None or heads is None or own:
        return []
    unit = heads * 2 if any("rope" in name for name in config.to_dict()) else heads
    if width % unit == 0:
        return []
    return [
        Problem(
            f"{what}: {heads} attention heads cannot share a width of {width} evenly",
            f"take a width that {unit} divides, or other num_attention_heads",
        )
    ]
