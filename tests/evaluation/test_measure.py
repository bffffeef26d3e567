"""Oracles: products written out by hand from a model's shapes, and a clock with known ticks."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    BartConfig,
    BertConfig,
    GPT2Config,
    LlamaConfig,
    ModernBertConfig,
    RobertaConfig,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
)

from limbeck.evaluation.measuring import (
    count_parameters,
    flops_per_example,
    latencies,
    random_inputs,
)
from limbeck.support.errors import LimbeckError

WORDS, WIDTH, INNER, LAYERS, POSITIONS = 100, 16, 32, 2, 40


def tiny_bert(attention: str = "sdpa", layers: int = LAYERS):
    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=WIDTH,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=INNER,
        max_position_embeddings=POSITIONS,
        num_labels=2,
        attn_implementation=attention,
    )
    return AutoModelForSequenceClassification.from_config(config)


def test_parameters_of_bert_by_hand():
    embedding = 100 * 16 + 40 * 16 + 2 * 16  # words, positions, two token types
    norm = 2 * 16
    layer = 4 * (16 * 16 + 16) + (16 * 32 + 32) + (32 * 16 + 16) + 2 * norm
    pooler, head = 16 * 16 + 16, 16 * 2 + 2
    total, tables = count_parameters(tiny_bert())
    assert tables == embedding == 2272
    assert total == embedding + norm + 2 * layer + pooler + head == 7058


def test_tied_words_count_once():
    config = GPT2Config(vocab_size=50, n_embd=8, n_layer=1, n_head=2, n_positions=10)
    from transformers import GPT2LMHeadModel

    model = GPT2LMHeadModel(config)
    total, tables = count_parameters(model)
    assert model.lm_head.weight is model.transformer.wte.weight
    assert tables == 50 * 8 + 10 * 8
    assert total == sum({id(p): p.numel() for p in model.parameters()}.values())


def bert_flops(tokens: int, layers: int = LAYERS) -> int:
    projections = 4 * tokens * WIDTH * WIDTH
    feed_forward = 2 * tokens * WIDTH * INNER
    attention = 2 * tokens * tokens * WIDTH  # scores, then the weighted values
    pooler, head = WIDTH * WIDTH, WIDTH * 2
    return 2 * (layers * (projections + feed_forward + attention) + pooler + head)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("tokens", [8, 24])
def test_flops_of_bert_by_hand_with_attention_in(attention, tokens):
    # 8 tokens: 2·(2·(8192 + 8192 + 2048) + 256 + 32) = 74,304
    assert bert_flops(8) == 74_304
    assert flops_per_example(tiny_bert(attention), tokens) == bert_flops(tokens)


def test_flops_leave_the_model_as_it_was():
    model = tiny_bert()
    model.train()
    model.bert.pooler.eval()
    torch.manual_seed(3)
    before = torch.get_rng_state()
    flops_per_example(model, 8)
    assert torch.equal(before, torch.get_rng_state())
    assert model.training
    assert model.bert.encoder.training
    assert not model.bert.pooler.training
    assert all(weight.grad is None for weight in model.parameters())


SMALL = {"vocab_size": 60, "num_labels": 3}
OTHERS = {
    "roberta": RobertaConfig(
        **SMALL,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
    ),
    "modernbert": ModernBertConfig(
        **SMALL,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        cls_token_id=1,
        sep_token_id=2,
    ),
    "gpt2": GPT2Config(
        **SMALL, n_embd=16, n_layer=2, n_head=2, pad_token_id=0, eos_token_id=1, bos_token_id=1
    ),
    "llama": LlamaConfig(
        **SMALL,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=32,
        pad_token_id=0,
    ),
    "bart": BartConfig(
        **SMALL,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        max_position_embeddings=32,
    ),
    "t5": T5Config(
        **SMALL,
        d_model=16,
        d_kv=8,
        d_ff=16,
        num_layers=1,
        num_heads=2,
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
    ),
}


@pytest.mark.parametrize("family", OTHERS)
def test_any_text_classifier_can_be_measured_from_its_config(family):
    model = AutoModelForSequenceClassification.from_config(OTHERS[family])
    short, long = flops_per_example(model, 6), flops_per_example(model, 12)
    # Twice the tokens is at least twice the work of everything but the head.
    assert 0 < 1.5 * short < long
    assert latencies({"model": model}, 6, 2, repeats=2, warm_up=0)["model"].median > 0


def test_generating_and_vision_models():
    text = T5ForConditionalGeneration(OTHERS["t5"])
    assert flops_per_example(text, 6) > 0
    vision = ViTForImageClassification(
        ViTConfig(
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            image_size=8,
            patch_size=4,
            num_labels=2,
        )
    )
    patches = 4 * (3 * 4 * 4) * 16  # a convolution: four patches of 3·4·4 values to width 16
    tokens = 5
    layer = 4 * tokens * 16 * 16 + 2 * tokens * 16 * 32 + 2 * tokens * tokens * 16
    assert flops_per_example(vision, 0) == 2 * (patches + layer + 16 * 2)


def test_inputs_keep_special_ids_out_and_end_where_the_config_says():
    model = AutoModelForSequenceClassification.from_config(OTHERS["t5"])
    ids = random_inputs(model, 50, batch_size=4)["input_ids"]
    assert ids.shape == (4, 50)
    assert (ids[:, -1] == 1).all()
    assert not (ids[:, :-1] <= 1).any()
    assert ids.max() < 60


def test_more_tokens_than_positions_is_a_clear_error():
    with pytest.raises(LimbeckError, match="cannot read 41 tokens"):
        flops_per_example(tiny_bert(), 41)


class Ticks:
    """A clock whose n-th measured span lasts as many seconds as its list says."""

    def __init__(self, spans):
        self.spans = iter(spans)
        self.now = 0.0
        self.running = False

    def __call__(self) -> float:
        if self.running:
            self.now += next(self.spans)
        self.running = not self.running
        return self.now


def test_latency_is_median_and_quartile_distance_in_milliseconds():
    clock = Ticks([9.0, 0.001, 0.002, 0.003, 0.004, 0.5])  # the first is warm-up
    models = {"model": tiny_bert()}
    measured = latencies(models, 4, 2, repeats=5, warm_up=1, clock=clock)["model"]
    assert measured.median == pytest.approx(3.0)
    assert measured.spread == pytest.approx(2.0)  # quartiles 2 and 4; the outlier does not count
    assert (measured.batch_size, measured.tokens, measured.repeats) == (2, 4, 5)


def test_models_take_turns_and_each_starts_a_round():
    # Rounds: (a, b), (b, a), (a, b): spans in that order.
    clock = Ticks([0.001, 0.010, 0.020, 0.002, 0.003, 0.030])
    models = {"a": tiny_bert(), "b": tiny_bert()}
    measured = latencies(models, 4, repeats=3, warm_up=0, clock=clock)
    assert measured["a"].median == pytest.approx(2.0)
    assert measured["b"].median == pytest.approx(20.0)
