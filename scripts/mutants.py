"""Sampled mutation testing of the core: how many small changes to the code do the tests notice?

    python scripts/mutants.py --sample 150 --jobs 2 --out build/mutants.json

Places and operators are cosmic-ray's. Places are drawn evenly (not operators, of which an addition has
ten and a `not` has one), one operator each. A mutant is killed when any test of its package fails or takes
too long; those that survive are printed with their change, to be killed by a test, or to be entered
in `scripts/mutants_unseen.json` with the reason why nobody can see them.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import difflib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Queue

import cosmic_ray.plugins
from cosmic_ray.ast import ast_nodes, get_ast_from_path
from cosmic_ray.mutating import mutate_code

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("src/limbeck")
UNSEEN = ROOT / "scripts" / "mutants_unseen.json"

# What is mutated, and the tests that are to notice, the quickest first.
CORE: dict[str, tuple[str, ...]] = {
    "functional": ("tests/functional", "tests/objectives", "tests/trust/papers"),
    "mappings": ("tests/mappings", "tests/objectives"),
    "schedules.py": ("tests/test_schedules.py", "tests/objectives"),
    "objectives": (
        "tests/objectives",
        "tests/mappings",
        "tests/trust/papers",
        "tests/trust/releases",
        "tests/trust/results/test_given_terms.py",
        "tests/tasks/test_kept_tokens.py",
    ),
    "activations": ("tests/activations", "tests/objectives"),
}
# What a mutant that lived meets too: checks and warnings of the core are tested from there.
ALSO = (
    "tests/recipe",
    "tests/preflight",
    "tests/training",
    "tests/students",
    "tests/trust/results/test_methods_from_python.py",
)
# Only what computes: the text of an error, a type and a decorator are not the core's behaviour.
LEFT_OUT = ("core/RemoveDecorator", "core/ExceptionReplacer", "core/VariableReplacer")
# Enough for the slowest of these test groups many times over.
LIMIT_S = 900


@dataclass(frozen=True)
class Mutant:
    """One change: the `occurrence`-th place of an operator in a file."""

    file: str
    line: int
    operator: str
    occurrence: int


@dataclass(frozen=True)
class Outcome:
    """What became of it."""

    mutant: Mutant
    killed: bool
    seconds: float
    change: str


def places(file: Path) -> Iterator[tuple[tuple[int, int], str, int]]:
    """(line and column, operator, occurrence) of all mutants of a file, types left out."""
    tree = get_ast_from_path(ROOT / file)
    silent = list(_silent(ast.parse((ROOT / file).read_text(encoding="utf-8"))))
    for name in cosmic_ray.plugins.operator_names():
        operator_class = cosmic_ray.plugins.get_operator(name)
        if name in LEFT_OUT or operator_class.arguments():
            continue
        operator = operator_class()
        found = (
            start for node in ast_nodes(tree) for start, _ in operator.mutation_positions(node)
        )
        for occurrence, start in enumerate(found):
            if not any(first <= start < last for first, last in silent):
                yield start, name, occurrence


def _silent(tree: ast.Module) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Where annotations, the texts of errors and decorators stand."""
    for node in ast.walk(tree):
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if isinstance(part, ast.expr):
                yield _span(part)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield _span(node)
        # What an f-string puts into a message.
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("LimbeckError", "Problem"):
            yield from (_span(part) for part in node.args)
        yield from (_span(one) for one in getattr(node, "decorator_list", ()))


def _span(node: ast.expr | ast.stmt) -> tuple[tuple[int, int], tuple[int, int]]:
    return (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)


def drawn(sample: int, seed: int, groups: list[str]) -> list[Mutant]:
    """Places drawn evenly over the core, one operator at each."""
    at: dict[tuple[str, tuple[int, int]], list[tuple[str, int]]] = {}
    for group in groups:
        base = ROOT / PACKAGE / group
        files = [base] if base.is_file() else sorted(base.rglob("*.py"))
        for file in files:
            for start, operator, occurrence in places(file.relative_to(ROOT)):
                place = (str(file.relative_to(ROOT)), start)
                at.setdefault(place, []).append((operator, occurrence))
    generator = random.Random(seed)
    chosen = generator.sample(sorted(at), min(sample, len(at)))
    mutants = []
    for file, (line, column) in chosen:
        operator, occurrence = generator.choice(at[file, (line, column)])
        mutants.append(Mutant(file, line, operator, occurrence))
    return mutants


def mutated(mutant: Mutant) -> tuple[str, str]:
    """The file's text before and after."""
    before = (ROOT / mutant.file).read_text(encoding="utf-8")
    operator = cosmic_ray.plugins.get_operator(mutant.operator)()
    after = mutate_code(before, operator, mutant.occurrence)
    assert after is not None, mutant
    return before, after


