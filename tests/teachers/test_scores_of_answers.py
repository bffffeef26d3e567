"""Numbers out of answers: log-odds of two, expected values of a scale, questions; held against transformers by hand."""

from __future__ import annotations

import json
import math
import shutil

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from limbeck.labelling.label_rows import label
from limbeck.labelling.language_models.causal import CausalLabeller, reranker_prompt
from limbeck.labelling.language_models.endpoint import EndpointLabeller
from limbeck.labelling.language_models.endpoint_settings import EndpointSettings
from limbeck.labelling.language_models.prompt import Prompt, bind_prompt, prompt_digest
from limbeck.support.errors import LimbeckError
from tiny_language_models import byte_tokenizer, language_model, save_language_model

PAIRS = [
    {"query": "a good film", "passage": "It was good."},
    {"query": "a good film", "passage": "bad " * 9},
    {"query": "x", "passage": "the end"},
]
# As the model card of Qwen3-Reranker writes a pair, in the tests' chat template.
SYSTEM = "Judge whether the Document meets the requirements."
QWEN = "<Instruct>: Find it\n<Query>: {query}\n<Document>: {passage}"
# Qwen3-Reranker's template for sentence-transformers, with the roles that it gives a pair.
ROLES = (
    "<s>system\n" + SYSTEM + "<s>user\n<Instruct>: "
    "{{ messages | selectattr('role', 'eq', 'system') | map(attribute='content') | first | default('Find it') }}\n"
    "<Query>: {{ messages | selectattr('role', 'eq', 'query') | map(attribute='content') | first }}\n"
    "<Document>: {{ messages | selectattr('role', 'eq', 'document') | map(attribute='content') | first }}"
    "<s>assistant\n<think>\n\n</think>\n\n"
)


def logs_behind(model, tokenizer, text: str, answers: tuple[str, ...]) -> list[float]:
    """log P of each answer's tokens behind a text and a space, one token after another, of one row alone."""
    found = []
    for answer in answers:
        ids, sum_of = tokenizer(text, add_special_tokens=False).input_ids, 0.0
        for token in tokenizer(f" {answer}", add_special_tokens=False).input_ids:
            with torch.no_grad():
                logits = model(torch.tensor([ids])).logits[0, -1]
            sum_of += float(logits.double().log_softmax(-1)[token])
            ids = [*ids, token]
        found.append(sum_of)
    return found


def chat(text: str, system: str = "") -> str:
    before = f"<s>system: {system}\n" if system else ""
    return f"{before}<s>user: {text}\n<s>assistant:"


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2"])
def test_the_score_is_the_log_odds_of_two_answers(family) -> None:
    prompt = Prompt(system=SYSTEM, template=QWEN, score=["bad", "good"])
    bound = bind_prompt(prompt, (), ("query", "passage"))
    made = CausalLabeller(language_model(family), byte_tokenizer(chat=True), bound, batch_size=2)
    assert (made.classes, made.outputs, made.kind) == ((), ("logits",), "sentence")
    wanted = []
    for row in PAIRS:
        text = chat(QWEN.format(**row), SYSTEM)
        bad, good = logs_behind(made.model, made.tokens.tokenizer, text, ("bad", "good"))
        wanted.append([good - bad])
    assert_close(made.score(PAIRS)["logits"], np.float32(wanted), rtol=1e-4, atol=1e-3)


def test_a_scale_gives_the_expected_number() -> None:
    numbers = {"bad": 1.0, "so-so": 2.5, "good": 5.0}
    bound = bind_prompt(Prompt(template="{text}:", score=numbers), (), ("sentence",))
    made = CausalLabeller(language_model("llama"), byte_tokenizer(chat=True), bound)
    (found,) = made.score([{"sentence": "a good film"}])["logits"].tolist()
    text = chat("Text: a good film:")
    logs = logs_behind(made.model, made.tokens.tokenizer, text, tuple(numbers))
    shares = [math.exp(log) for log in logs]
    wanted = sum(s * n for s, n in zip(shares, numbers.values(), strict=True)) / sum(shares)
    assert found == pytest.approx([wanted], rel=1e-4)


