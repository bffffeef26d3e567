"""One model in a process of its own: `python -m limbeck.latency.worker`, driven line by line.

Requests and replies are JSON, one a line: `{"do": "open", …}` → seconds and memory, `{"do": "run",
"inputs": FILE, "passes": N}` → milliseconds of each pass, by the clock and of CPU. The process holds its
model's runtime and nothing else, so its memory is the model's. It is pinned to its cores
before the runtime is imported, because runtimes count cores when they start.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from limbeck.support.cores import anonymous_bytes

Feed = dict[str, np.ndarray]
Pass = Callable[[Feed], Any]


def main() -> None:
    """Answer requests until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries must not mix with the answers
    for found in replies(sys.stdin):
        answers.write(json.dumps(found) + "\n")
        answers.flush()


def replies(requests: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The answer to each line; errors are reported, and the next line is read."""
    model: Pass | None = None
    place = Path()
    feeds: dict[str, Feed] = {}
    for line in requests:
        request = json.loads(line)
        try:
            if request["do"] == "open":
                model, found = _open(request)
                place = Path(request["path"]).resolve()
            else:
                assert model is not None
                found = _run(model, feeds, request, place)
        except Exception as error:  # the caller continues with the other models
            first = (str(error).strip().splitlines() or [""])[0]
            found = {"error": f"{type(error).__name__}: {first}"}
        yield found


def _open(request: dict[str, Any]) -> tuple[Pass, dict[str, Any]]:
    """Load the model; memory is counted without the imports."""
    threads = request["threads"]
    pin(request["cores"])
    opener = _OPENERS[request["backend"]](Path(request["path"]), threads)
    before = anonymous_bytes()
    began = time.perf_counter()
    model = opener()
    seconds = time.perf_counter() - began
    return model, {"load_seconds": seconds, "bytes_before": before}


def _run(
    model: Pass, feeds: dict[str, Feed], request: dict[str, Any], place: Path
) -> dict[str, Any]:
    name = request["inputs"]
    if name not in feeds:
        with np.load(name) as stored:
            feeds[name] = {key: stored[key] for key in stored.files}
    feed, times, busy = feeds[name], [], []
    for _ in range(request["passes"]):
        computed, began = time.process_time(), time.perf_counter()
        model(feed)
        times.append(1000 * (time.perf_counter() - began))
        busy.append(1000 * (time.process_time() - computed))
    return {
        "ms": times,
        "cpu_ms": busy,
        "anonymous_bytes": anonymous_bytes(),
        "mapped_bytes": mapped_bytes(place),
    }


def pin(cores: list[int] | None) -> None:
    """Keep this process on these cores, where the system lets one."""
    if cores is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)


def mapped_bytes(folder: Path) -> int | None:
    """Pages of a folder's files in memory, if Linux reports them: weights that are read in place.

    Processes that map the same file share them, and the system drops them when memory is short.
    """
    try:
        lines = Path("/proc/self/smaps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    inside, found = False, 0
    for line in lines:
        words = line.split(maxsplit=5)
        if "-" in words[0] and not words[0].endswith(":"):  # a mapping begins: its addresses
            inside = len(words) == 6 and folder in Path(words[5]).parents
        elif inside and words[0] == "Rss:":
            found += 1024 * int(words[1])
    return found


def _torch(path: Path, threads: int, *, compiled: bool = False) -> Callable[[], Pass]:
    import torch
    import transformers

    # The class itself is imported before the clock starts.
    config = {}
    if not (path / "adapter_config.json").exists():
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    names = config.get("architectures") or [""]
    known = getattr(transformers, names[0], None)
    if known is None:  # one of limbeck's own networks, or an adapter
        from limbeck.students import load_model
    if compiled:
        import torch._dynamo  # by the first call of torch.compile otherwise, seconds of the load
    torch.set_num_threads(threads)

    def opened() -> Pass:
        if known is None:
            model: Any = load_model(path, head="required")
        else:
            model = known.from_pretrained(path, dtype=torch.float32, use_safetensors=True)
        model.eval()
        if compiled:
            model = torch.compile(model)

        def forward(feed: Feed) -> Any:
            with torch.inference_mode():
                return model(**{name: torch.from_numpy(value) for name, value in feed.items()})

        return forward

    return opened


def _session(runtime: str) -> Callable[[Path, int], Callable[[], Pass]]:
    def prepared(path: Path, threads: int) -> Callable[[], Pass]:
        __import__(runtime)
        from limbeck.runtimes.manifest import read_export
        from limbeck.runtimes.sessions import open_export, open_file

        # Its checksums were held against the files when the models were gathered.
        manifest = None if path.is_file() else read_export(path, check=False)

        def opened() -> Pass:
            if manifest is None:  # a model's file alone
                session = open_file(path, runtime, threads)
            else:
                session = open_export(manifest, runtime=runtime, threads=threads)
            return lambda feed: session.run({name: feed[name] for name in session.inputs})

        return opened

    return prepared


_OPENERS: dict[str, Callable[[Path, int], Callable[[], Pass]]] = {
    "torch": _torch,
    "compiled": partial(_torch, compiled=True),
    "onnxruntime": _session("onnxruntime"),
    "openvino": _session("openvino"),
    "numpy": _session("numpy"),
}

# The side of a bench worker that asks: start it, let it sleep between turns, end it.


_CAN_STOP = hasattr(signal, "SIGSTOP")


class BenchProcess:
    """One worker. Between requests it is stopped, so that its threads take nothing from the others' turns.

    `error` is the first error; no request follows it.
    """

    def __init__(self, threads: int) -> None:
        self.error = ""
        self.said = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process
        # Thread pools are sized when a library is imported.
        pools = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "limbeck.latency.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.said,
            text=True,
            env=os.environ
            | dict.fromkeys(pools, str(threads))
            | {"TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false"},
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """The reply to one request; empty where the model could not be opened or run, or the process has ended."""
        if self.error:
            return {}
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._signal("SIGCONT")
        try:
            self.process.stdin.write(json.dumps(request, default=str) + "\n")
            self.process.stdin.flush()
            found: dict[str, Any] = json.loads(self.process.stdout.readline())
        except (BrokenPipeError, json.JSONDecodeError):
            self.error = f"ended: {self._last_words()}"
            return {}
        self._signal("SIGSTOP")
        self.error = found.get("error", "")
        return {} if self.error else found

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


if __name__ == "__main__":
    main()
