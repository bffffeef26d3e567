"""Output that is killed (SIGKILL), stopped or changed on its way: no row is lost, none is there twice."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from filelock import FileLock

import tiny_runs as tiny
from fresh_process import printed_by
from limbeck import LimbeckError, predict

TEXTS = tiny.sentences(30)


@pytest.fixture(scope="module")
def model(folders) -> str:
    return folders["sentence"]


def write_rows(path: Path, texts=TEXTS) -> Path:
    path.write_text("".join(json.dumps({"n": n, "text": t}) + "\n" for n, t in enumerate(texts)))
    return path


# One process imports limbeck; each child is killed before an event of its own, counted.
AT_EVERY_EVENT = """
import os, signal, sys
from pathlib import Path
import limbeck
from limbeck.predicting import output as partial_output

model, rows, folder = sys.argv[1:]
settings = {"chunk_rows": 16, "output": ["labels", "scores"]}
whole = Path(folder) / "whole.parquet"
limbeck.predict(model, Path(rows), to=whole, **settings)
events, inside = 0, False

def killing(happens, at):
    def wrapped(*arguments, **settings):
        global events, inside
        if inside:
            return happens(*arguments, **settings)
        events, inside = events + 1, True
        if events == at:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            return happens(*arguments, **settings)
        finally:
            inside = False
    return wrapped

def start(out, at):
    child = os.fork()
    if not child:
        partial_output.write_whole = killing(partial_output.write_whole, at)
        Path.replace, Path.unlink = killing(Path.replace, at), killing(Path.unlink, at)
        try:
            limbeck.predict(model, Path(rows), to=out, **settings)
        except limbeck.LimbeckError as error:
            assert "exists" in str(error) and out.exists(), error
        os._exit(0)
    return os.waitpid(child, 0)[1]

at = 0
while True:
    at += 1
    out = Path(folder) / f"out-{at}.parquet"
    status = start(out, at)
    if os.WIFEXITED(status):
        break
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert not out.exists() or out.read_bytes() == whole.read_bytes()
    assert os.WIFEXITED(start(out, -1))
    assert out.read_bytes() == whole.read_bytes(), at
    # Killed behind the renaming it leaves the folder, which the next --overwrite takes away.
    limbeck.predict(model, Path(rows), to=out, overwrite=True, **settings)
    assert out.read_bytes() == whole.read_bytes(), at
    assert not out.with_name(out.name + ".partial").exists()
print(at)
"""


# It waits for rows that nobody writes when it is killed, so that the moment is no matter of time.
IN_THE_MIDDLE = """
pipe, out = Path(folder) / "pipe", Path(folder) / "out.jsonl"
os.mkfifo(pipe)
child = os.fork()
if not child:
    limbeck.predict(model, pipe, format="jsonl", to=out, chunk_rows=8)
    os._exit(0)
