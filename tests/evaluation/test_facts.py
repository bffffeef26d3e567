"""Oracle: the configuration the model was made from."""

from __future__ import annotations

from transformers import BertConfig, BertForSequenceClassification

from limbeck.evaluation.measuring import count_parameters, flops_per_example, model_facts
from limbeck.records.facts import Latency


def test_facts_are_the_configs_and_the_measures():
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=30,
            hidden_size=16,
            num_hidden_layers=3,
            num_attention_heads=4,
            intermediate_size=20,
            max_position_embeddings=16,
        )
    )
    speed = Latency(median=1.0, spread=0.1)
    facts = model_facts(model, 8, latency_ms=speed)
    assert (facts.layers, facts.hidden_size, facts.heads) == (3, 16, 4)
    assert (facts.parameters, facts.embedding_parameters) == count_parameters(model)
    assert facts.flops_per_example == flops_per_example(model, 8)
    assert facts.latency_ms == speed
