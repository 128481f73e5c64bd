"""`verify` as users meet it: statuses, words, formats, and names that do nothing."""

import json
from pathlib import Path

import pytest

from kafka_forensics.cli.main import outcome
from tests.support.plan_runs import put_audit


@pytest.fixture(name="copies")
def copies_and_their_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copies, and beside them a plan whose first election after it was that of broker 1: all of that came true but for broker 2."""
    monkeypatch.setenv("COLUMNS", "80")
    copies, file = put_audit(tmp_path / "copies"), tmp_path / "plan.json"
    assert outcome(["plan", str(copies), "--topic", "audit", "--output", str(file), "--quiet"]) == 0
    document = json.loads(file.read_text())
    document["partitions"][0]["controller"]["leader_epoch"] = 1
    file.write_text(json.dumps(document))
    return copies


def run(copies: Path, *more: str) -> int:
    return outcome(["verify", str(copies), "--against", str(copies.parent / "plan.json"), *more])


def test_broken_promises_end_with_1(copies: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(copies, "--elected", "1", "--format", "table") == 1
    out, err = capsys.readouterr()
    words = " ".join(out.split())
    assert "kept broker 1 leads" in words
    assert "BROKEN broker 2 cuts at 300, and holds what broker 1 holds: it holds other records from offset 300 on" in words
    assert all(len(line) <= 80 for line in out.splitlines())
    assert err == "1 partition: 2 promises broken, 4 kept\n"


def test_kept_promises_end_with_0_and_what_nobody_knows_with_3(copies: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = copies.parent / "plan.json"
    document = json.loads(file.read_text())
    partition = document["partitions"][0]
    partition["candidates"] = [candidate | {"followers": []} for candidate in partition["candidates"]]
    file.write_text(json.dumps(document))
    partition["replicas"] = [replica for replica in partition["replicas"] if replica["broker"] == 1]
    file.write_text(json.dumps(document))
    for broker in (2, 3):
        (copies / f"broker-{broker}").rename(copies.parent / f"gone-{broker}")
    assert run(copies, "--elected", "1", "--format", "json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["outcome"] for row in rows} == {"kept"}
    (copies / "broker-1" / "audit-0").rename(copies.parent / "gone-1")
    assert run(copies, "--elected", "1", "--format", "tsv") == 3
    assert "\tno_copy\t" in capsys.readouterr().out


def test_names_in_a_plan_do_nothing_on_a_terminal(copies: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = copies.parent / "plan.json"
    file.write_text(file.read_text().replace('"audit"', '"\\u001b[31m{found}\\u0007"'))
    assert run(copies, "--format", "table") == 3
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err
    assert "\x07" not in out + err
    assert "{found}" in out


def test_a_file_that_is_no_plan_is_a_wrong_command_line(copies: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copies.parent / "plan.json").write_text("{}")
    assert run(copies) == 2
    assert "plan PATH... --format json --output plan.json" in capsys.readouterr().err


def test_where_nothing_is_promised_nothing_is_verified(copies: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(copies, "--topic", "__cluster*") == 3
    assert capsys.readouterr().err == "nothing to verify: nothing is promised of these partitions\n"


def test_a_follower_without_a_copy_is_told_with_its_leader(copies: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for broker in (1, 2, 3):
        (copies / f"broker-{broker}" / "audit-0").rename(copies.parent / f"gone-{broker}")
    assert run(copies, "--elected", "1", "--format", "table") == 3
    assert "broker 2 cuts at 300, and holds what broker 1 holds: no copy of it was given" in " ".join(
        capsys.readouterr().out.split()
    )
