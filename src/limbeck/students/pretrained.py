"""Reading a pretrained model from a folder or the Hub, and saying plainly what is wrong with it.

Weights of teachers and students are read
from safetensors only, remote code never runs, parameters arrive in float32 whatever the file
holds, and Hugging Face's load report is read here instead of being printed: a backbone that the
file does not fill is an error, a missing classification head is one only where a head is needed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.utils import ADAPTER_CONFIG_NAME
from transformers.utils import logging as hub_logging

from limbeck.embedding.embedder import embedding_config
from limbeck.students.configuration import labels_agree, labels_of, with_labels
from limbeck.students.shapes import refuse_impossible
from limbeck.students.transplanting import (
    fresh_model,
    has_no_weights,
    head_keys,
    seeded,
    trained_head_keys,
    transplant,
)
from limbeck.students.weights import (
    refuse_absent,
    refuse_damaged_student,
    refuse_unsafe_index_on_hub,
    refuse_unsafe_weights,
)
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.files import at_home
from limbeck.support.given import place_of
from limbeck.tasks import SENTENCE, kind_of_config

Head = Literal["optional", "required"]
"""Whether a checkpoint has to hold a trained head."""


def resolve_checkpoint(path_or_name: str | Path) -> str:
    """The folder that holds `config.json`, or a Hub name unchanged.

    A run folder stands for the model inside it (`RUN` means `RUN/student`). Raises LimbeckError
    when a folder does not exist, has no `config.json` or holds no safetensors, or names weights that
    would have to be unpickled or lie outside it; and for a Hub name in no cache if the Hub cannot be reached.
    """
    folder = at_home(place_of(path_or_name))
    if not folder.exists():
        refuse_absent(path_or_name)
        return str(path_or_name)
    if folder.is_dir() and not (folder / "config.json").exists():
        student = folder / "student"
        if (student / "config.json").exists():
            folder = student
    if not (folder / "config.json").exists():
        if (folder / ADAPTER_CONFIG_NAME).exists():
            raise LimbeckError(
                f"model {str(path_or_name)!r} is a PEFT adapter, not a whole model",
                "merge it into its base model and save that: "
                "AutoPeftModelForSequenceClassification.from_pretrained(FOLDER).merge_and_unload()"
                ".save_pretrained(OUT), and its tokenizer beside it",
            )
        raise LimbeckError(
            f"model {str(path_or_name)!r}: no config.json in it",
            "give the folder that save_pretrained wrote; a limbeck run has it once it has finished",
        )
    if not any(folder.glob("*.safetensors")):
        raise LimbeckError(
            f"model {str(path_or_name)!r}: no .safetensors file in it (pickled weights are never "
            "loaded: they can run code)",
            "load it where you trust it and write it again with model.save_pretrained(FOLDER)",
        )
    refuse_unsafe_weights(path_or_name, folder)
    return str(folder)


def read_config(path_or_name: str | Path) -> PretrainedConfig:
    """The configuration alone. Raises LimbeckError as `load_model` does."""
    name = resolve_checkpoint(path_or_name)
    with _readable_errors(path_or_name):
        return embedding_config(name)


def load_model(
    path_or_name: str | Path,
    *,
    labels: Sequence[str] | None = None,
    regression: bool = False,
    head: Head = "optional",
    seed: int = 0,
    auto: Any = None,
    attn_implementation: str | None = None,
) -> PreTrainedModel:
    """A whole pretrained model in float32, in eval mode, on the CPU.

    `labels` are the task's class names in id order (() with `regression`); None keeps the
    checkpoint's own, which a teacher needs so that pre-flight can compare them. `auto` is the
    AutoModel class; by default the one of the head that the checkpoint's configuration names, and
    sequence classification where it names none or where labels are given. A classification
    head is kept when its labels agree with the task's (`labels_agree`) and initialised from `seed`
    otherwise; the caller's random state is left alone. `head="required"` (a teacher) refuses a
    checkpoint whose file holds no head or one for other labels, and never draws one.

    Raises LimbeckError for a folder, file or Hub name that cannot be read, for weights that are
    missing from the backbone, of another shape, or more layers than the configuration has.
    """
    if auto is None:
        own = labels is None and not regression
        auto = (kind_of_config(read_config(path_or_name)) if own else SENTENCE).auto
    source, has_head = load_checkpoint(
        path_or_name, head=head, seed=seed, auto=auto, attn_implementation=attn_implementation
    )
    if labels is None and not regression:
        return source
    config = with_labels(source.config, labels or (), regression)
    if has_head and labels_agree(source.config, labels or (), regression):
        source.config.id2label, source.config.label2id = config.id2label, config.label2id
        source.config.problem_type = config.problem_type
        return source
    if head == "required":
        wanted = "one number" if regression else f"the labels {', '.join(labels or ())}"
        raise LimbeckError(
            f"model {str(path_or_name)!r} predicts {', '.join(labels_of(source.config))}, but the "
            f"task has {wanted}",
            "give a checkpoint that was fine-tuned on this task",
        )
    target = fresh_model(config, seed=seed, auto=auto, attn_implementation=attn_implementation)
    return transplant(source, target, picked={}, copy_head=False)


def load_checkpoint(
    path_or_name: str | Path,
    *,
    head: Head = "optional",
    seed: int = 0,
    auto: Any = AutoModelForSequenceClassification,
    attn_implementation: str | None = None,
) -> tuple[PreTrainedModel, bool]:
    """The model as its file describes it, and whether the file held the whole head.

    Raises LimbeckError as `load_model` does.
    """
    name = resolve_checkpoint(path_or_name)
    if Path(name).is_dir():
        refuse_damaged_student(path_or_name, Path(name))
    else:
        read_config(name)  # says why the Hub does not give it
        refuse_unsafe_index_on_hub(name)
    refuse_impossible(read_config(path_or_name), f"model {str(path_or_name)!r}, config.json")
    with _readable_errors(path_or_name), _quiet(), seeded(seed):
        model, info = auto.from_pretrained(
            name,
            dtype=torch.float32,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            # Reported below with names and shapes, instead of raised without them.
            ignore_mismatched_sizes=True,
            attn_implementation=attn_implementation,
        )
    _pad_as_its_tokenizer(model, name)
    expected_head = head_keys(model)
    missing = set(info["missing_keys"])
    _check_loaded(model, path_or_name, missing - expected_head, info)
    # A head over the vocabulary may be part of the model itself (T5), and an embedding model needs none.
    whole = bool(expected_head) or has_no_weights(model)
    has_head = whole and not missing & trained_head_keys(model)
    if head == "required" and not has_head:
        raise LimbeckError(
            f"model {str(path_or_name)!r} has no trained classification head "
            f"(missing: {_some(sorted(missing & expected_head))})",
            "fine-tune it on the task first (limbeck finetune), or give a fine-tuned checkpoint",
        )
    return model.eval(), has_head


def _pad_as_its_tokenizer(model: PreTrainedModel, name: str) -> None:
    """Fill in the padding id by which decoders find a text's last token, and which many configurations leave out."""
    config: Any = model.config.get_text_config()
    if model.main_input_name != "input_ids" or getattr(config, "pad_token_id", 0) is not None:
        return
    # What is wrong with a tokenizer is said where it is read.
    with suppress(Exception):
        config.pad_token_id = AutoTokenizer.from_pretrained(
            name, trust_remote_code=False
        ).pad_token_id


