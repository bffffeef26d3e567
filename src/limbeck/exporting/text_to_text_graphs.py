"""Text to text as two ONNX files: an encoder, and a decoder that is run once for every token.

Files, inputs and outputs are named as optimum names them (`encoder_model.onnx`,
`decoder_model.onnx`). What generates from them is greedy, as the scores of such tasks are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from limbeck.exporting.onnx_graph import write_graph
from limbeck.runtimes.manifest import Generation
from limbeck.runtimes.sessions import shifted_right
from limbeck.support.errors import LimbeckError, Problem
from limbeck.tasks import Task
from limbeck.tasks.text import answer_limit

PARTS = ("encoder_model", "decoder_model")
"""Names of the two files, without their endings."""
_ENCODED = ("batch", "length")
_PLAIN: dict[str, Any] = {
    "forced_bos_token_id": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "bad_words_ids": None,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "min_length": 0,
    "min_new_tokens": None,
}
"""Settings of generation that change greedy answers → their values that change nothing."""


class _Encoder(nn.Module):
    """The encoder alone; its inputs and output are named as optimum names them."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.encoder: Any = model.get_encoder()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        """Hidden states (B, N, D) of token ids and mask (B, N)."""
        found = self.encoder(input_ids=input_ids, attention_mask=attention_mask, return_dict=True)
        return {"last_hidden_state": found.last_hidden_state}


class _Decoder(nn.Module):
    """The decoder with its head, on what an encoder returned."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model: Any = model

    def forward(
        self, input_ids: Tensor, encoder_hidden_states: Tensor, encoder_attention_mask: Tensor
    ) -> dict[str, Tensor]:
        """Logits (B, T, V) of target ids (B, T), hidden states (B, N, D) and their mask (B, N)."""
        found = self.model(
            decoder_input_ids=input_ids,
            encoder_outputs=BaseModelOutput(last_hidden_state=encoder_hidden_states),
            attention_mask=encoder_attention_mask,
            use_cache=False,
            return_dict=True,
        )
        return {"logits": found.logits}


def write_text_to_text(
    model: PreTrainedModel, batch: Mapping[str, Tensor], paths: Sequence[Path], *, fused: bool
) -> None:
    """Write an encoder's and a decoder's graph.

    Args:
        model: on CPU, in evaluation mode.
        batch: a few encoded rows with labels, at least two.
        paths: of both files.
        fused: with ONNX Runtime's operators.

    Raises:
        LimbeckError: the libraries are not installed, or the model cannot be converted.
    """
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    encoder, decoder = _Encoder(model).eval(), _Decoder(model).eval()
    write_graph(
        encoder, inputs, paths[0], axes=dict.fromkeys(inputs, _ENCODED),
        outputs=("last_hidden_state",), fused=fused, prefix="encoder/",
    )  # fmt: skip
    with torch.no_grad():
        hidden = encoder(**inputs)["last_hidden_state"]
    # More tokens than one: the tracer takes a length of one for a constant.
    targets = batch["labels"].clamp(min=0).repeat(1, 2)[:, : max(3, batch["labels"].shape[1])]
    given = {
        "input_ids": targets,
        "encoder_hidden_states": hidden,
        "encoder_attention_mask": inputs["attention_mask"],
    }
    axes = dict.fromkeys(given, _ENCODED) | {"input_ids": ("batch", "target_length")}
    write_graph(
        decoder, given, paths[1], axes=axes, outputs=("logits",), fused=fused, prefix="decoder/"
    )


def generation_of(model: PreTrainedModel, task: Task, tokenizer: Any) -> Generation:
    """Where a model's greedy answers begin and end.

    Raises:
        LimbeckError: its settings ask for more than greedy generation from one start token.
    """
    own: Any = model.generation_config
    problems = [
        Problem(
            f"generation setting {name} {getattr(own, name)}: an exported model generates greedily "
            "and nothing else",
            "take it out of generation_config.json, and score the model again",
        )
        for name, plain in _PLAIN.items()
        if getattr(own, name, plain) not in (plain, None)
    ]
    if problems:
        raise LimbeckError(problems)
    config = model.config.get_text_config()
    start = _first(own.decoder_start_token_id, config.decoder_start_token_id, own.bos_token_id)
    end = _first(own.eos_token_id, config.eos_token_id)
    pad = _first(own.pad_token_id, config.pad_token_id)
    lacking = [
        name
        for name, value in (("decoder_start_token_id", start), ("eos_token_id", end),
                            ("pad_token_id", pad))
        if value is None
    ]  # fmt: skip
    if lacking:
        raise LimbeckError(
            f"{type(model).__name__} does not say its {', '.join(lacking)}",
            "add it to generation_config.json",
        )
    ends = list(end) if isinstance(end, list | tuple) else [end]
    found = Generation(start=start, ends=ends, pad=pad, longest=answer_limit(task, tokenizer))
    _check_start(model, found)
    return found


def _check_start(model: Any, how: Generation) -> None:
    """Raise LimbeckError where a decoder's tokens are not its targets behind one start token."""
    labels = torch.tensor([[*how.ends[:1], how.start]])
    theirs = model.prepare_decoder_input_ids_from_labels(labels=labels).numpy()
    if not np.array_equal(theirs, shifted_right(labels.numpy(), how)):
        raise LimbeckError(
            f"{type(model).__name__} begins its answers with more than one start token, which no "
            "exported model does",
            "use it by transformers, or choose a T5 or BART",
        )


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)
