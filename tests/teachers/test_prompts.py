"""What a language model is asked: templates, lists of answers, examples, and everything wrong with them at once."""

from __future__ import annotations

import pytest

from limbeck.labelling.language_models.prompt import Prompt, bind_prompt, read_prompt
from limbeck.support.errors import LimbeckError

CLASSES = ("negative", "positive")
ROW = {"sentence": "a {dull} film"}


def test_the_prompt_of_a_task_that_nobody_wrote_one_for() -> None:
    bound = bind_prompt(Prompt(), ("not_equivalent", "equivalent"), ("sentence1", "sentence2"))
    assert bound.whole({"sentence1": "It rains.", "sentence2": "{It} pours."}) == (
        "Answer with one of:\n- not equivalent\n- equivalent\n\n"
        "Sentence1: It rains.\nSentence2: {It} pours.\nAnswer:"
    )


def test_everything_in_its_place() -> None:
    prompt = Prompt(
        template="{classes}\n{examples}{{Review}} {sentence} ({text}) is",
        text="<{sentence}>",
        example="{text} is {answer}; ",
        system="You read reviews.",
        verbalizations={"negative": "bad", "positive": "good"},
        descriptions={"positive": "worth seeing"},
        examples=[
            {"sentence": "so {x}", "class": "positive"},
            {"sentence": "no", "class": "negative"},
        ],
    )
    bound = bind_prompt(prompt, CLASSES, ("sentence",))
    assert bound.messages(ROW) == [
        {"role": "system", "content": "You read reviews."},
        {
            "role": "user",
            "content": "Answer with one of:\n- bad\n- good: worth seeing\n"
            "<so {x}> is good; <no> is bad; {Review} a {dull} film (<a {dull} film>) is",
        },
    ]
    assert bound.answers == ("bad", "good")


def test_outer_space_of_words_is_left_out() -> None:
    words = {"negative": " bad", "positive": " very good\n"}
    prompt = Prompt(verbalizations=words, examples=[{"sentence": "no", "class": "negative"}])
    bound = bind_prompt(prompt, CLASSES, ("sentence",))
    assert bound.answers == bound.verbalizations == ("bad", "very good")
    assert bound.text(ROW) == (
        "Answer with one of:\n- bad\n- very good\n\n"
        "Text: no\nAnswer: bad\n\nText: a {dull} film\nAnswer:"
    )


def test_letters() -> None:
    prompt = Prompt(answers="letters", examples=[{"sentence": "no", "class": "negative"}])
    bound = bind_prompt(prompt, CLASSES, ("sentence",))
    assert bound.answers == ("A", "B")
    assert bound.text(ROW) == (
        "Answer with the letter of one of:\nA. negative\nB. positive\n\n"
        "Text: no\nAnswer: A\n\nText: a {dull} film\nAnswer:"
    )


@pytest.mark.parametrize(
    "name", ["sentence.__class__", "sentence[0]", "sentence!r", "sentence:>9", "0", ""]
)
def test_templates_look_into_nothing(name) -> None:
    with pytest.raises(LimbeckError, match="template"):
        bind_prompt(Prompt(template=f"{{text}} {{{name}}}"), CLASSES, ("sentence",))


def test_all_that_is_wrong_at_once() -> None:
    prompt = Prompt(
        template="{classes} {sentnce}",
        text="{sentence",
        example="{label}",
        verbalizations={"positive": "good", "negatve": "bad"},
        descriptions={"neutral": "neither"},
        examples=[{"sentence": "fine", "class": "positve"}, {"text": "x"}],
    )
    with pytest.raises(LimbeckError) as caught:
        bind_prompt(prompt, CLASSES, ("sentence",))
    assert [problem.message for problem in caught.value.problems] == [
        "unknown class in verbalizations 'negatve'",
        "unknown class in descriptions 'neutral'",
        "verbalizations: class 'negative' has no words",
        "unknown name in template 'sentnce'",
        "text: expected '}' before end of string",
        "unknown name in example 'label'",
        "unknown class in examples, number 1 'positve'",
        "examples, number 2: it has text, expected sentence, class",
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"template": "{classes}"}, "needs {text}"),
        ({"template": "{text}", "descriptions": {"positive": "x"}}, "needs {classes}"),
        ({"template": "{text}", "answers": "letters"}, "needs {classes}"),
        (
            {"template": "{text}", "examples": [{"sentence": "a", "class": "positive"}]},
            "needs {examples}",
        ),
        ({"verbalizations": {"negative": "Bad ", "positive": "bad"}}, "both 'bad'"),
    ],
)
def test_what_would_not_be_read(settings, message) -> None:
    with pytest.raises(LimbeckError, match=message):
        bind_prompt(Prompt(**settings), CLASSES, ("sentence",))


ONE = [{"sentence": "fine", "class": "positive"}]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("classes", {}),
        ("examples", {}),
        ("class", {"examples": ONE}),
        ("answer", {"examples": ONE, "example": "{text}: {answer}\n"}),
    ],
)
def test_columns_called_as_what_a_prompt_names_itself(name, settings) -> None:
    with pytest.raises(LimbeckError, match=f"column '{name}' has a name that a prompt gives"):
        bind_prompt(Prompt(**settings), CLASSES, ("sentence", name))


def test_columns_whose_names_mean_nothing_else_where_they_stand() -> None:
    bound = bind_prompt(Prompt(template="{text} {answer}?"), CLASSES, ("text", "answer"))
    assert bound.whole({"text": "a", "answer": "b"}) == "Text: a\nAnswer: b b?"
    bound = bind_prompt(Prompt(template="{class}?"), CLASSES, ("class",))
    assert bound.whole({"class": "first"}) == "first?"


def test_a_row_of_other_columns() -> None:
    bound = bind_prompt(Prompt(), CLASSES, ("text", "title"))
    message = (
        "no 'text': the prompt is bound to the columns text, title, and the row has sentence, title"
    )
    with pytest.raises(LimbeckError, match=message):
        bound.whole({"sentence": "a", "title": "b"})


def test_a_file_with_unknown_and_mistyped_settings(tmp_path) -> None:
    file = tmp_path / "prompt.yaml"
    file.write_text("templte: x\nchat: 1\nanswers: words\n", encoding="utf-8")
    with pytest.raises(LimbeckError) as caught:
        read_prompt(file)
    messages = [problem.message for problem in caught.value.problems]
    assert len(messages) == 3
    assert f"unknown setting in {file} 'templte'" in " ".join(messages)
    assert f"chat in {file} is 1: input should be a valid boolean" in " ".join(messages)


def test_a_file(tmp_path) -> None:
    file = tmp_path / "prompt.yaml"
    file.write_text("template: '{text} is'\nverbalizations: {negative: bad, positive: good}\n")
    bound = bind_prompt(read_prompt(file), CLASSES, ("sentence",))
    assert (bound.whole({"sentence": "it"}), bound.answers) == ("Text: it is", ("bad", "good"))
