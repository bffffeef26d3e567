"""Attacks limbeck on this machine and says what became of it: bad input, kills, disk, processes, flipped bits.

    python scripts/attack.py                       everything (about an hour on two cores), the page too
    python scripts/attack.py --quick               a little of everything
    python scripts/attack.py --only kills flips    these again; the others stay in the record as they are
    python scripts/attack.py --table               only print the record's table

Runs are real: `limbeck` in processes of its own, with tiny models, beside an unbroken run of the same recipe. An
attack has failed if it ends in a traceback or a hang, in a student, score or record that differs from the
unbroken run's without a word, in training again what a whole checkpoint held, or in a start after a kill that is
refused. Exit code 1 if any attack failed. The disk of limited size needs the right to mount (root); without it
those attacks are left out.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from attacks.disk import disk
from attacks.flips import flips
from attacks.inputs import inputs
from attacks.kills import kills
from attacks.place import BAD, OUTCOMES, Place, Tried
from attacks.processes import processes

ROOT = Path(__file__).parent.parent
RECORD = ROOT / "benchmarks" / "records" / "attacks.json"
PAGE = ROOT / "docs" / "trust.md"
MARK = "<!-- From here on written by scripts/attack.py. -->\n"
GROUPS: dict[str, tuple[str, Callable[..., Iterator[Tried]], dict[str, int]]] = {
    "kills": ("Stopped at a random moment, started again", kills, {"count": 6, "others": 2}),
    "flips": ("One bit flipped", flips, {"count": 6}),
    "disk": (
        "No room, or no right to write; room made, the same command again",
        disk,
        {"count": 3},
    ),
    "processes": ("Several processes, and folders that are not the run's", processes, {}),
    "inputs": ("Malformed input to the command line", inputs, {"quick": 3}),
}
"""Key → heading, attacks, and the numbers of `--quick`."""


def summary(tried: list[Tried]) -> list[dict[str, Any]]:
    """What was done → how often, and how it ended how often."""
    rows = []
    for what in dict.fromkeys(one.what for one in tried):
        ended = Counter(one.outcome for one in tried if one.what == what)
        rows.append(
            {"what": what, "tried": ended.total(), **{name: ended[name] for name in OUTCOMES}}
        )
    return rows


def table(record: dict[str, Any]) -> str:
    """The record as one table in Markdown; no count is an empty cell."""
    lines = ["| | tried | " + " | ".join(OUTCOMES) + " |", "|:---|" + "---:|" * (len(OUTCOMES) + 1)]
    for group, (heading, _, _) in GROUPS.items():
        rows = record["groups"].get(group, {}).get("rows", [])
        lines.append(_line(f"**{heading}**", rows, bold=True))
        lines += [_line(row["what"], [row]) for row in rows]
    every = [row for group in record["groups"].values() for row in group["rows"]]
    return "\n".join([*lines, _line("**all**", every, bold=True)])


def _line(name: str, rows: list[dict[str, Any]], *, bold: bool = False) -> str:
    counts = [sum(row[key] for row in rows) for key in ("tried", *OUTCOMES)]
    cells = [f"**{n}**" if bold and n else str(n or "") for n in counts]
    return f"| {name} | " + " | ".join(cells) + " |"


def _kept() -> dict[str, Any]:
    return json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.is_file() else {"groups": {}}


def _keep(record: dict[str, Any]) -> None:
    """Write the record, and its table into the page."""
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    above = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    PAGE.write_text(f"{above}{MARK}\n{table(record)}\n", encoding="utf-8")


def main() -> int:
    """Run what the command line asks for; 1 if any attack failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=list(GROUPS), default=list(GROUPS))
    parser.add_argument(
        "--quick", action="store_true", help="a little of everything; writes no record"
    )
    parser.add_argument("--seed", type=int, default=0, help="of moments and bits")
    parser.add_argument("--table", action="store_true", help="only print the record's table")
    asked = parser.parse_args()
    if asked.table:
        print(table(_kept()))
        return 0
    record: dict[str, Any] = {"groups": {}} if asked.quick else _kept()
    failed: list[Tried] = []
    with tempfile.TemporaryDirectory(prefix="limbeck-attack-") as folder:
        place = Place.build(Path(folder) / "place")
        for group in asked.only:
            began, tried = time.monotonic(), []
            _, attacks, fewer = GROUPS[group]
            for one in attacks(place, seed=asked.seed, **(fewer if asked.quick else {})):
                tried.append(one)
                mark = "FAILED" if one.outcome == BAD else "ok"
                said = f": {one.said[-1500:]}" if one.outcome == BAD else ""
                print(
                    f"{mark}: {group}: {one.what}: {one.outcome}{said}", file=sys.stderr, flush=True
                )
            failed += [one for one in tried if one.outcome == BAD]
            record = record if asked.quick else _kept()  # others may have written theirs
            record["groups"][group] = {
                "rows": summary(tried),
                "seed": asked.seed,
                "seconds": round(time.monotonic() - began),
                "limbeck": metadata.version("limbeck"),
                "python": platform.python_version(),
                "system": platform.system(),
            }
            if not asked.quick:
                _keep(record)
    print(table(record))
    for one in failed:
        print(f"\nFAILED: {one.group}: {one.what}\n    {one.said[-1500:]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
