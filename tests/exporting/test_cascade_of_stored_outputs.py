"""`limbeck cascade` where the slow model is not at hand: its outputs are stored, or an endpoint is asked."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from transformers import AutoTokenizer
from typer.testing import CliRunner

import several_labels as several
import tiny_runs as tiny
from faulty_proxy import fine, status
from limbeck import label
from limbeck.cards.push import push_files
from limbeck.cli.app import app
from limbeck.data import RowsAsked
from limbeck.exporting.cascade import cascade
from limbeck.labelling.language_models.endpoint import EndpointLabeller
from limbeck.labelling.language_models.endpoint_settings import EndpointAccess, EndpointSettings
from limbeck.labelling.language_models.prompt import Prompt, bind_prompt
from limbeck.latency.benching import bench
from limbeck.latency.settings import BenchSettings
from limbeck.outputs.store import open_store
from limbeck.outputs.stored_teacher import StoredTeacher
from limbeck.predicting.predict_rows import predict
from limbeck.recipe import Recipe
from limbeck.run.in_place import outputs_of_store
from limbeck.runtimes.cascade import read_cascade
from limbeck.scoring.scored_model import ScoredModel
from limbeck.support.errors import LimbeckError
from limbeck.tasks import TASK_TYPES, Task

OWN = {"task": "reviews", "text_columns": ["review"], "label_column": "verdict"}
NAMES = ("negative", "positive")
SLOW_THRESHOLDS = [0.5, 0.4, 0.6]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A random model, one that knows the answers, 60 rows, and what the second says of them."""
    place = tmp_path_factory.mktemp("cascade")
    fast = tiny.save(tiny.bert(1, seed=3, initializer_range=0.4), place / "fast")
    slow = tiny.save(tiny.knowing_teacher(2), place / "slow")
    data = tiny.write_csv(place / "reviews.csv", 60)
    label(slow, data, text_columns=["review"], out=place / "store")
    return fast, slow, data, place / "store"


def asked(data):
    return RowsAsked(data=str(data), **OWN)


def score_of(model, data) -> float:
    opened = ScoredModel.open(model)
    return opened.score(opened.rows(asked(data))).results.scores["primary"]


@pytest.mark.slow
def test_a_store_answers_as_the_model_whose_outputs_it_holds(models, tmp_path):
    fast, slow, data, store = models
    live = cascade([fast, slow], tmp_path / "live", asked(data), wanted={"agreement": 80.0})
    made = cascade([fast, store], tmp_path / "made", asked(data), wanted={"agreement": 80.0})
    assert made.chosen.thresholds == pytest.approx(live.chosen.thresholds, abs=1e-6)
    assert 0 < made.chosen.sent[0] == live.chosen.sent[0] < 1
    assert (made.chosen.score, made.members[1].score) == (live.chosen.score, live.members[1].score)
    costs = open_store(store).manifest.costs
    assert made.members[1].seconds == pytest.approx(costs["seconds"] / len(open_store(store)))
    opened = ScoredModel.open(tmp_path / "made")
    right = ScoredModel.open(tmp_path / "live")
    scored = opened.score(opened.rows())
    wanted = right.score(right.rows())
    assert scored.results.scores == wanted.results.scores
    assert np.allclose(scored.outputs, wanted.outputs, atol=1e-5)


@pytest.mark.slow
def test_classes_of_a_store_in_another_order_are_found_by_their_names(models, tmp_path):
    fast, slow, data, _ = models
    other = tiny.knowing_teacher(2)
    for part in (other.classifier.weight.data, other.classifier.bias.data):
        part.copy_(part.flip(0))
    other.config.id2label = dict(enumerate(NAMES[::-1]))
    other.config.label2id = {name: at for at, name in enumerate(NAMES[::-1])}
    label(
        tiny.save(other, tmp_path / "other"), data, text_columns=["review"], out=tmp_path / "store"
    )
    assert open_store(tmp_path / "store").classes == NAMES[::-1]
    made = cascade([fast, tmp_path / "store"], tmp_path / "made", asked(data))
    assert made.members[1].score == score_of(slow, data) != score_of(fast, data)


