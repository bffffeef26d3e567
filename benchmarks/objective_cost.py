"""What layer objectives cost: progressive training, attention maps, transport.

Three ratios, each of medians measured in turns in one run:

- `progressive`: a step of internal-kd-pid and -sid while layer k learns, over the step of student and teacher cut
  to what layer k needs. Bar 1.15 for each k.
- `attention`: a `kd` step with attention_kl on the last layer, over the `kd` step plus that layer's attention
  maps computed by hand on both sides (the student's with their backward pass). Bar 1.10.
- `transport`: the time inside `transport_flow` as a share of a `bert-emd` step. Bar 0.03.

    python benchmarks/objective_cost.py [--rounds 5] [--steps 6] [--tokens 64] [--batch 32]

Writes `benchmarks/records/objective_cost.json`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import torch
from datasets import Dataset
from rich.console import Console
from rich.table import Table
from transformers import BertForSequenceClassification, TrainingArguments, set_seed

import limbeck.mappings.maps as transport
from limbeck.functional.layers import transport_flow
from limbeck.objectives import CurriculumSpec
from limbeck.recipe import Recipe
from limbeck.records import hardware, versions
from limbeck.support.files import write_whole
from limbeck.training import DistillationConfig, DistillationTrainer
from overhead import arguments, model, rows, train

RECORD = Path(__file__).parent / "records" / "objective_cost.json"
BARS = {"progressive": 1.15, "attention": 1.10, "transport": 0.03}
TEACHER_LAYERS, STUDENT_LAYERS = 6, 3


def cut(whole: BertForSequenceClassification, layers: int) -> BertForSequenceClassification:
    """A fresh model of so many layers: cost does not depend on weights."""
    return model(layers) if layers != whole.config.num_hidden_layers else whole


def objectives_of_layer(order: str, layer: int, matching: dict[int, int]) -> dict[str, Any]:
    """internal-kd's terms as the cut models compute them: of layer `layer`, or of those up to it."""
    first = layer if order == "progressive" else 1
    chosen = {j: matching[j] for j in range(first, layer + 1)}
    mapping = {"kind": "explicit", "layers": chosen}
    terms = {
        "attention": {"compare": "attention_kl", "mapping": mapping},
        "cosine": {"compare": "cosine_distance", "pool": "cls", "mapping": mapping},
    }
    return Recipe.model_validate({"method": "cut", "objectives": terms}).objectives


