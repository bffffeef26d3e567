"""An endpoint that fails: what is tried again, what ends the work at once, what is only one row's, and the limits."""

from __future__ import annotations

import socket
import time
from contextlib import suppress

import pytest

from faulty_proxy import dropped, fine, halved, slow, status
from limbeck.labelling.language_models.endpoint import EndpointLabeller, LabellingStoppedError
from limbeck.labelling.language_models.endpoint_settings import EndpointSettings
from limbeck.labelling.language_models.prompt import Prompt, bind_prompt
from limbeck.support.errors import LimbeckError
from limbeck.teachers.labeller import RowsMissingError

ROWS = [{"sentence": f"film {number}"} for number in range(6)]


def labeller(url, **settings):
    prompt = Prompt(
        template="{text}\nIs:",
        verbalizations={"negative": "bad", "positive": "good"},
        calibrate=False,
    )
    given = {"url": url, "model": "tiny"}
    given |= {} if settings.get("mode") == "votes" else {"top_logprobs": 1000}
    bound = bind_prompt(prompt, ("negative", "positive"), ("sentence",))
    journals = settings.pop("journals", None)
    return EndpointLabeller(EndpointSettings(**(given | settings)), bound, journals=journals)


def holding(text, fault):
    """The fault where a request holds some text."""
    return lambda handler, body: text in str(body) and fault(handler, body)


# ---- tried again ----


@pytest.mark.parametrize(
    "fault",
    [status(500), status(503), status(429), status(408), dropped],
    ids=["500", "503", "429", "408", "dropped"],
)
def test_what_may_succeed_later_is_tried_again(proxy, fault) -> None:
    with labeller(proxy.url, concurrency=2) as made:
        count = len(proxy.bodies)
        proxy.turns = [fault, fine, fault, fault]
        assert len(made.score(ROWS)["logits"]) == len(ROWS)
        assert len(proxy.bodies) == count + len(ROWS) + 3


def test_half_of_an_answer_is_none(proxy) -> None:
    with labeller(proxy.url, concurrency=1) as made:
        proxy.turns = [halved]
        with pytest.raises(RowsMissingError):
            made.score(ROWS[:1])
        assert len(made.score(ROWS[:1])["logits"]) == 1


def test_a_slow_answer_is_asked_again(proxy) -> None:
    with labeller(proxy.url, timeout=0.5, concurrency=1) as made:
        proxy.turns, count = [slow(1.0)], len(proxy.bodies)
        made.score(ROWS[:2])
        assert len(proxy.bodies) == count + 3


def test_retry_after_is_honoured(proxy) -> None:
    with labeller(proxy.url, concurrency=1) as made:
        count = len(proxy.times)
        proxy.turns = [status(429, headers={"Retry-After": "0.6"})]
        made.score(ROWS[:1])
    assert proxy.times[count + 1] - proxy.times[count] >= 0.55


# ---- one row ----


def test_a_row_that_keeps_failing_is_missing_and_asked_again(proxy) -> None:
    with labeller(proxy.url, retries=2) as made:
        proxy.always = holding("film 3", status(500, "broken"))
        with pytest.raises(
            RowsMissingError, match="1 row has no outputs: HTTP 500: broken"
        ) as caught:
            made.score(ROWS)
        assert list(caught.value.reasons) == [3]
        proxy.always = fine
        count = len(proxy.bodies)
        assert len(made.score(ROWS)["logits"]) == len(ROWS)
        assert len(proxy.bodies) == count + 1


def test_a_row_that_is_refused_is_not_tried_again(proxy) -> None:
    with labeller(proxy.url) as made:
        proxy.always = holding("film 3", status(400, "context length exceeded"))
        count = len(proxy.bodies)
        with pytest.raises(RowsMissingError, match="HTTP 400: context length exceeded"):
            made.score(ROWS)
        assert len(proxy.bodies) == count + len(ROWS)


# ---- a server that goes down ----


@pytest.mark.parametrize(
    "fault",
    [
        dropped,
        *(
            pytest.param(fault, marks=pytest.mark.slow)
            for fault in (status(500, "ill"), status(429, "busy"))
        ),
    ],
)
def test_a_server_that_goes_down_ends_the_work_and_is_no_fault_of_the_rows(proxy, fault) -> None:
    rows = [{"sentence": f"film {number}"} for number in range(60)]
    with labeller(proxy.url, concurrency=2, retries=1) as made:
        count = len(proxy.bodies)
        proxy.turns, proxy.always = [fine, fine], fault
        with pytest.raises(LabellingStoppedError, match="endpoint http"):
            made.score(rows)
        # Two rows twice and what says nothing three times; some other rows are on their way meanwhile.
        assert len(proxy.bodies) < count + len(rows)
        proxy.always, count = fine, len(proxy.bodies)
        assert len(made.score(rows)["logits"]) == len(rows)
        assert len(proxy.bodies) == count + len(rows) - 2


