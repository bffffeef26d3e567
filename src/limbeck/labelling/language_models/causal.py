"""A language model on this machine as a labeller: how likely it finds each class's answer."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from scipy.special import expit, log_softmax, logsumexp, softmax
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from limbeck.embedding.folder import read_logit_score
from limbeck.labelling.language_models import scoring
from limbeck.labelling.language_models.answers import Answer
from limbeck.labelling.language_models.prompt import BoundPrompt, Prompt, Row, prompt_digest
from limbeck.outputs.key import digest_of_model, digest_of_text, digest_of_tokenizer
from limbeck.students import load_model, placement, read_config, read_tokenizer
from limbeck.support.errors import LimbeckError
from limbeck.support.machine import device, is_spread, place
from limbeck.support.settings import DeviceMap
from limbeck.tasks import MULTI_LABEL, SENTENCE

# Differences of log-probabilities below it are rounding.
_ROUNDING = 1e-6


TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
"""Types of weights, by precision."""


class CausalLabeller:
    """Labels rows by the likelihood of each class's answer behind a prompt.

    Args:
        model: a causal language model of transformers.
        tokenizer: its tokenizer.
        bound: the prompt.
        name: its name in progress and stores.
        max_length: tokens of a prompt with its answer; None: the model's own limit.
        precision: of weights and activations.
        batch_size: sequences in a forward pass.

    Attributes:
        prior: log-probabilities of the classes for inputs without content, (C,), or None.
        truncated: places of the rows scored last whose longest text lost its end.

    Raises:
        LimbeckError: the prompt does not fit the tokenizer or the model.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        bound: BoundPrompt,
        *,
        name: str = "language model",
        max_length: int | None = None,
        precision: Literal["fp32", "bf16"] = "fp32",
        batch_size: int = 32,
    ) -> None:
        self.name, self.bound, self.classes = name, bound, bound.labels
        self.kind, self.outputs = kind_of(bound), outputs_of(bound)
        limit = scoring.token_limit(model.config, tokenizer, max_length)
        self.tokens = scoring.PromptTokenizer(tokenizer, bound, limit=limit)
        empty = self.tokens.empty
        self._key = {
            "model": digest_of_model(model),
            "tokenizer": digest_of_tokenizer(tokenizer),
            "prompt": prompt_digest(bound.prompt),
            # With classes, columns and chat template, cut into prompt and answers as this version does it.
            "tokens": digest_of_text(repr((empty.prefix, empty.answers))),
            "limit": limit,
            "precision": precision,
        }
        place(model, device())
        # Quantized weights have types of their own; buffers such as rotary frequencies lose too much in bf16.
        if not (getattr(model, "is_quantized", False) or is_spread(model)):
            for weight in model.parameters():
                weight.data = weight.data.to(TYPES[precision])
        self.model = model.eval()
        self.batch_size = 8 * batch_size
        self.truncated: frozenset[int] = frozenset()
        self.scorer = scoring.CausalScorer(
            model, sequences=batch_size, normalized=not bound.reads_logit
        )
        calibrate = bound.prompt.calibrate is not False and bound.prompt.score is None
        self.prior = content_free_prior(self._scores(bound.content_free())) if calibrate else None

    def fingerprint(self) -> dict[str, Any]:
        """Digests of the model, its tokenizer, and the prompt as it is read."""
        return dict(self._key)

    def score(self, rows: Sequence[Row]) -> dict[str, np.ndarray]:
        """As `labels_from`.

        Raises:
            LimbeckError: a row lacks a column of the prompt, or no text of it fits.
        """
        found = labels_from(self.bound, self._scores(self.bound.asked(rows)), self.prior)
        questions = len(self.bound.prompt.questions) or 1
        self.truncated = frozenset(at // questions for at in self.truncated)
        return found

    def _scores(self, rows: Sequence[Row]) -> np.ndarray:
        """Log-scores by class, (B, C), before calibration."""
        tokens = [self.tokens(row) for row in rows]
        self.truncated = frozenset(at for at, row in enumerate(tokens) if row.truncated)
        answers = [row.answers for row in tokens]
        sums = exclusive_scores(self.scorer(tokens).numpy(), answers)
        if self.bound.prompt.normalize_length and self.bound.prompt.score is None:
            sums /= np.array([[len(answer) for answer in own] for own in answers])
        return sums


def kind_of(bound: BoundPrompt) -> str:
    """The task type of a prompt's labels."""
    return MULTI_LABEL.name if bound.prompt.questions else SENTENCE.name


def outputs_of(bound: BoundPrompt, *, votes: bool = False) -> tuple[str, ...]:
    """The names of what `labels_from` gives, of votes `labels_of_answers`: numbers have no probabilities."""
    if votes:
        return (
            ("votes", "probabilities", "unparsable") if bound.labels else ("logits", "unparsable")
        )
    return ("logits", "probabilities") if bound.labels else ("logits",)


def load_causal_labeller(
    path: str | Path, bound: BoundPrompt, *, device_map: DeviceMap | None = None, **settings: Any
) -> CausalLabeller:
    """The labeller of a checkpoint.

    Args:
        path: a folder or a name on the Hub.
        bound: the prompt.
        device_map: how its parts are placed on several devices.
        settings: of `CausalLabeller`: max_length, precision, batch_size.

    Raises:
        LimbeckError: it is no causal language model, cannot be read, or the prompt does not fit it.
    """
    if not is_causal_model(path):
        raise LimbeckError(
            f"teacher: {path} is no causal language model ({_head(path)})",
            "name one whose head is over its vocabulary, or leave the prompt out",
        )
    loading = placement(device_map)
    if loading:  # a model over several devices keeps the type that it was loaded in
        loading["dtype"] = TYPES[settings.get("precision", "fp32")]
    model = load_model(path, auto=AutoModelForCausalLM, loading=loading)
    return CausalLabeller(model, read_tokenizer(path), bound, name=str(path), **settings)


def reranker_prompt(path: str | Path) -> Prompt | None:
    """A reranker's prompt; None for a folder that does not describe one.

    One of sentence-transformers names its tokens (Transformer, LogitScore). Without these modules a chat template with
    the roles query and document defines it, if it writes "yes" and "no" too.

    Raises:
        LimbeckError: it scores tokens that are not answers on their own.
    """
    module, tokenizer = read_logit_score(str(path)), read_tokenizer(path)
    if module is None:
        quoted = re.findall(r"""["'](query|document|yes|no)["']""", str(tokenizer.chat_template))
        asks = {*quoted} == {"query", "document", "yes", "no"}
        return Prompt(roles=["query", "document"], chat=True, score=["no", "yes"]) if asks else None
    own = [one for one in (module.false_token, module.true_token) if one is not None]
    words = [str(tokenizer.decode([one])).strip() for one in own]
    read = [tokenizer(word, add_special_tokens=False)["input_ids"] for word in words]
    if not own or read != [[one] for one in own]:
        raise LimbeckError(
            f"teacher: {path} scores tokens that are no words (LogitScore): "
            f"{', '.join(f'{one} {word!r}' for one, word in zip(own, words, strict=True))}",
            "write --prompt PROMPT.yaml with score: [NO, YES]",
        )
    return Prompt(
        system=module.instruction,
        roles=["query", "document"],
        chat=True,
        chat_template_kwargs={"add_generation_prompt": False, **module.chat_template},
        score=words,
    )


def is_causal_model(path: str | Path) -> bool:
    """Whether a checkpoint is a causal language model."""
    return _head(path).endswith(("ForCausalLM", "LMHeadModel"))


def _head(path: str | Path) -> str:
    return next(iter(read_config(path).architectures or []), "no head named")


def exclusive_scores(scores: np.ndarray, answers: Sequence[scoring.Answers]) -> np.ndarray:
    """log P(the answer, without any longer one), (B, C), from log P(the text begins with the answer).

    A text that begins with "positively" also begins with "positive", so that P("positive") includes P("positively"),
    and the shorter answer would always win. With longer answers subtracted, classes exclude each other:
    P'(a) = P(a) − Σ_b P'(b), over all answers b that continue a. Answers that share tokens and part later exclude
    each other already.

    Args:
        scores: sums of token log-probabilities, (B, C).
        answers: of each row.
    """
    found = np.array(scores, dtype=np.float64)
    for row, own in zip(found, answers, strict=True):
        # The longest first, so that longer answers are exclusive before they are subtracted.
        for number in sorted(range(len(own)), key=lambda at: -len(own[at])):
            answer = own[number]
            longer = [one != answer and one[: len(answer)] == answer for one in own]
            if any(longer):
                taken = logsumexp(row[longer]) - row[number]
                row[number] += np.log(-np.expm1(min(taken, -_ROUNDING)))
    return found


# A model's class scores for an empty text, subtracted from its scores for a text.


def content_free_prior(scores: np.ndarray) -> np.ndarray:
    """log p̂_cf of Zhao et al. 2021, §5: the mean probability of each class, over inputs without content.

    Args:
        scores: class log-scores of those inputs, (M, C); each row's own normalisation does not matter.

    Returns:
        log-probabilities, (C,).
    """
    found: np.ndarray = logsumexp(log_softmax(scores, axis=1), axis=0) - np.log(len(scores))
    return found


def calibrated(scores: np.ndarray, prior: np.ndarray | None) -> dict[str, np.ndarray]:
    """From class log-scores (B, C): divided by the prior and normalised, `logits` and `probabilities` (B, C), float32.

    W p̂ of the paper with W = diag(p̂_cf)⁻¹, so its argmax; the paper sends W p̂ through a softmax once more,
    which leaves every distribution nearly flat, and a student is to learn the distribution.
    """
    logs = log_softmax(scores if prior is None else scores - prior, axis=1)
    return {"logits": logs.astype(np.float32), "probabilities": np.exp(logs).astype(np.float32)}


def labels_from(
    bound: BoundPrompt, scores: np.ndarray, prior: np.ndarray | None
) -> dict[str, np.ndarray]:
    """What answers come to: classes as `calibrated`, or a score.

    Args:
        bound: the prompt.
        scores: log-scores of the answers to the prompts, (B·Q, C).
        prior: of the classes.

    Returns:
        of a score `logits`: log-odds, expected numbers or one answer's logits (B, 1), of questions their log-odds
        (B, Q), with `probabilities`; float32.
    """
    score = bound.prompt.score
    if score is None:
        return calibrated(scores, prior)
    if isinstance(score, dict):
        values = softmax(scores, axis=1) @ np.array([*score.values()])
    else:
        values = scores[:, -1] - (0 if bound.reads_logit else scores[:, 0])
    logits = values.reshape(-1, len(bound.labels) or 1).astype(np.float32)
    return {"logits": logits} | ({"probabilities": expit(logits)} if bound.labels else {})


def labels_of_answers(
    bound: BoundPrompt, answers: Sequence[Answer], prior: np.ndarray | None
) -> dict[str, np.ndarray]:
    """What answers of an endpoint come to, float32: as `labels_from` with `coverage` (B,), or of votes.

    Args:
        bound: the prompt.
        answers: to the prompts, (B·Q), all of them log-probabilities or all votes.
        prior: of the classes.
    """
    if "logs" in answers[0]:
        found = labels_from(bound, np.array([one["logs"] for one in answers]), prior)
        # Of a row's questions, the one with the least certain answer.
        coverage = np.array([one["coverage"][0] for one in answers])
        found["coverage"] = coverage.reshape(-1, len(bound.prompt.questions) or 1).min(axis=1)
    else:
        votes = np.array([one["votes"] for one in answers])
        shares = votes / votes.sum(axis=1, keepdims=True)
        found = {"votes": votes, "probabilities": shares}
        if bound.prompt.score is not None:
            with np.errstate(divide="ignore"):
                found = labels_from(bound, np.log(shares), None)
        found["unparsable"] = np.array([one["unparsable"][0] for one in answers])
    return {name: values.astype(np.float32) for name, values in found.items()}
