"""The small residual CNNs of CIFAR, by their names in the literature.

Importing this package (as `limbeck.students`, which loads models, has it done) makes `AutoConfig` and
`AutoModelForImageClassification` know its CNNs, so that their `from_pretrained` reads them.
"""

from transformers import AutoConfig, AutoModel, AutoModelForImageClassification

from limbeck.lab.cifar_nets.nets import (
    CifarNetConfig,
    CifarNetForImageClassification,
    CifarNetModel,
)
from limbeck.lab.cifar_nets.shapes import SHAPES, configuration_of

__all__ = [
    "SHAPES",
    "CifarNetConfig",
    "CifarNetForImageClassification",
    "CifarNetModel",
    "configuration_of",
]

AutoConfig.register(CifarNetConfig.model_type, CifarNetConfig, exist_ok=True)
AutoModel.register(CifarNetConfig, CifarNetModel, exist_ok=True)
AutoModelForImageClassification.register(
    CifarNetConfig, CifarNetForImageClassification, exist_ok=True
)
