"""Released code run on given models and batches, up to its loss's gradient: what `beside_releases.py` reads.

Nothing of the releases stands here: each function imports a checkout's own modules, hands them models
with given weights and one batch, and returns the loss and the gradients that come out.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import types
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import torch
from torch import nn

from limbeck.training.optimizer import BertAdam
from released_checkout import (
    Batch,
    Found,
    Pair,
    checkout,
    columns,
    data_in_place,
    kl_div,
    named_gradients,
    their_model,
    trained,
)

EPOCH = 10
"""Of 20: where a weight grows from epoch to epoch."""


def tinybert(path: Path, stage: int, pair: Pair, batch: Batch) -> Found:
    """TinyBERT's task_distill.py: intermediate layers (0), or predictions (1)."""
    with checkout(path), ExitStack() as stack, TemporaryDirectory() as folder:
        module = importlib.import_module("task_distill")
        modeling = importlib.import_module("transformer.modeling")
        student = their_model(modeling, pair.student, pair)
        teacher = their_model(modeling, pair.teacher, pair)
        data_in_place(module, batch, pair, stack)
        models = {"student": student, "teacher": teacher}
        loader = types.SimpleNamespace(from_pretrained=lambda name, **_: models[name])
        stack.enter_context(patch.object(module, "TinyBertForSequenceClassification", loader))
        command = ["task_distill.py", "--data_dir", folder, "--output_dir", f"{folder}/out"]
        command += ["--teacher_model", "teacher", "--student_model", "student", "--no_cuda"]
        command += ["--task_name", "sts-b" if pair.regression else "mrpc"]
        command += ["--train_batch_size", str(len(batch["input_ids"])), "--num_train_epochs", "1"]
        command += ["--pred_distill"] if stage == 1 else []
        stack.enter_context(patch.object(sys, "argv", command))
        return trained(module.main, student)


def bert_emd(path: Path, stage: int, pair: Pair, batch: Batch) -> Found:
    """BERT-EMD's emd_task_distill.py with the defaults of its command line."""
    with checkout(path), ExitStack() as stack, TemporaryDirectory() as folder:
        stack.enter_context(patch("time.sleep"))
        stack.enter_context(patch("logging.FileHandler"))
        module = importlib.import_module("bert_emd.emd_task_distill")
        modeling = importlib.import_module("bert_emd.modeling")
        student = their_model(modeling, pair.student, pair)
        teacher = their_model(modeling, pair.teacher, pair)
        data_in_place(module, batch, pair, stack)
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
        return trained(lambda: module.do_train(arguments), student)


def cr_ild(path: Path, stage: int, pair: Pair, batch: Batch) -> Found:
    """CR-ILD's training functions: mixed intermediate layers (0), or predictions (1)."""
    with checkout(path):
        module = importlib.import_module("training_functions")
        modeling = importlib.import_module("modules.modeling")
        student = their_model(modeling, pair.student, pair)
        teacher = their_model(modeling, pair.teacher, pair).eval()
        ids, mask, segments, labels, _ = columns(batch)
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
        ids, mask, segments, labels, _ = columns(batch)
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
        with patch.object(losses.F, "kl_div", kl_div):
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
