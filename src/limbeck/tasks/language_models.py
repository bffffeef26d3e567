"""Language modeling: the tokens masked from a text, or the next token at each place. Part of `limbeck.tasks`.

Which tokens are masked changes every epoch, as a pure function of (seed, epoch, index): a run that
is killed and continued hides the same words, and teacher and student read the same text. Evaluation
always hides the same ones.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import transformers
from datasets import Value
from torch import Tensor, nn

from limbeck.activations.compat import CAUSAL_LANGUAGE_MODELS, MASKED_LANGUAGE_MODELS
from limbeck.functional.labelled_positions import at_positions
from limbeck.functional.labels import NO_LABEL
from limbeck.support.errors import LimbeckError
from limbeck.support.machine import on_host, send
from limbeck.tasks import metrics, modality, rules
from limbeck.tasks.abstract_type import TASK_TYPES, task_type
from limbeck.tasks.positions import LabelledPositions

# Devlin et al. 2019, §3.1: 15 % of the tokens, of which 80 % are masked, 10 % another word and 10 %
# left as they are.
_SHARE, _HIDDEN, _REPLACED = 0.15, 0.8, 0.1


class LanguageModel(LabelledPositions):
    """Tokens of a text that are predicted: the text is its own label."""

    language_model = True
    over_vocabulary = True
    rows_without_labels = True

    def features(self, task: rules.TaskLike) -> dict[str, Any]:
        """Text alone: it is its own label."""
        return {column: Value("string") for column in task.text_columns}

    def compact_outputs(
        self, model: transformers.PreTrainedModel, batch: rules.Batch, logits: Tensor
    ) -> Tensor:
        """By example: sum of negative log likelihoods, number of tokens that count, how many found."""
        labels = self.targets(batch)
        valid = labels != NO_LABEL
        sums = torch.zeros(len(labels), 3, device=logits.device)
        found = at_positions(_of_tokens, valid, logits, labels)
        sums.index_add_(0, valid.nonzero()[:, 0], found)
        return sums

    def results(
        self, task: rules.TaskLike, outputs: np.ndarray, of: rules.ScoredSplit
    ) -> rules.Results:
        """Share of tokens found, 0 to 100, and perplexity over all of them, unscaled.

        `prediction` counts the tokens found, `label` those that count. Raises LimbeckError where none does.
        """
        loss, counted, found = outputs.astype(np.float64).sum(axis=0)
        if not counted:
            raise LimbeckError(
                f"task {task.name!r}: no token of these rows is predicted",
                "raise max_length, or check that the rows are longer than a token",
            )
        scores = {
            "accuracy": 100 * found / counted,
            # A diverged model's is beyond what a float holds.
            "perplexity": math.exp(min(loss / counted, 700.0)),
        }
        kept = {
            "index": of.encoded["index"][:],
            "prediction": outputs[:, 2].astype(int).tolist(),
            "label": outputs[:, 1].astype(int).tolist(),
        }
        return rules.Results(scores | {"primary": scores[task.primary]}, kept)

    def sampled_score(
        self, task: rules.TaskLike, metric: str, kept: rules.Kept
    ) -> metrics.SampledScore | None:
        """Tokens found over those that count."""
        found = metric == "accuracy"
        return metrics.ratio_of_sums(kept["prediction"], kept["label"]) if found else None

    def predicts_numbers(self, task: rules.TaskLike) -> bool:
        """How many tokens were found."""
        return True

    def predictions_of(self, labels: rules.Labels) -> int:
        """One for each word, of which the labels are texts; a tokenizer makes at least as many tokens."""
        return sum(len(text.split()) for text in labels)

    def baseline(self, task: rules.TaskLike, labels: rules.Labels) -> tuple[float, str]:
        """The commonest word, as often as it stands in the texts."""
        rules.need_rows(task, labels)
        counts = Counter(word for text in labels for word in text.split())
        (word, count), *_ = counts.most_common(1) or [("", 0)]
        return 100 * count / max(counts.total(), 1), word


@task_type("masked")
class Masked(LanguageModel):
    """Masked-language modeling."""

    summary = "tokens masked from a text; scored by the share found, and perplexity"
    auto = transformers.AutoModelForMaskedLM
    heads = MASKED_LANGUAGE_MODELS

    def predictions_of(self, labels: rules.Labels) -> int:
        """The words that are masked."""
        return round(_SHARE * super().predictions_of(labels))

    @property
    def resampled(self) -> str:
        """The masked tokens."""
        return f"the tokens masked from a text ({self.name})"

    def encode(
        self, task: rules.TaskLike, tokenizer: modality.Processor, max_length: int, rows: rules.Rows
    ) -> rules.Rows:
        """The whole text; tokens are masked batch by batch."""
        encoded = modality.encode_cut(tokenizer, *self.texts(task, rows), max_length=max_length)
        return rules.columns_of(encoded, rows)

    def draw(
        self, batch: dict[str, Tensor], tokenizer: modality.Processor, seed: int, epoch: int
    ) -> dict[str, Tensor]:
        """Hide other words than before; at least one of each text that has any.

        Raises LimbeckError for a tokenizer without a mask token, or a batch without `index`.
        """
        if tokenizer.mask_token_id is None:
            raise LimbeckError(
                f"{type(tokenizer).__name__} has no mask token",
                "use a model that was pretrained by masked-language modeling",
            )
        if "index" not in batch:
            raise LimbeckError(
                "the batch has no index column to choose masked tokens by",
                "give every example a number in a column named index",
            )
        device, known = batch["input_ids"].device, on_host(batch)
        ids = known["input_ids"].cpu().numpy()
        if "labels" in known:
            labels = known["labels"].cpu().numpy()
            ids = np.where(labels == NO_LABEL, ids, labels)
        usable = (known["attention_mask"].cpu().numpy() > 0) & ~np.isin(
            ids, tokenizer.all_special_ids
        )
        hidden, labels = ids.copy(), np.full_like(ids, NO_LABEL)
        for row, index in enumerate(known["index"].tolist()):
            places = np.flatnonzero(usable[row])
            random = np.random.default_rng([seed, epoch, index])
            chosen = random.permutation(places)[: max(1, round(_SHARE * len(places)))]
            fate = random.random(len(chosen))
            others = random.integers(len(tokenizer), size=len(chosen))
            replaced = np.where(fate < _HIDDEN + _REPLACED, others, ids[row, chosen])
            hidden[row, chosen] = np.where(fate < _HIDDEN, tokenizer.mask_token_id, replaced)
            labels[row, chosen] = ids[row, chosen]
        masked = {"input_ids": hidden, "labels": labels}
        return batch | {name: send(torch.from_numpy(new), device) for name, new in masked.items()}


MASKED = TASK_TYPES.get("masked")


@task_type("causal-lm")
class CausalLM(LanguageModel):
    """The next token of a text, or of the answer to a prompt.

    Labels are the token ids at their own places, as transformers has them; −100 where a token is not learned.
    """

    summary = "the next token of a text, or of an answer; scored by the share found, and perplexity"
    auto = transformers.AutoModelForCausalLM
    heads = CAUSAL_LANGUAGE_MODELS
    generates = True
    # Some layers of a decoder can go, others ruin it: benchmarks/decoders.py.
    usual_pick = "importance"

    def targets(self, batch: rules.Batch) -> Tensor:
        """The label of the position behind it; padding predicts nothing, on whichever side it is."""
        labels = super().targets(batch)
        following = nn.functional.pad(labels[:, 1:], (0, 1), value=NO_LABEL)
        mask = batch.get("attention_mask")
        return following if mask is None else following.masked_fill(mask == 0, NO_LABEL)

    def beside_teacher(self, student: Tensor, teacher: Tensor, batch: rules.Batch) -> Tensor:
        """Over the tokens that count."""
        valid = self.targets(batch) != NO_LABEL
        return at_positions(_distances, valid, student, teacher).double().sum(0)

    def lengths_of(self, tokenizer: modality.Processor, columns: Sequence[list[str]]) -> list[int]:
        """With the chat template of a prompt and its answer."""
        if len(columns) == 1:
            return super().lengths_of(tokenizer, columns)
        parts = turns(tokenizer, columns[0], columns[1])
        return [len(before) + len(answer) for before, answer in zip(*parts, strict=True)]

    def encode(
        self, task: rules.TaskLike, tokenizer: modality.Processor, max_length: int, rows: rules.Rows
    ) -> rules.Rows:
        """The whole text and an end, all of whose tokens are labels; of a prompt and its answer the answer's alone."""
        texts = self.texts(task, rows)
        if len(texts) == 1:
            end = _end(tokenizer)
            encoded = modality.encode_cut(tokenizer, *texts, max_length=max_length)
            cut = rules.truncated(encoded)
            # Tokenizers that write the end themselves write it behind truncated texts too.
            own = [ids[:-1] if ids[-1:] == end else ids for ids in encoded["input_ids"]]
            whole = [ids if lost else [*ids, *end] for ids, lost in zip(own, cut, strict=True)]
            learned = [0] * len(whole)
        else:
            prompts, answers = turns(tokenizer, texts[0], texts[1])
            whole = [before + answer for before, answer in zip(prompts, answers, strict=True)]
            learned = [len(before) for before in prompts]
            cut = [len(ids) > max_length for ids in whole]
        kept = [ids[:max_length] for ids in whole]
        return {
            "input_ids": kept,
            "attention_mask": [[1] * len(ids) for ids in kept],
            "labels": [
                [NO_LABEL] * min(start, len(ids)) + ids[start:]
                for ids, start in zip(kept, learned, strict=True)
            ],
            "index": rows["index"],
            rules.CUT: cut,
        }


