"""`collect` as it is run: what it writes where, what it refuses, and that a kill or a full disk is no end."""

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import kafka_forensics as kf
from kafka_forensics.cli.commands.collect import UNFINISHED
from kafka_forensics.storage.bundles import BundleSource
from kafka_forensics.writers.bundle_file import BundleWriter
from tests.support.bundles import ORDERS, bundle_of, put_broker, stored, tar_of
from tests.support.plan_runs import Run
from tests.support.segments import log

ROOT = Path(__file__).resolve().parents[2]
KEY = bytes(range(32))


@pytest.fixture
def broker(tmp_path: Path) -> Path:
    """A log directory."""
    return put_broker(tmp_path)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.is_file())


def test_a_bundle_is_made_and_judged(broker: Path, tmp_path: Path, run: Run) -> None:
    status, out, err = run("collect", broker, "--output", tmp_path / "one.kfb")
    assert (status, out) == (0, "")
    assert "5 logs, 13 batches" in err
    assert names(tmp_path) == ["one.kfb"]
    status, _, err = run("scan", tmp_path / "one.kfb", "-v")
    assert (status, "(KEY_PLACEMENT) is told of log directories only" in err) == (0, True)
    assert "KEY_PLACEMENT" not in run("scan", broker, "-v")[2]
    assert (tmp_path / "one.kfb").stat().st_mode & 0o777 == 0o600


def test_it_stands_nowhere_in_an_input(broker: Path, tmp_path: Path, run: Run) -> None:
    before = sorted(broker.rglob("*"))
    status, _, err = run("collect", broker, "--output", broker / "orders-0" / "one.kfb")
    assert (status, "lies inside the input" in err) == (2, True)
    (broker / "link.kfb").symlink_to(tmp_path / "elsewhere.kfb")
    status, _, err = run("collect", broker, "--output", broker / "link.kfb")
    assert (status, "lies inside the input" in err) == (2, True)
    (broker / "link.kfb").unlink()
    assert sorted(broker.rglob("*")) == before


@pytest.mark.parametrize("output", ["one.tar", "one.kfb.gz", "none/one.kfb"])
def test_it_is_called_what_it_is(output: str, broker: Path, tmp_path: Path, run: Run) -> None:
    assert run("collect", broker, "--output", tmp_path / output)[0] == 2
    assert names(tmp_path) == []


