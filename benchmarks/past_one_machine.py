"""How long each part of a distillation takes for up to 10⁹ rows, by the rates that other records hold.

    python benchmarks/past_one_machine.py

Prints the table of docs/past-one-machine.md. Measures nothing: the rates are those of `many_rows.py`, `many_labels.py`,
`predict_speed.py`, `language_model_teachers.py` and `end_to_end.py`, each on one machine with two cores.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RECORDS = Path(__file__).parent / "records"
POWERS = {6: "10⁶", 7: "10⁷", 8: "10⁸", 9: "10⁹"}
_UNITS = (("days", 86_400), ("hours", 3_600), ("minutes", 60), ("seconds", 1))


def rates() -> dict[str, tuple[str, float]]:
    """The benchmark and the rows in a second of each part."""
    rows, labels = _read("many_rows"), _read("many_labels")
    told, trained = _read("language_model_teachers"), _read("end_to_end")
    predicted = _read("predict_speed")["ways"]["limbeck, torch"]["rows_per_second"]
    passes = trained["setting"]["epochs"] * trained["tasks"]["sst2"]["rows"]
    return {
        "read a Parquet file": ("many_rows", rows["rows"] / rows["reading_seconds"]),
        "write a store, without the teacher": (
            "many_labels",
            labels["rows"] / labels["seconds"]["labelling"],
        ),
        "label, a 6-layer encoder": ("predict_speed", predicted),
        "label, a language model with a prompt": (
            "language_model_teachers",
            told["speed"]["rows_per_second"]["reused"],
        ),
        "train a 3-layer student, each epoch": (
            "end_to_end",
            passes / trained["tasks"]["sst2"]["seconds"]["ours"],
        ),
    }


def table() -> list[str]:
    """The page's table, line by line."""
    lines = [
        f"| part | measured by | rows/s | {' | '.join(f'{name} rows' for name in POWERS.values())} |",
        "| --- | --- | ---: " + "| ---: " * len(POWERS) + "|",
    ]
    for part, (benchmark, rate) in rates().items():
        times = (said(10**power / rate) for power in POWERS)
        lines.append(f"| {part} | `{benchmark}.py` | {_two(rate)} | {' | '.join(times)} |")
    return lines


def said(seconds: float) -> str:
    """Two digits, in the largest unit that leaves at least one."""
    unit, length = next((one for one in _UNITS if seconds >= one[1]), _UNITS[-1])
    return f"{_two(seconds / length)} {unit}"


def _two(number: float) -> str:
    return f"{float(f'{number:.2g}'):,.{1 if number < 9.95 else 0}f}"


def _read(name: str) -> Any:
    return json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))


if __name__ == "__main__":
    print("\n".join(table()))
