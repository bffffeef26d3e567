"""LoRA adapters: a merged model has the logits of the unmerged sums y + s·B(A·x); other adapters are refused."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as hf
from safetensors.torch import save_file
from torch import nn

import limbeck
import tiny_runs as tiny
from limbeck.latency import worker
from limbeck.latency.contenders import contenders
from limbeck.students import load_model, read_config, read_tokenizer
from limbeck.support.errors import LimbeckError

SIZES = {
    "vocab_size": 14, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
    "max_position_embeddings": 64, "initializer_range": 0.4, "pad_token_id": 0,
}  # fmt: skip
BASES = {
    "bert": lambda: hf.BertModel(hf.BertConfig(**SIZES)),
    "roberta": lambda: hf.RobertaForMaskedLM(hf.RobertaConfig(**SIZES)),
    "qwen3": lambda: hf.Qwen3ForCausalLM(hf.Qwen3Config(**SIZES, head_dim=8, num_key_value_heads=1)),
    "gpt2": lambda: hf.GPT2LMHeadModel(
        hf.GPT2Config(vocab_size=14, n_embd=16, n_layer=2, n_head=2, n_positions=64, initializer_range=0.4)
    ),
}  # fmt: skip
# Layers that are adapted and heads that are trained whole: square weights and others.
LAYERS = {
    "bert": ("bert.encoder.layer.0.attention.self.query", "bert.encoder.layer.1.intermediate.dense"),
    "roberta": ("roberta.encoder.layer.1.attention.self.value", "roberta.embeddings.word_embeddings"),
    "qwen3": ("model.layers.0.self_attn.k_proj", "model.layers.1.mlp.down_proj"),
    "gpt2": ("transformer.h.0.attn.c_attn", "transformer.h.1.attn.c_proj", "transformer.wte"),
}  # fmt: skip
HEADS = {"bert": "classifier", "roberta": "classifier", "qwen3": "score", "gpt2": "score"}
TEXTS = [*dict.fromkeys(tiny.sentences(8))]


def save_base(family: str, folder: Path) -> str:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        BASES[family]().save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return str(folder)


def classifier(base: str, classes: int = 3) -> hf.PreTrainedModel:
    """The base with a random head, as a user would begin to train it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = hf.AutoModelForSequenceClassification.from_pretrained(base, num_labels=classes)
    model.config.pad_token_id = 0
    return model.eval()


def write_adapter(folder: Path, base: str, family: str, **settings) -> dict[str, torch.Tensor]:
    """A folder as PEFT's "checkpoint format" describes it; its tensors by their names in the model."""
    draw = torch.Generator().manual_seed(2)
    model, tensors = classifier(base), {}
    for name in LAYERS[family]:
        module = model.get_submodule(name)
        if isinstance(module, nn.Embedding):
            tensors[f"{name}.lora_embedding_A"] = torch.randn(4, 14, generator=draw)
            tensors[f"{name}.lora_embedding_B"] = torch.randn(16, 4, generator=draw)
            continue
        into, out = (
            (module.nx, module.nf)
            if family == "gpt2"
            else (module.in_features, module.out_features)
        )
        tensors[f"{name}.lora_A.weight"] = torch.randn(4, into, generator=draw)
        tensors[f"{name}.lora_B.weight"] = torch.randn(out, 4, generator=draw)
    for name, weight in model.get_submodule(HEADS[family]).state_dict().items():
        tensors[f"{HEADS[family]}.{name}"] = torch.randn(weight.shape, generator=draw)
    folder.mkdir(exist_ok=True)
    save_file(
        {f"base_model.model.{key}": v for key, v in tensors.items()},
        folder / "adapter_model.safetensors",
    )
    content = {"peft_type": "LORA", "task_type": "SEQ_CLS", "base_model_name_or_path": base, "r": 4, "lora_alpha": 6,
               "use_dora": False, "init_lora_weights": True, "bias": "none", "target_modules": [*LAYERS[family]],
               "modules_to_save": ["classifier", "score"], "fan_in_fan_out": False, "revision": None}  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(content | settings))
    return tensors


def add(tensors, name: str, scale: float, _: nn.Module, given, out: torch.Tensor) -> torch.Tensor:
    if f"{name}.lora_A.weight" in tensors:
        first, second = (tensors[f"{name}.lora_{part}.weight"] for part in "AB")
        return out + scale * ((given[0] @ first.T) @ second.T)
    first, second = (tensors[f"{name}.lora_embedding_{part}"] for part in "AB")
    rows = [second @ first[:, token] for token in given[0].flatten()]
    return out + scale * torch.stack(rows).view(out.shape)


