"""The record of `shipping.py` as one picture: score against CPU time, a panel a task.

    python benchmarks/shipping_picture.py [--out docs/assets/shipping.svg]

A line for each model, its points joined in the order torch, ONNX Runtime, int8; a point's area is its size on disk.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from shipping import read_record
from shipping_table import FORMS, NAMES, Found, lengths_of, model_name, of_length, tasks_of

OUT = Path(__file__).parents[1] / "docs" / "assets" / "shipping.svg"
_MARKERS = dict(zip(FORMS, ("o", "s", "D"), strict=True))
_TICKS = (1, 2, 5, 10, 20)
# Square points of the picture for a MiB.
_AREA = 1.2


def picture(record: dict[str, Any]) -> Figure:
    """A panel for each task of the record."""
    tasks, length = tasks_of(record), lengths_of(record)[0]
    figure = Figure(figsize=(3.2 * len(tasks), 3.6), layout="constrained")
    panels: Sequence[Axes] = figure.subplots(1, len(tasks), squeeze=False)[0]
    for axes, task in zip(panels, tasks, strict=True):
        _panel(axes, task, of_length(record[task], length), length)
    panels[0].set_ylabel("dev score")
    lines, names = panels[0].get_legend_handles_labels()
    for form, marker in _MARKERS.items():
        lines += panels[0].plot([], [], marker, color="grey", mfc="none")
        names.append(FORMS[form])
    figure.legend(lines, names, loc="outside lower center", ncols=len(names), frameon=False)
    return figure


def _panel(axes: Axes, task: str, found: Found, length: int) -> None:
    for model in dict.fromkeys(name for name, _ in found):
        mine = [(form, found[model, form]) for form in FORMS if (model, form) in found]
        times = [one.cpu_p50 or 0.0 for _, one in mine]
        scores = [one.score or 0.0 for _, one in mine]
        (line,) = axes.plot(
            times,
            scores,
            lw=1,
            label=model_name(model, task).replace("`", ""),
        )
        for (form, one), time, score in zip(mine, times, scores, strict=True):
            axes.scatter(
                [time],
                [score],
                s=_AREA * one.disk_mib,
                color=line.get_color(),
                marker=_MARKERS[form],
                alpha=0.7,
            )
    axes.set(xscale="log", xlabel=f"CPU ms, {length} tokens", title=NAMES[task])
    axes.set_xticks(_TICKS, [str(tick) for tick in _TICKS])
    axes.set_xlim(_TICKS[0], _TICKS[-1])
    axes.minorticks_off()


def main() -> None:
    """Draw it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    # Words stay words, and the same record gives the same file.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "shipping"}):
        picture(read_record()).savefig(
            args.out, metadata={"Date": None} if args.out.suffix == ".svg" else None
        )


if __name__ == "__main__":
    main()
