"""Tiny random models of every family, with a batch that is padded: what the capture tests run on.

Hugging Face is the oracle throughout: its own `output_hidden_states`, and `output_attentions` of a
second model with the same weights and eager attention.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers as hf

VOCABULARY, EXAMPLES, TOKENS = 40, 3, 9
WIDTH, HEADS, DEPTH = 16, 2, 3
PAD, EOS = 1, 2


@dataclass(frozen=True)
class Family:
    """How to build one tiny model, and what may be asked of it."""

    name: str
    head: type
    config: Callable[[], Any]
    maps: bool = True  # attention goes through transformers' interface
    image: bool = False
    encoder_decoder: bool = False
    causal: bool = False

    @property
    def has_head(self) -> bool:
        """Whether the model gives logits."""
        return "For" in self.head.__name__

    def build(self, attention: str = "sdpa", seed: int = 0) -> Any:
        """The model in eval mode; the same weights for the same seed."""
        torch.manual_seed(seed)
        implementation = attention if self.maps else "eager"
        model = self.head._from_config(self.config(), attn_implementation=implementation)
        return model.eval()

    def eager(self, model: Any) -> Any:
        """The same weights with eager attention: the oracle for attention maps."""
        twin = self.head._from_config(
            copy.deepcopy(model.config), attn_implementation="eager"
        ).eval()
        twin.load_state_dict(model.state_dict())
        return twin

    def batch(self, extra: int = 0) -> dict[str, torch.Tensor]:
        """Examples of 9, 6 and 4 tokens, right-padded to 9 + `extra`; images for vision models."""
        generator = torch.Generator().manual_seed(7)
        if self.image:
            return {"pixel_values": torch.randn(EXAMPLES, 3, 12, 12, generator=generator)}
        tokens = torch.randint(5, VOCABULARY, (EXAMPLES, TOKENS), generator=generator)
        mask = torch.zeros(EXAMPLES, TOKENS, dtype=torch.long)
        for row, length in enumerate((TOKENS, 6, 4)):
            mask[row, :length] = 1
            tokens[row, length - 1] = EOS
            tokens[row, length:] = PAD
        if extra:
            tokens = torch.nn.functional.pad(tokens, (0, extra), value=PAD)
            mask = torch.nn.functional.pad(mask, (0, extra))
        batch = {"input_ids": tokens, "attention_mask": mask}
        if self.head is hf.T5ForConditionalGeneration:
            batch["decoder_input_ids"] = tokens[:, :5].clone()
        return batch


def _usual(config: type, **settings: Any) -> Callable[[], Any]:
    def build() -> Any:
        common = {
            "vocab_size": VOCABULARY,
            "hidden_size": WIDTH,
            "num_hidden_layers": DEPTH,
            "num_attention_heads": HEADS,
            "intermediate_size": 24,
            "max_position_embeddings": 40,
            "pad_token_id": PAD,
            "bos_token_id": 0,
            "eos_token_id": EOS,
            "num_labels": 3,
        }
        return config(**{**common, **settings})

    return build


def _t5(**settings: Any) -> Callable[[], Any]:
    return _usual(
        hf.T5Config,
        d_model=WIDTH,
        d_kv=8,
        d_ff=24,
        num_layers=DEPTH,
        num_decoder_layers=2,
        num_heads=HEADS,
        decoder_start_token_id=PAD,
        relative_attention_num_buckets=8,
        **settings,
    )


def _bart() -> Any:
    return hf.BartConfig(
        vocab_size=VOCABULARY,
        d_model=WIDTH,
        encoder_layers=DEPTH,
        decoder_layers=2,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=4,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        max_position_embeddings=40,
        pad_token_id=PAD,
        bos_token_id=0,
        eos_token_id=EOS,
        decoder_start_token_id=EOS,
        num_labels=3,
    )


_modernbert = _usual(
    hf.ModernBertConfig,
    local_attention=6,
    global_attn_every_n_layers=2,
    cls_token_id=0,
    sep_token_id=EOS,
)
_deberta = _usual(
    hf.DebertaV2Config, relative_attention=True, pos_att_type=["p2c", "c2p"], conv_kernel_size=3
)
_distilbert = _usual(hf.DistilBertConfig, dim=WIDTH, n_layers=DEPTH, n_heads=HEADS, hidden_dim=24)
_albert = _usual(hf.AlbertConfig, embedding_size=8)
_llama = _usual(hf.LlamaConfig, num_attention_heads=4, num_key_value_heads=2)
_qwen = _usual(hf.Qwen3Config, num_attention_heads=4, num_key_value_heads=2, head_dim=8)
_gpt2 = _usual(hf.GPT2Config, n_embd=WIDTH, n_layer=DEPTH, n_head=HEADS)
_vit = _usual(hf.ViTConfig, image_size=12, patch_size=4)

FAMILIES = (
    Family("bert", hf.BertForSequenceClassification, _usual(hf.BertConfig)),
    Family("bert-bare", hf.BertModel, _usual(hf.BertConfig)),
    Family("roberta", hf.RobertaForSequenceClassification, _usual(hf.RobertaConfig)),
    Family("xlm-roberta", hf.XLMRobertaForSequenceClassification, _usual(hf.XLMRobertaConfig)),
    Family("distilbert", hf.DistilBertForSequenceClassification, _distilbert),
    Family(
        "electra",
        hf.ElectraForSequenceClassification,
        _usual(hf.ElectraConfig, embedding_size=8),
    ),
    Family("albert", hf.AlbertForSequenceClassification, _albert),
    Family("modernbert", hf.ModernBertForSequenceClassification, _modernbert),
    Family("deberta-v2", hf.DebertaV2ForSequenceClassification, _deberta, maps=False),
    Family("mpnet", hf.MPNetForSequenceClassification, _usual(hf.MPNetConfig), maps=False),
    Family("t5", hf.T5ForSequenceClassification, _t5(), encoder_decoder=True),
    Family("t5-generation", hf.T5ForConditionalGeneration, _t5(), encoder_decoder=True),
    Family("t5-encoder", hf.T5EncoderModel, _t5()),
    Family("bart", hf.BartForSequenceClassification, _bart, encoder_decoder=True),
    Family("vit", hf.ViTForImageClassification, _vit, image=True),
    Family("llama", hf.LlamaForSequenceClassification, _llama, causal=True),
    Family("qwen3", hf.Qwen3ForSequenceClassification, _qwen, causal=True),
    Family("gpt2", hf.GPT2ForSequenceClassification, _gpt2, causal=True),
    Family("gpt2-bare", hf.GPT2Model, _gpt2, causal=True),
)
BY_NAME = {family.name: family for family in FAMILIES}
