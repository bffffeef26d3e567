"""Released code run on given models and batches, up to its loss's gradient: what `beside_releases.py` reads.

Nothing of the releases stands here: each function imports a checkout's own modules, hands them models
with given weights and one batch, and returns the loss and the gradients that come out.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import MagicMock, patch

import numpy as np
import ot
import torch
from torch import Tensor, nn
from transformers import BertForSequenceClassification

from limbeck.training.bert_adam import BertAdam

Gradients = dict[str, Tensor]
Batch = dict[str, Tensor]
SHARE = 0.7
"""λ, wherever a release draws one."""
EPOCH = 10
"""Of 20: where a weight grows from epoch to epoch."""


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


def _kl_div(given: Tensor, target: Tensor, reduction: str = "mean", **_: Any) -> Tensor:
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
    return theirs


def _same(theirs: nn.Module, model: nn.Module, apart: tuple[str, ...]) -> None:
    missing, extra = theirs.load_state_dict(model.state_dict(), strict=False)
    assert all(any(part in name for part in apart) for name in missing), missing
    assert not [name for name in extra if "position_ids" not in name and "dropout" not in name], (
        extra
    )


def _trained(run: Callable[[], None], student: nn.Module) -> Found:
    """A release's training loop up to its first step."""
    losses: list[float] = []
    backward = Tensor.backward

    def noted(self: Tensor, *arguments: Any, **named: Any) -> Any:
        losses.append(self.item())
        return backward(self, *arguments, **named)

    with patch.object(Tensor, "backward", noted):
        try:
            run()
        except _FirstStepError:
            return Found(losses[0], named_gradients(student))
    raise AssertionError("the training loop made no step")


def _columns(batch: Batch) -> tuple[Tensor, ...]:
    return (
        batch["input_ids"], batch["attention_mask"], batch["token_type_ids"], batch["labels"],
        batch["attention_mask"].sum(1),
    )  # fmt: skip


