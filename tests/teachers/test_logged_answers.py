"""Answers of logs and batch files become labels: the rows of hand-written lines, counted by hand."""

from __future__ import annotations

import csv
import json
import math

import pytest
from rich.console import Console

from limbeck.labelling.label_rows import label
from limbeck.labelling.language_models.prompt import Prompt, bind_prompt
from limbeck.support.errors import LimbeckError

WORDS = {"negative": "bad", "positive": "good"}
PROMPT = Prompt(template="Review: {review}\nGood or bad?", verbalizations=WORDS)


def request(text: str) -> dict:
    return {"model": "m", "messages": [{"role": "system", "content": "Judge."},
            {"role": "user", "content": f"Review: {text}\nGood or bad?"}]}  # fmt: skip


def response(*said: str | None, **choice) -> dict:
    choices = [{"message": {"role": "assistant", "content": one}, **choice} for one in said]
    return {"model": "m-2026", "choices": choices}


def listed(**shares: float) -> dict:
    top = [{"token": token, "logprob": math.log(share)} for token, share in shares.items()]
    return {"logprobs": {"content": [{"token": "x", "top_logprobs": top}]}}


def write(path, lines) -> str:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return str(path)


def labels(
    tmp_path, *files: str, prompt: Prompt = PROMPT, **settings
) -> dict[str, tuple[str, str]]:
    to = tmp_path / "labels.csv"
    label(answers=[*files], prompt=prompt, to=to, out=tmp_path / "store", **settings)
    with to.open(newline="") as stream:
        rows = [*csv.DictReader(stream)]
    (text,) = {*rows[0]} - {"label", "confidence"}
    return {row[text]: (row["label"], row.get("confidence", "")) for row in rows}


PAIR = [("a film", response("good")), ("two\nlines", response(" Bad.", "good", "good"))]


@pytest.mark.parametrize("form", ["joined", "batch", "half a batch each", "chats"])
def test_every_form_of_a_log_gives_the_same_labels(form, tmp_path) -> None:
    asked = [request(text) for text, _ in PAIR]
    given = [answer for _, answer in PAIR]
    if form == "joined":
        files = [
            write(
                tmp_path / "log.jsonl",
                [{"request": a, "response": b} for a, b in zip(asked, given, strict=True)],
            )
        ]
    elif form == "chats":
        chats = [
            {"messages": [*one["messages"], {"role": "assistant", "content": answer}]}
            for one, answers in zip(asked, (["good"], ["bad", "good", "good"]), strict=True)
            for answer in answers
        ]
        files = [write(tmp_path / "log.jsonl", chats)]
    else:
        ins = [
            {"custom_id": f"r{at}", "method": "POST", "body": one} for at, one in enumerate(asked)
        ]
        outs = [
            {"custom_id": f"r{at}", "response": {"status_code": 200, "body": one}, "error": None}
            for at, one in enumerate(given)
        ]
        if form == "batch":
            files = [write(tmp_path / "all.jsonl", [*outs, *ins])]
        else:
            files = [write(tmp_path / "in.jsonl", ins), write(tmp_path / "out.jsonl", outs)]
    found = labels(tmp_path, *files)
    assert found["a film"] == ("positive", "1") and found["two\nlines"][0] == "positive"
    assert float(found["two\nlines"][1]) == pytest.approx(2 / 3)


@pytest.mark.parametrize("named", [True, False])
def test_two_columns_are_texts_and_answers(named, tmp_path) -> None:
    names = ("question", "reply") if named else ("input", "output")
    (tmp_path / "pairs.csv").write_text(f"{','.join(names)}\na film,good\nbad film,BAD\n")
    own = {"text_columns": [names[0]], "label_column": names[1]} if named else {}
    found = labels(
        tmp_path, str(tmp_path / "pairs.csv"), prompt=Prompt(verbalizations=WORDS), **own
    )
    assert {text: one for text, (one, _) in found.items()} == {
        "a film": "positive",
        "bad film": "negative",
    }


