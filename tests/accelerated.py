"""The accelerator of tests marked `gpu`.

LIMBECK_TEST_DEVICE=cpu puts a processor in its place, to see whether the tests themselves work.
"""

from __future__ import annotations

import os

import pytest
import torch


def accelerator() -> torch.device:
    chosen = os.environ.get("LIMBECK_TEST_DEVICE")
    found = torch.device(chosen) if chosen else torch.accelerator.current_accelerator()
    if found is None:
        pytest.skip("this machine has no accelerator")
    return found
