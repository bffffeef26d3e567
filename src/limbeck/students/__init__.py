"""Students: where their layers, weights, configuration and labels come from.

`build_student` makes every kind of student, `narrowed` cuts one in width, `load_model` reads a pretrained model,
`pick_layers` turns a rule into layer numbers, `important_layers` rows into them, `named_model` a shape's name into a
model.
"""

from limbeck.students.build import build_student, pick_layers
from limbeck.students.configuration import (
    class_places,
    generic_labels,
    labels_of,
    numbered_places,
    places_by_name,
    spelling,
)
from limbeck.students.depth import important_layers
from limbeck.students.pretrained import (
    load_model,
    pad_as,
    placement,
    read_config,
    read_processor,
    read_tokenizer,
    resolve_checkpoint,
)
from limbeck.students.shapes import (
    BERT_VOCABULARY,
    NAMED_CNNS,
    RANDOM,
    TEAMS,
    TOY_MODELS,
    named_model,
    names_cnn,
    starts_random,
)
from limbeck.students.width import narrowed

__all__ = [
    "BERT_VOCABULARY",
    "NAMED_CNNS",
    "RANDOM",
    "TEAMS",
    "TOY_MODELS",
    "build_student",
    "class_places",
    "generic_labels",
    "important_layers",
    "labels_of",
    "load_model",
    "named_model",
    "names_cnn",
    "narrowed",
    "numbered_places",
    "pad_as",
    "pick_layers",
    "placement",
    "places_by_name",
    "read_config",
    "read_processor",
    "read_tokenizer",
    "resolve_checkpoint",
    "spelling",
    "starts_random",
]

# Whoever registers a model of its own makes AutoModel know it: checkpoints of it can be read from here on.
NAMED_CNNS.load()
