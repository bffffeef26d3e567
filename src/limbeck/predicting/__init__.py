"""Predictions of a model about rows of any length: `limbeck.predict`, and the command of that name."""

from limbeck.predicting.job import Predictions
from limbeck.predicting.predict_rows import predict
from limbeck.predicting.settings import PredictSettings

__all__ = ["PredictSettings", "Predictions", "predict"]
