"""A replaced disk: every command takes an empty directory with a broker's name as a log directory of that broker."""

import json
import shutil
import tarfile
from pathlib import Path

import pytest

from tests.cli.every_command import evidence_commands
from tests.cli.runs import Run

HEALTHY = Path(__file__).resolve().parents[2] / "sample_logs" / "healthy"
BROKERS = [HEALTHY / "broker-1", HEALTHY / "broker-2"]
IDENTITY = "this log directory holds meta.properties and nothing else"


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """The new disk of broker 3."""
    (tmp_path / "disk").mkdir()
    return tmp_path / "disk"


@pytest.mark.parametrize("command", sorted(evidence_commands("orders")))
def test_every_command_answers_as_for_a_disk_with_only_meta_properties(run: Run, disk: Path, command: str) -> None:
    arguments = [*evidence_commands("orders")[command], *(["--format", "text"] if command in {"scan", "plan"} else [])]
    shutil.copy(HEALTHY / "broker-3" / "meta.properties", disk)
    status, out, _ = run(command, *BROKERS, f"3={disk}", *arguments)
    (disk / "meta.properties").unlink()
    (disk / "lost+found").mkdir()
    status_of_empty, out_of_empty, err = run(command, *BROKERS, f"3={disk}", *arguments)
    if command == "dump":  # dump shows meta.properties
        assert status_of_empty == 0, err
    else:
        assert command != "plan" or "--cluster-id" in out_of_empty
        out, out_of_empty = (text.partition("Steps.")[0] if command == "plan" else text for text in (out, out_of_empty))
        unwrapped = (" ".join(text.split()) for text in (out.replace(IDENTITY, "this log directory is empty"), out_of_empty))
        assert [status, *sorted(next(unwrapped).split())] == [status_of_empty, *sorted(next(unwrapped).split())]


def test_scan_counts_the_replicas_that_the_controllers_assign_to_the_disk(run: Run, disk: Path) -> None:
    status, out, _ = run("scan", *BROKERS, f"3={disk}", "--format", "json")
    (wiped,) = [row for row in json.loads(out)["findings"] if row["kind"] == "LOG_DIR_WIPED"]
    assert (status, wiped["severity"], wiped["broker"], wiped["evidence"]["replicas"]) == (0, "warning", 3, 12)
    assert "this log directory is empty, although the controller's log assigns it 12 replicas" in wiped["message"]
    _, out, _ = run("scan", HEALTHY, f"4={disk}", "--format", "json")
    (wiped,) = [row for row in json.loads(out)["findings"] if row["kind"] == "LOG_DIR_WIPED"]
    assert (wiped["severity"], wiped["broker"], wiped["evidence"]["node_id"]) == ("info", 4, 4)


def test_an_empty_directory_without_a_name_gets_a_hint_to_name_its_broker(run: Run, disk: Path) -> None:
    status, out, err = run("scan", disk)
    assert (status, out) == (2, "")
    assert f"hint: it is empty: if it is the replaced disk of a broker, give it as N={disk}\n" in err
    for paths in ([*BROKERS, disk], [disk.parent, *BROKERS]):
        err = run("scan", *paths)[2]
        assert f"empty: {disk}; if it is the new disk of broker N, give it as N={disk}\n" in err
    assert "empty directory" not in run("scan", disk.parent, *BROKERS, f"3={disk}")[2]
    assert "broker-3\n" in run("scan", *BROKERS, disk.rename(disk.with_name("broker-3")))[2]


def test_a_second_log_directory_of_a_broker_may_be_empty(run: Run, disk: Path) -> None:
    """The bundle of an empty directory gives the same finding."""
    out = json.loads(run("scan", *BROKERS, f"1={disk}", "--format", "json")[1])
    (broker,) = [row for row in out["input"]["brokers"] if row["broker"] == 1]
    assert broker["log_dirs"] == [str(HEALTHY / "broker-1"), str(disk)]
    assert [row["severity"] for row in out["findings"] if row["kind"] == "LOG_DIR_WIPED"] == ["info"]
    rows = json.loads(run("scan", f"one={BROKERS[0]}", f"one={disk}", "--format", "json")[1])["findings"]
    assert [row["evidence"]["node_id"] for row in rows if row["kind"] == "LOG_DIR_WIPED"] == [1]
    bundle = disk.parent / "disk.kfb"
    assert run("collect", f"3={disk}", "--output", bundle)[0] == 0
    rows = json.loads(run("scan", *BROKERS, f"3={bundle}", "--format", "json")[1])["findings"]
    assert [row["evidence"]["replicas"] for row in rows if row["kind"] == "LOG_DIR_WIPED"] == [12]


def test_an_empty_directory_in_an_archive_is_skipped_since_no_name_can_be_given_to_it(run: Run, disk: Path) -> None:
    packed = disk.with_name("brokers.tar")
    with tarfile.open(packed, "w") as archive:
        archive.add(BROKERS[0], "broker-1")
        archive.add(disk, "broker-3")
    err = run("scan", packed)[2]
    assert f"skipped, without Kafka files: {packed}/broker-3\n" in err
    assert "name its broker" not in err
