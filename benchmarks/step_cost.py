"""What every method's step costs over plain fine-tuning of the student, live and from stored teacher outputs.

The unit is the same student's fine-tuning step by `transformers.Trainer`. A turn measures the plain step, the teacher's
pass, the live and the stored step one after the other, on the same batches and in the same precision, and compares
them; ratios are medians over the turns, so that a machine that slows down in between moves none. `necessary` is a live
step over the plain step plus one forward pass of the teacher cut to the deepest layer asked for, by Hugging Face's own
call.

    python benchmarks/step_cost.py [--rounds 3] [--steps 6] [--tokens 64] [--batch 32] [--methods kd …] [--fp32]

All methods on MiniLM's shape (6 layers teach 3, 384 wide); the main ones also on other depths and widths. Writes
`benchmarks/records/step_cost.json`. Bars: stored 1.05 (the main methods), necessary 1.05.

    python benchmarks/step_cost.py --decoder 15 [--rounds 3] [--steps 6] [--tokens 64] [--batch 8] [--fp32]

A language model in place of the classifiers: SmolLM2-135M's shape with random weights, a student of so many layers
and a teacher of twice as many, `kd-soft` on the teacher's 32 likeliest tokens. Writes
`benchmarks/records/step_cost_decoder.json`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from datasets import Dataset
from rich.console import Console
from rich.table import Table
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    set_seed,
)

from limbeck.objectives import Objectives
from limbeck.outputs.building import build
from limbeck.outputs.cache import Store
from limbeck.outputs.columns import Ask
from limbeck.outputs.stored_teacher import CachedTeacher
from limbeck.recipe import Recipe
from limbeck.recipe.catalog import names
from limbeck.records import hardware, versions
from limbeck.students.execution import resolve_precision
from limbeck.support.errors import LimbeckError
from limbeck.support.files import write_whole
from limbeck.teachers.teacher import Teacher
from limbeck.training import DistillationConfig, DistillationTrainer
from overhead import arguments, rows, teacher_forward, train

RECORD = Path(__file__).parent / "records" / "step_cost.json"
DECODER_RECORD = RECORD.with_name("step_cost_decoder.json")
MAIN = ("kd", "pkd-skip", "rail-kd-l", "rail-kd-c", "alp-kd")
BAR = 1.05
# Maps of two-layer students, and one that has to be given.
LEFT_OUT = ("finetune", "pkd", "pkd-1", "pkd-6", "pkd-12")


def compared() -> list[str]:
    """All methods of one teacher for classification."""
    found = (Recipe.load(name) for name in names() if name not in LEFT_OUT)
    return [recipe.method for recipe in found if recipe.kind is None and recipe.team is None]


class Sizes(NamedTuple):
    """Layers and width of both models."""

    teacher_layers: int
    student_layers: int
    teacher_width: int = 384
    student_width: int = 384

    def __str__(self) -> str:
        return (
            f"{self.teacher_layers} × {self.teacher_width} → "
            f"{self.student_layers} × {self.student_width}"
        )


SHAPES = (Sizes(6, 3), Sizes(12, 6), Sizes(12, 3), Sizes(6, 3, 768, 384))


@dataclass
class Case:
    """One stage of one method, ready to be trained."""

    name: str
    recipe: Recipe
    teacher: Teacher
    stored: CachedTeacher | None = None


class Turn(NamedTuple):
    """Seconds of one turn: of the plain step, the teacher's pass, the live and the stored step."""

    plain: float
    teacher: float
    live: float
    stored: float | None


def model(layers: int, width: int, attention: str) -> BertForSequenceClassification:
    """BERT's shape with random weights, heads of 32, two classes."""
    config = BertConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // 32 if width == 384 else 12,
        intermediate_size=4 * width,
    )
    found: BertForSequenceClassification = BertForSequenceClassification._from_config(
        config, attn_implementation=attention
    )
    return found


def decoder(layers: int, attention: str) -> LlamaForCausalLM:
    """SmolLM2-135M's shape with random weights."""
    config = LlamaConfig(
        vocab_size=49_152,
        hidden_size=576,
        num_hidden_layers=layers,
        num_attention_heads=9,
        num_key_value_heads=3,
        intermediate_size=1536,
        tie_word_embeddings=True,
        use_cache=False,
    )
    found: LlamaForCausalLM = LlamaForCausalLM._from_config(config, attn_implementation=attention)
    return found


