"""Reading SQuAD's own JSON: articles of paragraphs of questions. Below `own_kinds`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from limbeck.data.endings import opened_text
from limbeck.support.errors import LimbeckError
from limbeck.support.plain import loads


def is_squad(path: Path) -> bool:
    """Whether the file is one JSON object with the key `data`, not an object per line."""
    try:
        with opened_text(path) as file:
            content = loads(file.read())
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and isinstance(content.get("data"), list)


def _check(question: Any, context: Any, answers: Any) -> None:
    """Raise TypeError for values of another type than SQuAD's."""
    for answer in answers:
        start, text = answer["answer_start"], answer["text"]
        if not isinstance(text, str) or not isinstance(start, int) or abs(start) > len(context):
            raise TypeError(f"an answer is {answer!r:.60}")
    if not isinstance(question, str) or not isinstance(context, str):
        raise TypeError(f"the question or context of {question!r:.60} is no text")


def read_squad(path: Path) -> tuple[list[str], list[str], list[dict[str, list[Any]]]]:
    """Questions, contexts and answers of a file for which `is_squad` holds.

    Raises LimbeckError for another layout inside, and for questions without an answer (SQuAD 2.0):
    they have no score in SQuAD 1.1.
    """
    questions: list[str] = []
    contexts: list[str] = []
    answers: list[dict[str, list[Any]]] = []
    unanswered, place = 0, "the file"
    try:
        with opened_text(path) as file:
            articles = loads(file.read())["data"]
        for article in articles:
            place = f"the article behind question {len(questions)}"
            for paragraph in article["paragraphs"]:
                place = f"the paragraph behind question {len(questions)}"
                for asked in paragraph["qas"]:
                    place = f"question {len(questions) + 1}"
                    found = asked["answers"]
                    unanswered += not found
                    _check(asked["question"], paragraph["context"], found)
                    questions.append(asked["question"])
                    contexts.append(paragraph["context"])
                    answers.append(
                        {
                            "text": [answer["text"] for answer in found],
                            "answer_start": [answer["answer_start"] for answer in found],
                        }
                    )
    except (KeyError, TypeError) as error:
        raise LimbeckError(
            f"{path}, {place}: not in SQuAD's layout: "
            + (f"no {error}" if isinstance(error, KeyError) else str(error)),
            "expected data → paragraphs → context, qas → question, answers → text, answer_start",
        ) from error
    if unanswered or not questions:
        raise LimbeckError(
            f"{path}: {unanswered} of {len(questions)} questions have no answer",
            "take them out: every question needs an answer in its context, as in SQuAD 1.1",
        )
    return questions, contexts, answers
