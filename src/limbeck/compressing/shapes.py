"""Which students may be tried: depth, width and vocabulary of a transformer, or the tables of a static one.

Part of `limbeck.compressing`. Every shape has its numbers counted from a model without memory, of the same class.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import product
from typing import Any

import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

from limbeck.activations.compat import Conv1D, SameClass
from limbeck.static import StaticConfig, StaticStudent
from limbeck.students import build_student, configuration, labels_of, narrowed
from limbeck.students.static import may_be_static
from limbeck.students.width import own_sizes, with_width
from limbeck.support.errors import LimbeckError
from limbeck.support.positions import positions_of
from limbeck.support.words import count_of
from limbeck.tasks import TaskType

_LAYERS = (1, 2, 3, 4, 6, 8, 12, 16, 24)
_HEADS = (3 / 4, 1 / 2, 1 / 3, 1 / 4, 1 / 6)
_FFN = (1 / 2, 1 / 4)
_WIDTHS = (256, 128, 64, 32)
_PAIRS = (200_000, 50_000, 0)


@dataclass(frozen=True)
class StudentShape:
    """One student's shape; `layers` 0 is a static student, with `width` and `pairs`.

    Of None there is as much as the teacher has.
    """

    layers: int
    heads: int | None = None
    ffn: int | None = None
    width: int | None = None
    pairs: int | None = None
    vocabulary: int | None = None

    @property
    def is_static(self) -> bool:
        """Whether it has no layers."""
        return not self.layers

    @property
    def settings(self) -> dict[str, Any]:
        """Those of a recipe's `student`."""
        found = {name: value for name, value in asdict(self).items() if value is not None}
        found |= {"vocabulary": str(self.vocabulary)} if self.vocabulary else {}
        return {**found, "layers": None, "static": True} if self.is_static else found

    @property
    def words(self) -> str:
        """In one line."""
        parts = [f"static, width {self.width}"]
        parts += [f"{self.pairs:,} pairs"] if self.pairs else []
        if not self.is_static:
            parts = [count_of(self.layers, "layer")]
            parts += [count_of(self.heads, "head")] if self.heads else []
            parts += [f"ffn {self.ffn}"] if self.ffn else []
        parts += [f"{self.vocabulary:,} tokens"] if self.vocabulary else []
        return ", ".join(parts)


@dataclass(frozen=True)
class Numbers:
    """How many numbers a model has, by what precision does to them.

    Attributes:
        token: of one token's row in the tables over the vocabulary.
        tables: of other embeddings: positions, segments, word pairs.
        matrices: of linear maps, which a pass multiplies.
        others: biases, normalizations.
    """

    token: int
    tables: int
    matrices: int
    others: int

    def total(self, tokens: int) -> int:
        """All numbers of a model with this number of tokens."""
        return self.token * tokens + self.tables + self.matrices + self.others


def counted(model: PreTrainedModel) -> Numbers:
    """Count a model's numbers; it may be on the device `meta`."""
    found = {"token": 0, "tables": 0, "matrices": 0, "others": 0}
    kinds: dict[int, str] = {}
    size = model.config.vocab_size
    for module in model.modules():
        weight = getattr(module, "weight", None)
        if isinstance(module, nn.Embedding):
            kinds[id(weight)] = "token" if len(module.weight) == size else "tables"
        elif isinstance(module, nn.Linear | Conv1D):
            kinds.setdefault(id(weight), "matrices")
    for parameter in model.parameters():
        kind = kinds.get(id(parameter), "others")
        found[kind] += parameter.shape[-1] if kind == "token" else parameter.numel()
    return Numbers(**found)


