"""What an export does at the moment: a bar with the time left on a terminal, else a line for each phase."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import Progress, TaskID

from limbeck.support.terminal import step_bar


class ExportProgress:
    """A line on standard error for each phase; used as a context."""

    def __init__(self, *, shown: bool) -> None:
        self.console = Console(stderr=True, quiet=not shown, markup=False, emoji=False)
        self.bar: Progress | None = None
        self.task: TaskID | None = None

    def __enter__(self) -> ExportProgress:
        if not self.console.quiet and self.console.is_terminal:
            self.bar = step_bar(self.console)
            self.bar.start()
        return self

    def phase(self, name: str, total: int | None) -> Callable[[int], None]:
        """Begin another phase of so many steps (None: nobody knows); returns what moves the bar."""
        if self.bar is None:
            self.console.print(name)
            return lambda done: None
        bar = self.bar
        if self.task is not None:
            bar.remove_task(self.task)
        task = self.task = bar.add_task(name, total=total)
        return lambda done: bar.advance(task, done)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.bar is not None:
            self.bar.stop()