def test_rows_that_are_sent_on_and_not_stored_have_no_prediction(models, tmp_path):
    fast, slow, data, store = models
    made = cascade([fast, store], tmp_path / "made", asked(data), wanted={"agreement": 80.0})
    known = [line.split(",")[0] for line in data.read_text().splitlines()[1:]]
    rows = [{"review": text} for text in [*known, *(text + " good" for text in known)]]
    alone = {
        name: [row["prediction"] for row in predict(place, rows, text_columns=["review"])]
        for name, place in {"fast": fast, "store": slow}.items()
    }
    asks = {"text_columns": ["review"], "output": ["labels", "logits"], "batch_size": 7}
    answers = predict(tmp_path / "made", rows, **asks)
    found = list(answers)
    by = [row["answered_by"] for row in found]
    unanswered = f"120 rows, {by.count('sent on')} sent on without a prediction"
    assert str(answers).startswith(unanswered)
    written = predict(tmp_path / "made", rows, to=tmp_path / "found.jsonl", **asks)
    assert unanswered in str(written)
    assert {*by[:60]} == {"fast", "store"} and {*by[60:]} == {"fast", "sent on"}
    assert by[:60].count("store") / 60 == made.chosen.sent[0]
    for name, row, *both in zip(by, found, alone["fast"], alone["store"], strict=True):
        if name == "sent on":
            assert row["prediction"] is None and row["logits"] is None
        else:
            assert row["prediction"] == both[name == "store"]
    other = tmp_path / "other.csv"
    lines = [f"{row['review']},{NAMES[at % 2]}" for at, row in enumerate(rows[60:])]
    other.write_text("\n".join(["review,verdict", *lines]) + "\n")
    opened = ScoredModel.open(tmp_path / "made")
    with pytest.raises(LimbeckError, match=rf"no outputs for {by.count('sent on')} of") as refused:
        opened.score(opened.rows(asked(other)))
    assert "limbeck label" in refused.value.problems[0].fix


@pytest.mark.slow
def test_the_folder_is_whole_without_the_store_and_is_pushed_and_timed(models, tmp_path):
    fast, _, data, store = models
    shutil.copytree(store, tmp_path / "store")
    cascade([fast, tmp_path / "store"], tmp_path / "made", asked(data), wanted={"agreement": 80.0})
    shutil.rmtree(tmp_path / "store")
    (tmp_path / "made").rename(tmp_path / "moved")
    rows = [{"review": line.split(",")[0]} for line in data.read_text().splitlines()[1:]]
    found = predict(tmp_path / "moved", rows, text_columns=["review"])
    assert {row["answered_by"] for row in found} == {"fast", "store"}
    assert "2-store/manifest.json" in {one.name for one in push_files(tmp_path / "moved", "me/it")}
    said = (tmp_path / "moved" / "README.md").read_text()
    assert "store holds stored outputs of slow: other rows that are sent on need slow" in said
    report = bench([tmp_path / "moved"], BenchSettings(lengths=(4,), passes=5, warm_up=1))
    assert [one.model for one in report.measurements] == ["1-fast"]
    assert "ms a row expected" in report.notes[0] and "was not run" in report.notes[0]


@pytest.mark.slow
def test_a_member_of_a_stored_team_is_the_slow_model(models, tmp_path):
    fast, slow, data, _ = models
    label([slow, fast], data, text_columns=["review"], out=tmp_path / "both")
    made = cascade([fast, f"{tmp_path / 'both'}#slow"], tmp_path / "made", asked(data))
    assert made.members[1].score == score_of(slow, data)
    assert score_of(tmp_path / "made", data) == made.chosen.score


def test_rows_without_labels_are_judged_by_a_store(models, tmp_path):
    fast, _, data, store = models
    text = tmp_path / "plain.csv"
    lines = data.read_text(encoding="utf-8").splitlines()
    text.write_text("\n".join(line.split(",")[0] for line in lines), encoding="utf-8")
    made = cascade([fast, store], tmp_path / "made", unlabelled=text, wanted={"agreement": 90.0})
    assert (made.judged_by, made.members[1].score) == ("agreement", 100.0)


