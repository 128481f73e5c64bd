"""Archives of real brokers ship with the tests; each is small, has its expected findings, and is replaced only by such an
archive."""

import hashlib
import shutil
from pathlib import Path

import pytest

from lab.errors import LabError
from lab.make_archives import ARCHIVES, MOST_BYTES, TESTS_ARCHIVES, pack, put
from lab.make_samples import DIVERGENCE, SAMPLE_LOGS, shortfalls
from tests.support.archives import archive_members
from tests.support.nightly import daily_subset


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_shipped_archives_are_listed_and_small() -> None:
    assert {path.name for path in TESTS_ARCHIVES.glob("*.xz")} == {f"{name}.tar.xz" for name in ARCHIVES}
    assert all(path.stat().st_size <= MOST_BYTES for path in TESTS_ARCHIVES.iterdir())
    readme = (TESTS_ARCHIVES / "README.md").read_text()
    assert all(f"`{name}.tar.xz`" in readme for name in ARCHIVES)


@pytest.mark.parametrize("name", daily_subset({"kafka-4.3.0-unclean"}, ARCHIVES))
def test_an_archive_has_its_expected_findings(name: str) -> None:
    assert shortfalls(TESTS_ARCHIVES / f"{name}.tar.xz", ARCHIVES[name]) == []


@pytest.mark.corpora
@pytest.mark.parametrize("name", ARCHIVES)
def test_shipped_archives_equal_those_of_the_corpora(corpora: Path, name: str) -> None:
    assert digest(TESTS_ARCHIVES / f"{name}.tar.xz") == digest(corpora / f"{name}.tar.xz")


def test_a_tree_is_packed_whole_and_without_owners(tmp_path: Path) -> None:
    name = "kafka-0.10.2.2-hw-divergence"
    tree = tmp_path / name
    shutil.copytree(SAMPLE_LOGS / DIVERGENCE, tree)
    with (tree / "broker-1" / "preallocated").open("wb") as file:
        file.truncate(10 << 20)
    pack(tree, tmp_path / "packed.tar.xz")
    packed = dict(archive_members(tmp_path / "packed.tar.xz", ".*"))
    assert packed == {str(path.relative_to(tmp_path)): path.read_bytes() for path in tree.rglob("*") if path.is_file()}
    assert (tmp_path / "packed.tar.xz").stat().st_size < 100_000
    replaced = put(tmp_path, name, tmp_path / "into")
    assert [path.name for path in (tmp_path / "into").iterdir()] == [f"{name}.tar.xz"]
    assert shortfalls(replaced, ARCHIVES[name]) == []


def test_a_large_archive_or_one_with_other_findings_replaces_nothing(tmp_path: Path) -> None:
    healthy, other = "kafka-4.3.0-healthy", "kafka-0.10.2.2-hw-divergence"
    shutil.copyfile(TESTS_ARCHIVES / f"{other}.tar.xz", tmp_path / f"{healthy}.tar.xz")
    with pytest.raises(LabError, match=r"besides: .*FORK_BELOW_HW"):
        put(tmp_path, healthy, tmp_path / "into")
    (tmp_path / f"{other}.tar.xz").write_bytes(bytes(MOST_BYTES + 1))
    with pytest.raises(LabError, match="may have 1,048,576"):
        put(tmp_path, other, tmp_path / "into")
    assert list((tmp_path / "into").iterdir()) == []
