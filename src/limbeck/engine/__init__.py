"""The engine: a thin subclass of `transformers.Trainer` that asks, captures, weighs and steps.

On the way of a training step: after `data` and `preflight`, before `records`.
"""

from limbeck.engine.arguments import tensorboard, training_arguments
from limbeck.engine.callbacks import Patience
from limbeck.engine.distiller import Distiller
from limbeck.engine.optimisation import Optimisation
from limbeck.engine.trackers import reporting, tracker_problems
from limbeck.engine.trainer import DistillationTrainer

__all__ = [
    "DistillationTrainer",
    "Distiller",
    "Optimisation",
    "Patience",
    "reporting",
    "tensorboard",
    "tracker_problems",
    "training_arguments",
]
