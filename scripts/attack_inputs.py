"""Feeds malformed input to the real command line and says how each piece ends.

    python scripts/attack_inputs.py                    every case, a table by kind, exit 1 if any ends badly
    python scripts/attack_inputs.py --kinds tables     some kinds
    python scripts/attack_inputs.py --quick 5          no more than so many cases of a kind
    python scripts/attack_inputs.py --processes 20     also run every twentieth case in a process of its own

An outcome is a *clear error* (exit code 2, a message with a fix, no traceback), an *accepted with a warning* where
the case allows for it, or a failure: *traceback*, *hang*, or *accepted*.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from attacks import KINDS, Case

LIMIT = 60
GOOD = ("clear error", "accepted with a warning")
OUTCOMES = (*GOOD, "accepted", "traceback", "hang")


@dataclass(frozen=True)
class Ended:
    """One case: its kind and name, how it ended, and what was said."""

    kind: str
    name: str
    outcome: str
    said: str


class TooLongError(BaseException):
    """The time limit is over; no handler of ordinary errors may catch it."""


def run_here(case: Case) -> tuple[int, str, BaseException | None]:
    """Exit code, output and exception of the command, in this process."""
    from typer.testing import CliRunner

    from limbeck.cli.app import app

    logging.getLogger("limbeck").handlers.clear()  # they hold the streams of the case before
    ended = CliRunner().invoke(app, list(case.line))
    wrong = ended.exception if not isinstance(ended.exception, SystemExit) else None
    return ended.exit_code, ended.output, wrong


def run_alone(case: Case) -> tuple[int, str, BaseException | None]:
    """As `run_here`, in a process of its own."""
    ran = subprocess.run(
        [sys.executable, "-m", "limbeck", *case.line],
        capture_output=True, text=True, errors="replace", timeout=2 * LIMIT, check=False,
    )  # fmt: skip
    said = ran.stdout + ran.stderr
    return ran.returncode, said, RuntimeError(said[-500:]) if "Traceback" in said else None


def outcome(case: Case, code: int, said: str, wrong: BaseException | None) -> str:
    """How a case ended, in one of `OUTCOMES`."""
    if wrong is not None or "Traceback" in said:
        return "traceback"
    if code == 0:
        warned = case.warned is not None and case.warned in said
        return "accepted with a warning" if warned else "accepted"
    usage = "Usage: " in said  # typer's own refusal of a flag
    return "clear error" if code == 2 and (usage or "fix: " in said) else "traceback"


def judge(kind: str, case: Case, *, alone: bool = False) -> Ended:
    """Run one case under the time limit."""

    def give_up(*_: object) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(LIMIT * (3 if alone else 1))
    said, how = "", "hang"
    try:
        code, said, wrong = run_alone(case) if alone else run_here(case)
        how = outcome(case, code, said, wrong)
        said = repr(wrong) if wrong is not None else said
        if isinstance(wrong, TooLongError):
            how = "hang"
    except (TooLongError, subprocess.TimeoutExpired):
        said = f"no answer in {LIMIT} s"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return Ended(kind, case.name, how, said.strip())


def attack(
    folder: Path, kinds: list[str], quick: int | None = None, every: int | None = None
) -> Iterator[Ended]:
    """Run the cases of some kinds, one after the other, in folders under `folder`."""
    for kind in kinds:
        home = folder / kind
        home.mkdir(parents=True)
        for number, case in enumerate(islice(KINDS[kind](home), quick)):
            yield judge(kind, case)
            if every and number % every == 0:
                yield judge(kind, case, alone=True)


def table(ended: list[Ended]) -> str:
    """Counts by kind, in Markdown."""
    lines = ["| input | cases | " + " | ".join(OUTCOMES) + " |"]
    lines.append("|:---|" + "---:|" * (len(OUTCOMES) + 1))
    for kind in [*dict.fromkeys(one.kind for one in ended), "all"]:
        own = [one for one in ended if kind in ("all", one.kind)]
        counts = Counter(one.outcome for one in own)
        numbers = " | ".join(str(counts[name]) for name in OUTCOMES)
        lines.append(f"| {kind} | {len(own)} | {numbers} |")
    return "\n".join(lines)


def main() -> int:
    """Run what the command line asks for; 1 if anything ended badly."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", nargs="*", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--quick", type=int, help="at most so many cases of a kind")
    parser.add_argument("--processes", type=int, help="also every Nth case in a process of its own")
    asked = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with tempfile.TemporaryDirectory(prefix="limbeck-attacks-") as folder:
        os.environ["LIMBECK_CACHE"] = str(Path(folder) / "cache")
        os.chdir(folder)
        ended = list(attack(Path(folder), asked.kinds, asked.quick, asked.processes))
    bad = [one for one in ended if one.outcome not in GOOD]
    print(table(ended))
    for one in bad:
        print(f"\n{one.outcome}: {one.kind}: {one.name}\n    {one.said[-400:]}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
