"""The side of a bench worker that asks: start it, let it sleep between turns, end it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from limbeck.runtimes import is_export, read_export
from limbeck.support.errors import LimbeckError

_CAN_STOP = hasattr(signal, "SIGSTOP")


class BenchProcess:
    """One worker. Between requests it is stopped, so that its threads take nothing from the others' turns."""

    def __init__(self, name: str, threads: int) -> None:
        self.name = name
        self.said = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process
        # Thread pools are sized when a library is imported.
        pools = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "limbeck.latency.bench_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.said,
            text=True,
            env=os.environ
            | dict.fromkeys(pools, str(threads))
            | {"TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false"},
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """One request and its reply.

        Raises:
            LimbeckError: the model could not be opened or run, or the process has ended.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._signal("SIGCONT")
        try:
            self.process.stdin.write(json.dumps(request, default=str) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise LimbeckError(f"bench: {self.name} ended: {self._last_words()}", "")
        self._signal("SIGSTOP")
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise LimbeckError(f"bench: {self.name}: {found['error']}", "")
        return found

    def close(self) -> None:
        """End the process."""
        self._signal("SIGCONT")
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.said):
            if stream is not None:
                stream.close()

    def _signal(self, name: str) -> None:
        if _CAN_STOP and self.process.poll() is None:
            os.kill(self.process.pid, getattr(signal, name))

    def _last_words(self) -> str:
        self.said.seek(0)
        lines = self.said.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {self.process.poll()}"


def bytes_on_disk(path: Path) -> int:
    """Of a model's weights: an exported folder's model files, or a checkpoint's safetensors."""
    if not is_export(path):
        return sum(file.stat().st_size for file in path.glob("*.safetensors"))
    models = read_export(path, check=False).files
    beside = [
        near
        for file in models
        for near in (file.with_name(f"{file.name}.data"), file.with_suffix(".bin"))
    ]
    return sum(file.stat().st_size for file in [*models, *beside] if file.is_file())