def _data_in_place(module: Any, batch: Batch, pair: Pair, stack: ExitStack) -> None:
    """The batch where a release's `main` would read a task's files."""
    processor = MagicMock()
    processor.return_value.get_labels.return_value = [None] if pair.regression else ["0", "1"]
    processor.return_value.get_train_examples.return_value = [None] * len(batch["input_ids"])
    for name, value in {
        "convert_examples_to_features": MagicMock(),
        "get_tensor_data": lambda *_: (None, batch["labels"]),
        "RandomSampler": MagicMock(),
        "SequentialSampler": MagicMock(),
        "DataLoader": lambda *_, **__: [_columns(batch)],
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


def tinybert(path: Path, stage: int, pair: Pair, batch: Batch) -> Found:
    """TinyBERT's task_distill.py: intermediate layers (0), or predictions (1)."""
    with checkout(path), ExitStack() as stack, TemporaryDirectory() as folder:
        module = importlib.import_module("task_distill")
        modeling = importlib.import_module("transformer.modeling")
        student = their_model(modeling, pair.student, pair)
        teacher = their_model(modeling, pair.teacher, pair)
        _data_in_place(module, batch, pair, stack)
        models = {"student": student, "teacher": teacher}
        loader = types.SimpleNamespace(from_pretrained=lambda name, **_: models[name])
        stack.enter_context(patch.object(module, "TinyBertForSequenceClassification", loader))
        command = ["task_distill.py", "--data_dir", folder, "--output_dir", f"{folder}/out"]
        command += ["--teacher_model", "teacher", "--student_model", "student", "--no_cuda"]
        command += ["--task_name", "sts-b" if pair.regression else "mrpc"]
        command += ["--train_batch_size", str(len(batch["input_ids"])), "--num_train_epochs", "1"]
        command += ["--pred_distill"] if stage == 1 else []
        stack.enter_context(patch.object(sys, "argv", command))
        return _trained(module.main, student)


def bert_emd(path: Path, stage: int, pair: Pair, batch: Batch) -> Found:
    """BERT-EMD's emd_task_distill.py with the defaults of its command line."""
    with checkout(path), ExitStack() as stack, TemporaryDirectory() as folder:
        stack.enter_context(patch("time.sleep"))
        stack.enter_context(patch("logging.FileHandler"))
        module = importlib.import_module("bert_emd.emd_task_distill")
        modeling = importlib.import_module("bert_emd.modeling")
        student = their_model(modeling, pair.student, pair)
        teacher = their_model(modeling, pair.teacher, pair)
        _data_in_place(module, batch, pair, stack)
        for name in ("student", "teacher"):
            (Path(folder) / name).mkdir()
            own = getattr(pair, name).config.to_dict()
            (Path(folder) / name / "config.json").write_text(json.dumps(own), encoding="utf-8")
        models = {f"{folder}/student": student, f"{folder}/teacher": teacher}
        loader = types.SimpleNamespace(from_pretrained=lambda name, **_: models[name])
        stack.enter_context(patch.object(module, "TinyBertForSequenceClassification", loader))
        arguments = argparse.Namespace(
            **dict.fromkeys(("do_eval", "do_predict", "aug_train", "pred_distill", "pkd"), False),
            **dict.fromkeys(("no_pretrain", "is_conv", "seperate", "tb_onestep"), False),
            **dict.fromkeys(("use_emd", "update_weight", "one_step", "new_pred_loss"), True),
            **dict.fromkeys(("use_att", "use_rep", "use_embedding", "share_param"), True),
            **dict.fromkeys(("do_lower_case", "is_teacher", "no_cuda"), True),
            **dict.fromkeys(("theta", "T", "alpha", "T_emd", "reduce_T", "num_train_epochs"), 1.0),
            beta=0.01,
            learning_rate=3e-5,
            warmup_proportion=0.1,
            seed=42,
            gradient_accumulation_steps=1,
            eval_step=50,
            eval_batch_size=64,
            max_seq_length=64,
            data_dir=folder,
            output_dir=f"{folder}/out",
            student_model=f"{folder}/student",
            teacher_model=f"{folder}/teacher",
            task_name="sts-b" if pair.regression else "mrpc",
            train_batch_size=len(batch["input_ids"]),
        )
        return _trained(lambda: module.do_train(arguments), student)


def cr_ild(path: Path, stage: int, pair: Pair, batch: Batch) -> Found:
    """CR-ILD's training functions: mixed intermediate layers (0), or predictions (1)."""
    with checkout(path):
        module = importlib.import_module("training_functions")
        modeling = importlib.import_module("modules.modeling")
        student = their_model(modeling, pair.student, pair)
        teacher = their_model(modeling, pair.teacher, pair).eval()
        ids, mask, segments, labels, _ = _columns(batch)
        arguments = argparse.Namespace(
            **dict.fromkeys(("use_mixup", "use_ic", "use_ic_att", "use_ic_rep"), stage == 0),
            **dict.fromkeys(("attention_l2l", "hidden_l2l", "logit_distill", "joint_train"), False),
            distill_object="AH",
            w_ic=0.1,
            num_train_epochs=20,
            epoch=EPOCH,
            mode="TinyBERT" if stage == 0 else "KD",
            temperature=2.0,
            alpha=0.5,
        )
        train = module.tinybert_trains if stage == 0 else module.kd_trains
        mode = "regression" if pair.regression else "classification"
        loss = train(arguments, teacher, student, ids, mask, segments, labels, output_mode=mode)[0]
        loss.backward()
        return Found(loss.item(), named_gradients(student))


def pkd(path: Path, stage: int, pair: Pair, batch: Batch) -> Found:
    """PKD's models and its two losses, put together as in its training loop."""
    with checkout(path), TemporaryDirectory() as folder:
        # Of the package of models only BERT's is read: its __init__ imports all of them.
        losses = importlib.import_module("src.KD_loss")
        modeling = importlib.import_module("src.modeling")
        settings = Path(folder) / "bert_config.json"
        settings.write_text(json.dumps(pair.student.config.to_dict()), encoding="utf-8")
        config = importlib.import_module("BERT.pytorch_pretrained_bert.modeling").BertConfig
        ids, mask, segments, labels, _ = _columns(batch)
        sides = {}
        for name, model in {"student": pair.student, "teacher": pair.teacher}.items():
            depth = model.config.num_hidden_layers
            encoder = modeling.BertForSequenceClassificationEncoder(
                config(str(settings)), output_all_encoded_layers=True, num_hidden_layers=depth
            )
            head = modeling.FCClassifierForSequenceClassification(
                config(str(settings)), model.config.num_labels, model.config.hidden_size
            )
            weights = model.state_dict()
            encoder.load_state_dict({k: v for k, v in weights.items() if k.startswith("bert.")})
            head.load_state_dict({k: v for k, v in weights.items() if k.startswith("classifier.")})
            sides[name] = (encoder, head)
        with torch.no_grad():
            encoder, head = sides["teacher"]
            layers, pooled = encoder(ids, segments, mask)
            answers = head(pooled)
            step = len(layers) // pair.student.config.num_hidden_layers
            patience = torch.stack(layers[step - 1 : -1 : step], dim=1)
        encoder, head = sides["student"]
        own, pooled = encoder(ids, segments, mask)
        loss, _, _ = losses.distillation_loss(head(pooled), labels, answers, T=10.0, alpha=0.7)
        states = torch.stack(own[:-1]).transpose(0, 1)
        loss = loss + 500.0 * losses.patience_loss(patience, states, True)
        loss.backward()
        return Found(loss.item(), named_gradients(encoder) | named_gradients(head))


def ckd(path: Path, stage: int, pair: Pair, batch: Batch) -> Found:
    """Contextual KD's losses on the hidden states that transformers gives, MRPC's settings."""
    with checkout(path):
        losses, utils = importlib.import_module("loss"), importlib.import_module("utils")
        inputs = {k: v for k, v in batch.items() if k not in ("index", "labels")}
        with torch.no_grad():
            theirs = pair.teacher(**inputs, output_hidden_states=True)
        own = pair.student(**inputs, output_hidden_states=True)
        teacher, student = utils.matching_alignment(
            theirs.hidden_states, own.hidden_states, matching_strategy="emb+skip"
        )
        mask = batch["attention_mask"]
        mode = "regression" if pair.regression else "classification"
        temperature = 4.0
        pair.student.zero_grad()
        with patch.object(losses.F, "kl_div", _kl_div):
            loss = losses.DistillKL(T=temperature)(own.logits, theirs.logits, mode)
            how = {"distance": "cos", "lossfunc": "kldiv"}
            loss = loss + losses.WR_Dist()(teacher, student, mask, **how)
            loss = loss + losses.WR_Angle_window()(teacher, student, mask, "l2loss", window=21)
            loss = loss + losses.LTR_Dist()(teacher, student, mask, **how)
            loss = loss + losses.LTR_Angle()(teacher, student, mask, "l2loss")
        loss.backward()
        found = Found(loss.item(), named_gradients(pair.student))
        pair.student.zero_grad()
        return found


RELEASES: dict[str, tuple[Callable[[Path, int, Pair, Batch], Found], str, tuple[int, ...]]] = {
    "tinybert": (tinybert, "tinybert-released", (0, 1)),
    "bert-emd": (bert_emd, "bert-emd-released", (0,)),
    "cr-ild": (cr_ild, "cr-ild-released", (0, 1)),
    "pkd": (pkd, "pkd-released", (0,)),
    "ckd": (ckd, "contextual-kd-released", (0,)),
}


def adam(path: Path, steps: int = 5) -> float:
    """TinyBERT's BertAdam beside limbeck's: the largest relative difference of a weight tensor."""
    with checkout(path):
        theirs = importlib.import_module("transformer.optimization").BertAdam
        generator = torch.Generator().manual_seed(0)
        start = [torch.randn(size, generator=generator) for size in ((30, 20), (20,))]
        sides = []
        for make in (
            lambda p: theirs(p, lr=1e-2, schedule="none", weight_decay=0.01),
            lambda p: BertAdam(p, lr=1e-2, weight_decay=0.01),
        ):
            weights = [nn.Parameter(value.clone()) for value in start]
            optimizer = make(weights)
            draws = torch.Generator().manual_seed(1)
            for step in range(steps):
                for weight in weights:
                    weight.grad = torch.randn(weight.shape, generator=draws) * 10.0 ** (step - 3)
                optimizer.step()
            sides.append(weights)
    return max(float(((a - b).norm() / b.norm()).detach()) for a, b in zip(*sides, strict=True))
