"""Read a pretrained model from a folder or the Hub, with a clear error if that fails.

Weights of teachers and students are read
from safetensors only, remote code never runs, parameters arrive in float32 whatever the file
holds, and Hugging Face's load report is read here instead of being printed: a backbone that the
file does not fill is an error, a missing classification head is one only where a head is needed.
"""

import difflib
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

import torch
import transformers
from huggingface_hub import constants, try_to_load_from_cache
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import get_session, validate_repo_id
from safetensors import SafetensorError
from torch import Tensor
from transformers.utils import ADAPTER_CONFIG_NAME, SAFE_WEIGHTS_INDEX_NAME
from transformers.utils import logging as hub_logging

from limbeck.activations import number_of_layers, stack_layers, stack_layers_name
from limbeck.embedding import embedding_width
from limbeck.embedding.embedder import embedding_config
from limbeck.embedding.folder import find_file
from limbeck.static import StaticStudent
from limbeck.students.adapters import Adapter, find_adapter
from limbeck.students.configuration import labels_agree, labels_of, with_labels
from limbeck.support import files, given, machine
from limbeck.support.errors import (
    LimbeckError,
    Problem,
    first_line,
    problem_list,
    raise_problems,
    unknown,
)
from limbeck.support.manifest import Manifest
from limbeck.support.settings import DeviceMap
from limbeck.support.words import listed
from limbeck.tasks import SENTENCE, TEXT_READING, Processor, Reading, kind_of_config


def placement(device_map: DeviceMap | Mapping[str, int | str] | None) -> dict[str, Any]:
    """The arguments of `load_model` that place a model's parts on several devices.

    Args:
        device_map: as transformers takes it: a strategy's name, or a device or "disk" by the name of a part.

    Raises:
        LimbeckError: an unknown name; several processes, each of which would place a model of its own.
    """
    if device_map is None:
        return {}
    known = get_args(DeviceMap)
    if isinstance(device_map, str) and device_map not in known:
        raise LimbeckError(unknown("device_map", device_map, known))
    if machine.processes() > 1:
        raise LimbeckError(
            "device_map: each process would place a model of its own on all devices",
            "start one process, or leave device_map out",
        )
    return {"device_map": device_map}


Head = Literal["optional", "required"]
"""Whether a checkpoint has to hold a trained head."""


def resolve_checkpoint(path_or_name: str | Path) -> str:
    """The folder that holds `config.json`, or a Hub name unchanged.

    A run folder refers to the model inside it (`RUN` means `RUN/student`). Raises LimbeckError
    when a folder does not exist, has no `config.json` or holds no safetensors, or names weights that
    would have to be unpickled or are outside it; and for a Hub name in no cache if the Hub cannot be reached.
    """
    folder = files.at_home(given.place_of(path_or_name))
    if not folder.exists():
        refuse_absent(path_or_name)
        return str(path_or_name)
    if folder.is_dir() and not (folder / "config.json").exists():
        student = folder / "student"
        if (student / "config.json").exists():
            folder = student
    if folder.is_dir() and find_adapter(str(folder)) is not None:
        return str(folder)
    if not (folder / "config.json").exists():
        # Such as a cascade's members, or a folder of runs.
        inside = sorted(place.parent.name for place in folder.glob("*/config.json"))
        inside += sorted(place.parents[1].name for place in folder.glob("*/student/config.json"))
        raise LimbeckError(
            f"model {str(path_or_name)!r}: no config.json in it",
            f"give one of the models in it: {', '.join(inside)}"
            if inside
            else "give the folder that save_pretrained wrote; a limbeck run has it once it has finished, a study's "
            "student only with keep_students: true",
        )
    if not any(folder.glob("*.safetensors")):
        if (folder / "export.json").is_file():
            raise LimbeckError(
                f"model {str(path_or_name)!r}: an exported model, which torch does not read",
                "name the run or checkpoint that was exported: `source` in its export.json",
            )
        raise LimbeckError(
            f"model {str(path_or_name)!r}: no .safetensors file in it (pickled weights are never "
            "loaded: they can run code)",
            "load it where you trust it and write it again with model.save_pretrained(FOLDER)",
        )
    refuse_unsafe_weights(path_or_name, folder)
    return str(folder)


