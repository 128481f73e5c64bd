"""`simulate run` and `simulate list`: pages, rows in every format, pictures, directories, and what is refused."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_forensics.cli.main import outcome
from kafka_forensics.cli.options import FORMATS
from kafka_forensics.cli.outputs import simulate
from kafka_forensics.simulation.cluster import PROTOCOLS
from kafka_forensics.simulation.scenarios import SCENARIOS, play

ROOT = Path(__file__).resolve().parents[2]
MAKE_IT_FIRST = "hint: make that directory first, or choose another place\n"
RUN = ("simulate", "run")
LIST = ("simulate", "list")


def ran(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = outcome(list(arguments))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_page_fits_eighty_columns(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for protocol in SCENARIOS[name].protocols:
        status, out, err = ran(capsys, *RUN, name, "--protocol", protocol, "--format", "table")
        assert (status, err) == (0, "")
        assert out.startswith(f"{name} under {protocol}\n\nstep  what happened")
        assert max(map(len, out.splitlines())) <= 80
        assert "…" not in out
        steps = [line[:4].strip() for line in out.partition("log end/high")[0].splitlines()[3:] if line[:4].strip()]
        assert steps == [str(number) for number in range(1, len(play(name, protocol).events) + 1)]


def test_rows_say_the_same_in_every_format(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = ran(capsys, *RUN, "txn-torn", "--format", "json")
    assert (status, err) == (0, "")
    rows = json.loads(out)
    assert [row["step"] for row in rows] == [step for step in range(1, 15) for _ in range(2)]
    assert [rows[1][name] for name in ("topic", "partition", "leader", "leader_epoch", "isr")] == ["t", 1, 1, 0, [1, 2, 3]]
    last = rows[-2]["replicas"][2]
    assert last == {"broker": 3, "state": "follower", "log_end_offset": 6, "high_watermark": 6, "leader_epoch": 0}
    lines = ran(capsys, *RUN, "txn-torn", "--format", "jsonl")[1].splitlines()
    assert [json.loads(line) for line in lines] == rows
    header, *cells = csv.reader(ran(capsys, *RUN, "txn-torn")[1].splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
    assert tuple(header) == simulate.COLUMNS
    assert json.loads(cells[-2][-1]) == rows[-2]["replicas"]
    assert ran(capsys, *RUN, "txn-torn", "--format", "markdown")[1].count("\n") == len(rows) + 2


def test_states_of_brokers_are_marked(capsys: pytest.CaptureFixture[str]) -> None:
    out = ran(capsys, *RUN, "fast-leader-changes", "--format", "table")[1]
    for cell in ("*1/1 e1", "~1/1 e0", "?2/1 e1", "x2/1 e3"):
        assert cell in out
    states = {
        view["state"]
        for row in json.loads(ran(capsys, *RUN, "fast-leader-changes", "--format", "json")[1])
        for view in row["replicas"]
    }
    assert states == {"leader", "follower", "frozen", "stale leader", "dead"}


def test_the_list_has_every_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    for format_name in ("table", "tsv", "json", "jsonl", "markdown"):
        status, out, err = ran(capsys, *LIST, "--format", format_name)
        assert (status, err) == (0, "")
        assert all(name in out for name in SCENARIOS)
    rows = json.loads(ran(capsys, *LIST, "--format", "json")[1])
    assert [row["scenario"] for row in rows] == list(SCENARIOS)
    assert rows[0]["protocols"] == list(PROTOCOLS)
    assert ran(capsys, *LIST, "--format", "table")[1].startswith(
        "hw-lag-loss  (truncate-to-hw, kip-101, kip-279, kip-320)\n    A fol"
    )


def test_output_holds_directories_and_the_truth(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    to = tmp_path / "made"
    status, out, err = ran(capsys, *RUN, "unclean-election", "--output", str(to), "--format", "json")
    assert status == 0
    assert json.loads(out)
    assert err == f"wrote 4 log directories to {to / 'log-dirs'}, and truth.json beside it\n"
    assert sorted(path.name for path in to.iterdir()) == ["log-dirs", "truth.json"]
    made = sorted(path.name for path in (to / "log-dirs").iterdir())
    assert made == ["broker-1", "broker-2", "broker-3", "controller-100"]
    truth = json.loads((to / "truth.json").read_text())
    assert (truth["scenario"], truth["protocol"], truth["lost"]) == ("unclean-election", "kip-320", [])
    (partition,) = truth["partitions"]
    assert partition["forks"] == [{"brokers": [1, 2], "offset": 2}]
    assert partition["read_committed"] == [0, 1, 4]
    second = partition["elections"][1]
    assert (second["leader"], second["followers"][0]) == (
        2,
        {"broker": 1, "truncation_offset": 2, "lost": [[2, 4]], "records": [2, 3]},
    )
    status, out, _ = ran(capsys, "scan", str(to / "log-dirs"), "--format", "json")
    assert status == 1
    found = [(one["kind"], one["offset_start"], one["offset_end"]) for one in json.loads(out)["findings"]]
    expected = [(one["kind"], one["offset_start"], one["offset_end"]) for one in truth["findings"]]
    assert sorted(one for one in found if one[0] != "INCIDENT_SIGNATURE") == sorted(expected)


def test_a_directory_that_is_not_empty_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    hint = "hint: choose a directory that is empty or does not exist yet\n"
    status, out, err = ran(capsys, *RUN, "txn-torn", "--output", str(tmp_path))
    assert (status, out, err) == (2, "", f"error: {tmp_path} is not empty: it holds mine\n{hint}")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    status, out, err = ran(capsys, *RUN, "txn-torn", "--output", str(tmp_path / "mine"))
    assert (status, out, err) == (2, "", f"error: {tmp_path / 'mine'} is a file, and --output names a directory\n{hint}")
    status, out, err = ran(capsys, *RUN, "txn-torn", "--output", str(tmp_path / "a" / "b"))
    assert (status, out, err) == (
        2,
        "",
        f"error: cannot write to {tmp_path / 'a' / 'b'}: its directory does not exist\n{MAKE_IT_FIRST}",
    )


def test_an_empty_directory_is_taken_and_q_says_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert ran(capsys, *RUN, "slow-follower", "--output", str(tmp_path), "-q")[2] == ""
    assert (tmp_path / "truth.json").is_file()


def test_a_picture_goes_where_it_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "x.svg"
    assert ran(capsys, *RUN, "slow-follower", "--svg", str(path))[0] == 0
    assert path.read_text().startswith("<svg ")
    missing = tmp_path / "no" / "x.svg"
    status, out, err = ran(capsys, *RUN, "slow-follower", "--svg", str(missing))
    assert (status, out) == (2, "")
    assert err == f"error: cannot write to {missing}: its directory does not exist\n{MAKE_IT_FIRST}"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["unclean-elction"], "error: there is no scenario 'unclean-elction'\nhint: did you mean unclean-election?\n"),
        (["zzz"], f"error: there is no scenario 'zzz'\nhint: choose from {', '.join(SCENARIOS)}\n"),
        (["txn-torn", "--protocol", "kip-230"], "error: there is no protocol 'kip-230'\nhint: did you mean kip-320?\n"),
        (
            ["fast-leader-changes", "--protocol", "truncate-to-hw"],
            "error: fast-leader-changes is not played under truncate-to-hw\nhint: choose from kip-101, kip-279, kip-320\n",
        ),
        (["txn-torn", "--format", "xml"], f"error: there is no format 'xml'\nhint: choose from {', '.join(FORMATS)}\n"),
    ],
)
def test_what_cannot_be_asked_ends_with_2(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    assert ran(capsys, *RUN, *arguments) == (2, "", said)


def test_nothing_is_written_when_the_protocol_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    to = tmp_path / "made"
    assert ran(capsys, *RUN, "txn-torn", "--protocol", "kip-101", "--output", str(to))[0] == 2
    assert not to.exists()


def test_help_needs_nothing_heavy() -> None:
    code = (
        "import sys; from kafka_forensics.cli.main import outcome\n"
        "outcome(['simulate', 'run', '--help']); outcome(['simulate', 'list', '--help'])\n"
        "sys.exit(repr([name for name in ('numpy', 'rich', 'kafka_forensics.simulation') if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == "[]\n"
    assert "--svg FILE" in done.stdout
