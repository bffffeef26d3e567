"""Looking into trained models: layers, attention, noise, agreement, calibration.

Everything here is computed from checkpoints, predictions and records.
"""

from limbeck.evaluation.model_outputs import pooled_states
from limbeck.evaluation.similarity_matrix import (
    LayerSimilarity,
    linear_cka,
    mean_cosine,
    similarity_of_layers,
)
from limbeck.lab.measures.attended_tokens import AttentionMaps, attention_maps
from limbeck.lab.measures.attention_by_layer import LayerAttention, layer_attention
from limbeck.lab.measures.calibration_curves import ReliabilityCurve, reliability_curve
from limbeck.lab.measures.input_noise import NoiseTolerance, noise_tolerance, noisy_embeddings
from limbeck.lab.measures.layer_probing import ProbedLayers, probe_layers
from limbeck.lab.measures.loss_surface import (
    Corner,
    LossSurface,
    filter_normalised_direction,
    loss_plane,
    loss_surface,
    weights_of,
)
from limbeck.lab.measures.principal_components import StatePoints, state_points
from limbeck.lab.measures.row_agreement import RowAgreement, agreement_of
from limbeck.lab.measures.run_course import RunCourse, run_course

__all__ = [
    "AttentionMaps",
    "Corner",
    "LayerAttention",
    "LayerSimilarity",
    "LossSurface",
    "NoiseTolerance",
    "ProbedLayers",
    "ReliabilityCurve",
    "RowAgreement",
    "RunCourse",
    "StatePoints",
    "agreement_of",
    "attention_maps",
    "filter_normalised_direction",
    "layer_attention",
    "linear_cka",
    "loss_plane",
    "loss_surface",
    "mean_cosine",
    "noise_tolerance",
    "noisy_embeddings",
    "pooled_states",
    "probe_layers",
    "reliability_curve",
    "run_course",
    "similarity_of_layers",
    "state_points",
    "weights_of",
]
