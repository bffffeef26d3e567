"""`capture(model, batch, request) -> Trace`: one forward pass, recording the requested activations."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from limbeck.activations.anatomy import LayerStack, anatomy_of, known_anatomy, stack_of
from limbeck.activations.packing import Packing
from limbeck.activations.plan import CapturePlan, plan_for
from limbeck.activations.recorders import Recorder, StopForward, attach, detach, install
from limbeck.activations.request import ActivationKey, Request, Trace
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.machine import device_of, evaluating, is_spread

# Which tokens of a batch are real, per stack.
#
# `capture` pools with these masks, and objectives read them from the trace.


def text_mask(batch: Mapping[str, Tensor], decoder: bool = False) -> Tensor | None:
    """The mask [B, N] (True = real token) in the batch itself, or None if it has no
    tokens.

    Encoder side: `attention_mask`, otherwise every token of `input_ids` or `inputs_embeds` is real.
    Decoder side: `decoder_attention_mask`, otherwise where `labels` are not -100 (they are one token
    further on, so position j is real when it has something to predict), otherwise every decoder token;
    with no decoder input at all the model makes it from `input_ids` and reads it position by
    position with them, so their mask holds.

    Raises:
        LimbeckError: an attention mask that is not [B, N].
    """
    if decoder:
        given = batch.get("decoder_attention_mask")
        if given is not None:
            return _two_dimensional(given, "decoder_attention_mask")
        tokens = _first(batch, "decoder_input_ids", "decoder_inputs_embeds")
        labels = batch.get("labels")
        if (
            labels is not None
            and labels.dim() == 2
            and not labels.is_floating_point()
            and (tokens is None or tokens.shape[:2] == labels.shape)
        ):
            return labels != -100
        if tokens is not None:
            return torch.ones(tokens.shape[:2], dtype=torch.bool, device=tokens.device)
    given = batch.get("attention_mask")
    tokens = _first(batch, "input_ids", "inputs_embeds")
    if tokens is None:
        return None
    if given is not None:
        return _two_dimensional(given, "attention_mask")
    return torch.ones(tokens.shape[:2], dtype=torch.bool, device=tokens.device)


def _first(batch: Mapping[str, Tensor], *names: str) -> Tensor | None:
    return next((batch[name] for name in names if batch.get(name) is not None), None)


def _two_dimensional(mask: Tensor, name: str) -> Tensor:
    if not isinstance(mask, Tensor):
        raise LimbeckError(
            f"{name} is a {type(mask).__name__}, which does not mark the real tokens",
            "pass a tensor of shape (examples, tokens), 1 for a real token",
        )
    if mask.dim() != 2:
        raise LimbeckError(
            f"{name} has {mask.dim()} dimensions, so it does not mark the real tokens",
            "pass a mask of shape (examples, tokens), 1 for a real token",
        )
    return mask.bool()


# Never passed to the model: with labels it would compute an unused loss.
_LABELS = frozenset({"labels", "label", "label_ids", "start_positions", "end_positions"})


def capture(
    model: PreTrainedModel,
    batch: Mapping[str, Tensor],
    request: Request,
    *,
    entry: Tensor | None = None,
    packed: bool = False,
) -> Trace:
    """Run `model` on `batch` and record exactly what `request` asks for.

    The caller's grad mode, autocast and train or eval mode hold. Without logits only the bare stack runs, and only down
    to the deepest requested layer. Nothing stays on the model afterwards, also when the pass fails.

    Args:
        model: any transformers model that `docs/capture.md` lists.
        batch: its inputs. Labels and keys that the model's forward does not name (such as `index`) are left out.
        request: the layers to record, and whether the logits are wanted.
        entry: [B, N, d], used instead of the embedding output in the main stack.
        packed: the model reads the batch without padding (`limbeck.activations.packing`).

    Example:
        ```python
        third = limbeck.ActivationKey("hidden", 3, "mean")
        trace = limbeck.capture(model, batch, limbeck.Request(frozenset({third}), logits=True))
        trace[third]  # (B, d)
        ```

    Raises:
        LimbeckError: a model that cannot be captured; layers or kinds it does not have; no decoder
            input where the decoder must run; logits of a model without a head; a mask that
            is not [B, N].
    """
    if entry is not None:
        # Seen as the first layer's input, which is where it is exchanged.
        request = request | Request.hidden([0])
    anatomy = known_anatomy(model)
    plan = None if anatomy is None else anatomy.plans.get(request)
    if plan is None:
        found: Trace = _first_capture(model, batch, request, entry, packed)
        return found
    return _record(model, batch, request, plan, entry, packed)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _first_capture(
    model: PreTrainedModel,
    batch: Mapping[str, Tensor],
    request: Request,
    entry: Tensor | None,
    packed: bool,
) -> Trace:
    """Plan and record outside compiled graphs: exploring a model is nothing to trace."""
    plan = plan_for(model, request)
    if any(part.cores for part in plan.parts):
        install()
    return _record(model, batch, request, plan, entry, packed)


def _record(
    model: PreTrainedModel,
    batch: Mapping[str, Tensor],
    request: Request,
    plan: CapturePlan,
    entry: Tensor | None,
    packed: bool,
) -> Trace:
    masks = {name: _text_mask(plan.stacks, name, batch) for name in plan.stacks}
    recorders = {part.stack.name: Recorder(part, masks[part.stack.name]) for part in plan.parts}
    if entry is not None:
        recorders[plan.stacks["main"].name].entry = entry
    outputs, packing = None, None
    if plan.parts or plan.logits:
        module = _module_to_run(model, plan, batch)
        inputs = _inputs(model, module, batch, plan)
        if packed and (mask := text_mask(batch)) is not None:
            packing = Packing.of(mask)
            inputs = packing.pack(inputs, plan.arguments[type(module)])
            for recorder in recorders.values():
                recorder.packing = packing
        if is_spread(model):
            inputs = _sent(inputs, device_of(model))
        try:
            for recorder in recorders.values():
                attach(recorder)
            outputs = _run(model, module, inputs, plan)
        finally:
            for recorder in recorders.values():
                detach(recorder)
    values: dict[Any, Tensor] = {
        seen: recorders[plan.stacks[seen.stack].name].value(seen) for seen in request.items
    }
    logits = _logits(model, outputs) if plan.logits else None
    if packing is not None and logits is not None:
        logits = packing.padded(logits)
    if is_spread(model):  # each layer's values are where the layer is
        device = batch[model.main_input_name].device
        values = _sent(values, device)
        logits = None if logits is None else logits.to(device)
    return Trace(values=values, logits=logits, masks=_all_masks(plan, masks, recorders))


def _sent(values: Mapping[Any, Any], device: torch.device) -> dict[Any, Any]:
    return {
        name: value.to(device) if isinstance(value, Tensor) else value
        for name, value in values.items()
    }


def token_mask(model: PreTrainedModel, batch: Mapping[str, Tensor], stack: str = "main") -> Tensor:
    """Which tokens of a batch are real, [B, N] boolean; all of them for images, class token
    included. A network without layers over tokens makes one of an image.

    Raises:
        LimbeckError: a stack this model does not have, or a mask that is not [B, N].
    """
    anatomy = anatomy_of(model)
    if not anatomy.stacks:
        examples = batch[model.main_input_name]
        return torch.ones(len(examples), 1, dtype=torch.bool, device=examples.device)
    found = stack_of(model, stack)
    mask = _text_mask(anatomy.stacks, stack, batch)
    if mask is None:
        examples = batch[model.main_input_name]
        size = tuple(examples.shape[1:])
        if size not in anatomy.tokens:
            one = {name: value[:1] for name, value in batch.items()}
            with torch.no_grad():
                trace = capture(model, one, Request.hidden([0]))
            anatomy.tokens[size] = trace.mask(found.name).shape[1]
        shape = (len(examples), anatomy.tokens[size])
        mask = torch.ones(shape, dtype=torch.bool, device=examples.device)
    return mask


def _masked_stack(stacks: Mapping[str, LayerStack], name: str) -> LayerStack:
    """The stack whose tokens a mask is about: of cross attention the encoder's, which are keys."""
    return stacks["main" if name == "cross" else name]


