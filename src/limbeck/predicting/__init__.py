"""Predictions of a model about rows of any length: `limbeck.predict`, and the command of that name."""
