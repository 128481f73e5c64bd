"""What is not followed, and what is no file where one should be: exit 3, named first, and nothing is lost because of it."""

import io
import json
import os
import shutil
import socket
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafka_forensics.evidence.inputs import NotRead, gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.storage.source import EntryKind
from tests.support.faults import Brokers, healthy
from tests.support.plan_runs import Run

LOSSES = {
    "COMMITTED_LOST_EVERYWHERE",
    "REPLICA_MISSING",
    "SEGMENT_MISSING",
    "OFFSET_GAP",
    "LEADER_LOST_COMMITTED",
    "UNCLEAN_LOSS",
    "HW_BEYOND_LEO",
    "ISR_MEMBER_MISSING_COMMITTED",
    "CHECKPOINT_OUT_OF_ORDER",
}
Place = Callable[[Brokers, Path], Path]
Fill = Callable[[Path, Path], None]


@pytest.fixture
def brokers(tmp_path: Path) -> Brokers:
    return healthy(tmp_path / "brokers")


@pytest.fixture
def short_socket() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as opened:
        yield opened


def outside(place: Path, kept: Path) -> None:
    """A link to what was there, which is not given."""
    place.symlink_to(kept)


def dangling(place: Path, kept: Path) -> None:
    """A link to nothing."""
    place.symlink_to(kept.with_name("nowhere"))


def circle(place: Path, _: Path) -> None:
    """A link to itself."""
    place.symlink_to(place.name)


def too_long(place: Path, kept: Path) -> None:
    """Nine links in a row, the last of which leads to what was there, within the log directory given."""
    chain = [place.parent / f"link{number}" for number in range(8)]
    kept.rename(place.parent / "kept.bak")
    for link, target in zip([place, *chain], [*chain, place.parent / "kept.bak"], strict=True):
        link.symlink_to(target.name)


def pipe(place: Path, _: Path) -> None:
    """A pipe."""
    os.mkfifo(place)


FILLS: dict[str, Fill] = {"outside": outside, "dangling": dangling, "circle": circle, "pipe": pipe}
PLACES: dict[str, str] = {
    "partition": "b2/t-0",
    "first segment": f"b2/t-0/{0:020d}.log",
    "middle segment": f"b2/t-0/{29:020d}.log",
    "last segment": f"b2/t-0/{55:020d}.log",
}


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("fill", FILLS)
def test_what_is_not_read_is_first_and_nothing_is_lost_by_it(
    run: Run, brokers: Brokers, tmp_path: Path, where: str, fill: str
) -> None:
    place = brokers.root / PLACES[where]
    place.rename(tmp_path / "kept")
    FILLS[fill](place, tmp_path / "kept")
    status, out, err = run("scan", *brokers.log_dirs, "--format", "json")
    answer = json.loads(out)
    reason = "not a regular file" if fill == "pipe" else "a symbolic link, not followed: "
    assert status == 3
    assert answer["incomplete"][0]["path"] == str(place)
    assert answer["incomplete"][0]["reason"].startswith(reason)
    assert len({(one["path"], one["reason"]) for one in answer["incomplete"]}) == len(answer["incomplete"])
    assert f"incomplete: {place}: {reason}" in err
    assert LOSSES.isdisjoint(one["kind"] for one in answer["findings"])
    assert answer["summary"]["findings"]["critical"] == answer["summary"]["findings"]["error"] == 0


@pytest.mark.parametrize("everywhere", ["partition", "middle segment"])
def test_what_is_read_nowhere_is_not_lost(run: Run, brokers: Brokers, tmp_path: Path, everywhere: str) -> None:
    for broker in (1, 2, 3):
        place = brokers.root / PLACES[everywhere].replace("b2", f"b{broker}")
        place.rename(tmp_path / f"kept-{broker}")
        place.symlink_to(tmp_path / f"kept-{broker}")
    status, out, _ = run("scan", *brokers.log_dirs, "--format", "json")
    answer = json.loads(out)
    assert (status, len(answer["incomplete"])) == (3, 3)
    assert LOSSES.isdisjoint(one["kind"] for one in answer["findings"])


