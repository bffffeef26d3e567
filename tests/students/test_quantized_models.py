"""Folders whose weights are quantized: read where it is possible, and else said what they need."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

import limbeck
import tiny_runs as tiny
from limbeck.students import load_model
from limbeck.support.errors import LimbeckError

SIZES = {
    "vocab_size": 14, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "max_position_embeddings": 64, "initializer_range": 0.4, "pad_token_id": 0,
}  # fmt: skip
FP8 = {"quant_method": "fp8", "weight_block_size": [16, 16], "activation_scheme": "dynamic"}
BITNET = {"quant_method": "bitnet", "linear_class": "bitlinear", "quantization_mode": "offline",
          "modules_to_not_convert": ["score"]}  # fmt: skip


def save(
    folder: Path, quantized: dict, seed: int = 0, sign: int = 1, **sizes: int
) -> tuple[Path, hf.PreTrainedModel]:
    """A classifier's folder that says that it is quantized, and the classifier."""
    names = {"id2label": {0: "negative", 1: "positive"}}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = hf.LlamaForSequenceClassification(hf.LlamaConfig(**(SIZES | sizes), **names)).eval()
    model.score.weight.data *= sign
    model.save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(content | {"quantization_config": quantized}))
    return folder, model


def in_fp8(folder: Path, model: hf.PreTrainedModel) -> None:
    """Weights by blocks of 16 by 16 with a scale for each; in the model what they come to in float."""
    weights, kept = load_file(folder / "model.safetensors"), {}
    for name, weight in weights.items():
        kept[name] = weight
        if not name.endswith("proj.weight"):
            continue
        rows, columns = (size // 16 for size in weight.shape)
        scales, low = (
            torch.empty(rows, columns),
            torch.empty(weight.shape, dtype=torch.float8_e4m3fn),
        )
        for row in range(rows):
            for column in range(columns):
                block = (slice(16 * row, 16 * row + 16), slice(16 * column, 16 * column + 16))
                scales[row, column] = weight[block].abs().max() / 448
                low[block] = (weight[block] / scales[row, column]).to(low.dtype)
                model.get_parameter(name).data[block] = low[block].float() * scales[row, column]
        kept[name], kept[f"{name}_scale_inv"] = low, scales
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})


def in_bits(folder: Path) -> None:
    """Weights of −1, 0 and 1, four in a byte."""
    from transformers.integrations.bitnet import pack_weights

    weights = load_file(folder / "model.safetensors")
    for name, weight in [*weights.items()]:
        if name.endswith("proj.weight"):
            scale = 1 / weight.abs().mean()
            weights[name] = pack_weights((weight * scale).round().clamp(-1, 1))
            weights[f"{name}_scale"] = scale.reshape(1)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.fixture
def uncompiled():
    """BitNet compiles its unpacking, which takes a minute."""
    with torch.compiler.set_stance("force_eager"):
        yield


def logits_of(model: torch.nn.Module, texts: list[str]) -> np.ndarray:
    words = tiny.tokenizer()
    with torch.no_grad():
        rows = [
            model(**words(one, return_tensors="pt", return_token_type_ids=False)).logits[0]
            for one in texts
        ]
    return torch.stack(rows).numpy()


pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


@pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU they are multiplied as they are")
def test_weights_in_fp8_are_read_in_float_without_a_gpu(tmp_path) -> None:
    folder, model = save(tmp_path / "model", FP8)
    in_fp8(folder, model)
    texts = tiny.sentences(6)
    found = load_model(folder, head="required")
    np.testing.assert_allclose(logits_of(found, texts), logits_of(model, texts), atol=1e-6)


def in_bitsandbytes(folder: Path, bits: int) -> None:
    """By its own library, before a first pass: on CPU that rewrites weights of 4 bits."""
    pytest.importorskip("bitsandbytes")
    content = json.loads((folder / "config.json").read_text())
    del content["quantization_config"]
    (folder / "config.json").write_text(json.dumps(content))
    quantized = hf.BitsAndBytesConfig(**{f"load_in_{bits}bit": True})
    kind = hf.AutoModelForSequenceClassification
    kind.from_pretrained(folder, quantization_config=quantized, device_map="cpu").save_pretrained(
        folder
    )


