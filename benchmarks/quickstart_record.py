"""Keep the records of a finished quickstart, which the README's first table is made of.

make quickstart
python benchmarks/quickstart_record.py [runs/quickstart]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from limbeck.lab.quickstart import STUDENTS, run_name
from study import Study


def main() -> None:
    """In place of those of an earlier one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, nargs="?", default=Path("runs/quickstart"))
    out = parser.parse_args().out.resolve()
    study = Study("quickstart", out)
    study.records.unlink(missing_ok=True)
    study.keep(out / "teacher", "teacher")
    for label in STUDENTS:
        seed = 1
        while (run := out / run_name(label, seed)).exists():
            study.keep(run, run.name, label)
            seed += 1


if __name__ == "__main__":
    main()
