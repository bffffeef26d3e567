"""Write a static student as a plain folder with a NumPy reader, or as model2vec's and sentence-transformers' folder.

Part of `limbeck.static`. Nothing is pickled. For ONNX, `exporting` converts a student like any other model.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file
from tokenizers import Tokenizer

from limbeck.static.model import StaticStudent
from limbeck.support.errors import LimbeckError
from limbeck.support.files import write_whole

_NO_LIMIT = 10**9
_LARGEST = 127
_ACTIVATIONS = {"multi_label_classification": "sigmoid", "regression": "identity"}


def write_plain(
    student: StaticStudent, tokenizer: Any, folder: Path, *, int8: bool = False
) -> None:
    """Write `model.safetensors`, `config.json`, `tokenizer.json` and a NumPy reader of them.

    `transformers` loads the folder after `import limbeck.static`. `predict.py` needs neither.

    Args:
        student: with or without word pairs.
        tokenizer: the student's.
        folder: made if it is not there.
        int8: round token vectors to 8 bits with a scale a row. Word pairs stay in full precision.
    """
    folder.mkdir(parents=True, exist_ok=True)
    state = dict(student.state_dict())
    if int8:
        vectors, weights = int8_rows(student)
        state["vectors.weight"] = torch.from_numpy(vectors)
        state["weights.weight"] = torch.from_numpy(weights[:, None])
    student.save_pretrained(folder, state_dict=state)
    tokenizer.save_pretrained(folder)
    bare_tokenizer(tokenizer).save(str(folder / "tokenizer.json"))


def write_model2vec(
    student: StaticStudent,
    tokenizer: Any,
    folder: Path,
    *,
    int8: bool = False,
    without_pairs: float | None = None,
) -> None:
    """Write a folder for model2vec: `StaticModel` for an embedding student, otherwise `StaticModelPipeline`.

    sentence-transformers loads the same folder as a `StaticEmbedding`, without a classifier's head.

    Args:
        student: without word pairs, for which the format has no place.
        tokenizer: the student's.
        folder: made if it is not there.
        int8: as in `write_plain`; needs sentence-transformers 6 or later to be read there.
        without_pairs: leave word pairs out, which changes the score by this much; kept in `config.json`.

    Raises:
        LimbeckError: word pairs that would be lost unasked; a vocabulary with unused numbers.
    """
    config = student.config
    if student.pairs is not None and without_pairs is None:
        raise LimbeckError(
            f"static student with {config.pairs} hashed word pairs: model2vec and sentence-transformers have no "
            "place for them",
            "export to onnx or the plain folder, or measure the score without pairs and give the difference as "
            "without_pairs",
        )
    if len(tokenizer.get_vocab()) != config.vocab_size:
        raise LimbeckError(
            f"static student with {config.vocab_size} token vectors: its tokenizer has {len(tokenizer.get_vocab())} "
            "tokens, and model2vec takes one vector a token",
            "export to onnx or the plain folder",
        )
    folder.mkdir(parents=True, exist_ok=True)
    vectors, weights = int8_rows(student) if int8 else (_weighted_rows(student), None)
    arrays = {"embeddings": vectors} | ({} if weights is None else {"weights": weights})
    core = bare_tokenizer(tokenizer)
    limit = core.truncation and core.truncation["max_length"]
    settings: dict[str, Any] = {
        "model_type": "model2vec",
        "architectures": ["StaticModel"],
        "hidden_dim": config.hidden_size,
        "normalize": config.normalize,
        "max_length": limit,
        "embedding_dtype": vectors.dtype.name,
    }
    if student.pairs is not None:
        settings["score_change_without_word_pairs"] = without_pairs
    if (thresholds := getattr(config, "label_thresholds", None)) is not None:
        settings["label_thresholds"] = thresholds
    if head := _head_arrays(student):
        activation = _ACTIVATIONS.get(config.problem_type or "", "softmax")
        names: Any = config.id2label
        classes = [names[place] for place in range(config.output_width)]
        settings["head_config"] = {
            "n_layers": len(head) // 2,
            "activation": activation,
            "classes": None if activation == "identity" else classes,
        }
        save_file(head, folder / "head.safetensors")
    save_file(arrays, folder / "model.safetensors", metadata={"format": "pt"})
    core.save(str(folder / "tokenizer.json"))
    modules = [(".", "StaticEmbedding"), *([("1_Normalize", "Normalize")] * config.normalize)]
    for path, _ in modules:
        (folder / path).mkdir(exist_ok=True)
    listed = [
        {"idx": place, "name": str(place), "path": path, "type": f"{_PACKAGE}.{name}"}
        for place, (path, name) in enumerate(modules)
    ]
    for name, content in (("config.json", settings), ("modules.json", listed)):
        write_whole(folder / name, json.dumps(content, indent=2) + "\n")


_PACKAGE = "sentence_transformers.models"


def int8_rows(student: StaticStudent) -> tuple[np.ndarray, np.ndarray]:
    """Token vectors (V, d) as integers from -127 to 127, and weights (V,) with each row's scale in them.

    Special tokens have weight 0.
    """
    vectors = student.vectors.weight.detach().float().cpu().numpy()
    scales = np.abs(vectors).max(1, keepdims=True) / _LARGEST
    rounded = np.rint(vectors / np.maximum(scales, 1e-12)).astype(np.int8)
    return rounded, _counting_weights(student) * scales[:, 0]


def _counting_weights(student: StaticStudent) -> np.ndarray:
    weights = student.weights.weight.detach().float()[:, 0] * student.counted
    return np.ascontiguousarray(weights.cpu().numpy())


def _weighted_rows(student: StaticStudent) -> np.ndarray:
    """Token vectors (V, d), each times its weight; zero for special tokens."""
    vectors = student.vectors.weight.detach().float().cpu().numpy()
    return np.ascontiguousarray(vectors * _counting_weights(student)[:, None])


def _head_arrays(student: StaticStudent) -> dict[str, np.ndarray]:
    """The head's linear maps under model2vec's names, which number them one after the other."""
    linear = [part for part in student.head.children() if isinstance(part, torch.nn.Linear)]
    return {
        f"head.{place}.{name}": value.detach().float().cpu().numpy()
        for place, part in enumerate(linear)
        for name, value in part.named_parameters()
    }


def bare_tokenizer(tokenizer: Any) -> Tokenizer:
    """The tokenizer as readers need it: no padding, and texts truncated at `model_max_length`."""
    core = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    core.no_padding()
    core.no_truncation()
    if tokenizer.model_max_length < _NO_LIMIT:
        marks = core.num_special_tokens_to_add(is_pair=False)
        core.enable_truncation(
            tokenizer.model_max_length - marks, direction=tokenizer.truncation_side
        )
    return core