with pipe.open("wb") as stream:
    # Two chunks and a part of the third.
    stream.writelines(Path(rows).read_bytes().splitlines(keepends=True)[:20])
    stream.flush()
    record = Path(folder) / "out.jsonl.partial" / "rows-00000001.json"
    while not record.exists():
        assert os.waitpid(child, os.WNOHANG) == (0, 0)
    os.kill(child, signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
assert not out.exists()
said = limbeck.predict(model, Path(rows), to=out, chunk_rows=8, show=True)
print(said.count, said.new)
"""


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_it_is_continued(model, tmp_path) -> None:
    """Before every event, and in the middle of its rows."""
    rows = write_rows(tmp_path / "rows.jsonl")
    found = printed_by(AT_EVERY_EVENT + IN_THE_MIDDLE, model, rows, tmp_path).split()
    # Settings, two chunks with their records, the renaming, what is removed.
    assert int(found[0]) > 5 + 1 + 5
    assert found[1:] == ["30", "14"]
    out = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["n"] for row in out] == [*range(30)]
    assert [row["prediction"] for row in out] == [row["prediction"] for row in predict(model, rows)]


def stopped(model, rows: Path, out: Path, **settings) -> None:
    """Two chunks of ten are there, the third has a row that is no text."""
    lines = rows.read_text().splitlines(keepends=True)
    lines[25] = json.dumps({"n": 25, "text": 5}) + "\n"
    broken = rows.with_name("broken.jsonl")
    broken.write_text("".join(lines))
    with pytest.raises(LimbeckError, match="row 26: text is 5"):
        predict(model, broken, to=out, chunk_rows=10, **settings)
    assert (out.parent / f"{out.name}.partial").is_dir() and not out.exists()


def test_a_row_is_corrected_and_the_rest_is_kept(model, tmp_path) -> None:
    rows, out = write_rows(tmp_path / "rows.jsonl"), tmp_path / "out.jsonl"
    stopped(model, rows, out)
    said = predict(model, rows, to=out, chunk_rows=7, batch_size=3)
    assert (said.count, said.new) == (30, 10)


def test_other_rows_settings_and_models_are_refused_with_what_differs(
    model, folders, tmp_path
) -> None:
    rows, out = write_rows(tmp_path / "rows.jsonl"), tmp_path / "out.jsonl"
    stopped(model, rows, out)
    with pytest.raises(LimbeckError) as refused:
        predict(folders["regression"], rows, to=out, keep=["n"], max_length=9)
    assert [p.message.split("another ")[1].split(":")[0] for p in refused.value.problems] == [
        "model", "classes", "kept columns", "max_length",
    ]  # fmt: skip
    others = write_rows(tmp_path / "others.jsonl", [*TEXTS[:12], "the end", *TEXTS[13:]])
    with pytest.raises(LimbeckError, match="rows 11 to 20 differ from the rows that were"):
        predict(model, others, to=out)
    fewer = write_rows(tmp_path / "fewer.jsonl", TEXTS[:15])
    with pytest.raises(LimbeckError, match="rows 11 to 20 differ"):
        predict(model, fewer, to=out)
    assert predict(model, rows, to=out).new == 10  # nothing was lost by all that


def test_overwrite_begins_again_where_settings_or_rows_differ(model, tmp_path) -> None:
    rows, out = write_rows(tmp_path / "rows.jsonl"), tmp_path / "out.jsonl"
    stopped(model, rows, out)
    assert predict(model, rows, to=out, keep=["n"], overwrite=True).new == 30
    with pytest.raises(LimbeckError, match="exists"):
        predict(model, rows, to=out)
    stopped_before = out.read_bytes()
    others = write_rows(tmp_path / "others.jsonl", TEXTS[:15])
    assert predict(model, others, to=out, overwrite=True).count == 15
    assert out.read_bytes() != stopped_before


def test_overwrite_begins_again_where_the_rows_are_others(model, tmp_path) -> None:
    rows, out = write_rows(tmp_path / "rows.jsonl"), tmp_path / "out.jsonl"
    stopped(model, rows, out)
    others = write_rows(tmp_path / "others.jsonl", ["good", *TEXTS])
    assert predict(model, others, to=out, overwrite=True).new == 31


def test_a_chunk_that_was_damaged_is_made_again(model, tmp_path) -> None:
    rows, out = write_rows(tmp_path / "rows.jsonl"), tmp_path / "out.jsonl"
    stopped(model, rows, out)
    (tmp_path / "out.jsonl.partial" / "rows-00000001.part").write_text("{}\n")
    assert predict(model, rows, to=out).new == 20
    found = [json.loads(line)["n"] for line in out.read_text().splitlines()]
    assert found == [*range(30)]


def test_two_processes_do_not_write_one_file(model, tmp_path) -> None:
    (tmp_path / "out.jsonl.partial").mkdir()
    with (
        FileLock(tmp_path / "out.jsonl.partial" / ".limbeck-lock"),
        pytest.raises(LimbeckError, match="is in use by another process"),
    ):
        predict(model, TEXTS, to=tmp_path / "out.jsonl")


def test_files_after_one_another_are_continued_across_them(model, tmp_path) -> None:
    for number in range(3):
        write_rows(tmp_path / f"part-{number}.jsonl", TEXTS[number * 10 : number * 10 + 10])
    out = tmp_path / "out.jsonl"
    pattern = str(tmp_path / "part-*.jsonl")
    last = tmp_path / "part-2.jsonl"
    good = last.read_text()
    last.write_text(good + '{"text": 5}\n')
    with pytest.raises(LimbeckError, match=r"part-2.jsonl, row 11: text is 5"):
        predict(model, pattern, to=out, chunk_rows=6)
    last.write_text(good)
    assert predict(model, pattern, to=out, chunk_rows=6).new == 4
    assert [json.loads(line)["text"] for line in out.read_text().splitlines()] == TEXTS