def test_rows_that_break_a_server_one_after_another_are_what_is_missing(proxy) -> None:
    """Rows come in order of length: those that are too long for a server come together."""
    with labeller(proxy.url, concurrency=2, retries=0) as made:
        proxy.always = lambda handler, body: (
            "film 5" not in str(body) and holding("film", status(500, "too long"))(handler, body)
        )
        with pytest.raises(RowsMissingError) as caught:
            made.score(ROWS)
        assert sorted(caught.value.reasons) == [0, 1, 2, 3, 4]


# ---- the end at once ----


@pytest.mark.parametrize(
    ("fault", "message", "fix"),
    [
        (status(401, "wrong key sk-very-secret"), "HTTP 401: wrong key …", "OPENAI_API_KEY"),
        (status(403, "not yours"), "HTTP 403: not yours", "may use the model"),
        (status(404, "no such model"), "HTTP 404: no such model", "--model tiny"),
        (status(429, "pay", code="insufficient_quota"), "HTTP 429: pay", "no credit left"),
        (status(400, "unknown model"), "HTTP 400: unknown model", "check --model tiny"),
        (status(500, "ill"), "HTTP 500: ill", "run the same command again later"),
        (status(429, "busy"), "HTTP 429: busy", "run the same command again later"),
    ],
    ids=["401", "403", "404", "quota", "400", "500", "429"],
)
def test_what_concerns_all_rows_is_said_before_any_work(
    proxy, fault, message, fix, monkeypatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    proxy.always = fault
    with pytest.raises(LimbeckError) as caught:
        labeller(proxy.url)
    assert message in str(caught.value) and fix in str(caught.value)
    assert "secret" not in str(caught.value)
    assert len(proxy.bodies) <= 8


@pytest.mark.slow
def test_a_server_that_is_too_slow_is_told_the_limit(proxy) -> None:
    proxy.always = slow(0.6)
    with pytest.raises(LimbeckError, match=r"no answer within 0\.2 s \(--timeout\)") as caught:
        labeller(proxy.url, timeout=0.2)
    assert "--timeout" in caught.value.problems[0].fix
    proxy.always = holding("film 3", slow(1.0))
    with (
        labeller(proxy.url, timeout=0.5, retries=0) as made,
        pytest.raises(RowsMissingError, match=r"no answer within 0\.5 s \(--timeout\)"),
    ):
        made.score(ROWS)


def test_nobody_is_there(monkeypatch) -> None:
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(LimbeckError, match="check the URL and that the server runs"):
        labeller(f"http://127.0.0.1:{port}/v1")


def test_a_key_that_is_withdrawn_ends_the_work_and_keeps_what_was_answered(proxy) -> None:
    with labeller(proxy.url, concurrency=1) as made:
        proxy.turns = [fine, fine]
        proxy.always = status(401)
        with pytest.raises(LimbeckError, match="HTTP 401"):
            made.score(ROWS)
        proxy.always, count = fine, len(proxy.bodies)
        made.score(ROWS)
        assert len(proxy.bodies) == count + len(ROWS) - 2


def test_wrong_settings_are_named_together(monkeypatch) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    settings = {"max_cost": 1.0, "api_key_env": "NO_SUCH_KEY"}
    with pytest.raises(LimbeckError) as caught:
        labeller("ftp://user:word@somewhere", **settings)
    said = " ".join(problem.message for problem in caught.value.problems)
    assert len(caught.value.problems) == 3 and "word" not in said.replace("password", "")
    assert "no plain URL" in said and "NO_SUCH_KEY is not set" in said and "tokens cost" in said


# ---- no OpenAI-compatible endpoint ----


def answered(content: str, kind: str = "application/json"):
    """200, whatever it is."""

    def answer(handler, body):
        handler.send_response(200)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(content.encode())))
        handler.end_headers()
        handler.wfile.write(content.encode())
        return True

    return answer