def tests_of(file: str) -> tuple[str, ...]:
    """The tests that are to notice a change of a file."""
    group = Path(file).relative_to(PACKAGE).parts[0]
    return CORE[group]


def run(mutant: Mutant, copy: Path) -> Outcome:
    """Run a mutant's tests in a copy of the project."""
    before, after = mutated(mutant)
    target = copy / mutant.file
    target.write_text(after, encoding="utf-8")
    started = time.monotonic()
    try:
        killed = not (_tests_pass(copy, tests_of(mutant.file)) and _tests_pass(copy, ALSO))
    finally:
        target.write_text(before, encoding="utf-8")
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    change = "\n".join(
        line for line in lines if line[:3] not in ("---", "+++") and line[:2] != "@@"
    )
    return Outcome(mutant, killed, round(time.monotonic() - started, 1), change)


def _tests_pass(copy: Path, tests: tuple[str, ...]) -> bool:
    """Whether all tests pass, within the limit."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        *tests,
    ]
    environment = os.environ | {
        "PYTHONPATH": str(copy / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    quiet = subprocess.DEVNULL
    # In a group of its own, so that a hanging test's own processes end with it.
    process = subprocess.Popen(
        command, cwd=copy, env=environment, stdout=quiet, stderr=quiet, start_new_session=True
    )
    try:
        return process.wait(LIMIT_S) == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def copied(folder: Path) -> Path:
    """The project's tracked files in a folder of their own."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        source = ROOT / name
        if source.is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, folder / name)
    return folder


def reasons() -> dict[str, str]:
    """Why a mutant changes nothing that can be seen, by file, operator and change."""
    return json.loads(UNSEEN.read_text(encoding="utf-8")) if UNSEEN.exists() else {}


def key(outcome: Outcome) -> str:
    """What a reason is entered under: it outlives other lines of the file."""
    change = " → ".join(line[1:].strip() for line in outcome.change.splitlines())
    return f"{outcome.mutant.file}: {change}"


def main() -> None:
    """Draw, run, print, write; end with 1 where fewer die than `--least`."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sample", type=int, default=150, help="mutants to draw")
    parser.add_argument("--seed", type=int, default=0, help="which are drawn")
    parser.add_argument("--jobs", type=int, default=2, help="mutants tested side by side")
    parser.add_argument("--only", nargs="*", choices=list(CORE), default=list(CORE))
    parser.add_argument("--least", type=float, default=93.0, help="per cent that have to die")
    parser.add_argument("--out", type=Path, help="JSON file for the outcomes")
    options = parser.parse_args()
    mutants = drawn(options.sample, options.seed, options.only)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        copies: Queue[Path] = Queue()
        for number in range(options.jobs):
            copies.put(copied(Path(folder) / str(number)))

        def one(mutant: Mutant) -> Outcome:
            copy = copies.get()
            try:
                return run(mutant, copy)
            finally:
                copies.put(copy)

        # Groups share tests: each runs once.
        of_groups = [test for group in options.only for test in CORE[group]]
        tests = tuple(dict.fromkeys((*of_groups, *ALSO)))
        if not _tests_pass(copies.queue[0], tests):
            sys.exit(f"tests fail without any change: pytest -x {' '.join(tests)}")
        outcomes = []
        for number, outcome in enumerate(pool.map(one, mutants), 1):
            outcomes.append(outcome)
            said = "killed" if outcome.killed else "SURVIVED"
            where = f"{outcome.mutant.file}:{outcome.mutant.line}"
            print(f"{number}/{len(mutants)} {said} in {outcome.seconds} s  {where}", flush=True)
    _report(outcomes, options.least, options.out)


def _report(outcomes: list[Outcome], least: float, out: Path | None) -> None:
    known = reasons()
    alive = [one for one in outcomes if not one.killed and key(one) not in known]
    excused = sum(not one.killed and key(one) in known for one in outcomes)
    for one in alive:
        print(f"\n{one.mutant.file}:{one.mutant.line}  {one.mutant.operator}\n{one.change}")
    counted = len(outcomes) - excused
    share = 100 * (counted - len(alive)) / max(counted, 1)
    print(
        f"\n{counted - len(alive)} of {counted} mutants killed: {share:.1f} % ({excused} cannot be seen)"
    )
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps([asdict(one) for one in outcomes], indent=1), encoding="utf-8")
    if share < least:
        sys.exit(f"fewer than {least} %")


if __name__ == "__main__":
    main()