def test_questions_are_the_logits_of_classes_beside_each_other() -> None:
    questions = {"praise": "Is it good?", "length": "Is it a long and winding review of a film?"}
    prompt = Prompt(template="{text}\n{question}", score=["bad", "good"], questions=questions)
    bound = bind_prompt(prompt, (), ("sentence",))
    made = CausalLabeller(language_model("llama"), byte_tokenizer(chat=True), bound, max_length=120)
    rows = [{"sentence": "fine"}, {"sentence": "long " * 60}]
    found = made.score(rows)
    assert (made.kind, made.classes) == ("multi-label", ("praise", "length"))
    assert made.truncated == {1}  # and no question was cut
    for number, question in enumerate(questions.values()):
        text = chat(f"Text: fine\n{question}")
        bad, good = logs_behind(made.model, made.tokens.tokenizer, text, ("bad", "good"))
        assert found["logits"][0, number] == pytest.approx(good - bad, abs=1e-3)
        assert found["probabilities"][0, number] == pytest.approx(
            1 / (1 + math.exp(bad - good)), abs=1e-4
        )


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory):
    """A folder that sentence-transformers writes of a causal model as a reranker, and its CrossEncoder."""
    from sentence_transformers import CrossEncoder
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.cross_encoder.modules import LogitScore

    place = tmp_path_factory.mktemp("reranker")
    save_language_model(place / "model", "qwen3")
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = ROLES
    tokenizer.save_pretrained(place / "model")
    ids = tokenizer.convert_tokens_to_ids(["good", "bad"])
    modules = [
        Transformer(str(place / "model"), transformer_task="text-generation"),
        LogitScore(*ids),
    ]
    made = CrossEncoder(
        modules=modules, prompts={"web": "Answers?"}, default_prompt_name="web", device="cpu"
    )
    made.save_pretrained(str(place / "saved"))
    return place / "saved", made


def test_a_reranker_of_sentence_transformers_scores_as_it_does_there(
    cross_encoder, tmp_path
) -> None:
    folder, model = cross_encoder
    data = tmp_path / "candidates.jsonl"
    row = {"query": "a good film", "passages": ["It was good.", "bad " * 9, "x", "the end"]}
    data.write_text(json.dumps(row) + "\n")
    label(folder, data, out=tmp_path / "store", to=tmp_path / "scores.jsonl", with_text=True)
    table = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    pairs = [(one["query"], one["passage"]) for one in table]
    wanted = model.predict(pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False)
    assert len(pairs) == len(row["passages"])
    assert_close(np.float32([one["score"] for one in table]), wanted, rtol=1e-4, atol=1e-3)


def of_tokens(folder, place, **tokens):
    """A copy whose LogitScore has other tokens."""
    shutil.copytree(folder, place)
    (config,) = place.glob("1_*/config.json")
    config.write_text(json.dumps(json.loads(config.read_text()) | tokens))
    return place


def test_a_reranker_that_scores_one_token_gives_its_logit(cross_encoder, tmp_path) -> None:
    from sentence_transformers import CrossEncoder

    folder = of_tokens(cross_encoder[0], tmp_path / "copy", false_token_id=None)
    data = tmp_path / "candidates.jsonl"
    data.write_text(
        json.dumps({"query": "a film", "passages": ["It was good.", "bad " * 9]}) + "\n"
    )
    label(folder, data, out=tmp_path / "store", to=tmp_path / "scores.jsonl", with_text=True)
    table = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    model = CrossEncoder(str(folder), device="cpu")
    wanted = model.predict([(one["query"], one["passage"]) for one in table], show_progress_bar=False,
                           activation_fn=torch.nn.Identity())  # fmt: skip
    assert_close(np.float32([one["score"] for one in table]), wanted, rtol=1e-4, atol=1e-3)


def test_tokens_that_are_no_words_and_answers_of_several_are_refused(
    cross_encoder, tmp_path
) -> None:
    space = byte_tokenizer().convert_tokens_to_ids("Ġ")
    tokens = {"false_token_id": None, "true_token_id": space}
    folder = of_tokens(cross_encoder[0], tmp_path / "copy", **tokens)
    with pytest.raises(LimbeckError, match=rf"are no words \(LogitScore\): {space} ''"):
        reranker_prompt(folder)
    bound = bind_prompt(Prompt(template="{text}:", score=["terrible"]), (), ("sentence",))
    with pytest.raises(LimbeckError, match="cuts 'terrible' into several"):
        CausalLabeller(language_model("llama"), byte_tokenizer(chat=True), bound)
    with pytest.raises(LimbeckError, match="on this machine alone"):
        EndpointLabeller(EndpointSettings(url="http://localhost:1", model="x"), bound)


