"""Files beside log directories: unrelated files are skipped with one note, and unread files that may be Kafka's are named."""

import json
import shutil
import tarfile
from pathlib import Path

import pytest

from kafka_forensics.errors import SourceError
from kafka_forensics.storage.local import LocalSource
from kafka_forensics.storage.source import Entry
from tests.cli.every_command import evidence_commands
from tests.cli.runs import Run
from tests.support.brokers import healthy
from tests.support.places import SAMPLES

HEALTHY = SAMPLES / "healthy"
COMMANDS = evidence_commands("orders")
SKIPPED = "skipped next to the log directories, without Kafka files: "


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    """Log directories of brokers, to which tests add unrelated files."""
    return Path(shutil.copytree(HEALTHY, tmp_path / "copies"))


def put_unrelated_files(root: Path) -> list[str]:
    """Add unrelated files, and return their names."""
    (root / "truth.json").write_text("{}")
    (root / "README").write_text("Copied on Monday.")
    (root / "bootstrap.checkpoint").write_bytes((HEALTHY / "broker-1" / "bootstrap.checkpoint").read_bytes())
    (root / "zookeeper" / "version-2").mkdir(parents=True)
    (root / "zookeeper" / "version-2" / "log.1").write_bytes(b"ZKLG")
    (root / "empty").mkdir()
    return ["README", "bootstrap.checkpoint", "empty", "truth.json", "zookeeper"]


def put_links(folder: Path) -> None:
    """Make a folder of links that is not a log directory."""
    folder.mkdir(parents=True)
    for number, target in enumerate(("/etc/hosts", "nowhere", "../../..")):
        (folder / f"link{number}").symlink_to(target)


@pytest.mark.parametrize("command", COMMANDS)
def test_unrelated_files_are_skipped_with_one_note_and_change_no_answer(run: Run, copies: Path, command: str) -> None:
    arguments = COMMANDS[command]
    brokers = sorted(copies.iterdir())
    put_links(copies / "broker-1" / "notes")
    expected, expected_of_folder = run(command, *brokers, *arguments), run(command, copies, *arguments)
    assert expected[0] != 3
    names = put_unrelated_files(copies)
    names.remove("empty")
    status, out, err = run(command, copies, *arguments)
    assert err.count(f"empty: {copies}/empty; if it is the new disk of broker N, give it as N={copies}/empty\n") == 1
    if command != "dump":
        assert (status, out) == expected_of_folder[:2]
        assert err.count("without Kafka files") == 1
        assert f"{SKIPPED}{copies}/README, {copies}/bootstrap.checkpoint, " in err
    else:  # dump shows every Kafka file
        assert status == expected_of_folder[0]
        names.remove("bootstrap.checkpoint")
    status, out, err = run(command, *sorted(copies.iterdir()), *arguments)
    assert (status, out) == expected[:2]
    note = "skipped, without Kafka files: "
    listed = ", ".join(f"{copies}/{name}" for name in names[:3]) + (" and 1 more" if names[3:] else "")
    assert [line for line in err.splitlines() if line.startswith(note)] == [note + listed]
    for folder in (copies / "notes" / "inner", copies / "links"):
        put_links(folder)
    assert run(command, *sorted(copies.iterdir()), *arguments)[:2] == expected[:2]
    assert run(command, copies, *arguments)[0] == expected_of_folder[0]
    (copies / "link").symlink_to("/etc/hosts-that-are-not")  # it may lead to a log directory
    assert run(command, copies, *arguments)[0] == 3


def test_a_named_directory_without_kafka_files_is_an_error(run: Run, copies: Path) -> None:
    (copies / "notes").mkdir()
    (copies / "notes" / "README").touch()
    status, _, err = run("scan", copies / "broker-1", f"three={copies}/notes")
    assert (status, f"error: there is no Kafka log in {copies}/notes\n" in err) == (2, True)


def test_an_unsupported_archive_makes_the_scan_incomplete(run: Run, copies: Path) -> None:
    """The log directories beside the archive are read."""
    (copies / "more.7z").write_bytes(b"7z\xbc\xaf\x27\x1c")
    status, out, err = run("scan", *sorted(copies.iterdir()), "--format", "json")
    answer = json.loads(out)
    assert (status, [gap["path"] for gap in answer["incomplete"]]) == (3, [str(copies / "more.7z")])
    assert len(answer["input"]["brokers"]) == 3
    assert f"incomplete: {copies}/more.7z: an unsupported container" in err
    assert run("scan", copies / "more.7z")[0] == 3


def test_archives_in_a_folder_are_reported_as_unopened(run: Run, copies: Path) -> None:
    """The archive is not opened, and is reported as unread, not as unrelated."""
    (copies / "logs").mkdir()
    for path in (copies / "broker-4.tar", copies / "logs" / "more.TGZ", copies / "truth.json"):
        path.touch()
    places = f"{copies}/broker-4.tar, {copies}/logs/more.TGZ"
    for command in ("scan", "groups"):
        err = run(command, copies, *COMMANDS[command])[2]
        assert f"not opened: {places}; if they hold copies, too, give the archives as separate paths\n" in err
        assert f"{SKIPPED}{copies}/truth.json\n" in err


@pytest.mark.parametrize("inside", ["link", "inner/link"])
def test_a_folder_of_links_to_other_places_gives_status_2(run: Run, tmp_path: Path, inside: str) -> None:
    """A file beside the links makes no difference; a link with the name of a partition makes the scan incomplete."""
    log_dirs, outside = tmp_path / "given", tmp_path / "outside"
    shutil.copytree(HEALTHY / "broker-1", outside)
    link = log_dirs / inside
    link.parent.mkdir(parents=True)
    link.symlink_to(outside)
    (log_dirs / "hosts").touch()
    status, out, err = run("scan", log_dirs)
    assert (status, out, f"there is no Kafka log in {log_dirs}" in err) == (2, "", True)
    assert "it has links that lead outside it: give their targets as paths, too" in err
    link.rename(link.with_name("orders-0"))
    assert run("scan", log_dirs)[0] == 3


def test_every_command_names_a_directory_that_cannot_be_listed(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers, original_list = healthy(tmp_path), LocalSource.list

    def failing_list(source: LocalSource, path: str = "") -> list[Entry]:
        if not path and source.name == str(brokers.log_dir(2)):
            raise SourceError(path, "input/output error")
        return original_list(source, path)

    monkeypatch.setattr(LocalSource, "list", failing_list)
    for command, arguments in [*evidence_commands("t").items(), ("changes", [])]:
        status, out, err = run(command, brokers.log_dir(1), brokers.log_dir(2), *arguments)
        assert (command, status, f"{brokers.log_dir(2)}: input/output error" in out + err) == (command, 3, True)


def test_a_duplicate_member_of_an_archive_is_named(run: Run, tmp_path: Path) -> None:
    brokers = healthy(tmp_path / "brokers")
    log = brokers.file(1, 29)
    with tarfile.open(tmp_path / "copy.tar", "w") as opened:
        opened.add(brokers.root, "copy")
        opened.add(log, f"copy/{log.relative_to(brokers.root)}")
    for command in ("scan", "dump", "find"):
        status, out, err = run(command, tmp_path / "copy.tar", *evidence_commands("t")[command])
        warning = f"several members are called copy/b1/t-0/{log.name}: the last is read"
        assert (command, status, warning in " ".join((out + err).split())) == (command, 3, True)