def cases(methods: list[str], teacher: Teacher) -> list[Case]:
    """Every stage that learns from a teacher."""
    found = []
    for method in methods:
        stages = Recipe.load(method).stages()
        for stage in stages:
            if stage.recipe.needs_teacher:
                name = f"{method}, stage {stage.number}" if len(stages) > 1 else method
                found.append(Case(name, stage.recipe, teacher))
    return found


def trainer_of(
    case: Case, student: Any, settings: Any, data: Dataset, *, stored: bool, compile: bool = False
) -> DistillationTrainer:
    """As a run makes it."""
    return DistillationTrainer(
        student,
        case.stored if stored else case.teacher,
        DistillationConfig.like(
            settings,
            objectives=case.recipe.objectives,
            curriculum=case.recipe.curriculum,
            mixup=case.recipe.mixup,
            compile=compile,
        ),
        train_dataset=data,
    )


def store_outputs(
    case: Case, objectives: Objectives, store: Store, data: Dataset, *, bf16: bool
) -> None:
    """Give the case stored teacher outputs, if its inputs allow that."""
    wanted = Ask(objectives.ever("teacher"), objectives.differences("teacher").items)
    if case.recipe.mixup is not None or objectives.sees_padding:
        return
    key = "".join(character if character.isalnum() else "-" for character in case.name)
    batches = (data[start : start + 64] for start in range(0, len(data), 64))
    device = case.teacher.device
    moved = ({name: value.to(device) for name, value in batch.items()} for batch in batches)
    with store.writing(key) as folder:
        precision = "bf16" if bf16 else "fp32"
        build(folder, case.teacher, moved, wanted, precision=precision)
    entry = store.find(key)
    assert entry is not None
    case.stored = CachedTeacher(case.teacher, entry)


def measure(
    sizes: Sizes, methods: list[str], args: argparse.Namespace, *, bf16: bool
) -> dict[str, Any]:
    """The ratios of every case, medians over its turns, and the seconds of the plain step."""
    set_seed(0)
    attention = args.attention or ("eager" if bf16 and not torch.cuda.is_available() else "sdpa")
    count = args.batch * args.steps
    data = rows(count, args.tokens).add_column("index", list(range(count)))
    student = model(sizes.student_layers, sizes.student_width, attention)
    whole = model(sizes.teacher_layers, sizes.teacher_width, attention)
    found = []
    for case in cases(methods, Teacher(whole)):
        settings = arguments(tempfile.gettempdir(), 1, 1, bf16=bf16)
        try:
            trainer = trainer_of(case, student, settings, data, stored=False)
        except LimbeckError as error:  # attention maps of other numbers of heads
            print(f"{case.name}: left out ({error})", flush=True)
            continue
        found.append((case, trainer.objectives))
    cut = {
        depth: model(depth, sizes.teacher_width, attention).to(student.device)
        for depth in {deepest(case, objectives, sizes) for case, objectives in found}
    }
    passing = [(*one, cut[deepest(*one, sizes)]) for one in found]
    return in_turns(passing, student, data, args, bf16=bf16)


def measure_decoder(args: argparse.Namespace, *, bf16: bool) -> dict[str, Any]:
    """As `measure`, of a language model that learns every token of its texts."""
    set_seed(0)
    attention = args.attention or "sdpa"
    count = args.batch * args.steps
    data = rows(count, args.tokens).add_column("index", list(range(count)))
    data = data.remove_columns("labels").add_column("labels", data["input_ids"][:].tolist())
    student, teacher = decoder(args.decoder, attention), decoder(2 * args.decoder, attention)
    recipe = Recipe.load("kd-soft", **{"objectives.soft.tokens": "top32"})
    case = Case("kd-soft, top32", recipe, Teacher(teacher))
    settings = arguments(tempfile.gettempdir(), 1, 1, bf16=bf16)
    objectives = trainer_of(case, student, settings, data, stored=False).objectives
    return in_turns([(case, objectives, teacher)], student, data, args, bf16=bf16)


