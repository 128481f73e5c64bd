"""Links within the inputs are followed; other links, and entries that are not files, give status 3 and no finding of loss."""

import json
import os
import shutil
import socket
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_forensics.evidence.inputs import NotRead, gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.storage.source import EntryKind
from tests.cli.every_command import evidence_commands
from tests.cli.runs import Run
from tests.support.brokers import Brokers, healthy
from tests.support.places import SAMPLES
from tests.support.segments import segment_file

LOSSES = {
    *("COMMITTED_LOST_EVERYWHERE", "REPLICA_MISSING", "SEGMENT_MISSING", "OFFSET_GAP", "LEADER_LOST_COMMITTED"),
    *("UNCLEAN_LOSS", "HW_BEYOND_LEO", "ISR_MEMBER_MISSING_COMMITTED", "CHECKPOINT_OUT_OF_ORDER"),
}
REPLACEMENTS: dict[str, Callable[[Path, Path], None]] = {
    "a link to the original outside the inputs": lambda place, kept: place.symlink_to(kept),
    "a link to nothing": lambda place, kept: place.symlink_to(kept.with_name("nowhere")),
    "a link to itself": lambda place, _: place.symlink_to(place.name),
    "a pipe": lambda place, _: os.mkfifo(place),
}
PLACES = {
    "partition": "b2/t-0",
    "first segment": f"b2/t-0/{segment_file(0)}",
    "middle segment": f"b2/t-0/{segment_file(29)}",
    "last segment": f"b2/t-0/{segment_file(55)}",
}


@pytest.fixture
def brokers(tmp_path: Path) -> Brokers:
    return healthy(tmp_path / "brokers")


def scan_without_losses(run: Run, *paths: Path) -> tuple[int, dict[str, Any], str]:
    """Exit status, answer and messages of a scan, which must report no loss."""
    status, out, err = run("scan", *paths, "--format", "json")
    answer = json.loads(out)
    assert LOSSES.isdisjoint(finding["kind"] for finding in answer["findings"])
    return status, answer, err


def replace_by_link(path: Path, store: Path, *, relative: bool = True) -> None:
    """Move `path` to `store` and put a link in its place."""
    store.parent.mkdir(parents=True, exist_ok=True)
    path.rename(store)
    path.symlink_to(os.path.relpath(store, path.parent) if relative else store)


def test_links_between_inputs_change_no_answer(run: Run, tmp_path: Path) -> None:
    """A log directory, a partition with another name, a segment and small files are links to other inputs."""
    copies, store = tmp_path / "copies", tmp_path / "store"
    shutil.copytree(SAMPLES / "healthy", copies)
    commands = {name: [name, *arguments, "--format", "json"] for name, arguments in evidence_commands("orders").items()}
    expected = {name: run(*command, copies) for name, command in commands.items()}
    assert {status for status, _, _ in expected.values()} == {0}
    replace_by_link(copies / "broker-1" / "orders-0", store / "moved" / "somewhere")
    for name in (
        f"orders-0/{segment_file(0)}",
        f"orders-0/{segment_file(0, 'index')}",
        "orders-0/leader-epoch-checkpoint",
        "meta.properties",
        "replication-offset-checkpoint",
    ):
        replace_by_link(copies / "broker-3" / name, store / "files" / Path(name).name, relative=False)
    replace_by_link(copies / "broker-2", store / "disk")
    for name, command in commands.items():
        status, out, _ = run(*command, copies, store)
        assert (name, status, json.loads(out)) == (name, 0, json.loads(expected[name][1]))
        status, _, err = run(*command, copies)
        assert (name, status, "not followed" in err) == (name, 3, True)
        assert err.count("hint: give what links lead to as paths, too") == 1