def read_config(path_or_name: str | Path) -> transformers.PretrainedConfig:
    """The configuration alone. Raises LimbeckError as `load_model` does."""
    name = resolve_checkpoint(path_or_name)
    with _readable_errors(path_or_name):
        adapter = find_adapter(name)
        if adapter is not None:
            return adapter.config(read_config(_base_of(adapter)))
        return embedding_config(name)


def _base_of(adapter: Adapter) -> str:
    """Where an adapter's base model is, checked.

    Raises:
        LimbeckError: it is not there, with the adapter's name.
    """
    try:
        return resolve_checkpoint(adapter.base)
    except LimbeckError as error:
        raise LimbeckError(
            f"adapter {adapter.source!r}: its base {error.problems[0].message}",
            "correct base_model_name_or_path in its adapter_config.json",
        ) from error


def load_model(
    path_or_name: str | Path,
    *,
    labels: Sequence[str] | None = None,
    regression: bool = False,
    head: Head = "optional",
    seed: int = 0,
    auto: Any = None,
    attn_implementation: str | None = None,
    loading: Mapping[str, Any] = MappingProxyType({}),
) -> transformers.PreTrainedModel:
    """A complete pretrained model in float32, in eval mode, on the CPU.

    `loading`: other arguments of `from_pretrained`, as `placement` gives them.

    `labels` are the task's class names in id order (() with `regression`); None keeps the
    checkpoint's own, which a teacher needs so that pre-flight can compare them. `auto` is the
    AutoModel class; by default the one of the head that the checkpoint's configuration names, and
    sequence classification where it names none or where labels are given. A classification
    head is kept when its labels agree with the task's (`labels_agree`) and initialised from `seed`
    otherwise; the caller's random state is unchanged. `head="required"` (a teacher) raises an error for a
    checkpoint whose file holds no head or one for other labels, and never draws one.

    Raises LimbeckError for a folder, file or Hub name that cannot be read, for weights that are
    missing from the backbone, of another shape, or more layers than the configuration has.
    """
    if auto is None:
        own = labels is None and not regression
        auto = (kind_of_config(read_config(path_or_name)) if own else SENTENCE).auto
    source, has_head = load_checkpoint(
        path_or_name,
        head=head,
        seed=seed,
        auto=auto,
        attn_implementation=attn_implementation,
        loading=loading,
    )
    if labels is None and not regression:
        return source
    config = with_labels(
        source.config, labels or (), regression, problem_type=SENTENCE.problem_of(regression)
    )
    if has_head and labels_agree(source.config, labels or (), regression):
        source.config.id2label, source.config.label2id = config.id2label, config.label2id
        source.config.problem_type = config.problem_type
        return source
    if head == "required":
        wanted = "one number" if regression else f"the labels {', '.join(labels or ())}"
        raise LimbeckError(
            f"model {str(path_or_name)!r} predicts {', '.join(labels_of(source.config))}, but the task has {wanted}",
            "give a checkpoint that was fine-tuned on this task",
        )
    target = fresh_model(config, seed=seed, auto=auto, attn_implementation=attn_implementation)
    return transplant(source, target, picked={}, copy_head=False)


