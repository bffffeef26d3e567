"""Task types whose labels stand at positions of a text: tags, masked tokens, target words. Part of `limbeck.tasks`."""

from __future__ import annotations

from torch import Tensor

from limbeck import functional as F
from limbeck.functional.labels import NO_LABEL
from limbeck.functional.partial_logits import PartialLogits, partial_soft_label
from limbeck.tasks.abstract_type import TaskType
from limbeck.tasks.hard_rule import PLAIN, HardRule
from limbeck.tasks.row_checks import need_labels
from limbeck.tasks.soft_rule import SoftRule
from limbeck.tasks.task_like import Batch


class LabelledPositions(TaskType):
    """A class, or a word of the vocabulary, at every position whose label is not −100."""

    def hard_label(self, logits: Tensor, batch: Batch, rule: HardRule = PLAIN) -> Tensor:
        """Cross-entropy of logits (B, N, C) over each example's labelled positions."""
        need_labels(batch, self.label_names)
        return F.token_cross_entropy(logits, batch["labels"], **rule._asdict())

    def soft_label(self, student: Tensor, teacher: Tensor, batch: Batch, rule: SoftRule) -> Tensor:
        """The two sides' distributions at each example's labelled positions."""
        need_labels(batch, self.label_names)
        distance = F.token_soft_kl if rule.compare == "soft_kl" else F.token_soft_cross_entropy
        return distance(student, teacher, batch["labels"] != NO_LABEL, **rule.at)

    def soft_label_of_tokens(
        self, student: Tensor, teacher: PartialLogits, batch: Batch, rule: SoftRule
    ) -> Tensor:
        """The student's distribution against what was kept of the teacher's, at the labelled positions."""
        need_labels(batch, self.label_names)
        valid = batch["labels"] != NO_LABEL
        return partial_soft_label(student, teacher, valid, compare=rule.compare, **rule.at)