def in_turns(
    found: list[tuple[Case, Any, Any]],
    student: Any,
    data: Dataset,
    args: argparse.Namespace,
    *,
    bf16: bool,
) -> dict[str, Any]:
    """The ratios of cases, each with its objectives and the teacher of the necessary pass."""
    turns: dict[str, list[Turn]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        settings = arguments(folder, args.steps, args.batch, bf16=bf16)
        store = Store(Path(folder) / "store")
        for case, objectives, _ in found:
            store_outputs(case, objectives, store, data, bf16=bf16)
        for _ in range(args.rounds):
            for case, _, teacher in found:
                plain = train(Trainer(student, settings, train_dataset=data))
                passes = teacher_forward(teacher, data, args.steps, args.batch, bf16=bf16)
                live = train(trainer_of(case, student, settings, data, stored=False))
                stored = None
                if case.stored is not None:
                    stored = median(train(trainer_of(case, student, settings, data, stored=True)))
                turn = Turn(median(plain), median(passes), median(live), stored)
                turns[case.name].append(turn)
            print(".", end="", flush=True)
    plain_seconds = median(turn.plain for own in turns.values() for turn in own)
    return {name: ratios(own) for name, own in turns.items()} | {"plain_seconds": plain_seconds}


def deepest(case: Case, objectives: Objectives, sizes: Sizes) -> int:
    """How many of the teacher's layers a live step has to run."""
    asked = objectives.ever("teacher")
    layers = [seen.layer for seen in asked.items]
    return sizes.teacher_layers if asked.logits else max([*layers, 1])


def ratios(turns: list[Turn]) -> dict[str, float | None]:
    """Live and stored over plain, and live over what it cannot do without."""
    stored = [turn.stored / turn.plain for turn in turns if turn.stored is not None]
    return {
        "live": median(turn.live / turn.plain for turn in turns),
        "stored": median(stored) if stored else None,
        "necessary": median(turn.live / (turn.plain + turn.teacher) for turn in turns),
    }


def show(title: str, found: dict[str, Any], console: Console) -> None:
    """One table a shape and precision."""
    table = Table(title=title)
    for heading in ("method", "live / plain", "stored / plain", "live / necessary"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for name, ratio in found.items():
        if isinstance(ratio, dict):
            cells = [ratio[key] for key in ("live", "stored", "necessary")]
            table.add_row(name, *("–" if cell is None else f"{cell:.3f}" for cell in cells))
    console.print(table)


def main() -> None:
    """All methods on the first shape, the main ones on the others."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--batch", type=int, default=None, help="32, of a language model 8")
    parser.add_argument("--methods", nargs="+", default=None)
    parser.add_argument("--attention", default=None, help="eager or sdpa; the faster by default")
    parser.add_argument(
        "--fp32", action="store_true", help="fp32 even where the processor has bf16"
    )
    parser.add_argument("--shapes", type=int, default=len(SHAPES), help="how many of the shapes")
    parser.add_argument("--decoder", type=int, default=0, help="layers of a language model")
    args = parser.parse_args()
    args.batch = args.batch or (8 if args.decoder else 32)
    everything = args.methods or compared()
    console = Console(width=110)
    precision = "fp32" if args.fp32 else resolve_precision("auto")
    shapes = {}
    if args.decoder:
        title = f"{Sizes(2 * args.decoder, args.decoder, 576, 576)}, language model"
        shapes[title] = measure_decoder(args, bf16=precision == "bf16")
        show(f"{title}, {precision}", shapes[title], console)
    for sizes in () if args.decoder else SHAPES[: args.shapes]:
        methods = everything if sizes == SHAPES[0] else [m for m in everything if m in MAIN]
        shapes[str(sizes)] = measure(sizes, methods, args, bf16=precision == "bf16")
        console.print()
        show(f"{sizes}, {precision}", shapes[str(sizes)], console)
    record = {
        "setting": vars(args),
        "precision": precision,
        "bar": BAR,
        "versions": versions(),
        "hardware": hardware(),
        "shapes": shapes,
    }
    write_whole(DECODER_RECORD if args.decoder else RECORD, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
