"""Augmented examples, training rows with some words replaced: TinyBERT's data augmentation.

Rows are augmented after they are loaded and before they are tokenised. Jiao et al. 2020, Algorithm 1; SKDBERT §5.4 uses
it as `+da`. A masked language model proposes words for those of one token, the nearest word vectors for the others, or
for all where no such model is at hand; which words change is sampled for every augmented example.
"""

from limbeck.augmentation.augmentation_spec import FROM_TEACHER, AugmentSpec
from limbeck.augmentation.augmented_examples import augmented_examples_of
from limbeck.augmentation.augmented_rows import (
    Augmenter,
    build_augmented_examples,
    read_augmented_examples,
    with_augmented_examples,
)

__all__ = [
    "FROM_TEACHER",
    "AugmentSpec",
    "Augmenter",
    "augmented_examples_of",
    "build_augmented_examples",
    "read_augmented_examples",
    "with_augmented_examples",
]
