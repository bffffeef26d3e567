"""How a model's layers and attention are found: from what transformers itself declares.

Part of `limbeck.activations`, behind its `stacks`. Layers are what `_can_record_outputs` of the enclosing
`PreTrainedModel` names as hidden states; where a model declares nothing, the single-class `ModuleList` of
`num_hidden_layers` entries. No family has an adapter; the few facts known by name are listed below.
"""

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from limbeck.activations.compat import calls_dispatch, recordable
from limbeck.support.errors import LimbeckError, Problem

# Models that collect hidden states by hand may add a final norm to the last one, so a shortened
# run would give a different last entry. These were read and do not.
_EXACT_WHEN_CUT = frozenset({"deberta", "deberta-v2", "mpnet"})


@dataclass(eq=False)
class LayerStack:
    """One stack of layers: an encoder, a decoder, or the only stack of a model.

    `modules`: the layer modules by call, so a shared layer is there once per call. `cores` and
    `crosses`: by layer, the module that calls transformers' attention dispatch, or None without
    such a module.
    """

    name: str
    layers_name: str
    owner_reference: weakref.ref[PreTrainedModel]
    container_reference: weakref.ref[nn.Module]
    layers: nn.ModuleList
    modules: tuple[nn.Module, ...]
    cores: tuple[nn.Module | None, ...]
    crosses: tuple[nn.Module | None, ...]
    shared: bool
    declared: bool
    output_index: int
    last_is_output: bool

    @property
    def owner(self) -> PreTrainedModel:
        """The bare stack: the smallest `PreTrainedModel` around the layers that can run alone."""
        owner = self.owner_reference()
        if owner is None:  # cannot happen while the caller holds the model; for the type checker
            raise LimbeckError(
                "the model was deleted while it was captured", "keep a reference to it"
            )
        return owner

    @property
    def dispatches(self) -> bool:
        """Whether attention goes through transformers' dispatch, where query, key and value are
        seen."""
        return any(core is not None for core in self.cores)

    def is_output(self, layer: int) -> bool:
        """Whether that hidden state is the stack's own output rather than the layer's."""
        return self.last_is_output and layer == len(self.modules)

    def core(self, layer: int, cross: bool) -> nn.Module | None:
        """The module that calls the attention dispatch in a layer (1..L), None if there is
        none."""
        return (self.crosses if cross else self.cores)[layer - 1]

    def kinds(self, cross: bool = False) -> tuple[str, ...]:
        """What can be seen of it, as values of `ActivationKey.what`."""
        if self.dispatches:
            cores = self.crosses if cross else self.cores
            maps: tuple[str, ...] = (
                ("probabilities", "scores", "query", "key", "value") if any(cores) else ()
            )
        else:
            maps = () if self.declared else ("probabilities",)
        return maps if cross else ("hidden", *maps)

    @property
    def can_cut(self) -> bool:
        """Whether running only the first layers leaves their values unchanged."""
        return self.declared or self.owner.config.model_type in _EXACT_WHEN_CUT

    def is_current(self) -> bool:
        """Whether the model still holds exactly the layers found (students are cut, layers
        replaced)."""
        container = self.container_reference()
        if container is None:
            return False
        last_name = self.layers_name.rpartition(".")[2]
        if container._modules.get(last_name) is not self.layers:
            return False
        return self.shared or tuple(self.layers._modules.values()) == self.modules


@dataclass(eq=False)
class Anatomy:
    """The stacks of one model by the names a request uses, and the plans made for it so far.

    Without stacks nothing of a model can be captured but its logits; `absent` is the reason, if it is known.
    `tokens`: by size of an image how many it becomes.
    """

    stacks: dict[str, LayerStack]
    plans: dict[Any, Any] = field(default_factory=dict)
    tokens: dict[tuple[int, ...], int] = field(default_factory=dict)
    absent: Problem | None = None