COMMANDS = {
    "scan": [],
    "compare": ["--topic", "t", "--partition", "0"],
    "transactions": [],
    "epochs": [],
    "find": ["--offset", "0"],
    "plan": ["--topic", "t", "--partition", "0"],
    "dump": [],
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("fill", ["outside", "circle", "pipe"])
def test_every_command_is_incomplete(run: Run, brokers: Brokers, tmp_path: Path, command: str, fill: str) -> None:
    place = brokers.root / PLACES["middle segment"]
    place.rename(tmp_path / "kept")
    FILLS[fill](place, tmp_path / "kept")
    status, _, err = run(command, *brokers.log_dirs, *COMMANDS[command])
    assert (status, str(place) in err) == (3, True)


def test_more_links_in_a_row_than_are_followed(run: Run, brokers: Brokers, tmp_path: Path) -> None:
    place = brokers.root / PLACES["middle segment"]
    place.rename(tmp_path / "kept")
    too_long(place, tmp_path / "kept")
    status, out, _ = run("scan", *brokers.log_dirs, "--format", "json")
    assert (status, json.loads(out)["incomplete"][0]["reason"]) == (
        3,
        "a symbolic link, not followed: more than 8 links follow each other",
    )
    place.unlink()
    place.symlink_to("link1")
    assert run("scan", *brokers.log_dirs, "--format", "json")[0] == 0


@pytest.mark.parametrize("pack", ["tar", "tar.gz", "zip"])
def test_an_archive_is_like_a_directory(run: Run, brokers: Brokers, tmp_path: Path, pack: str) -> None:
    """A followed link is like none; one that leads out is incomplete, whatever lies there outside the archive."""
    wanted = json.loads(run("scan", archived(brokers.root, tmp_path / "plain", pack), "--format", "json")[1])
    place = brokers.root / PLACES["middle segment"]
    (brokers.root / "store").mkdir()
    place.rename(brokers.root / "store" / "somewhere")
    place.symlink_to("../../store/somewhere")
    (brokers.root / "b3" / "t-0").rename(brokers.root / "store" / "t-0")
    (brokers.root / "b3" / "t-0").symlink_to("/brokers/store/t-0")
    status, out, _ = run("scan", archived(brokers.root, tmp_path / "linked", pack), "--format", "json")
    answer = json.loads(out)
    assert (status, answer["partitions"], answer["findings"]) == (0, renamed(wanted["partitions"]), wanted["findings"])
    place.unlink()
    place.symlink_to("../../../../../../etc/passwd")
    status, out, _ = run("scan", archived(brokers.root, tmp_path / "out", pack), "--format", "json")
    answer = json.loads(out)
    assert (status, [one["reason"] for one in answer["incomplete"]]) == (
        3,
        ["a link, not followed: it leads out of what was given"],
    )
    assert LOSSES.isdisjoint(one["kind"] for one in answer["findings"])


def renamed(partitions: list[dict[str, object]]) -> object:
    return json.loads(json.dumps(partitions).replace("/plain.", "/linked."))


def archived(root: Path, path: Path, pack: str) -> Path:
    """The folder in an archive, its links as links."""
    path = path.with_name(f"{path.name}.{pack}")
    if pack == "zip":
        with zipfile.ZipFile(path, "w") as out:
            for item in sorted(root.rglob("*")):
                name = str(item.relative_to(root.parent))
                if item.is_symlink():
                    info = zipfile.ZipInfo(name)
                    info.create_system, info.external_attr = 3, 0o120777 << 16
                    out.writestr(info, os.readlink(item))
                elif item.is_file():
                    out.write(item, name)
        return path
    with tarfile.open(path, "w:gz") if pack.endswith("gz") else tarfile.open(path, "w") as tar:
        tar.add(root, root.name)
    return path


def test_a_hard_link_in_a_tar_is_its_member(run: Run, brokers: Brokers, tmp_path: Path) -> None:
    log = brokers.root / PLACES["middle segment"]
    (brokers.root / "b0").mkdir()
    os.link(log, brokers.root / "b0" / "first-in-the-archive")
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.add(brokers.root, "brokers")
    assert run("scan", tmp_path / "a.tar", "--format", "json")[0] == 0
    data = io.BytesIO()
    with tarfile.open(tmp_path / "a.tar") as whole, tarfile.open(fileobj=data, mode="w") as lacking:
        for member in whole:
            if not member.name.endswith("first-in-the-archive"):
                lacking.addfile(member, whole.extractfile(member) if member.isreg() else None)
    (tmp_path / "a.tar").write_bytes(data.getvalue())
    status, out, _ = run("scan", tmp_path / "a.tar", "--format", "json")
    answer = json.loads(out)
    assert (status, answer["incomplete"][0]["reason"]) == (3, "not a regular file")
    assert LOSSES.isdisjoint(one["kind"] for one in answer["findings"])


def test_what_is_not_read_is_known_by_place_and_name(brokers: Brokers, tmp_path: Path) -> None:
    """For whoever must decide what is missing."""
    two = brokers.log_dir(2)
    (tmp_path / "outside").mkdir()
    (two / "t-0" / f"{29:020d}.log").unlink()
    (two / "t-0" / f"{29:020d}.log").symlink_to(tmp_path / "outside")
    (two / "u-3").symlink_to(tmp_path / "outside")
    os.mkfifo(two / "v-0")
    (two / "log-start-offset-checkpoint").unlink()
    (two / "log-start-offset-checkpoint").symlink_to("/etc/passwd")
    (brokers.root / "b4").symlink_to(tmp_path / "outside")
    (brokers.root / "w-1").symlink_to(tmp_path / "outside")
    link, other = EntryKind.SYMLINK, EntryKind.OTHER
    why = "a symbolic link, not followed: it leads out of what was given"
    inputs = gather([str(brokers.root)], ScanOptions())
    segment, checkpoint = f"{29:020d}.log", "log-start-offset-checkpoint"
    assert sorted(inputs.not_read, key=lambda read: read.path) == [
        NotRead(str(two / checkpoint), link, why, 2, str(two), None, checkpoint),
        NotRead(str(two / "t-0" / segment), link, why, 2, str(two), "t-0", segment),
        NotRead(str(two / "u-3"), link, why, 2, str(two), "u-3"),
        NotRead(str(two / "v-0"), other, "not a regular file", 2, str(two), "v-0"),
        NotRead(str(brokers.root / "b4"), link, why),
        NotRead(str(brokers.root / "w-1"), link, why, directory="w-1"),
    ]
    assert {incomplete.path for incomplete in inputs.incomplete} == {read.path for read in inputs.not_read}


def test_links_into_another_replica_are_no_second_copy(run: Run, brokers: Brokers) -> None:
    """Broker 2's middle segment is broker 1's: what only broker 1 has is not said to be held by both."""
    place = brokers.root / PLACES["middle segment"]
    place.unlink()
    place.symlink_to("../../b1/t-0/" + place.name)
    status, out, err = run("scan", *brokers.log_dirs, "--format", "json")
    answer = json.loads(out)
    assert (status, answer["incomplete"][0]["path"]) == (3, str(place))
    assert answer["incomplete"][0]["reason"] == f"a link to {brokers.root}/b1/t-0/{place.name}, which is read there"
    assert f"{place} is {brokers.root}/b1/t-0/{place.name} as well: read once" in err
    assert LOSSES.isdisjoint(one["kind"] for one in answer["findings"])


@pytest.mark.parametrize("given", ["folder", "each"])
def test_a_link_and_its_target_are_one_replica(run: Run, brokers: Brokers, given: str) -> None:
    """Broker 2 moved its partition to a second disk and left a link; both disks are given."""
    disk = brokers.root / "b2-second"
    disk.mkdir()
    shutil.copy(brokers.log_dir(2) / "meta.properties", disk)
    (brokers.log_dir(2) / "t-0").rename(disk / "t-0")
    (brokers.log_dir(2) / "t-0").symlink_to(disk / "t-0")
    paths = [brokers.root] if given == "folder" else sorted(brokers.root.iterdir())
    status, out, err = run("scan", *paths, "--format", "json")
    answer = json.loads(out)
    (partition,) = answer["partitions"]
    assert (status, [(one["broker"], one["log_dir"]) for one in partition["replicas"]]) == (
        0,
        [(1, str(brokers.log_dir(1))), (2, str(disk)), (3, str(brokers.log_dir(3)))],
    )
    assert f"{brokers.log_dir(2)}/t-0 is in {disk}/t-0 as well: read once" in err
    assert "REPLICA_MISSING" not in {one["kind"] for one in answer["findings"]}


def test_a_directory_of_links_that_lead_back_ends(run: Run, brokers: Brokers) -> None:
    """Links to all above and beside: each directory is read once, and in little time."""
    for folder in (brokers.root, *brokers.log_dirs):
        for number, target in enumerate([brokers.root, *brokers.log_dirs] * 20):
            (folder / f"link{number}").symlink_to(target)
    status, out, err = run("scan", brokers.root, "--format", "json")
    answer = json.loads(out)
    assert (status, [one["broker"] for one in answer["partitions"][0]["replicas"]]) == (0, [1, 2, 3])
    assert err.count("read once") <= 4


@pytest.mark.parametrize("command", ["scan", "plan", "dump", "epochs"])
def test_strange_pipes_and_sockets_beside_log_directories_are_skipped(
    run: Run, brokers: Brokers, command: str, short_socket: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(brokers.root / "control")
    os.mkfifo(brokers.log_dir(1) / "control")
    monkeypatch.chdir(brokers.root)
    short_socket.bind("agent.sock")
    extra = COMMANDS.get(command, [])
    assert run(command, brokers.root, *extra)[0] == 0
    status, _, err = run(command, *sorted(brokers.root.iterdir()), *extra)
    assert (status, err.count("skipped, as nothing of Kafka's is in them: ")) == (0, 1)
    assert "agent.sock" in err
    os.mkfifo(brokers.root / "t-7")
    status, _, err = run(command, *sorted(brokers.root.iterdir()), *extra)
    assert (status, f"{brokers.root}/t-7: neither a regular file nor a directory" in err) == (3, True)
