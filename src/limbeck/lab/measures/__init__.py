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
from limbeck.lab.measures.attended_tokens import (
    AttentionMaps,
    LayerAttention,
    attention_maps,
    layer_attention,
)
from limbeck.lab.measures.layer_probing import ProbedLayers, StatePoints, probe_layers, state_points
from limbeck.lab.measures.loss_surface import (
    Corner,
    LossSurface,
    NoiseTolerance,
    filter_normalised_direction,
    loss_plane,
    loss_surface,
    noise_tolerance,
    noisy_embeddings,
    weights_of,
)
from limbeck.lab.measures.row_agreement import (
    ReliabilityCurve,
    RowAgreement,
    RunCourse,
    agreement_of,
    reliability_curve,
    run_course,
)

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
