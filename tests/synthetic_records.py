"""Hand-made records for the tests of tables and reports: plausible shapes, chosen numbers."""

from __future__ import annotations

from typing import Any

from limbeck.records import Record
from limbeck.records.facts import Best, Cost, Epoch, Examples, Latency, ModelFacts, TeacherFacts

TEACHER_SCORE = 90.0


def a_teacher(score: float = TEACHER_SCORE, path: str = "runs/teacher") -> TeacherFacts:
    return TeacherFacts(
        path=path,
        scores={"dev": {"accuracy": score, "f1": score, "primary": score}},
        parameters=66_400_000,
        embedding_parameters=23_800_000,
        layers=12,
        hidden_size=384,
        heads=12,
        flops_per_example=2.73e9,
        latency_ms=Latency(median=20.0, spread=1.0, batch_size=1, tokens=128, threads=2),
    )


def a_student(layers: int = 3, latency: float = 5.0) -> ModelFacts:
    return ModelFacts(
        parameters=24_000_000 + layers * 1_800_000,
        embedding_parameters=12_000_000,
        layers=layers,
        hidden_size=384,
        heads=12,
        flops_per_example=layers * 2.3e8,
        latency_ms=Latency(median=latency, spread=0.4, batch_size=1, tokens=128, threads=2),
    )


def a_run(
    method: str,
    seed: int,
    score: float | None,
    *,
    task: str = "rte",
    layers: int = 3,
    epochs: int = 3,
    rows: int = 1000,
    status: str = "finished",
    teacher: TeacherFacts | None = None,
    **changes,
) -> Record:
    """One run; `score` is its accuracy and primary dev score at the end."""
    fields = _without_scores(method, seed, task, layers, epochs, rows, teacher) | {"status": status}
    if score is not None and status == "finished":
        fields |= _measured(method, seed, score, epochs)
    return Record(**(fields | changes))


def _without_scores(
    method: str,
    seed: int,
    task: str,
    layers: int,
    epochs: int,
    rows: int,
    teacher: TeacherFacts | None,
) -> dict[str, Any]:
    """What is known before a run has scores."""
    plain = method == "finetune"
    return {
        "kind": "finetune" if plain else "distill",
        "method": method,
        "task": task,
        "data": "pocket",
        "seed": seed,
        "recipe": {
            "method": method,
            "epochs": float(epochs),
            "lr": 5e-5,
            "batch_size": 32,
            "max_length": 64,
            "student": {"init": "teacher", "layers": layers, "pick": "first"},
        },
        "versions": {"limbeck": "0.1.0", "python": "3.11.9", "torch": "2.13.0"},
        "hardware": {
            "platform": "Linux 6.1 x86_64",
            "processor": "Sparrow 9000",
            "cores": 2,
            "memory_gib": 16.0,
            "accelerator": None,
            "threads": 2,
        },
        "examples": Examples(
            train=rows,
            dev=200,
            truncated={"train": 4, "dev": 1},
            fingerprints={"dev": "5eed00000000c0de"},
        ),
        "student": a_student(layers),
        "teacher": None if plain else (teacher or a_teacher()),
    }


def _measured(method: str, seed: int, score: float, epochs: int) -> dict[str, Any]:
    """What a finished run has measured."""
    plain = method == "finetune"
    return {
        "scores": {"dev": {"accuracy": score, "f1": score, "primary": score}},
        "epochs": [
            an_epoch(method, n, score - 4.0 * (epochs - n), seed) for n in range(1, epochs + 1)
        ],
        "best": Best(epoch=epochs, primary=score),
        "cost": Cost(
            total_seconds=120.0 + seed,
            student_seconds=70.0,
            teacher_seconds=0.0 if plain else 40.0,
            evaluation_seconds=8.0,
            student_flops=2.0e13,
            teacher_flops=0.0 if plain else 3.0e13,
        ),
    }


def an_epoch(method: str, number: int, score: float, seed: int) -> Epoch:
    train = {"loss": 1.2 / number, "hard": 0.7 / number}
    active = {}
    if method != "finetune":
        train["soft"] = 0.6 / number
    if method.startswith("rail"):
        train["rail"] = 0.9 / number
        first = 1 + (seed * 3 + number * 2) % 5
        active = {"rail": [[1, first], [2, first + 1 + (seed + number) % 4]]}
    return Epoch(
        epoch=number,
        step=31 * number,
        seconds=25.0,
        train=train,
        dev={"loss": 0.9 / number, "accuracy": score, "primary": score},
        active_layers=active,
    )


def a_study() -> list[Record]:
    """Three methods, two tasks, three seeds. RTE: kd is 1, 2 and 3 points above finetune."""
    scores = {
        ("finetune", "rte"): (70.0, 71.0, 72.0),
        ("kd", "rte"): (71.0, 73.0, 75.0),
        ("rail-kd-l", "rte"): (75.0, 76.1, 77.2),
        ("finetune", "sst2"): (80.0, 80.0, 80.0),
        ("kd", "sst2"): (81.0, 80.5, 81.5),
        ("rail-kd-l", "sst2"): (83.0, 83.0, 83.0),
    }
    return [
        a_run(method, seed, score, task=task)
        for (method, task), values in scores.items()
        for seed, score in enumerate(values, start=1)
    ]