def _text_mask(
    stacks: Mapping[str, LayerStack], name: str, batch: Mapping[str, Tensor]
) -> Tensor | None:
    return text_mask(batch, decoder=_masked_stack(stacks, name).name == "decoder")


def _all_masks(
    plan: CapturePlan, masks: Mapping[str, Tensor | None], recorders: Mapping[str, Recorder]
) -> dict[str, Tensor]:
    """The masks by every name a request may use; of images, as the recorders found them."""
    known = {}
    for name, mask in masks.items():
        recorder = recorders.get(_masked_stack(plan.stacks, name).name)
        mask = recorder.mask if mask is None and recorder is not None else mask
        if mask is not None:
            known[name] = mask
    return known


def _module_to_run(
    model: PreTrainedModel, plan: CapturePlan, batch: Mapping[str, Tensor]
) -> nn.Module:
    """The smallest module whose forward pass contains all requested activations."""
    if plan.logits:
        return model
    if plan.encoder_only:
        return plan.stacks["main"].owner
    # Some heads make the decoder's input from the encoder's, which the model below them does not.
    return model.base_model if _has_decoder_input(batch) else model


def _has_decoder_input(batch: Mapping[str, Tensor]) -> bool:
    return any(
        batch.get(name) is not None for name in ("decoder_input_ids", "decoder_inputs_embeds")
    )


