"""Looking into trained models: layers, attention, noise, agreement, calibration.

Everything here is computed from checkpoints, predictions and records.
"""

from limbeck.evaluation.similarity_matrix import linear_cka, mean_cosine, similarity_of_layers
from limbeck.lab.measures.attended_tokens import layer_attention
from limbeck.lab.measures.layer_probing import probe_layers, state_points
from limbeck.lab.measures.loss_surface import (
    filter_normalised_direction,
    loss_plane,
    loss_surface,
    noise_tolerance,
    noisy_embeddings,
    weights_of,
)
from limbeck.lab.measures.row_agreement import agreement_of, reliability_curve, run_course

__all__ = [
    "agreement_of",
    "filter_normalised_direction",
    "layer_attention",
    "linear_cka",
    "loss_plane",
    "loss_surface",
    "mean_cosine",
    "noise_tolerance",
    "noisy_embeddings",
    "probe_layers",
    "reliability_curve",
    "run_course",
    "similarity_of_layers",
    "state_points",
    "weights_of",
]
