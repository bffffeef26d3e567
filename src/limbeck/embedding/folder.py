"""sentence-transformers' folders: their modules read and written. Part of `limbeck.embedding`.

Read in both layouts: the layout of release 5 and before, in which every model on the Hub is written, and the one of
release 6; written in the first, which all releases read.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import save_file
from torch import nn
from transformers import PretrainedConfig
from transformers.utils import cached_file

from limbeck.support import files, plain
from limbeck.support.errors import LimbeckError, check_choice

# The prompt of an embedding model, by the role of the text: a sentence, a query or a passage.
# Kept under sentence-transformers' names, of which its `encode_query` and `encode_document` take
# their prompts, and never the one of `encode`.


SENTENCE, QUERY, PASSAGE = "sentence", "query", "passage"
"""Roles of a text: alone, a query, or a passage that may answer a query."""
_QUERIES = ("query",)
_PASSAGES = ("document", "passage", "corpus")
_NEW = "default"


class TextPrompts(NamedTuple):
    """The text before each kind of text; "" for none.

    Attributes:
        sentence: before texts that are neither of the others, as sentence-transformers' `encode` puts it unasked.
        query: before queries.
        passage: before passages.
    """

    sentence: str = ""
    query: str = ""
    passage: str = ""

    def changed(
        self, sentence: str | None = None, query: str | None = None, passage: str | None = None
    ) -> "TextPrompts":
        """The same with other prompts, None for ones that stay; a sentence's replaces the others too, unless they
        get their own."""
        found = self if sentence is None else TextPrompts(sentence, sentence, sentence)
        own = {QUERY: query, PASSAGE: passage}
        return found._replace(**{name: text for name, text in own.items() if text is not None})


BARE = TextPrompts()
"""No text before any."""


# The modules behind an encoder, which make its tokens one vector. Kept in the model's configuration,
# so that it goes wherever the configuration goes: into students, fingerprints and files.


ENTRY = "sentence_embedding"
"""The entry of a configuration that holds them."""
COSINE, DOT = "cosine", "dot"
SIMILARITIES = (COSINE, DOT)
"""How embeddings may be compared, by sentence-transformers' names: by the cosine or the inner product."""


@dataclass(frozen=True)
class DenseModule:
    """A linear map of the pooled vector that is shipped with the model.

    Attributes:
        width: numbers that it puts out.
        bias: whether it adds a learned vector.
        activation: the name of torch's module behind it: Identity, Tanh, ReLU or GELU.
    """

    width: int
    bias: bool = True
    activation: str = "Identity"


@dataclass(frozen=True)
class EmbeddingModules:
    """Pooling and the modules behind it, in the order in which they run.

    Attributes:
        pooling: which tokens speak for a text: mean, cls or last.
        normalize: whether the embedding is divided by its length.
        dense: a linear map before that, if there is one.
        prompts: texts to put before a text, by their names.
        default_prompt: the name of the default prompt, for texts that are neither queries nor passages.
        max_tokens: most tokens per text; None if unknown.
        similarity: how embeddings are compared: cosine or dot.
        lower_case: whether texts are read in lower case, whatever the tokenizer does.
        truncate: how many numbers of an embedding are kept, the first ones, after all else; None for all.
    """

    pooling: str = "mean"
    normalize: bool = True
    dense: DenseModule | None = None
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    max_tokens: int | None = None
    similarity: str = COSINE
    lower_case: bool = False
    truncate: int | None = None

    def __post_init__(self) -> None:
        check_choice("pooling", self.pooling, _FLAGS)
        check_choice("similarity", self.similarity, SIMILARITIES)

    @property
    def text_prompts(self) -> TextPrompts:
        """The prompts of sentences, queries and passages.

        A folder that names no prompt for queries, or for passages, uses the sentences' prompt there. One that names an
        empty one (as release 5 and later do by default) uses no prompt there, as in sentence-transformers.
        """
        sentence = "" if self.default_prompt is None else self.prompts.get(self.default_prompt, "")
        found = []
        for names in (_QUERIES, _PASSAGES):
            there = [self.prompts[name] for name in names if name in self.prompts]
            found.append(next((text for text in there if text), "" if there else sentence))
        return TextPrompts(sentence, *found)

    def prompted(self, prompts: TextPrompts) -> "EmbeddingModules":
        """The same with these, under the names that sentence-transformers looks for; others stay."""
        named = {**self.prompts, _QUERIES[0]: prompts.query, _PASSAGES[0]: prompts.passage}
        named |= {name: prompts.passage for name in _PASSAGES if name in self.prompts}
        default = None
        if prompts.sentence:
            alike = [name for name, text in named.items() if text == prompts.sentence]
            default = alike[0] if alike else _NEW
            named[default] = prompts.sentence
        return replace(self, prompts=named, default_prompt=default)


