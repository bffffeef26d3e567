"""One pass of a model over a batch, in torch or by an exported file's runtime. Part of `limbeck.predicting`."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from limbeck.activations import ActivationKey, Request, capture, number_of_layers
from limbeck.embedding import embedding_width
from limbeck.outputs.key import add_model
from limbeck.predicting.about_model import AboutModel
from limbeck.preflight import refuse_beyond
from limbeck.scoring.scored_model import ScoredModel, longest_of
from limbeck.students import read_processor
from limbeck.support import machine
from limbeck.support.errors import LimbeckError
from limbeck.support.positions import positions_of
from limbeck.support.settings import DeviceMap, Pool
from limbeck.tasks import SENTENCE, Processor, TaskType, as_array

# transformers' default number of generated tokens.
_USUAL_TOKENS = 20


@dataclass(frozen=True)
class PassOutputs:
    """A batch's outputs; None for outputs that were not requested.

    Attributes:
        logits: (B, C), (B, N, C), or of spans (B, N, 2).
        embeddings: (B, d), float32.
        tokens: generated token ids (B, T).
        scores: of each generated text its probability (B,).
    """

    logits: np.ndarray | None = None
    embeddings: np.ndarray | None = None
    tokens: np.ndarray | None = None
    scores: np.ndarray | None = None

    def __post_init__(self) -> None:
        """Raise LimbeckError for numbers that are not finite."""
        for values in (self.logits, self.embeddings):
            if values is not None and not np.isfinite(values).all():
                raise LimbeckError(
                    "the model's outputs are no finite numbers",
                    "its weights are damaged or have diverged: train it again, or use fp32",
                )


class TorchRowModel:
    """A checkpoint in torch, on an accelerator if there is one.

    Attributes:
        processor: its tokenizer, or image processor.
        max_length: tokens it reads of a row.
        device: the device of its batches.

    Raises:
        LimbeckError: it cannot read this number of tokens.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        processor: Processor,
        *,
        max_length: int | None,
        asked_length: int | None = None,
        precision: str = "fp32",
    ) -> None:
        self.processor = processor
        refuse_beyond(model, asked_length)
        longest = asked_length or max_length or longest_of(model, processor)
        self.max_length = min(longest, positions_of(model) or longest)
        self._model = model.eval().requires_grad_(False)
        machine.place(self._model, machine.device())
        self.device = machine.device_of(self._model)
        self._precision = precision
        self._layers: int | None = None

    def run(self, batch: Mapping[str, Tensor], *, logits: bool, pool: Pool | None) -> PassOutputs:
        """One pass that ends at the deepest requested layer; an embedding model has embeddings of its own."""
        if pool is not None and embedding_width(self._model):
            with self._passing():
                own = capture(self._model, batch, Request.of_logits()).logits
            assert own is not None  # its head is its pooling
            return PassOutputs(embeddings=as_array(own))
        request, key = Request(), None
        if logits:
            request |= Request.of_logits()
        if pool is not None:
            self._layers = self._layers or number_of_layers(self._model)
            key = ActivationKey("hidden", self._layers, pool)
            request |= Request.hidden([self._layers], pool=pool)
        with self._passing():
            trace = capture(self._model, batch, request)
        return PassOutputs(
            logits=None if trace.logits is None else as_array(trace.logits),
            embeddings=None if key is None else as_array(trace[key]),
        )

    def prompt_limit(self, most: int | None) -> int:
        """Tokens of a prompt: the limit of a row, but with room for the text behind it.

        Raises:
            LimbeckError: the text alone takes all positions.
        """
        own = self._model.generation_config
        new = most or own.max_new_tokens or (1 if own.max_length else _USUAL_TOKENS)
        of_both = None if most or own.max_new_tokens else own.max_length
        limits = [size for size in (positions_of(self._model), of_both) if size]
        room = min(limits, default=self.max_length + new) - new
        if room < 1:
            raise LimbeckError(
                f"max_new_tokens {new}: the model has {room + new} positions, for a prompt and the text behind it",
                f"set max_new_tokens to less than {room + new}",
            )
        return min(self.max_length, room)

    def generate(self, batch: Mapping[str, Tensor], most: int | None) -> PassOutputs:
        """Greedy texts; the probability of each is the product of its tokens', the end included."""
        generator: Any = self._model
        says = generator.generation_config
        if most is None and not (says.max_new_tokens or says.max_length):
            most = _USUAL_TOKENS
        with self._passing():
            made = generator.generate(
                input_ids=batch["input_ids"],
                attention_mask=batch["attention_mask"],
                do_sample=False,
                num_beams=1,
                output_scores=True,
                return_dict_in_generate=True,
                **({} if most is None else {"max_new_tokens": most}),
            )
            logs = generator.compute_transition_scores(
                made.sequences, made.scores, normalize_logits=True
            )
        ends = torch.tensor(_listed(says.eos_token_id), device=logs.device)
        new = made.sequences[:, -logs.shape[1] :]
        ended = torch.isin(new, ends).int()
        # The end itself is the model's choice, the tokens after it are not.
        behind = (ended.cumsum(1) - ended) > 0
        likely = logs.float().masked_fill(behind, 0.0).sum(1).exp()
        return PassOutputs(tokens=as_array(new), scores=as_array(likely))

    def fingerprint(self) -> str:
        """Fingerprint of configuration and weights, and the precision."""
        digest = hashlib.blake2b(digest_size=16)
        add_model(digest, self._model)
        digest.update(self._precision.encode())
        return digest.hexdigest()

    @contextmanager
    def _passing(self) -> Iterator[None]:
        """No gradients, autocast if requested, and advice if there is not enough memory."""
        half = torch.autocast(self.device.type, torch.bfloat16, enabled=self._precision == "bf16")
        try:
            with torch.no_grad(), half:
                yield
        except torch.OutOfMemoryError as error:
            raise LimbeckError(
                "the batch does not fit into the accelerator's memory",
                "set a smaller --batch-size or --max-length; the same command then continues",
            ) from error


