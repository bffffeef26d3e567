"""Labels asked of llama.cpp's server, held against the same weights in transformers."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from limbeck.labelling.language_models.answers import AnswerJournal
from limbeck.labelling.language_models.endpoint import EndpointLabeller
from limbeck.labelling.language_models.endpoint_settings import EndpointSettings
from limbeck.labelling.language_models.prompt import CONTENT_FREE, Prompt, bind_prompt
from limbeck.support.errors import LimbeckError
from limbeck.teachers.labeller import Labeller, RowsMissingError
from tiny_language_models import byte_tokenizer, language_model

CLASSES = ("negative", "positive")
ROWS = [{"sentence": text} for text in ("a good film", "bad, bad", "x", "it {is} so-so")]
WORDS = {"negative": "bad", "positive": "good"}
# llama.cpp keeps keys and values in 16 bits.
ROUNDED = {"rtol": 0.03, "atol": 3e-3}


def bound(**settings):
    given = {"template": "{text}\nIs:", "verbalizations": WORDS}
    return bind_prompt(Prompt(**(given | settings)), CLASSES, ("sentence",))


def labeller(url, journals=None, prompt=None, **settings):
    given = {"url": url, "model": "tiny"}
    given |= {} if settings.get("mode") == "votes" else {"top_logprobs": 1000}
    return EndpointLabeller(
        EndpointSettings(**(given | settings)), prompt or bound(), journals=journals
    )


def begun(prompts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Transformers' probability of all tokens that begin "bad" or "good" behind each prompt; normalised, and in all."""
    model, tokenizer = language_model("llama"), byte_tokenizer()
    words = [tokenizer.decode([number]).strip().lower() for number in range(len(tokenizer))]
    of_class = [
        [bool(word) and answer.startswith(word) for word in words] for answer in WORDS.values()
    ]
    found = []
    for prompt in prompts:
        with torch.no_grad():
            logits = model(torch.tensor([tokenizer(prompt).input_ids])).logits[0, -1]
        found.append([float(logits.softmax(-1)[torch.tensor(mask)].sum()) for mask in of_class])
    values = np.array(found)
    return values / values.sum(1, keepdims=True), values.sum(1)


def chats(prompt, rows):
    return [f"<s>user: {prompt.text(row)}\n<s>assistant:" for row in rows]


def test_log_probabilities_are_those_of_the_same_weights_in_transformers(server) -> None:
    prompt = bound(calibrate=False)
    with labeller(server, prompt=prompt) as made:
        assert isinstance(made, Labeller) and callable(made.costs)
        assert (made.mode, made.outputs) == ("logprobs", ("logits", "probabilities", "coverage"))
        found = made.score(ROWS)
    wanted, coverage = begun(chats(prompt, ROWS))
    assert_close(found["probabilities"], wanted.astype(np.float32), **ROUNDED)
    assert_close(found["coverage"], coverage.astype(np.float32), **ROUNDED)
    assert_close(np.exp(found["logits"]), found["probabilities"])


def test_calibration_divides_by_inputs_without_content(server) -> None:
    prompt = bound()
    with labeller(server, prompt=prompt) as made:
        found = made.score(ROWS)["probabilities"]
    raw, _ = begun(chats(prompt, ROWS))
    empty, _ = begun(chats(prompt, [{"sentence": text} for text in ("", "N/A", "[MASK]")]))
    wanted = raw / empty.mean(0)
    wanted /= wanted.sum(1, keepdims=True)
    assert_close(found, wanted.astype(np.float32), **ROUNDED)


def test_plain_completions(server) -> None:
    prompt = bound(chat=False, calibrate=False, system="Judge.")
    with labeller(server, prompt=prompt) as made:
        found = made.score(ROWS)["probabilities"]
    wanted, _ = begun([f"Judge.\n\nText: {row['sentence']}\nIs:" for row in ROWS])
    assert_close(found, wanted.astype(np.float32), **ROUNDED)


def test_few_listed_tokens_bound_what_is_not_listed(server) -> None:
    """With two tokens listed hardly any answer is among them: such rows have no label, and say so."""
    prompt = bound(calibrate=False)
    with labeller(server, prompt=prompt, top_logprobs=2) as made:
        with pytest.raises(RowsMissingError, match="most likely tokens begins an answer") as caught:
            made.score(ROWS)
        assert set(caught.value.reasons) <= set(range(len(ROWS)))


NESTED = {"negative": "good", "positive": "goods"}


def test_an_answer_that_begins_another_is_not_read_from_its_first_token(server, caplog) -> None:
    prompt = bound(verbalizations=NESTED, calibrate=False)
    with pytest.raises(LimbeckError, match="'good' begins the answer 'goods'") as caught:
        labeller(server, prompt=prompt, mode="logprobs")
    assert "letters" in caught.value.problems[0].fix
    with labeller(server, prompt=prompt) as made:
        assert made.mode == "votes"
    assert "begins the answer" in caplog.text
    letters = {"verbalizations": NESTED, "answers": "letters", "template": "{classes}\n{text}\nIs:"}
    with labeller(server, prompt=bound(**letters)) as made:
        assert made.mode == "logprobs"