def unmerged(
    base: str, family: str, tensors: dict[str, torch.Tensor], scales: list[float]
) -> np.ndarray:
    """Logits of each text alone, the adapter's part added to the outputs of its layers."""
    model = classifier(base)
    model.get_submodule(HEADS[family]).load_state_dict(
        {key.removeprefix(HEADS[family] + "."): v for key, v in tensors.items() if key.startswith(HEADS[family])}
    )  # fmt: skip
    for name, scale in zip(LAYERS[family], scales, strict=True):
        model.get_submodule(name).register_forward_hook(partial(add, tensors, name, scale))
    return logits_of(model)


def logits_of(model: nn.Module) -> np.ndarray:
    words = tiny.tokenizer()
    with torch.no_grad():
        rows = [
            model(**words(text, return_tensors="pt", return_token_type_ids=False)).logits[0]
            for text in TEXTS
        ]
    return torch.stack(rows).numpy()


@pytest.mark.parametrize("family", [*BASES])
def test_a_merged_adapter_is_the_unmerged_one(family, tmp_path) -> None:
    base = save_base(family, tmp_path / "base")
    tensors = write_adapter(tmp_path / "adapter", base, family)
    model = load_model(tmp_path / "adapter", head="required")
    wanted = unmerged(base, family, tensors, [6 / 4] * len(LAYERS[family]))
    np.testing.assert_allclose(logits_of(model), wanted, atol=2e-5, rtol=1e-5)
    assert model.config.id2label == {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"}
    assert type(model).__name__ == read_config(tmp_path / "adapter").architectures[0]
    assert read_tokenizer(tmp_path / "adapter").get_vocab() == tiny.tokenizer().get_vocab()


def test_alpha_of_a_layer_and_rank_stabilised_scales(tmp_path) -> None:
    base = save_base("bert", tmp_path / "base")
    own = {"use_rslora": True, "alpha_pattern": {"self.query": 10}}
    tensors = write_adapter(tmp_path / "adapter", base, "bert", **own)
    # α/√r with r = 4.
    wanted = unmerged(base, "bert", tensors, [5.0, 3.0])
    np.testing.assert_allclose(
        logits_of(load_model(tmp_path / "adapter")), wanted, atol=2e-5, rtol=1e-5
    )


def test_a_configuration_beside_the_adapter_names_its_classes(tmp_path) -> None:
    base = save_base("bert", tmp_path / "base")
    write_adapter(tmp_path / "adapter", base, "bert", task_type=None,
                  auto_mapping={"base_model_class": "BertForSequenceClassification"})  # fmt: skip
    assert load_model(tmp_path / "adapter").config.num_labels == 3
    names = {0: "bad", 1: "so", 2: "good"}
    hf.BertConfig(**SIZES, id2label=names).save_pretrained(tmp_path / "adapter")
    assert load_model(tmp_path / "adapter", head="required").config.id2label == names


def test_an_adapter_teaches_labels_and_predicts_as_the_merged_model(tmp_path) -> None:
    base = save_base("qwen3", tmp_path / "base")
    tensors = write_adapter(tmp_path / "adapter", base, "qwen3")
    wanted = dict(zip(TEXTS, unmerged(base, "qwen3", tensors, [1.5, 1.5]), strict=True))
    rows = [{"review": text} for text in TEXTS]
    store = limbeck.label(
        str(tmp_path / "adapter"), rows, out=tmp_path / "store", text_columns=["review"]
    )
    assert store.classes == ("LABEL_0", "LABEL_1", "LABEL_2")
    for row in limbeck.predict(tmp_path / "adapter", TEXTS, output="logits"):
        np.testing.assert_allclose([*row["logits"].values()], wanted[row["text"]], atol=1e-4)
    data = tmp_path / "rows.csv"
    data.write_text("review,verdict\n" + "".join(f"{text} {word},{n % 3}\n" for text in TEXTS
                                                 for n, word in enumerate(tiny.WORDS)))  # fmt: skip
    shared = {"data": str(data), "text_columns": ["review"], "label_column": "verdict"}
    scores = limbeck.evaluate(tmp_path / "adapter", **shared)
    assert 0 <= scores["accuracy"] <= 100
    run = limbeck.distill("kd", teacher=str(tmp_path / "adapter"), student="bert-1-16-2:random", epochs=1,
                          **{"student.tokenizer": base}, out=str(tmp_path / "run"), **shared)  # fmt: skip
    assert run.record.teacher is not None


def test_an_adapter_is_timed_with_its_base(tmp_path) -> None:
    base, folder = save_base("bert", tmp_path / "base"), tmp_path / "adapter"
    tensors = write_adapter(folder, base, "bert")
    wanted = unmerged(base, "bert", tensors, [1.5, 1.5])
    (found,) = contenders([str(folder)])
    files = [tmp_path / "base/model.safetensors", folder / "adapter_model.safetensors"]
    assert found.bytes == sum(file.stat().st_size for file in files)
    timed = worker._torch(found.path, 1)()
    feed = tiny.tokenizer()(TEXTS[0], return_tensors="np", return_token_type_ids=False)
    np.testing.assert_allclose(timed(dict(feed)).logits[0], wanted[0], atol=2e-5)


@pytest.mark.slow
def test_an_adapter_is_exported(tmp_path) -> None:
    base, folder = save_base("bert", tmp_path / "base"), tmp_path / "adapter"
    tensors = write_adapter(folder, base, "bert")
    wanted = unmerged(base, "bert", tensors, [1.5, 1.5])
    data = tmp_path / "rows.csv"
    data.write_text(
        "review,verdict\n" + "".join(f"{text},{n % 3}\n" for n, text in enumerate(TEXTS))
    )
    made = limbeck.export(
        folder,
        data=str(data),
        text_columns=["review"],
        label_column="verdict",
        out=tmp_path / "onnx",
        format="onnx",
    )
    rows = limbeck.predict(made.path, TEXTS, output="logits")
    np.testing.assert_allclose([[*row["logits"].values()] for row in rows], wanted, atol=1e-3)


def change(folder: Path, **settings) -> None:
    place = folder / "adapter_config.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | settings))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"use_dora": True}, r"not plain LoRA: use_dora=True\n    fix: merge it"),
        ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights=pissa_niter_4"),
        ({"peft_type": "IA3"}, "peft_type=IA3"),
        ({"revision": "4f1c"}, "revision=4f1c"),
        ({"of_a_later_release": {"group": 2}}, "of_a_later_release"),
        ({"base_model_name_or_path": "/no/such"}, r"its base model '/no/such': no such folder\n    fix: correct base_"),
        ({"base_model_name_or_path": None}, "names no base_model_name_or_path"),
    ],
)  # fmt: skip
def test_other_adapters_are_refused(settings, said, tmp_path) -> None:
    base = save_base("bert", tmp_path / "base")
    write_adapter(tmp_path / "adapter", base, "bert", **settings)
    with pytest.raises(LimbeckError, match=said):
        load_model(tmp_path / "adapter")


