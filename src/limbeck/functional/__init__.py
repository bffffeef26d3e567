"""The vocabulary of every method: pure tensor functions, each a line of some paper.

The objectives call these functions, and nothing here calls
any other part of limbeck except its errors. Shapes are in the signatures (jaxtyping). Limbeck itself never
checks them at run time, so they cost nothing; its tests do, and so can you:
`jaxtyping.install_import_hook("limbeck.functional", "beartype.beartype")` before the first import.

The same everywhere: the student, the one that is trained, comes first; the result of a loss is a
scalar of at least float32, also under autocast; a mean over tokens or query rows is taken per
example first, then over the batch; masked values change neither value nor gradient,
whatever they are; an example without a valid position contributes 0 and still counts as an
example of the batch.
"""

from limbeck.functional.alignment import (
    aligned_attention,
    aligned_scores,
    aligned_states,
    character_overlap,
)
from limbeck.functional.attention import (
    attention_cross_entropy,
    attention_kl,
    attention_mse,
    relation_kl,
    relation_mse,
    relation_scores,
    relations,
)
from limbeck.functional.candidate_lists import (
    listwise_cross_entropy,
    listwise_kl,
    margin_mse,
    ranked_pairs,
)
from limbeck.functional.confidence import (
    class_means,
    class_thresholds,
    normalized_entropy,
    rank_distribution,
    sure_and_unsure,
    top_probability,
)
from limbeck.functional.context import (
    layer_relation_kl,
    layer_relation_mse,
    word_relation_kl,
    word_relation_mse,
)
from limbeck.functional.embeddings import (
    cosine_matrix,
    embedding_cosine,
    embedding_mse,
    info_nce,
    moved_unit,
    pair_contrast,
    query_similarities,
    similarity_kl,
    similarity_mse,
)
from limbeck.functional.hidden import cosine_distance, hidden_mse, mse, normalized_mse, pool
from limbeck.functional.labelled_positions import (
    span_cross_entropy,
    span_soft_cross_entropy,
    span_soft_kl,
    token_cross_entropy,
    token_jsd,
    token_skewed_kl,
    token_soft_cross_entropy,
    token_soft_kl,
)
from limbeck.functional.labels import (
    balanced_positive_weights,
    balanced_weights,
    binary_cross_entropy,
    binary_kl,
    binary_soft_cross_entropy,
    error_weighted_cross_entropy,
    error_weighted_mse,
    focal_factor,
    hard_cross_entropy,
    hard_mse,
    pseudo_label,
    soft_cross_entropy,
    soft_kl,
)
from limbeck.functional.layers import (
    attention_weights,
    cheaper_layers_weigh_more,
    sparse_attention_weights,
    transport_flow,
)
from limbeck.functional.logits import dist, dkd, standardize
from limbeck.functional.partial_logits import (
    sample_tokens,
    sampled_cross_entropy,
    top_tokens,
    topk_kl,
)
from limbeck.functional.reductions import mix, weighted_mean

__all__ = [
    "aligned_attention",
    "aligned_scores",
    "aligned_states",
    "attention_cross_entropy",
    "attention_kl",
    "attention_mse",
    "attention_weights",
    "balanced_positive_weights",
    "balanced_weights",
    "binary_cross_entropy",
    "binary_kl",
    "binary_soft_cross_entropy",
    "character_overlap",
    "cheaper_layers_weigh_more",
    "class_means",
    "class_thresholds",
    "cosine_distance",
    "cosine_matrix",
    "dist",
    "dkd",
    "embedding_cosine",
    "embedding_mse",
    "error_weighted_cross_entropy",
    "error_weighted_mse",
    "focal_factor",
    "hard_cross_entropy",
    "hard_mse",
    "hidden_mse",
    "info_nce",
    "layer_relation_kl",
    "layer_relation_mse",
    "listwise_cross_entropy",
    "listwise_kl",
    "margin_mse",
    "mix",
    "moved_unit",
    "mse",
    "normalized_entropy",
    "normalized_mse",
    "pair_contrast",
    "pool",
    "pseudo_label",
    "query_similarities",
    "rank_distribution",
    "ranked_pairs",
    "relation_kl",
    "relation_mse",
    "relation_scores",
    "relations",
    "sample_tokens",
    "sampled_cross_entropy",
    "similarity_kl",
    "similarity_mse",
    "soft_cross_entropy",
    "soft_kl",
    "span_cross_entropy",
    "span_soft_cross_entropy",
    "span_soft_kl",
    "sparse_attention_weights",
    "standardize",
    "sure_and_unsure",
    "token_cross_entropy",
    "token_jsd",
    "token_skewed_kl",
    "token_soft_cross_entropy",
    "token_soft_kl",
    "top_probability",
    "top_tokens",
    "topk_kl",
    "transport_flow",
    "weighted_mean",
    "word_relation_kl",
    "word_relation_mse",
]
