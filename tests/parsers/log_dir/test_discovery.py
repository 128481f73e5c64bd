import tarfile
from pathlib import Path

import pytest

from kafka_forensics.errors import SourceError
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.log_dir import Discovery, FileKind, LogDirectory, PartitionDirectory, discover
from kafka_forensics.storage.open import open_source
from kafka_forensics.storage.source import EntryKind
from tests.support.memory import MemorySource
from tests.support.segments import segment_file

ZERO = "00000000000000000000"
LATER = "00000000000000000370"
HEX = "0123456789abcdef" * 2


def files(*paths: str) -> dict[str, bytes]:
    return dict.fromkeys(paths, b"")


def found(*paths: str, name: str = "memory", **kinds: EntryKind) -> Discovery:
    return discover(MemorySource(files(*paths), name=name, kinds=kinds))


def only(discovery: Discovery) -> LogDirectory:
    (log_directory,) = discovery.log_directories
    return log_directory


def partition_of(discovery: Discovery) -> PartitionDirectory:
    (partition,) = only(discovery).partitions
    return partition


def paths_of(discovery: Discovery) -> dict[str, list[str]]:
    return {directory.path: [partition.name for partition in directory.partitions] for directory in discovery.log_directories}


def test_every_kind_of_entry_in_a_log_directory_is_found() -> None:
    log_dir_files = [".lock", ".DS_Store", ".kafka_cleanshutdown", "bootstrap.checkpoint", "meta.properties", "meta.properties.tmp"]
    checkpoints = [f"{kind}-offset-checkpoint" for kind in ("replication", "recovery-point", "log-start", "cleaner")]
    log_directory = only(
        found(
            *log_dir_files,
            *checkpoints,
            "orders-0/partition.metadata",
            "remote-log-index-cache/0_x.index",
            "notes.txt",
            "quorum-state",
            **{"lost+found": EntryKind.DIRECTORY, "link-0": EntryKind.SYMLINK, "pipe": EntryKind.OTHER},
        )
    )
    assert log_directory.path == ""
    assert sorted(log_directory.entries) == sorted([*log_dir_files, *checkpoints, "lost+found", "remote-log-index-cache"])
    assert [partition.name for partition in log_directory.partitions] == ["orders-0"]
    assert [entry.path for entry in log_directory.unknown] == ["notes.txt", "quorum-state"]
    assert [entry.path for entry in log_directory.irregular] == ["link-0", "pipe"]


def test_every_kind_of_entry_in_a_partition_is_found() -> None:
    names = [
        f"{LATER}.log",
        f"{LATER}.index",
        f"{LATER}.timeindex",
        f"{LATER}.txnindex",
        f"{ZERO}.log",
        "00000000000000000009.index",
        f"{LATER}.snapshot",
        f"{ZERO}.snapshot",
        f"{LATER}-0000000002.checkpoint",
        f"{ZERO}-0000000000.checkpoint",
        f"{ZERO}.log.deleted",
        f"{ZERO}.snapshot.deleted",
        "leader-epoch-checkpoint.tmp",
        f"{ZERO}-0000000000-77.checkpoint.part",
        "leader-epoch-checkpoint",
        "partition.metadata",
        "quorum-state",
        ".DS_Store",
        "99999999999999999999.log",
        "7.log",
        "meta.properties.tmp",
        "deeper/file",
    ]
    source = MemorySource(files("meta.properties", *(f"t-3/{name}" for name in names)), kinds={"t-3/link": EntryKind.SYMLINK})
    partition = partition_of(discover(source))
    assert (partition.path, partition.name, partition.topic, partition.partition) == ("t-3", "t-3", "t", 3)
    assert (partition.suffix, partition.legal) == (None, True)
    zero, nine, later = partition.segments
    assert (zero.base_offset, zero.log and zero.log.path, zero.index) == (0, f"t-3/{ZERO}.log", None)
    assert (nine.base_offset, nine.log, nine.index and nine.index.name) == (9, None, "00000000000000000009.index")
    later_files = (later.log, later.index, later.time_index, later.transaction_index)
    assert [entry and entry.name for entry in later_files] == names[:4]
    assert [(offset, entry.name) for offset, entry in partition.snapshots] == [(0, f"{ZERO}.snapshot"), (370, f"{LATER}.snapshot")]
    assert [row[:2] for row in partition.metadata_snapshots] == [(0, 0), (370, 2)]
    assert [(leftover.base_offset, leftover.kind, leftover.suffix) for leftover in partition.leftovers] == [
        (0, FileKind.METADATA_CHECKPOINT, "part"),
        (0, FileKind.LOG, "deleted"),
        (0, FileKind.PRODUCER_SNAPSHOT, "deleted"),
        (None, FileKind.LEADER_EPOCH_CHECKPOINT, "tmp"),
    ]
    assert sorted(partition.entries) == [".DS_Store", "leader-epoch-checkpoint", "partition.metadata", "quorum-state"]
    unknown = {"99999999999999999999.log", "7.log", "meta.properties.tmp", "deeper"}
    assert {entry.name for entry in partition.unknown} == unknown
    assert [entry.name for entry in partition.irregular] == ["link"]