def test_weights_without_a_place_and_pickled_ones_are_refused(tmp_path) -> None:
    base, folder = save_base("bert", tmp_path / "base"), tmp_path / "adapter"
    write_adapter(folder, base, "bert")
    deep = {"base_model.model.bert.encoder.layer.7.output.dense.bias": torch.zeros(16)}
    save_file(deep, folder / "adapter_model.safetensors")
    with pytest.raises(
        LimbeckError, match=r"layer\.7.output.dense.bias .* has no place in BertFor"
    ):
        load_model(folder)
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    with pytest.raises(LimbeckError, match=r"adapter_model\.bin, are never loaded"):
        load_model(folder)


def test_tied_embeddings_are_refused_and_a_head_that_is_not_there_is_missed(tmp_path) -> None:
    base, folder = save_base("gpt2", tmp_path / "base"), tmp_path / "adapter"
    tensors = write_adapter(folder, base, "gpt2", task_type="CAUSAL_LM")
    kept = {
        f"base_model.model.{key}": value for key, value in tensors.items() if "score" not in key
    }
    save_file(kept, folder / "adapter_model.safetensors")
    with pytest.raises(
        LimbeckError, match=r"transformer\.wte\.weight is a weight that GPT2LM.* uses twice"
    ):
        load_model(folder, auto=hf.AutoModelForCausalLM)
    change(folder, task_type="SEQ_CLS")
    with pytest.raises(LimbeckError, match="no trained classification head"):
        load_model(folder, head="required")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", [*BASES])
def test_peft_computes_the_same(family, tmp_path) -> None:
    peft = pytest.importorskip("peft")
    base = save_base(family, tmp_path / "base")
    given = peft.LoraConfig(task_type="SEQ_CLS", r=4, lora_alpha=6, use_rslora=True, init_lora_weights=False,
                            rank_pattern={"0": 2}, target_modules=[*LAYERS[family]])  # fmt: skip
    model = peft.get_peft_model(classifier(base), given).eval()
    model.save_pretrained(tmp_path / "adapter")
    found = load_model(tmp_path / "adapter", head="required")
    np.testing.assert_allclose(logits_of(found), logits_of(model), atol=2e-5, rtol=1e-5)
