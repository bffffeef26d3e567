"""From a torch model to an ONNX file, by transformers' own exporter: any batch size, any length.

Only logits leave the graph. ONNX Runtime's fused operators stand in it where they are asked for.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from limbeck.runtimes.manifest import Generation
from limbeck.runtimes.sessions import need_extra, shifted_right
from limbeck.support.errors import LimbeckError, Problem, first_line
from limbeck.tasks import Task
from limbeck.tasks.text import answer_limit

LARGEST_FILE = 1_900_000_000
"""Bytes of weights that one file may hold: protobuf ends at 2 GB. More lie in a file beside it."""
MODEL_FILE = "model.onnx"
OUTPUTS = ("logits", "start_logits", "end_logits")
"""What leaves the graph of a model with a task head."""
Axes = tuple[str, ...]
_LABELS = frozenset({"labels", "label_ids", "start_positions", "end_positions"})


def model_inputs(model: PreTrainedModel, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What of a batch the model's forward pass reads: no labels, and no segment ids it has no table for."""
    names = inspect.signature(model.forward).parameters
    segments = getattr(model.config, "type_vocab_size", None) not in (0, 1)
    unread = _LABELS if segments else _LABELS | {"token_type_ids"}
    return {name: value for name, value in batch.items() if name in names and name not in unread}


def write_onnx(
    model: PreTrainedModel,
    batch: Mapping[str, Tensor],
    path: Path,
    *,
    fused: bool,
    largest_file: int = LARGEST_FILE,
) -> None:
    """Write a model's graph and weights.

    Args:
        model: on CPU, in evaluation mode.
        batch: a few encoded rows, at least two, of more than one token.
        path: the file; with more than `largest_file` bytes of weights they lie in PATH.data.
        fused: with ONNX Runtime's operators for its CPU provider, which no other runtime reads.

    Raises:
        LimbeckError: the libraries are not installed, or the model cannot be converted.
    """
    inputs = model_inputs(model, batch)
    axes: dict[str, Axes] = {
        name: ("batch",) if value.is_floating_point() else ("batch", "length")[: value.dim()]
        for name, value in inputs.items()
    }  # an image's height and width are what its processor makes
    write_graph(
        model, inputs, path, axes=axes, outputs=OUTPUTS, fused=fused, largest_file=largest_file
    )


def write_graph(
    model: nn.Module,
    inputs: Mapping[str, Tensor],
    path: Path,
    *,
    axes: Mapping[str, Axes],
    outputs: Sequence[str],
    fused: bool,
    prefix: str = "",
    largest_file: int = LARGEST_FILE,
) -> None:
    """Write one graph.

    Args:
        model: on CPU, in evaluation mode.
        inputs: what its forward pass reads, by name, of at least two rows.
        axes: of each input, names of the leading axes that vary.
        outputs: names of what may leave the graph.
        prefix: what the names of its nodes begin with.
        path, fused, largest_file: as `write_onnx`.

    Raises:
        LimbeckError: as `write_onnx`.
    """
    need_extra("onnx", "export to onnx")
    from onnx_ir import save
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass
    from transformers.exporters import OnnxConfig, OnnxExporter

    auto = torch.export.Dim.AUTO
    shapes = {name: dict.fromkeys(range(len(named)), auto) for name, named in axes.items()}
    with quiet_export(), torch.no_grad(), _without_cache(model):
        try:
            config = OnnxConfig(
                dynamic=True, dynamic_shapes=shapes, ort_fusions="cpu" if fused else None
            )
            program: Any = (
                OnnxExporter()
                .export(cast(PreTrainedModel, model), dict[str, Any](inputs), config)
                .program
            )
        # torch.export, onnxscript and the fusions raise what an operator without a translation
        # happens to meet: of any class.
        except Exception as error:
            raise LimbeckError(
                f"{type(model).__name__} cannot be converted to ONNX: {first_line(error)}",
                "try --no-fused; if that fails too, transformers' exporter does not know this "
                "architecture yet",
            ) from error
        _keep_outputs(program, outputs)
        _name_axes(program, axes)
        if prefix:
            for node in program.graph:
                node.name = f"{prefix}{node.name}"
        ClearMetadataAndDocStringPass()(program)  # where this machine keeps its files
        large = _weight_bytes(program) > largest_file
        save(program, str(path), external_data=f"{path.name}.data" if large else None)


def _keep_outputs(program: Any, wanted: Sequence[str]) -> None:
    """Leave out what else a head returns (hidden states, caches), and what only that needed."""
    from onnx_ir.passes.common import RemoveUnusedNodesPass

    outputs = program.graph.outputs
    kept = [value for value in outputs if value.name in wanted]
    if not kept:
        names = ", ".join(str(value.name) for value in outputs)
        raise LimbeckError(
            f"the model returns {names}, and no {wanted[0]}", "export a model with a task head"
        )
    if len(kept) < len(outputs):
        outputs[:] = kept
        RemoveUnusedNodesPass()(program)


def _name_axes(program: Any, axes: Mapping[str, Axes]) -> None:
    """Call what varies by its name instead of the tracer's number."""
    import onnx_ir

    for value in program.graph.inputs:
        named = axes.get(value.name)
        if named is not None and value.shape is not None:
            value.shape = onnx_ir.Shape([*named, *list(value.shape)[len(named) :]])


def _weight_bytes(program: Any) -> int:
    return sum(
        value.const_value.nbytes
        for value in program.graph.initializers.values()
        if value.const_value is not None
    )


@contextlib.contextmanager
def _without_cache(model: nn.Module) -> Iterator[None]:
    """Decoders keep keys and values for a next token, which no graph here returns."""
    config: Any = getattr(model, "config", None)
    before = getattr(config, "use_cache", None)
    if before:
        config.use_cache = False
    try:
        yield
    finally:
        if before:
            config.use_cache = before


@contextlib.contextmanager
def quiet_export() -> Iterator[None]:
    """Without the exporters' progress on standard output, their advice and deprecation warnings."""
    names = ("transformers", "torch.onnx", "torch.export", "onnxscript", "onnx_ir", "root")
    loggers = [logging.getLogger(None if name == "root" else name) for name in names]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


# Text to text as two ONNX files: an encoder, and a decoder that is run once for every token.
# Files, inputs and outputs are named as optimum names them (`encoder_model.onnx`,
# `decoder_model.onnx`). What generates from them is greedy, as the scores of such tasks are.


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
