"""Tiny random language models with a tokenizer that reads letters, as folders and as GGUF files."""

from __future__ import annotations

import string
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

# The alphabet writes space and newline as these; the others as they are.
PRINTED = {*string.printable.strip(), "Ġ", "Ċ"}
# Of ASCII alone, so that whatever a model says is whole characters.
BYTES = [letter for letter in sorted(pre_tokenizers.ByteLevel.alphabet()) if letter in PRINTED]
# " good", "Ġgo"+"od" and " bad" become words of their own; everything else is letters.
MERGES = [("o", "d"), ("g", "o"), ("go", "od"), ("Ġ", "good"), ("b", "a"), ("ba", "d"), ("Ġ", "bad")]  # fmt: skip
WORDS = ["<s>", "</s>", *BYTES, *(first + second for first, second in MERGES)]
CHAT = (
    "{% for message in messages %}<s>{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant:{% endif %}"
)
LENGTH = 512


def byte_tokenizer(*, chat: bool = False) -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.BPE({word: at for at, word in enumerate(WORDS)}, MERGES))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", pad_token="</s>"
    )
    if chat:
        tokenizer.chat_template = CHAT
    return tokenizer


SMALL = {
    "vocab_size": len(WORDS),
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": LENGTH,
    "initializer_range": 0.3,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 1,
}


def language_model(family: str) -> PreTrainedModel:
    """Random, and far from uniform; the caller's random state is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return _made(family).eval()


def _made(family: str) -> PreTrainedModel:
    if family == "llama":
        return LlamaForCausalLM(LlamaConfig(**SMALL, tie_word_embeddings=False))
    if family == "qwen3":  # two heads share keys and values
        grouped = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
        return Qwen3ForCausalLM(Qwen3Config(**{**SMALL, **grouped}))
    if family == "gpt2":
        return GPT2LMHeadModel(
            GPT2Config(vocab_size=len(WORDS), n_embd=32, n_layer=2, n_head=2, n_positions=LENGTH,
                       initializer_range=0.3, bos_token_id=0, eos_token_id=1)
        )  # fmt: skip
    if family == "mamba":
        return MambaForCausalLM(
            MambaConfig(vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=2, state_size=4,
                        initializer_range=0.3, bos_token_id=0, eos_token_id=1, pad_token_id=1)
        )  # fmt: skip
    if family == "bart":
        return BartForConditionalGeneration(
            BartConfig(vocab_size=len(WORDS), d_model=16, encoder_layers=2, decoder_layers=2,
                       encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=24,
                       decoder_ffn_dim=24, max_position_embeddings=LENGTH, init_std=0.3, bos_token_id=0,
                       eos_token_id=1, pad_token_id=1, decoder_start_token_id=1, forced_bos_token_id=0)
        )  # fmt: skip
    return T5ForConditionalGeneration(
        T5Config(vocab_size=len(WORDS), d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2,
                 initializer_factor=2.0, pad_token_id=1, eos_token_id=1, decoder_start_token_id=0)
    )  # fmt: skip


def save_language_model(folder: Path, family: str = "llama", *, chat: bool = True) -> Path:
    language_model(family).save_pretrained(folder)
    byte_tokenizer(chat=chat).save_pretrained(folder)
    return folder


def save_gguf(path: Path) -> Path:
    """The same Llama for llama.cpp, with the chat template."""
    import gguf

    model = language_model("llama")
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(LENGTH)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(len(WORDS))
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(WORDS)
    writer.add_token_merges([" ".join(pair) for pair in MERGES])
    special = [gguf.TokenType.CONTROL] * 2
    writer.add_token_types([*special, *[gguf.TokenType.NORMAL] * (len(WORDS) - 2)])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, weight in model.state_dict().items():
        values = weight.float().numpy()
        if "q_proj" in name or "k_proj" in name:
            values = _interleaved(values, config.num_attention_heads)
        writer.add_tensor(names.get_name(name, (".weight",)), np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rotary pairs side by side, as llama.cpp has them; transformers has them half a head apart."""
    rows, columns = weight.shape
    halves = weight.reshape(heads, 2, rows // heads // 2, columns)
    return halves.swapaxes(1, 2).reshape(rows, columns)
