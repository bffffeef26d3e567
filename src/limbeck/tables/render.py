"""One table, four ways to print it: terminal, Markdown, LaTeX, CSV.

Last step of `limbeck.tables`; all four read the same grid or the same numbers.
"""

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.table import Table as RichTable
from rich.text import Text

from limbeck.support.cells import NOTHING, CellTable, in_markdown, milliseconds, one_line
from limbeck.support.errors import check_choice
from limbeck.support.words import count_of
from limbeck.tables.facts import FACTS
from limbeck.tables.model import Fact, ResultsTable, Row, TableCell


@dataclass(frozen=True)
class Piece:
    """One printed cell: the number, its spread, the test's marker, and notes."""

    main: str
    spread: str = ""
    marker: str = ""
    remark: str = ""
    printed: str = ""
    """A paper's number of the same cell."""

    @property
    def plain(self) -> str:
        """The cell in one line of plain text."""
        spread = f"± {self.spread}" if self.spread else ""
        remark = f"({self.remark})" if self.remark else ""
        printed = f"[{self.printed}]" if self.printed else ""
        return " ".join(part for part in (self.main, spread, self.marker, remark, printed) if part)


@dataclass(frozen=True)
class Grid:
    """Headings and rows of pieces, each of one line; a rule goes above each row index in `rules`."""

    headings: tuple[str, ...]
    rows: tuple[tuple[Piece, ...], ...]
    rules: frozenset[int]
    notes: tuple[str, ...] = ()


def grid(table: ResultsTable) -> Grid:
    """Method, layers, one column a task, the average, then the other facts."""
    with_layers = "layers" in table.facts
    others = [name for name in table.facts if name != "layers"]
    headings = ["method", *(["layers"] if with_layers else [])]
    headings += [column.title for column in table.columns]
    headings += ["average"] if table.has_average else []
    headings += [FACTS[name].title for name in others]
    depths = {row.layers for row in table.rows if row.role == "student"}
    usual = table.usual_n
    rows = []
    for row in table.rows:
        say_depth = not with_layers and len(depths) > 1 and row.layers is not None
        label = f"{row.label} ({count_of(row.layers or 0, 'layer')})" if say_depth else row.label
        pieces = [Piece(one_line(label))]
        if with_layers:
            pieces.append(Piece(str(row.layers) if row.layers is not None else NOTHING))
        for column in table.columns:
            pieces.append(score_piece(row.cells[column.key], row, usual))
        if table.has_average:
            pieces.append(score_piece(row.average, row, row.average.n))
        pieces += [fact_piece(name, row.facts.get(name, Fact())) for name in others]
        rows.append(tuple(pieces))
    rules = {
        index
        for index in range(1, len(table.rows))
        if _section(table.rows[index]) != _section(table.rows[index - 1])
    }
    return Grid(
        tuple(map(one_line, headings)),
        tuple(rows),
        frozenset(rules),
        tuple(map(one_line, table.notes)),
    )


def score_piece(cell: TableCell, row: Row, usual_n: int) -> Piece:
    """A score cell; it mentions runs that failed or have not ended."""
    remarks = []
    if row.role == "student" and cell.n not in (0, usual_n):
        remarks.append(f"n = {cell.n}")
    if cell.marker and cell.comparison and cell.comparison.pairs < cell.comparison.runs:
        remarks.append(f"{cell.comparison.pairs} paired")
    if cell.failed:
        remarks.append(f"{cell.failed} failed")
    if cell.unfinished:
        remarks.append(f"{cell.unfinished} unfinished")
    remark = ", ".join(remarks)
    printed = cell.printed or ""
    if cell.printed_test is not None:
        printed = f"{cell.printed or NOTHING} / {cell.printed_test}"
    if cell.mean is None:
        if cell.failed and not cell.unfinished:
            return Piece("failed", printed=printed)
        return Piece(NOTHING, remark=remark, printed=printed)
    spread = "" if cell.deviation is None else f"{cell.deviation:.1f}"
    return Piece(f"{cell.mean:.1f}", spread, cell.marker, remark, printed)


def fact_piece(name: str, fact: Fact) -> Piece:
    """A fact cell in its own unit."""
    printed = fact.printed or ""
    if fact.value is None:
        return Piece(NOTHING, printed=printed)
    if name == "latency":
        return Piece(*milliseconds(fact.value, fact.spread), printed=printed)
    return Piece(FACTS[name].text(fact.value), printed=printed)


def caption(table: ResultsTable) -> str:
    """The table's title, and the profile if its scores follow one."""
    title = one_line(table.title) or "Scores"
    return f"{title} (profile {table.profile})" if table.follows_profile else title


def _section(row: Row) -> tuple[str, int | None]:
    return row.role, row.layers if row.role == "student" else None


_MARKER_STYLE = {"▲": "bold green", "▼": "bold red"}


def render(table: ResultsTable, form: str = "terminal", *, width: int = 120) -> str:
    """The table as text in one of `FORMATS`; `width` in characters is for the terminal's.

    Raises LimbeckError for an unknown format.
    """
    check_choice("format", form, FORMATS)
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
    shown = io.StringIO()
    Console(file=shown, width=width, color_system=None, emoji=False).print(terminal(table))
    return "\n".join(line.rstrip() for line in shown.getvalue().splitlines()) + "\n"


def markdown(table: ResultsTable) -> str:
    """A GitHub-flavoured Markdown table with its caption above and its notes below."""
    laid_out = grid(table)
    rows = [[piece.plain for piece in row] for row in laid_out.rows]
    cells = CellTable("", [[*laid_out.headings], *rows])
    lines = [f"**{in_markdown(caption(table))}**", "", cells.markdown()]
    lines += [line for note in laid_out.notes for line in ("", f"<sub>{in_markdown(note)}</sub>")]
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
    the difference to it, the number of pairs and the Holm-corrected p; with a paper's numbers also
    `printed`, and `printed test` of the benchmark's test files. Empty: not known.
    """
    rows = [_unrounded(row, table) for row in table.rows]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, [*rows[0]], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def _unrounded(row: Row, table: ResultsTable) -> dict[str, Any]:
    values: dict[str, Any] = {"method": row.label, "role": row.role, "layers": row.layers}
    cells = {column.title: row.cells[column.key] for column in table.columns}
    for title, cell in (cells | {"average": row.average} if table.has_average else cells).items():
        values |= {f"{title} mean": cell.mean, f"{title} sd": cell.deviation, f"{title} n": cell.n}
        values |= {f"{title} failed": cell.failed, f"{title} unfinished": cell.unfinished}
        for part in ("difference", "low", "high", "pairs", "p") if table.baseline else ():
            values[f"{title} {part}"] = getattr(cell.comparison, part, None)
        values |= {f"{title} printed": cell.printed} if table.has_printed else {}
        values |= {f"{title} printed test": cell.printed_test} if table.has_printed_test else {}
    for name in table.facts:
        fact = row.facts.get(name, Fact())
        values |= {name: fact.value} if name != "layers" else {}
        values |= {f"{name} spread": fact.spread} if name == "latency" else {}
        if any(other.facts.get(name, Fact()).printed is not None for other in table.rows):
            values[f"{name} printed"] = fact.printed
    return values


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
