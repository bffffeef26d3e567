"""How fast an endpoint is asked and how much that may cost, whatever is open at the same time."""

from __future__ import annotations

import asyncio
import re
import time
from types import SimpleNamespace

import openai
import pytest

from limbeck.labelling.language_models import EndpointSettings
from limbeck.labelling.language_models.endpoint_client import EndpointClient, Pace
from limbeck.labelling.language_models.endpoint_errors import LabellingStoppedError, RowFailedError
from limbeck.labelling.language_models.endpoint_spending import RequestSize, Spending

PRICED = {"price_in": 1e6, "price_out": 1e6}  # a token costs 1
SHORT, LONG = RequestSize(prompt=4, answers=0), RequestSize(prompt=400, answers=0)


def client(**settings) -> EndpointClient:
    return EndpointClient(EndpointSettings(url="http://x/v1", model="m", **settings))


class Server:
    """Answers after a while; of what it is asked it knows no more than the tokens that it takes.

    Attributes:
        times: seconds from the beginning on at which it was asked.
        faults: what becomes of the first requests instead.
    """

    def __init__(self, *faults: Exception, seconds: float = 0.02) -> None:
        self.times: list[float] = []
        self.faults, self.seconds = list(faults), seconds
        self._began = time.monotonic()

    def seconds_since(self) -> float:
        """Its beginning."""
        return time.monotonic() - self._began

    def asked(self, read: int, written: int = 0):
        async def ask():
            self.times.append(self.seconds_since())
            if self.faults:
                raise self.faults.pop(0)
            await asyncio.sleep(self.seconds)
            usage = SimpleNamespace(prompt_tokens=read, completion_tokens=written)
            return SimpleNamespace(usage=usage)

        return ask


def failed(status: int, **headers: str) -> openai.APIStatusError:
    names = {name.lower(): value for name, value in headers.items()}
    response = SimpleNamespace(status_code=status, headers=names, request=None)
    return openai.APIStatusError("no", response=response, body=None)


async def all_of(made: EndpointClient, size: RequestSize, ask, count: int, **options) -> list:
    sent = (made.send(ask, size, **options) for _ in range(count))
    return await asyncio.gather(*sent, return_exceptions=True)


# ---- how fast ----


def test_a_pause_is_kept_by_requests_that_wait_for_their_moment() -> None:
    made = client(concurrency=8, requests_per_minute=1200)
    server = Server(failed(429, **{"Retry-After": "0.6"}))
    asyncio.run(all_of(made, SHORT, server.asked(1), 8))
    first, *others = server.times
    assert len(others) == 8 and min(others) - first >= 0.6
    # Nor do they all begin when it is over.
    assert max(others) - first >= 0.6 + 7 * 0.05 - 0.001


def test_a_pause_is_kept_also_if_the_request_is_not_repeated() -> None:
    made = client(concurrency=1)
    server = Server(failed(503, **{"Retry-After": "0.4"}))
    found = asyncio.run(all_of(made, SHORT, server.asked(1), 2, retries=0))
    assert [isinstance(one, RowFailedError) for one in found] == [True, False]
    assert server.times[1] - server.times[0] >= 0.4


def test_a_pause_by_hand() -> None:
    now = [0.0]
    pace = Pace(60, clock=lambda: now[0])
    assert [pace.book(), pace.book()] == [0, 1]
    pace.pause(5)
    pace.pause(3)  # which ends earlier
    assert [pace.book(), pace.book()] == [5, 6]
    now[0] = 4.9
    assert pace.paused
    now[0] = 5.0
    assert not pace.paused


def test_tokens_are_guessed_from_answers_and_not_from_what_is_open() -> None:
    made = client(concurrency=8, tokens_per_minute=600_000)  # such a request every 0.1 s
    size, server = RequestSize(prompt=4000, answers=1), Server(seconds=0.5)
    faults = [failed(500)] * 3

    async def work():
        await made.send(server.asked(1000), size)
        server.faults = faults
        await all_of(made, size, server.asked(1000), 3, retries=0)
        began = server.seconds_since()
        await all_of(made, size, server.asked(1000), 8)
        return server.times[-1] - began

    # Who waits may wake late, and never early.
    assert asyncio.run(work()) >= 7 * 0.1 - 0.001
    assert not faults


