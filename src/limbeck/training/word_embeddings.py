"""Words that no training row holds cost nothing in training: only the others' embeddings take part in a step.

Part of `limbeck.training`. Word embeddings are most of a small student's weights: two thirds of a 3-layer MiniLM's. The
gradient of a word that does not occur is zero, and without weight decay so are its moments and its update, yet plain
training clears, sums, reads and writes them in every step. While `WordsInUse` is engaged, the rows of the words that
occur are a separate parameter. The complete matrix is updated whenever it is read: in passes without
gradients, in `state_dict`, in the end. Before that a batch of the training rows has to come out the same both ways
(`is_exact`). The resulting student equals plain training's, except for the rounding of
the gradient's norm, which is summed over fewer zeros.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow.compute as pc
import torch
import torch.nn.functional as F
from datasets import Dataset
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.training_args import OptimizerNames

from limbeck.activations import Request, capture
from limbeck.data import Collator
from limbeck.data.encoding import batches_of
from limbeck.support.errors import LimbeckError
from limbeck.support.machine import evaluating
from limbeck.training.feeding import FeedsExamples

logger = logging.getLogger(__name__)

# Weights that have to be saved before it is done.
WORTH = 1_000_000
_NAME = "weight_in_use"
# Rows that its exactness is looked at on.
_FEW = 4
# Without weight decay they leave a parameter unchanged that has no gradient and never had one.
_OPTIMISERS = (OptimizerNames.ADAMW_TORCH, OptimizerNames.ADAMW_TORCH_FUSED)


class WordsInUse:
    """An embedding whose rows `used` are trained, as `nn.Embedding` trains all of its rows.

    Args:
        embedding: trained, and used only by its own `forward`.
        used: the only words (ids, ascending) whose rows get a gradient. Another one in a training pass is an error of
            torch: its index is out of range.
    """

    def __init__(self, embedding: nn.Embedding, used: Tensor) -> None:
        self.embedding = embedding
        device = embedding.weight.device
        self.used = used.to(device)
        self.place = torch.full((len(embedding.weight),), -1, device=device)
        self.place[self.used] = torch.arange(len(used), device=device)
        self.rows = nn.Parameter(embedding.weight.detach()[self.used])
        padding = embedding.padding_idx
        self._padding = None if padding is None else int(self.place[padding])

    def check(self, rows: Any) -> None:
        """Raise LimbeckError if `rows` hold words that are not in use."""
        if (self.place.cpu()[torch.from_numpy(_words_of(rows, set()))] < 0).any():
            raise LimbeckError(
                "train_dataset holds tokens that the rows of the former training did not",
                "make a new DistillationTrainer for it",
            )

    @contextmanager
    def engaged(self) -> Iterator[None]:
        """Inside, the rows in use are trained; afterwards everything is as before, and trained."""
        embedding, whole = self.embedding, self.embedding.weight
        former = vars(embedding).get("forward")
        with torch.no_grad():
            self.rows.copy_(whole[self.used])
        whole.requires_grad_(False)
        whole.grad = None
        embedding.register_parameter(_NAME, self.rows)
        _set_forward(embedding, self._look_up)
        hooks = [
            embedding.register_state_dict_pre_hook(lambda *_: self._bring_up_to_date()),
            embedding.register_state_dict_post_hook(_leave_out),
            embedding.register_load_state_dict_pre_hook(self._take_in),
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
            self._bring_up_to_date()
            _set_forward(embedding, former)
            delattr(embedding, _NAME)
            whole.requires_grad_(True)

    def _look_up(self, words: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return F.embedding(self.place[words], self.rows, self._padding)
        self._bring_up_to_date()
        return F.embedding(words, self.embedding.weight)

    @torch.no_grad()
    def _bring_up_to_date(self) -> None:
        """Update the complete matrix from the rows in use: always, as fused optimisers change them without a trace."""
        self.embedding.weight.index_copy_(0, self.used, self.rows)

    def _take_in(self, module: nn.Module, state: dict[str, Any], prefix: str, *others: Any) -> None:
        if prefix + "weight" in state:
            state[prefix + _NAME] = state[prefix + "weight"].to(self.used.device)[self.used]


def _leave_out(module: nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    state.pop(prefix + _NAME)


def _set_forward(module: Any, forward: Any) -> None:
    """The instance's own, or the class's again."""
    vars(module).pop("forward", None)
    if forward is not None:
        module.forward = forward


def words_of(
    trainer: FeedsExamples, student: PreTrainedModel, former: WordsInUse | None
) -> WordsInUse | None:
    """The word embeddings that a trainer trains of its student; None for all of them, the plain way.

    It has to know every word a batch may hold, and the effect on a weight without a gradient: limbeck's own collator
    with fixed texts, its own AdamW or SGD, no weight decay, complete weights in each process. And the student
    has to show, on a batch of the training rows, that its outputs and gradients are then the same.

    Raises:
        LimbeckError: rows with other words than the `former` training had, whose optimiser continues.
    """
    collator, args = trainer.data_collator, trainer.args
    if former is not None:
        former.check(trainer.train_dataset)
        return former
    if type(collator) is not Collator or collator.kind.resampled:
        return None
    given = trainer.optimizer_cls_and_kwargs
    known = args.optim in _OPTIMISERS if given is None else given[0] is torch.optim.SGD
    if trainer.optimizer is not None or not known or args.weight_decay:
        return None
    padding = getattr(collator.tokenizer, "pad_token_id", None)
    found = words_in_use(student, trainer.train_dataset, padding)
    if found is None or not is_exact(found, student, _few(trainer, student)):
        return None
    return found


def _few(trainer: FeedsExamples, student: PreTrainedModel) -> dict[str, Tensor]:
    """The first training rows, as a batch on the student's device."""
    dataset: Any = trainer.train_dataset
    rows, collate = trainer.readable(dataset.select(range(min(_FEW, len(dataset)))))
    return next(batches_of(rows, collate, _FEW, student.device))


