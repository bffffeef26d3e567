"""Students: where their layers, weights, configuration and labels come from.

`build_student` makes every kind of student, `load_model`
reads a whole pretrained model, `pick_layers` turns a rule into layer numbers, `named_model` a shape's
name into a model.
"""

from limbeck.students.build import PICKS, Labelled, Layers, build_student, pick_layers
from limbeck.students.configuration import (
    class_places,
    generic_labels,
    labels_agree,
    labels_of,
    numbered_places,
    places_by_name,
    spelling,
)
from limbeck.students.pretrained import load_model, read_config, resolve_checkpoint
from limbeck.students.shapes import (
    BERT_VOCABULARY,
    RANDOM,
    TEAMS,
    NamedModel,
    named_model,
    starts_random,
)
from limbeck.students.weights import read_processor, read_tokenizer

__all__ = [
    "BERT_VOCABULARY",
    "PICKS",
    "RANDOM",
    "TEAMS",
    "Labelled",
    "Layers",
    "NamedModel",
    "build_student",
    "class_places",
    "generic_labels",
    "labels_agree",
    "labels_of",
    "load_model",
    "named_model",
    "numbered_places",
    "pick_layers",
    "places_by_name",
    "read_config",
    "read_processor",
    "read_tokenizer",
    "resolve_checkpoint",
    "spelling",
    "starts_random",
]
