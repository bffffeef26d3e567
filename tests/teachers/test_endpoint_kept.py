"""What an endpoint answered and what that cost: kept at once, taken first, and counted towards the limit."""

from __future__ import annotations

import json

import pytest

from faulty_proxy import faulty_proxy, status
from limbeck.labelling.language_models.answers import AnswerJournal
from limbeck.labelling.language_models.endpoint import EndpointLabeller, LabellingStoppedError
from limbeck.labelling.language_models.endpoint_settings import EndpointSettings
from limbeck.labelling.language_models.prompt import Prompt, bind_prompt
from limbeck.support.errors import LimbeckError
from limbeck.teachers.labeller import RowsMissingError

ROWS = [{"sentence": f"film {number}"} for number in range(4)]
PRICED = {"price_in": 1e6, "price_out": 1e6}  # a token costs 1
VOTES = {"mode": "votes", "votes": 5}


def voting(said="good", many=True):
    """A server that lists no log-probabilities, where a character is a token; it may give one answer to a request."""

    def answer(handler, body) -> bool:
        if "n" in body and not many:
            return status(400, "n")(handler, body)
        text = said(body) if callable(said) else said
        made = {
            "id": "1", "object": "chat.completion", "created": 0, "model": "tiny",
            "choices": [
                {"index": at, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
                for at in range(body.get("n", 1))
            ],
            "usage": {"prompt_tokens": len(body["messages"][0]["content"]), "completion_tokens": 1, "total_tokens": 9},
        }  # fmt: skip
        handler.reply(200, json.dumps(made).encode(), {})
        return True

    return answer


@pytest.fixture
def proxy(monkeypatch):
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0)
    with faulty_proxy("http://127.0.0.1:9/v1") as made:
        made.always = voting()
        yield made


def labeller(url, folder, **settings):
    words = {"negative": "bad", "positive": "good"}
    prompt = Prompt(template="{text}\nIs:", verbalizations=words)
    bound = bind_prompt(prompt, ("negative", "positive"), ("sentence",))
    given = {"url": url, "model": "tiny", "concurrency": 2} | PRICED | settings
    return EndpointLabeller(EndpointSettings(**given), bound, journals=folder)


def spent(made) -> float:
    return made.spent_before + made.costs()["cost"]


# ---- what it cost ----


@pytest.mark.parametrize(
    "other", [{"votes": 3}, {"temperature": 0.5}, {"seed": 7}, {"mode": "auto"}, {"votes": 1}]
)
def test_what_other_settings_cost_counts_towards_the_limit(proxy, tmp_path, other, caplog) -> None:
    with labeller(proxy.url, tmp_path, **VOTES) as made:
        made.score(ROWS)
        before = spent(made)
    with labeller(proxy.url, tmp_path, **(VOTES | other), max_cost=1000) as made:
        assert made.spent_before == before
        assert f"{before:.4g} of 1000 were spent before" in caplog.text
    count = len(proxy.bodies)
    with pytest.raises(LabellingStoppedError, match="is reached"):
        labeller(proxy.url, tmp_path, **(VOTES | other), max_cost=before)
    assert len(proxy.bodies) == count  # not even the first request


def test_what_another_prompt_or_model_cost_does_not_count(proxy, tmp_path) -> None:
    with labeller(proxy.url, tmp_path, **VOTES):
        pass
    with labeller(proxy.url, tmp_path, **VOTES, model="other") as made:
        assert made.spent_before == 0


def test_what_is_asked_of_a_server_that_is_of_no_use_counts_too(proxy, tmp_path) -> None:
    with pytest.raises(LimbeckError, match="no log-probabilities"):
        labeller(proxy.url, tmp_path, mode="logprobs")
    with labeller(proxy.url, tmp_path, **VOTES) as made:
        assert made.spent_before > 0


def test_what_rows_without_a_label_cost_is_written_at_once(proxy, tmp_path) -> None:
    with labeller(proxy.url, tmp_path, **VOTES) as made:
        proxy.always = voting("neither")
        with pytest.raises(RowsMissingError):
            made.score(ROWS[:1])
        (path,) = tmp_path.iterdir()
        assert sum(AnswerJournal(path).tokens) == spent(made)


