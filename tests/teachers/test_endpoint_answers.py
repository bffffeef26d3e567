"""What a server's answer says of the classes: listed tokens, sampled texts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from torch.testing import assert_close

from limbeck.labelling.language_models.answers import (
    AnswerReader,
    listed_classes,
    nested_answers,
)
from limbeck.labelling.language_models.prompt import Prompt, bind_prompt


def listed(*pairs):
    return [(text, math.log(probability)) for text, probability in pairs]


def test_tokens_that_begin_one_answer_are_its() -> None:
    found = listed_classes(
        listed((" positive", 0.4), ("Pos", 0.1), (" neg", 0.2), (" ", 0.1), ("maybe", 0.1)),
        ("negative", "positive"),
    )
    assert_close(np.exp(found.logs), np.array([0.2, 0.5]))
    assert found.coverage == pytest.approx(0.7)


def test_a_token_that_begins_two_answers_is_nobodys() -> None:
    found = listed_classes(
        listed(("ne", 0.3), ("NE", 0.2), ("neu", 0.3), ("it", 0.1)), ("negative", "neutral")
    )
    assert found.coverage == pytest.approx(0.3) and found.undecided == "ne"
    alone = listed_classes(listed(("ne", 0.5), ("x", 0.1)), ("negative", "neutral"))
    assert alone.coverage == 0 and alone.undecided == "ne"


# What a model says, whole, with its probability; and how a tokenizer cuts it.
SAID = {"positive": 0.35, "positively": 0.02, "possible": 0.01, "negative": 0.5, "never": 0.12}


@pytest.mark.parametrize("size", range(1, 11))
def test_first_tokens_against_all_that_a_model_says(size) -> None:
    """Every text enumerated: where its first token is decisive its whole probability counts, else it is nobody's."""
    answers = ("positive", "positively", "possible", "negative")
    tokens: dict[str, float] = {}
    for text, probability in SAID.items():
        tokens[text[:size]] = tokens.get(text[:size], 0.0) + probability
    found = listed_classes([(text, math.log(p)) for text, p in tokens.items()], answers)
    of_class, nobodys = dict.fromkeys(answers, 0.0), 0.0
    for text, probability in SAID.items():
        could = [answer for answer in answers if answer.startswith(text[:size])]
        if len(could) == 1:
            of_class[could[0]] += probability
        elif could:
            nobodys += probability
    for answer, log in zip(answers, found.logs, strict=True):
        if of_class[answer]:
            assert math.exp(log) == pytest.approx(of_class[answer])
    # "positive" may go on to "positively" however long the token is that says it.
    assert nobodys > 0.05 * (nobodys + sum(of_class.values())) and found.undecided


@pytest.mark.parametrize(
    ("answers", "pair"),
    [
        (("negative", "Positively", "positive"), ("positive", "Positively")),
        (("negative", "positive"), None),
        (("A", "B"), None),
    ],
)
def test_answers_that_go_on_from_another(answers, pair) -> None:
    assert nested_answers(answers) == pair


@pytest.mark.parametrize(
    ("pairs", "most"),
    [
        ((("A", 0.6), ("x", 0.1)), 0.1),  # no likelier than the last that is listed
        ((("A", 0.6), ("x", 0.35)), 0.05),  # than all that is not listed
    ],
)
def test_a_class_that_is_not_listed_has_the_most_that_it_can_have(pairs, most) -> None:
    found = listed_classes(listed(*pairs), ("A", "B"))
    assert_close(np.exp(found.logs), np.array([0.6, most]))


def test_no_answer_is_listed() -> None:
    assert listed_classes(listed(("x", 0.9), ("", 0.1)), ("A", "B")) is None


READER = AnswerReader(
    bind_prompt(
        Prompt(verbalizations={"not_equivalent": "no", "equivalent": "yes"}),
        ("not_equivalent", "equivalent"),
        ("a", "b"),
    )
)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("yes", 1),
        (" Yes.\n\nBecause they say the same, no doubt.", 1),
        ("**No**", 0),
        ("equivalent", 1),
        ("not_equivalent", 0),
        ('{"label": "yes"}', 1),
        ('{"label": "No"}', 0),
        ('{"label": 1}', None),
        ('{"answer": "yes"}', None),
        ("The answer is yes", None),
        ("yes or no", None),
        ("", None),
        ("\n", None),
        ("[" * 100_000, None),
        ("1", None),
    ],
)
def test_only_a_class_alone_is_an_answer(text, number) -> None:
    assert READER(text) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [("A", 0), ("(b)", 1), ("A. negative", 0), ("b) positive", 1), ("positive", 1), ("A. positive", None), ("C", None)],
)  # fmt: skip
def test_letters(text, number) -> None:
    bound = bind_prompt(Prompt(answers="letters"), ("negative", "positive"), ("sentence",))
    assert AnswerReader(bound)(text) == number
