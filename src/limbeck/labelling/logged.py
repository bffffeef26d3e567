"""Answers that a language model gave before: logs and batch files of chat completions as rows with their labels.

A line is a request with its response, either of them with a `custom_id` (OpenAI's batch input and output), a chat that
ends with the answer, or a row of two columns. The prompt's template finds the text, the parser of endpoint answers the
label.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from limbeck.data.files import form_of
from limbeck.data.table import read_table
from limbeck.data.text_rows import TextRows
from limbeck.labelling.language_models import answers, causal
from limbeck.labelling.language_models.prompt import BoundPrompt, Row, prompt_digest
from limbeck.support import plain
from limbeck.support.errors import LimbeckError
from limbeck.support.files import at_home

PAIRS = (("request", "response"), ("input", "output"), ("prompt", "completion"))
"""What request and response are called, in a line of JSON and as columns of a table."""
_OK = 200
_SHOWN = 80
Texts = tuple[str, ...]
"""The texts of a row, in the order of the prompt's columns."""


class Exchange(NamedTuple):
    """A request and its response, either None where another line with the same `key` holds it."""

    file: str
    place: str
    request: Any
    response: Any
    key: str | None = None


@dataclass
class LoggedAnswers:
    """A labeller that knows the rows of a log and no others.

    Attributes:
        bound: the prompt.
        files: where the answers are from.
        found: by texts, each answer in the form of an endpoint's.
        name: the model's, if the log names one.
        counts: the lines that were read, and their outcome.
    """

    bound: BoundPrompt
    files: Texts
    found: dict[Texts, answers.Answer]
    name: str
    counts: Mapping[str, int]
    batch_size: int = 4096

    @property
    def kind(self) -> str:
        """The task type."""
        return causal.kind_of(self.bound)

    @property
    def classes(self) -> Texts:
        """Names in id order; none of a number."""
        return self.bound.labels

    @property
    def outputs(self) -> Texts:
        """What `score` returns."""
        return causal.outputs_of(self.bound, votes="votes" in next(iter(self.found.values())))

    def fingerprint(self) -> dict[str, Any]:
        """Digests of the prompt and of all answers."""
        told = answers.key_of([*self.found.items()])
        return {"prompt": prompt_digest(self.bound.prompt), "answers": told}

    def score(self, rows: Sequence[Row]) -> dict[str, np.ndarray]:
        """The outputs of rows of the log, float32."""
        names = self.bound.columns
        own = [self.found[tuple(row[name] for name in names)] for row in rows]
        return causal.labels_of_answers(self.bound, own, None)

    def rows(self) -> TextRows:
        """All rows, each once."""
        columns = zip(self.bound.columns, zip(*self.found, strict=True), strict=True)
        found = {n: pa.chunked_array([pa.array(own, pa.large_string())]) for n, own in columns}
        return TextRows(found, self.files, self.bound.columns)

    def report(self) -> str:
        """The number of lines by outcome."""
        counted = [f"{count:,} {what}" for what, count in self.counts.items() if count]
        return f"{', '.join(self.files)}: {len(self.found):,} texts; {', '.join(counted)}"