def _inputs(
    model: PreTrainedModel, module: nn.Module, batch: Mapping[str, Tensor], plan: CapturePlan
) -> dict[str, Any]:
    """The arguments of the forward call: the batch's columns that `module` names, and no
    labels."""
    names = plan.arguments[type(module)]
    unread = _LABELS if _has_segments(model) else _LABELS | {"token_type_ids"}
    inputs: dict[str, Any] = {
        name: value for name, value in batch.items() if name in names and name not in unread
    }
    if "decoder_input_ids" in names and not _has_decoder_input(batch):
        labels = batch.get("labels")
        shift = getattr(model, "prepare_decoder_input_ids_from_labels", None)
        if shift is not None and labels is not None and labels.dim() == 2:
            inputs["decoder_input_ids"] = shift(labels=labels)
    # Nothing is generated. With logits the model's own way is kept, as caching changes last bits:
    # encoder-decoders do without a cache when they are given labels.
    trains_decoder = "decoder" in plan.stacks and batch.get("labels") is not None
    if "use_cache" in names and (trains_decoder or not plan.logits):
        inputs.setdefault("use_cache", False)
    if any(not part.stack.declared for part in plan.parts):
        inputs["output_hidden_states"] = any(part.hidden for part in plan.parts)
        inputs["output_attentions"] = any(part.attention for part in plan.parts)
    if not getattr(model.config, "return_dict", True):
        inputs["return_dict"] = True
    return inputs


def _has_segments(model: PreTrainedModel) -> bool:
    """Whether a second text can be distinguished from a first; a table of one row (RoBERTa) cannot."""
    return getattr(model.config, "type_vocab_size", None) not in (0, 1)


def _run(
    model: PreTrainedModel, module: nn.Module, inputs: dict[str, Any], plan: CapturePlan
) -> Any:
    try:
        return module(**inputs)
    except StopForward:
        return None
    except ValueError as error:
        if "decoder" not in plan.stacks or plan.encoder_only or _has_decoder_input(inputs):
            raise
        raise LimbeckError(
            f"the decoder of {type(model).__name__} needs input, and the batch contains no input for it",
            "put decoder_input_ids, or the labels they are made from, into the batch",
        ) from error


def _logits(model: PreTrainedModel, outputs: Any) -> Tensor:
    logits = getattr(outputs, "logits", None)
    if logits is None and getattr(outputs, "start_logits", None) is not None:
        # A question-answering head: start and end of each token side by side, [B, N, 2].
        return torch.stack([outputs.start_logits, outputs.end_logits], dim=-1)
    if logits is None:
        raise LimbeckError(
            f"{type(model).__name__} has no head, so no logits",
            "load the model with a head, for example AutoModelForSequenceClassification",
        )
    found: Tensor = logits
    return found


# Which forward passes a model has run, and how far each was padded: what its FLOPs are counted
# from. A pass is noted by what decides its cost; sizes are read off the tensors' shapes, so that
# nothing waits for a device.


_COSTLY = ("probabilities", "scores")
"""Maps that capture multiplies out for itself; whatever else it records was computed anyway."""


class Pass(NamedTuple):
    """A forward pass over one example.

    `sizes`: padded tokens of the main stack and, where there is one, of the decoder; or an image's
    height and width. `gradient`: whether a backward pass followed.
    """

    request: Request
    sizes: tuple[int, ...]
    gradient: bool


