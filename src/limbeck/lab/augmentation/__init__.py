"""Copies of training rows with other words in them: TinyBERT's data augmentation.

On the way of a training step: after the rows are loaded, before they are tokenised. Jiao et al.
2020, Algorithm 1; SKDBERT §5.4 uses it as `+da`. A masked language model proposes words for those of
one piece, the nearest word vectors for the others; which words change is drawn for every copy.
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
