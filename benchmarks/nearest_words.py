"""Augmented examples of rows without labels, their words replaced by those of the nearest vectors.

MiniLM comes without the head of a masked language model that could propose words: `augment.replace_by=nearest` does
without one (`docs/augmentation.md`). Here the examples become rows of their own, which no student sees with a label.
"""

from __future__ import annotations

from datasets import Dataset
from transformers import AutoModel, AutoTokenizer

from limbeck.lab.augmentation.candidates import augmented_examples_of, find_candidates
from limbeck.recipe.augment_spec import AugmentSpec


def augmented_rows(rows: Dataset, model: str, examples: int) -> Dataset:
    """Up to `examples` augmented examples of every row: the text columns alone.

    Args:
        rows: their text columns and nothing else.
        model: a checkpoint's folder; only its words and their vectors are read.
    """
    spec = AugmentSpec.model_validate(
        {"model": model, "replace_by": "nearest", "examples": examples}
    )
    texts = [rows[column][:] for column in rows.column_names]
    candidates = find_candidates(
        (text for column in texts for text in column),
        spec,
        AutoModel.from_pretrained(model),
        AutoTokenizer.from_pretrained(model),
        longest=0,  # no text is read by the model
        precision="fp32",
    )
    made = [
        example
        for number, row in enumerate(zip(*texts, strict=True))
        for example in augmented_examples_of(
            row,
            [candidates[text] for text in row],
            row=number,
            examples=spec.examples,
            probability=spec.probability,
            seed=spec.seed,
        )
    ]
    columns = zip(*dict.fromkeys(made), strict=True)
    return Dataset.from_dict(
        {name: list(column) for name, column in zip(rows.column_names, columns, strict=True)}
    )
