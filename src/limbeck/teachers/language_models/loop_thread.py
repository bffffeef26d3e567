"""An event loop in a thread of its own, for work that callers wait for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

Made = TypeVar("Made")


class LoopThread:
    """An event loop of its own: connections stay open between calls, and callers may have a loop running."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Made]) -> Made:
        """Its result; interrupted, it is cancelled."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """End what still runs, do one last thing, and end the thread; once closed, nothing."""
        if self._loop.is_closed():
            last.close()
            return
        try:
            self.run(self._finish(last))
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _finish(self, last: Coroutine[Any, Any, None]) -> None:
        # Of what was interrupted, requests may still be open.
        running = asyncio.all_tasks() - {asyncio.current_task()}
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await last