def modules_of(config: PretrainedConfig) -> EmbeddingModules | None:
    """The embedding modules in a configuration; None if it is not an embedding model's.

    Raises:
        LimbeckError: the entry is not as limbeck writes it.
    """
    content = getattr(config, ENTRY, None)
    if not isinstance(content, Mapping):
        return None
    try:
        dense = content.get("dense")
        given = {**content, "dense": None if dense is None else DenseModule(**dense)}
        return EmbeddingModules(**given)
    except (TypeError, AttributeError) as error:
        raise LimbeckError(
            f"config.json: {ENTRY} is not as limbeck writes it ({error})",
            "remove the entry: modules.json next to it contains the same",
        ) from error


def set_modules(config: PretrainedConfig, modules: EmbeddingModules) -> None:
    """Write the modules into a configuration."""
    setattr(config, ENTRY, asdict(modules))


MODULES = "modules.json"
SETTINGS = "config_sentence_transformers.json"
TRANSFORMER = "sentence_bert_config.json"
TOKENIZER = "tokenizer_config.json"
_WEIGHTS = "model.safetensors"
_CONFIG = "config.json"
# Pooling modes of release 5 and before, by our names.
_FLAGS = {
    "mean": "pooling_mode_mean_tokens",
    "cls": "pooling_mode_cls_token",
    "last": "pooling_mode_lasttoken",
}
_WORDS = {"mean": "mean", "cls": "cls", "lasttoken": "last", "last": "last"}
_ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU")
_RERANKER = "CrossEncoder"
_LOGIT_SCORE = ["Transformer", "LogitScore"]
# Tokenizers without a limit name a number of this size.
_NO_LIMIT = 10**9
_ORDER = ("Transformer", "Pooling", "Dense", "Normalize")


def read_modules(source: str) -> EmbeddingModules | None:
    """The modules that a folder or a repository of the Hub lists; None where it lists none.

    Nor has a cross-encoder any, for which release 6 lists the model alone, or with what reads its logits.

    Raises:
        LimbeckError: modules other than an encoder, pooling, linear maps and normalisation, another similarity than
            the cosine and the inner product, or texts that a chat template writes.
    """
    listed = read_json(source, MODULES)
    if listed is None:
        return None
    if not isinstance(listed, list):
        raise _unreadable(source, MODULES)
    modules = [
        (str(one.get("type", "")).rpartition(".")[2], str(one.get("path", ""))) for one in listed
    ]
    names = [name for name, _ in modules]
    settings = read_json(source, SETTINGS) or {}
    alone = names == ["Transformer"] and settings.get("model_type") == _RERANKER
    if names == _LOGIT_SCORE:
        return None
    if "message" in ((read_json(source, TRANSFORMER) or {}).get("modality_config") or {}):
        raise LimbeckError(
            f"model {source!r} reads its texts as chat messages (modality_config in {TRANSFORMER}), which is not "
            "supported",
            f'if it was trained on plain texts, remove "message" from modality_config in its {TRANSFORMER}',
        )
    if alone:
        return None
    places = dict(modules)
    _check_places(source, names, [path for _, path in modules])
    named = settings.get("prompts") or {}
    default = settings.get("default_prompt_name")
    pooling = read_json(source, f"{places['Pooling']}/{_CONFIG}") or {}
    found = EmbeddingModules(
        pooling=_pooling(source, pooling),
        normalize="Normalize" in places,
        dense=_dense(source, [path for name, path in modules if name == "Dense"]),
        prompts={str(key): str(text) for key, text in named.items() if text is not None},
        default_prompt=None if default is None else str(default),
        max_tokens=_max_tokens(source),
        similarity=settings.get("similarity_fn_name") or COSINE,
        lower_case=lower_cased(source),
        truncate=settings.get("truncate_dim"),
    )
    if pooling.get("include_prompt") is False and any(found.text_prompts):
        raise LimbeckError(
            f"model {source!r} pools its texts without their prompt, which is not supported",
            "use a model whose pooling includes the prompt, as almost all do",
        )
    return found


