"""`label` killed (SIGKILL) at one event of its work after another: no row is lost, none is there twice."""

from __future__ import annotations

import json
import os

import pytest

from fresh_process import printed_by

# One process imports limbeck; its children label, and each kills itself one event later than the one before it.
CODE = """
import json, os, pathlib, signal
from collections import Counter
from pathlib import Path
import numpy as np
import limbeck
from limbeck.data.row_ids import row_ids
from limbeck.outputs.store import open_store

folder = Path({folder!r})
lines = [f"row {{number}} " + "word " * (number % 7) for number in range(80)]
(folder / "rows.txt").write_text("\\n".join(lines))

class Letters:
    name, kind, classes, batch_size = "letters", "sentence", ("few", "many"), 8
    outputs = ("logits",)
    def fingerprint(self):
        return {{}}
    def score(self, rows):
        return {{"logits": np.array([[len(r["sentence"]), 20] for r in rows], dtype=np.float32)}}

def label(out):
    return limbeck.label(Letters(), folder / "rows.txt", out=out, shard_rows=16)

def dying(name, call):
    # Before and after the call, one after the other.
    def wrapped(*args, **kwargs):
        die(name + " begins")
        found = call(*args, **kwargs)
        die(name + " is done")
        return found
    return wrapped

def die(event):
    global left
    left -= 1
    if not left:
        os.write(told, event.encode())
        os.kill(os.getpid(), signal.SIGKILL)

whole = label(folder / "whole")
events = Counter()
while True:
    hears, told = os.pipe()
    child = os.fork()
    if not child:
        left = 1 + events.total()
        Letters.score = dying("a batch", Letters.score)
        pathlib.Path.replace = dying("a rename", pathlib.Path.replace)
        os.fsync = dying("a write to disk", os.fsync)
        label(folder / "store")
        os._exit(0)
    os.close(told)
    event = os.read(hears, 100).decode()
    os.close(hears)
    _, status = os.waitpid(child, 0)
    if not event:
        assert os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0, status
        break
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    events[event] += 1
    assert events.total() < 300
    if (folder / "store" / "manifest.json").exists():
        part = open_store(folder / "store", allow_incomplete=True)  # readable whenever it was killed
        if len(part):
            part.take(part.row_ids)
store = open_store(folder / "store")
assert store.row_ids.tolist() == row_ids([lines]).tolist()
for shard in whole.manifest.shards:
    assert store.files.read(shard.name) == whole.files.read(shard.name)
left = sorted(p.name for p in (folder / "store").iterdir() if not p.name.startswith("shard-"))
print(json.dumps([events, left]))
"""


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_at_any_event_the_store_is_the_same(tmp_path):
    events, left = json.loads(printed_by(CODE.format(folder=str(tmp_path))))
    for work in ("a batch", "a rename", "a write to disk"):
        assert events.get(f"{work} begins") and events.get(f"{work} is done"), events
    assert left == [".limbeck-lock", "manifest.json"]