def _listed(tokens: int | list[int] | None) -> list[int]:
    return tokens if isinstance(tokens, list) else [] if tokens is None else [tokens]


class ExportedRowModel:
    """An exported file by its own runtime, on CPU.

    Raises:
        LimbeckError: the file cannot be opened, or more tokens are requested than it reads.
    """

    def __init__(
        self, model: ScoredModel, processor: Processor, *, asked_length: int | None = None
    ) -> None:
        assert model.manifest is not None
        self._session, self._backend, self._manifest = model.session, model.backend, model.manifest
        self.processor = processor
        longest = model.manifest.max_length
        if asked_length is not None and asked_length > longest:
            raise LimbeckError(
                f"max_length {asked_length}: the model was exported and measured with {longest} tokens",
                f"set max_length to {longest} or less, or export it again",
            )
        self.max_length = asked_length or longest
        self.device = torch.device("cpu")

    def run(self, batch: Mapping[str, Tensor], *, logits: bool, pool: Pool | None) -> PassOutputs:
        """Logits, which are an embedding model's embeddings; other models' files have no hidden states, which is
        reported before any row is read.
        """
        found = self._session.logits(batch)
        return PassOutputs(logits=found) if logits else PassOutputs(embeddings=found)

    def fingerprint(self) -> str:
        """Fingerprint of the folder's files, and the runtime."""
        known = [self._backend, self._manifest.checksums]
        return hashlib.blake2b(json.dumps(known).encode(), digest_size=16).hexdigest()


RowModel = TorchRowModel | ExportedRowModel


def load_row_models(
    facts: AboutModel,
    reads: TaskType,
    *,
    headless: bool,
    max_length: int | None,
    precision: str,
    device_map: DeviceMap | None = None,
) -> list[RowModel]:
    """Read the weights; for a cascade, of all its members that are models.

    Args:
        reads: the task type of its examples.
        headless: whether only hidden states are requested, so that the checkpoint needs no head.
        max_length: as the user set it.
        precision: fp32 or bf16, of torch.
        device_map: how a model's parts are placed on several devices.

    Raises:
        LimbeckError: the problem with the checkpoint, its tokenizer, or the length.
    """
    own = facts.kind if facts.kind.auto is not None else SENTENCE
    members = facts.model.members or (facts.model,)
    cascade = facts.model.cascade
    lengths = [one.max_length for one in cascade.members] if cascade else [facts.max_length]
    found: list[RowModel] = []
    for model, length in zip(members, lengths, strict=False):  # of stored outputs there is no model
        processor = read_processor(model.place, reads.reads)
        if model.manifest is not None:
            found.append(ExportedRowModel(model, processor, asked_length=max_length))
            continue
        placed = replace(model, device_map=device_map)
        found.append(
            TorchRowModel(
                placed.load(own, processor, head="optional" if headless else "required"),
                processor,
                max_length=length,
                asked_length=max_length,
                precision=precision,
            )
        )
    return found
