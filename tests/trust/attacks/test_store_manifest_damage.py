"""A store whose manifest is damaged is refused with a way out that works."""

from __future__ import annotations

import shutil

import pytest

from limbeck.outputs.files import StoreFiles
from limbeck.outputs.manifest import RowsIdentity, StoreManifest, TeacherIdentity
from limbeck.outputs.store import open_store
from limbeck.outputs.writer import StoreWriter
from limbeck.support.errors import LimbeckError

ABOUT = StoreManifest(
    complete=False,
    kind="sentence",
    classes=("negative", "positive"),
    teacher=TeacherIdentity(name="teacher", fingerprint={"weights": "w"}),
    rows=RowsIdentity(count=5, fingerprint="r", columns=("sentence",)),
)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:50],
        lambda text: "",
        lambda text: text.replace('"count": 5', '"count": 6'),
        lambda text: text.replace('"count": 5', '"count": 5, "count": 5'),
        lambda text: text.replace('"count": 5', f'"count": {10**30}'),
        lambda text: text.replace('"version": 1', '"version": 2'),
    ],
)
def test_a_damaged_manifest_names_the_way_out(tmp_path, damage):
    place = tmp_path / "store"
    files = StoreFiles(str(place))
    StoreWriter.begin(files, ABOUT)
    (place / "manifest.json").write_text(damage((place / "manifest.json").read_text()))
    for ask in (lambda: StoreWriter.begin(files, ABOUT), lambda: open_store(place)):
        with pytest.raises(LimbeckError) as caught:
            ask()
        (problem,) = caught.value.problems
        assert f"delete the folder {place} and run" in problem.fix
        assert problem.fix.endswith("with another folder: --out")
    shutil.rmtree(place)
    assert StoreWriter.begin(files, ABOUT).manifest == ABOUT