class LogitScore(NamedTuple):
    """A causal model as a reranker: the log-odds of two tokens behind its chat template.

    Attributes:
        true_token: id of the answer yes; None where the file names none.
        false_token: id of the answer no; None where the score is one token's logit.
        instruction: the system's message that is put before each pair unasked.
        chat_template: arguments of the chat template.
    """

    true_token: int | None
    false_token: int | None
    instruction: str | None
    chat_template: dict[str, Any]


def read_logit_score(source: str) -> LogitScore | None:
    """The module of a folder or a repository that is a Transformer with a LogitScore; None of others."""
    listed = read_json(source, MODULES) or []
    types = [str(one.get("type", "")).rpartition(".")[2] for one in listed]
    if types != _LOGIT_SCORE:
        return None
    content = read_json(source, f"{listed[1]['path']}/{_CONFIG}") or {}
    settings = read_json(source, SETTINGS) or {}
    prompt = (settings.get("prompts") or {}).get(settings.get("default_prompt_name"))
    processing = (read_json(source, TRANSFORMER) or {}).get("processing_kwargs") or {}
    return LogitScore(
        content.get("true_token_id"),
        content.get("false_token_id"),
        prompt or None,
        {k: v for k, v in (processing.get("chat_template") or {}).items() if k != "restore_suffix"},
    )


def lower_cased(source: str) -> bool:
    """Whether a folder specifies that its texts are read in lower case, whatever its tokenizer does."""
    return (read_json(source, TRANSFORMER) or {}).get("do_lower_case") is True


def _max_tokens(source: str) -> int | None:
    """Most tokens per text by the module's own file, otherwise by the tokenizer's, where release 6 keeps them."""
    own = (read_json(source, TRANSFORMER) or {}).get("max_seq_length")
    known = own or (read_json(source, TOKENIZER) or {}).get("model_max_length")
    return int(known) if isinstance(known, int | float) and 0 < known < _NO_LIMIT else None


def _check_places(source: str, names: list[str], paths: list[str]) -> None:
    """Raise LimbeckError for other modules, and for an encoder that is not in the folder itself."""
    known = [
        name
        for name in _ORDER
        for _ in range(names.count(name) if name == "Dense" else min(names.count(name), 1))
    ]
    if names != known or names[:2] != ["Transformer", "Pooling"]:
        raise LimbeckError(
            f"model {source!r} is made of {', '.join(names)}",
            "supported are Transformer, Pooling, then Dense and Normalize, in this order; name the "
            "encoder's own folder to use it without the other modules",
        )
    outside = [path for path in paths if re.match(r"[/\\~]|.*\.\.", path)]
    if paths[0] or outside:
        raise LimbeckError(
            f"model {source!r}: {MODULES} has its encoder in {paths[0] or outside[0]!r}",
            "name that folder as the model, or save it again with sentence-transformers 3 or later",
        )


def _pooling(source: str, content: Mapping[str, Any]) -> str:
    """Our word for a pooling, of either layout."""
    mode = content.get("pooling_mode")
    modes = [mode] if isinstance(mode, str) else list(mode or ())
    modes += [name for name in content if name.startswith("pooling_mode_") and content[name]]
    flags = {flag: word for word, flag in _FLAGS.items()}
    words = [_WORDS.get(str(one)) or flags.get(str(one)) for one in modes]
    if len(words) == 1 and words[0] is not None:
        return words[0]
    raise LimbeckError(
        f"model {source!r} pools by {' and '.join(map(str, modes)) or 'nothing'}",
        f"supported is one of {', '.join(_FLAGS)}",
    )