class Passes:
    """A model's passes: examples by kind of pass."""

    def __init__(self) -> None:
        self.examples: Counter[Pass] = Counter()

    def add(
        self,
        model: PreTrainedModel,
        batch: Mapping[str, Tensor],
        request: Request,
        *,
        gradient: bool,
    ) -> Pass:
        """Note a pass over a batch, padding and all, and return its kind."""
        kind = Pass(_deciding(request), _sizes(model, batch), gradient)
        if request.items or request.logits:  # without a request the model does not run
            self.examples[kind] += _rows(batch)
        return kind

    def watch(
        self, trace: Trace, kind: Pass, rows: int, leaving_out: Iterable[ActivationKey] = ()
    ) -> None:
        """Note a backward pass of a pass noted without, if a gradient ever comes back to its trace."""
        waiting = [True]

        def came_back(_: Tensor) -> None:
            if waiting:
                waiting.clear()
                self.examples[kind] -= rows
                self.examples[kind._replace(gradient=True)] += rows

        free = set(leaving_out)
        found = [value for seen, value in trace.values.items() if seen not in free]
        for value in [*found, *([] if trace.logits is None else [trace.logits])]:
            if value.requires_grad:
                value.register_hook(came_back)

    def state(self) -> list[dict[str, Any]]:
        """For a checkpoint, in JSON's own types."""
        return [
            {
                "items": sorted(map(list, kind.request.items), key=str),
                "logits": kind.request.logits,
                "sizes": list(kind.sizes),
                "gradient": kind.gradient,
                "examples": examples,
            }
            for kind, examples in self.examples.items()
            if examples
        ]

    @classmethod
    def of(cls, *states: Iterable[Mapping[str, Any]]) -> "Passes":
        """What `state` gave, of several processes all together."""
        passes = cls()
        for entry in (entry for state in states for entry in state):
            items = frozenset(ActivationKey(*item) for item in entry["items"])
            request = Request(items, entry["logits"])
            kind = Pass(request, tuple(entry["sizes"]), entry["gradient"])
            passes.examples[kind] += entry["examples"]
        return passes


@lru_cache(maxsize=1024)
def _deciding(request: Request) -> Request:
    """As much of a request as decides what its pass costs: random layers come to few kinds."""
    deepest: dict[str, ActivationKey] = {}
    for seen in sorted(request.items, key=str):
        known = deepest.get(seen.stack)
        if known is None or seen.layer > known.layer:
            deepest[seen.stack] = seen._replace(pool=None)
    costly = {seen for seen in request.items if seen.what in _COSTLY}
    return Request(
        frozenset(costly | (set() if request.logits else set(deepest.values()))), request.logits
    )


def _sizes(model: PreTrainedModel, batch: Mapping[str, Tensor]) -> tuple[int, ...]:
    tokens = _first(batch, "input_ids", "inputs_embeds")
    if tokens is None:
        return tuple(batch[model.main_input_name].shape[-2:])
    sizes: tuple[int, ...] = (tokens.shape[1],)
    if getattr(model.config, "is_encoder_decoder", False):
        target = _first(batch, "decoder_input_ids", "decoder_inputs_embeds", "labels")
        if target is not None and target.dim() > 1:
            sizes += (target.shape[1],)
    return sizes


def _rows(batch: Mapping[str, Tensor]) -> int:
    return len(next(iter(batch.values())))


# Whether a model can read packed batches, which no list knows: its outputs are compared.


def packing_problems(side: str, model: PreTrainedModel, request: Request) -> list[Problem]:
    """Find whether a model has other values for packed batches than for padded ones.

    Args:
        side: the model's name in messages.
        model: it runs twice on three short rows.
        request: the activations to compare.
    """
    fix = "leave packing out: it is for language models (--kind causal-lm) whose attention separates packed texts"
    device = device_of(model)
    ids = torch.arange(18, device=device).view(3, 6) * 7 % model.config.get_text_config().vocab_size
    mask = torch.arange(6, device=device) < torch.tensor([[4], [6], [3]], device=device)
    batch = {"input_ids": ids, "attention_mask": mask.long()}
    try:
        with evaluating(model):
            plain = capture(model, batch, request)
            packed = capture(model, batch, request, packed=True)
    except LimbeckError as error:
        return [Problem(f"{side}: {problem.message}", fix) for problem in error.problems]
    pairs = [(plain.values[seen], packed.values[seen], seen.what) for seen in plain.values]
    if plain.logits is not None and packed.logits is not None:
        pairs.append((plain.logits, packed.logits, "hidden"))
    if all(_alike(one, other, mask, what) for one, other, what in pairs):
        return []
    said = f"packing: {side} ({type(model).__name__}) has other outputs for packed texts than for padded ones"
    return [Problem(said, fix)]


