"""What lies beside log directories and is nothing of Kafka's is skipped with one note; exit 2 only when nothing is left."""

import json
import shutil
from pathlib import Path

import pytest

from tests.support.plan_runs import Run

HEALTHY = Path(__file__).resolve().parents[2] / "sample_logs" / "healthy"
COMMANDS = {
    "scan": [],
    "compare": ["--topic", "orders", "--partition", "0"],
    "transactions": [],
    "epochs": [],
    "metadata": [],
    "groups": [],
    "find": ["--offset", "0", "--topic", "orders"],
    "plan": ["--topic", "orders", "--partition", "0"],
    "dump": ["--topic", "orders"],
}


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    """Brokers, and beside them what else lies where they lay."""
    root = tmp_path / "copies"
    shutil.copytree(HEALTHY, root)
    return root


def strangers(root: Path) -> list[str]:
    """The names of what is added there."""
    (root / "truth.json").write_text("{}")
    (root / "README").write_text("Copied on Monday.")
    (root / "bootstrap.checkpoint").write_bytes((HEALTHY / "broker-1" / "bootstrap.checkpoint").read_bytes())
    (root / "zookeeper" / "version-2").mkdir(parents=True)
    (root / "zookeeper" / "version-2" / "log.1").write_bytes(b"ZKLG")
    (root / "empty").mkdir()
    return ["README", "bootstrap.checkpoint", "empty", "truth.json", "zookeeper"]


def without_note(err: str, note: str) -> list[str]:
    return [line for line in err.splitlines() if not line.startswith(note)]


@pytest.mark.parametrize("command", COMMANDS)
def test_they_are_skipped_with_one_note_and_change_no_answer(run: Run, copies: Path, command: str) -> None:
    arguments = COMMANDS[command]
    brokers = sorted(copies.iterdir())
    wanted, in_folder = run(command, *brokers, *arguments), run(command, copies, *arguments)
    names = strangers(copies)
    given = run(command, *sorted(copies.iterdir()), *arguments)
    assert given[:2] == wanted[:2]
    note = "skipped, as nothing of Kafka's is in them: "
    lines = [line for line in given[2].splitlines() if line.startswith(note)]
    if command == "dump":  # which shows any file of Kafka's
        names.remove("bootstrap.checkpoint")
    assert lines == [f"{note}{', '.join(f'{copies}/{name}' for name in names[:3])} and {len(names) - 3} more"]
    status, out, err = run(command, copies, *arguments)
    assert (status, out) == in_folder[:2]
    if command != "dump":
        lines = [line for line in err.splitlines() if "nothing of Kafka's" in line]
        inside = [f"{copies}/{name}" for name in ("README", "bootstrap.checkpoint", "truth.json", "zookeeper")]
        assert lines == [
            f"skipped beside the log directories, as nothing of Kafka's is in them: {', '.join(inside[:3])} and 1 more"
        ]


@pytest.mark.parametrize("command", COMMANDS)
def test_with_nothing_left_it_is_2(run: Run, tmp_path: Path, command: str) -> None:
    strangers(tmp_path)
    if command == "dump":
        (tmp_path / "bootstrap.checkpoint").unlink()
    status, out, err = run(command, *sorted(tmp_path.iterdir()), *COMMANDS[command])
    assert (status, out) == (2, "")
    assert err.startswith(f"error: {tmp_path}/README: no file of Kafka's has such a name\n")


def test_one_that_was_named_is_an_error(run: Run, copies: Path) -> None:
    (copies / "empty").mkdir()
    status, _, err = run("scan", copies / "broker-1", f"three={copies}/empty")
    assert (status, f"error: there is no Kafka log in {copies}/empty\n" in err) == (2, True)


