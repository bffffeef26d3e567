"""Latency that can be believed: models in processes of their own, timed in turns."""
