"""Copies of training rows with other words in them: TinyBERT's data augmentation.

Rows are augmented after they are loaded and before they are tokenised. Jiao et al.
2020, Algorithm 1; SKDBERT §5.4 uses it as `+da`. A masked language model proposes words for those of
one token, the nearest word vectors for the others; which words change is sampled for every augmented example.
"""

from limbeck.lab.augmentation.augmentation_spec import AugmentSpec
from limbeck.lab.augmentation.augmented_examples import copies_of
from limbeck.lab.augmentation.augmented_rows import (
    Augmenter,
    build_copies,
    read_copies,
    with_copies,
)

__all__ = ["AugmentSpec", "Augmenter", "build_copies", "copies_of", "read_copies", "with_copies"]
