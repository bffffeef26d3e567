"""Training: a thin subclass of `transformers.Trainer` with a teacher and the terms of a method."""

from limbeck.training.arguments import training_arguments
from limbeck.training.callbacks import Patience, reporting, tensorboard, tracker_problems
from limbeck.training.config import DistillationConfig
from limbeck.training.optimizer import Optimisation
from limbeck.training.trainer import DistillationTrainer

__all__ = [
    "DistillationConfig",
    "DistillationTrainer",
    "Optimisation",
    "Patience",
    "reporting",
    "tensorboard",
    "tracker_problems",
    "training_arguments",
]
