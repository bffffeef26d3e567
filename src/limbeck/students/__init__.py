"""Students: where their layers, weights, configuration and labels come from.

On the way of a training step: before it. `build_student` makes every kind of student, `load_model`
reads a whole pretrained model, `pick_layers` turns a rule into layer numbers.
"""

from limbeck.students.building import Labelled, Layers, build_student
from limbeck.students.checkpoints import load_model, read_config, resolve_checkpoint
from limbeck.students.configuration import generic_labels, labels_agree, labels_of, plain_label
from limbeck.students.picking import PICKS, pick_layers

__all__ = [
    "PICKS",
    "Labelled",
    "Layers",
    "build_student",
    "generic_labels",
    "labels_agree",
    "labels_of",
    "load_model",
    "pick_layers",
    "plain_label",
    "read_config",
    "resolve_checkpoint",
]