def says(*listed):
    """An answer whose first token has these probabilities, or is the text of a vote."""

    def answer(handler, body) -> bool:
        top = [{"token": text, "logprob": float(np.log(p)), "bytes": None} for text, p in listed]
        first = {"token": listed[0][0], "logprob": top[0]["logprob"], "top_logprobs": top}
        choice = {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": listed[0][0]},
            "logprobs": {"content": [first]},
        }
        made = {
            "id": "1", "object": "chat.completion", "created": 0, "model": "tiny", "choices": [choice],
            "usage": {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10},
        }  # fmt: skip
        handler.reply(200, json.dumps(made).encode(), {})
        return True

    return answer


def test_a_first_token_that_begins_several_answers_tells_nothing(proxy, caplog) -> None:
    words = {"negative": "possible", "positive": "positive"}
    prompt = bound(verbalizations=words, calibrate=False)
    unclear, clear = says(("pos", 0.6), ("positive", 0.3)), says(("positive", 0.7), ("poss", 0.2))
    proxy.always = unclear
    with pytest.raises(LimbeckError, match="the likely token 'pos' begins several answers"):
        labeller(proxy.url, prompt=prompt, mode="logprobs")
    with labeller(proxy.url, prompt=prompt) as made:
        assert made.mode == "votes"
    assert "answers are sampled and counted" in caplog.text
    proxy.always = clear
    with labeller(proxy.url, prompt=prompt) as made:
        found = made.score(ROWS[:1])["probabilities"]
        assert_close(found, np.array([[0.2 / 0.9, 0.7 / 0.9]], np.float32))
        proxy.always = unclear
        with pytest.raises(RowsMissingError, match="'pos' begins several answers"):
            made.score(ROWS[1:2])


def test_votes_are_counted(server) -> None:
    with labeller(server, mode="votes", votes=2) as made:
        assert made.outputs == ("votes", "probabilities", "unparsable")
        found = made.score(ROWS)
        again = made.score(ROWS[::-1])
    assert_close(found["votes"].sum(1) + found["unparsable"], np.full(len(ROWS), 2, np.float32))
    shares = found["votes"] / found["votes"].sum(1, keepdims=True)
    assert_close(found["probabilities"], shares)
    assert_close(again["votes"][::-1].copy(), found["votes"])  # kept, not sampled again


def test_answers_that_name_no_class_are_no_label(server) -> None:
    """Without structured output a random model says nothing that can be read."""
    with labeller(server, prompt=bound(chat=False), mode="votes", votes=3) as made:
        with pytest.raises(RowsMissingError, match="none of 3 answers names a class") as caught:
            made.score(ROWS)
        assert sorted(caught.value.reasons) == [0, 1, 2, 3]


def test_votes_cannot_be_calibrated(server) -> None:
    with pytest.raises(LimbeckError, match="calibrate: true"):
        labeller(server, prompt=bound(calibrate=True), mode="votes")


# ---- the journal ----


def test_no_row_is_asked_twice(proxy, tmp_path) -> None:
    with labeller(proxy.url, tmp_path) as made:
        wanted = made.score([*ROWS, *ROWS])
        count = len(proxy.bodies)
        assert_close(made.score(ROWS)["logits"], wanted["logits"][: len(ROWS)])
        assert len(proxy.bodies) == count
        spent = made.costs()
    (journal,) = tmp_path.iterdir()
    host = proxy.url.split("/")[2]
    about = AnswerJournal(journal).about
    assert about.pop("model") == f"tiny at {host}"
    assert about.pop("endpoint") == proxy.url and [*about] == ["prompt"]
    assert len(AnswerJournal(journal)) == len({str(row) for row in ROWS}) + len(CONTENT_FREE)
    with journal.open("ab") as stream:  # as a kill leaves it
        stream.write(b'{"key": "0123", "tok')
    with labeller(proxy.url, tmp_path) as made:
        before = len(proxy.bodies)
        assert_close(made.score(ROWS)["logits"], wanted["logits"][: len(ROWS)])
        assert len(proxy.bodies) == before
        assert made.spent_before == 0  # without prices
        made.score([{"sentence": "another"}])
    with labeller(proxy.url, tmp_path, price_in=1e6, price_out=1e6) as made:
        made.score([{"sentence": "another"}])
        first = spent["prompt_tokens"] + spent["completion_tokens"]
        assert made.spent_before > first
    with labeller(proxy.url, tmp_path, prompt=bound(system="Decide.")) as made:
        made.score(ROWS)
    assert len(list(tmp_path.iterdir())) == 2


def test_the_key_is_sent_and_written_nowhere(proxy, tmp_path, monkeypatch, caplog) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-very-secret")
    caplog.set_level("INFO", logger="limbeck")
    with labeller(proxy.url, tmp_path, api_key_env="SOME_KEY") as made:
        made.score(ROWS)
        written = str(made.fingerprint()) + str(made.costs()) + caplog.text
    assert {body["authorization"] for body in proxy.bodies} == {"Bearer sk-very-secret"}
    written += "".join(path.read_text(encoding="utf-8") for path in tmp_path.iterdir())
    assert "secret" not in written
