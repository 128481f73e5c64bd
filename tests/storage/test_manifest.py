"""The manifest reports files that changed after they were recorded."""

import os
from pathlib import Path

import pytest

from kafka_forensics.storage.open import Manifest, open_source
from tests.storage.trees import CONTAINERS, LOG, SPARSE


@pytest.fixture
def evidence(tmp_path: Path) -> Path:
    root = tmp_path / "evidence"
    (root / "d").mkdir(parents=True)
    for name in ("a", "b", "c", "d/e", "f"):
        (root / name).write_bytes(name.encode() * 10)
    return root


def recorded(root: Path) -> Manifest:
    manifest = Manifest()
    source = open_source(str(root))
    for path in ("f", "c", "a", "b", "d/e"):
        manifest.record(source, source.stat(path))
    return manifest


def test_every_kind_of_change_is_reported_in_order_of_paths(evidence: Path) -> None:
    manifest = recorded(evidence)
    with (evidence / "f").open("ab") as file:
        file.write(b"more")
    os.utime(evidence / "c", ns=(1, 1))
    (evidence / "b").unlink()
    before = (evidence / "a").stat()
    (evidence / "replacement").write_bytes(b"x" * 10)
    os.utime(evidence / "replacement", ns=(before.st_atime_ns, before.st_mtime_ns))
    (evidence / "replacement").rename(evidence / "a")
    changes = manifest.changes()
    assert [path for path, _, _ in changes] == [f"{evidence}/{name}" for name in "abcf"]
    (_, a_before, a_after), (_, _, b_after), (_, c_before, c_after), (_, f_before, f_after) = changes
    assert a_after is not None
    assert (a_after.size_in_bytes, a_after.mtime_ns) == (a_before.size_in_bytes, a_before.mtime_ns)
    assert a_after.identity != a_before.identity
    assert b_after is None
    assert c_after is not None
    assert c_after.mtime_ns == 1 != c_before.mtime_ns
    assert f_after is not None
    assert f_after.size_in_bytes == f_before.size_in_bytes + 4


def test_a_file_replaced_by_a_link_is_a_change(evidence: Path) -> None:
    manifest = recorded(evidence)
    (evidence / "a").rename(evidence / "moved")
    (evidence / "a").symlink_to("moved")
    assert [path for path, _, _ in manifest.changes()] == [f"{evidence}/a"]


def test_the_first_recorded_entry_counts(evidence: Path) -> None:
    manifest = recorded(evidence)
    with (evidence / "a").open("ab") as file:
        file.write(b"more")
    source = open_source(str(evidence))
    manifest.record(source, source.stat("a"))
    assert len(manifest.changes()) == 1


@pytest.mark.parametrize("form", ["gz", "zip stored"])
def test_an_archive_is_recorded_as_one_file(form: str, tree: Path, tmp_path: Path) -> None:
    name, make = CONTAINERS[form]
    path = tmp_path / name
    make(tree, path)
    manifest = Manifest()
    source = open_source(str(path))
    for member in (LOG, SPARSE):
        manifest.record(source, source.stat(member))
    assert [recorded_path for recorded_path, _ in manifest.entries()] == [str(path)]
    assert manifest.changes() == []
    os.utime(path, ns=(5, 5))
    ((changed_path, before, after),) = manifest.changes()
    assert (changed_path, after is not None and after.mtime_ns) == (str(path), 5)
    assert before.size_in_bytes == path.stat().st_size