@pytest.mark.parametrize("suffix", ["delete", "future", "stray"])
def test_partition_directories_with_a_suffix_are_found(suffix: str) -> None:
    partition = partition_of(found("meta.properties", f"t-3.{HEX}-{suffix}/{ZERO}.log"))
    assert (partition.topic, partition.partition, partition.suffix) == ("t", 3, suffix)
    assert partition.legal
    assert len(partition.segments) == 1


def test_a_directory_with_an_illegal_name_has_no_topic_and_no_segments() -> None:
    names = ["..-0", "<script>-0", "=cmd-0", "nodash", f"t-0.{HEX}-gone", "t\x1b[31m-0"]
    log_directory = only(found("meta.properties", *(f"{name}/{ZERO}.log" for name in names)))
    assert [partition.name for partition in log_directory.partitions] == sorted(names)
    for partition in log_directory.partitions:
        assert (partition.legal, partition.topic, partition.partition, partition.segments) == (False, None, None, [])
        assert [entry.path for entry in partition.unknown] == [f"{partition.name}/{ZERO}.log"]


def test_partitions_make_a_log_directory_without_its_files() -> None:
    discovery = found(f"logs/t-0/{ZERO}.log", "logs/t-1/empty", "logs/notes/readme", "logs/x!-1/readme", "golden/t-0")
    assert paths_of(discovery) == {"logs": ["t-0", "t-1", "x!-1"]}
    assert [entry.path for entry in only(discovery).unknown] == ["logs/notes"]
    assert [entry.path for entry in discovery.unknown] == ["golden/t-0"]


@pytest.mark.parametrize("log_dir_files", [["meta.properties"], ["replication-offset-checkpoint"], [".kafka_cleanshutdown"], []])
def test_log_directories_named_like_partitions_are_log_directories(log_dir_files: list[str]) -> None:
    paths = [f"broker-{number}/{name}" for number in (1, 2) for name in [*log_dir_files, f"t-0/{ZERO}.log"]]
    assert paths_of(found(*paths, "truth.json")) == {"broker-1": ["t-0"], "broker-2": ["t-0"]}


def test_log_directories_below_a_log_directory_are_found() -> None:
    discovery = found("meta.properties", f"t-0/{ZERO}.log", "old-1/meta.properties", f"old-1/t-0/{ZERO}.log", "x-2/y-3/z")
    assert paths_of(discovery) == {"": ["t-0", "x-2"], "old-1": ["t-0"]}


def test_directories_below_the_maximum_depth_are_not_searched() -> None:
    discovery = found("a/b/c/meta.properties", f"a/b/d/t-0/{ZERO}.log", "a/b/e/f/meta.properties", "a/b/e/f/g/h")
    assert paths_of(discovery) == {"a/b/c": [], "a/b/d": ["t-0"]}
    assert {entry.path for entry in discovery.unsearched} == {"a/b/e/f/meta.properties", "a/b/e/f/g"}
    assert discovery.unknown == []


@pytest.mark.parametrize(
    ("name", "topic", "partition"),
    [
        ("/evidence/t-3", "t", 3),
        ("/evidence/t-3/", "t", 3),
        ("s3://bucket/t-3.tar.gz", "t", 3),
        (f"t-3.{HEX}-stray.zip", "t", 3),
        ("copy of t", None, None),
        (".", None, None),
    ],
)
def test_a_single_partition_is_read_with_any_name(name: str, topic: str | None, partition: int | None) -> None:
    discovery = found(f"{ZERO}.log", "leader-epoch-checkpoint", name=name)
    directory = partition_of(discovery)
    assert (only(discovery).path, directory.path, directory.topic, directory.partition) == ("", "", topic, partition)
    assert directory.legal == (topic is not None)
    assert [segment.base_offset for segment in directory.segments] == [0]


def test_single_partitions_in_a_folder_are_log_directories() -> None:
    discovery = found(f"audit of 1/{ZERO}.log", f"audit of 2/{ZERO}.log", "notes/text")
    assert paths_of(discovery) == {"audit of 1": ["audit of 1"], "audit of 2": ["audit of 2"]}
    assert [len(directory.partitions[0].segments) for directory in discovery.log_directories] == [1, 1]
    assert [entry.path for entry in discovery.unknown] == ["notes/text"]


def test_a_single_file_is_a_file_without_a_log_directory() -> None:
    discovery = discover(MemorySource({"": b"abc"}, name="x.log"))
    assert ([entry.size_in_bytes for entry in discovery.files], discovery.log_directories) == ([3], [])


def test_entries_that_are_not_from_kafka_are_unknown() -> None:
    discovery = found("a/readme", "b", **{"c": EntryKind.SYMLINK, "a/d": EntryKind.OTHER, "e": EntryKind.DIRECTORY})
    assert discovery.log_directories == []
    assert [entry.path for entry in discovery.unknown] == ["b", "a/readme"]
    assert [entry.path for entry in discovery.irregular] == ["c", "a/d"]
    assert discover(MemorySource({}, kinds={"": EntryKind.OTHER})).irregular[0].path == ""