def test_one_that_is_there_stays_until_the_new_one_is_whole(
    broker: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "one.kfb"
    output.write_bytes(b"older")
    with monkeypatch.context() as patch:
        patch.setattr(BundleWriter, "finish", stop)
        assert run("collect", broker, "--output", output)[0] == 130
    assert output.read_bytes() == b"older"
    assert names(tmp_path) == ["one.kfb", f"one.kfb{UNFINISHED}"]
    assert run("collect", broker, "--output", output)[0] == 0
    assert names(tmp_path) == ["one.kfb"]
    assert BundleSource(str(output)).problems == []


def stop(*_: Any) -> None:
    raise KeyboardInterrupt


def test_a_full_disk_is_no_end(broker: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "one.kfb"
    right, writes = BundleWriter._write, 0

    def write(self: BundleWriter, data: bytes) -> None:
        nonlocal writes
        writes += 1
        if writes > 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        right(self, data)

    with monkeypatch.context() as patch:
        patch.setattr(BundleWriter, "_write", write)
        status, _, err = run("collect", broker, "--output", output)
    assert status == 2
    assert "is full" in err
    assert f"make room, and run the same command again: it goes on with {output}{UNFINISHED}" in " ".join(err.split())
    assert names(tmp_path) == [f"one.kfb{UNFINISHED}"]
    assert run("collect", broker, "--output", output)[0] == 0
    assert BundleSource(str(output)).problems == []


def test_the_beginning_of_another_one_is_refused(broker: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(BundleWriter, "finish", stop)
        run("collect", broker, "--output", tmp_path / "one.kfb")
    status, _, err = run("collect", broker, "--output", tmp_path / "one.kfb", "--hash")
    assert status == 2
    assert "remove it, or give --output another place" in " ".join(err.split())


def test_two_at_once_do_not_write_one(broker: Path, tmp_path: Path, run: Run) -> None:
    (broker / ORDERS).write_bytes(b"".join(log(3000, value=bytes(500))))
    output = tmp_path / "one.kfb"
    slow = command("collect", broker, "--output", output, "--max-rate", "0.2")
    with subprocess.Popen(slow, cwd=ROOT, stderr=subprocess.PIPE) as first:
        try:
            until(lambda: (tmp_path / f"one.kfb{UNFINISHED}").exists() and (tmp_path / f"one.kfb{UNFINISHED}").stat().st_size > 0)
            status, _, err = run("collect", broker, "--output", output)
        finally:
            first.kill()
    assert (status, "is being written by another process" in err) == (2, True)
    assert run("collect", broker, "--output", output)[0] == 0


def test_one_that_has_just_been_finished_is_not_written_to(
    broker: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "one.kfb"
    data = bundle_of(broker, tmp_path / f"one.kfb{UNFINISHED}").read_bytes()
    monkeypatch.setattr(fcntl, "flock", lambda *_: (tmp_path / f"one.kfb{UNFINISHED}").rename(output))
    status, _, err = run("collect", broker, "--output", output)
    assert (status, "is being written by another process" in err) == (2, True)
    assert output.read_bytes() == data


def test_a_process_that_was_killed_is_gone_on_with(tmp_path: Path, run: Run) -> None:
    broker = put_broker(tmp_path, batches=12_000, secret=bytes(1000))
    for number in range(5):
        (broker / f"more-{number}").mkdir()
        (broker / f"more-{number}" / f"{0:020d}.log").write_bytes((broker / ORDERS).read_bytes())
    output = tmp_path / "one.kfb"
    unfinished = tmp_path / f"one.kfb{UNFINISHED}"
    slow = command("collect", broker, "--output", output, "--max-rate", "50")
    with subprocess.Popen(slow, cwd=ROOT, stderr=subprocess.PIPE) as one:
        until(lambda: unfinished.exists() and unfinished.stat().st_size > 5000)
        os.kill(one.pid, signal.SIGKILL)
    assert not output.exists()
    assert run("scan", unfinished.rename(tmp_path / "cut.kfb"))[0] == 3
    (tmp_path / "cut.kfb").rename(unfinished)
    begun = unfinished.stat().st_size
    status, _, err = run("collect", broker, "--output", output)
    assert (status, "known already" in err, begun < output.stat().st_size) == (0, True, True)
    whole = bundle_of(broker, tmp_path / "whole.kfb")
    judged = [json.loads(kf.scan([str(path)]).to_json().replace(path.name, "")) for path in (output, whole)]
    assert judged[0] == judged[1]


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "kafka_forensics", *map(str, arguments)]


def until(happened: Any) -> None:
    """Wait for it, a minute at most."""
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.005)


# Bundles that are damaged, or were never finished.


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_a_cut_bundle_is_incomplete(share: float, broker: Path, tmp_path: Path, run: Run) -> None:
    data = bundle_of(broker, tmp_path / "one.kfb").read_bytes()
    path = tmp_path / "cut.kfb"
    path.write_bytes(data[: int(len(data.rstrip(b"\0")) * share)])
    status, out, err = run("scan", path, "--format", "json")
    assert status == 3
    assert "incomplete" in err or "error:" in err
    assert json.loads(out)["summary"]["verdict"] not in {"clean", "info"} if out else True


@pytest.mark.parametrize("member", ["bundle.json", "parts/000000.zst", "listing.zst", "seal.json"])
def test_a_changed_member_is_incomplete(member: str, broker: Path, tmp_path: Path, run: Run) -> None:
    members = stored(bundle_of(broker, tmp_path / "one.kfb"))
    for change in (lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:], lambda _: None):
        changed = {name: change(data) if name == member else data for name, data in members.items()}
        path = tmp_path / "changed.kfb"
        path.write_bytes(tar_of({name: data for name, data in changed.items() if data is not None}))
        status, out, err = run("scan", path, "--format", "json")
        assert status == 3, err
        assert not out or json.loads(out)["summary"]["verdict"] not in {"clean", "info"}


# Options.


@pytest.mark.parametrize("asked", ["orders", "orders:0", "orders:0:5-5", "orders:0:9-3", "or ders:0:1-2", "orders:0:-1-2"])
def test_what_names_no_records_is_refused(asked: str, broker: Path, tmp_path: Path, run: Run) -> None:
    assert run("collect", broker, "--output", tmp_path / "one.kfb", "--with-records", asked)[0] == 2
    assert names(tmp_path) == []


def test_records_of_a_bundle_can_be_dumped(broker: Path, tmp_path: Path, run: Run) -> None:
    run("collect", broker, "--output", tmp_path / "one.kfb", "--with-records", "orders:0:0-12")
    status, out, _ = run("dump", tmp_path / "one.kfb", "--topic", "orders", "--records", "--format", "jsonl")
    assert status == 0
    assert out.count("\n") >= 12


def test_what_was_not_asked_for_is_no_part_of_the_copy(broker: Path, tmp_path: Path, run: Run) -> None:
    assert run("collect", broker, "--output", tmp_path / "one.kfb", "--topic", "payments")[0] == 0
    status, _, err = run("scan", tmp_path / "one.kfb")
    assert (status, "orders" in err) == (0, False)
    assert run("scan", tmp_path / "one.kfb", "--topic", "payments")[0] == 0


def test_an_estimate_writes_nothing(broker: Path, tmp_path: Path, run: Run) -> None:
    status, out, _ = run("collect", broker, "--output", tmp_path / "one.kfb", "--estimate")
    assert (status, out.startswith("about ")) == (0, True)
    status, out, _ = run("collect", broker, "--estimate")
    assert (status, out.startswith("about ")) == (0, True)
    assert names(tmp_path) == []


def test_a_bundle_needs_a_name(broker: Path, run: Run) -> None:
    status, _, err = run("collect", broker)
    assert (status, "missing option '--output'" in err, "--estimate" in err) == (2, True, True)
