"""What is a remote store, at every level and from every kind of source, and what is not."""

import os
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafka_forensics.parsers.log_dir import Discovery, discover
from kafka_forensics.storage.open import open_source
from kafka_forensics.storage.source import ByteSource
from kafka_forensics.storage.tiered import RemotePart, list_store, stored_object
from tests.support.object_stores import S3Proxy, S3Server
from tests.support.remote_stores import TieredSegment, kafka_id, put_aiven, put_local
from tests.support.segments import batch, segment_file

DASHES = "-_--__--AAAA____BBBB-Q"
"""An id full of the characters that also separate the parts of names."""
SEGMENTS = (
    TieredSegment("topic", kafka_id(1), 0, kafka_id(2), 0, batch(0)),
    TieredSegment("topic", kafka_id(1), 0, kafka_id(3), 1, batch(1)),
    TieredSegment("topic", kafka_id(1), 10, kafka_id(4), 0, batch(0)),
    TieredSegment("a.b-7-0_c-1", DASHES, 3, DASHES, 12345678901234567, batch(12345678901234567)),
)
PUT: dict[str, Callable[[Path, TieredSegment], Path]] = {"local": put_local, "aiven": put_aiven}
NAMES = {"local": "LocalTieredStorage", "aiven": "Aiven's tiered storage"}
LEVELS = {
    "local": {"parent": "", "root": "remote", "partition": "remote/" + SEGMENTS[3].local_directory},
    "aiven": {
        "parent": "",
        "root": "remote",
        "topic": f"remote/a.b-7-0_c-1-{DASHES}",
        "partition": "remote/" + SEGMENTS[3].aiven_directory,
    },
}
EVERY_LEVEL = [(layout, level) for layout, levels in LEVELS.items() for level in levels]


def write_stores(root: Path, layout: str) -> None:
    for segment in SEGMENTS:
        PUT[layout](root / "remote", segment)


def listed(source: ByteSource, layout: str) -> set[tuple[str, str, int, int, str]]:
    """What the only store in a source holds, after reading a part of each segment."""
    found = discover(source)
    assert found == Discovery(remote_stores=found.remote_stores)
    (directory,) = found.remote_stores
    store = list_store(source, directory.path)
    assert store.layout.name == NAMES[layout]
    rows = set()
    for log in store.logs.values():
        for segment in log.segments.values():
            with store.open(log, segment, RemotePart.LOG) as file:
                assert file.read_at(0, 1000) == batch(segment.start_offset)
            rows.add((log.topic, log.topic_id, log.partition, segment.start_offset, segment.segment_id))
    return rows


def expected(level: str) -> set[tuple[str, str, int, int, str]]:
    rows = {(segment.topic, segment.topic_id, segment.partition, segment.start_offset, segment.segment_id) for segment in SEGMENTS}
    return rows if level in {"parent", "root"} else {row for row in rows if row[1] == DASHES}


def tar_of(folder: Path, archive: Path) -> None:
    with tarfile.open(archive, "w:xz") as opened:
        opened.add(folder, ".")


def zip_of(folder: Path, archive: Path) -> None:
    with zipfile.ZipFile(archive, "w") as opened:
        for path in sorted(folder.rglob("*")):
            opened.write(path, path.relative_to(folder).as_posix())