def test_a_container_that_is_not_read_may_hold_something(run: Run, copies: Path) -> None:
    """A compressed file beside log directories is no reason to read nothing, and none to call the scan whole."""
    (copies / "more.7z").write_bytes(b"7z\xbc\xaf\x27\x1c")
    status, out, err = run("scan", *sorted(copies.iterdir()), "--format", "json")
    answer = json.loads(out)
    assert (status, [one["path"] for one in answer["incomplete"]]) == (3, [str(copies / "more.7z")])
    assert len(answer["input"]["brokers"]) == 3
    assert f"incomplete: {copies}/more.7z: an unsupported container" in err
    assert run("scan", copies / "more.7z")[0] == 3


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "dump"])
def test_an_archive_in_a_folder_may_be_another_broker(run: Run, copies: Path, command: str) -> None:
    """It is not opened, and said to be that, not to hold nothing of Kafka's."""
    (copies / "logs").mkdir()
    for path in (copies / "broker-4.tar", copies / "logs" / "more.TGZ"):
        path.write_bytes(b"")
    (copies / "truth.json").touch()
    err = run(command, copies, *COMMANDS[command])[2]
    places = f"{copies}/broker-4.tar, {copies}/logs/more.TGZ"
    assert f"not opened: {places}; give archives as paths themselves if they hold copies, too\n" in err
    assert f"skipped beside the log directories, as nothing of Kafka's is in them: {copies}/truth.json\n" in err


def test_what_lies_inside_is_named_by_its_highest_folder(run: Run, tmp_path: Path) -> None:
    shutil.copytree(HEALTHY / "broker-1", tmp_path / "site" / "disks" / "broker-1")
    for path in ("site/notes/a", "site/notes/b", "site/disks/c", "other/d/e"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    err = run("scan", tmp_path)[2]
    inside = ", ".join(f"{tmp_path}/{name}" for name in ("other", "site/disks/c", "site/notes"))
    assert f"skipped beside the log directories, as nothing of Kafka's is in them: {inside}\n" in err


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("target", ["/etc/hosts", "nowhere", "../../.."])
def test_links_in_a_strangers_folder_are_no_log_directories(run: Run, copies: Path, command: str, target: str) -> None:
    """Beside log directories, and given by itself beside them; a link that stands beside log directories may be one."""
    (copies / "notes" / "inner").mkdir(parents=True)
    (copies / "notes" / "inner" / "link").symlink_to(target)
    (copies / "links").mkdir()
    (copies / "links" / "link").symlink_to(target)
    (copies / "broker-1" / "notes").mkdir()
    (copies / "broker-1" / "notes" / "link").symlink_to(target)
    wanted = run(command, *(copies / f"broker-{number}" for number in (1, 2, 3)), *COMMANDS[command])
    assert wanted[0] != 3
    assert run(command, *sorted(copies.iterdir()), *COMMANDS[command])[:2] == wanted[:2]
    assert run(command, copies, *COMMANDS[command])[0] == wanted[0]
    (copies / "link").symlink_to("/etc/hosts-that-are-not")
    assert run(command, copies, *COMMANDS[command])[0] == 3


@pytest.mark.parametrize("inside", ["link", "inner/link"])
def test_a_folder_with_nothing_but_links_that_lead_out_is_2(run: Run, tmp_path: Path, inside: str) -> None:
    """And with files of its own; one of links alone was given for what they lead to."""
    given, outside = tmp_path / "given", tmp_path / "outside"
    shutil.copytree(HEALTHY / "broker-1", outside)
    link = given / inside
    link.parent.mkdir(parents=True)
    link.symlink_to(outside)
    (given / "hosts").touch()
    status, out, err = run("scan", given)
    assert (status, out) == (2, "")
    assert f"there is no Kafka log in {given}" in err
    assert "links in it lead out of it: give what they lead to as paths, too" in err
    link.rename(link.with_name("orders-0"))
    assert run("scan", given)[0] == 3


def test_who_gave_a_folder_with_a_link_that_leads_out_is_told_to_give_its_target(run: Run, copies: Path) -> None:
    (copies / "link").symlink_to("/etc")
    for command, arguments in COMMANDS.items():
        status, _, err = run(command, copies, *arguments)
        assert (status, err.count("hint: give what links lead to as paths, too")) == (3, 1), command


def test_no_folder_of_the_system_is_taken_for_copies(run: Run) -> None:
    status, out, err = run("scan", "/etc")
    assert (status, out, len(err.splitlines())) == (2, "", 2)
