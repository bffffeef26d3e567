"""The thread with a loop of its own, in which an endpoint is asked."""

from __future__ import annotations

import asyncio

from limbeck.labelling.language_models.endpoint_client import LoopThread


def test_what_still_runs_is_ended_before_the_thread() -> None:
    ends = []

    async def endless():
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)
            ends.append("work")

    async def begin():
        tasks.append(asyncio.create_task(endless()))
        await asyncio.sleep(0)

    async def last():
        ends.append("last")

    tasks: list[asyncio.Task] = []
    loop = LoopThread()
    loop.run(begin())
    loop.close(last())
    loop.close(last())
    assert ends == ["work", "last"]
