"""Paths of a command: without Kafka files, given twice, one name for two brokers, a selection without a match."""

import json
import shutil
import tarfile
from pathlib import Path

import pytest

from tests.cli.every_command import evidence_commands
from tests.cli.runs import Run, printed_commands
from tests.support.places import SAMPLES
from tests.support.segments import segment_file

HEALTHY = SAMPLES / "healthy"
COMMANDS = [*evidence_commands("orders")]


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    """Two brokers with two partitions each."""
    for broker in (1, 2):
        folder = tmp_path / "copies" / f"broker-{broker}"
        folder.mkdir(parents=True)
        shutil.copy(HEALTHY / f"broker-{broker}" / "meta.properties", folder)
        for name in ("orders-0", "codec-zstd-0"):
            if (HEALTHY / f"broker-{broker}" / name).exists():
                shutil.copytree(HEALTHY / f"broker-{broker}" / name, folder / name)
    return tmp_path / "copies"


def replicas(out: str) -> list[str]:
    partitions = json.loads(out)["partitions"]
    return [f"{partition['topic']}-{replica['broker']}" for partition in partitions for replica in partition["replicas"]]


@pytest.mark.parametrize("command", COMMANDS)
def test_paths_without_logs_unknown_topics_and_output_to_a_uri_give_status_2(run: Run, tmp_path: Path, command: str) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    extra = ["--offset", "0"] if command == "find" else []
    uri = "s3://bucket/answers/scan.json"
    for paths, error in (
        ([tmp_path], f"there is no Kafka log in {tmp_path}\nhint: a broker's log directory holds meta.properties and "),
        ([tmp_path / "notes.txt"], f"{tmp_path}/notes.txt: no Kafka file has such a name\n"),
        (
            [HEALTHY, "--topic", "ordrs"],
            "nothing matches --topic ordrs: there is no topic 'ordrs'\nhint: did you mean --topic orders",
        ),
        ([HEALTHY, "--output", uri], f"cannot write to {uri}: --output must be a local file\n"),
    ):
        status, out, err = run(command, *paths, *extra)
        assert (command, status, out) == (command, 2, "")
        assert err.startswith(f"error: {error}")


def test_a_link_to_a_log_directory_outside_the_inputs_makes_the_scan_incomplete(run: Run, copies: Path, tmp_path: Path) -> None:
    links = tmp_path / "links"
    links.mkdir()
    (links / "one").symlink_to(copies / "broker-1")
    status, _, err = run("scan", links)
    message = f"incomplete: {links}/one: a symbolic link, not followed: it leads outside the given paths\n"
    assert (status, message in err) == (3, True)
    assert run("scan", links / "one", "-q")[0] == 0


def test_a_hint_names_archives_in_a_directory_as_paths(run: Run, tmp_path: Path) -> None:
    for name in ("b2.zip", "b1.tar.gz"):
        (tmp_path / name).write_bytes(b"")
    for paths in (tmp_path, f"file://{tmp_path}"):
        status, _, err = run("scan", paths)
        hint = f"hint: give the archives in it as separate paths, like {tmp_path}/b1.tar.gz, and 1 more"
        assert (status, err.splitlines()[1]) == (2, hint)


def test_a_log_directory_without_partitions_gives_status_0_and_a_small_file_a_hint_to_dump_it(run: Run, tmp_path: Path) -> None:
    meta = tmp_path / "meta.properties"
    meta.write_text("version=1\nnode.id=1\ncluster.id=c\n")
    status, _, err = run("scan", tmp_path)
    assert (status, "no partition was found" in err) == (0, True)
    status, _, err = run("scan", meta)
    assert (status, [command.split() for command in printed_commands(err)]) == (2, [["kafka-forensics", "dump", str(meta)]])


def test_an_archive_with_a_wrong_extension_is_refused(run: Run, copies: Path, tmp_path: Path) -> None:
    archive = tmp_path / "bundle.tar.gz"
    with tarfile.open(archive, "w:gz") as out:
        out.add(copies / "broker-1", "broker-1")
    cut = tmp_path / "bundle"
    cut.write_bytes(archive.read_bytes()[:5000])
    status, _, err = run("scan", cut)
    assert (status, err.splitlines()[0]) == (2, f"error: {cut}: holds gzip-compressed data, but its name has another ending")
    for name in ("bundle.zip", "bundle.tar.zst"):
        wrong = tmp_path / name
        shutil.copy(archive, wrong)
        status, _, err = run("scan", wrong)
        error = f"error: {wrong}: it holds gzip-compressed data, but its name has another ending"
        assert (status, err.splitlines()) == (2, [error, "hint: rename it to end in .tar.gz or .tgz"])


def test_an_unknown_broker_is_refused(run: Run) -> None:
    outcome = run("scan", HEALTHY, "--broker", "9")
    assert outcome == (2, "", "error: no broker matches --broker 9\nhint: brokers here: 1, 2, 3\n")
    assert " on 1 broker\n" in run("scan", HEALTHY, "--broker", "2")[2]
    status, _, err = run("scan", HEALTHY, "--broker", "2", "--topic", "orders", "--partition", "7")
    assert (status, "there is no partition 'orders-7' on broker 2" in err) == (2, True)


