"""Predictions of a model about rows of any length: `limbeck.predict`, and the command of that name."""

from limbeck.predicting.predict_rows import predict
from limbeck.predicting.predict_settings import PredictSettings
from limbeck.predicting.prediction_summary import Predictions

__all__ = ["PredictSettings", "Predictions", "predict"]
