"""How fast an endpoint is asked and how much that may cost, whatever is open at the same time."""

from __future__ import annotations

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import openai
import pytest

from limbeck.labelling.language_models import EndpointSettings
from limbeck.labelling.language_models.endpoint_client import EndpointClient, Pace, RowFailedError
from limbeck.labelling.language_models.endpoint_settings import (
    LabellingStoppedError,
    Spending,
    size_of,
)

PRICED = {"price_in": 1e6, "price_out": 1e6}  # a token costs 1
SHORT, LONG = {"prompt": "x" * 4}, {"prompt": "x" * 400}


class Server:
    """Answers after a while; of what it is asked it knows no more than the tokens that it takes.

    Attributes:
        times: seconds from the beginning on at which it was asked.
        faults: what becomes of the first requests instead.
    """

    def __init__(self, *faults: Exception, read: int = 1, seconds: float = 0.02) -> None:
        self.times: list[float] = []
        self.faults, self.read, self.seconds = list(faults), read, seconds
        self._began = time.monotonic()
        self._lock = threading.Lock()

    def post(self, path, *, cast_to, body):
        with self._lock:
            self.times.append(time.monotonic() - self._began)
            fault = self.faults.pop(0) if self.faults else None
        if fault:
            raise fault
        time.sleep(self.seconds)
        usage = {"prompt_tokens": self.read, "completion_tokens": 0}
        return {"usage": usage, "choices": ["one"]}


def client(server: Server, **settings) -> EndpointClient:
    made = EndpointClient(EndpointSettings(url="http://x/v1", model="m", **settings))
    made._client = server
    return made


def failed(status: int, **headers: str) -> openai.APIStatusError:
    names = {name.lower(): value for name, value in headers.items()}
    response = SimpleNamespace(status_code=status, headers=names, request=None)
    return openai.APIStatusError("no", response=response, body=None)


def all_of(made: EndpointClient, request: dict, count: int, **options) -> list:
    """Answers or errors of so many requests, as many at a time as the settings say."""

    def one(_: int):
        try:
            return made.send(request, **options)
        except Exception as error:
            return error

    with ThreadPoolExecutor(made.settings.concurrency) as pool:
        return [*pool.map(one, range(count))]


# ---- how fast ----


def test_a_pause_is_kept_by_requests_that_wait_for_their_moment() -> None:
    server = Server(failed(429, **{"Retry-After": "0.6"}))
    made = client(server, concurrency=8, requests_per_minute=1200)
    all_of(made, SHORT, 8)
    first, *others = server.times
    assert len(others) == 8 and min(others) - first >= 0.6
    # Nor do they all begin when it is over.
    assert max(others) - first >= 0.6 + 7 * 0.05 - 0.001


def test_a_pause_is_kept_also_if_the_request_is_not_repeated() -> None:
    server = Server(failed(503, **{"Retry-After": "0.4"}))
    found = all_of(client(server, concurrency=1), SHORT, 2, retries=0)
    assert [isinstance(one, RowFailedError) for one in found] == [True, False]
    assert server.times[1] - server.times[0] >= 0.4


def test_a_longer_pause_stays_and_moments_are_apart_behind_it() -> None:
    pace, began = Pace(1200), time.monotonic()  # one in 0.05 s
    pace.pause(0.3)
    pace.pause(0.1)  # which ends earlier
    times = []
    for _ in range(3):
        pace.wait()
        times.append(time.monotonic() - began)
    assert 0.3 <= times[0] < 0.45
    assert times[1] - times[0] >= 0.04 and times[2] - times[0] >= 0.09


def test_without_a_limit_nobody_waits() -> None:
    pace, began = Pace(None), time.monotonic()
    for _ in range(1000):
        pace.wait()
    assert time.monotonic() - began < 0.5


# ---- how much ----


def said(error: Exception) -> float:
    """What an error says was spent."""
    return float(re.search(r"\((\S+) spent", str(error))[1])


def test_open_requests_do_not_exceed_the_limit_together() -> None:
    server = Server(read=2)
    made = client(server, concurrency=16, max_cost=1500, **PRICED)
    # A short one says nothing of what long ones cost.
    made.send(SHORT)
    server.read = 390
    found = all_of(made, LONG, 40)
    answered = [one for one in found if not isinstance(one, Exception)]
    assert len(answered) == 3 and made.spending.cost == 2 + 3 * 390
    errors = [one for one in found if isinstance(one, Exception)]
    assert {type(one) for one in errors} == {LabellingStoppedError}
    assert {said(one) for one in errors} == {1172}


def test_what_is_set_aside_stops_nothing_while_it_may_yet_be_given_back() -> None:
    made = client(Server(read=100), concurrency=8, max_cost=1000, **PRICED)
    found = all_of(made, LONG, 6)
    assert not [one for one in found if isinstance(one, Exception)]
    assert made.spending.cost == 600


def test_what_fails_gives_back_what_was_set_aside_for_it() -> None:
    made = client(Server(failed(400), read=390), concurrency=1, max_cost=500, **PRICED)
    found = all_of(made, LONG, 2)
    assert [isinstance(one, RowFailedError) for one in found] == [True, False]


def test_nothing_is_sent_that_does_not_fit() -> None:
    server = Server()
    (error,) = all_of(client(server, max_cost=400, **PRICED), LONG, 1)
    assert isinstance(error, LabellingStoppedError) and not server.times
    assert "max_cost: 400.0 is reached (0 spent, and the next request may cost 432)" in str(error)


def fits(spending: Spending, size: tuple[int, int]) -> bool:
    try:
        most = spending.begin(size)
    except LabellingStoppedError:
        return False
    spending.end(most, size, None)
    return True


@pytest.mark.parametrize(
    ("size", "used", "another", "most"),
    [
        ((10, 1), (5, 1), (20, 2), 20 + 5 + 2),
        # No more can stand around a prompt than the shortest has tokens.
        ((10, 1), (60, 1), (20, 2), 20 + 60 + 2),
        # Longer than the request allows.
        ((10, 4), (5, 10), (20, 8), 20 + 5 + 20),
        # The server does not say it.
        ((10, 1), (0, 0), (20, 2), 20 + 32 + 2),
    ],
)
def test_what_a_request_may_cost_by_hand(size, used, another, most) -> None:
    for limit, fitting in ((most, True), (most - 1, False)):
        given = EndpointSettings(
            url="http://x", model="m", max_cost=limit + sum(used), price_in=1e6, price_out=1e6
        )
        spending = Spending(given)
        spending.end(spending.begin((-32, 0)), size, used)
        assert fits(spending, another) == fitting


def test_the_size_of_a_request() -> None:
    messages = [{"content": "é"}, {"content": "ab"}]
    assert size_of({"messages": messages, "max_tokens": 7, "n": 3}) == (4, 21)
    assert size_of({"prompt": "a", "max_completion_tokens": 7}) == (1, 7)
    assert size_of({"prompt": "\ud800"}) == (1, 0)