PAGE = "<!doctype html>\n<title>Please sign in</title>" + "<p>sk-very-secret</p>" * 30


@pytest.mark.parametrize("mode", ["logprobs", "votes"])
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (answered(PAGE, "text/html"), "<!doctype html> <title>Please sign in</title><p>…</p>"),
        (answered(PAGE), "<!doctype html> <title>Please sign in</title><p>…</p>"),
        (answered('{"choices": []}'), '{"choices":[]}'),
        (answered('{"choices": null}'), '{"choices":null}'),
        (answered('{"choices": "one"}'), '{"choices":"one"}'),
        (answered('{"status": "ok", "usage": {}}'), '"status":"ok"'),
        (answered('{"usage": "none"}'), '"usage":"none"'),
        (answered("[]"), "'[]'"),
        (answered("null"), "'null'"),
    ],
    ids=["html", "html as json", "empty", "null", "text", "other", "usage", "list", "nothing"],
)
def test_what_does_not_speak_the_protocol_is_named(proxy, fault, said, mode, monkeypatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    proxy.always = fault
    with pytest.raises(LimbeckError) as caught:
        labeller(proxy.url, mode=mode)
    (problem,) = caught.value.problems
    assert f"endpoint {proxy.url} does not answer in OpenAI's format: " in problem.message
    assert said in problem.message and len(problem.message) < 300
    assert "secret" not in problem.message
    assert problem.fix == "most URLs end in /v1; check --endpoint"
    assert len(proxy.bodies) <= 3


@pytest.mark.parametrize("choice", ["null", "{}", '"one"', '{"message": null}'])
@pytest.mark.parametrize("mode", ["logprobs", "votes"])
def test_a_choice_that_says_nothing_is_no_answer(proxy, choice, mode) -> None:
    with labeller(proxy.url, mode=mode) as made:
        proxy.always = answered(f'{{"choices": [{choice}]}}')
        with pytest.raises(RowsMissingError, match=r"listed no tokens|names a class"):
            made.score(ROWS[:1])


def test_a_page_in_the_midst_of_the_work_ends_it(proxy) -> None:
    with labeller(proxy.url, concurrency=1) as made:
        count = len(proxy.bodies)
        proxy.turns, proxy.always = [fine, fine], answered(PAGE, "text/html")
        with pytest.raises(LimbeckError, match="does not answer in OpenAI's format") as caught:
            made.score(ROWS)
        assert not isinstance(caught.value, RowsMissingError)
        assert len(proxy.bodies) == count + 3


def test_an_answer_without_choices_is_one_rows_and_not_asked_again(proxy) -> None:
    filtered = answered('{"error": {"message": "filtered"}}')
    with labeller(proxy.url) as made:
        count = len(proxy.bodies)
        proxy.always = holding("film 3", filtered)
        with pytest.raises(RowsMissingError, match=r"1 row has no outputs: .*filtered") as caught:
            made.score(ROWS)
        assert list(caught.value.reasons) == [3]
        assert len(proxy.bodies) == count + len(ROWS)


# ---- servers that lack something ----


def without(*names):
    """A server that refuses requests with these parameters."""

    def refuse(handler, body):
        found = [name for name in names if name in body]
        return bool(found) and status(400, f"unsupported parameter: {found[0]}")(handler, body)

    return refuse


def test_a_server_without_log_probabilities_is_asked_for_votes(proxy) -> None:
    proxy.always = without("logprobs")
    with labeller(proxy.url, votes=2) as made:
        assert made.mode == "votes"
    with pytest.raises(LimbeckError, match="unsupported parameter: logprobs"):
        labeller(proxy.url, mode="logprobs")


def test_a_server_that_lists_few_tokens(proxy) -> None:
    def few(handler, body):
        return body.get("top_logprobs", 0) > 5 and status(422, "top_logprobs: at most 5")(
            handler, body
        )

    proxy.always = few
    with labeller(proxy.url) as made:
        assert (made.mode, made.fingerprint()["top_logprobs"]) == ("logprobs", 5)


def test_a_server_that_takes_one_plain_question_at_a_time(proxy) -> None:
    proxy.always = without("n", "response_format", "seed", "max_tokens")
    with labeller(proxy.url, mode="votes", votes=3) as made:
        assert made.refused == {"n", "response_format", "seed", "max_tokens"}
        count = len(proxy.bodies)
        # Without a seed nobody knows what an untaught model writes: seldom, but sometimes, a class.
        with suppress(RowsMissingError):
            made.score(ROWS[:1])
        assert len(proxy.bodies) == count + 3


def test_separate_votes_have_seeds_of_their_own(proxy) -> None:
    proxy.always = without("n")
    with labeller(proxy.url, mode="votes", votes=3, seed=5) as made:
        count = len(proxy.bodies)
        made.score(ROWS[:1])
    assert sorted(body["seed"] for body in proxy.bodies[count:]) == [5, 6, 7]


def test_a_vote_that_is_refused_is_said_of_its_row(proxy) -> None:
    refuse = without("n")
    proxy.always = lambda handler, body: (
        refuse(handler, body) or (body.get("seed") == 6 and status(400, "filtered")(handler, body))
    )
    with (
        labeller(proxy.url, mode="votes", votes=3, seed=5) as made,
        pytest.raises(RowsMissingError, match="1 row has no outputs: HTTP 400: filtered"),
    ):
        made.score(ROWS[:1])


def test_votes_that_all_fail_say_why(proxy) -> None:
    refuse = without("n")
    proxy.always = lambda handler, body: (
        refuse(handler, body) or ("film 0" in str(body) and status(400, "filtered")(handler, body))
    )
    with (
        labeller(proxy.url, mode="votes", votes=3) as made,
        pytest.raises(RowsMissingError, match="1 row has no outputs: HTTP 400: filtered"),
    ):
        made.score(ROWS[:2])


# ---- limits ----


@pytest.mark.slow
def test_separate_votes_are_requests_at_a_time_too(proxy) -> None:
    refuse = without("n")
    proxy.always = lambda handler, body: refuse(handler, body) or slow(0.05)(handler, body)
    with labeller(proxy.url, mode="votes", votes=3, concurrency=2) as made:
        made.score(ROWS[:2])
    assert proxy.most == 2


def test_votes_on_their_way_when_the_limit_is_reached_are_counted(proxy, tmp_path) -> None:
    proxy.always = without("n")
    priced = {"price_in": 1e6, "price_out": 1e6, "journals": tmp_path, "mode": "votes", "votes": 3}
    with labeller(proxy.url, **priced) as made:
        each = made.costs()["cost"]
    with labeller(proxy.url, max_cost=7 * each, **priced) as made:
        with pytest.raises(LabellingStoppedError, match="is reached"):
            made.score(ROWS)
        spent = made.spent_before + made.costs()["cost"]
    with labeller(proxy.url, max_cost=100 * each, **priced) as made:
        assert made.spent_before == pytest.approx(spent)


def test_no_more_requests_at_a_time_than_asked_for(proxy) -> None:
    proxy.always = slow(0.05)
    with labeller(proxy.url, concurrency=3) as made:
        made.score(ROWS)
    assert proxy.most == 3


@pytest.mark.slow
def test_requests_keep_their_distance(proxy) -> None:
    with labeller(proxy.url, requests_per_minute=600) as made:
        made.score(ROWS)
    times = sorted(proxy.times)
    assert times[-1] - times[0] >= (len(times) - 1) * 0.1 - 0.05


def test_the_cost_limit_stops_at_it_and_can_be_raised(proxy, tmp_path) -> None:
    priced = {"price_in": 1e6, "price_out": 1e6, "journals": tmp_path, "concurrency": 1}
    with labeller(proxy.url, **priced) as made:
        each = made.costs()["cost"]
    limit = 4.5 * each
    with labeller(proxy.url, max_cost=limit, **priced) as made:
        with pytest.raises(LabellingStoppedError, match="is reached"):
            made.score(ROWS)
        spent = made.spent_before + made.costs()["cost"]
        # The request that was open when the limit was reached is paid too.
        assert limit <= spent <= limit + each
        answered = len(made.journal)
        assert 0 < answered < len(ROWS)
    with labeller(proxy.url, max_cost=100 * each, **priced) as made:
        assert made.spent_before == pytest.approx(spent)
        count = len(proxy.bodies)
        assert len(made.score(ROWS)["logits"]) == len(ROWS)
        assert len(proxy.bodies) == count + len(ROWS) - answered


def test_a_loop_of_the_callers_own_may_run(proxy) -> None:
    import asyncio

    async def work():
        with labeller(proxy.url) as made:
            return made.score(ROWS[:1])

    began = time.monotonic()
    assert len(asyncio.run(work())["logits"]) == 1
    assert time.monotonic() - began < 30