def _end(tokenizer: transformers.PreTrainedTokenizerBase) -> list[int]:
    return [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]


def _of_tokens(logits: Tensor, labels: Tensor) -> Tensor:
    """By token, logits (P, V): negative log likelihood, 1, and 1 where it is found; (P, 3)."""
    # In full precision on every device: counts are exact up to 2^24 in float32.
    losses = nn.functional.cross_entropy(logits.float(), labels, reduction="none")
    return torch.stack([losses, torch.ones_like(losses), (logits.argmax(-1) == labels).float()], -1)


def _distances(student: Tensor, teacher: Tensor) -> Tensor:
    """By token, logits (P, V) of both: 1, 1 where both have one favorite, and KL(teacher ‖ student); (P, 3)."""
    ours, theirs = (side.float().log_softmax(-1) for side in (student, teacher))
    divergence = nn.functional.kl_div(ours, theirs, reduction="none", log_target=True).sum(-1)
    same = (ours.argmax(-1) == theirs.argmax(-1)).float()
    return torch.stack([torch.ones_like(same), same, divergence], -1)


def opened(
    tokenizer: transformers.PreTrainedTokenizerBase, prompts: Sequence[str]
) -> list[list[int]]:
    """Token ids of prompts up to the answer; a chat template writes the prompt as a user's turn."""
    if tokenizer.chat_template:
        return _ids(tokenizer, _openings(tokenizer, prompts))
    end, found = _end(tokenizer), tokenizer(list(prompts), verbose=False)["input_ids"]
    return [ids[:-1] if ids[-1:] == end else ids for ids in found]


