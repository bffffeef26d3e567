"""The environment of a run: versions of the libraries and the machine's hardware, for its record.

The run collects both once at its start, so that a
number in a table can be traced to the software and the machine that made it.
"""

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from limbeck.support.cores import cores

_LIBRARIES = ("limbeck", "torch", "transformers", "datasets")


def versions(*also: str) -> dict[str, str | None]:
    """Python's, the main libraries' and further ones' versions; None where one is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in (*_LIBRARIES, *also):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def hardware() -> dict[str, Any]:
    """The machine: platform, processor, cores this process may use, memory (GiB), accelerator."""
    import torch  # here and below, as tables read records without it

    return {
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}".strip(),
        "processor": processor_name(),
        "cores": cores(),
        "memory_gib": _memory_gib(),
        "accelerator": accelerator_name(),
        "threads": torch.get_num_threads(),
    }


def processor_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str | None:
    """The processor's model name, from Linux's own list where there is one."""
    try:
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip().lower() in ("model name", "hardware", "cpu model") and value.strip():
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or None


def accelerator_name() -> str | None:
    """The current accelerator's name, or None on a machine that has only processors."""
    import torch

    from limbeck.support.machine import accelerator

    found = accelerator()
    if found is None:
        return None
    return torch.cuda.get_device_name() if found.type == "cuda" else found.type


def _memory_gib() -> float | None:
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
    return round(size / 2**30, 1)