def explore(model: PreTrainedModel) -> Anatomy:
    """The model's stacks.

    Raises:
        LimbeckError: no layers found.
    """
    found = [_build_stack(model, *place) for place in _find_lists(model)]
    if not found:
        found = _shared_stacks(model)
    if model.main_input_name == "pixel_values":
        found = [stack for stack in found if _has_token_layers(stack)]
        if not found:
            return Anatomy({})
    if not found and next(model.parameters(), None) is None:
        return Anatomy({})  # nothing but outputs is there
    if not found and getattr(model.config, "num_hidden_layers", None) == 0:
        return Anatomy({}, absent=_no_layers(model))
    if not found:
        raise LimbeckError(
            f"no layers found in {type(model).__name__}: nothing declares which modules they are, "
            f"and no ModuleList holds num_hidden_layers modules of one class",
            "capture a model of the transformers library, not a hand-made one",
        )
    if len(found) == 1:
        found[0].name = "main"
        return Anatomy({"main": found[0]})
    encoders = [stack for stack in found if _side(stack.layers_name) == "encoder"]
    decoders = [stack for stack in found if _side(stack.layers_name) == "decoder"]
    if len(found) == 2 and len(encoders) == len(decoders) == 1:
        encoders[0].name, decoders[0].name = "encoder", "decoder"
        stacks = {"main": encoders[0], "encoder": encoders[0], "decoder": decoders[0]}
        return Anatomy({**stacks, "cross": decoders[0]})
    several = Problem(
        f"{type(model).__name__} holds several stacks: {', '.join(s.layers_name for s in found)}",
        "compare the logits alone (method kd or kd-soft), or capture the part that is meant, for example "
        "model.vision_model",
    )
    return Anatomy({}, absent=several)


def _no_layers(model: PreTrainedModel) -> Problem:
    return Problem(
        f"{type(model).__name__} has no layers: nothing of it can be compared but its outputs",
        "compare outputs (method kd, kd-soft or logit-mse; embedding-mse for embeddings), or take a student with "
        "layers",
    )


def _has_token_layers(stack: LayerStack) -> bool:
    """Whether all layers have one width and one number of heads: not the stages of Swin or ConvNeXt."""
    config = stack.owner.config
    sizes = (getattr(config, name, None) for name in ("hidden_size", "num_attention_heads"))
    return all(isinstance(size, int) for size in sizes)


def _side(name: str) -> str | None:
    """`encoder` or `decoder`, whichever comes first in a dotted name."""
    return next((part for part in name.split(".") if part in ("encoder", "decoder")), None)


def _owner_of(model: PreTrainedModel, name: str) -> PreTrainedModel:
    """The nearest `PreTrainedModel` around the module of that name."""
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        owner = model.get_submodule(".".join(parts[:length]))
        if isinstance(owner, PreTrainedModel):
            return owner
    return model


def _target_class(specification: Any) -> type[nn.Module] | None:
    """The module class a declaration names: given bare, or inside an `OutputRecorder`."""
    if isinstance(specification, type) and issubclass(specification, nn.Module):
        return specification
    return getattr(specification, "target_class", None)


def _layer_classes(owner: PreTrainedModel) -> tuple[type[nn.Module], ...]:
    classes = (_target_class(entry) for entry in recordable(owner, "hidden_states"))
    return tuple(entry for entry in classes if entry is not None)


def _find_lists(model: PreTrainedModel) -> Iterator[tuple[str, nn.ModuleList, bool]]:
    """Each `ModuleList` of layers with its dotted name and whether transformers declares it."""
    for name, module in model.named_modules():
        if not isinstance(module, nn.ModuleList) or len(module) == 0:
            continue
        owner = _owner_of(model, name)
        classes = _layer_classes(owner)
        depth = getattr(owner.config, "num_hidden_layers", None)
        if classes:
            # ALBERT's inner lists are called more often than they are long: `_shared_stacks`.
            shared = name.endswith(".albert_layers")
            if not shared and all(isinstance(layer, classes) for layer in module):
                yield name, module, True
        elif len(module) == depth and len({type(layer) for layer in module}) == 1:
            yield name, module, False


def _build_stack(
    model: PreTrainedModel, layers_name: str, layers: nn.ModuleList, declared: bool
) -> LayerStack:
    owner, modules = _owner_of(model, layers_name), tuple(layers)
    return _stack(model, owner, layers_name, layers, modules, declared, shared=False)


def _shared_stacks(model: PreTrainedModel) -> list[LayerStack]:
    """ALBERT's stack: groups of layers, each group called several times in a row."""
    for name, module in model.named_modules():
        if name.rpartition(".")[2] != "albert_layer_groups" or not isinstance(
            module, nn.ModuleList
        ):
            continue
        owner = _owner_of(model, name)
        depth = owner.config.num_hidden_layers
        group_of = [int(call / (depth / len(module))) for call in range(depth)]
        groups = [next(group.children()) for group in module]
        modules = tuple(layer for group in group_of for layer in groups[group].children())
        return [_stack(model, owner, name, module, modules, True, shared=True)]
    return []