# ---- how much ----


def said(error: Exception) -> float:
    """What an error says was spent."""
    return float(re.search(r"\((\S+) spent", str(error))[1])


def test_open_requests_do_not_exceed_the_limit_together() -> None:
    made, server = client(concurrency=16, max_cost=1500, **PRICED), Server()

    async def work():
        # A short one says nothing of what long ones cost.
        await made.send(server.asked(2), SHORT)
        return await all_of(made, LONG, server.asked(390), 40)

    found = asyncio.run(work())
    answered = [one for one in found if not isinstance(one, Exception)]
    assert len(answered) == 3 and made.spending.cost == 2 + 3 * 390
    errors = [one for one in found if isinstance(one, Exception)]
    assert {type(one) for one in errors} == {LabellingStoppedError}
    assert {said(one) for one in errors} == {1172}


def test_what_is_set_aside_stops_nothing_while_it_may_yet_be_given_back() -> None:
    made, server = client(concurrency=8, max_cost=1000, **PRICED), Server()
    found = asyncio.run(all_of(made, LONG, server.asked(100), 6))
    assert not [one for one in found if isinstance(one, Exception)]
    assert made.spending.cost == 600


def test_what_fails_gives_back_what_was_set_aside_for_it() -> None:
    made, server = client(concurrency=1, max_cost=500, **PRICED), Server(failed(400))
    found = asyncio.run(all_of(made, LONG, server.asked(390), 2))
    assert [isinstance(one, RowFailedError) for one in found] == [True, False]


def test_nothing_is_sent_that_does_not_fit() -> None:
    made, server = client(max_cost=400, **PRICED), Server()
    (error,) = asyncio.run(all_of(made, LONG, server.asked(1), 1))
    assert isinstance(error, LabellingStoppedError) and not server.times
    assert "max_cost: 400.0 is reached (0 spent, and the next request may cost 432)" in str(error)


def fits(spending: Spending, size: RequestSize) -> bool:
    try:
        most = asyncio.run(spending.begin(size))
    except LabellingStoppedError:
        return False
    spending.end(most, size, None)
    return True


@pytest.mark.parametrize(
    ("size", "used", "another", "most"),
    [
        (RequestSize(10, 1), (5, 1), RequestSize(20, 2), 20 + 5 + 2),
        # More than a token for each byte stands around it.
        (RequestSize(10, 1), (60, 1), RequestSize(20, 2), 20 + 60 + 2),
        # Longer than the request allows.
        (RequestSize(10, 4), (5, 10), RequestSize(20, 8), 20 + 5 + 20),
        # The server does not say it.
        (RequestSize(10, 1), (0, 0), RequestSize(20, 2), 20 + 32 + 2),
    ],
)
def test_what_a_request_may_cost_by_hand(size, used, another, most) -> None:
    for limit, fitting in ((most, True), (most - 1, False)):
        given = EndpointSettings(
            url="http://x", model="m", max_cost=limit + sum(used), price_in=1e6, price_out=1e6
        )
        spending = Spending(given)
        spending.end(_open(spending), size, used)
        assert fits(spending, another) == fitting


def _open(spending: Spending) -> tuple[int, int]:
    """A request that is open, whatever it costs."""
    return asyncio.run(spending.begin(RequestSize(-32, 0)))


def test_the_size_of_a_request() -> None:
    assert RequestSize.of(["é", "ab"], {"max_tokens": 7, "n": 3}) == RequestSize(4, 21)
    assert RequestSize.of(["a"], {"max_completion_tokens": 7}) == RequestSize(1, 7)
    assert RequestSize.of(["\ud800"], {}) == RequestSize(1, 0)
