"""Keeps other libraries' chatter out of the command line.

It is used at the command line's entry only: imported as a
library, limbeck leaves everybody's messages as they are.
"""

from __future__ import annotations

import os
import sys
import warnings

# Read by the libraries on import, and passed on to data loader workers. A user's own setting wins.
SETTINGS = {
    "TRANSFORMERS_VERBOSITY": "error",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "DATASETS_VERBOSITY": "error",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def silence_libraries() -> None:
    """Hide advice and progress bars of transformers, datasets and torch, before these are imported.

    Warnings that come from limbeck itself stay; `python -W …` and `PYTHONWARNINGS` win over this.
    """
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
        warnings.filterwarnings("default", module=r"limbeck\b")
