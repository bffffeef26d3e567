"""A narrower model from a wider one's own weights: fewer hidden features, fewer heads, fewer feed-forward units.

Part of `limbeck.students`. A family is known only by the names that its configuration has for its sizes. `axes_of`
reads which axis of which weight holds what off the shapes of the same class with one size doubled. The result is
checked: with its units in another order it has to give the same outputs.

The units kept are those whose loss would change the outputs most, by a first-order estimate on training rows: Fisher
information of a mask for each unit (Kwon et al. 2022, "A Fast Post-Training Pruning Framework for Transformers", Eq. 9)
with a random direction of the outputs instead of a loss, so that no labels are needed.

Normalization over fewer features has other statistics, so that a model with fewer hidden features is not the wide one
with features masked. With fewer units or heads alone it is.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from math import gcd
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from limbeck.activations import Request, capture, number_of_layers
from limbeck.activations.compat import Conv1D, SameClass
from limbeck.embedding import embedding_width
from limbeck.mappings.maps import KEPT
from limbeck.students import configuration, pretrained
from limbeck.support.errors import LimbeckError, first_line
from limbeck.support.machine import device_of, evaluating

# How configurations call their sizes, after their `attribute_map`.
# Sizes that equal the hidden one by default.
_AS_HIDDEN = ("embedding_size", "pooler_hidden_size", "pooler_output_size", "word_embed_proj_dim")
_HEADS = (
    "num_attention_heads",
    "encoder_attention_heads",
    "decoder_attention_heads",
    "num_key_value_heads",
)
_HEAD_SIZE = ("head_dim", "d_kv", "attention_head_size")
_FFN = (
    "intermediate_size",
    "encoder_ffn_dim",
    "decoder_ffn_dim",
    "d_ff",
    "n_inner",
    "d_inner",
    "hidden_dim",
)
_ALONE = "take its layers alone: leave student.hidden, student.heads and student.ffn out"


@dataclass(frozen=True)
class Axis:
    """The layout of one axis of a weight: `blocks` times all `units`, each of `rows` numbers in a row.

    `group`: the units are the same wherever it is the same.
    """

    group: str
    units: int
    rows: int = 1
    blocks: int = 1

    def index(self, kept: Tensor) -> Tensor:
        """Places along the axis of the kept units, in their order."""
        starts = torch.arange(self.blocks)[:, None] * self.units + kept
        return (starts[..., None] * self.rows + torch.arange(self.rows)).flatten()

    def by_unit(self, values: Tensor) -> Tensor:
        """Sum numbers along the last axis, (…, size), by unit, (…, units)."""
        apart: Tensor = values.unflatten(-1, (self.blocks, self.units, self.rows))
        return apart.sum((-3, -1))


Axes = dict[str, tuple[Axis | None, ...]]
"""By a weight's name in the state dict the content of each of its axes; None: it is not cut."""


def narrowed(
    model: PreTrainedModel,
    *,
    hidden: int | None = None,
    heads: int | None = None,
    ffn: int | None = None,
    batches: Iterable[Mapping[str, Tensor]] = (),
) -> PreTrainedModel:
    """Make a model of fewer hidden features, heads or feed-forward units, in eval mode.

    Args:
        model: the source of the weights.
        hidden: features of a hidden state. Where heads fill it (BERT) it follows from `heads`, and the other way round.
        heads: attention heads of a layer; grouped-query heads are kept by complete groups.
        ffn: hidden units of a feed-forward network.
        batches: inputs on which the units are weighed; without any the sizes of their weights decide.

    Raises:
        LimbeckError: sizes that the model cannot have; a family whose weights have an unknown layout.
    """
    axes = axes_of(model)
    target = pretrained.fresh_model(
        with_width(model.config, hidden, heads, ffn), auto=SameClass(model)
    )
    batches = list(batches)
    with _refusing(model, "it does not run on the rows"):
        scores = importance(model, axes, batches)
    kept = {
        group: scores[group].topk(count).indices.sort().values
        for group, count in _counts(model, target, axes).items()
    }
    fill(target, model, axes, kept)
    batch = batches[0] if batches else _sample(model)
    # Axes that keep all their units cannot be cut wrongly: a family whose heads are misread still loses others.
    cut = {group: len(own) for group, own in kept.items() if len(own) < len(scores[group])}
    _check(target, axes, cut, batch)
    if 1 in cut.values():
        # One unit has no other order, so the uncut model's units are moved too.
        twin = pretrained.fresh_model(model.config, auto=SameClass(model))
        fill(twin, model, axes, {group: torch.arange(len(own)) for group, own in scores.items()})
        _check(twin, axes, {group: len(scores[group]) for group in cut}, batch)
    if target.config.hidden_size < model.config.hidden_size:
        features = {"of": model.config.hidden_size, "features": kept["hidden"].tolist()}
        setattr(target.config, KEPT, features)
    return target


