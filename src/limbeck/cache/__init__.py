"""What is computed once about the training rows: a teacher's answers, kept in memory or on disk.

On the way of a training step: stands where the live teacher stands.
"""

from limbeck.cache.build import build
from limbeck.cache.columns import Ask
from limbeck.cache.estimate import Estimate, measure
from limbeck.cache.fingerprint import add_model, add_rows, fingerprint, library_versions
from limbeck.cache.places import Lengths
from limbeck.cache.read import CachedTeacher
from limbeck.cache.remembering import RememberingTeacher
from limbeck.cache.store import Entry, Store, default_store
from limbeck.cache.table import UnstorableError

__all__ = [
    "Ask",
    "CachedTeacher",
    "Entry",
    "Estimate",
    "Lengths",
    "RememberingTeacher",
    "Store",
    "UnstorableError",
    "add_model",
    "add_rows",
    "build",
    "default_store",
    "fingerprint",
    "library_versions",
    "measure",
]
