"""Labelling: what a teacher of any kind says of any number of rows, written as a store of outputs."""

from limbeck.labelling.label import label
from limbeck.labelling.model_labeller import ModelLabeller

__all__ = ["ModelLabeller", "label"]
