"""One table, four ways to print it: terminal, Markdown, LaTeX, CSV.

Last step of `limbeck.tables`; all four read the same grid or the same numbers.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.table import Table as RichTable
from rich.text import Text

from limbeck.support.errors import LimbeckError, unknown
from limbeck.tables.cells import Piece, caption, grid
from limbeck.tables.model import Fact, ResultsTable, TableCell

_MARKER_STYLE = {"▲": "bold green", "▼": "bold red"}


def render(table: ResultsTable, form: str = "terminal", *, width: int = 120) -> str:
    """The table as text in one of `FORMATS`; `width` in characters is for the terminal's.

    Raises LimbeckError for an unknown format.
    """
    if form not in _RENDERERS:
        raise LimbeckError(unknown("format", form, list(FORMATS)))
    if form == "terminal":
        return terminal_text(table, width)
    return _RENDERERS[form](table)


def terminal(table: ResultsTable) -> Group:
    """A rich renderable with colours: teacher dimmed, markers green and red, notes below."""
    laid_out = grid(table)
    # As Text: a console reads the brackets of a string as its own markup.
    title = Text(caption(table), style="bold")
    shown = RichTable(title=title, title_justify="left", box=SIMPLE_HEAD)
    for index, heading in enumerate(laid_out.headings):
        shown.add_column(Text(heading), justify="right" if index else "left", no_wrap=index == 0)
    for index, pieces in enumerate(laid_out.rows):
        if index in laid_out.rules:
            shown.add_section()
        student = table.rows[index].role == "student"
        shown.add_row(*map(_styled, pieces), style="" if student else "italic")
    notes = [Text(note, style="dim") for note in laid_out.notes]
    return Group(shown, *notes)


def terminal_text(table: ResultsTable, width: int = 120) -> str:
    """What `terminal` shows, as plain text."""
    console = Console(
        file=io.StringIO(),
        width=width,
        color_system=None,
        legacy_windows=False,
        markup=False,
        emoji=False,
    )
    with console.capture() as shown:
        console.print(terminal(table))
    return "\n".join(line.rstrip() for line in shown.get().splitlines()) + "\n"


def markdown(table: ResultsTable) -> str:
    """A GitHub-flavoured Markdown table with its caption above and its notes below."""
    laid_out = grid(table)
    lines = [f"**{_in_markdown(caption(table))}**", ""]
    lines.append(_markdown_line([_in_markdown(heading) for heading in laid_out.headings]))
    lines.append(_markdown_line([":---", *("---:" for _ in laid_out.headings[1:])]))
    lines += [_markdown_line([_in_markdown(p.plain) for p in row]) for row in laid_out.rows]
    lines += [line for note in laid_out.notes for line in ("", f"<sub>{_in_markdown(note)}</sub>")]
    return "\n".join(lines) + "\n"


def latex(table: ResultsTable) -> str:
    """A floating table with booktabs rules; needs `\\usepackage{booktabs}` and nothing else."""
    laid_out = grid(table)
    lines = [r"\begin{table}[t]", r"  \centering", rf"  \caption{{{_in_latex(caption(table))}}}"]
    lines.append(rf"  \begin{{tabular}}{{l{'r' * (len(laid_out.headings) - 1)}}}")
    lines.append(r"    \toprule")
    lines.append(_latex_line([_in_latex(heading) for heading in laid_out.headings]))
    lines.append(r"    \midrule")
    for index, pieces in enumerate(laid_out.rows):
        if index in laid_out.rules:
            lines.append(r"    \midrule")
        lines.append(_latex_line([_latex_piece(piece) for piece in pieces]))
    lines += [r"    \bottomrule", r"  \end{tabular}"]
    if laid_out.notes:
        lines += [r"  \par\smallskip", r"  \begin{minipage}{\linewidth}\footnotesize"]
        lines += [f"    {_in_latex(note)}\\par" for note in laid_out.notes]
        lines.append(r"  \end{minipage}")
    lines.append(r"\end{table}")
    return "\n".join(lines) + "\n"


def comma_separated(table: ResultsTable) -> str:
    """Unrounded numbers, one row a table row; notes have no place in CSV and are left out.

    Each score column gives its mean, sd, n, failed and unfinished runs, and with a baseline also
    the difference to it, the number of pairs and the Holm-corrected p; beside a paper's numbers also
    `printed`, and `printed test` of the benchmark's test files. Empty: not known.
    """
    titles = [(column.title, column.key) for column in table.columns]
    parts = ["mean", "sd", "n", "failed", "unfinished"]
    parts += ["difference", "low", "high", "pairs", "p"] if table.baseline else []
    parts += ["printed"] if table.has_printed else []
    parts += ["printed test"] if table.has_printed_test else []
    facts = [name for name in table.facts if name != "layers"]
    header = ["method", "role", "layers"]
    header += [f"{title} {part}" for title, _ in titles for part in parts]
    header += [f"average {part}" for part in parts] if table.has_average else []
    own = {
        name: ["value", *(["spread"] if name == "latency" else [])]
        + ["printed"] * any(row.facts.get(name, Fact()).printed is not None for row in table.rows)
        for name in facts
    }
    header += [
        name if part == "value" else f"{name} {part}" for name, had in own.items() for part in had
    ]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    for row in table.rows:
        cells = [row.cells[key] for _, key in titles]
        cells += [row.average] if table.has_average else []
        values: list[Any] = [row.label, row.role, row.layers]
        for cell in cells:
            numbers = _numbers(cell)
            values += [numbers[part] for part in parts]
        for name, had in own.items():
            values += [getattr(row.facts.get(name, Fact()), part) for part in had]
        writer.writerow(["" if value is None else value for value in values])
    return stream.getvalue()


def _numbers(cell: TableCell) -> dict[str, Any]:
    compared = cell.comparison
    return {
        "mean": cell.mean,
        "sd": cell.deviation,
        "n": cell.n,
        "failed": cell.failed,
        "unfinished": cell.unfinished,
        "difference": compared.difference if compared else None,
        "low": compared.low if compared else None,
        "high": compared.high if compared else None,
        "pairs": compared.pairs if compared else None,
        "p": compared.p if compared else None,
        "printed": cell.printed,
        "printed test": cell.printed_test,
    }


def _styled(piece: Piece) -> Text:
    text = Text(piece.main, style="red" if piece.main == "failed" else "")
    if piece.spread:
        text.append(f" ± {piece.spread}", style="dim")
    if piece.marker:
        text.append(f" {piece.marker}", style=_MARKER_STYLE[piece.marker])
    if piece.remark:
        text.append(f" ({piece.remark})", style="yellow")
    if piece.printed:
        text.append(f" [{piece.printed}]", style="dim cyan")
    return text


def _markdown_line(cells: Any) -> str:
    return "| " + " | ".join(cells) + " |"


def _in_markdown(text: str) -> str:
    return re.sub(r"([|<>*_`\\\[\]~&])", r"\\\1", text)


def _latex_line(cells: list[str]) -> str:
    return "    " + " & ".join(cells) + r" \\"


def _latex_piece(piece: Piece) -> str:
    spread = rf"{{\scriptsize\,$\pm$\,{piece.spread}}}" if piece.spread else ""
    marker = {"▲": r"$^{\uparrow}$", "▼": r"$^{\downarrow}$", "": ""}[piece.marker]
    remark = rf" {{\scriptsize({_in_latex(piece.remark)})}}" if piece.remark else ""
    printed = rf" {{\scriptsize[{_in_latex(piece.printed)}]}}" if piece.printed else ""
    return _in_latex(piece.main) + spread + marker + remark + printed


_LATEX = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "±": r"$\pm$",
    "→": r"$\to$",
    "−": "$-$",
    "–": "--",
    "▲": r"$\uparrow$",
    "▼": r"$\downarrow$",
    "×": r"$\times$",
}


def _in_latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


_RENDERERS: dict[str, Callable[[ResultsTable], str]] = {
    "terminal": terminal_text,
    "markdown": markdown,
    "latex": latex,
    "csv": comma_separated,
}
FORMATS = tuple(_RENDERERS)