def read_logged(
    paths: Sequence[str], bound: BoundPrompt, columns: Sequence[str] = ()
) -> LoggedAnswers:
    """The answers in some files.

    Args:
        paths: JSON lines, or tables with a column of requests and one of responses; of a batch input and output.
        bound: the prompt that was used; without a template a request is only a text.
        columns: the names of requests and responses; by default as in `PAIRS`.

    Raises:
        LimbeckError: a line that cannot be read, with its place and what to do; or no answer in all of them.
    """
    if bound.prompt.questions or bound.prompt.roles:
        raise LimbeckError(
            "answers: prompts with questions or roles are not read", "leave both out"
        )
    counts: Counter[str] = Counter()
    models: set[str] = set()
    said: dict[Texts, list[answers.Answer]] = defaultdict(list)
    files: dict[Texts, set[str]] = defaultdict(set)
    reader = answers.AnswerReader(bound)
    for one in _joined(_exchanges(paths, columns), counts):
        counts["answers"] += 1
        texts = _texts(one, bound)
        if not any(text.strip() for text in texts):
            counts["about no text, left out"] += 1
            continue
        choices, model, lacking = _choices(one.response)
        answer = reader.counted(choices)
        if not any(answer["votes"]):
            counts[f"{lacking or 'name no class'}, left out"] += 1
            continue
        models |= {model} if model else set()
        counts["about a text that has one already"] += texts in said
        tokens = answers.listed_tokens(choices[0])
        listed = answers.listed_classes(tokens, bound.answers) if tokens else None
        if listed is not None and not listed.undecided:
            answer |= {"logs": listed.logs.tolist(), "coverage": [listed.coverage]}
        said[texts].append(answer)
        files[texts].add(one.file)
    if not said:
        raise LimbeckError(
            f"answers: no line names a class ({', '.join(f'{n:,} {what}' for what, n in counts.items())})",
            f"check the prompt: the answers that it knows are {', '.join(bound.answers)}",
        )
    logs = all("logs" in answer for own in said.values() for answer in own)
    if not logs and isinstance(bound.prompt.score, list):
        raise LimbeckError(
            "score: log-odds are of log-probabilities, and not every answer was logged with them",
            "write score: {no: 0, yes: 1}: the share of yes",
        )
    found = {texts: _together(own, logs=logs) for texts, own in said.items()}
    voted = [sum(np.array(answer["votes"]) for answer in own) for own in said.values()]
    counts["texts with contradictory answers"] = sum(int(np.count_nonzero(v) > 1) for v in voted)
    _count_near_copies(files, counts)
    name = models.pop() if len(models) == 1 else "several models" if models else "a model"
    return LoggedAnswers(bound, tuple(paths), found, f"{name} (logged)", counts)


def _together(own: Sequence[answers.Answer], *, logs: bool) -> answers.Answer:
    """The answers about one text as one: the mean of log-probabilities, otherwise all votes."""
    if logs:
        return {n: np.mean([one[n] for one in own], axis=0).tolist() for n in ("logs", "coverage")}
    return {n: np.sum([one[n] for one in own], axis=0).tolist() for n in ("votes", "unparsable")}


def _count_near_copies(files: Mapping[Texts, set[str]], counts: Counter[str]) -> None:
    """Count texts that differ from another in case, spaces, digits or punctuation only."""
    alike: dict[Texts, list[set[str]]] = defaultdict(list)
    for texts, own in files.items():
        plainer = (re.sub(r"[\W_]+", " ", re.sub(r"\d+", "0", text.casefold())) for text in texts)
        alike[tuple(text.strip() for text in plainer)].append(own)
    counts["near-copies of another text"] = sum(len(group) - 1 for group in alike.values())
    counts["texts or near-copies in several files"] = sum(
        len(set().union(*group)) > 1 for group in alike.values()
    )


# From a line to a request and its response.


def _exchanges(paths: Iterable[str], columns: Sequence[str]) -> Iterator[Exchange]:
    pairs = [(columns[0], columns[1])] if columns else [*PAIRS]
    for name in paths:
        path = plain.regular(at_home(name))
        if form_of(path) == "jsonl":
            for number, line in enumerate(path.read_bytes().splitlines(), start=1):
                if line.strip():
                    yield _of_line(name, f"{name}, line {number}", line, pairs)
            continue
        table = read_table(path)
        pair = next((one for one in pairs if {*one} <= {*table.columns}), None)
        if pair is None:
            raise LimbeckError(
                f"answers: {name} has the columns {', '.join(table.columns)}",
                "name the columns of the request and of the answer: --text-columns REQUEST --label-column ANSWER",
            )
        for number, both in enumerate(zip(*map(table.named, pair), strict=True), start=1):
            yield Exchange(name, f"{name}, row {number}", *both)


