"""A teacher that runs once for each example: its outputs are kept in memory and served again.

Part of `limbeck.outputs`. For runs that share a process: several epochs, seeds and methods over the same rows cost one
teacher pass.
"""

import hashlib
import inspect
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from limbeck import activations
from limbeck.functional.labels import NO_LABEL
from limbeck.input_transforms.input_transform import StepInputs, as_inputs
from limbeck.support.machine import on_host
from limbeck.tasks import task_type_of
from limbeck.teachers.teacher import Teacher


class RememberingTeacher(Teacher):
    """A `Teacher` with a memory, keyed by the fields it reads of an example, so that rows may come in any order.

    Inputs that a transform changes in every step are computed live. Values come from the batch in
    which an example was first seen; padding changes them by rounding only.

    Args:
        teacher: the live teacher.
        pools: poolings to remember for every layer, so that a random mapping finds each of its
            candidates.
    """

    remembers = True

    def __init__(self, teacher: Teacher, pools: tuple[str, ...] = ("cls", "mean")) -> None:
        super().__init__(teacher.model)
        self.own_tokens, self.inputs = teacher.own_tokens, teacher.inputs
        depth = (
            activations.number_of_layers(teacher.model)
            if activations.stack_names(teacher.model)
            else 0
        )
        layers = range(1, depth + 1)
        self.whole = activations.Request.of_logits()
        for pool in pools:
            self.whole = self.whole | activations.Request.hidden(layers, pool=pool)  # type: ignore[arg-type]  # pools come from keys, which are of the type
        # A decoder reads the labels; other models' outputs do not depend on them.
        decodes = bool(getattr(teacher.model.config, "is_encoder_decoder", False))
        reads = {*inspect.signature(teacher.model.forward).parameters}
        self._told_by = reads if decodes else reads - {"labels"}
        self._slots: dict[bytes, int] = {}
        self._values: dict[activations.ActivationKey, list[Tensor]] = {}
        self._logits: list[Tensor] = []

    def __call__(
        self, inputs: StepInputs | Mapping[str, Tensor], request: activations.Request
    ) -> activations.Trace:
        """As the live teacher; runs it only for batches with an example not seen before."""
        asked = request.items <= self.whole.items and task_type_of(self.model).constant
        inputs = as_inputs(inputs)
        if not inputs.as_stored or not asked:
            return super().__call__(inputs, request)
        batch = inputs.batch
        read = self.as_read(on_host(batch))
        rows = _examples({name: read[name] for name in self._told_by & read.keys()})
        if any(row not in self._slots for row in rows):
            self._learn(rows, super().__call__(batch, self.whole))
        slots = [self._slots[row] for row in rows]
        return activations.Trace(
            values={
                seen: torch.stack([self._values[seen][slot] for slot in slots])
                for seen in request.items
            },
            logits=torch.stack([self._logits[slot] for slot in slots]) if request.logits else None,
            masks={"main": activations.token_mask(self.model, batch)},
        )

    def _learn(self, rows: list[bytes], trace: activations.Trace) -> None:
        assert trace.logits is not None
        for position, row in enumerate(rows):
            if row in self._slots:
                continue
            self._slots[row] = len(self._logits)
            self._logits.append(trace.logits[position].float().clone())
            for seen in self.whole.items:
                self._values.setdefault(seen, []).append(trace[seen][position].float().clone())


def _examples(batch: Mapping[str, Tensor]) -> list[bytes]:
    """A digest of each example, whatever it is padded to."""
    columns = {name: batch[name].cpu().numpy() for name in sorted(batch)}
    digests = [hashlib.blake2b(digest_size=16) for _ in next(iter(columns.values()))]
    mask = columns.get("attention_mask")
    for name, column in columns.items():
        if mask is not None and column.shape == mask.shape:
            real = mask.astype(bool)
        elif name == "labels" and column.ndim > 1:
            real = column != NO_LABEL
        else:
            real = None
        for place, digest in enumerate(digests):
            values = column[place] if real is None else column[place][real[place]]
            digest.update(f"{name} {values.shape} ".encode())
            digest.update(np.ascontiguousarray(values).tobytes())
    return [digest.digest() for digest in digests]