def turns(
    tokenizer: transformers.PreTrainedTokenizerBase, prompts: Sequence[str], answers: Sequence[str]
) -> tuple[list[list[int]], list[list[int]]]:
    """Token ids of what is read before an answer, and of the answer with its end.

    They are tokenized apart, as a model that generates reads the prompt alone. A tokenizer with a chat template writes
    both as turns of a conversation.

    Raises:
        LimbeckError: the template changes the prompt when the answer follows.
    """
    if not tokenizer.chat_template:
        end = _end(tokenizer)
        return opened(tokenizer, prompts), [[*ids, *end] for ids in _ids(tokenizer, answers)]
    both = [
        [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]
        for prompt, answer in zip(prompts, answers, strict=True)
    ]
    write: Any = tokenizer.apply_chat_template
    openings = _openings(tokenizer, prompts)
    pairs = [*zip(write(both, tokenize=False), openings, strict=True)]
    if strange := [opening for text, opening in pairs if not text.startswith(opening)]:
        raise LimbeckError(
            f"chat template: a conversation does not begin with its prompt, {strange[0]!r:.80}",
            "delete chat_template.jinja, and chat_template in tokenizer_config.json: prompts are then plain text",
        )
    answered = [text.removeprefix(opening) for text, opening in pairs]
    return _ids(tokenizer, openings), _ids(tokenizer, answered)


def _openings(tokenizer: transformers.PreTrainedTokenizerBase, prompts: Sequence[str]) -> list[str]:
    """By prompt, the user's turn up to the answer, as the chat template writes it."""
    write: Any = tokenizer.apply_chat_template
    users = [[{"role": "user", "content": prompt}] for prompt in prompts]
    return list(write(users, tokenize=False, add_generation_prompt=True))


def _ids(tokenizer: transformers.PreTrainedTokenizerBase, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of the texts alone: the tokenizer adds no special tokens."""
    found: list[list[int]] = tokenizer(list(texts), add_special_tokens=False, verbose=False)[
        "input_ids"
    ]
    return found


CAUSAL_LM = TASK_TYPES.get("causal-lm")