def _alike(one: Tensor, other: Tensor, mask: Tensor, what: str) -> bool:
    """Whether values are equal at real tokens, but for rounding."""
    if one.shape != other.shape:
        return False
    if one.shape[:2] == mask.shape and what == "hidden":
        one, other = one[mask], other[mask]
    elif one.dim() == 4:
        real = mask[:, None, :, None]
        if what in _COSTLY:
            real = real & mask[:, None, None, :]
        one, other = one.masked_fill(~real, 0), other.masked_fill(~real, 0)
    close = 1e-3 if one.dtype == torch.float32 else 5e-2
    return bool((one - other).abs().max() <= close * (1 + one.abs().max()))


# `capture` under torch.compile: one graph for each request, whatever the batch's size. It takes
# the place of `capture` in runs with `compile=true`.


BACKEND = "inductor"
# torch gives up on a piece of code after eight graphs; a request that is sampled again in every epoch
# (random layers) would use them up.
_MOST = 4


class CompiledCapture:
    """`CompiledCapture(model)(batch, request) -> Trace`, as `capture(model, batch, request)`.

    The first pass for a request runs as it is, and explores the model; the second compiles, which
    takes a minute or so; those after it are fast. Beyond four requests it captures uncompiled.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self._graphs: dict[Request, Callable[[dict[str, Tensor]], Trace] | None] = {}

    def __call__(self, batch: Mapping[str, Tensor], request: Request) -> Trace:
        """One pass. Raises LimbeckError as `capture`."""
        if request not in self._graphs:
            self._graphs[request] = None
            return capture(self.model, batch, request)
        if self._graphs[request] is None and len(self._graphs) <= _MOST:
            self._graphs[request] = torch.compile(
                lambda inputs: capture(self.model, inputs, request), backend=BACKEND
            )
        graph = self._graphs[request]
        if graph is None:
            return capture(self.model, batch, request)
        # Layer numbers are constants of a graph, though another graph has others.
        with torch._dynamo.config.patch(specialize_int=True):
            return graph({name: _of_any_size(value) for name, value in batch.items()})


def _of_any_size(value: Tensor) -> Tensor:
    """Examples and tokens may be of any number, and nothing else."""
    for dimension in range(min(value.dim(), 2)):
        torch._dynamo.maybe_mark_dynamic(value, dimension)
    return value


# Weights that autocast would cast at every pass, cast at the first.
#
# It wraps a frozen model's pass. Autocast remembers the casts of weights that are trained, and those
# only until its block ends, which is the end of the step; a frozen model's are made again at every
# pass. The values are the same. They take half the room of the weights, in addition to them.


# Layers whose weights take part in nothing but operations that autocast casts for, on every device.
_CAST = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


class _State(NamedTuple):
    """State that distinguishes a parameter's values from others, without reading them."""

    pointer: int
    version: int
    type: torch.dtype
    cast_to: torch.dtype


class CastOnce:
    """A frozen model's weights in autocast's type.

    Args:
        model: no parameter of it is trained: an optimiser may change weights without a trace.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        # One that is replaced later is cast by autocast as ever.
        self._layers = [module for module in model.modules() if type(module) in _CAST]
        self._known: dict[nn.Parameter, tuple[_State, nn.Parameter]] = {}

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Inside, under autocast, the model's layers have cast weights; without autocast their own."""
        device = device_of(self.model).type
        if not torch.is_autocast_enabled(device):
            yield
            return
        dtype = torch.get_autocast_dtype(device)
        replaced: list[tuple[dict[str, nn.Parameter | None], str, nn.Parameter]] = []
        try:
            for layer in self._layers:
                for name, parameter in layer._parameters.items():
                    if (
                        parameter is not None
                        and parameter.dtype == torch.float32
                        and not parameter.is_meta  # offloaded
                    ):
                        replaced.append((layer._parameters, name, parameter))
                        layer._parameters[name] = self._cast(parameter, dtype)
            yield
        finally:
            for parameters, name, parameter in replaced:
                parameters[name] = parameter

    def _cast(self, parameter: nn.Parameter, dtype: torch.dtype) -> nn.Parameter:
        state = _State(parameter.data_ptr(), parameter._version, parameter.dtype, dtype)
        known = self._known.get(parameter)
        if known is None or known[0] != state:
            low = nn.Parameter(parameter.detach().to(dtype), requires_grad=False)
            known = self._known[parameter] = (state, low)
        return known[1]