def test_what_is_no_label_is_counted(tmp_path, monkeypatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(Console, "print", lambda self, *texts, **_: said.extend(map(str, texts)))
    first = [
        ("a film", response("good")),
        ("a film", response("good")),
        ("A  film!", response("good")),  # a near-copy
        ("torn", response("good")),
        ("torn", response("bad")),
        ("no", {"choices": [{"message": {"content": None, "refusal": "I cannot"}}]}),
        ("filtered", response("", finish_reason="content_filter")),
        ("what", response("It depends.")),
        ("down", {"status_code": 500, "body": {}}),
        (" ", response("good")),
    ]  # fmt: skip
    one = write(
        tmp_path / "train.jsonl", [{"request": request(t), "response": r} for t, r in first]
    )
    two = write(
        tmp_path / "dev.jsonl", [{"request": request("a film."), "response": response("good")}]
    )
    found = labels(tmp_path, one, two)
    assert {*found} == {"a film", "A  film!", "torn", "a film."} and found["torn"] == ("", "0.5")
    (report,) = [text for text in said if "near-copies of another" in text]
    assert report.endswith(
        "4 texts; 11 answers, 2 about a text that has one already, 2 refused, left out, 1 name no class, left out, "
        "1 failed, left out, 1 about no text, left out, 1 texts with contradictory answers, "
        "2 near-copies of another text, 1 texts or near-copies in several files"
    )


def test_logged_log_probabilities_come_to_distributions_and_log_odds(tmp_path) -> None:
    lines = [
        {"request": request("a film"), "response": response("good", **listed(good=0.6, bad=0.2))},
        {"request": request("b"), "response": response("bad", **listed(good=0.1, bad=0.4))},
    ]
    log = write(tmp_path / "log.jsonl", lines)
    found = labels(tmp_path, log)
    assert found["a film"][0] == "positive" and float(found["a film"][1]) == pytest.approx(0.75)
    score = PROMPT.model_copy(update={"score": ["bad", "good"], "verbalizations": None})
    (tmp_path / "labels.csv").unlink()
    store = label(answers=[log], prompt=score, out=tmp_path / "scores")
    assert store.classes == ()
    found = sorted(store.take(store.row_ids)["logits"][:, 0].tolist())
    assert found == pytest.approx([math.log(0.1 / 0.4), math.log(0.6 / 0.2)])
    lines[0]["response"] = response("good")
    with pytest.raises(LimbeckError, match="not every answer was logged with them"):
        label(answers=[write(tmp_path / "bare.jsonl", lines)], prompt=score, out=tmp_path / "no")


GOOD = {"request": request("a film"), "response": response("good")}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([GOOD, "{"], "line 2 is not JSON"),
        ([GOOD, {"id": 3}], "line 2 is neither a request with its response"),
        ([{"request": {"messages": []}, "response": {}}], "line 1: the request has no text of a user"),
        ([{"request": {"prompt": "Else?"}, "response": {}}], "line 1: the template does not fit .*'Else\\?'"),
        ([{"custom_id": "a", "response": {}}], "line 1: no file that is named has the request"),
        ([{"custom_id": "a", "body": {}}] * 2, "line 2: custom_id 'a' occurs in .*line 1 too"),
        ([{"request": request("x"), "response": response("?")}], "no line names a class .*1 name no class"),
    ],
)  # fmt: skip
def test_bad_lines_are_named(lines, said, tmp_path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(x if isinstance(x, str) else json.dumps(x) for x in lines))
    with pytest.raises(LimbeckError, match=said):
        label(answers=[str(log)], prompt=PROMPT, out=tmp_path / "store")


def test_other_sources_beside_answers_are_refused(tmp_path) -> None:
    log = write(tmp_path / "log.jsonl", [GOOD])
    with pytest.raises(LimbeckError, match="teacher is not read with them"):
        label("model", answers=[log], prompt=PROMPT, out=tmp_path / "store")


def test_a_text_is_found_where_the_template_has_it() -> None:
    prompt = Prompt(template="{a} or {b-c}?\n({a})", verbalizations=WORDS)
    bound = bind_prompt(prompt, ("negative", "positive"), ("a", "b-c"))
    row = {"a": "x or\ny", "b-c": "{z}"}
    assert bound.texts_in(bound.text(row)) == row
    assert bound.texts_in("x or y?\n(z)") is None
