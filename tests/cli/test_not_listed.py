"""What could not be listed, or stands twice in an archive: every command names it and ends with 3."""

import tarfile
from pathlib import Path

import pytest

from kafka_forensics.cli.main import outcome
from kafka_forensics.errors import SourceError
from kafka_forensics.storage.local import LocalSource
from kafka_forensics.storage.source import Entry
from tests.support.faults import Brokers, healthy

COMMANDS = [
    ["scan"],
    ["dump"],
    ["plan"],
    ["metadata"],
    ["groups"],
    ["transactions"],
    ["epochs"],
    ["find", "--key", "key-1"],
    ["compare", "--topic", "t", "--partition", "0"],
    ["changes"],
]


@pytest.fixture(name="brokers")
def whose_second_root_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Brokers:
    brokers, as_it_is = healthy(tmp_path), LocalSource.list

    def broken(source: LocalSource, path: str = "") -> list[Entry]:
        if not path and source.name == str(brokers.log_dir(2)):
            raise SourceError(path, "input/output error")
        return as_it_is(source, path)

    monkeypatch.setattr(LocalSource, "list", broken)
    return brokers


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
def test_a_log_directory_whose_root_cannot_be_listed_is_named(
    brokers: Brokers, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    name, *options = command
    assert outcome([name, str(brokers.log_dir(1)), str(brokers.log_dir(2)), *options]) == 3
    captured = capsys.readouterr()
    assert f"{brokers.log_dir(2)}: input/output error" in captured.out + captured.err


@pytest.mark.parametrize(
    "command", [command for command in COMMANDS if command[0] not in ("changes", "compare")], ids=lambda words: words[0]
)
def test_a_member_that_an_archive_has_twice_is_named(
    tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    brokers = healthy(tmp_path / "brokers")
    archive = tmp_path / "copy.tar"
    log = brokers.file(1, 29)
    with tarfile.open(archive, "w") as opened:
        opened.add(brokers.root, "copy")
        opened.add(log, f"copy/{log.relative_to(brokers.root)}")
    name, *options = command
    assert outcome([name, str(archive), *options]) == 3
    captured = capsys.readouterr()
    told = f"several members are called copy/b1/t-0/{log.name}: the last is read"
    assert told in " ".join((captured.out + captured.err).split())
