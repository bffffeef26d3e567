"""A store of teacher outputs in Parquet: what was written is read, damage is said, a changed question refused."""

from __future__ import annotations

import json

import fsspec
import numpy as np
import pytest

from limbeck.outputs.columns import OutputLayout, column_of_values
from limbeck.outputs.files import StoreFiles
from limbeck.outputs.manifest import RowsIdentity, StoreManifest, TeacherIdentity
from limbeck.outputs.shards import shard_name, shard_table, write_shard
from limbeck.outputs.store import open_store
from limbeck.outputs.writer import StoreWriter
from limbeck.support.errors import LimbeckError
from limbeck.support.files import checksum_of_text

IDS = np.array([7, 3, 2**63 - 1, 0, 12], dtype=np.int64)
CLASSES = ("no", "yes", "maybe")


def ragged(*arrays: np.ndarray) -> np.ndarray:
    found = np.empty(len(arrays), dtype=object)
    for place, array in enumerate(arrays):
        found[place] = array
    return found


def values() -> dict[str, np.ndarray]:
    numbers = np.random.default_rng(0)
    tokens = (2, 1, 4, 3, 1)
    return {
        "logits": numbers.normal(size=(5, 3)).astype("float32"),
        "hidden-main-6-cls": numbers.normal(size=(5, 4)).astype("float16"),
        "hidden-main-2": ragged(*(numbers.normal(size=(n, 4)).astype("float16") for n in tokens)),
        "probabilities-main-1": ragged(
            *(numbers.normal(size=(2, n, n)).astype("float32") for n in tokens)
        ),
    }


def layout() -> OutputLayout:
    return OutputLayout(tuple(column_of_values(name, value) for name, value in values().items()))


def manifest(**changes) -> StoreManifest:
    known = {
        "complete": False,
        "kind": "sentence",
        "classes": CLASSES,
        "teacher": TeacherIdentity(name="teacher", fingerprint={"weights": "w", "length": 128}),
        "rows": RowsIdentity(count=5, fingerprint="r", columns=("sentence",)),
        "settings": {"precision": "fp32", "shard_rows": 2},
    }
    return StoreManifest(**(known | changes))


def part(start: int, stop: int):
    chosen = {name: value[start:stop] for name, value in values().items()}
    label = np.arange(start, min(stop, 5))
    return shard_table(IDS[start:stop], {}, label, layout(), chosen)


def made(url: str, shards: int = 3) -> StoreFiles:
    files = StoreFiles(url)
    writer = StoreWriter.begin(files, manifest(labelled=True))
    for number in range(shards):
        table = part(2 * number, 2 * number + 2)
        writer.record(write_shard(files, shard_name(number), table), layout(), {"seconds": 1.5})
    if shards == 3:
        writer.finish()
    return files


@pytest.fixture(params=["folder", "file", "memory"])
def url(request, tmp_path) -> str:
    if request.param == "memory":
        fsspec.filesystem("memory").store.clear()
        return "memory://bucket/store"
    return str(tmp_path / "store") if request.param == "folder" else f"file://{tmp_path}/store"


def assert_bit_equal(found: np.ndarray, expected: np.ndarray) -> None:
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    if found.dtype == object:
        for one, other in zip(found, expected, strict=True):
            assert_bit_equal(one, other)
    else:
        assert found.tobytes() == expected.tobytes()


def test_what_was_written_is_read_bit_for_bit_in_any_order(url):
    made(url)
    store = open_store(url)
    assert store.classes == CLASSES and store.kind == "sentence" and len(store) == 5
    assert store.row_ids.tolist() == IDS.tolist()
    assert store.manifest.costs == {"seconds": 4.5}
    order = [4, 0, 0, 2, 3, 1]
    found = store.take(IDS[order])
    assert [*found] == [*values(), "label"] and found["label"].tolist() == order
    for name, value in values().items():
        assert_bit_equal(found[name], value[order])


def test_rows_that_are_not_there_are_counted(url):
    made(url)
    with pytest.raises(LimbeckError, match="2 of 3 rows are not stored"):
        open_store(url).take(np.array([7, 5, 6, 5]))
    assert open_store(url).missing(np.array([7, 5, 6, 5])).tolist() == [5, 6]
    with pytest.raises(LimbeckError, match="nothing is not stored"):
        open_store(url).take(IDS, ["nothing"])


