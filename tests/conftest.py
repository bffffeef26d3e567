"""What holds for every test: the shapes written in signatures are enforced, as nowhere else."""

import gc
import os
import tempfile

from jaxtyping import install_import_hook

# Nothing a test stores may lie where a user's own does.
os.environ["LIMBECK_CACHE"] = tempfile.mkdtemp(prefix="limbeck-test-cache-")

# Works only on what is imported afterwards, so it stands here and not in a fixture: pytest reads
# this file before any test module can import limbeck.
install_import_hook("limbeck.functional", "beartype.beartype")


def pytest_collection_finish() -> None:
    """What is imported by now stays to the end: each of the Trainer's full collections (one a training) skips it."""
    gc.collect()
    gc.freeze()