def load_checkpoint(
    path_or_name: str | Path,
    *,
    head: Head = "optional",
    seed: int = 0,
    auto: Any = transformers.AutoModelForSequenceClassification,
    attn_implementation: str | None = None,
    loading: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[transformers.PreTrainedModel, bool]:
    """The model as its file describes it, and whether the file held the complete head.

    Raises LimbeckError as `load_model` does.
    """
    name = resolve_checkpoint(path_or_name)
    adapter, settings = find_adapter(name), dict(loading)
    if adapter is not None:
        if "device_map" in settings:
            raise LimbeckError(
                f"device_map: {str(path_or_name)!r} is an adapter, which is merged into its base on one device",
                "merge it first (PEFT's merge_and_unload), or leave device_map out",
            )
        settings["config"] = read_config(name)
        name = _base_of(adapter)
    if Path(name).is_dir():
        refuse_damaged_student(path_or_name, Path(name))
    else:
        read_config(name)  # reports why the Hub does not give it
        refuse_unsafe_index_on_hub(name)
    held = getattr(settings.get("config") or read_config(name), "quantization_config", None)
    with _readable_errors(path_or_name, quantized=held is not None), _quiet(), seeded(seed):
        model, info = auto.from_pretrained(
            name,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            # Reported below with names and shapes, instead of raised without them.
            ignore_mismatched_sizes=True,
            attn_implementation=attn_implementation,
            **{"dtype": torch.float32, **settings},
        )
        if adapter is not None:
            replaced = adapter.merge(model)
            info["missing_keys"] = {*info["missing_keys"]} - replaced
            info["mismatched_keys"] = [
                one for one in info["mismatched_keys"] if one[0] not in replaced
            ]
    # Problems with a tokenizer are reported where it is read.
    with suppress(Exception):
        pad_as(model, lambda: read_tokenizer(path_or_name))
    expected_head = head_keys(model)
    missing = set(info["missing_keys"])
    raise_problems(_loading_problems(model, path_or_name, missing - expected_head, info))
    # A head over the vocabulary may be part of the model itself (T5). An embedding model needs none, and no pooler.
    embeds = embedding_width(model) > 0
    whole = bool(expected_head) or embeds or model.get_output_embeddings() is not None
    has_head = whole and not missing & (outside_backbone(model) if embeds else expected_head)
    if head == "required" and not has_head:
        raise LimbeckError(
            f"model {str(path_or_name)!r} has no trained classification head "
            f"(missing: {listed(sorted(missing & expected_head), 6)})",
            "fine-tune it on the task first (limbeck finetune), or give a fine-tuned checkpoint",
        )
    return model.eval(), has_head


def pad_as(model: transformers.PreTrainedModel, tokenizer: Callable[[], Any]) -> None:
    """Fill in the padding id by which decoders find a text's last token, and which many configurations leave out.

    Args:
        model: any model.
        tokenizer: returns the tokenizer of its inputs; called only if needed.
    """
    config: Any = model.config.get_text_config()
    if model.main_input_name == "input_ids" and getattr(config, "pad_token_id", 0) is None:
        config.pad_token_id = getattr(tokenizer(), "pad_token_id", None)


@problem_list
def _loading_problems(
    model: transformers.PreTrainedModel, source: str | Path, missing: set[str], info: dict[str, Any]
) -> Iterator[Problem]:
    """Whatever would leave part of the backbone random or unread."""
    if missing:
        yield Problem(
            f"model {str(source)!r} does not fill its {type(model).__name__}: "
            f"{len(missing)} weights missing: {listed(sorted(missing), 6)}",
            "its config.json and its weights belong to different models: save it again",
        )
    if info["mismatched_keys"]:
        shapes = [f"{k} {tuple(a)} for {tuple(b)}" for k, a, b in sorted(info["mismatched_keys"])]
        yield Problem(
            f"model {str(source)!r}: weights of another shape than in config.json: {listed(shapes, 6)}",
            "fix config.json (sizes, vocabulary, number of labels) or save the model again",
        )
    # Hugging Face drops surplus layers without a word; a "6-layer" file read as 3 is no baseline.
    # They differ from the model's by their number, and perhaps by the backbone's name before it.
    known = tuple("." + _without_numbers(key) for key in model.state_dict())
    numbered = {key: _without_numbers(key) for key in info["unexpected_keys"]}
    surplus = sorted(
        key
        for key, pattern in numbered.items()
        if "*" in pattern and any(one.endswith("." + pattern) for one in known)
    )
    if surplus:
        yield Problem(
            f"model {str(source)!r} holds more layers than config.json states: {listed(surplus, 6)}",
            "set the number of layers in config.json to the file's, and take fewer with student.layers",
        )


def _without_numbers(key: str) -> str:
    return re.sub(r"(?<=\.)\d+(?=\.)", "*", key)


@contextmanager
def _readable_errors(source: str | Path, *, quantized: bool = False) -> Iterator[None]:
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
        here = files.at_home(source).exists()
        raise LimbeckError(
            f"model {str(source)!r} cannot be read: {first_line(error)}",
            "check the files in that folder" if here else _NOT_ON_HUB,
        ) from error
    # transformers runs into a broken or foreign file as it is: KeyError, AttributeError, RuntimeError, … ; no list
    # of them is promised, and all mean that this model cannot be built.
    except Exception as error:
        raise LimbeckError(
            f"model {str(source)!r} cannot be built: {first_line(error)}",
            _OF_QUANTIZED if quantized else _OF_OTHERS,
        ) from error


_OF_OTHERS = "limbeck loads models whose class is part of transformers 5 and that have a head for the task type"
_OF_QUANTIZED = (
    "its weights are quantized (quantization_config in its config.json): install what reads them, on a machine that "
    "can run them, or name the model in float"
)


def _no_load_report(record: logging.LogRecord) -> bool:
    """Drop the table that transformers logs for missing and unexpected weights."""
    return "LOAD REPORT" not in record.getMessage()


@contextmanager
def _quiet() -> Iterator[None]:
    """Load without the report (read from `output_loading_info`) and without a progress bar."""
    logger = logging.getLogger("transformers.modeling_utils")
    bars = hub_logging.is_progress_bar_enabled()
    logger.addFilter(_no_load_report)
    if bars:
        hub_logging.disable_progress_bar()
    try:
        yield
    finally:
        logger.removeFilter(_no_load_report)
        if bars:
            hub_logging.enable_progress_bar()


# Weights of some layers of one model, copied into another model of the same class.
#
# Names are remapped on the dotted name of the layer list, so nothing here knows an architecture. What
# only the first layer of a stack holds (T5's relative position bias) stays with the student's first
# layer.


log = logging.getLogger(__name__)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw initial weights from `seed` and give the caller's random state back.

    Only the CPU's generator is used: models are built there, and seeding an accelerator's would
    disturb a run that is under way.
    """
    state = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(state)


def fresh_model(
    config: transformers.PretrainedConfig,
    *,
    seed: int = 0,
    auto: Any = transformers.AutoModelForSequenceClassification,
    attn_implementation: str | None = None,
) -> transformers.PreTrainedModel:
    """A randomly initialised model in float32, in eval mode, the same for the same seed.

    Raises LimbeckError when the configuration has no class for the task or makes no valid model.
    """
    try:
        with seeded(seed):
            model = auto.from_config(
                config, dtype=torch.float32, attn_implementation=attn_implementation
            )
    except Exception as error:  # of another library: zero heads are a ZeroDivisionError
        raise LimbeckError(
            f"student: no model can be built from this {type(config).__name__}: {first_line(error)}",
            "check student.config (widths must be divisible by the number of heads)",
        ) from error
    ready: transformers.PreTrainedModel = model.eval()
    return ready


def shares_one_layer(model: transformers.PreTrainedModel) -> bool:
    """Whether the main stack runs fewer layer modules than it has layers (ALBERT)."""
    try:
        return len(stack_layers(model)) != number_of_layers(model)
    except LimbeckError:  # capture names no list for a stack whose layers are shared
        return True


def head_keys(model: transformers.PreTrainedModel) -> set[str]:
    """Names in the state dict that belong to the task head: outside the backbone, and its pooler.

    The pooler counts because checkpoints pretrained without it are complete for every purpose but the
    head's. A bare model has no head.
    """
    if isinstance(model, StaticStudent):
        return {key for key in model.state_dict() if key.startswith(("head.", "pairs."))}
    prefix = model.base_model_prefix
    if not isinstance(getattr(model, prefix, None), torch.nn.Module):
        return set()
    return {
        key
        for key in model.state_dict()
        if not key.startswith(prefix + ".") or key.startswith(prefix + ".pooler.")
    }


def heads_alike(source: transformers.PreTrainedModel, target: transformers.PreTrainedModel) -> bool:
    """Whether two models hold the same weights outside their backbones."""
    shapes = [
        {key: model.state_dict()[key].shape for key in outside_backbone(model)}
        for model in (source, target)
    ]
    return shapes[0] == shapes[1]


def transplant(
    source: transformers.PreTrainedModel,
    target: transformers.PreTrainedModel,
    picked: Mapping[str, Sequence[int]],
    *,
    copy_head: bool,
) -> transformers.PreTrainedModel:
    """Fill `target` with `source`'s weights, its layer j with `source`'s layer `picked[stack][j]`.

    Stacks that `picked` leaves out are copied completely. Without `copy_head` the head keeps its fresh
    values, except a pooler, which belongs to the backbone once it is there. Returns `target`.

    Raises LimbeckError when the two models do not hold the same weights in the same shapes.
    """
    if type(source) is not type(target):
        raise LimbeckError(
            f"student: a {type(target).__name__} cannot take weights of a {type(source).__name__}",
            "load the model it starts from with the same task head",
        )
    if getattr(source, "is_quantized", False):
        raise LimbeckError(
            f"student: the weights of {source.name_or_path} are quantized, and cannot be trained on",
            "start from the model in float or from another encoder (--student PATH); a quantized model can teach",
        )
    own, other = labels_of(source.config), labels_of(target.config)
    if isinstance(source, StaticStudent) and not copy_head and own != other:
        raise LimbeckError(
            f"student.init {source.name_or_path}: a static student for {', '.join(own)}, and the task has "
            f"{', '.join(other)}; its word pairs and head are for its own labels",
            "give data with those labels, or make a new one: student.static=true, student.init=teacher or fresh",
        )
    names = {stack_layers_name(source, stack): layers for stack, layers in picked.items()}
    theirs, ours = source.state_dict(), target.state_dict()
    used: set[str] = set()
    filled: dict[str, Tensor] = {}
    absent: list[str] = []
    kept_head = set() if copy_head else outside_backbone(target)
    for key, own in ours.items():
        if key in kept_head:
            filled[key] = own
            continue
        found = _source_key(key, names)
        if found not in theirs:
            found = key
        if found not in theirs or theirs[found].shape != own.shape:
            absent.append(key)
            continue
        used.add(found)
        filled[key] = theirs[found]
    if absent:
        raise LimbeckError(
            f"student: its shape differs from the model it starts from in {len(absent)} weights: "
            f"{', '.join(absent[:6])}",
            "leave sizes out of student.config (student.hidden, heads and ffn cut these weights), or set init: fresh",
        )
    _say_dropped(theirs.keys() - used - kept_head, names)
    target.load_state_dict(filled, strict=True)
    return target


def outside_backbone(model: transformers.PreTrainedModel) -> set[str]:
    """The names among `head_keys` that are not a pooler's."""
    return {key for key in head_keys(model) if not key.startswith(model.base_model_prefix + ".")}


def _source_key(key: str, names: Mapping[str, Sequence[int]]) -> str:
    """A weight's name in the source: the student's layer number replaced by the picked one."""
    for name, layers in names.items():
        if key.startswith(name + "."):
            number, rest = key[len(name) + 1 :].split(".", 1)
            return f"{name}.{layers[int(number)] - 1}.{rest}"
    return key


def _say_dropped(unused: set[str], names: Mapping[str, Sequence[int]]) -> None:
    """Log weights of picked layers for which the student has no place (ModernBERT's first norm)."""
    picked = tuple(f"{name}.{layer - 1}." for name, layers in names.items() for layer in layers)
    dropped = sorted(key for key in unused if key.startswith(picked))
    if dropped:
        log.warning(
            "student: its first layer has no place for %s of the layer it was copied from",
            ", ".join(dropped),
        )


# The files that a checkpoint's weights are read from: safetensors of its own folder alone. transformers reads the files
# that an index or a configuration names, and unpickles files other than .safetensors; so the names are checked first.


_SAFE = ".safetensors"
_INDEX = ".safetensors.index.json"
_NOT_ON_HUB = (
    "no such folder, and the Hub did not give it: check the name, the network, and whether "
    "HF_HUB_OFFLINE is set"
)
_FIX = (
    "do not use it if you did not make it; load your own where you trust it and write it again with "
    "model.save_pretrained(FOLDER)"
)


def refuse_unsafe_weights(source: str | Path, folder: Path) -> None:
    """Look at everything in a folder that names a file of weights.

    Raises:
        LimbeckError: a name of a pickled file or of one outside the folder; an invalid index.
    """
    # Other problems with a configuration are reported where it is read.
    named = (_read(folder / "config.json") or {}).get("transformers_weights")
    if named is not None:
        _refuse(source, "config.json", named, (_SAFE, _INDEX))
    for index in {SAFE_WEIGHTS_INDEX_NAME, *([named] if named else [])}:
        if index.endswith(_INDEX) and (folder / index).exists():
            _refuse_index(source, folder / index)


def refuse_unsafe_index_on_hub(name: str) -> None:
    """The same of a Hub name's index, where the Hub or the cache has one.

    Raises:
        LimbeckError: as `refuse_unsafe_weights`.
    """
    try:
        index = find_file(name, SAFE_WEIGHTS_INDEX_NAME)
    except OSError:  # loading it reports why it is unavailable
        return
    if index is not None:
        _refuse_index(name, index)


def refuse_damaged_student(source: str | Path, folder: Path) -> None:
    """Raise LimbeckError if a run's student is not, file for file, as the run shipped it."""
    manifest = Manifest.read(folder.parent)
    if manifest is None:
        return
    broken = manifest.damaged(folder.parent, start=f"{folder.name}/")
    if broken:
        raise LimbeckError(
            f"model {str(source)!r}: {', '.join(broken)} changed since the run wrote it",
            "run the same command again, which trains it again; or copy the folder elsewhere to use it as it is",
        )


def _refuse_index(source: str | Path, path: Path) -> None:
    shards = (_read(path) or {}).get("weight_map")
    if not isinstance(shards, dict):
        raise LimbeckError(
            f"model {str(source)!r}: {path.name} is no JSON object with a weight_map",
            "copy or download it again",
        )
    for shard in shards.values():
        _refuse(source, path.name, shard, (_SAFE,))


def _refuse(source: str | Path, where: str, name: Any, endings: tuple[str, ...]) -> None:
    text = str(name)
    if not isinstance(name, str) or re.fullmatch(r"\w[\w.+-]*", text) is None:
        problem = "a file outside the folder"
    elif not text.endswith(endings):
        problem = "which is not safetensors (pickled weights are never loaded: they can run code)"
    else:
        return
    raise LimbeckError(f"model {str(source)!r}: {where} names {text!r}, {problem}", _FIX)


def _read(path: Path) -> dict[str, Any] | None:
    """A JSON object; None for anything else."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


# Names of models that are no folder here: the Hub's, or a path that leads nowhere. huggingface_hub
# retries for half a minute without a reply, for every file that it looks for. So the Hub
# is contacted once, before requests for files that no cache holds.


_SECONDS = 5
_FIRST_READ = (
    ADAPTER_CONFIG_NAME,
    "config.json",
    "tokenizer_config.json",
    "preprocessor_config.json",
)


def refuse_absent(name: str | Path, what: str = "model") -> None:
    """Look whether a name that is no folder here can be one of the Hub's.

    Args:
        name: as it was given.
        what: how a message calls it.

    Raises:
        LimbeckError: it is a path, or the Hub cannot be reached and no cache holds it.
    """
    text = str(name)
    try:
        validate_repo_id(text)
    except HFValidationError:
        raise LimbeckError(
            f"{what} {text!r}: no such folder",
            f"{_near(text)}give a folder that save_pretrained wrote, a limbeck run folder, or a Hub name",
        ) from None
    # Offline, huggingface_hub reports missing cache entries immediately.
    if constants.HF_HUB_OFFLINE or any(_is_cached(text, file) for file in _FIRST_READ):
        return
    try:
        _knock(constants.ENDPOINT)
    # Each release of huggingface_hub has an HTTP library of its own choice, with errors of its own.
    except Exception as error:
        raise LimbeckError(
            f"{what} {text!r}: not a folder here, and the Hub ({constants.ENDPOINT}) cannot be reached "
            f"({str(error).strip() or type(error).__name__})",
            f"{_near(text)}check the path, or the network",
        ) from error


def _is_cached(name: str, file: str) -> bool:
    return isinstance(try_to_load_from_cache(name, file), str)


@lru_cache(maxsize=4)
def _knock(endpoint: str) -> None:
    """Any response shows that it is there; without one, the next call tries again."""
    get_session().head(endpoint, timeout=_SECONDS)


def _near(text: str) -> str:
    """A folder with nearly the same name, in the folder of a path."""
    place = files.at_home(text)
    try:
        folders = [path.name for path in place.parent.iterdir() if path.is_dir()]
    except OSError:
        return ""
    near = difflib.get_close_matches(place.name, folders, n=1)
    return f"did you mean {str(place.with_name(near[0]))!r}? " if near else ""


# Reading a tokenizer, or an image processor, from a folder, a run or the Hub.


def read_tokenizer(path_or_name: str | Path) -> transformers.PreTrainedTokenizerBase:
    """The tokenizer of a checkpoint's folder, of a run's student, or of a Hub name.

    Raises LimbeckError if there is no readable one.
    """
    tokenizer: transformers.PreTrainedTokenizerBase = read_processor(path_or_name, TEXT_READING)
    return tokenizer


def read_processor(path_or_name: str | Path, reads: Reading) -> Processor:
    """The processor for a form of input: a tokenizer, or an image processor.

    Raises LimbeckError if there is no readable one.
    """
    folder = files.at_home(given.place_of(path_or_name))
    student = folder / "student"
    here = folder.exists()
    own = any((folder / name).exists() for name in _OWN_FILES)
    source = student if not own and student.is_dir() else folder if here else path_or_name
    if not here:
        refuse_absent(path_or_name, reads.processor)
    adapter = find_adapter(str(source))
    if adapter is not None and not any(find_file(str(source), name) for name in _PROCESSORS):
        return read_processor(_base_of(adapter), reads)
    try:
        return reads.load(str(source))
    # tokenizers raises a bare Exception for a file that is cut, so nothing narrower catches it.
    except Exception as error:
        raise LimbeckError(
            f"{reads.processor} {str(path_or_name)!r} cannot be read: {first_line(error)}",
            f"give a folder that {reads.processor}.save_pretrained wrote" if here else _NOT_ON_HUB,
        ) from error


_PROCESSORS = ("tokenizer_config.json", "preprocessor_config.json")
_OWN_FILES = ("config.json", *_PROCESSORS)