def with_width(
    config: PretrainedConfig, hidden: int | None, heads: int | None, ffn: int | None
) -> PretrainedConfig:
    """A copy with smaller sizes; the decoder's follow in proportion.

    Raises:
        LimbeckError: more than there is, or sizes that do not fit one another.
    """
    sizes, own = _sizes(config), own_sizes(config)
    wanted = {"hidden": hidden, "heads": heads, "ffn": ffn}
    for key, number in wanted.items():
        if number is not None and not 1 <= number <= own[key]:
            raise LimbeckError(
                f"student.{key}: {number}, and the model that it is cut from has {own[key]}",
                f"choose a number from 1 to {own[key]}",
            )
    size = own["hidden"] // own["heads"]
    if not _entries(config, _HEAD_SIZE):
        hidden = wanted["hidden"] = hidden or (heads and heads * size)
        wanted["heads"] = heads or (hidden and hidden // size)
        if hidden and hidden != size * (wanted["heads"] or 0):
            whole = max(1, round(hidden / size))
            raise LimbeckError(
                f"student.hidden: {hidden} features are not {wanted['heads']} heads of {size}, and the heads of a "
                f"{config.model_type} model fill its hidden state",
                f"set student.heads={whole} and leave student.hidden out, which makes {whole * size}",
            )
    settings: dict[str, int] = {}
    for key, entries in sizes.items():
        number = wanted[key] or own[key]
        for name, value in entries.items():
            settings[name], rest = divmod(value * number, own[key])
            if rest:
                raise LimbeckError(
                    f"student.{key}: {number} of {own[key]} leaves a fractional part of the model's {value} {name}",
                    f"choose a multiple of {own[key] // gcd(own[key], value)}",
                )
    also = dict.fromkeys(_as_wide(config), wanted["hidden"] or own["hidden"])
    return configuration.with_settings(config, settings | also, fresh=False)


def own_sizes(config: PretrainedConfig) -> dict[str, int]:
    """`hidden`, `heads` and `ffn` of the main stack.

    Raises:
        LimbeckError: its configuration does not name one of them.
    """
    return {key: next(iter(entries.values())) for key, entries in _sizes(config).items()}


def _sizes(config: PretrainedConfig) -> dict[str, dict[str, int]]:
    """The configuration's entries for each size, the main stack's first.

    Raises:
        LimbeckError: it lacks one.
    """
    hidden = _entries(config, ("hidden_size",))
    ffn = _entries(config, _FFN)
    if getattr(config, "n_inner", 0) is None:  # GPT-2
        ffn = {"n_inner": 4 * next(iter(hidden.values()))}
    found = {"hidden": hidden, "heads": _entries(config, _HEADS), "ffn": ffn}
    for key, entries in found.items():
        if not entries:
            raise LimbeckError(
                f"student.{key}: a {config.model_type} model's configuration does not name such a size",
                _ALONE,
            )
    return found


def _entries(config: PretrainedConfig, names: Iterable[str]) -> dict[str, int]:
    own = dict.fromkeys(config.attribute_map.get(name, name) for name in names)
    found = {name: getattr(config, name, None) for name in own}
    return {name: value for name, value in found.items() if isinstance(value, int)}


def _as_wide(config: PretrainedConfig) -> list[str]:
    """Entries that are as wide as the hidden state, and so follow it."""
    wide = config.hidden_size
    return [name for name, value in _entries(config, _AS_HIDDEN).items() if value == wide]


# Which axis of which weight holds what.


def axes_of(model: PreTrainedModel) -> Axes:
    """The content of each axis of each weight, from the shapes that the class has with one size doubled.

    Raises:
        LimbeckError: a weight that no size explains.
    """
    config = model.config
    sizes = _sizes(config)
    units = sizes["ffn"]
    wide = dict.fromkeys([*sizes["hidden"], *_as_wide(config)], 2 * config.hidden_size)
    more_heads = {name: 2 * value for name, value in sizes["heads"].items()}
    tied = not _entries(config, _HEAD_SIZE)
    probes = {"both": wide | more_heads} if tied else {"hidden": wide, "heads": more_heads}
    probes |= {name: {name: 2 * value} for name, value in units.items()}
    # A size that is set explicitly here is not derived again from another size that is doubled.
    doubled = {key: _shapes(model, units | settings) for key, settings in probes.items()}
    found: dict[tuple[str, int], str] = {}
    for name, weight in model.state_dict().items():
        for axis, size in enumerate(weight.shape):
            shapes = [(key, shapes.get(name, ())) for key, shapes in doubled.items()]
            if any(len(shape) != weight.dim() for _, shape in shapes):
                raise _unknown(model, f"{name} has another form in a model of another size")
            keys = [key for key, shape in shapes if shape[axis] != size]
            if len(keys) > 1 or any(dict(shapes)[key][axis] != 2 * size for key in keys):
                raise _unknown(model, f"axis {axis} of {name} holds more than one kind of unit")
            if keys:
                found[name, axis] = keys[0]
    layout = _ModulesAround(model)
    axes: dict[str, list[Axis | None]] = {}
    for name, weight in model.state_dict().items():
        axes[name] = [None] * weight.dim()
        for axis, size in enumerate(weight.shape):
            key = found.get((name, axis))
            if key == "both":
                key = layout.of_both(name, axis, size)
            if key is not None:
                axes[name][axis] = layout.axis(name, key, size, units)
    return layout.shared({name: tuple(own) for name, own in axes.items()})


def _shapes(model: PreTrainedModel, settings: dict[str, int]) -> dict[str, torch.Size]:
    config = configuration.with_settings(model.config, settings, fresh=False)
    with (
        _refusing(model, f"it cannot be built with other {', '.join(settings)}"),
        torch.device("meta"),
    ):
        twin = SameClass(model).from_config(config)
    return {name: weight.shape for name, weight in twin.state_dict().items()}


def _unknown(model: PreTrainedModel, why: str) -> LimbeckError:
    return LimbeckError(f"student: a {type(model).__name__} cannot be made narrower: {why}", _ALONE)


@contextmanager
def _refusing(model: PreTrainedModel, what: str) -> Iterator[None]:
    """Say which model it is that transformers cannot build or run."""
    try:
        yield
    except (RuntimeError, ValueError, ArithmeticError) as error:
        raise _unknown(model, f"{what}: {first_line(error)}") from error


class _ModulesAround:
    """A weight's location in the model: its layer, and its attention module there."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model, config = model, model.config
        heads = list(_entries(config, _HEADS).values())
        self.hidden = config.hidden_size
        self.groups = gcd(*heads)
        sizes = [*_entries(config, _HEAD_SIZE).values(), self.hidden // heads[0]]
        self.all_heads = sizes[0] * heads[0]
        self.modules = dict(model.named_modules())
        # The linear maps of each attention in the order in which they are made: the last one is the output.
        self.linear: dict[str, list[str]] = {}
        for name, module in self.modules.items():
            attention = self.attention(name)
            if attention is not None and isinstance(module, nn.Linear | Conv1D):
                self.linear.setdefault(attention, []).append(name)

    def attention(self, name: str) -> str | None:
        """The outermost attention module around a weight of a layer."""
        start = _LAYER.match(name)
        parts = name.split(".")
        for end in range(start.group(1).count(".") + 2 if start else len(parts), len(parts)):
            outer = ".".join(parts[:end])
            if "attention" in type(self.modules.get(outer)).__name__.lower():
                return outer
        return None

    def of_both(self, name: str, axis: int, size: int) -> str:
        """Whether an axis is hidden features or heads, where both grow together."""
        module, _, _ = name.rpartition(".")
        if size % self.hidden:
            return "heads"
        attention = self.attention(name)
        linear = self.linear.get(attention or "", [])
        if module not in linear:
            return "hidden"
        is_input = name.endswith(".weight") and axis == int(
            not isinstance(self.modules[module], Conv1D)
        )
        return "heads" if is_input == (module == linear[-1]) else "hidden"

    def axis(self, name: str, key: str, size: int, units: Mapping[str, int]) -> Axis:
        """The axis of a weight that holds units of this kind."""
        if key == "hidden":
            return Axis("hidden", self.hidden, blocks=size // self.hidden)
        layer = _LAYER.match(name)
        if key in units:
            group = layer.group(1) if layer else key
            return Axis(f"ffn of {group}", units[key], blocks=size // units[key])
        if size % self.groups:
            raise _unknown(self.model, f"the rows of {name} are not a multiple of the heads")
        blocks = size // self.all_heads if size % self.all_heads == 0 else 1
        group = self.attention(name) or "the model"
        return Axis(f"heads of {group}", self.groups, size // (blocks * self.groups), blocks)

    def shared(self, axes: Axes) -> Axes:
        """Give attentions one group of heads where they share a weight (a table of relative positions)."""
        of_heads = {
            (name, axis.group)
            for name, own in axes.items()
            for axis in own
            if axis is not None and axis.group.startswith("heads of ")
        }
        if any(group == "heads of the model" for _, group in of_heads):
            return _grouped(axes, lambda group: re.sub(r"^heads of .*", "heads", group))
        counts: dict[str, set[str]] = {}
        for name, group in of_heads:
            counts.setdefault(_NUMBER.sub(".*", name, 1), set()).add(group)
        kinds: dict[str, set[str]] = {}
        for groups in counts.values():
            for group in groups:
                kinds.setdefault(_NUMBER.sub(".*", group, 1), set()).add(group)
        few = {
            kind
            for groups in counts.values()
            for kind in {_NUMBER.sub(".*", group, 1) for group in groups}
            if len(groups) < len(kinds[kind])
        }
        return _grouped(
            axes, lambda group: kind if (kind := _NUMBER.sub(".*", group, 1)) in few else group
        )


_LAYER = re.compile(r"(.*?\.\d+)\.")
_NUMBER = re.compile(r"\.\d+")


def _grouped(axes: Axes, rename: Callable[[str], str]) -> Axes:
    return {
        name: tuple(axis and replace(axis, group=rename(axis.group)) for axis in own)
        for name, own in axes.items()
    }


def _counts(model: PreTrainedModel, target: PreTrainedModel, axes: Axes) -> dict[str, int]:
    """How many units of each group the target has."""
    theirs = target.state_dict()
    if others := theirs.keys() ^ axes.keys():
        raise _unknown(model, f"only one of both has {min(others)}")
    counts: dict[str, int] = {}
    for name, own in axes.items():
        for axis, size in zip(own, theirs[name].shape, strict=True):
            if axis is not None:
                counts[axis.group] = size // (axis.blocks * axis.rows)
    return counts


def fill(
    target: PreTrainedModel, source: PreTrainedModel, axes: Axes, kept: Mapping[str, Tensor]
) -> None:
    """Give the target the source's weights of the kept units, in their order.

    Raises:
        LimbeckError: weights that then have another shape than the target's.
    """
    theirs = target.state_dict()
    filled = {}
    for name, weight in source.state_dict().items():
        for place, axis in enumerate(axes[name]):
            if axis is not None:
                weight = weight.index_select(place, axis.index(kept[axis.group]).to(weight.device))
        if theirs[name].shape != weight.shape:
            raise _unknown(source, f"the size of {name} is not a multiple of its units")
        filled[name] = weight
    target.load_state_dict(filled, strict=True)


def _check(
    model: PreTrainedModel, axes: Axes, units: Mapping[str, int], batch: Mapping[str, Tensor]
) -> None:
    """Raise unless the model gives the same outputs with these units in another order: else an axis is misread."""
    own = {
        name: tuple(
            replace(axis, units=units[axis.group]) if axis and axis.group in units else None
            for axis in found
        )
        for name, found in axes.items()
    }
    generator = torch.Generator().manual_seed(0)
    places = {group: torch.randperm(count, generator=generator) for group, count in units.items()}
    order = {group: own.roll(1)[own.argsort()] for group, own in places.items()}  # all units move
    twin = deepcopy(model)
    fill(twin, model, own, order)
    with _refusing(model, "the narrower one does not run"), torch.no_grad():
        # Those of a model without a head are hidden features, in another order themselves.
        first, second = (_outputs(one, batch).double().sort(-1).values for one in (model, twin))
    if not torch.allclose(first, second, rtol=1e-3, atol=1e-4 * float(first.abs().max())):
        raise _unknown(model, "with its units in another order it gives other outputs")


def _sample(model: PreTrainedModel) -> dict[str, Tensor]:
    """An input that any model of its kind reads."""
    config = model.config
    generator = torch.Generator().manual_seed(0)
    if model.main_input_name == "pixel_values":
        side = config.image_size
        sides = (side, side) if isinstance(side, int) else side
        images = torch.randn(2, config.num_channels, *sides, generator=generator)
        return {"pixel_values": images}
    tokens = torch.randint(config.vocab_size, (1, 8), generator=generator)
    end = getattr(config, "eos_token_id", None)
    if isinstance(end, int) and end < config.vocab_size:
        tokens[tokens == end] = 0 if end else 1
        tokens[:, -1] = end
    batch = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    return batch | ({"decoder_input_ids": tokens} if config.is_encoder_decoder else {})


def _outputs(model: PreTrainedModel, batch: Mapping[str, Tensor]) -> Tensor:
    """Logits or embeddings; the last hidden state of a model without a head."""
    on = {name: value.to(device_of(model)) for name, value in batch.items()}
    if model.base_model is model and model.get_output_embeddings() is None:
        last = Request.hidden([number_of_layers(model)])
        return next(iter(capture(model, on, last).values.values()))
    found = capture(model, on, Request.of_logits()).logits
    assert found is not None  # it was requested
    return found


# Which units matter.


def importance(
    model: PreTrainedModel, axes: Axes, batches: Iterable[Mapping[str, Tensor]]
) -> dict[str, Tensor]:
    """Weigh the units of each group: how far the outputs would move without one, by first order, squared.

    For row r and unit u, with m_u = 1 a factor at each linear map that reads the unit, and s random signs:
    score_u = mean over r of (∂(s · outputs_r) / ∂m_u)². A group that nothing reads row by row, and every group where
    there are no batches, is weighed by the squares of its weights.
    """
    scores = _by_weight(model, axes)
    sums: dict[str, Tensor] = {}
    generator = torch.Generator().manual_seed(0)
    seen: list[tuple[Axis, Tensor]] = []
    with evaluating(model), ExitStack() as hooks:
        for module, axis in _readers(model, axes):
            hook = module.register_forward_pre_hook(partial(_see, seen, axis))
            hooks.callback(hook.remove)
        for batch in batches:
            seen.clear()
            with torch.enable_grad():
                outputs = _outputs(model, batch)
                signs = torch.randint(2, outputs.shape, generator=generator).mul(2).sub(1.0)
                if _shifts(model, outputs):
                    signs = signs - signs.mean(-1, keepdim=True)
                moved = (outputs * signs.to(outputs)).sum()
                states = [state for _, state in seen]
                slopes = torch.autograd.grad(moved, states, allow_unused=True)
            for group, of_rows in _by_row(seen, slopes, len(outputs)).items():
                sums[group] = sums.get(group, 0) + of_rows.square().sum(0)
    return scores | {group: found.cpu() for group, found in sums.items()}


def _readers(model: PreTrainedModel, axes: Axes) -> Iterable[tuple[nn.Module, Axis]]:
    """The linear maps that read units, and their inputs."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | Conv1D):
            axis = axes[f"{name}.weight"][0 if isinstance(module, Conv1D) else 1]
            if axis is not None:
                yield module, axis


def _see(
    seen: list[tuple[Axis, Tensor]], axis: Axis, _module: nn.Module, inputs: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Keep an input as a separate tensor, so that its gradient comes from this use alone."""
    state = inputs[0]
    own = state.view_as(state) if state.requires_grad else state.detach().requires_grad_()
    seen.append((axis, own))
    return (own, *inputs[1:])


def _by_row(
    seen: list[tuple[Axis, Tensor]], slopes: Iterable[Tensor | None], rows: int
) -> dict[str, Tensor]:
    """∂/∂m of each unit by row, (rows, units); values read for all rows at once are left out."""
    found: dict[str, Tensor] = {}
    for (axis, state), slope in zip(seen, slopes, strict=True):
        if slope is not None and len(state) == rows:
            moved = (state.detach() * slope).reshape(rows, -1, state.shape[-1]).sum(1)
            found[axis.group] = found.get(axis.group, 0) + axis.by_unit(moved)
    return found


def _shifts(model: PreTrainedModel, outputs: Tensor) -> bool:
    """Whether a number added to all outputs of a row changes nothing: the logits of classes."""
    several = model.config.problem_type == "multi_label_classification"
    return outputs.dim() == 2 and outputs.shape[1] > 1 and not (several or embedding_width(model))


def _by_weight(model: PreTrainedModel, axes: Axes) -> dict[str, Tensor]:
    scores: dict[str, Tensor] = {}
    for name, weight in model.state_dict().items():
        for place, axis in enumerate(axes[name]):
            if axis is not None:
                squares = weight.detach().float().square().movedim(place, -1)
                sums = axis.by_unit(squares.reshape(-1, weight.shape[place]).sum(0)).cpu()
                scores[axis.group] = scores.get(axis.group, 0) + sums
    return scores