# ---- votes that are a request each ----


@pytest.mark.slow
def test_votes_of_rows_that_are_not_whole_are_kept(proxy, tmp_path) -> None:
    proxy.always = voting(many=False)
    with labeller(proxy.url, tmp_path, **VOTES, price_out=0) as made:
        each = spent(made)
    starts, done = 1, False
    while not done and starts < 30:
        starts += 1
        with labeller(
            proxy.url, tmp_path, **VOTES, price_out=0, max_cost=starts * 8 * each
        ) as made:
            try:
                found = made.score(ROWS)
                done = True
            except LabellingStoppedError:
                # As a kill would leave it, not yet closed.
                (path,) = tmp_path.iterdir()
                assert AnswerJournal(path).tokens[0] == spent(made)
    assert starts > 2 and found["votes"].tolist() == [[0, 5]] * len(ROWS)
    sent = [body for body in proxy.bodies if "n" not in body]
    assert len(sent) == starts + 5 * len(ROWS)
    (path,) = tmp_path.iterdir()
    assert len(AnswerJournal(path)) == 5 * len(ROWS)
    asked = [(str(body["messages"]), body["seed"]) for body in sent if "film" in str(body)]
    assert len(set(asked)) == len(asked)


def test_a_vote_for_which_the_server_fails_is_asked_for_alone(proxy, tmp_path) -> None:
    proxy.always = one = voting(many=False)
    with labeller(proxy.url, tmp_path, **VOTES, retries=0) as made:
        proxy.always = lambda handler, body: (
            (body["seed"] == 3 and status(500)(handler, body)) or one(handler, body)
        )
        with pytest.raises(RowsMissingError, match="HTTP 500"):
            made.score(ROWS[:1])
        proxy.always, count = one, len(proxy.bodies)
        assert made.score(ROWS[:1])["votes"].tolist() == [[0, 5]]
        assert [body["seed"] for body in proxy.bodies[count:]] == [3]


def test_a_row_without_a_readable_vote_is_asked_again(proxy, tmp_path) -> None:
    proxy.always = voting("neither", many=False)
    with (
        labeller(proxy.url, tmp_path, **VOTES) as made,
        pytest.raises(RowsMissingError, match="such as 'neither'"),
    ):
        made.score(ROWS[:1])
    proxy.always = voting(lambda body: "bad" if body["seed"] == 2 else "neither", many=False)
    with labeller(proxy.url, tmp_path, **VOTES) as made:
        found = made.score(ROWS[:1])
        assert found["votes"].tolist() == [[1, 0]] and found["unparsable"].tolist() == [4]


def test_answers_are_lines_of_a_journal(tmp_path) -> None:
    path = tmp_path / "a.jsonl"
    kept = AnswerJournal(path, {"model": "m"})
    kept.add("a", {"votes": [1.0, 0.0], "unparsable": [0.0]}, (10, 1))
    kept.add(None, {}, (10, 2))
    kept.add("b", {"logs": [-0.5, -1.0], "coverage": [0.9]}, (10, 3))
    with path.open("ab") as stream:
        stream.write(b'{"key": "c", "tokens": [1, 1], "votes": [1.0, 0.0], "unpar')
    AnswerJournal(path).add("d", {"votes": [0.0, 1.0], "unparsable": [0.0]}, (1, 0))
    read = AnswerJournal(path)
    assert read.about == {"model": "m"} and read.tokens == (31, 6) and len(read) == 3
    assert read.get("a") == {"votes": [1.0, 0.0], "unparsable": [0.0]} and read.get("c") is None
    assert read.get("b") == {"logs": [-0.5, -1.0], "coverage": [0.9]}
    path.write_text('{"key": "a", "tokens": [1, 1], "logs": [NaN, 0]}\n["a"]\n{"key": 3}\n')
    assert len(AnswerJournal(path)) == 0