def _stack(
    model: PreTrainedModel,
    owner: PreTrainedModel,
    layers_name: str,
    layers: nn.ModuleList,
    modules: tuple[nn.Module, ...],
    declared: bool,
    shared: bool,
) -> LayerStack:
    found: dict[nn.Module, tuple[nn.Module | None, nn.Module | None]] = {}
    for layer in modules:
        if layer not in found:
            found[layer] = _attention_cores(owner, layer)
    indices = [getattr(entry, "index", 0) for entry in recordable(owner, "hidden_states")]
    return LayerStack(
        name="main",
        layers_name=layers_name,
        owner_reference=weakref.ref(owner),
        container_reference=weakref.ref(model.get_submodule(layers_name.rpartition(".")[0])),
        layers=layers,
        modules=modules,
        cores=tuple(found[layer][0] for layer in modules),
        crosses=tuple(found[layer][1] for layer in modules),
        shared=shared,
        declared=declared,
        output_index=indices[0] if indices and isinstance(indices[0], int) else 0,
        last_is_output=_last_is_output(owner),
    )


def _attention_cores(
    owner: PreTrainedModel, layer: nn.Module
) -> tuple[nn.Module | None, nn.Module | None]:
    """The modules of a layer that call the attention dispatch: (self, cross)."""
    cores = {name: module for name, module in layer.named_modules() if calls_dispatch(module)}
    own = [name for name in cores if _declared_as(owner, layer, name, "attentions")]
    cross = [name for name in cores if _declared_as(owner, layer, name, "cross_attentions")]
    if not own and len(cores) == 1 and not cross:
        own = list(cores)
    return (cores[own[0]] if len(own) == 1 else None, cores[cross[0]] if len(cross) == 1 else None)


def _declared_as(owner: PreTrainedModel, layer: nn.Module, name: str, kind: str) -> bool:
    """Whether the module of that name, or one around it within the layer, is declared as
    `kind`."""
    parts = name.split(".")
    around = [layer.get_submodule(".".join(parts[: end + 1])) for end in range(len(parts))]
    for specification in recordable(owner, kind):
        target = _target_class(specification)
        place = getattr(specification, "layer_name", None)
        if place is not None and f".{place.strip('.')}." not in f".{name}.":
            continue
        if target is not None and any(isinstance(module, target) for module in around):
            return True
    return False


def _last_is_output(owner: PreTrainedModel) -> bool:
    """Whether hidden state L is the stack's own output (after the final norm) or the last layer's
    (ViT).

    transformers decides this by an argument of the decorator around `forward`, which a
    configuration may override; the decorated function keeps the argument in its closure and
    nowhere else.
    """
    override = getattr(owner.config, "tie_last_hidden_states", None)
    if override is not None:
        return bool(override)
    function: Any = type(owner).forward
    while function is not None:
        names = function.__code__.co_freevars
        if "tie_last_hidden_states" in names:
            cell = function.__closure__[names.index("tie_last_hidden_states")]
            return bool(cell.cell_contents)
        function = getattr(function, "__wrapped__", None)
    return True


# Where a model keeps its layers and its attention, found once. `capture` looks a model up here;
# the result is kept per model (weakly) and found again only when its layers have changed.


# By id, taken out when the model is freed: torch.compile guards an entry of a plain dictionary
# by its number alone, but all entries of a WeakKeyDictionary, which other models come and go from.
_anatomies: dict[int, Anatomy] = {}


def anatomy_of(model: PreTrainedModel) -> Anatomy:
    """The model's stacks; looked up once per model and again when its layers have changed.

    Raises:
        LimbeckError: not a transformers model, wrapped in `nn.DataParallel` or DDP, or no layers
            found.
    """
    anatomy = known_anatomy(model)
    if anatomy is None:
        refuse_wrapped(model)
        if id(model) not in _anatomies:
            weakref.finalize(model, _anatomies.pop, id(model), None).atexit = False
        anatomy = _anatomies[id(model)] = explore(model)
    return anatomy


def known_anatomy(model: PreTrainedModel) -> Anatomy | None:
    """The anatomy found before; None before the first search, or if the model's layers have changed since."""
    anatomy = _anatomies.get(id(model))
    if anatomy is None or not all(stack.is_current() for stack in anatomy.stacks.values()):
        return None
    return anatomy