@pytest.mark.parametrize("place_name", PLACES)
@pytest.mark.parametrize("replacement", REPLACEMENTS)
def test_unread_inputs_are_reported_first_and_nothing_is_reported_lost(
    run: Run, brokers: Brokers, tmp_path: Path, place_name: str, replacement: str
) -> None:
    place = brokers.root / PLACES[place_name]
    place.rename(tmp_path / "kept")
    REPLACEMENTS[replacement](place, tmp_path / "kept")
    status, answer, err = scan_without_losses(run, *brokers.log_dirs)
    reason = "not a regular file" if replacement == "a pipe" else "a symbolic link, not followed: "
    assert (status, answer["incomplete"][0]["path"]) == (3, str(place))
    assert answer["incomplete"][0]["reason"].startswith(reason)
    assert len({(gap["path"], gap["reason"]) for gap in answer["incomplete"]}) == len(answer["incomplete"])
    assert f"incomplete: {place}: {reason}" in err
    assert answer["summary"]["findings"]["critical"] == answer["summary"]["findings"]["error"] == 0


@pytest.mark.parametrize("place_name", ["partition", "middle segment"])
def test_records_unread_in_every_copy_are_not_reported_lost(run: Run, brokers: Brokers, tmp_path: Path, place_name: str) -> None:
    for broker in (1, 2, 3):
        replace_by_link(brokers.root / PLACES[place_name].replace("b2", f"b{broker}"), tmp_path / f"kept-{broker}")
    status, answer, _ = scan_without_losses(run, *brokers.log_dirs)
    assert (status, len(answer["incomplete"])) == (3, 3)


def test_a_chain_of_too_many_links_is_not_followed(run: Run, brokers: Brokers) -> None:
    place = brokers.file(2, 29)
    chain = [place.parent / f"link{number}" for number in range(8)]
    place.rename(place.parent / "kept.bak")
    for link, target in zip([place, *chain], [*chain, place.parent / "kept.bak"], strict=True):
        link.symlink_to(target.name)
    status, answer, _ = scan_without_losses(run, *brokers.log_dirs)
    reason = "a symbolic link, not followed: more than 8 links follow each other"
    assert (status, answer["incomplete"][0]["reason"]) == (3, reason)
    place.unlink()
    place.symlink_to("link1")
    assert scan_without_losses(run, *brokers.log_dirs)[0] == 0


def test_links_in_an_archive_are_followed_as_in_a_directory(run: Run, brokers: Brokers, tmp_path: Path) -> None:
    """A link within an archive is followed; a link out of it is incomplete, whether or not its target exists."""

    def archived() -> tuple[int, dict[str, Any], str]:
        with tarfile.open(tmp_path / "copies.tar.gz", "w:gz") as tar:
            tar.add(brokers.root, "brokers")
        return scan_without_losses(run, tmp_path / "copies.tar.gz")

    _, expected, _ = archived()
    place, store = brokers.file(2, 29), brokers.root / "store"
    replace_by_link(place, store / "somewhere")
    replace_by_link(brokers.log_dir(3) / "t-0", store / "t-0")
    status, answer, _ = archived()
    assert (status, answer["partitions"], answer["findings"]) == (0, expected["partitions"], expected["findings"])
    place.unlink()
    place.symlink_to("../../../../../../etc/passwd")
    status, answer, _ = archived()
    reasons = [gap["reason"] for gap in answer["incomplete"]]
    assert (status, reasons) == (3, ["a link, not followed: it leads outside the given paths"])


def test_unread_inputs_have_a_place(brokers: Brokers, tmp_path: Path) -> None:
    """Broker, log directory, partition directory and file name show what is missing."""
    log_dir, outside = brokers.log_dir(2), tmp_path / "outside"
    outside.mkdir()
    segment, checkpoint = segment_file(29), "log-start-offset-checkpoint"
    (log_dir / "t-0" / segment).unlink()
    (log_dir / checkpoint).unlink()
    for place in (log_dir / "t-0" / segment, log_dir / checkpoint, log_dir / "u-3", brokers.root / "b4", brokers.root / "w-1"):
        place.symlink_to(outside)
    os.mkfifo(log_dir / "v-0")
    link, other = EntryKind.SYMLINK, EntryKind.OTHER
    reason = "a symbolic link, not followed: it leads outside the given paths"
    inputs = gather([str(brokers.root)], ScanOptions())
    assert sorted(inputs.not_read, key=lambda read: read.path) == [
        NotRead(str(log_dir / checkpoint), link, reason, 2, str(log_dir), None, checkpoint),
        NotRead(str(log_dir / "t-0" / segment), link, reason, 2, str(log_dir), "t-0", segment),
        NotRead(str(log_dir / "u-3"), link, reason, 2, str(log_dir), "u-3"),
        NotRead(str(log_dir / "v-0"), other, "not a regular file", 2, str(log_dir), "v-0"),
        NotRead(str(brokers.root / "b4"), link, reason),
        NotRead(str(brokers.root / "w-1"), link, reason, directory="w-1"),
    ]
    assert {incomplete.path for incomplete in inputs.incomplete} == {read.path for read in inputs.not_read}


