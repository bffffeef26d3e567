"""A student's sentence contrasted with sentences of other classes (CoDIR). Part of `limbeck.objectives`."""

from collections.abc import Mapping as Batch
from typing import ClassVar

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from limbeck import functional as F
from limbeck.activations import Trace
from limbeck.functional.labels import has_label
from limbeck.mappings.maps import ProjectSpec
from limbeck.objectives import layer_match, registration
from limbeck.objectives.base import Shape
from limbeck.objectives.mapped import Mapped, MappedSpec
from limbeck.support.errors import LimbeckError
from limbeck.support.machine import SharedPass, processes
from limbeck.support.settings import Count, Pool, Temperature
from limbeck.support.step_state import StepState


class ContrastSpec(MappedSpec):
    """Contrast a student's sentence with sentences of other classes (CoDIR)."""

    has_features: ClassVar[bool] = True

    pool: Pool = Field("mean", description="sentence vector of a layer")
    project: ProjectSpec = Field(description="learned maps of both sides to one width")
    temperature: Temperature = Field(0.07, description="divides the cosines")
    negatives: Count = Field(100, description="sentences of another label, from the memory")
    momentum: float = Field(0.5, ge=0, lt=1, description="share of its old vector a memory keeps")

    @model_validator(mode="after")
    def _makes_sense(self) -> "ContrastSpec":
        if self.mapping.combine == "costs" or self.mapping.reads_representations:
            raise ValueError("info_nce puts layers side by side; use a fixed or random mapping")
        if self.pairs == "mean":
            raise ValueError("info_nce is a single comparison; leave `pairs` out")
        if self.project.sides != "both" or self.project.share == "all":
            raise ValueError("info_nce has one map a side: project: {to: 128}")
        return self


class Memory(nn.Module):
    """The teacher's vector and the label of every training example seen so far.

    Buffers, so that checkpoints carry them. `classes`: how many labels there are, counted from 0; 0 or 1 for
    numbers of any kind.
    """

    vectors: Tensor
    labels: Tensor

    def __init__(self, rows: int, width: int, momentum: float, classes: int = 0) -> None:
        super().__init__()
        self.momentum = momentum
        self.classes = classes
        self.register_buffer("vectors", torch.zeros(rows, width))
        # NaN: not seen yet. A float, because a regression's labels are.
        self.register_buffer("labels", torch.full((rows,), torch.nan))

    def draw(self, labels: Tensor, count: int, step_state: StepState) -> tuple[Tensor, Tensor]:
        """For each example `count` vectors of another label (B, K, u), without replacement.

        And (B, K), true where there is one: an example has fewer while too few were seen, and none if it
        has no label. Examples of one label share a draw: the rows whose random keys are highest. How many rows
        qualify is never read, because that would wait for the accelerator.
        """
        # As many lists as there are classes, not examples, where that is less work.
        by_class = 1 < self.classes < len(labels)
        own = torch.arange(self.classes, device=labels.device) if by_class else labels
        eligible = (self.labels != own.unsqueeze(1)) & ~self.labels.isnan()
        labelled = has_label(labels)[:, None]
        generator = step_state.device_generator(labels.device)
        keys = torch.rand(self.labels.shape, generator=generator, device=labels.device)
        highest, rows = keys.where(eligible, -1.0).topk(min(count, len(keys)), sorted=False)
        sampled = highest >= 0
        if by_class:
            classes = labels.where(labelled[:, 0], 0).long()
            rows, sampled = rows[classes], sampled[classes]
        return self.vectors[rows], sampled & labelled

    @torch.no_grad()
    def remember(self, rows: Tensor, vectors: Tensor, labels: Tensor) -> None:
        """Move the examples' vectors towards the new ones; the first time, take them.

        One without a label is of no use as a negative, and stays unseen.
        """
        known = ~self.labels[rows].isnan()
        self.vectors[rows] = F.moved_unit(
            self.vectors[rows], vectors, known, momentum=self.momentum
        )
        unseen = labels.new_full((), torch.nan, dtype=torch.float32)
        self.labels[rows] = labels.float().where(has_label(labels), unseen)


@registration.objective("info_nce", settings=ContrastSpec)
class Contrast(Mapped):
    """info_nce of the mapped layers' sentence vectors, side by side, mapped to one width.

    The positive is the teacher's vector of the same example; the negatives are the teacher's of
    other labels, from a memory.

    Raises:
        LimbeckError: the training examples have no numbers to remember them by.
    """

    reads_labels = True
    counts_labelled = True
    needs_index = True
    settings: ContrastSpec

    def __init__(self, settings: ContrastSpec, shape: Shape, setting: str) -> None:
        super().__init__(settings, shape, setting)
        if shape.rows == 0:
            raise LimbeckError(
                f"{setting}: info_nce remembers training examples by their `index`, and they do not have one",
                "give every example a number from 0 in a column named index",
            )
        self.projections = layer_match.build_projections(
            settings.project,
            self.mapping,
            settings.mapping,
            (self.student_shape, self.teacher_shape),
            joined=True,
            setting=setting,
        )
        ((width, _),) = self.projections.widths
        self.memory = Memory(shape.rows, width, settings.momentum, shape.student.labels)

    @property
    def together(self) -> bool:
        """Side by side they are one vector."""
        return True

    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], step_state: StepState
    ) -> Tensor:
        """Sentence vectors (B, d) of the mapped layers, `batch["index"]` and `batch["labels"]` (B).

        Raises:
            LimbeckError: the batch has no index, or labels that are not one an example.
        """
        self._refuse(batch)
        mapping = self._mapping_at(step_state)
        states = {j: self.read(student, j) for j in mapping.student_layers}
        layers = {k: self.read(teacher, k) for k in mapping.active(step_state)}
        targets = self._targets(mapping, states, layers, (student, teacher), step_state)
        anchor = self.projections.student(torch.cat(list(states.values()), dim=-1), 0)
        positive = self.projections.teacher(torch.cat(list(targets.values()), dim=-1), 0)
        labels = batch["labels"]
        labelled = has_label(labels)
        negatives, sampled = self.memory.draw(labels, self.settings.negatives, step_state)
        loss = F.info_nce(
            anchor, positive, negatives, sampled, temperature=self.settings.temperature
        )
        if self.training:
            seen = batch["index"], positive.detach(), labels
            if (count := processes()) > 1:  # whether or not they share the pass
                everywhere = SharedPass(batch, count)
                seen = everywhere(seen[0]), everywhere(seen[1]), everywhere(seen[2])
            self.memory.remember(*seen)
        # An example without a label, which has no negatives, adds 0 to the sum.
        return loss * (len(labels) / labelled.sum().clamp(min=1))

    def _refuse(self, batch: Batch[str, Tensor]) -> None:
        if "index" not in batch:
            raise LimbeckError(
                f"{self.setting}: the batch has no index to remember examples by",
                "give every example a number from 0 in a column named index",
            )
        if batch.get("labels") is None or batch["labels"].dim() != 1:
            raise LimbeckError(
                f"{self.setting}: info_nce contrasts classes and needs one label per example",
                "use it on classification or regression of sentences",
            )