def _check_loaded(
    model: PreTrainedModel, source: str | Path, missing: set[str], info: dict[str, Any]
) -> None:
    """Raise for whatever would leave part of the backbone random or unread."""
    problems = []
    if missing:
        problems.append(
            Problem(
                f"model {str(source)!r} does not fill its {type(model).__name__}: "
                f"{len(missing)} weights missing: {_some(sorted(missing))}",
                "its config.json and its weights belong to different models: save it again",
            )
        )
    if info["mismatched_keys"]:
        shapes = [f"{k} {tuple(a)} for {tuple(b)}" for k, a, b in sorted(info["mismatched_keys"])]
        problems.append(
            Problem(
                f"model {str(source)!r}: weights of another shape than config.json says: "
                f"{_some(shapes)}",
                "fix config.json (sizes, vocabulary, number of labels) or save the model again",
            )
        )
    # Hugging Face drops surplus layers without a word; a "6-layer" file read as 3 is no baseline.
    patterns = {_without_numbers(key) for key in model.state_dict()}
    surplus = sorted(
        key for key in info["unexpected_keys"] if _matches_layer(_without_numbers(key), patterns)
    )
    if surplus:
        problems.append(
            Problem(
                f"model {str(source)!r} holds more layers than config.json says: {_some(surplus)}",
                "set the number of layers in config.json to what the file holds, and take fewer "
                "with student.layers",
            )
        )
    if problems:
        raise LimbeckError(problems)


def _without_numbers(key: str) -> str:
    return re.sub(r"(?<=\.)\d+(?=\.)", "*", key)


def _matches_layer(pattern: str, patterns: set[str]) -> bool:
    """Whether a numbered weight differs from the model's only by its number (and base prefix)."""
    return "*" in pattern and any(
        known == pattern or known.endswith("." + pattern) for known in patterns
    )


@contextmanager
def _readable_errors(source: str | Path) -> Iterator[None]:
    """Turn what transformers, the Hub and safetensors raise into one message with a fix."""
    try:
        yield
    except LimbeckError:
        raise
    except SafetensorError as error:
        raise LimbeckError(
            f"model {str(source)!r}: damaged weights file ({error})", "copy or download it again"
        ) from error
    except OSError as error:
        first = str(error).strip().splitlines()[0]
        here = at_home(source).exists()
        raise LimbeckError(
            f"model {str(source)!r} cannot be read: {first}",
            "check the files in that folder"
            if here
            else "no such folder, and the Hub did not give it: check the name, the network, "
            "and whether HF_HUB_OFFLINE is set",
        ) from error
    # transformers runs into a broken or foreign file as it is: KeyError, AttributeError, RuntimeError, … ; no list
    # of them is promised, and all mean that this model cannot be built.
    except Exception as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise LimbeckError(
            f"model {str(source)!r} cannot be built: {first}",
            "limbeck loads models whose class is part of transformers 5 and that have a head for "
            "the task type",
        ) from error


class _NoLoadReport(logging.Filter):
    """Drop the table that transformers logs for missing and unexpected weights."""

    def filter(self, record: logging.LogRecord) -> bool:
        return "LOAD REPORT" not in record.getMessage()


@contextmanager
def _quiet() -> Iterator[None]:
    """Load without the report (read from `output_loading_info`) and without a progress bar."""
    logger = logging.getLogger("transformers.modeling_utils")
    no_report = _NoLoadReport()
    bars = hub_logging.is_progress_bar_enabled()
    logger.addFilter(no_report)
    if bars:
        hub_logging.disable_progress_bar()
    try:
        yield
    finally:
        logger.removeFilter(no_report)
        if bars:
            hub_logging.enable_progress_bar()


def _some(names: Sequence[str], most: int = 6) -> str:
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
