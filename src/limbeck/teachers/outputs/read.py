"""A teacher whose outputs lie on disk. Part of `limbeck.teachers.outputs`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from torch import Tensor

from limbeck.activations import Request, Trace
from limbeck.input_transforms.step_inputs import StepInputs, as_inputs
from limbeck.support.errors import LimbeckError
from limbeck.support.machine import on_host, send
from limbeck.teachers.outputs.columns import INDEX
from limbeck.teachers.outputs.mapped_outputs import MappedOutputs
from limbeck.teachers.outputs.places import token_masks
from limbeck.teachers.outputs.store import StoredEntry
from limbeck.teachers.teacher import Teacher


class CachedTeacher(Teacher):
    """Outputs by a batch's `index` column from an entry of the store; the model is never run.

    Args:
        teacher: the live teacher whose outputs they are.
        entry: where they lie.
        fresh: how many rows the model ran on to build the entry for this run; 0 if it was
            there.

    Raises:
        LimbeckError: asked for what it does not hold.
    """

    def __init__(self, teacher: Teacher, entry: StoredEntry, *, fresh: int = 0) -> None:
        super().__init__(teacher.model)
        self.inputs = teacher.inputs
        self.entry = entry
        self.fresh = fresh
        self.stored = MappedOutputs(entry)

    @property
    def built_seconds(self) -> float:
        """What building the entry cost this run."""
        return self.entry.outputs.costs["seconds"] if self.fresh else 0.0

    def __call__(self, inputs: StepInputs | Mapping[str, Tensor], request: Request) -> Trace:
        """What `request` asks for, of the batch's examples, in float32.

        Raises:
            LimbeckError: an example, or a thing to look at, that is not stored; inputs that are
                another thing in every step.
        """
        inputs = as_inputs(inputs)
        if not inputs.as_stored:
            assert inputs.transform is not None
            raise LimbeckError(
                f"cache: outputs of transformed inputs are not stored ({inputs.transform.name}: "
                f"{inputs.transform.why_live})",
                "run with cache=never",
            )
        batch = inputs.batch
        host = on_host(batch)
        trace = self.stored.trace(request, host[INDEX], partial(token_masks, self.model, host))
        device = batch[INDEX].device
        # Sent as narrow as they are stored.
        return Trace(
            values={seen: send(value, device).float() for seen, value in trace.values.items()},
            logits=None if trace.logits is None else send(trace.logits, device).float(),
            masks=token_masks(self.model, batch),
            partial=None if trace.partial is None else trace.partial.on(device),
        )
