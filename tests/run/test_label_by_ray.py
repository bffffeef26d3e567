"""`label` by Ray: the store of one process row for row, also when an actor is killed at its work."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest

import limbeck
from limbeck.data.row_ids import row_ids
from limbeck.labelling.language_models import Prompt
from limbeck.outputs import open_store
from limbeck.support.errors import LimbeckError
from limbeck.teachers.labeller import RowsMissingError
from tiny_language_models import save_language_model
from tiny_runs import knowing_teacher, save, sentences

pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    # Of Ray and its libraries.
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(autouse=True)
def found_by_workers(monkeypatch) -> None:
    """Ray's workers find the tests' modules."""
    pytest.importorskip("ray")
    own = [
        str(Path(limbeck.__file__).parents[1]),
        str(Path(__file__).parent),
        str(Path(__file__).parents[1]),
    ]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(own))


class Dies:
    """Kills its own process (SIGKILL) once, in the middle of a shard."""

    name, kind, classes, batch_size = "letters", "sentence", ("few", "many"), 4
    outputs = ("logits",)

    def __init__(self, mark: Path) -> None:
        self.mark = mark
        self.calls = self.calls_elsewhere = 0
        self.caller = os.getpid()

    def fingerprint(self):
        return {}

    def score(self, rows):
        self.calls += 1
        self.calls_elsewhere += os.getpid() != self.caller
        armed = self.mark.with_suffix(".armed").exists() and not self.mark.exists()
        if armed and self.calls_elsewhere == 3:
            self.mark.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        return {"logits": np.array([[len(row["sentence"]), 20] for row in rows], dtype=np.float32)}


def rows_of(folder: Path) -> Path:
    path = folder / "rows.txt"
    path.write_text("\n".join(f"{text} {number}" for number, text in enumerate(sentences(60))))
    return path


def test_a_models_outputs_are_those_of_one_process(tmp_path):
    teacher, rows = save(knowing_teacher(), tmp_path / "teacher"), rows_of(tmp_path)
    words = ["logits", "hidden:-1", "hidden:2:mean"]
    kept = {"outputs": words, "shard_rows": 8}
    local = limbeck.label(str(teacher), rows, out=tmp_path / "local", **kept)
    by_ray = limbeck.label(
        str(teacher), rows, out=tmp_path / "ray", engine="ray", workers=2, **kept
    )
    assert by_ray.row_ids.tolist() == local.row_ids.tolist()
    mine, theirs = local.take(local.row_ids), by_ray.take(local.row_ids)
    for name in ("logits", "hidden-main-2-mean"):
        np.testing.assert_allclose(theirs[name], mine[name], atol=1e-3)
    for one, other in zip(theirs["hidden-main-4"], mine["hidden-main-4"], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-2)


def test_a_language_model_with_a_prompt_labels_as_one_process_does(tmp_path):
    """The prompt, its sampled examples and the calibration travel to the actors."""
    model = save_language_model(tmp_path / "model", chat=False)
    rows = tmp_path / "rows.csv"
    lines = [f"{text} {number},{'np'[number % 2]}" for number, text in enumerate(sentences(20))]
    rows.write_text("review,verdict\n" + "\n".join(lines))
    prompt = Prompt(
        template="{classes}\n{examples}Review: {review}\nIs:",
        verbalizations={"n": "bad", "p": "good"},
        examples_per_class=1,
        example="Review: {review}\nIs: {answer}\n",
    )
    kept = {"text_columns": ["review"], "label_column": "verdict", "prompt": prompt}
    kept |= {"shard_rows": 8, "with_text": True}
    local = limbeck.label(model, rows, out=tmp_path / "local", **kept)
    by_ray = limbeck.label(model, rows, out=tmp_path / "ray", engine="ray", workers=2, **kept)
    assert by_ray.row_ids.tolist() == local.row_ids.tolist() and len(local) == 20
    assert by_ray.manifest.teacher == local.manifest.teacher
    columns = ["review", "label", "logits", "probabilities"]
    mine, theirs = local.take(local.row_ids, columns), by_ray.take(local.row_ids, columns)
    assert theirs["review"].tolist() == mine["review"].tolist()
    assert theirs["label"].tolist() == mine["label"].tolist()
    for name in ("logits", "probabilities"):
        np.testing.assert_allclose(theirs[name], mine[name], atol=1e-4)
    assert len(np.unique(mine["logits"][:, 0])) > 10


def test_an_actor_that_is_killed_loses_and_doubles_no_row(tmp_path):
    rows, mark = rows_of(tmp_path), tmp_path / "died"
    local = limbeck.label(Dies(mark), rows, out=tmp_path / "local", shard_rows=8)
    mark.with_suffix(".armed").touch()
    # What is measured is labelled by the caller itself.
    by_ray = limbeck.label(
        Dies(mark), rows, out=tmp_path / "ray", shard_rows=8, engine="ray", workers=1
    )
    assert int(mark.read_text()) != os.getpid()
    assert by_ray.row_ids.tolist() == local.row_ids.tolist()
    assert len(set(local.row_ids.tolist())) == 60
    for one, other in zip(by_ray.manifest.shards, local.manifest.shards, strict=True):
        assert one == other
        assert by_ray.files.read(one.name) == local.files.read(one.name)


def test_what_an_actor_says_reaches_the_user(tmp_path):
    class Late(Dies):
        def score(self, rows):
            if os.getpid() != int(self.mark.read_text()):
                raise LimbeckError("the texts are too long", "cut them")
            return super().score(rows)

    mark = tmp_path / "caller"
    mark.write_text(str(os.getpid()))
    with pytest.raises(LimbeckError, match="the texts are too long"):
        limbeck.label(
            Late(mark),
            rows_of(tmp_path),
            out=tmp_path / "ray",
            shard_rows=8,
            engine="ray",
            workers=1,
        )


class Silent(Dies):
    """Has no outputs for one text until a file is there, and counts what it was asked."""

    batch_size = 8

    def costs(self):
        return {"texts": float(self.calls)}

    def score(self, rows):
        self.calls += len(rows)
        silent = [at for at, row in enumerate(rows) if row["sentence"].endswith(" 21")]
        if silent and not self.mark.exists():
            raise RowsMissingError(dict.fromkeys(silent, "no answer"))
        return {"logits": np.array([[len(row["sentence"]), 20] for row in rows], dtype=np.float32)}


def test_rows_without_outputs_leave_out_their_shard_alone(tmp_path, monkeypatch):
    """As one process leaves it out, and the next start makes it."""
    kept = {"shard_rows": 8, "engine": "ray", "workers": 1}
    rows, mark = rows_of(tmp_path), tmp_path / "answers"
    labeller = Silent(mark)
    with pytest.raises(LimbeckError, match="1 row has no outputs: no answer"):
        limbeck.label(labeller, rows, out=tmp_path / "ray", **kept)
    (missing,) = json.loads((tmp_path / "ray" / "missing.json").read_text())
    text = next(line for line in rows.read_text().splitlines() if line.endswith(" 21"))
    assert missing == {"row": int(row_ids([[text]])[0]), "reason": "no answer"}
    part = open_store(tmp_path / "ray", allow_incomplete=True)
    assert len(part) == 52 and len(part.manifest.shards) == 7
    # All rows by actors, and those of the measured batch.
    assert part.manifest.costs["texts"] == 60 + labeller.calls
    mark.touch()
    whole = limbeck.label(Silent(mark), rows, out=tmp_path / "ray", **kept)
    assert len(whole) == 60 and not (tmp_path / "ray" / "missing.json").exists()


def test_shards_of_which_no_row_has_outputs_are_empty_as_one_process_makes_them(tmp_path):
    kept = {"shard_rows": 1, "missing_rows": "drop", "with_text": True}
    rows, mark = rows_of(tmp_path), tmp_path / "answers"
    rows.write_text("\n".join(rows.read_text().splitlines()[15:25]))
    local = limbeck.label(Silent(mark), rows, out=tmp_path / "local", **kept)
    by_ray = limbeck.label(
        Silent(mark), rows, out=tmp_path / "ray", engine="ray", workers=1, **kept
    )
    assert len(local) == 9 and [*local.manifest.missing_rows.values()] == ["no answer"]
    assert by_ray.manifest.complete and by_ray.manifest.shards == local.manifest.shards


def test_workers_of_a_cluster_that_began_in_another_folder(tmp_path, monkeypatch):
    """Relative paths, of the teacher and of the store, are those of the caller."""
    from ray.cluster_utils import Cluster

    (tmp_path / "cluster").mkdir()
    (tmp_path / "here").mkdir()
    save(knowing_teacher(), tmp_path / "here" / "teacher")
    rows_of(tmp_path / "here")
    monkeypatch.chdir(tmp_path / "cluster")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        monkeypatch.chdir(tmp_path / "here")
        store = limbeck.label(
            "teacher", "rows.txt", out="stores/a", engine="ray", workers=1, shard_rows=32
        )
    finally:
        cluster.shutdown()
    assert len(store) == 60 and len(store.take(store.row_ids)["logits"]) == 60
    assert [path.name for path in tmp_path.rglob("shard-00000.parquet")] == ["shard-00000.parquet"]
