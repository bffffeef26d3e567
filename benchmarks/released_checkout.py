"""A release's own modules in today's Python, up to the gradient of their loss: what `released_code.py` runs.

Nothing of the releases stands here. Libraries that they import and this does not need are stood in for, as
are the files of a task's rows; models get given weights, and no step is made.
"""

from __future__ import annotations

import logging
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

import numpy as np
import ot
import torch
from torch import Tensor, nn
from transformers import BertForSequenceClassification

Gradients = dict[str, Tensor]


Batch = dict[str, Tensor]


SHARE = 0.7
"""λ, wherever a release draws one."""


@dataclass
class Pair:
    """Teacher and student, and the learned map between them, as both codes get them."""

    teacher: BertForSequenceClassification
    student: BertForSequenceClassification
    weight: Tensor
    bias: Tensor

    @property
    def regression(self) -> bool:
        return self.student.config.num_labels == 1


@dataclass
class Found:
    """What one code made of a batch."""

    loss: float
    gradients: Gradients


def named_gradients(module: nn.Module) -> Gradients:
    """Gradients by the name a BERT gives its weights; the learned map's under one name."""
    found = {}
    for name, parameter in module.named_parameters():
        if parameter.grad is None:
            continue
        if ".projections." in name or "fit_dense" in name:
            name = f"fit_dense.{name.rsplit('.', 1)[1]}"
        found[name.removeprefix("student.")] = parameter.grad.detach().clone()
    return found


def _no_half(self: Tensor) -> Tensor:
    return self


def _emd_with_flow(first: np.ndarray, second: np.ndarray, costs: np.ndarray) -> tuple[float, Any]:
    """What pyemd answers: the least cost, and the flow between all places of both sides."""
    flow = ot.emd(first / first.sum(), second / second.sum(), costs)
    return float((flow * costs).sum()), flow.tolist()


def kl_div(given: Tensor, target: Tensor, reduction: str = "mean", **_: Any) -> Tensor:
    """As torch 1.x computed it: 0 wherever the target is 0."""
    assert reduction == "sum"
    there = target > 0
    return (target[there] * (target[there].log() - given[there])).sum()


@contextmanager
def checkout(path: Path) -> Iterator[None]:
    """A release's modules, importable, and gone afterwards."""
    empty = {name: MagicMock() for name in ("boto3", "requests", "botocore", "tensorboardX")}
    empty |= {"botocore.exceptions": MagicMock(ClientError=OSError), "moxing": None}
    glue = MagicMock(glue_output_modes={"mrpc": "classification", "sts-b": "regression"})
    empty |= dict.fromkeys(("bert_finetune", "bert_finetune.data_processor"), MagicMock())
    empty |= {"bert_finetune.data_processor.glue": glue}
    empty |= {"pyemd": types.SimpleNamespace(emd_with_flow=_emd_with_flow)}
    apex = MagicMock()
    empty |= {"apex": apex, "apex.parallel": apex.parallel}
    # Their fused normalisation is left to their own fallback.
    empty |= {"apex.normalization": None, "apex.normalization.fused_layer_norm": None}
    known = set(sys.modules)
    with ExitStack() as stack:
        logging.disable(logging.CRITICAL)
        stack.callback(logging.disable, logging.NOTSET)
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # of calls that today's torch advises against
        stack.enter_context(patch.dict(sys.modules, empty))
        stack.enter_context(patch.object(sys, "path", [str(path), *sys.path]))
        stack.enter_context(patch.object(torch, "relu", lambda values: values))
        stack.enter_context(patch.object(Tensor, "half", _no_half))
        stack.enter_context(patch.object(Tensor, "cuda", _no_half))
        stack.enter_context(patch.object(np.random, "beta", lambda *_: SHARE))
        try:
            yield
        finally:
            for name in set(sys.modules) - known:
                if str(path) in str(getattr(sys.modules[name], "__file__", "")):
                    del sys.modules[name]


class _FirstStepError(Exception):
    """The training loop has come to its first step."""


class _Stop:
    """Stands in an optimiser's place: no step is made."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def step(self) -> None:
        raise _FirstStepError


def their_model(modeling: Any, model: BertForSequenceClassification, pair: Pair) -> nn.Module:
    """A TinyBERT of a release (CR-ILD's and BERT-EMD's too) with a model's weights."""
    config = modeling.BertConfig.from_dict(model.config.to_dict())
    width = pair.teacher.config.hidden_size
    theirs = modeling.TinyBertForSequenceClassification(config, model.config.num_labels, width)
    _same(theirs, model, ("fit_dense", "fit_denses"))
    for name, parameter in theirs.named_parameters():
        if "fit_dense." in name:
            with torch.no_grad():
                parameter.copy_(pair.weight if name.endswith("weight") else pair.bias)
    found: nn.Module = theirs
    return found


def _same(theirs: nn.Module, model: nn.Module, apart: tuple[str, ...]) -> None:
    missing, extra = theirs.load_state_dict(model.state_dict(), strict=False)
    assert all(any(part in name for part in apart) for name in missing), missing
    assert not [name for name in extra if "position_ids" not in name and "dropout" not in name], (
        extra
    )


def trained(run: Callable[[], None], student: nn.Module) -> Found:
    """A release's training loop up to its first step."""
    losses: list[float] = []
    backward = Tensor.backward

    def noted(self: Tensor, *arguments: Any, **named: Any) -> Any:
        losses.append(self.item())
        return backward(self, *arguments, **named)  # type: ignore[no-untyped-call]

    with patch.object(Tensor, "backward", noted):
        try:
            run()
        except _FirstStepError:
            return Found(losses[0], named_gradients(student))
    raise AssertionError("the training loop made no step")


def columns(batch: Batch) -> tuple[Tensor, ...]:
    """A batch as a `TensorDataset` of a release has it; lengths come last."""
    return (
        batch["input_ids"], batch["attention_mask"], batch["token_type_ids"], batch["labels"],
        batch["attention_mask"].sum(1),
    )  # fmt: skip


def data_in_place(module: Any, batch: Batch, pair: Pair, stack: ExitStack) -> None:
    """The batch where a release's `main` would read a task's files."""
    processor = MagicMock()
    processor.return_value.get_labels.return_value = [None] if pair.regression else ["0", "1"]
    processor.return_value.get_train_examples.return_value = [None] * len(batch["input_ids"])
    for name, value in {
        "convert_examples_to_features": MagicMock(),
        "get_tensor_data": lambda *_: (None, batch["labels"]),
        "RandomSampler": MagicMock(),
        "SequentialSampler": MagicMock(),
        "DataLoader": lambda *_, **__: [columns(batch)],
        "BertTokenizer": MagicMock(),
        "BertAdam": _Stop,
        "trange": lambda count, **_: range(count),
        "tqdm": lambda rows, **_: rows,
    }.items():
        if hasattr(module, name):
            stack.enter_context(patch.object(module, name, value))
    if hasattr(module, "processors"):
        stack.enter_context(
            patch.object(module, "processors", {"mrpc": processor, "sts-b": processor})
        )
    else:
        for name in ("MrpcProcessor", "StsbProcessor"):
            stack.enter_context(patch.object(module, name, processor))
