"""Tiny random models of every family, and what Hugging Face says of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import (
    AutoModelForImageClassification,
    AutoModelForSequenceClassification,
    BartConfig,
    BertConfig,
    DebertaV2Config,
    DistilBertConfig,
    ElectraConfig,
    LlamaConfig,
    ModernBertConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen3Config,
    RobertaConfig,
    T5Config,
    ViTConfig,
)

from limbeck.students import build_student
from limbeck.tasks import IMAGE, SENTENCE


@dataclass(frozen=True)
class Labels:
    labels: tuple[str, ...] = ("no", "yes")
    regression: bool = False


TASK = Labels()
SIZES = {
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "num_hidden_layers": 4,
    "vocab_size": 40,
    "pad_token_id": 0,
}
FAMILIES: dict[str, PretrainedConfig] = {
    "bert": BertConfig(**SIZES),
    "roberta": RobertaConfig(**SIZES),
    "distilbert": DistilBertConfig(dim=16, n_heads=2, hidden_dim=24, n_layers=4, vocab_size=40),
    "electra": ElectraConfig(**SIZES, embedding_size=8),
    "modernbert": ModernBertConfig(
        **SIZES, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2, local_attention=4
    ),
    "deberta-v2": DebertaV2Config(**SIZES, relative_attention=True, pos_att_type=["p2c", "c2p"]),
    "t5": T5Config(
        d_model=16,
        d_kv=8,
        d_ff=24,
        num_heads=2,
        num_layers=4,
        vocab_size=40,
        eos_token_id=1,
        decoder_start_token_id=0,
    ),
    "bart": BartConfig(
        d_model=16,
        vocab_size=40,
        encoder_layers=4,
        decoder_layers=4,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        eos_token_id=2,
        pad_token_id=1,
        max_position_embeddings=32,
        id2label={0: "no", 1: "yes"},
    ),
    "vit": ViTConfig(
        hidden_size=16,
        num_attention_heads=2,
        intermediate_size=24,
        num_hidden_layers=4,
        image_size=8,
        patch_size=4,
    ),
    "llama": LlamaConfig(**SIZES, num_key_value_heads=1),
    "qwen3": Qwen3Config(
        **SIZES,
        num_key_value_heads=1,
        head_dim=8,
        use_sliding_window=True,
        sliding_window=3,
        max_window_layers=2,
    ),
}


def auto_of(config: PretrainedConfig):
    vision = config.model_type == "vit"
    return AutoModelForImageClassification if vision else AutoModelForSequenceClassification


def student_of(teacher: PreTrainedModel, layers, pick: str = "first") -> PreTrainedModel:
    kind = IMAGE if teacher.config.model_type == "vit" else SENTENCE
    return build_student("teacher", teacher=teacher, layers=layers, pick=pick, task=TASK, kind=kind)


def random_model(config: PretrainedConfig, seed: int = 0) -> PreTrainedModel:
    torch.manual_seed(seed)
    config = type(config).from_dict(config.to_dict())  # models share the object they are given
    model = auto_of(config).from_config(config).eval()
    with torch.no_grad():  # norms and biases start equal in every layer: make layers tell apart
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    return model


def batch_for(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    if model.config.model_type == "vit":
        return {"pixel_values": torch.linspace(-1, 1, 2 * 3 * 64).view(2, 3, 8, 8)}
    ids = torch.tensor([[5, 9, 11, 7, 20, 31, 2], [8, 6, 30, 12, 2, 0, 0]])
    mask = torch.tensor([[1] * 7, [1] * 5 + [0] * 2])
    if model.config.model_type in ("t5", "bart"):  # these look for one final end token
        end = model.config.eos_token_id
        ids = torch.tensor([[5, 9, 11, 7, 20, 31, end], [8, 6, 30, 12, 15, 13, end]])
        mask = torch.ones_like(ids)
    return {"input_ids": ids, "attention_mask": mask}


def hidden_states(model: PreTrainedModel, stack: str = "main") -> tuple[torch.Tensor, ...]:
    with torch.no_grad():
        outputs = model(**batch_for(model), output_hidden_states=True)
    if stack == "main":
        return outputs.hidden_states
    return outputs[f"{stack}_hidden_states"]


def logits(model: PreTrainedModel) -> torch.Tensor:
    with torch.no_grad():
        return model(**batch_for(model)).logits