def test_a_chat_template_alone_says_that_a_model_is_a_reranker(tmp_path) -> None:
    plain = save_language_model(tmp_path / "plain", "qwen3")
    assert reranker_prompt(plain) is None
    data = tmp_path / "candidates.jsonl"
    data.write_text(
        json.dumps({"query": "a film", "passages": ["It was good.", "bad " * 9]}) + "\n"
    )
    with pytest.raises(
        LimbeckError, match=r'<Query>: {query}\n.*{passage}\n +score: \["no", "yes"\]'
    ):
        label(plain, data, out=tmp_path / "store")
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = ROLES.replace(SYSTEM, 'Answer "yes" or "no".')
    tokenizer.save_pretrained(plain)
    label(plain, data, out=tmp_path / "store", to=tmp_path / "scores.jsonl", with_text=True)
    for line in (
        (tmp_path / "scores.jsonl").read_text().splitlines()
    ):  # Jinja drops a template's last newline
        row = json.loads(line)
        said = (f'<s>system\nAnswer "yes" or "no".<s>user\n<Instruct>: Find it\n<Query>: {row["query"]}\n'
                f"<Document>: {row['passage']}<s>assistant\n<think>\n\n</think>\n")  # fmt: skip
        ids = tokenizer(said, add_special_tokens=False).input_ids
        # "yes" and "no" are letters for this tokenizer: their probabilities are products.
        logs = []
        for word in ("no", "yes"):
            more = tokenizer(word, add_special_tokens=False).input_ids
            with torch.no_grad():
                steps = (
                    language_model("qwen3")(torch.tensor([ids + more]))
                    .logits[0]
                    .double()
                    .log_softmax(-1)
                )
            logs.append(sum(float(steps[len(ids) - 1 + n, token]) for n, token in enumerate(more)))
        assert row["score"] == pytest.approx(logs[1] - logs[0], abs=1e-3)


def test_an_endpoints_log_probabilities_come_to_the_same_score(server) -> None:
    prompt = Prompt(template="{text}\nIs:", score=["bad", "good"])
    bound = bind_prompt(prompt, (), ("sentence",))
    rows = [{"sentence": text} for text in ("a good film", "x")]
    settings = EndpointSettings(url=server, model="tiny", top_logprobs=1000)
    with EndpointLabeller(settings, bound) as made:
        assert made.outputs == ("logits", "coverage")
        found = made.score(rows)["logits"]
    model, tokenizer = language_model("llama"), byte_tokenizer()
    words = [tokenizer.decode([number]).strip().lower() for number in range(len(tokenizer))]
    for row, (score,) in zip(rows, found.tolist(), strict=True):
        ids = tokenizer(f"<s>user: Text: {row['sentence']}\nIs:\n<s>assistant:").input_ids
        with torch.no_grad():
            shares = model(torch.tensor([ids])).logits[0, -1].softmax(-1)
        good, bad = (
            sum(float(shares[at]) for at, word in enumerate(words) if word and one.startswith(word))
            for one in ("good", "bad")
        )
        assert score == pytest.approx(math.log(good / bad), abs=0.1)


def test_log_odds_are_not_made_of_votes_and_a_scale_is(server) -> None:
    def asked(score):
        bound = bind_prompt(Prompt(template="{text}\nIs:", score=score), (), ("sentence",))
        settings = EndpointSettings(url=server, model="tiny", mode="votes", votes=9)
        return EndpointLabeller(settings, bound)

    with pytest.raises(LimbeckError, match="log-odds are of log-probabilities"):
        asked(["bad", "good"])
    with asked({"bad": 1.0, "good": 3.0}) as made:
        assert made.outputs == ("logits", "unparsable")
        (value,) = made.score([{"sentence": "a good film"}])["logits"][0].tolist()
        assert 1 <= value <= 3 and (value - 1) / 2 * 9 == pytest.approx(round((value - 1) / 2 * 9))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"score": ["a", "b", "c"]}, "there are 3"),
        ({"questions": {"x": "y?"}, "template": "{text} {question}"}, "need two answers"),
        ({"score": ["a", "b"], "questions": {"x": "y?"}}, "needs {question}"),
        ({"score": ["a", "b"], "calibrate": True}, "calibrate"),
        ({"score": ["a", "b"], "roles": ["query", "document"]}, "roles: 2 for the columns"),
        ({"score": ["yes", "Yes"]}, "are both"),
    ],
)
def test_what_does_not_go_together_is_said(settings, said) -> None:
    with pytest.raises(LimbeckError, match=said.replace("{", r"\{")):
        bind_prompt(Prompt(**settings), (), ("sentence",))


def test_roles_that_a_template_does_not_write_are_said() -> None:
    bound = bind_prompt(
        Prompt(score=["bad", "good"], roles=["query", "document"]), (), ("query", "passage")
    )
    with pytest.raises(LimbeckError, match="does not write query, document"):
        CausalLabeller(language_model("llama"), byte_tokenizer(), bound)


def test_prompts_without_a_score_keep_their_digest() -> None:
    assert prompt_digest(Prompt()) == "2e26acd24f479a6017820c2d203ad186"
    assert prompt_digest(Prompt(score={"a": 1.0, "b": 2.0})) != prompt_digest(
        Prompt(score={"b": 2.0, "a": 1.0})
    )
