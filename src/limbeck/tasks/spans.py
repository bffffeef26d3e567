"""The part of a text that answers a question: SQuAD. Part of `limbeck.tasks`.

A context too long for the model is read in windows that overlap by a third. The head gives each
token two logits, start and end; both distributions run over the context's tokens and the first
token, which means "the answer is not in this window" (Devlin et al. 2019, §4.2).
"""

import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import starmap
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import Dataset, List, Value
from scipy.special import logsumexp
from torch import Tensor
from transformers import AutoModelForQuestionAnswering, PreTrainedModel

from limbeck import functional as F
from limbeck.activations.compat import SPAN_HEADS
from limbeck.support.errors import LimbeckError
from limbeck.tasks import modality, rules
from limbeck.tasks.abstract_type import TASK_TYPES, TaskType, task_type
from limbeck.tasks.metrics import SampledScore, as_agreement, is_agreement, ratio_of_sums

# SQuAD's longest answers are a sentence; longer spans are never proposed.
_LONGEST_ANSWER = 30
OFFSETS = "offsets"
"""The column of an encoded split that holds each token's characters; −1 outside the context."""
_CANDIDATES = "context_mask"


@task_type("spans")
class Spans(TaskType):
    """Extractive question answering."""

    summary = "the part of a context that answers a question; scored by exact match and F1"
    auto = AutoModelForQuestionAnswering
    heads = SPAN_HEADS
    label_names = ("start_positions", "end_positions")
    extra_columns = (_CANDIDATES,)
    scoring_columns = (OFFSETS, rules.ROW)

    def features(self, task: rules.TaskLike) -> dict[str, Any]:
        """Question, context, and answers by text and first character."""
        answers = {"text": List(Value("string")), "answer_start": List(Value("int64"))}
        return {column: Value("string") for column in task.text_columns} | {
            task.label_column: answers
        }

    def check_rows(self, task: rules.TaskLike, rows: Dataset) -> list[str]:
        """Answers that are not at their given position."""
        contexts = rows[task.text_columns[1]][:]
        wrong = [
            question
            for question, context, row in zip(
                rows[task.text_columns[0]][:], contexts, rows[task.label_column][:], strict=True
            )
            if any(
                context[start : start + len(text)] != text or not text
                for text, start in zip(row["text"], row["answer_start"], strict=True)
            )
            or not row["text"]
        ]
        if not wrong:
            return []
        return [
            f"{len(wrong)} of {len(rows)} rows have no answer, or one that is not at its "
            f"answer_start (the first question is {wrong[0]!r:.60})"
        ]

    def encode(
        self, task: rules.TaskLike, tokenizer: modality.Processor, max_length: int, rows: rules.Rows
    ) -> rules.Rows:
        """A row for each window; `row` names the split's row it is of."""
        questions, contexts = ([*rows[column]] for column in task.text_columns)
        stride = max_length // 3
        self._check_questions(tokenizer, questions, max_length)
        encoded = tokenizer(
            questions,
            contexts,
            truncation="only_second",
            max_length=max_length,
            stride=stride,
            padding=False,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        sources = encoded.pop("overflow_to_sample_mapping")
        offsets = encoded.pop("offset_mapping")
        columns: rules.Rows = dict(encoded)
        columns[rules.ROW] = [rows["index"][source] for source in sources]
        # Windows lose nothing.
        columns[rules.CUT] = [False] * len(sources)
        inside = [
            [side == 1 for side in encoded.sequence_ids(window)] for window in range(len(sources))
        ]
        columns[_CANDIDATES] = [
            [int(is_context or place == 0) for place, is_context in enumerate(row)]
            for row in inside
        ]
        columns[OFFSETS] = [
            [list(pair) if here else [-1, -1] for pair, here in zip(pairs, row, strict=True)]
            for pairs, row in zip(offsets, inside, strict=True)
        ]
        if task.label_column in rows:
            places = [
                _place(rows[task.label_column][source], window)
                for source, window in zip(sources, columns[OFFSETS], strict=True)
            ]
            columns["start_positions"] = [start for start, _ in places]
            columns["end_positions"] = [end for _, end in places]
        return columns

    def _check_questions(
        self, tokenizer: modality.Processor, questions: list[str], max_length: int
    ) -> None:
        lengths = [len(ids) for ids in tokenizer(questions, add_special_tokens=False)["input_ids"]]
        over = max(lengths) - room_for_questions(tokenizer, max_length)
        if over > 0:
            longest = questions[lengths.index(max(lengths))]
            raise LimbeckError(
                f"the question {longest[:60]!r} has {max(lengths)} tokens, which leaves no room for its context",
                f"raise max_length to {max_length + over * 3 // 2 + 1} or more if the model reads as many (384 is "
                "usual), or leave this row out",
            )

    def pad_labels(
        self, rows: list[dict[str, Any]], tokenizer: modality.Processor, width: int
    ) -> dict[str, Tensor]:
        """Start and end positions (B), and which tokens may be either (B, width)."""
        left = tokenizer.padding_side == "left"
        shifts = torch.tensor([width - len(row["input_ids"]) if left else 0 for row in rows])
        found = {}
        for name in self.label_names:
            if name in rows[0]:
                found[name] = torch.tensor([row.pop(name) for row in rows]) + shifts
        if _CANDIDATES in rows[0]:
            masks = [row.pop(_CANDIDATES) for row in rows]
            found[_CANDIDATES] = rules.pad_column(masks, width, 0, left=left)
        return found

    def head_labels(self, task: rules.Labelled) -> tuple[str, ...]:
        """Start and end; transformers leaves them without names."""
        return ("LABEL_0", "LABEL_1")

    def hard_label(
        self, logits: Tensor, batch: rules.Batch, rule: rules.HardRule = rules.PLAIN
    ) -> Tensor:
        """The mean of start's and end's cross-entropy, of logits (B, N, 2); −100 is no position."""
        rules.need_labels(batch, self.label_names)
        starts, ends = (batch[name] for name in self.label_names)
        return F.span_cross_entropy(logits, starts, ends, _candidates(batch))

    def soft_label(
        self, student: Tensor, teacher: Tensor, batch: rules.Batch, rule: rules.SoftRule
    ) -> Tensor:
        """The mean of the start and the end distribution's distance."""
        distance = F.span_soft_kl if rule.compare == "soft_kl" else F.span_soft_cross_entropy
        return distance(student, teacher, _candidates(batch), **rule.at)

    def compact_outputs(self, model: PreTrainedModel, batch: rules.Batch, logits: Tensor) -> Tensor:
        """The logits (B, N, 2), real tokens first."""
        mask = batch["attention_mask"].bool()
        order = torch.argsort((~mask).int(), dim=1, stable=True)
        return logits.gather(1, order.unsqueeze(-1).expand_as(logits)).float()

    def results(
        self, task: rules.TaskLike, outputs: np.ndarray, of: rules.ScoredSplit
    ) -> rules.Results:
        """Exact match and F1 of each row's likeliest span over all its windows."""
        rows = of.rows
        right = [list(found["text"]) for found in rows[task.label_column][:]]
        given = [answer["text"][0] for answer in self._answers(task, outputs, of)]
        pairs = list(zip(given, right, strict=True))
        scores = {
            "exact_match": 100 * sum(exact_match(*pair) for pair in pairs) / len(pairs),
            "f1": 100 * sum(token_f1(*pair) for pair in pairs) / len(pairs),
        }
        kept = {"index": rows["index"][:], "prediction": given, "label": right}
        if is_agreement(task.primary):
            scores["accuracy"] = scores.pop("exact_match")
            return rules.Results(as_agreement(scores, task.metrics), kept)
        return rules.Results(scores | {"primary": scores[task.primary]}, kept)

    def _answers(
        self, task: rules.TaskLike, outputs: np.ndarray, of: rules.ScoredSplit
    ) -> list[dict[str, Any]]:
        """Each row's likeliest answer as a file has it; an empty text where no window has a word of context."""
        best = best_spans(of.encoded[rules.ROW], of.encoded[OFFSETS], outputs)
        found = []
        for row, context in zip(of.rows["index"], of.rows[task.text_columns[1]], strict=True):
            start, end = (0, 0) if row not in best else (best[row].start, best[row].end)
            start, end = without_space(context, start, end)
            found.append({"text": [context[start:end]], "answer_start": [start]})
        return found

    def file_labels(
        self, task: rules.TaskLike, outputs: np.ndarray, of: rules.ScoredSplit
    ) -> tuple[list[Any], Any]:
        """Answers by text and first character."""
        return self._answers(task, outputs, of), self.features(task)[task.label_column]

    def agreement_metrics(self, task: rules.TaskLike) -> tuple[str, ...]:
        """The overlap of answers in words (F1), and the share of equal answers."""
        return ("overlap", "agreement")

    def sampled_score(
        self, task: rules.TaskLike, metric: str, kept: rules.Kept
    ) -> SampledScore | None:
        """Both metrics are means over rows."""
        score = {"exact_match": exact_match, "f1": token_f1}.get(metric)
        if score is None:
            return None
        found = [*starmap(score, zip(kept["prediction"], kept["label"], strict=True))]
        return ratio_of_sums(found, np.ones(len(found)))

    def baseline(self, task: rules.TaskLike, labels: rules.Labels) -> tuple[float, str]:
        """No answer, which never is the right one."""
        rules.need_rows(task, labels)
        return 0.0, "nothing"


def room_for_questions(tokenizer: modality.Processor, max_length: int) -> int:
    """Tokens of a question that leave its context room to move on by a third of `max_length` in each window."""
    return max_length - max_length // 3 - int(tokenizer.num_special_tokens_to_add(pair=True)) - 1


def _place(answers: dict[str, list[Any]], offsets: list[list[int]]) -> tuple[int, int]:
    """First and last token of the first right answer; 0, 0 if the window does not hold all of it."""
    if not answers["text"]:
        return 0, 0
    begin = answers["answer_start"][0]
    end = begin + len(answers["text"][0])
    inside = [place for place, (start, _) in enumerate(offsets) if start >= 0]
    if not inside or offsets[inside[0]][0] > begin or offsets[inside[-1]][1] < end:
        return 0, 0
    touched = [place for place in inside if offsets[place][0] < end and offsets[place][1] > begin]
    return (touched[0], touched[-1]) if touched else (0, 0)


def _candidates(batch: rules.Batch) -> Tensor:
    """Where an answer may begin or end, (B, N)."""
    return (batch[_CANDIDATES] if _CANDIDATES in batch else batch["attention_mask"]).bool()


class BestSpan(NamedTuple):
    """The likeliest span of a row; the greater, the likelier.

    `logit`: the sum of its two. `start`, `end`: characters of the context. `probability`: of start times end, among
    the places that its window has for them.
    """

    logit: float
    start: int
    end: int
    probability: float


def best_spans(
    rows: Sequence[int], offsets: Sequence[Sequence[Sequence[int]]], logits: Iterable[np.ndarray]
) -> dict[int, BestSpan]:
    """By row the likeliest span over all its windows; none of a row without a word of context.

    Args:
        rows: of each window its row.
        offsets: of each window its tokens' characters, `OFFSETS`.
        logits: of each window (N, 2) or longer, real tokens first.
    """
    best: dict[int, BestSpan] = {}
    for row, places, outputs in zip(rows, offsets, logits, strict=True):
        proposed = _best_span(outputs[: len(places)], np.asarray(places))
        if proposed is not None and (row not in best or proposed > best[row]):
            best[row] = proposed
    return best


def without_space(text: str, start: int, end: int) -> tuple[int, int]:
    """Part of a text without the white space around it, which byte-level tokenizers count to the word behind it."""
    part = text[start:end]
    start += len(part) - len(part.lstrip())
    return start, start + len(part.strip())


def _best_span(logits: np.ndarray, offsets: np.ndarray) -> BestSpan | None:
    inside = np.flatnonzero(offsets[:, 0] >= 0)
    if not len(inside):
        return None
    start, end = logits[inside, 0], logits[inside, 1]
    sums = start[:, None] + end[None, :]
    length = np.arange(len(inside))[None, :] - np.arange(len(inside))[:, None]
    sums = np.where((length >= 0) & (length < _LONGEST_ANSWER), sums, -np.inf)
    first, last = np.unravel_index(sums.argmax(), sums.shape)
    # The first token means "not in this window".
    among = logits[np.union1d([0], inside)]
    return BestSpan(
        float(sums[first, last]),
        int(offsets[inside[first], 0]),
        int(offsets[inside[last], 1]),
        float(np.exp(sums[first, last] - logsumexp(among, axis=0).sum())),
    )


SPANS = TASK_TYPES.get("spans")


# SQuAD 1.1's two scores of an answer: exact match and token F1. Rajpurkar et al. 2016, §6.1:
# answers are compared without case, punctuation and articles, and with the best of the given right
# answers.


_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(answer: str) -> str:
    """Lower case, no punctuation, no articles, single spaces."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, right: Sequence[str]) -> float:
    """1 if the answer equals one of the right ones, otherwise 0."""
    return float(normalise(answer) in {normalise(one) for one in right})


def token_f1(answer: str, right: Sequence[str]) -> float:
    """The best F1, 0 to 1, of the answer's words against a right answer's words.

    Without a shared word it is 0, also where normalising leaves no word of either: version 2.0
    alone takes that for a right "no answer".
    """
    return max(_f1(normalise(answer).split(), normalise(one).split()) for one in right)


def _f1(given: list[str], right: list[str]) -> float:
    shared = sum((Counter(given) & Counter(right)).values())
    return 2 * shared / (len(given) + len(right)) if shared else 0.0