def progressive(
    args: argparse.Namespace, settings: TrainingArguments, data: Dataset
) -> dict[str, float]:
    """By order and layer: the step over that of the cut models."""
    student, teacher = model(STUDENT_LAYERS), model(TEACHER_LAYERS)
    matching = {j: j * TEACHER_LAYERS // STUDENT_LAYERS for j in range(1, STUDENT_LAYERS + 1)}
    found = {}
    for order, name in (("progressive", "internal-kd-pid"), ("stacked", "internal-kd-sid")):
        recipe = Recipe.load(name)
        for layer in range(1, STUDENT_LAYERS + 1):
            # Each layer below is left at once, and this one is never left.
            limits = [1e-12] * (layer - 1) + [1e9] * (STUDENT_LAYERS - layer + 1)
            said = {"terms": ["attention", "cosine"], "order": order, "wait": ["soft"]}
            curriculum = CurriculumSpec.model_validate(said | {"epochs_per_layer": limits})
            small_student, small_teacher = cut(student, layer), cut(teacher, matching[layer])
            times = defaultdict(list)
            for _ in range(args.rounds):
                whole = DistillationTrainer(
                    student,
                    teacher,
                    DistillationConfig.like(
                        settings, objectives=recipe.objectives, curriculum=curriculum
                    ),
                    train_dataset=data,
                )
                times["whole"] += train(whole)
                small = DistillationTrainer(
                    small_student,
                    small_teacher,
                    DistillationConfig.like(
                        settings, objectives=objectives_of_layer(order, layer, matching)
                    ),
                    train_dataset=data,
                )
                times["cut"] += train(small)
            found[f"{name}, layer {layer} of {STUDENT_LAYERS}"] = median(times["whole"]) / median(
                times["cut"]
            )
    return found


def maps_by_hand(batch: int, tokens: int, steps: int, *, bf16: bool) -> list[float]:
    """Seconds of one layer's attention probabilities on both sides, the student's with backward."""
    heads, width = 12, 32
    seconds = []
    precision = torch.bfloat16 if bf16 else torch.float32
    for _ in range(steps):
        sides = [torch.randn(2, batch, heads, tokens, width, dtype=precision) for _ in range(2)]
        sides[0].requires_grad_()
        began = time.perf_counter()
        student, teacher = (
            (query.float() @ key.float().transpose(-1, -2) * width**-0.5).softmax(-1)
            for query, key in sides
        )
        student.backward(teacher)
        seconds.append(time.perf_counter() - began)
    return seconds[1:]


def attention(
    args: argparse.Namespace, settings: TrainingArguments, data: Dataset
) -> dict[str, float]:
    """The step with attention_kl on the last layer over the step without it plus the maps."""
    student, teacher = model(STUDENT_LAYERS), model(TEACHER_LAYERS)
    base = Recipe.load("kd").objectives
    extra = {"compare": "attention_kl", "mapping": {"kind": "last-to-last"}}
    with_attention = Recipe.load("kd", **{"objectives.attention": extra}).objectives
    times = defaultdict(list)
    for _ in range(args.rounds):
        for name, terms in (("kd", base), ("attention", with_attention)):
            trainer = DistillationTrainer(
                student,
                teacher,
                DistillationConfig.like(settings, objectives=terms),
                train_dataset=data,
            )
            times[name] += train(trainer)
        times["maps"] += maps_by_hand(args.batch, args.tokens, args.steps, bf16=settings.bf16)
    floor = median(times["kd"]) + median(times["maps"])
    return {"kd with attention_kl of the last layer": median(times["attention"]) / floor}


def flow_share(
    args: argparse.Namespace, settings: TrainingArguments, data: Dataset
) -> dict[str, float]:
    """Seconds inside transport_flow, of both terms, as a share of the bert-emd step."""
    spent: list[float] = []
    steps: list[float] = []
    solve = transport_flow

    def timed(*tensors: torch.Tensor) -> torch.Tensor:
        began = time.perf_counter()
        flow = solve(*tensors)
        spent.append(time.perf_counter() - began)
        return flow

    with patch.object(transport, "transport_flow", timed):
        for _ in range(args.rounds):
            trainer = DistillationTrainer(
                model(STUDENT_LAYERS),
                model(TEACHER_LAYERS),
                DistillationConfig.like(settings, method="bert-emd"),
                train_dataset=data,
            )
            steps += train(trainer)
    return {"transport_flow in a bert-emd step": 2 * median(spent) / median(steps)}


def main() -> None:
    """Measure both precisions, print the ratios and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32)
    args = parser.parse_args()
    set_seed(0)
    data = rows(args.batch * args.steps, args.tokens)
    found: dict[str, dict[str, dict[str, float]]] = {}
    for bf16 in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            settings = arguments(folder, args.steps, args.batch, bf16=bf16)
            found["bf16" if bf16 else "fp32"] = {
                "progressive": progressive(args, settings, data),
                "attention": attention(args, settings, data),
                "transport": flow_share(args, settings, data),
            }
    table = Table(title="Cost of objectives, as ratios")
    for column in ("what", "fp32", "bf16", "bar"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for part, bar in BARS.items():
        for what, value in found["fp32"][part].items():
            table.add_row(what, f"{value:.3f}", f"{found['bf16'][part][what]:.3f}", f"{bar:.2f}")
    Console().print(table)
    record = {
        "settings": vars(args),
        "ratios": found,
        "bars": BARS,
        "versions": versions(),
        "hardware": hardware(),
    }
    write_whole(
        RECORD, json.dumps(record, indent=1, default=lambda value: value.model_dump()) + "\n"
    )


if __name__ == "__main__":
    main()