def test_links_and_special_files_are_recorded_as_unreadable_under_their_names() -> None:
    links = ("t-0", "meta.properties", f"t-1/{ZERO}.log", f"t-1/{ZERO}.index", "t-1/partition.metadata", "t-1/strange", "backup")
    kinds = dict.fromkeys(links, EntryKind.SYMLINK) | dict.fromkeys(("u-0", "socket", ".lock", "t-1/pipe"), EntryKind.OTHER)
    discovery = discover(MemorySource(files("cleaner-offset-checkpoint", f"t-1/{LATER}.log"), kinds=kinds))
    log_directory, partition = only(discovery), partition_of(discovery)
    assert [entry.path for entry in log_directory.irregular] == [".lock", "backup", "meta.properties", "socket", "t-0", "u-0"]
    assert log_directory.entries["meta.properties"].kind is EntryKind.SYMLINK
    assert log_directory.unknown == []
    assert {(partition_name.topic, partition_name.partition) for partition_name in log_directory.unlisted} == {("t", 0), ("u", 0)}
    assert sorted(incomplete.path for incomplete in discovery.incomplete) == ["backup", "t-0", "u-0"]
    names = ["00000000000000000000.index", "00000000000000000000.log", "partition.metadata", "pipe", "strange"]
    assert [entry.name for entry in partition.irregular] == names
    first, second = partition.segments
    assert first.log is not None
    assert first.index is not None
    assert (first.log.unreadable, first.index.kind, second.index) == ("not a regular file", EntryKind.SYMLINK, None)
    assert set(partition.entries) == {"partition.metadata"}
    assert partition.unknown == []


def test_links_and_partition_names_beside_log_directories_are_incomplete() -> None:
    kinds = {"b2": EntryKind.SYMLINK, "t-0": EntryKind.OTHER, "pipe": EntryKind.OTHER, "notes.log": EntryKind.OTHER}
    discovery = found("b1/meta.properties", "README", **kinds)
    assert paths_of(discovery) == {"b1": []}
    assert sorted(incomplete.path for incomplete in discovery.incomplete) == ["b2", "t-0"]
    assert [entry.path for entry in discovery.irregular] == ["b2", "notes.log", "pipe", "t-0"]
    assert [entry.path for entry in discovery.unknown] == ["README"]


def test_directories_that_cannot_be_listed_are_incomplete_and_others_are_found() -> None:
    paths = ["b1/meta.properties", f"b1/t-0/{ZERO}.log", f"b1/t-1/{ZERO}.log", "b1/u-0/v/w", "b2/meta.properties"]
    discovery = discover(MemorySource(files(*paths), unreadable=["b1/t-0", "b2", "b1/u-0/v"]))
    assert paths_of(discovery) == {"b1": ["t-1", "u-0"]}
    assert sorted(discovery.incomplete, key=lambda row: row.path) == [
        Incomplete(path, "permission denied") for path in ("b1/t-0", "b1/u-0/v", "b2")
    ]
    with pytest.raises(SourceError):
        discover(MemorySource(files("a"), unreadable=[""]))


@pytest.mark.parametrize("archived", [False, True])
@pytest.mark.parametrize("place", ["zz", "aa", "aa/disk"])
@pytest.mark.parametrize("parent", ["", "parent"])
def test_a_partition_linked_within_its_log_directory_belongs_to_it(tmp_path: Path, archived: bool, place: str, parent: str) -> None:
    log_dir = tmp_path / "all" / parent / "b1"
    for name in ("t-0", "t-1"):
        (log_dir / place / name).mkdir(parents=True)
        (log_dir / place / name / segment_file(0)).write_bytes(b"")
        (log_dir / name).symlink_to(f"{place}/{name}")
    (log_dir / "meta.properties").write_text("version=1\nnode.id=1\n")
    path = tmp_path / "all"
    if archived:
        path = tmp_path / "all.tar"
        with tarfile.open(path, "w") as archive:
            archive.add(tmp_path / "all", "")
    found = discover(open_source(str(path)))
    (directory,) = found.log_directories
    assert [part.name for part in directory.partitions if part.legal] == ["t-0", "t-1"]
    assert all(part.segments for part in directory.partitions if part.legal)


def test_a_link_to_a_partition_of_another_log_directory_is_found_in_both(tmp_path: Path) -> None:
    for broker in (1, 2):
        (tmp_path / f"b{broker}").mkdir()
        (tmp_path / f"b{broker}" / "meta.properties").write_text(f"version=1\nnode.id={broker}\n")
    (tmp_path / "b2" / "t-0").mkdir()
    (tmp_path / "b2" / "t-0" / segment_file(0)).write_bytes(b"")
    (tmp_path / "b1" / "t-0").symlink_to("../b2/t-0")
    found = discover(open_source(str(tmp_path)))
    assert [[part.path for part in directory.partitions] for directory in found.log_directories] == [["b1/t-0"], ["b2/t-0"]]