def test_an_interrupted_store_is_continued_and_not_read(url):
    files = made(url, shards=2)
    with pytest.raises(LimbeckError, match="incomplete: 4 of 5"):
        open_store(url)
    assert open_store(url, allow_incomplete=True).row_ids.tolist() == IDS[:4].tolist()
    writer = StoreWriter.begin(files, manifest(labelled=True))
    assert writer.done == {shard_name(0), shard_name(1)}
    with pytest.raises(LimbeckError, match="4 of 5 rows"):
        writer.finish()
    writer.record(write_shard(files, shard_name(2), part(4, 5)), layout())
    writer.finish()
    assert open_store(url).row_ids.tolist() == IDS.tolist()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"classes": ("no", "yes")}, ["classes"]),
        ({"settings": {"precision": "bf16", "shard_rows": 2}}, ["precision"]),
        (
            {
                "teacher": TeacherIdentity(name="teacher", fingerprint={"weights": "v"}),
                "rows": RowsIdentity(count=6, fingerprint="s", columns=("sentence",)),
            },
            ["rows", "teacher length", "teacher weights"],
        ),
    ],
)
def test_another_question_is_refused_naming_all_that_differs(tmp_path, change, said):
    files = made(str(tmp_path), shards=2)
    with pytest.raises(LimbeckError) as error:
        StoreWriter.begin(files, manifest(labelled=True, **change))
    messages = [problem.message for problem in error.value.problems]
    assert all(f"other {name}:" in text for name, text in zip(said, messages, strict=True))
    assert open_store(str(tmp_path), allow_incomplete=True).manifest.stored_rows == 4


def test_a_folder_of_other_things_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(LimbeckError, match="holds other files: thesis"):
        StoreWriter.begin(StoreFiles(str(tmp_path)), manifest())
    with pytest.raises(LimbeckError, match="is no store"):
        open_store(tmp_path)


def test_a_damaged_or_missing_shard_is_said_and_made_again(tmp_path):
    files = made(str(tmp_path))
    content = bytearray(files.read(shard_name(1)))
    content[len(content) // 2] ^= 1
    files.write(shard_name(1), bytes(content))
    files.remove(shard_name(2))
    store = open_store(tmp_path)
    with pytest.raises(LimbeckError, match=r"shard-00002.* is missing"):
        store.take(IDS[4:])
    store.row_ids = IDS
    with pytest.raises(LimbeckError, match=r"shard-00001.* is damaged"):
        store.take(IDS[2:4])
    assert_bit_equal(store.take(IDS[:2])["logits"], values()["logits"][:2])
    writer = StoreWriter.begin(files, manifest(labelled=True))
    assert writer.done == {shard_name(0)} and not writer.manifest.complete


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: text.replace('"count": 5', '"count": 6'), "damaged"),
        (lambda text: text[:50], "not valid JSON"),
        (lambda text: text.replace('"version": 1', '"version": 2'), "format 2"),
        (lambda text: json.dumps({"limbeck": "1"}), "not the manifest"),
        (lambda text: "[]", "not the manifest"),
    ],
)
def test_a_manifest_that_is_not_what_was_written_is_refused(tmp_path, damage, said):
    files = made(str(tmp_path))
    path = tmp_path / "manifest.json"
    path.write_text(damage(path.read_text()))
    for question in (lambda: open_store(tmp_path), lambda: StoreWriter.begin(files, manifest())):
        with pytest.raises(LimbeckError, match=said):
            question()


def test_a_manifest_names_files_of_its_own_folder_alone(tmp_path):
    content = made(str(tmp_path)).read("manifest.json").decode()
    for name in ("../shard", "/etc/passwd", ".hidden", "a\\b"):
        found = json.loads(content)
        found["shards"][0]["name"] = name
        found.pop("checksum")
        with pytest.raises(LimbeckError, match="not the name of a file"):
            StoreManifest.read(_signed(found), "manifest.json")


def _signed(content: dict) -> bytes:
    own = checksum_of_text(json.dumps(content, sort_keys=True))
    return json.dumps(content | {"checksum": own}).encode()


def test_columns_must_stay_the_same(tmp_path):
    files = made(str(tmp_path), shards=1)
    writer = StoreWriter.begin(files, manifest(labelled=True))
    fewer = OutputLayout(layout().columns[:1])
    table = shard_table(IDS[2:4], {}, None, fewer, {"logits": values()["logits"][2:4]})
    with pytest.raises(LimbeckError, match="has the columns logits"):
        writer.record(write_shard(files, shard_name(1), table), fewer)


def test_an_address_that_nobody_knows_is_said():
    with pytest.raises(LimbeckError, match="nowhere://x"):
        open_store("nowhere://x")


def test_equal_rows_are_equal_bytes(tmp_path):
    one, other = made(str(tmp_path / "a")), made(str(tmp_path / "b"))
    for number in range(3):
        assert one.read(shard_name(number)) == other.read(shard_name(number))
    assert one.read("manifest.json") == other.read("manifest.json")
