"""Measuring finished models: size, speed and the statistics of comparing their scores."""

from limbeck.evaluation.compare import (
    Comparison,
    holm,
    paired_permutation_test,
    paired_t_test,
    summary,
)
from limbeck.evaluation.measuring import (
    ParameterCount,
    Pixels,
    Size,
    count_parameters,
    flops_of,
    flops_of_pass,
    flops_per_example,
    latencies,
    latency,
    model_facts,
    random_inputs,
)

__all__ = [
    "Comparison",
    "ParameterCount",
    "Pixels",
    "Size",
    "count_parameters",
    "flops_of",
    "flops_of_pass",
    "flops_per_example",
    "holm",
    "latencies",
    "latency",
    "model_facts",
    "paired_permutation_test",
    "paired_t_test",
    "random_inputs",
    "summary",
]