class Shapes:
    """All shapes that can be cut from a teacher, and their numbers."""

    def __init__(
        self,
        teacher: PreTrainedModel,
        kind: TaskType,
        vocabularies: Sequence[int | None],
        texts: int = 1,
    ) -> None:
        """`vocabularies`: how many tokens a student may have; None for the teacher's. `texts`: number in a row."""
        self.teacher, self.kind, self.vocabularies, self.texts = teacher, kind, vocabularies, texts
        self.gives_embeddings = kind.embeds
        self.config: PretrainedConfig = teacher.config
        self.positions = positions_of(teacher)
        self._numbers: dict[StudentShape, Numbers] = {}

    @cached_property
    def all(self) -> tuple[StudentShape, ...]:
        """Transformers, the largest first, then static students; only shapes the teacher's family supports.

        Raises:
            LimbeckError: the teacher has no layers that can be cut.
        """
        found: list[StudentShape] = []
        for shape in (*self._transformers(), *self._static()):
            try:
                self.numbers(shape)
            except LimbeckError:
                if not found:  # the teacher's own shape, by which costs and times are known
                    raise
                continue
            found.append(shape)
        return tuple(found)

    def numbers(self, shape: StudentShape) -> Numbers:
        """Count a shape's numbers, whatever its vocabulary."""
        key = StudentShape(shape.layers, shape.heads, shape.ffn, shape.width, shape.pairs)
        if key not in self._numbers:
            self._numbers[key] = counted(self._bare(key))
        return self._numbers[key]

    def tokens(self, shape: StudentShape) -> int:
        """Rows of a shape's table of embeddings."""
        return shape.vocabulary or int(self.config.vocab_size)

    def _bare(self, shape: StudentShape) -> PreTrainedModel:
        """A model of a shape without memory."""
        with torch.device("meta"):
            if shape.is_static:
                return StaticStudent(self._static_config(shape))
            config = self.config
            if shape.heads or shape.ffn:
                config = with_width(config, None, shape.heads, shape.ffn)
            kept = range(1, shape.layers + 1)
            stacks = dict.fromkeys(configuration.stacks_of(config), kept)
            build = SameClass(self.teacher).from_config
            return build(configuration.with_layers(config, stacks))

    def _static_config(self, shape: StudentShape) -> StaticConfig:
        sizes = {"vocab_size": self.config.vocab_size, "hidden_size": shape.width}
        return StaticConfig(**sizes, **self.static_settings(shape))

    def static_settings(self, shape: StudentShape) -> dict[str, Any]:
        """A static student's settings for this teacher, without its width."""
        if self.gives_embeddings:
            return {"embeds": True}
        return {"pairs": shape.pairs, "head_width": 64, "num_labels": len(labels_of(self.config))}

    @property
    def depth(self) -> int:
        """Layers of the teacher; of the shorter stack of an encoder-decoder."""
        stacks = configuration.stacks_of(self.config)
        return min(configuration.layer_count(self.config, stack) for stack in stacks)

    def _transformers(self) -> Iterator[StudentShape]:
        total = self.depth
        if not total:
            raise LimbeckError(
                f"compress: a {self.config.model_type} model has no layers to cut",
                "name the transformer that taught it",
            )
        depths = sorted({*(one for one in _LAYERS if one < total), total}, reverse=True)
        widths, units = self._fewer("heads", _HEADS), self._fewer("ffn", _FFN)
        for layers, width, unit, tokens in product(depths, widths, units, self.vocabularies):
            yield StudentShape(layers, heads=width, ffn=unit, vocabulary=tokens)

    @cached_property
    def _one_layer(self) -> PreTrainedModel:
        return build_student(self.teacher, layers=1)

    def _fewer(self, name: str, shares: Sequence[float]) -> list[int | None]:
        """All heads or feed-forward units (None), and fewer where the weights of the teacher's family can be cut."""
        try:
            whole = own_sizes(self.config)[name]
        except LimbeckError:
            return [None]
        counts = dict.fromkeys(max(1, round(whole * share)) for share in shares)
        fewer = [count for count in counts if count != whole]
        for count in fewer:
            try:
                sizes: dict[str, Any] = {name: count}
                narrowed(self._one_layer, **sizes)
            except LimbeckError:
                continue
            return [None, *fewer]
        return [None]

    def _static(self) -> Iterator[StudentShape]:
        if not may_be_static(self.kind, self.texts):
            return
        hidden = getattr(self.config, "hidden_size", 256)
        widths = dict.fromkeys(min(hidden, width) for width in _WIDTHS)
        pairs_of = (0,) if self.gives_embeddings else _PAIRS
        for width, pairs, tokens in product(widths, pairs_of, self.vocabularies):
            yield StudentShape(0, width=width, pairs=pairs, vocabulary=tokens)
