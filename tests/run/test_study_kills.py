"""A study that is killed 25 times at random moments: nothing that was done is lost, and nothing is done twice."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tiny_studies import plan_of

from limbeck.lab.study import SharedRuns, StudyPlan, load_study
from limbeck.records import Record

KILLS = 25
# Children are forked from a process that has loaded everything: a kill costs no start of an interpreter.
SCRIPT = """
import json, os, random, signal, sys, time
from pathlib import Path
import torch
from limbeck.records import RECORD_NAME
from limbeck.lab.study import SharedRuns, StudyPlan, carry_out, load_study

study, folder, kills, out = sys.argv[1:]
torch.set_num_threads(1)
plan = StudyPlan.of(load_study(study))
random = random.Random(25)

def child(place):
    pid = os.fork()
    if pid == 0:
        failed = carry_out(plan, SharedRuns(Path(place)))
        os._exit(1 if failed else 0)
    return pid

def written(runs, names):
    held = [name for name in names if runs.held(name) is not None]
    return {name: (runs.path / name / RECORD_NAME).stat().st_mtime_ns for name in held}

# How long a run takes here: until the first one's record is there, in another folder.
names = {run.name for run in plan.teachers.values()}
names |= {run.name for group in plan.groups for _, made in group.tried for run in made}
warm = SharedRuns(Path(folder) / "warm")
began, pid = time.monotonic(), child(warm.path)
while len(written(warm, names)) < 2:
    time.sleep(0.01)
one = (time.monotonic() - began) / 2
os.kill(pid, signal.SIGKILL)
os.waitpid(pid, 0)

runs = SharedRuns(Path(folder) / "runs")
seen, done, changed, gone_on = {}, 0, [], []
while done < int(kills):
    pid = child(runs.path)
    time.sleep(random.uniform(0, 1.6) * one)
    if os.waitpid(pid, os.WNOHANG)[0]:
        break
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    done += 1
    found = written(runs, names)
    changed += [name for name, when in seen.items() if found.get(name) != when]
    seen = found
    gone_on.append(len(seen))
pid = child(runs.path)
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
found = written(runs, names)
changed += [name for name, when in seen.items() if found.get(name) != when]
said = {"kills": done, "changed": changed, "held": len(found), "of": len(names), "code": code, "course": gone_on}
Path(out).write_text(json.dumps(said))
"""


@pytest.mark.slow  # 17 runs, and what 25 kills undo
def test_twenty_five_kills(place, tmp_path) -> None:
    plan_of(place, tmp_path)
    file = tmp_path / "tiny.yaml"
    text = file.read_text(encoding="utf-8")
    for old, new in (
        ("seeds: [1, 2]", "seeds: [1, 2, 3, 4, 5, 6, 7, 8]"),
        ("epochs: 1", "epochs: 2, checkpoint_steps: 1"),
    ):
        assert old in text
        text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")
    plan = StudyPlan.of(load_study(file))
    (tmp_path / "go.py").write_text(SCRIPT, encoding="utf-8")
    command = [sys.executable, "go.py", "tiny.yaml", str(tmp_path), str(KILLS), "said.json"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=1800, stderr=subprocess.DEVNULL)
    said = json.loads((tmp_path / "said.json").read_text(encoding="utf-8"))
    assert said["changed"] == []  # a record that is there stays as it is
    assert said["code"] == 0
    assert said["held"] == said["of"] == plan.count
    assert said["kills"] == KILLS
    assert 0 < max(said["course"]) < plan.count  # they fell into the middle of it
    # What was gone on with is as what was never stopped: the same scores of the same seed.
    runs, warm = SharedRuns(tmp_path / "runs"), SharedRuns(tmp_path / "warm")
    alike = [name for run in plan.teachers.values() if warm.held(name := run.name) is not None]
    assert alike
    for name in alike:
        one, other = (Record.load(place.path / name) for place in (runs, warm))
        assert one.scores == other.scores
        assert [epoch.train for epoch in one.epochs] == [epoch.train for epoch in other.epochs]
