"""Sentence embeddings: an encoder, its pooling and later modules, as one model of transformers.

The folders are sentence-transformers' own, so that limbeck's models load there, and in transformers as
the plain encoder, where limbeck is not installed.
"""

from limbeck.embedding.embedder import (
    SENTENCE_EMBEDDERS,
    SentenceEmbedder,
    SentenceEmbedders,
    embedding_width,
)
from limbeck.embedding.folder import EmbeddingModules, TextPrompts, modules_of

__all__ = [
    "SENTENCE_EMBEDDERS",
    "EmbeddingModules",
    "SentenceEmbedder",
    "SentenceEmbedders",
    "TextPrompts",
    "embedding_width",
    "modules_of",
]