@pytest.mark.parametrize(("layout", "level"), EVERY_LEVEL)
def test_a_store_is_recognised_at_every_level(layout: str, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_stores(tmp_path / "copies", layout)
    place = tmp_path / "copies" / LEVELS[layout][level]
    assert listed(open_source(str(place)), layout) == expected(level)
    monkeypatch.chdir(place)
    assert listed(open_source("."), layout) == expected(level)


@pytest.mark.parametrize(("suffix", "make"), [(".tar.xz", tar_of), (".zip", zip_of)], ids=["tar.xz", "zip"])
@pytest.mark.parametrize(("layout", "level"), EVERY_LEVEL)
def test_a_store_is_recognised_in_an_archive_named_as_its_folder(
    layout: str, level: str, suffix: str, make: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    write_stores(tmp_path / "copies", layout)
    folder = (tmp_path / "copies" / LEVELS[layout][level]).resolve()
    archive = Path(f"{folder}{suffix}")
    make(folder, archive)
    assert listed(open_source(str(archive)), layout) == expected(level)


@pytest.mark.usefixtures("credentials")
@pytest.mark.parametrize("layout", list(PUT))
def test_a_store_is_recognised_on_s3_at_every_level(s3: S3Server, tmp_path: Path, layout: str) -> None:
    write_stores(tmp_path, layout)
    s3.upload(tmp_path, f"tiered-{layout}", "copies")
    for level, path in LEVELS[layout].items():
        assert listed(open_source(f"s3://tiered-{layout}/copies/{path}".rstrip("/")), layout) == expected(level)


@pytest.mark.usefixtures("credentials")
@pytest.mark.parametrize("layout", list(PUT))
def test_finding_a_store_takes_no_request_for_each_partition(
    s3: S3Server, proxy: S3Proxy, tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for partition in range(40):
        PUT[layout](tmp_path / "remote", TieredSegment("t", kafka_id("t"), partition, kafka_id(partition), 0, b""))
        PUT[layout](tmp_path / "remote", TieredSegment("u", kafka_id("u", partition), 0, kafka_id(partition), 0, b""))
    s3.upload(tmp_path, f"many-{layout}", "copies")
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
    source = open_source(f"s3://many-{layout}/copies")
    assert len(discover(source).remote_stores) == 1
    assert len(proxy.of("GET", "list-type=2")) < 10


@pytest.mark.parametrize("layout", list(PUT))
def test_an_object_by_itself_is_recognised_by_its_path(layout: str, tmp_path: Path) -> None:
    path = PUT[layout](tmp_path, SEGMENTS[3])
    log = stored_object(str(path))
    assert log is not None
    assert (log.topic, log.topic_id, log.partition) == ("a.b-7-0_c-1", DASHES, 3)
    assert [(segment.segment_id, segment.start_offset) for segment in log.segments.values()] == [(DASHES, 12345678901234567)]
    assert stored_object(str(path.parent.parent.parent / path.name)) is None


@pytest.mark.parametrize("prefix", ["", "some/prefix/", "deep/er/than/this/", "prefix-", "rack=1:", "kafka.7-"])
def test_objects_of_the_plugin_are_found_behind_any_prefix(prefix: str, tmp_path: Path) -> None:
    for segment in SEGMENTS:
        put_aiven(tmp_path, segment, prefix=prefix)
    source = open_source(str(tmp_path / (prefix.partition("/")[0] if prefix.startswith("deep") else "")))
    (directory,) = discover(source).remote_stores
    logs = list_store(source, directory.path).logs
    glued = prefix.rpartition("/")[2]
    assert {(log.topic, log.topic_id, log.partition) for log in logs.values()} == {
        (glued + segment.topic, segment.topic_id, segment.partition) for segment in SEGMENTS
    }


def broker(folder: Path, name: str = "t-0") -> None:
    (folder / name).mkdir(parents=True)
    (folder / "meta.properties").write_text("version=1\nbroker.id=1\n")
    (folder / name / segment_file(0)).write_bytes(batch(0))


def log_directories(found: Discovery) -> dict[str, list[str]]:
    return {log_dir.path: sorted(partition.name for partition in log_dir.partitions) for log_dir in found.log_directories}


@pytest.mark.parametrize("layout", list(PUT))
def test_log_directories_beside_and_around_a_store_are_read(layout: str, tmp_path: Path) -> None:
    broker(tmp_path / "broker-1")
    broker(tmp_path / "remote" / "broker-2")
    write_stores(tmp_path, layout)
    found = discover(open_source(str(tmp_path)))
    assert log_directories(found) == {"broker-1": ["t-0"], "remote/broker-2": ["t-0"]}
    assert [entry.path for entry in found.remote_stores] == ["remote"]
    store = list_store(open_source(str(tmp_path)), "remote")
    assert len(store.logs) == 3

    write_stores(tmp_path / "broker-1", layout)
    found = discover(open_source(str(tmp_path)))
    assert log_directories(found) == {"broker-1": ["t-0"], "remote/broker-2": ["t-0"]}
    assert [entry.path for entry in found.remote_stores] == ["broker-1/remote", "remote"]


@pytest.mark.parametrize("name", [f"copy-3-{DASHES}", f"copy-{DASHES}"])
def test_names_alone_make_no_store(name: str, tmp_path: Path) -> None:
    broker(tmp_path / name)
    (tmp_path / f"empty-1-{DASHES}").mkdir()
    found = discover(open_source(str(tmp_path)))
    assert (list(log_directories(found)), found.remote_stores) == ([name], [])
    found = discover(open_source(str(tmp_path / name)))
    assert (list(log_directories(found)), found.remote_stores) == ([""], [])


@pytest.mark.parametrize("name", ["t-0", f"t-{DASHES}-0", "t-0.0123456789abcdef0123456789abcdef-delete", f"t-{DASHES}"])
def test_partition_directories_are_no_store(name: str, tmp_path: Path) -> None:
    broker(tmp_path, name)
    found = discover(open_source(str(tmp_path)))
    assert ([log_dir.path for log_dir in found.log_directories], found.remote_stores) == ([""], [])


@pytest.mark.parametrize(
    "name",
    [
        f"t-0-{kafka_id(1)}/{0:020d}-{kafka_id(2)}.log.tmp",
        f"t-0-{kafka_id(1)}/{0:019d}-{kafka_id(2)}.log",
        f"t-0-{kafka_id(1)}/{0:020d}-{kafka_id(2)}x.log",
        f"t-0-{kafka_id(1)}/{0:020d}-{kafka_id(2)[:-1]}B.log",
        f"t-00-{kafka_id(1)}/{0:020d}-{kafka_id(2)}.log",
        f"t-{kafka_id(1)}/0/{0:020d}-{kafka_id(2)}.index",
        f"t-{kafka_id(1)}/x/{0:020d}-{kafka_id(2)}.log",
        f"{0:020d}-{kafka_id(2)}.log",
    ],
)
def test_files_with_other_names_are_no_objects(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    assert stored_object(str(path)) is None
    assert discover(open_source(str(tmp_path))).remote_stores == []


def test_a_store_of_deleted_topics_is_one_without_objects(tmp_path: Path) -> None:
    for partition in range(3):
        (tmp_path / f"remote/gone-{partition}-{kafka_id(partition)}").mkdir(parents=True)
    source = open_source(str(tmp_path))
    (directory,) = discover(source).remote_stores
    store = list_store(source, directory.path)
    assert (store.layout.name, store.logs) == ("LocalTieredStorage", {})


def test_what_is_not_an_object_of_the_store_is_left_out(tmp_path: Path) -> None:
    first, second = SEGMENTS[:2]
    put_local(tmp_path, first)
    put_aiven(tmp_path, SEGMENTS[3])
    directory = tmp_path / first.local_directory
    (directory / "note.txt").write_bytes(b"")
    (directory / f"{2**63:020d}-{kafka_id(9)}.log").write_bytes(b"")
    (directory / f"{7:020d}-{first.segment_id}.log").write_bytes(b"")
    (tmp_path / "README").write_bytes(b"")
    store = list_store(open_source(str(tmp_path)), "")
    assert set(store.logs) == {(first.topic_id, 0)}
    (log,) = store.logs.values()
    assert {segment.start_offset for segment in log.segments.values()} == {first.start_offset}

    for segment in (first, second):
        put_aiven(tmp_path / "both", segment, prefix="new/")
    put_aiven(tmp_path / "both", first, prefix="new/old.")
    store = list_store(open_source(str(tmp_path / "both")), "new")
    (log,) = store.logs.values()
    assert (log.topic, len(log.segments)) == ("topic", 2)


def circles(root: Path) -> Iterator[Path]:
    """Links in a store that lead up, to themselves, and to a partition's directory."""
    for number, target in enumerate((root, root / "remote", root / "remote" / SEGMENTS[0].local_directory)):
        for place in (root / "remote", root / "remote" / SEGMENTS[0].local_directory):
            link = place / f"circle-{number}-{kafka_id(number)}"
            link.symlink_to(os.path.relpath(target, place))
            yield link
    (root / "remote" / f"self-0-{kafka_id()}").symlink_to(f"self-0-{kafka_id()}")


@pytest.mark.parametrize("form", ["folder", "tar"])
def test_links_that_lead_in_circles_end(form: str, tmp_path: Path) -> None:
    write_stores(tmp_path / "copies", "local")
    assert len(list(circles(tmp_path / "copies"))) == 6
    source = open_source(str(tmp_path / "copies"))
    if form == "tar":
        tar_of(tmp_path / "copies", tmp_path / "copies.tar.xz")
        source = open_source(str(tmp_path / "copies.tar.xz"))
    assert "remote" in [entry.path for entry in discover(source).remote_stores]
    store = list_store(source, "remote")
    assert {(log.topic, log.partition): len(log.segments) for log in store.logs.values()} == {
        ("topic", 0): 2,
        ("topic", 10): 1,
        ("a.b-7-0_c-1", 3): 1,
    }


def test_partitions_that_are_links_are_listed(tmp_path: Path) -> None:
    write_stores(tmp_path / "copies", "local")
    linked = tmp_path / "copies" / "linked"
    linked.mkdir()
    for directory in (tmp_path / "copies" / "remote").iterdir():
        (linked / directory.name).symlink_to(f"../remote/{directory.name}")
    (tmp_path / "copies" / "whole").symlink_to("linked")
    source = open_source(str(tmp_path / "copies"))
    for path in ("linked", "whole"):
        assert len(list_store(source, path).logs) == 3