@pytest.mark.slow
def test_several_labels_a_row_by_three_members_each_with_thresholds_of_its_own(tmp_path):
    """The store has the thresholds of the model whose outputs it holds."""
    texts = sorted({*tiny.sentences(60)})
    probabilities, places = [], []
    for name, seed, least in (
        ("fast", 3, [0.5, 0.4, 0.1]),
        ("middle", 4, [0.6, 0.5, 0.3]),
        ("slow", None, SLOW_THRESHOLDS),
    ):
        model = several.knowing_teacher(2).eval()
        if seed is not None:
            config = copy.deepcopy(model.config)
            config.update({"num_hidden_layers": 1, "initializer_range": 0.4})
            torch.manual_seed(seed)
            model = type(model)(config).eval()
        model.config.label_thresholds = least
        places.append(tiny.save(model, tmp_path / name))
        tokenizer = AutoTokenizer.from_pretrained(places[-1])
        with torch.no_grad():
            read = tokenizer(texts, padding=True, return_tensors="pt")
            probabilities.append(model(**read).logits.double().sigmoid().numpy())
    data = several.write_rows(tmp_path / "rows.jsonl", 60)
    label(places[-1], data, text_columns=["review"], out=tmp_path / "store")
    rows = RowsAsked("own", str(data), None, ["review"], "tags")
    cascade([*places[:2], tmp_path / "store"], tmp_path / "made", rows)
    made = read_cascade(tmp_path / "made")
    assert made.members[-1].decides == SLOW_THRESHOLDS

    def sure(said, likely) -> float:
        """The least sure of three classes, each by its distance from the member's own threshold."""
        found = []
        for share, least in zip(likely, np.broadcast_to(said.decides, 3), strict=True):
            logit = np.log(share / (1 - share)) - np.log(least / (1 - least))
            found.append(1 / (1 + np.exp(-abs(logit) / said.temperature)))
        return min(found)

    for said, likely in zip(made.members[:2], probabilities, strict=False):
        ordered = np.sort([sure(said, row) for row in likely])[len(texts) // 4 : -len(texts) // 4]
        widest = int(np.diff(ordered).argmax())  # no rounding moves a row over it
        said.threshold = float(ordered[widest : widest + 2].mean())
    made.write(tmp_path / "made")
    found = predict(
        tmp_path / "made", [{"review": text} for text in texts], text_columns=["review"]
    )
    wanted = {}
    for text, row, *likely in zip(texts, found, *probabilities, strict=True):
        answering = zip(made.members, likely, strict=True)
        said, shares = next(
            (said, own) for said, own in answering if sure(said, own) >= said.threshold
        )
        classes = zip(several.CLASSES, shares, np.broadcast_to(said.decides, 3), strict=True)
        wanted[text] = [name for name, share, least in classes if share >= least]
        assert row["answered_by"] == Path(said.name).name
        assert row["prediction"] == wanted[text]
    assert {row["answered_by"] for row in found} == {"fast", "middle", "store"}
    opened = ScoredModel.open(tmp_path / "made")
    loaded = opened.rows()
    scored = opened.score(loaded)
    decisions = scored.outputs >= np.log(SLOW_THRESHOLDS) - np.log1p(-np.array(SLOW_THRESHOLDS))
    for text, decided in zip(loaded.rows["sentence"][:], decisions, strict=True):
        assert [several.CLASSES[at] for at in np.flatnonzero(decided)] == wanted[text]


@pytest.mark.slow
def test_a_store_decides_by_its_models_thresholds_in_any_order_of_classes(tmp_path):
    slow = several.knowing_teacher(2)
    # Of no class at ½.
    with torch.no_grad():
        slow.classifier.bias -= 50
    slow.config.label_thresholds = [1e-12, 1e-13, 1e-14]
    place = tiny.save(slow, tmp_path / "slow")
    data = several.write_rows(tmp_path / "rows.jsonl", 60)
    label(place, data, text_columns=["review"], out=tmp_path / "store")
    held = open_store(tmp_path / "store").manifest
    assert held.teacher.thresholds == (1e-12, 1e-13, 1e-14)
    classes = several.CLASSES[::-1]
    task = Task("own", str(data), ("review",), classes, (), "", kind=TASK_TYPES.get(held.kind))
    outputs = outputs_of_store(str(tmp_path / "store"), task, Recipe.recorded({"method": "kd"}, ""))
    assert outputs.thresholds == (1e-14, 1e-13, 1e-12)
    assert StoredTeacher(outputs).config.label_thresholds == [1e-14, 1e-13, 1e-12]


def test_what_a_store_cannot_do_is_said_first(models, tmp_path):
    fast, slow, data, store = models
    with pytest.raises(LimbeckError, match="store is a store of teacher outputs") as refused:
        cascade([store, slow], tmp_path / "made", asked(data))
    assert "as SLOW" in refused.value.problems[0].fix
    number = tiny.save(tiny.bert(1, num_labels=1), tmp_path / "number")
    label(number, data, text_columns=["review"], out=tmp_path / "numbers")
    nowhere = asked(tmp_path / "nowhere.csv")
    with pytest.raises(LimbeckError, match="numbers: a number has no confidence"):
        cascade([fast, tmp_path / "numbers"], tmp_path / "made", nowhere)
    more = tmp_path / "more.csv"
    more.write_text(data.read_text() + "another film,positive,60\n")
    with pytest.raises(LimbeckError, match=r"store has no outputs for 1 of 61 rows"):
        cascade([fast, store], tmp_path / "made", asked(more))


@pytest.mark.slow
def test_a_store_that_does_not_tell_its_time_is_not_compared_by_time(models, tmp_path):
    """As an endpoint's, whose answers were kept."""
    fast, _, data, store = models
    shutil.copytree(store, tmp_path / "store")
    whole = open_store(store).manifest
    costs = {**whole.costs, "requests": 60.0}
    written = whole.model_copy(update={"costs": costs}).written()
    (tmp_path / "store" / "manifest.json").write_text(written)
    with pytest.raises(LimbeckError, match=r"cost 50: the time of a row of .*store is not known"):
        cascade([fast, tmp_path / "store"], tmp_path / "made", asked(data), wanted={"cost": 50.0})
    line = ["cascade", str(fast), str(tmp_path / "store"), "--data", str(data), "--task", "reviews"]
    line += [
        "--text-columns",
        "review",
        "--label-column",
        "verdict",
        "--out",
        str(tmp_path / "made"),
    ]
    done = CliRunner().invoke(app, line)
    assert done.exit_code == 0, done.output
    assert "of rows reach store, whose time is not known" in " ".join(done.output.split())
    assert not json.loads((tmp_path / "made" / "cascade.json").read_text())["members"][1]["timed"]


# ---- an endpoint ----


PROMPT = """
template: "Review: {review}\\nIs:"
verbalizations: {positive: good, negative: bad}
calibrate: false
"""


def line(models, url, tmp_path, *more) -> list[str]:
    fast, _, data, _ = models
    (tmp_path / "prompt.yaml").write_text(PROMPT)
    found = ["cascade", fast, "--data", data, "--task", "reviews", "--text-columns", "review"]
    found += ["--label-column", "verdict", "--out", tmp_path / "made", "--agreement", 80]
    found += ["--endpoint", url, "--model", "tiny", "--top-logprobs", 1000]
    return [str(one) for one in (*found, "--prompt", tmp_path / "prompt.yaml", *more)]


@pytest.mark.slow
def test_an_endpoint_is_asked_once_about_each_row_and_its_outputs_are_kept(models, proxy, tmp_path):
    done = CliRunner().invoke(app, line(models, proxy.url, tmp_path))
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert "of rows reach tiny, whose time is not known" in said
    assert f"other rows that are sent on need tiny at {proxy.url.split('/')[2]}" in said
    known = [row.split(",")[0] for row in models[2].read_text().splitlines()[1:]]
    asked_for = [str(body["messages"]) for body in proxy.bodies]
    for text in {*known}:
        assert sum(f"Review: {text}\\nIs:" in one for one in asked_for) == 1
    made = read_cascade(tmp_path / "made")
    assert [one.place for one in made.members] == ["1-fast", "2-tiny"]
    prompt = Prompt(
        template="Review: {review}\nIs:",
        verbalizations={"negative": "bad", "positive": "good"},
        calibrate=False,
    )
    with EndpointLabeller(
        EndpointSettings(url=proxy.url, model="tiny", top_logprobs=1000),
        bind_prompt(prompt, NAMES, ("review",)),
    ) as alone:
        wanted = alone.score([{"review": text} for text in known])["logits"].argmax(1)
    asked_before = len(proxy.bodies)
    rows = [{"review": text} for text in [*known, "a film that nobody asked about"]]
    found = list(predict(tmp_path / "made", rows, text_columns=["review"]))
    by = [row["answered_by"] for row in found]
    assert "tiny" in by[:60]
    for name, row, label_of in zip(by, found, wanted, strict=False):
        assert name == "fast" or (name, row["prediction"]) == ("tiny", NAMES[label_of])
    assert len(proxy.bodies) == asked_before
    again = CliRunner().invoke(app, line(models, proxy.url, tmp_path, "--overwrite"))
    assert again.exit_code == 0 and len(proxy.bodies) == asked_before + 1  # the first of a start


@pytest.mark.slow
def test_an_endpoint_that_fails_leaves_no_folder_and_its_answers_are_not_asked_again(
    models, proxy, tmp_path
):
    known = sorted({row.split(",")[0] for row in models[2].read_text().splitlines()[1:]})
    refusing = status(400, "no")
    said = f"Review: {known[0]}\\n"
    proxy.always = lambda handler, body: said in str(body) and refusing(handler, body)
    done = CliRunner().invoke(app, line(models, proxy.url, tmp_path))
    assert done.exit_code == 2 and "1 row has no outputs: HTTP 400: no" in done.output
    assert "missing-rows" not in done.output and "asks for these rows alone" in done.output
    assert not (tmp_path / "made").exists()
    proxy.always, before = fine, len(proxy.bodies)
    assert CliRunner().invoke(app, line(models, proxy.url, tmp_path)).exit_code == 0
    assert len(proxy.bodies) == before + 2  # the first of a start, and the row


@pytest.fixture
def other_rows(models, proxy, tmp_path):
    """A cascade before an endpoint; texts that it was not measured on, and those of them that it sends on."""
    done = CliRunner().invoke(app, line(models, proxy.url, tmp_path))
    assert done.exit_code == 0, done.output
    assert "predict --endpoint URL asks it" in " ".join(done.output.split())
    known = [row.split(",")[0] for row in models[2].read_text().splitlines()[1:]]
    texts = sorted({f"{text} good" for text in known} - {*known})
    (tmp_path / "other.csv").write_text("\n".join(["review", *texts, texts[0]]) + "\n")
    found = predict(tmp_path / "made", tmp_path / "other.csv", text_columns=["review"])
    sent = {row["review"] for row in found if row["answered_by"] == "sent on"}
    assert 2 < len(sent) < len(texts)
    proxy.bodies.clear()
    return texts, sent


def predicted(tmp_path, *more):
    """By the command: what it says, and the rows that it wrote by their text."""
    target = tmp_path / "found.jsonl"
    asked = ["predict", tmp_path / "made", tmp_path / "other.csv", "--to", target, *more]
    done = CliRunner().invoke(app, [str(one) for one in (*asked, "--text-columns", "review")])
    whole = target.exists() and not done.exit_code
    rows = [json.loads(one) for one in target.read_text().splitlines()] if whole else []
    return done, {row["review"]: row for row in rows}


def texts_asked(proxy, texts) -> list[str]:
    """A text as often as a request was about it."""
    said = [str(body["messages"]) for body in proxy.bodies]
    return sorted(text for text in texts for one in said if f"Review: {text}\\nIs:" in one)


def test_rows_that_are_sent_on_are_asked_about_where_the_endpoint_is_named(
    other_rows, proxy, tmp_path
):
    texts, sent = other_rows
    done, found = predicted(tmp_path, "--endpoint", proxy.url)
    assert done.exit_code == 0, done.output
    assert f"used: {len(sent) + 1} requests" in " ".join(done.output.split())
    assert texts_asked(proxy, texts) == sorted(sent)
    assert {text for text, row in found.items() if row["answered_by"] == "tiny"} == sent
    assert {row["answered_by"] for row in found.values()} == {"fast", "tiny"}
    prompt = Prompt.model_validate(yaml.safe_load(PROMPT))
    with EndpointLabeller(
        EndpointSettings(url=proxy.url, model="tiny", top_logprobs=1000),
        bind_prompt(prompt, NAMES, ("review",)),
    ) as alone:
        wanted = alone.score([{"review": text} for text in sorted(sent)])["logits"].argmax(1)
    for text, number in zip(sorted(sent), wanted, strict=True):
        assert found[text]["prediction"] == NAMES[number]
    proxy.bodies.clear()
    again, rows = predicted(tmp_path, "--endpoint", proxy.url, "--overwrite")
    assert (again.exit_code, rows) == (0, found)
    assert len(proxy.bodies) == 1  # the first of a start


@pytest.mark.slow
def test_a_row_that_the_endpoint_does_not_answer_stays_sent_on(other_rows, proxy, tmp_path, caplog):
    _, sent = other_rows
    first, refusing = min(sent), status(400, "no")
    proxy.always = lambda handler, body: (
        f"Review: {first}\\n" in str(body) and refusing(handler, body)
    )
    done, found = predicted(tmp_path, "--endpoint", proxy.url)
    assert done.exit_code == 0, done.output
    assert "1 row has no outputs: HTTP 400: no" in caplog.text
    assert (found[first]["answered_by"], found[first]["prediction"]) == ("sent on", None)
    assert {text for text, row in found.items() if row["answered_by"] == "tiny"} == sent - {first}


@pytest.mark.slow
def test_a_limit_on_the_cost_ends_the_work_which_goes_on_later(other_rows, proxy, tmp_path):
    texts, sent = other_rows
    prices = ["--endpoint", proxy.url, "--price-in", 1e6, "--price-out", 0, "--chunk-rows", 8]
    made = read_cascade(tmp_path / "made").folder / "2-tiny" / "manifest.json"
    spent = json.loads(made.read_text())["costs"]["prompt_tokens"]
    done, _ = predicted(tmp_path, *prices, "--concurrency", 1, "--max-cost", spent + 40)
    assert done.exit_code == 2 and "is reached" in done.output and "--max-cost" in done.output
    before = texts_asked(proxy, texts)
    assert 0 < len(before) < len(sent)
    plain, _ = predicted(tmp_path)
    assert plain.exit_code == 2 and "was begun with another endpoint" in plain.output
    again, found = predicted(tmp_path, *prices)
    assert again.exit_code == 0, again.output
    assert texts_asked(proxy, texts) == sorted(sent)
    assert {text for text, row in found.items() if row["answered_by"] == "tiny"} == sent


def test_an_endpoint_that_predict_cannot_ask_is_said_before_any_row(models, tmp_path, monkeypatch):
    fast, _, data, store = models
    cascade([fast, store], tmp_path / "made", asked(data), wanted={"agreement": 80.0})
    monkeypatch.delenv("NO_KEY", raising=False)
    named = EndpointAccess(url="http://localhost:1/v1", api_key_env="NO_KEY", max_cost=1.0)
    for model in (tmp_path / "made", fast):
        with pytest.raises(LimbeckError, match="contains no model and prompt to use") as refused:
            predict(model, [{"review": "a film"}], text_columns=["review"], endpoint=named)
        assert "NO_KEY is not set" in str(refused.value)
        assert "what tokens cost is not known" in str(refused.value)
    line = ["predict", str(fast), str(data), "--max-cost", "1"]
    alone = CliRunner().invoke(app, line)
    assert alone.exit_code == 2 and "read with an endpoint only" in alone.output


def test_what_an_endpoint_cannot_do_is_said_before_it_is_asked(models, proxy, tmp_path):
    fast, slow, data, store = models
    served = EndpointSettings(url=proxy.url, model="tiny")
    for members in ([fast, slow, slow], [fast, store]):
        with pytest.raises(LimbeckError, match=r"name two or three|is a store of teacher outputs"):
            cascade(members, tmp_path / "made", asked(data), endpoint=served)
    refused = CliRunner().invoke(app, ["cascade", str(fast), str(slow), "--model", "tiny"])
    assert refused.exit_code == 2 and "read with an endpoint only" in refused.output
    with pytest.raises(LimbeckError, match="cost 50: the time of a row of tiny is not known"):
        cascade([fast], tmp_path / "made", asked(data), endpoint=served, wanted={"cost": 50.0})
    with pytest.raises(LimbeckError, match="prompt: no endpoint is named"):
        cascade([fast, slow], tmp_path / "made", asked(data), prompt=tmp_path / "prompt.yaml")
    assert not proxy.bodies
