"""Looking into trained models: which layers of student and teacher represent alike.

Reads checkpoints only, after training on the way of a training step.
"""

from limbeck.analysis.similarity import Measure, layer_similarity, linear_cka, mean_cosine

__all__ = ["Measure", "layer_similarity", "linear_cka", "mean_cosine"]