def stack_of(model: PreTrainedModel, name: str = "main") -> LayerStack:
    """The stack called `main`, `encoder`, `decoder` or `cross` (the decoder).

    Raises:
        LimbeckError: the model has no such stack; the message lists those it has.
    """
    anatomy = anatomy_of(model)
    if name not in anatomy.stacks:
        raise LimbeckError(absent_stack(model, anatomy, name))
    return anatomy.stacks[name]


def absent_stack(model: PreTrainedModel, anatomy: Anatomy, name: str) -> Problem:
    """That a model has no stack of that name, and which it has."""
    kind = type(model).__name__
    if anatomy.stacks:
        return Problem(f"{kind} has no stack {name!r}", f"choices: {', '.join(anatomy.stacks)}")
    if anatomy.absent is not None:
        return anatomy.absent
    return Problem(
        f"{kind} has no stack of layers over tokens: of a convolutional or pyramid network only the "
        "logits can be captured",
        "compare the logits (method kd or kd-soft), or take models such as ViT",
    )


def refuse_wrapped(model: nn.Module) -> None:
    """Raise a LimbeckError for anything but a bare transformers model."""
    if isinstance(model, nn.DataParallel):
        raise LimbeckError(
            "nn.DataParallel runs copies of the model, which cannot be captured",
            "use one process per device (torchrun), or set CUDA_VISIBLE_DEVICES to one device",
        )
    if isinstance(model, nn.parallel.DistributedDataParallel):
        raise LimbeckError(
            "capture was given the DistributedDataParallel wrapper, which must be the outer one",
            "capture inside the module that DistributedDataParallel wraps",
        )
    if not isinstance(model, PreTrainedModel):
        raise LimbeckError(
            f"cannot capture a {type(model).__name__}: it is not a transformers PreTrainedModel",
            "pass the transformers model itself",
        )


# A model's parts, by name: layers, widths, heads, and the activations that can be captured.
#
# Pre-flight, projections, mappings and students size themselves by them.


def number_of_layers(model: PreTrainedModel, stack: str = "main") -> int:
    """How many layers a stack runs, L; shared layers count once per call.

    Raises:
        LimbeckError: a model without such a stack.
    """
    return len(stack_of(model, stack).modules)


def hidden_size(model: PreTrainedModel, stack: str = "main") -> int:
    """The width d of a stack's hidden states.

    Raises:
        LimbeckError: a model without such a stack.
    """
    return int(stack_of(model, stack).owner.config.hidden_size)


def number_of_heads(model: PreTrainedModel, stack: str = "main") -> int:
    """How many attention heads H each layer of a stack has (query heads, where keys are grouped); 0 without attention.

    Raises:
        LimbeckError: a model without such a stack.
    """
    found = stack_of(model, stack)
    config = found.owner.config
    own = getattr(config, f"{found.name}_attention_heads", None)
    return int(getattr(config, "num_attention_heads", 0) if own is None else own)


def stack_layers(model: PreTrainedModel, stack: str = "main") -> nn.ModuleList:
    """The list of a stack's layer modules, the very one the model runs.

    Raises:
        LimbeckError: a model without such a stack, or one whose layers share one module (ALBERT).
    """
    found = stack_of(model, stack)
    if found.shared:
        raise LimbeckError(
            f"the layers of {type(model).__name__} share one module and cannot be picked apart",
            "set num_hidden_layers in the student's configuration instead of listing layers",
        )
    return found.layers


def stack_layers_name(model: PreTrainedModel, stack: str = "main") -> str:
    """The dotted name of `stack_layers` in the model, for example `bert.encoder.layer`.

    Raises:
        LimbeckError: as `stack_layers`.
    """
    stack_layers(model, stack)
    return stack_of(model, stack).layers_name


def kinds_available(model: PreTrainedModel, stack: str = "main") -> tuple[str, ...]:
    """The values of `ActivationKey.what` that can be captured from a stack.

    Raises:
        LimbeckError: a model without such a stack.
    """
    return stack_of(model, stack).kinds(cross=stack == "cross")


def stack_names(model: PreTrainedModel) -> tuple[str, ...]:
    """The stacks a request may name: `main`; of an encoder–decoder the others too."""
    return tuple(anatomy_of(model).stacks)


def is_causal(model: PreTrainedModel, stack: str = "main") -> bool:
    """Whether a stack's attention sees only earlier positions.

    Raises:
        LimbeckError: a model without such a stack.
    """
    core = stack_of(model, stack).core(1, cross=stack == "cross")
    return bool(getattr(core, "is_causal", False))