def _dense(source: str, places: Sequence[str]) -> DenseModule | None:
    """The linear map; several without an activation between them are one."""
    found: DenseModule | None = None
    for place in places:
        content = read_json(source, f"{place}/{_CONFIG}") or {}
        activation = str(content.get("activation_function", "torch.nn.modules.activation.Tanh"))
        name = activation.rpartition(".")[2]
        width = content.get("out_features")
        known = name in (_ACTIVATIONS if place == places[-1] else ("Identity",))
        if not known or not isinstance(width, int):
            raise LimbeckError(
                f"model {source!r}: its Dense module has the activation {activation} and {width} outputs",
                f"supported are {', '.join(_ACTIVATIONS)}, and Identity alone before another Dense",
            )
        bias = bool(content.get("bias", True)) or (found is not None and found.bias)
        found = DenseModule(width, bias, name)
    return found


def dense_files(source: str) -> list[Path]:
    """The files of the linear maps' weights, in the order in which they run.

    Raises:
        LimbeckError: they would have to be unpickled.
    """
    listed = read_json(source, MODULES) or []
    places = [one["path"] for one in listed if str(one.get("type", "")).endswith(".Dense")]
    found = []
    for place in places:
        file = find_file(source, f"{place}/{_WEIGHTS}")
        if file is None:
            raise LimbeckError(
                f"model {source!r}: no {_WEIGHTS} in {place} (pickled weights are never loaded: they can run code)",
                "load it where you trust it and save it again with sentence-transformers",
            )
        found.append(file)
    return found


def write_modules(
    folder: Path, modules: EmbeddingModules, width: int, dense: nn.Module | None
) -> None:
    """Write the modules next to an encoder that `save_pretrained` wrote.

    Args:
        folder: the encoder's.
        modules: the modules behind it.
        width: numbers of its token states.
        dense: the linear map, where there is one.
    """
    steps = ["", "Pooling"]
    flags = {flag: word == modules.pooling for word, flag in _FLAGS.items()}
    pooling = {"word_embedding_dimension": width, **flags, "include_prompt": True}
    _write(folder / "1_Pooling" / _CONFIG, pooling)
    if modules.dense is not None and dense is not None:
        steps.append("Dense")
        place = f"{len(steps) - 1}_Dense"
        activation = "linear" if modules.dense.activation == "Identity" else "activation"
        config = {
            "in_features": width,
            "out_features": modules.dense.width,
            "bias": modules.dense.bias,
            "activation_function": f"torch.nn.modules.{activation}.{modules.dense.activation}",
        }
        _write(folder / place / _CONFIG, config)
        weights = {f"linear.{key}": value.contiguous() for key, value in dense.state_dict().items()}
        save_file(weights, folder / place / _WEIGHTS, metadata={"format": "pt"})
    if modules.normalize:
        steps.append("Normalize")
        (folder / f"{len(steps) - 1}_Normalize").mkdir(exist_ok=True)
    listed = [
        {
            "idx": number,
            "name": str(number),
            "path": f"{number}_{step}" if step else "",
            "type": f"sentence_transformers.models.{step or 'Transformer'}",
        }
        for number, step in enumerate(steps)
    ]
    _write(folder / MODULES, listed)
    length = {} if modules.max_tokens is None else {"max_seq_length": modules.max_tokens}
    _write(folder / TRANSFORMER, {**length, "do_lower_case": modules.lower_case})
    settings: dict[str, Any] = {
        "prompts": dict(modules.prompts),
        "default_prompt_name": modules.default_prompt,
        "similarity_fn_name": modules.similarity,
    }
    if modules.truncate is not None:
        settings["truncate_dim"] = modules.truncate
    _write(folder / SETTINGS, settings)


def _write(path: Path, content: Any) -> None:
    files.write_whole(path, json.dumps(content, indent=2) + "\n")


def find_file(source: str, name: str) -> Path | None:
    """A file of a folder, or of a repository of the Hub or its copy in the cache."""
    folder = Path(source)
    if folder.is_dir():
        found = folder / name
        return found if found.is_file() else None
    cached = cached_file(
        source,
        name,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return None if cached is None else Path(cached)


def read_json(source: str, name: str) -> Any:
    """The content of such a file; None if it is missing.

    Raises:
        LimbeckError: it is no JSON.
    """
    file = find_file(source, name)
    if file is None:
        return None
    try:
        return plain.loads(plain.read_text(file))
    except (OSError, ValueError, RecursionError) as error:
        raise _unreadable(source, name) from error


def _unreadable(source: str, name: str) -> LimbeckError:
    return LimbeckError(
        f"model {source!r}: {name} is not as sentence-transformers writes it",
        "copy or download it again",
    )