def test_an_input_given_twice_is_read_once(run: Run, copies: Path, tmp_path: Path) -> None:
    expected = run("scan", copies, "--format", "json")[1]
    link = tmp_path / "link"
    link.symlink_to(copies / "broker-2")
    segment = copies / "broker-1" / "orders-0" / segment_file(0)
    for path in (copies / "broker-2", link, copies / "broker-1" / "orders-0", segment):
        status, out, err = run("scan", copies, path, "--format", "json")
        assert (status, replicas(out)) == (0, replicas(expected)), path
        assert "read once" in err
    status, out, err = run("scan", copies / "broker-1", f"{copies}/broker-1/", "--format", "json", "-q")
    assert replicas(out) == [replica for replica in replicas(expected) if replica.endswith("-1")]
    assert err == f"{copies}/broker-1/: the same as {copies}/broker-1, read once\n"


def test_a_named_broker_keeps_its_name_beside_its_folder(run: Run, copies: Path) -> None:
    status, out, _ = run("scan", copies, f"left={copies}/broker-2", "--topic", "orders", "--format", "json")
    assert (status, sorted(replicas(out))) == (0, ["orders-1", "orders-left"])


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["A={copies}/broker-1", "A={copies}/broker-2"], "error: the name A was given twice: to "),
        (["={copies}/broker-1"], "error: there is no name in ="),
        (["remote={copies}/broker-1"], "error: no broker can have the name remote"),
        (["a={copies}/broker-2", "b={copies}/broker-2"], "was given two names, a and b"),
    ],
)
def test_ambiguous_broker_names_give_status_2(run: Run, copies: Path, arguments: list[str], error: str) -> None:
    status, _, err = run("scan", *(path.format(copies=copies) for path in arguments))
    assert (status, error in err) == (2, True)


def test_two_log_directories_of_one_broker_may_share_a_name(run: Run, copies: Path) -> None:
    other = copies / "disk-2"
    other.mkdir()
    shutil.copy(copies / "broker-1" / "meta.properties", other)
    shutil.move(copies / "broker-1" / "codec-zstd-0", other / "codec-zstd-0")
    status, out, _ = run("scan", f"A={copies}/broker-1", f"A={other}", "--format", "json")
    assert (status, sorted(replicas(out))) == (0, ["codec-zstd-A", "orders-A"])


def test_a_copy_with_the_number_of_another_broker_is_reported(run: Run) -> None:
    one, two, three = (HEALTHY / f"broker-{number}" for number in (1, 2, 3))
    arguments = [f"1={two}", f"2={one}", f"old={three}"]
    status, out, err = run("scan", *arguments, "--format", "json", "--fail-on", "none")
    assert status == 0
    mismatches = [finding for finding in json.loads(out)["findings"] if finding["kind"] == "NODE_ID_MISMATCH"]
    assert [(finding["broker"], finding["severity"], finding["evidence"]) for finding in mismatches] == [
        (1, "warning", {"named": 1, "node_ids": [2], "log_dirs": [str(two)]}),
        (2, "warning", {"named": 2, "node_ids": [1], "log_dirs": [str(one)]}),
    ]
    consistent = run("scan", f"1={one}", f"second={two}", three, "--format", "tsv")
    assert (consistent[0], "NODE_ID_MISMATCH" in consistent[1], "note:" in consistent[2]) == (0, False, False)
    message = f"note: {two} was given as broker 1 and is node 2's by meta.properties: "
    assert message in err
    for command in ("compare", "transactions", "epochs"):
        assert message in run(command, *arguments, "--topic", "orders", "--partition", "0")[2]


def test_plan_refuses_a_copy_with_the_number_of_another_broker(run: Run) -> None:
    """Its steps would stop and start the wrong broker."""
    status, out, err = run("plan", f"1={HEALTHY / 'broker-2'}", f"3={HEALTHY / 'broker-3'}")
    assert (status, out) == (2, "")
    assert f"{HEALTHY / 'broker-2'} was given as broker 1, but its meta.properties has node 2" in err
    assert "give it as 2=PATH" in err


def brokers(out: str) -> list[object]:
    return [broker["broker"] for broker in json.loads(out)["input"]["brokers"]]


def test_the_broker_of_a_partition_or_file_comes_from_its_log_directory(
    run: Run, copies: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = copies / "broker-1" / "orders-0"
    log = min(directory.glob("*.log"))
    for path in (directory, log):
        assert brokers(run("scan", path, "--format", "json")[1]) == [1]
        assert brokers(run("scan", f"x={path}", "--format", "json")[1]) == ["x"]
    monkeypatch.chdir(directory)
    assert brokers(run("scan", ".", "--format", "json")[1]) == [1]
    (copies / "broker-1" / "meta.properties").unlink()
    for typed_path in (str(directory), str(log), "."):
        assert brokers(run("scan", typed_path, "--format", "json")[1]) == ["broker-1"]
    shutil.move(directory, copies / "orders-0 of one")
    assert brokers(run("scan", copies / "orders-0 of one", "--format", "json")[1]) == ["orders-0 of one"]
