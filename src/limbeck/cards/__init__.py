"""The model card of a run's student: its README on the Hub, written from the run's record alone."""

from limbeck.cards.card import CARD_NAME, is_ours, write_card
from limbeck.cards.card_settings import CardSettings

__all__ = ["CARD_NAME", "CardSettings", "is_ours", "write_card"]
