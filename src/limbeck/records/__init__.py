"""One JSON record a run: the last thing a training run writes and the first that tables read."""

from limbeck.records.machine import hardware, versions
from limbeck.records.record import (
    RECORD_NAME,
    Record,
    is_collection,
    read_collection,
    write_collection,
)

__all__ = [
    "RECORD_NAME",
    "Record",
    "hardware",
    "is_collection",
    "read_collection",
    "versions",
    "write_collection",
]
