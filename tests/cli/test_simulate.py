"""`simulate check` and `simulate run`: rows, pictures, directories, exit statuses, and the bound on memory."""

import csv
import json
from pathlib import Path

import pytest

from kafka_forensics.cli.commands import simulate as command
from kafka_forensics.cli.outputs import simulate
from kafka_forensics.simulation import checker
from kafka_forensics.simulation.model import INVARIANTS
from tests.cli.runs import Run

CHECK = ("simulate", "check")
CHECK_WITH_LOSS = (*CHECK, "truncate-to-hw", "--replicas", 3, "--log-size", 1, "--records", 1, "--max-epoch", 2)
RUN = ("simulate", "run")


def cells_of(text: str) -> tuple[tuple[str, ...], list[list[str]]]:
    """(header, rows) of a TSV output."""
    header, *rows = csv.reader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
    return tuple(header), rows


# check: every state that a small cluster can reach.


def test_check_gives_a_row_per_invariant_with_its_counterexample(run: Run) -> None:
    status, out, err = run(*CHECK_WITH_LOSS, "--format", "json", "-q")
    assert (status, err) == (0, "")
    rows = json.loads(out)
    assert [row["invariant"] for row in rows] == list(INVARIANTS)
    broken = rows[0]
    assert (broken["protocol"], broken["replicas"], broken["complete"], broken["holds"]) == ("truncate-to-hw", 3, True, False)
    assert broken["steps"] == len(broken["counterexample"]) == 8
    assert broken["counterexample"][-1] == "C learns that A leads in epoch 1, and keeps []"
    header, cells = cells_of(run(*CHECK_WITH_LOSS, "--format", "tsv")[1])
    assert header == command.COLUMNS
    assert json.loads(cells[0][-1]) == broken["counterexample"]


def test_a_search_that_exceeds_memory_gives_status_3_and_partial_results(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    original_check = checker.check
    monkeypatch.setattr(checker, "check", lambda *args, **kwargs: original_check(*args, **kwargs, max_bytes=1 << 18))
    status, out, err = run(*CHECK, "kip-320", "--format", "json", "-q")
    assert (status, err.startswith("incomplete: ")) == (3, True)
    assert {(row["complete"], row["holds"], row["steps"]) for row in json.loads(out)} == {(False, None, None)}
    assert run(*CHECK, "kip-320", "--format", "text")[1].count("not broken in the checked part") == len(INVARIANTS)


# run: histories of known incidents.


def test_run_gives_a_row_per_step_and_partition(run: Run) -> None:
    status, out, err = run(*RUN, "txn-torn", "--format", "json")
    assert (status, err) == (0, "")
    rows = json.loads(out)
    assert [row["step"] for row in rows] == [step for step in range(1, 15) for _ in range(2)]
    assert [rows[1][name] for name in ("topic", "partition", "leader", "leader_epoch", "isr")] == ["t", 1, 1, 0, [1, 2, 3]]
    last = rows[-2]["replicas"][2]
    assert last == {"broker": 3, "state": "follower", "log_end_offset": 6, "high_watermark": 6, "leader_epoch": 0}
    assert run(*RUN, "txn-torn", "--format", "text")[1].startswith("txn-torn under kip-320\n\nstep  what happened")
    header, cells = cells_of(run(*RUN, "txn-torn", "--format", "tsv")[1])
    assert header == simulate.COLUMNS
    assert json.loads(cells[-2][-1]) == rows[-2]["replicas"]


def test_run_writes_log_directories_and_the_findings_that_a_scan_gives(run: Run, tmp_path: Path) -> None:
    output = tmp_path / "made"
    status, out, err = run(*RUN, "unclean-election", "--output", output, "--svg", tmp_path / "x.svg", "--format", "json")
    assert (tmp_path / "x.svg").read_text().startswith("<svg ")
    assert (status, bool(json.loads(out))) == (0, True)
    assert err == f"wrote 4 log directories to {output / 'log-dirs'}, and truth.json next to it\n"
    written = {path.relative_to(output).as_posix() for path in [*output.glob("*.json"), *output.glob("log-dirs/*")]}
    assert written == {*(f"log-dirs/{name}" for name in ("broker-1", "broker-2", "broker-3", "controller-100")), "truth.json"}
    truth = json.loads((output / "truth.json").read_text())
    assert (truth["scenario"], truth["protocol"], truth["lost"]) == ("unclean-election", "kip-320", [])
    (partition,) = truth["partitions"]
    assert partition["forks"] == [{"brokers": [1, 2], "offset": 2}]
    assert partition["read_committed"] == [0, 1, 4]
    follower = {"broker": 1, "truncation_offset": 2, "lost": [[2, 4]], "records": [2, 3]}
    assert (partition["elections"][1]["leader"], partition["elections"][1]["followers"][0]) == (2, follower)
    status, out, _ = run("scan", output / "log-dirs", "--format", "json")
    assert status == 1
    found = [(finding["kind"], finding["offset_start"], finding["offset_end"]) for finding in json.loads(out)["findings"]]
    expected = [(finding["kind"], finding["offset_start"], finding["offset_end"]) for finding in truth["findings"]]
    assert sorted(finding for finding in found if finding[0] != "INCIDENT_SIGNATURE") == sorted(expected)


def test_only_an_empty_directory_is_accepted(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    error = f"error: {tmp_path} is not empty: it holds mine\nhint: choose a directory that is empty or does not exist yet\n"
    assert run(*RUN, "txn-torn", "--output", tmp_path) == (2, "", error)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    (tmp_path / "mine").unlink()
    assert run(*RUN, "slow-follower", "--output", tmp_path, "-q")[2] == ""
    assert (tmp_path / "truth.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("simulate", "missing command\nhint: `kafka-forensics simulate --help` shows how it is used"),
        ("simulate chek", "there is no command 'chek'\nhint: did you mean check?"),
        ("simulate check kip-230", "there is no protocol 'kip-230'\nhint: did you mean kip-320?"),
        ("simulate check kip-320 --replicas 6", "6 replicas cannot be checked\nhint: choose 1 to 5"),
        ("simulate check kip-320 --max-epoch -1", "a last epoch of -1 cannot be checked\nhint: choose 0 to 8"),
        ("simulate run unclean-elction", "there is no scenario 'unclean-elction'\nhint: did you mean unclean-election?"),
        ("simulate run txn-torn --protocol kip-230 --output made", "there is no protocol 'kip-230'\nhint: did you mean kip-320?"),
        (
            "simulate run fast-leader-changes --protocol truncate-to-hw --output made",
            "fast-leader-changes does not support truncate-to-hw\nhint: choose from kip-101, kip-279, kip-320",
        ),
    ],
)
def test_wrong_arguments_write_nothing(
    arguments: str, error: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*arguments.split()) == (2, "", f"error: {error}\n")
    assert list(tmp_path.iterdir()) == []