def is_exact(words: WordsInUse, student: PreTrainedModel, batch: dict[str, Tensor]) -> bool:
    """Whether the student's outputs and gradients on a batch equal plain training's; logs a difference.

    No list of architectures can show whether other modules read the embedding's weights. On a CPU
    equal is equal bit for bit; elsewhere sums may come in another order.
    """
    with evaluating(student):
        plain, gradient = _shown(student, batch, words.embedding.weight)
        with words.engaged():
            engaged, rows = _shown(student, batch, words.rows)
    expected = torch.zeros_like(gradient).index_copy(0, words.used, rows)
    if _alike(plain, engaged) and _alike(gradient, expected):
        return True
    logger.warning(
        "skip_unused_embeddings: %s reads its word embeddings in a second place; all of them are trained",
        type(student).__name__,
    )
    return False


def _shown(
    student: PreTrainedModel, batch: dict[str, Tensor], weight: Tensor
) -> tuple[Tensor, Tensor]:
    """Logits, and the gradient of their squares' sum for a weight: zero where it takes no part."""
    with torch.enable_grad():
        logits = capture(student, batch, Request.of_logits()).logits
        assert logits is not None
        gradient = torch.autograd.grad(logits.float().square().sum(), weight, allow_unused=True)[0]
    return logits.detach(), torch.zeros_like(weight) if gradient is None else gradient


def _alike(one: Tensor, other: Tensor) -> bool:
    if one.device.type == "cpu":
        return torch.equal(one, other)
    return torch.allclose(one, other, rtol=1e-4, atol=1e-6 * float(one.abs().max()))


def words_in_use(
    student: PreTrainedModel, rows: Any, padding: int | None, *, worth: int = WORTH
) -> WordsInUse | None:
    """What `rows` (with `input_ids`) leave to train of a student's embedding; None where it is no use.

    That is: embeddings of another type, frozen, shared with an output layer or a decoder; rows that are not all
    known; or fewer than `worth` weights to save.

    Args:
        padding: the word that fills batches up, which no row holds.
    """
    if not isinstance(rows, Dataset) or "input_ids" not in rows.column_names:
        return None
    embedding = _own_embedding(student)
    if embedding is None:
        return None
    used = _words_of(rows, {padding, embedding.padding_idx})
    saved = (len(embedding.weight) - len(used)) * embedding.embedding_dim
    if saved < worth or used[-1] >= len(embedding.weight):
        return None
    return WordsInUse(embedding, torch.from_numpy(used))


def _own_embedding(student: PreTrainedModel) -> nn.Embedding | None:
    """The word embedding, if nothing but looking up words happens to its weights."""
    if student.config.is_encoder_decoder:
        return None
    embedding = student.get_input_embeddings()
    if type(embedding) is not nn.Embedding or not embedding.weight.requires_grad:
        return None
    if embedding.max_norm is not None or embedding.sparse or embedding.scale_grad_by_freq:
        return None
    found = student.named_parameters(remove_duplicate=False)
    return embedding if sum(weight is embedding.weight for _, weight in found) == 1 else None


def _words_of(rows: Dataset, others: set[int | None]) -> np.ndarray:
    words = pc.list_flatten(rows.with_format("arrow")[:]["input_ids"])
    found = pc.unique(words).to_numpy(zero_copy_only=False)
    return np.union1d(found, [word for word in others if word is not None]).astype(np.int64)