def _of_line(file: str, place: str, line: bytes, pairs: Iterable[tuple[str, str]]) -> Exchange:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LimbeckError(
            f"{place} is not JSON: {error}", "write one object in each line, or remove the line"
        ) from None
    value = value if isinstance(value, dict) else {}
    for asked, answered in [*pairs, ("body", "response"), ("messages", "choices")]:
        if asked in value and answered in value:
            whole = asked == "messages"
            return Exchange(
                file, place, *((value, value) if whole else (value[asked], value[answered]))
            )
    key, messages = value.get("custom_id"), value.get("messages")
    if isinstance(key, str) and "body" in value:
        return Exchange(file, place, value["body"], None, key)
    if isinstance(key, str) and ("response" in value or "error" in value):
        return Exchange(file, place, None, value.get("response") or {"error": "none"}, key)
    if messages and isinstance(messages, list) and _role(messages[-1]) == "assistant":
        return Exchange(file, place, {"messages": messages[:-1]}, messages[-1])
    raise LimbeckError(
        f"{place} is neither a request with its response nor a line of a batch file; it has "
        f"{', '.join(value) or 'no object'}",
        f"name the two as {' or '.join('/'.join(pair) for pair in pairs)}, or remove the line",
    )


def _joined(exchanges: Iterable[Exchange], counts: Counter[str]) -> Iterator[Exchange]:
    """Complete exchanges; the ones from halves come last."""
    requests: dict[str, Exchange] = {}
    responses: dict[str, Exchange] = {}
    for one in exchanges:
        if one.key is None:
            yield one
            continue
        halves = requests if one.response is None else responses
        if one.key in halves:
            raise LimbeckError(
                f"{one.place}: custom_id {one.key!r} occurs in {halves[one.key].place} too",
                "label each batch separately, or remove one of the lines",
            )
        halves[one.key] = one
    for key, one in responses.items():
        if key not in requests:
            raise LimbeckError(
                f"{one.place}: no file that is named has the request of custom_id {key!r}",
                "name the batch's input file too: --answers INPUT.jsonl OUTPUT.jsonl",
            )
        yield one._replace(request=requests[key].request)
    counts["requests without a response"] = len(requests.keys() - responses.keys())


def _role(message: Any) -> Any:
    return message.get("role") if isinstance(message, dict) else None


def _texts(one: Exchange, bound: BoundPrompt) -> Texts:
    """The texts of the row in the request.

    Raises:
        LimbeckError: the request contains no text, or another prompt.
    """
    body = answers.part_of(one.request, "body") or one.request
    asked = body
    if isinstance(body, dict):
        said = body.get("messages")
        own = [m for m in said if _role(m) == "user"] if isinstance(said, list) else []
        asked = own[-1].get("content") if own else body.get("prompt")
    if isinstance(asked, list):
        asked = "".join(str(part.get("text", "")) for part in asked if isinstance(part, dict))
    if not isinstance(asked, str):
        raise LimbeckError(
            f"{one.place}: the request has no text of a user", "add it, or remove the line"
        )
    if "template" not in bound.prompt.model_fields_set:
        return (asked.strip(),)
    found = bound.texts_in(asked)
    if found is None:
        raise LimbeckError(
            f"{one.place}: the template does not fit the request, which begins {asked[:_SHOWN]!r}",
            "write --prompt's template in the form of the requests, or remove the lines of other prompts",
        )
    return tuple(found[name] for name in bound.columns)


def _choices(response: Any) -> tuple[list[Any], str, str]:
    """The choices, the model's name, and why there is no answer."""
    if not isinstance(response, dict):
        return [{"text": response}], "", "" if isinstance(response, str) else "without a response"
    body = answers.part_of(response, "body") or response
    if response.get("error") or body.get("error") or response.get("status_code", _OK) != _OK:
        return [], "", "failed"
    given = body.get("choices")
    choices = given if given and isinstance(given, list) else [{"message": body}]
    refused = any(
        answers.part_of(one, "message").get("refusal")
        or one.get("finish_reason") == "content_filter"
        for one in choices
        if isinstance(one, dict)
    )
    return choices, str(body.get("model") or ""), "refused" if refused else ""
