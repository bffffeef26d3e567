"""Record what the commands and the trainer do today, so that a change of the code shows what else it has changed.

    python tests/net/net.py record OUT.json [--only PATTERN …] [--jobs 2]
    python tests/net/net.py compare [--close] A.json B.json

`net_cases` says what is recorded. With --only, entries of the cases that a pattern names take the place of those in
OUT.json, and the others stay.
"""

# ruff: noqa: E402
from __future__ import annotations

import argparse
import difflib
import fnmatch
import gc
import json
import math
import multiprocessing
import os
import pkgutil
import platform
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
for folder in (HERE.parent, HERE):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

import numpy
import torch
import transformers as hf
from net_cases import CASES, Entry, digest, scrubbed

import limbeck
from blank_drawings import draw

REFERENCE = HERE / "reference.json"


def about() -> dict[str, str]:
    """What the last bit of a number depends on."""
    cpu = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    found = [re.search(rf"^{name}\s*: (.*)$", cpu, re.M) for name in ("model name", "flags")]
    name, flags = (one[1] if one else platform.processor() for one in found)
    narrowed = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_CBWR")
    return {
        "processor": name,
        "flags": digest(sorted(flags.split())),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "environment": " ".join(f"{key}={os.environ[key]}" for key in narrowed if key in os.environ),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": hf.__version__,
        "numpy": numpy.__version__,
    }  # fmt: skip


def found_in(name: str) -> tuple[str, Entry]:
    """Run one case in an empty folder, and say what went wrong if anything did."""
    gc.freeze()  # each training collects all garbage, for which it looks in all that has been imported
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    draw(False)  # nothing of a drawing is recorded
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="net-") as folder:
        os.chdir(folder)
        os.environ["LIMBECK_CACHE"] = f"{folder}/cache"
        try:
            return name, CASES[name]()
        except Exception as error:
            return name, {"close": {"failed": scrubbed(f"{type(error).__name__}: {error}")}, "exact": {}}  # fmt: skip
        finally:
            os.chdir(before)


def recorded(patterns: Sequence[str] = ("*",), jobs: int = 1) -> dict[str, Any]:
    """Every case that a pattern names; each in a process that nothing else has run in."""
    names = [name for name in CASES if any(fnmatch.fnmatch(name, one) for one in patterns)]
    # What is loaded already need not be loaded by each; the server that forks them looks for it by this path alone.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["net_cases", *of_limbeck(), *LAZY])
    with context.Pool(jobs, maxtasksperchild=1) as pool:
        found = {}
        for name, entry in pool.imap_unordered(found_in, names):
            found[name] = plain(entry)
            print(f"{len(found)}/{len(names)} {name}", file=sys.stderr)
    return {"about": about(), "cases": found}


LAZY = ("matplotlib.backends.backend_svg", "matplotlib.figure", "sklearn.linear_model")


def of_limbeck() -> list[str]:
    """Every module; those that want what is not installed are passed over."""
    found = pkgutil.walk_packages(limbeck.__path__, "limbeck.")
    return [one.name for one in found if not one.name.endswith("__main__")]


def print_found(names: Sequence[str]) -> None:
    """The same of a few cases in this process, as JSON."""
    print(json.dumps({"about": about(), "cases": {n: plain(found_in(n)[1]) for n in names}}))


def plain(value: Any) -> Any:
    """Numbers of six digits: what a reader compares; digests have the others."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value


def written_as(value: Any, indent: str = "") -> str:
    """JSON with sorted keys; what fits on a line stands on one."""
    short = json.dumps(value, sort_keys=True, ensure_ascii=False)
    if len(indent) + len(short) <= 180 or not isinstance(value, dict | list):
        return short
    deeper = f"{indent} "
    if isinstance(value, dict):
        said = {key: json.dumps(key, ensure_ascii=False) for key in sorted(value)}
        parts = [f"{name}: {written_as(value[key], deeper)}" for key, name in said.items()]
    else:
        parts = [written_as(one, deeper) for one in value]
    opened, closed = "{}" if isinstance(value, dict) else "[]"
    return f"{opened}\n{deeper}" + f",\n{deeper}".join(parts) + f"\n{indent}{closed}"


CLOSE = 1e-3
# Its angles between words of so small a teacher move by 2.3 % with SSE's rounding in the place of AVX-512's. On one
# processor they once moved by 6.7 %.
ILL_CONDITIONED = {"recipe/contextual-kd": 0.1}


def differences(one: Any, other: Any, place: str = "", close: bool = False) -> Iterator[str]:
    """A line for each value that differs, and one for each that only one has."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            there = f"{place} › {key}" if place else key
            if key not in other:
                yield f"{there}: gone; was {json.dumps(one[key], ensure_ascii=False):.200}"
            elif key not in one:
                yield f"{there}: new: {json.dumps(other[key], ensure_ascii=False):.200}"
            else:
                yield from differences(one[key], other[key], there, close)
    elif isinstance(one, list) and {type(line) for line in (*one, *(other or ()))} == {str}:
        if one != other:
            lines = difflib.unified_diff(one, other, lineterm="", n=0)
            told = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
            yield "\n    ".join([f"{place}:", *told])
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, pair in enumerate(zip(one, other, strict=True)):
            yield from differences(*pair, f"{place}[{number}]", close)
    elif close and isinstance(one, float | int) and isinstance(other, float | int):
        bound = ILL_CONDITIONED.get(place.partition(" › ")[0], CLOSE)
        if not math.isclose(one, other, rel_tol=bound, abs_tol=1e-5):
            yield f"{place}: {one} → {other}"
    elif one != other:
        yield f"{place}:\n    - {one}\n    + {other}"


def compared(one: dict[str, Any], other: dict[str, Any], close: bool | None = None) -> list[str]:
    """What differs; by closeness alone if that is asked for, or processor or torch are others."""
    if close is None:
        close = one["about"] != other["about"]
    views = [
        {name: entry["close"] if close else entry for name, entry in found["cases"].items()}
        for found in (one, other)
    ]
    return list(differences(*views, close=close))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record", help="run the cases, and write or renew their entries")
    record.add_argument("out", type=Path)
    record.add_argument("--only", nargs="+", metavar="PATTERN", help="recipe/kd*, errors*, …")
    record.add_argument("--jobs", type=int, default=1)
    compare = commands.add_parser("compare", help="print what differs between two records")
    compare.add_argument("--close", action="store_true", default=None, help="but for rounding")
    compare.add_argument("one", type=Path)
    compare.add_argument("other", type=Path)
    given = parser.parse_args()
    if given.command == "record":
        found = recorded(given.only or ["*"], given.jobs)
        if given.only and given.out.exists():
            kept = json.loads(given.out.read_text())
            if kept["about"] != found["about"]:
                parser.error(f"{given.out} is of another processor or torch: record all of it")
            found["cases"] = kept["cases"] | found["cases"]
        given.out.write_text(written_as(found) + "\n")
        return 0
    lines = compared(
        *(json.loads(file.read_text()) for file in (given.one, given.other)), given.close
    )
    print("\n".join(lines) or "no difference")
    return 1 if lines else 0


if __name__ == "__main__":
    raise SystemExit(main())
