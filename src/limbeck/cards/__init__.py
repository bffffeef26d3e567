"""The model card of a run's student: its README on the Hub, written from the run's record alone."""

from limbeck.cards.settings import CardSettings

__all__ = ["CardSettings"]
