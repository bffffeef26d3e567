"""Measuring finished models: size, speed and the statistics of comparing their scores."""
