"""From a request to the modules to record: checked against the model once, then kept.

A plan is looked up for each forward pass; it contains the layers to
hook, which attention to record, how deep each stack must run, and whether the head runs or the
bare stack does.
"""

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from torch import nn
from transformers import PreTrainedModel

from limbeck.activations.anatomy import Anatomy, LayerStack, absent_stack, anatomy_of
from limbeck.activations.request import ActivationKey, Request
from limbeck.support.errors import Problem, problem_list, raise_problems

# Requests vary from step to step where layers are sampled at random; plans are small, their number
# is bounded.
_MOST_PLANS = 1024


@dataclass(eq=False)
class StackPlan:
    """What to watch in one stack.

    `hidden`: by layer, the forms its hidden state is wanted in (pooled or not). `attention`:
    (layer, cross) pairs. `depth`: the deepest requested layer, at least 1, as the embedding output
    is seen as the first layer's input. `stops`: nothing behind that layer need run. `layers`:
    layer modules to watch, each with its number, None for a shared one that counts its calls.
    `cores`: by id, the attention modules to record, each with its (layer, cross). `output`:
    whether the output of the bare stack is read.
    """

    stack: LayerStack
    hidden: dict[int, tuple[ActivationKey, ...]]
    attention: frozenset[tuple[int, bool]]
    depth: int
    layers: tuple[tuple[nn.Module, int | None], ...]
    cores: dict[int, tuple[nn.Module, tuple[int, bool]]]
    output: bool
    stops: bool = False


@dataclass(eq=False)
class CapturePlan:
    """The stack plans of a request; with `logits` the complete model runs, otherwise a bare stack.

    `stacks`: the model's stacks by name. `encoder_only`: the
    main stack is all that must run, without a head or a decoder. `arguments`: by module class,
    the arguments of the forward passes that may run.
    """

    logits: bool
    parts: tuple[StackPlan, ...]
    stacks: dict[str, LayerStack]
    encoder_only: bool
    arguments: dict[type[nn.Module], frozenset[str]]


def plan_for(model: PreTrainedModel, request: Request) -> CapturePlan:
    """The plan of a request for a model, made once per pair.

    Raises:
        LimbeckError: layers or kinds this model does not have, all of them in one list.
    """
    anatomy = anatomy_of(model)
    plan = anatomy.plans.get(request)
    if plan is None:
        plan = _make_plan(model, anatomy, request)
        if len(anatomy.plans) >= _MOST_PLANS:
            anatomy.plans.clear()
        anatomy.plans[request] = plan
    return plan


def _make_plan(model: PreTrainedModel, anatomy: Anatomy, request: Request) -> CapturePlan:
    problems = [
        problem
        for seen in sorted(request.items, key=str)
        for problem in _problems(model, anatomy, seen)
    ]
    raise_problems(problems)
    parts = []
    for stack in dict.fromkeys(anatomy.stacks.values()):
        items = [seen for seen in request.items if anatomy.stacks[seen.stack] is stack]
        if items:
            parts.append(_plan_stack(stack, items))
    # The decoder reads the encoder's last layer, so of several stacks only the last one run may
    # stop early.
    if parts and not request.logits:
        final = parts[-1]
        final.stops = final.stack.can_cut and final.depth < len(final.stack.modules)
    encoder_only = not request.logits and all(
        part.stack is anatomy.stacks["main"] for part in parts
    )
    runnable = {type(model), type(model.base_model)}
    if anatomy.stacks:
        runnable.add(type(anatomy.stacks["main"].owner))
    arguments = {kind: frozenset(inspect.signature(kind.forward).parameters) for kind in runnable}
    return CapturePlan(request.logits, tuple(parts), anatomy.stacks, encoder_only, arguments)


def _plan_stack(stack: LayerStack, items: list[ActivationKey]) -> StackPlan:
    hidden: dict[int, tuple[ActivationKey, ...]] = {}
    for seen in sorted((item for item in items if item.what == "hidden"), key=str):
        hidden[seen.layer] = (*hidden.get(seen.layer, ()), seen)
    places = frozenset(
        (seen.layer, seen.stack == "cross") for seen in items if seen.what != "hidden"
    )
    cores = {}
    for place in places:
        core = stack.core(*place)
        if core is not None:
            cores[id(core)] = (core, place)
    return StackPlan(
        stack,
        hidden,
        places,
        depth=max(1, *(seen.layer for seen in items)),
        layers=_watched_layers(stack, hidden),
        cores=cores,
        output=not stack.declared or any(stack.is_output(layer) for layer in hidden),
    )


def _watched_layers(
    stack: LayerStack, hidden: Iterable[int]
) -> tuple[tuple[nn.Module, int | None], ...]:
    """The layers whose input or output must be seen in passing."""
    if stack.shared:
        return tuple((module, None) for module in dict.fromkeys(stack.modules))
    if not stack.declared:
        return ()
    wanted = {layer for layer in hidden if layer > 0 and not stack.is_output(layer)}
    if 0 in hidden or stack.owner.main_input_name != "input_ids":
        # Its input is the embedding output, and its length an image's number of tokens.
        wanted.add(1)
    return tuple((stack.modules[layer - 1], layer) for layer in sorted(wanted))


@problem_list
def _problems(model: PreTrainedModel, anatomy: Anatomy, seen: ActivationKey) -> Iterator[Problem]:
    """The reasons why this model cannot provide this item."""
    name = type(model).__name__
    if seen.stack not in anatomy.stacks:
        yield absent_stack(model, anatomy, seen.stack)
        return
    stack, cross = anatomy.stacks[seen.stack], seen.stack == "cross"
    last, first = len(stack.modules), 0 if seen.what == "hidden" else 1
    if seen.layer > last:
        yield Problem(
            f"{name} has no layer {seen.layer} in stack {seen.stack!r} for {seen.what!r}",
            f"layers for {seen.what!r}: {first} to {last}",
        )
        return
    kinds = stack.kinds(cross)
    if seen.what not in kinds:
        yield Problem(
            f"{name} does not show {seen.what!r}: its attention does not go through transformers' attention interface",
            f"request one of: {', '.join(kinds)}" if kinds else "request hidden states",
        )
        return
    if seen.what != "hidden" and stack.dispatches:
        cores = stack.crosses if cross else stack.cores
        if cores[seen.layer - 1] is None:
            there = ", ".join(str(i + 1) for i, core in enumerate(cores) if core is not None)
            yield Problem(
                f"layer {seen.layer} of {name} has no attention that can be seen",
                f"layers that have: {there}",
            )
