"""Loss and gradient of `-released` recipes beside the released code, on the same weights and rows.

Takes checkouts of the releases; nothing of them is in this repository:

    git clone https://github.com/huawei-noah/Pretrained-Language-Model
    git clone https://github.com/lxk00/BERT-EMD          # and so on
    python benchmarks/beside_releases.py --model MINILM --data GLUE --tinybert Pretrained-Language-Model/TinyBERT \\
        --bert-emd BERT-EMD --cr-ild CR-ILD --pkd PKD-for-BERT-Model-Compression --ckd CKD

`--model` is a pretrained BERT, the teacher's encoder; the student has its first half. Dropout is off on
both sides. Where a release's loss stands inside its training loop, that loop runs, up to its first step,
with the batch put in its data loader's place. What a release imports and its loss does not use is replaced
by empty modules, pyemd's solver by POT's. Four things of the releases are left out, because no model that
`AutoModel` loads could have them or the comparison would be blind: the ReLU before TinyBERT's, BERT-EMD's
and CR-ILD's classifier, PKD's rounding of one term to half precision, moves to a GPU, and NaN that
`kl_div` gives in today's torch where it gave 0 in the torch of the release.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoTokenizer, BertForSequenceClassification
from transformers.utils import logging as hf_logging

from limbeck.data import Collator, encode, load_task
from limbeck.input_transforms import Mixture, StepInputs
from limbeck.objectives import ModelShape, Objectives, Shape
from limbeck.recipe import Recipe
from limbeck.support.step_state import StepState
from limbeck.tasks import SENTENCE
from limbeck.teachers.teacher import Teacher
from limbeck.training.step import Distiller
from released_checkout import SHARE, Batch, Found, Gradients, Pair, named_gradients
from released_code import EPOCH, RELEASES, adam

MOMENT = StepState(seed=0, epoch=EPOCH, step=100, progress=0.5, passes=float(EPOCH))
# PKD's loss knows classes alone.
_CLASSES_ALONE = ("pkd",)


def ours(method: str, stage: int, pair: Pair, batch: Batch, **overrides: Any) -> Found:
    """Loss and gradients of a stage of a recipe."""
    recipe = Recipe.load(method, **overrides).stages()[stage].recipe
    shape = Shape(ModelShape.of(pair.student), ModelShape.of(pair.teacher), rows=10_000)
    objectives = Objectives(recipe.loss, shape)
    for name, value in objectives.named_parameters():
        if ".projections.student." in name:
            with torch.no_grad():
                value.copy_(pair.weight if name.endswith("weight") else pair.bias)
    distiller = Distiller(pair.student, objectives, kind=SENTENCE).train()
    inputs = StepInputs(batch)
    if recipe.mixup is not None:
        count = len(batch["input_ids"])
        drawn = Mixture(torch.arange(count - 1, -1, -1), SHARE, recipe.mixup.at)
        inputs = StepInputs(batch, recipe.transform, drawn)
    distiller.zero_grad()
    loss = distiller(inputs, step_state=MOMENT, teacher=Teacher(pair.teacher))["loss"]
    loss.backward()
    return Found(loss.item(), named_gradients(distiller))


def difference(found: Gradients, expected: Gradients) -> float:
    """‖g − g′‖ / ‖g′‖ over all weights together; a missing gradient is a zero."""
    total = reference = 0.0
    for name in found.keys() | expected.keys():
        one = found.get(name, torch.zeros(()))
        other = expected.get(name, torch.zeros(()))
        total += float((one - other).double().square().sum())
        reference += float(other.double().square().sum())
    result: float = (total / reference) ** 0.5
    return result


def pair_of(model: str, classes: int) -> Pair:
    """Teacher and student of a pretrained encoder; heads and the map between them new."""
    torch.manual_seed(1)
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "num_labels": classes}
    teacher = BertForSequenceClassification.from_pretrained(model, dtype=torch.float32, **still)
    depth = teacher.config.num_hidden_layers // 2
    student = BertForSequenceClassification.from_pretrained(
        model, dtype=torch.float32, num_hidden_layers=depth, **still
    )
    width = teacher.config.hidden_size
    for side in (teacher, student):  # fine-tuned heads are not as small as fresh ones
        nn.init.normal_(side.classifier.weight, std=0.3)
    return Pair(teacher.eval(), student, torch.randn(width, width) * 0.05, torch.randn(width) * 0.1)


def batches_of(
    data: str, task: str, tokenizer: Any, width: int, count: int, rows: int
) -> list[Batch]:
    """The first training rows of a task, padded to a width."""
    described, splits = load_task(task, data)
    few = splits["train"].select(range(count * rows))
    encoded, _ = encode(few, described, tokenizer, width)
    collate = Collator(tokenizer, pad_to=width)
    return [collate(list(encoded.select(range(i * rows, (i + 1) * rows)))) for i in range(count)]


def commit_of(path: Path) -> str:
    """The checkout's commit, where git knows it."""
    asked = ["git", "-C", str(path), "rev-parse", "--short=10", "HEAD"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="folder or Hub name of a pretrained BERT")
    parser.add_argument("--data", required=True, help="folder of GLUE's files")
    parser.add_argument("--batches", type=int, default=3)
    parser.add_argument("--rows", type=int, default=8, help="rows of a batch")
    for name in RELEASES:
        parser.add_argument(f"--{name}", type=Path, help="a checkout of that release")
    given = parser.parse_args()
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(given.model)
    print("| recipe | task | stage | checkout | loss | largest difference: loss | gradient |")
    print("|---|---|---|---|---|---|---|")
    for name, (theirs, method, stages) in RELEASES.items():
        path = getattr(given, name.replace("-", "_"))
        if path is None:
            continue
        path = path.resolve()
        for task, classes in (("mrpc", 2), ("stsb", 1)):
            if classes == 1 and name in _CLASSES_ALONE:
                continue
            pair = pair_of(given.model, classes)
            for stage in stages:
                width = Recipe.load(method).stages()[stage].recipe.padded_width or 128
                rows = []
                for batch in batches_of(
                    given.data, task, tokenizer, width, given.batches, given.rows
                ):
                    expected, found = (
                        theirs(path, stage, pair, batch),
                        ours(method, stage, pair, batch),
                    )
                    gap = abs(found.loss - expected.loss) / abs(expected.loss)
                    rows.append(
                        (expected.loss, gap, difference(found.gradients, expected.gradients))
                    )
                loss, gap, gradient = rows[0][0], max(r[1] for r in rows), max(r[2] for r in rows)
                print(
                    f"| {method} | {task} | {stage + 1} of {len(stages)} | {commit_of(path)} "
                    f"| {loss:.4g} | {gap:.1e} | {gradient:.1e} |",
                    flush=True,
                )
    if given.tinybert is not None:
        print(
            f"\nBertAdam, five steps: largest relative difference of a tensor {adam(given.tinybert.resolve()):.1e}"
        )


if __name__ == "__main__":
    main()
