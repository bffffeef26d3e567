"""Many teachers on real SST-2: one sampled a step, together, chained; over teams of other sizes and capacities.

Eight teachers on 10,000 training rows: the pretrained encoder's first 2, 3, 4 and 6 layers, fine-tuned, and four of
half its width, distilled from the largest. One student, the encoder's first 3 layers. From each teacher alone
(`kd-soft`: the students that student-rank makes), and from all of them by every method of several; SKD over nested
teams (SKDBERT, Table 5) and over teams of alike and of wide capacity (Table 4); SKD with as many passes as the others,
and with the paper's 5/3 of them, which the labels alone and WKD get too.

    python benchmarks/team_study.py --model MINILM_DIR --data GLUE_DIR [--work DIR] [--seeds 3]

Resumable, the whole team first. The records as the paper has them: `python benchmarks/team_tables.py`; as one table,
with tests: `limbeck table benchmarks/records/team_study.jsonl.gz --baseline 'kd-soft wide-6'`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from study import Cell, Study

COMMON: dict[str, Any] = {
    "task": "sst2",
    "batch_size": 32,
    "lr": 1e-4,
    "precision": "auto",
    "attention": "eager",
    # Every teacher is asked once for all runs.
    "cache": "always",
}
DEPTHS = (2, 3, 4, 6)
HALF = {"hidden_size": 192, "num_attention_heads": 6, "intermediate_size": 768}
TEAM = tuple(f"{width}-{depth}" for width in ("narrow", "wide") for depth in DEPTHS)
LARGEST = TEAM[-1]
# Nested, from the largest teacher alone to all, and of alike against wide capacity.
TEAMS = {
    "top-2": TEAM[-2:],
    "top-4": TEAM[-4:],
    "top-6": TEAM[-6:],
    "narrow": TEAM[:4],
    "spread": (TEAM[0], TEAM[3], TEAM[4], TEAM[7]),
}
NESTED = tuple(name for name in TEAMS if name.startswith("top"))
SKD = ("skd-uniform", "skd-teacher-rank", "skd-student-rank", "skd-adaptive")
TOGETHER = ("wkd-uniform", "wkd-teacher-rank", "wkd-student-rank", "mt-bert")
PASSES, SKD_PASSES = 1, 5 / 3


def teacher_cells(args: argparse.Namespace) -> list[list[Cell]]:
    """The largest first: it makes the narrow ones."""
    base = {**COMMON, "data": args.data, "train_rows": args.rows, "seed": 1, "epochs": 3}
    wide = [
        Cell(
            f"teacher-wide-{depth}",
            "finetune",
            {**base, "student.init": args.model, "student.pick": "first", "student.layers": depth},
        )
        for depth in reversed(DEPTHS)
    ]
    narrow = [
        Cell(
            f"teacher-narrow-{depth}",
            "kd",
            {
                **base,
                "teacher": str(args.work / f"teacher-{LARGEST}"),
                "student.init": "fresh",
                "student.layers": depth,
                "student.config": HALF,
                "epochs": 4,
                "lr": 5e-4,
            },
        )
        for depth in DEPTHS
    ]
    return [wide, narrow]


def student_cells(seed: int, args: argparse.Namespace) -> list[list[list[Cell]]]:
    """One seed of the comparison over all teachers, of SKD over parts of the team, and of the others over them.

    In each, those that others build on come first.
    """
    base = {
        **COMMON,
        "data": args.data,
        "train_rows": args.rows,
        "seed": seed,
        "epochs": PASSES,
        "student.init": args.model,
        "student.layers": 3,
        "student.pick": "first",
    }

    def folders(team: tuple[str, ...]) -> list[str]:
        return [str(args.work / f"teacher-{name}") for name in team]

    def several(method: str, team: tuple[str, ...], **changes: Any) -> dict[str, Any]:
        given = {**base, "teachers": folders(team), **changes}
        if "student-rank" in method:
            shared = str(args.work / f"students-s{seed}")
            given |= {"team.student_runs": shared, "team.student_epochs": PASSES}
        return given

    def cell(label: str, method: str, settings: dict[str, Any], cost: float = 1.0) -> Cell:
        return Cell(f"{label.replace(' ', '-')}-s{seed}", method, settings, cost, label)

    ranked, others = (
        [cell(f"{method} all", method, several(method, TEAM)) for method in (*SKD, *TOGETHER)
         if ("student-rank" in method) is students]
        for students in (True, False)
    )  # fmt: skip

    def over(teams: Iterable[str], methods: Iterable[str]) -> list[Cell]:
        return [
            cell(f"{method} {name}", method, several(method, TEAMS[name]))
            for name in teams
            for method in methods
        ]

    longer = [
        cell(f"{method} longer", method, several(method, TEAM, epochs=SKD_PASSES))
        for method in (*SKD, TOGETHER[0])
    ]
    # What the passes alone are worth.
    longer.append(cell("finetune longer", "finetune", {**base, "epochs": SKD_PASSES}))
    chain = [cell("takd all", "takd", several("takd", TEAM), len(TEAM))]
    chains = [
        cell(f"takd {name}", "takd", several("takd", TEAMS[name]), len(TEAMS[name]))
        # The first without the narrow ones, which have no pretrained form to start from as an assistant.
        for name in ("top-4", "top-2", "top-6")
    ]
    alone = cell("finetune", "finetune", base)
    # The first makes the students of each teacher alone, which the others of student-rank find when they come.
    return [
        [[ranked[0]], [alone, *others], chain, ranked[1:]],
        [over(TEAMS, SKD), chains[:1], longer, over(TEAMS, TOGETHER[:1])],
        [over(NESTED, TOGETHER[1:]), chains[1:]],
    ]


def keep_students(study: Study, seed: int) -> None:
    """The students made for student-rank are `kd-soft` from each teacher alone."""
    for name in TEAM:
        run = study.work / f"students-s{seed}" / f"teacher-{name}"
        study.keep(run, f"kd-soft-{name}-s{seed}", f"kd-soft {name}")


def main() -> None:
    """Teachers, then all seeds over the whole team, then over parts of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="folder of the pretrained 6-layer encoder")
    parser.add_argument("--data", required=True, help="GLUE folder")
    parser.add_argument("--work", type=Path, default=Path("runs/team_study"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=10_000, help="training rows")
    args = parser.parse_args()
    study = Study("team_study", args.work)
    for cells in teacher_cells(args):
        study.run(cells)
        study.wait_for(cells)
    by_seed = [student_cells(seed, args) for seed in range(1, args.seeds + 1)]
    for parts in zip(*by_seed, strict=True):
        for seed, part in enumerate(parts, start=1):
            for cells in part:
                study.run(cells)
                keep_students(study, seed)


if __name__ == "__main__":
    main()
