"""`collect`: bundles, refusals, and how it continues after a kill or a full disk."""

import errno
import fcntl
import json
import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from kafka_forensics.errors import UsageError
from kafka_forensics.parsers.log import read_batches
from kafka_forensics.questions.collect import PseudonymMap
from kafka_forensics.storage.bundles import BundleSource, SectionKind
from kafka_forensics.storage.disks import UNFINISHED
from kafka_forensics.writers import bundle_file
from kafka_forensics.writers.bundle_file import BundleWriter
from tests.cli.runs import Run
from tests.support.bundles import OFFSETS, ORDERS, decompressed_members, put_broker, unpack_bundle
from tests.support.places import SAMPLES
from tests.support.unread import refuse

NAMES_OF_BROKER = {"orders", "payments", "old", "billing", "other"}
"""Topics and groups of the broker, which a map of pseudonyms must contain."""


@pytest.fixture
def broker(tmp_path: Path) -> Path:
    """A log directory."""
    return put_broker(tmp_path)


def file_names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.is_file())


def test_a_bundle_is_written_and_scanned(broker: Path, tmp_path: Path, run: Run) -> None:
    status, out, err = run("collect", broker, "--output", tmp_path / "one.kfb")
    assert (status, out, "5 logs, 13 batches" in err) == (0, "", True)
    assert file_names(tmp_path) == ["one.kfb"]
    status, _, err = run("scan", tmp_path / "one.kfb", "-v")
    assert (status, "only log directories show their placement (KEY_PLACEMENT)" in err) == (0, True)
    assert "KEY_PLACEMENT" not in run("scan", broker, "-v")[2]
    assert (tmp_path / "one.kfb").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "arguments",
    [
        *([("--output", name) for name in ("one.tar", "one.kfb.gz", "none/one.kfb")]),
        *(
            ("--output", "one.kfb", "--with-records", requested)
            for requested in (
                "orders",
                "orders:0",
                "orders:0:5..4",
                "orders:0:9..2",
                "or ders:0:1..2",
                "orders:0:-1..2",
                "orders:0:1-2",
                "@missing.txt",
            )
        ),
        (),
    ],
)
def test_invalid_output_names_and_record_ranges_are_refused(
    arguments: tuple[str, ...], broker: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, _, err = run("collect", broker, *arguments)
    assert (status, "hint: " in err) == (2, True)
    assert file_names(tmp_path) == []


def test_the_old_bundle_stays_until_the_new_one_is_complete(
    broker: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "one.kfb"
    output.write_bytes(b"older")
    with monkeypatch.context() as patch:
        patch.setattr(BundleWriter, "finish", interrupt)
        assert run("collect", broker, "--output", output)[0] == 130
    assert output.read_bytes() == b"older"
    assert file_names(tmp_path) == ["one.kfb", f"one.kfb{UNFINISHED}"]
    assert run("collect", broker, "--output", output)[0] == 0
    assert file_names(tmp_path) == ["one.kfb"]
    assert BundleSource(str(output)).problems == []


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def test_collect_continues_after_a_full_disk(broker: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "one.kfb"
    original_write, writes = BundleWriter._write, 0

    def write(self: BundleWriter, data: bytes) -> None:
        nonlocal writes
        writes += 1
        if writes > 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        original_write(self, data)

    with monkeypatch.context() as patch:
        patch.setattr(BundleWriter, "_write", write)
        status, _, err = run("collect", broker, "--output", output)
    assert (status, "is full" in err) == (2, True)
    assert f"make room, and run the same command again: it goes on with {output}{UNFINISHED}" in " ".join(err.split())
    assert file_names(tmp_path) == [f"one.kfb{UNFINISHED}"]
    assert run("collect", broker, "--output", output)[0] == 0
    assert BundleSource(str(output)).problems == []


def test_two_processes_do_not_write_the_same_bundle(broker: Path, tmp_path: Path, run: Run) -> None:
    output = tmp_path / "one.kfb"
    with (tmp_path / f"one.kfb{UNFINISHED}").open("wb") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        status, _, err = run("collect", broker, "--output", output)
    assert (status, "is being written by another process" in err) == (2, True)
    assert run("collect", broker, "--output", output)[0] == 0


def test_records_of_a_bundle_can_be_dumped(broker: Path, tmp_path: Path, run: Run) -> None:
    run("collect", broker, "--output", tmp_path / "one.kfb", "--with-records", "orders:0:0..11")
    status, out, _ = run("dump", tmp_path / "one.kfb", "--topic", "orders", "--records", "--format", "jsonl")
    assert (status, out.count("\n") >= 12) == (0, True)


def test_an_estimate_writes_nothing(broker: Path, tmp_path: Path, run: Run) -> None:
    for options in ((), ("--output", tmp_path / "one.kfb"), ("--redact", "--redact-map", tmp_path / "names.json")):
        status, out, _ = run("collect", broker, "--estimate", *options)
        assert (status, out.startswith("about ")) == (0, True)
    assert not list(tmp_path.glob("*.kfb*"))


# `--redact`: the map of pseudonyms, contradicting options, and notes about redacted bundles.


def redaction_options(tmp_path: Path, name: str = "names.json") -> list[object]:
    return ["--redact", "--redact-map", tmp_path / name]


def names_in_map(path: Path) -> set[str]:
    return {row["name"] for row in json.loads(path.read_text())["names"].values()}


def test_the_map_is_private_and_holds_all_names(broker: Path, tmp_path: Path, run: Run) -> None:
    status, _, err = run("collect", broker, "--output", tmp_path / "one.kfb", *redaction_options(tmp_path))
    assert status == 0, err
    assert (tmp_path / "names.json").stat().st_mode & 0o777 == 0o600
    assert names_in_map(tmp_path / "names.json") >= NAMES_OF_BROKER
    assert run("scan", tmp_path / "one.kfb")[0] == 0
    output = run("groups", tmp_path / "one.kfb", "--all-partitions")[1]
    assert "group-" in output
    assert "billing" not in output


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--redact"], "needs --redact-map FILE"),
        (["--redact-map", "names.json"], "requires --redact"),
        (["--redact", "--redact-map", "names.json", "--with-records", "orders:0:1..1"], "contradict each other"),
    ],
)
def test_contradicting_options_are_refused(
    options: list[str], error: str, broker: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, _, err = run("collect", broker, "--output", tmp_path / "one.kfb", *options)
    assert (status, error in " ".join(err.split()), "hint:" in err) == (2, True, True)
    assert not list(tmp_path.glob("*.kfb*"))


def test_a_bundle_is_not_completed_before_its_map_is_written(
    broker: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = UsageError("cannot write to names.json", hint="give --redact-map another path")
    monkeypatch.setattr(PseudonymMap, "keep", Mock(side_effect=refusal))
    status, _, err = run("collect", broker, "--output", tmp_path / "one.kfb", *redaction_options(tmp_path))
    assert (status, "cannot write to names.json" in err) == (2, True)
    assert not (tmp_path / "one.kfb").exists()


def test_the_reason_of_an_unread_file_contains_no_name(
    broker: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, (broker / ORDERS).__eq__, "went to s3://orders.example.com")
    status, _, err = run("collect", broker, "--output", tmp_path / "one.kfb", *redaction_options(tmp_path))
    assert (status, "incomplete: " in err) == (3, True)
    for name in NAMES_OF_BROKER - {"old", "other"}:
        for data in decompressed_members(tmp_path / "one.kfb").values():
            assert name.encode() not in data


def test_an_interrupted_bundle_continues_with_its_map(
    broker: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "one.kfb"
    with monkeypatch.context() as patch:
        patch.setattr(BundleWriter, "finish", interrupt)
        patch.setattr(bundle_file, "PART_OF_BYTES", 1)
        assert run("collect", broker, "--output", output, *redaction_options(tmp_path))[0] == 130
    assert output.with_name(output.name + UNFINISHED).exists()
    status, _, err = run("collect", broker, "--output", output, *redaction_options(tmp_path, "other.json"))
    assert (status, "another bundle" in err) == (2, True)
    stored_map = json.loads((tmp_path / "names.json").read_text())
    (tmp_path / "names.json").write_text(json.dumps(stored_map | {"names": {}}))  # as after a power failure
    status, _, err = run("collect", broker, "--output", output, *redaction_options(tmp_path))
    assert (status, "known already" in err) == (0, True)
    assert names_in_map(tmp_path / "names.json") >= NAMES_OF_BROKER
    assert run("scan", output)[0] == 0


def test_digests_are_equal_only_with_the_same_map(broker: Path, tmp_path: Path, run: Run) -> None:
    for output, options in (
        ("map-1", redaction_options(tmp_path)),
        ("map-2", redaction_options(tmp_path)),
        ("other", redaction_options(tmp_path, "other.json")),
        ("names", []),
    ):
        assert run("collect", broker, "--output", tmp_path / f"{output}.kfb", *options)[0] == 0
    paths = [tmp_path / f"{name}.kfb" for name in ("map-1", "map-2", "other", "names")]
    redactions = [BundleSource(str(path)).about.redaction for path in paths]
    assert redactions[0] == redactions[1]
    assert len({*redactions}) == 3
    digests = [digests_in(path) for path in paths]
    assert digests[0] == digests[1]
    assert not set(digests[0]) & set(digests[2])
    assert not set(digests[0] + digests[2]) & set(digests[3])


def digests_in(path: Path) -> list[bytes]:
    """Digests of the batches of a log whose name is not redacted."""
    _, _, _, _, section = unpack_bundle(path).sections(OFFSETS, SectionKind.BATCHES)[0]
    return [digest.tobytes() for digest in read_batches(section).digests]


def test_no_bundle_contains_the_key_of_its_digests(broker: Path, tmp_path: Path, run: Run) -> None:
    assert run("collect", broker, "--output", tmp_path / "one.kfb", *redaction_options(tmp_path))[0] == 0
    key = PseudonymMap.at(tmp_path / "names.json").digests_key()
    for data in [(tmp_path / "one.kfb").read_bytes(), *decompressed_members(tmp_path / "one.kfb").values()]:
        assert key not in data
        assert key.hex().encode() not in data


def test_a_note_reports_a_mix_of_names_and_pseudonyms(tmp_path: Path, run: Run) -> None:
    first, second = (SAMPLES / "unclean-election" / f"broker-{number}" for number in (1, 2))
    assert run("collect", first, "--output", tmp_path / "1.kfb", *redaction_options(tmp_path))[0] == 0
    assert run("collect", first, "--output", tmp_path / "2.kfb", *redaction_options(tmp_path, "other.json"))[0] == 0
    for paths, note in (
        ([tmp_path / "1.kfb", second], "some of these copies hold pseudonyms and others names"),
        ([tmp_path / "1.kfb", tmp_path / "2.kfb"], "these bundles were redacted with different maps"),
        ([tmp_path / "1.kfb"], ""),
    ):
        messages = " ".join(run("scan", *paths)[2].split())
        assert (note in messages, "not compared with each other" in messages) == (True, bool(note))