def test_links_into_another_replica_are_not_a_second_copy(run: Run, brokers: Brokers) -> None:
    """Broker 2's middle segment is a link to that of broker 1, so only broker 1 has these records."""
    place = brokers.file(2, 29)
    place.unlink()
    place.symlink_to("../../b1/t-0/" + place.name)
    status, answer, err = scan_without_losses(run, *brokers.log_dirs)
    assert (status, answer["incomplete"][0]["path"]) == (3, str(place))
    assert answer["incomplete"][0]["reason"] == f"a link to {brokers.root}/b1/t-0/{place.name}, which is read there"
    assert f"{place} is {brokers.root}/b1/t-0/{place.name} as well: read once" in err


@pytest.mark.parametrize("paths", ["folder", "each"])
def test_a_link_and_its_target_are_one_replica(run: Run, brokers: Brokers, paths: str) -> None:
    """Broker 2 moved its partition to a second disk and left a link; both disks are given."""
    disk = brokers.root / "b2-second"
    disk.mkdir()
    shutil.copy(brokers.log_dir(2) / "meta.properties", disk)
    replace_by_link(brokers.log_dir(2) / "t-0", disk / "t-0", relative=False)
    status, answer, err = scan_without_losses(run, *([brokers.root] if paths == "folder" else sorted(brokers.root.iterdir())))
    (partition,) = answer["partitions"]
    replicas = [(replica["broker"], replica["log_dir"]) for replica in partition["replicas"]]
    assert (status, replicas) == (0, [(1, str(brokers.log_dir(1))), (2, str(disk)), (3, str(brokers.log_dir(3)))])
    assert f"{brokers.log_dir(2)}/t-0 is in {disk}/t-0 as well: read once" in err


def test_a_link_beside_log_directories_hides_no_partition(run: Run, brokers: Brokers) -> None:
    (brokers.root / "a-0").symlink_to("b1/t-0")
    (brokers.root / "t-0").symlink_to("b1/t-0")
    status, answer, _ = scan_without_losses(run, brokers.root)
    (partition,) = answer["partitions"]
    assert (status, [(replica["broker"], replica["log_dir"]) for replica in partition["replicas"]]) == (
        0, [(broker, str(brokers.log_dir(broker))) for broker in (1, 2, 3)]
    )  # fmt: skip


def test_circular_links_are_read_once(run: Run, brokers: Brokers) -> None:
    """Links to the parent and to all siblings: each directory is read once, and in little time."""
    for folder in (brokers.root, *brokers.log_dirs):
        for number, target in enumerate([brokers.root, *brokers.log_dirs] * 20):
            (folder / f"link{number}").symlink_to(target)
    status, answer, err = scan_without_losses(run, brokers.root)
    assert (status, [replica["broker"] for replica in answer["partitions"][0]["replicas"]]) == (0, [1, 2, 3])
    assert err.count("read once") <= 4


@pytest.mark.parametrize("command", ["scan", "dump"])
def test_unrelated_pipes_and_sockets_beside_log_directories_are_skipped(
    run: Run, brokers: Brokers, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(brokers.root / "control")
    os.mkfifo(brokers.log_dir(1) / "control")
    monkeypatch.chdir(brokers.root)  # the name of a socket must be short
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as agent:
        agent.bind("agent.sock")
    assert run(command, brokers.root)[0] == 0
    status, _, err = run(command, *sorted(brokers.root.iterdir()))
    assert (status, err.count("skipped, without Kafka files: ")) == (0, 1)
    assert "agent.sock" in err
    os.mkfifo(brokers.root / "t-7")
    status, _, err = run(command, *sorted(brokers.root.iterdir()))
    assert (status, f"{brokers.root}/t-7: neither a regular file nor a directory" in err) == (3, True)
