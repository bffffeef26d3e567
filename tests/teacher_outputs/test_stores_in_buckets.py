"""A store in a bucket of an S3 server, over HTTP by s3fs; what lies there is read by boto3 and pyarrow.

Needs `pip install s3fs "moto[server,s3]"`.
"""

from __future__ import annotations

import io
import json

import pyarrow.parquet as parquet
import pytest

import limbeck
import tiny_runs as tiny
from limbeck.data.row_ids import row_ids
from limbeck.outputs.files import StoreFiles
from limbeck.outputs.store import open_store
from limbeck.outputs.writer import copy_store, remove_store
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.support.errors import LimbeckError
from stopping_labeller import Stops

pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore"),  # of the server and clients
]

LINES = list(dict.fromkeys(tiny.sentences(40)))


@pytest.fixture
def bucket(monkeypatch):
    """A client of the server, which knows one bucket; limbeck reads the environment that every AWS tool reads."""
    s3fs, server = pytest.importorskip("s3fs"), pytest.importorskip("moto.server")
    boto3 = pytest.importorskip("boto3")
    running = server.ThreadedMotoServer(port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "anyone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "anything")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    # File systems are kept by their arguments, and those of an earlier server are none.
    s3fs.S3FileSystem.clear_instance_cache()
    client = boto3.client("s3")
    client.create_bucket(Bucket="rows")
    yield client
    running.stop()


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "rows.txt"
    path.write_text("\n".join(LINES))
    return path


def contents(client, folder: str) -> dict[str, bytes]:
    """Every object below a folder, as boto3 reads it."""
    found = client.list_objects_v2(Bucket="rows", Prefix=f"{folder}/").get("Contents", [])
    return {
        one["Key"].removeprefix(f"{folder}/"): client.get_object(Bucket="rows", Key=one["Key"])[
            "Body"
        ].read()
        for one in found
    }


def test_the_bucket_holds_the_bytes_of_a_store_on_disk(bucket, texts, tmp_path):
    local = limbeck.label(Stops(), texts, out=tmp_path / "a", shard_rows=8)
    found = limbeck.label(Stops(), texts, out="s3://rows/a", shard_rows=8)
    there = contents(bucket, "a")
    shards = {path.name: path.read_bytes() for path in (tmp_path / "a").glob("shard-*")}
    assert {name: there[name] for name in shards} == shards
    # Neither parts nor locks beside them.
    assert set(there) == {*shards, "manifest.json"}
    assert json.loads(there["manifest.json"])["complete"]
    assert found.row_ids.tolist() == local.row_ids.tolist()
    rows = [parquet.read_table(io.BytesIO(there[name])) for name in sorted(shards)]
    ids = [one for table in rows for one in table["row"].to_pylist()]
    assert ids == row_ids([LINES]).tolist()
    assert rows[0]["logits"][0].as_py() == [len(LINES[0]), 20.0]


def test_an_interrupted_store_goes_on_in_the_bucket(bucket, texts):
    with pytest.raises(KeyboardInterrupt):
        limbeck.label(Stops(7), texts, out="s3://rows/b", shard_rows=8)
    with pytest.raises(LimbeckError, match="is incomplete"):
        open_store("s3://rows/b")
    kept = {name: body for name, body in contents(bucket, "b").items() if "shard" in name}
    assert kept
    rest = Stops()
    limbeck.label(rest, texts, out="s3://rows/b", shard_rows=8)
    # But for the 16 rows that are measured first.
    assert len(rest.seen) - len(LINES[8 * len(kept) :]) == 16
    assert kept.items() <= contents(bucket, "b").items()
    assert open_store("s3://rows/b").row_ids.tolist() == row_ids([LINES]).tolist()


def test_what_was_changed_in_the_bucket_is_damaged(bucket, texts):
    store = limbeck.label(Stops(), texts, out="s3://rows/c", shard_rows=8)
    body = contents(bucket, "c")["shard-00001.parquet"]
    bucket.put_object(
        Bucket="rows", Key="c/shard-00001.parquet", Body=bytes([body[0] ^ 1]) + body[1:]
    )
    with pytest.raises(LimbeckError, match=r"shard-00001\.parquet is damaged"):
        store.take(row_ids([LINES]))
    again = limbeck.label(Stops(), texts, out="s3://rows/c", shard_rows=8)
    assert contents(bucket, "c")["shard-00001.parquet"] == body
    assert len(again.take(row_ids([LINES]))["logits"]) == len(LINES)


def test_what_another_process_wrote_behind_a_listing_is_seen(bucket):
    """As of a worker's shard, whose size the caller asks for."""
    files = StoreFiles("s3://rows/h")
    files.write("one", b"1")
    assert files.names() == ["one"] and files.size("two") == -1
    bucket.put_object(Bucket="rows", Key="h/two", Body=b"12")
    assert files.size("two") == 2


def test_a_student_learns_from_the_bucket_what_it_learns_from_disk(bucket, tmp_path):
    rows = [json.dumps({"sentence": text, "label": "few"}) for text in LINES[:20]]
    rows += [json.dumps({"sentence": text, "label": "many"}) for text in LINES[20:]]
    (tmp_path / "data").mkdir()
    for split in ("train", "dev"):
        (tmp_path / "data" / f"{split}.jsonl").write_text("\n".join(rows))
    file = tmp_path / "data" / "train.jsonl"
    start = tiny.save(tiny.bert(2), tmp_path / "start")
    losses = []
    for out in (str(tmp_path / "d"), "s3://rows/d"):
        limbeck.label(Stops(), file, text_columns=["sentence"], out=out, shard_rows=8)
        recipe = Recipe.load(
            "kd",
            task="mine",
            text_columns=["sentence"],
            label_column="label",
            outputs=[out],
            data=str(tmp_path / "data"),
            max_length=24,
            epochs=1,
            **{"student.init": str(start)},
        )
        run = distill(recipe, tmp_path / f"run-{len(losses)}", report=False)
        losses.append(run.scores["dev"])
    assert losses[0] == losses[1]


def test_it_is_removed_from_the_bucket_and_from_nothing_else(bucket, texts):
    limbeck.label(Stops(), texts, out="s3://rows/e", shard_rows=8)
    bucket.put_object(Bucket="rows", Key="e/mine.txt", Body=b"mine")
    assert remove_store("s3://rows/e") > 0
    assert contents(bucket, "e") == {"mine.txt": b"mine"}


def test_a_bucket_that_is_not_there_is_said_and_not_made(bucket, texts):
    with pytest.raises(LimbeckError, match="s3://nowhere/f: nowhere does not exist"):
        limbeck.label(Stops(), texts, out="s3://nowhere/f")
    assert [one["Name"] for one in bucket.list_buckets()["Buckets"]] == ["rows"]


def test_a_store_is_copied_into_the_bucket(bucket, texts, tmp_path):
    local = limbeck.label(Stops(), texts, out=tmp_path / "g", shard_rows=8)
    copy_store(local, StoreFiles("s3://rows/g"))
    there = contents(bucket, "g")
    assert there == {path.name: path.read_bytes() for path in (tmp_path / "g").iterdir()
                     if not path.name.startswith(".")}  # fmt: skip