@pytest.mark.parametrize("how", ["bitnet", "8 bits", "4 bits"])
@pytest.mark.filterwarnings("ignore")  # bitsandbytes' own
def test_a_quantized_model_teaches_and_is_no_students_start(how, tmp_path, uncompiled) -> None:
    folder = tmp_path / "model"
    if how == "bitnet":
        save(folder, BITNET)
        in_bits(folder)
    else:
        # This one is right about the rows.
        save(folder, BITNET, seed=1, sign=-1, hidden_size=64, intermediate_size=64)
        in_bitsandbytes(folder, int(how[0]))
    theirs = hf.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    texts = [*dict.fromkeys(tiny.sentences(8))]
    wanted = dict(zip(texts, logits_of(theirs, texts), strict=True))
    for row in limbeck.predict(folder, texts, output="logits", batch_size=1):
        np.testing.assert_allclose([*row["logits"].values()], wanted[row["text"]], atol=1e-4)
    data = tiny.write_csv(tmp_path / "rows.csv", 12)
    shared = {"data": str(data), "text_columns": ["review"], "label_column": "verdict", "max_steps": 1,
              "teacher": str(folder), "max_length": 16}  # fmt: skip
    run = limbeck.distill("kd", student="bert-1-16-2:random", out=str(tmp_path / "run"),
                          **{"student.tokenizer": str(folder)}, **shared)  # fmt: skip
    assert run.scores["dev"]
    with pytest.raises(
        LimbeckError, match=r"are quantized, and cannot be trained on\n    fix: start from"
    ):
        limbeck.distill("kd", out=str(tmp_path / "other"), **{"student.layers": 1}, **shared)


def test_a_quantized_causal_model_labels(tmp_path) -> None:
    from limbeck.labelling.language_models.causal import CausalLabeller
    from limbeck.labelling.language_models.prompt import Prompt, bind_prompt
    from tiny_language_models import byte_tokenizer, language_model

    class Fixed(type(language_model("llama"))):
        """Refuses another type, as quantized models do."""

        is_quantized = True

        def to(self, *given, **named):
            assert not any(isinstance(one, torch.dtype) for one in (*given, *named.values()))
            return super().to(*given, **named)

    model = language_model("llama")
    wanted = CausalLabeller(
        model, byte_tokenizer(), bound := bind_prompt(Prompt(), ("bad", "good"), ("sentence",))
    )
    rows = [{"sentence": "fine"}]
    scores = wanted.score(rows)["logits"]
    model.__class__ = Fixed
    found = CausalLabeller(model, byte_tokenizer(), bound, precision="bf16").score(rows)["logits"]
    np.testing.assert_allclose(found, scores, atol=1e-5)


@pytest.mark.parametrize(("method", "package"), [
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes"),
    ({"quant_method": "gptq", "bits": 4}, "optimum"),
    ({"quant_method": "awq", "bits": 4}, "gptqmodel"),
    ({"quant_method": "compressed-tensors"}, "compressed-tensors"),
])  # fmt: skip
def test_a_package_that_is_not_installed_is_named(method, package, tmp_path) -> None:
    if find_spec(package.replace("-", "_")) is not None:
        pytest.skip(f"{package} is installed")
    folder, _ = save(tmp_path / "model", method)
    with pytest.raises(
        LimbeckError, match=rf"{package}(.|\n)*fix: its weights are quantized .*install what reads"
    ):
        load_model(folder)


def test_an_adapter_of_quantized_weights_is_refused(tmp_path) -> None:
    folder, _ = save(tmp_path / "model", BITNET)
    in_bits(folder)
    (tmp_path / "adapter").mkdir()
    settings = {"peft_type": "LORA", "task_type": "SEQ_CLS", "base_model_name_or_path": str(folder)}
    (tmp_path / "adapter/adapter_config.json").write_text(json.dumps(settings | {"lora_alpha": 1}))
    save_file(
        {"base_model.model.score.weight": torch.zeros(2, 16)},
        tmp_path / "adapter/adapter_model.safetensors",
    )
    with pytest.raises(
        LimbeckError, match=r"its base .* are quantized\n    fix: name the base in float"
    ):
        load_model(tmp_path / "adapter")
