"""`verify`: exit statuses, messages, formats, and escaped names."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.runs import Run
from tests.support.audit import put_audit

Verify = Callable[..., tuple[int, str, str]]
NOT_GIVEN = "broker 2 cuts at 300, and holds what broker 1 holds: no copy of it was given"


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    return put_audit(tmp_path / "copies")


@pytest.fixture
def plan(copies: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plan before the election of broker 1: only the promises about broker 2 are broken."""
    monkeypatch.setenv("COLUMNS", "80")
    file = copies.parent / "plan.json"
    assert run("plan", copies, "--topic", "audit", "--output", file, "--quiet")[0] == 0
    document = json.loads(file.read_text())
    document["partitions"][0]["controller"]["leader_epoch"] = 1
    file.write_text(json.dumps(document))
    return file


@pytest.fixture
def verify(copies: Path, plan: Path, run: Run) -> Verify:
    """`verify` of the copies against the plan: exit status, stdout as one line, stderr."""

    def run_verify(*arguments: Any) -> tuple[int, str, str]:
        status, out, err = run("verify", copies, "--against", plan, *arguments)
        assert all(len(line) <= 80 for line in out.splitlines()) or "text" not in arguments
        return status, " ".join(out.split()), err

    return run_verify


def test_broken_promises_give_status_1(verify: Verify) -> None:
    status, text, err = verify("--elected", "1", "--format", "text")
    assert (status, err) == (1, "1 partition: 2 promises broken, 4 kept\n")
    assert "broker 1 leads" not in text
    assert "BROKEN audit-0: broker 2 cuts at 300, and holds what broker 1 holds: it holds other records from offset 300 on" in text


def test_kept_promises_are_shown_if_verbose(verify: Verify) -> None:
    assert "kept audit-0: broker 1 leads" in verify("--elected", "1", "-v")[1]


def test_kept_promises_give_status_0_and_unknown_ones_3(verify: Verify, copies: Path, plan: Path) -> None:
    for broker in (1, 2, 3):
        (copies / f"broker-{broker}" / "audit-0").rename(copies.parent / f"gone-{broker}")
    status, text, _ = verify("--elected", "1", "--format", "text")
    assert (status, NOT_GIVEN in text) == (3, True)
    (copies.parent / "gone-1").rename(copies / "broker-1" / "audit-0")
    document = json.loads(plan.read_text())
    (partition,) = document["partitions"]
    partition["candidates"] = [candidate | {"followers": []} for candidate in partition["candidates"]]
    partition["replicas"] = [replica for replica in partition["replicas"] if replica["broker"] == 1]
    plan.write_text(json.dumps(document))
    status, out, _ = verify("--elected", "1", "--format", "json")
    assert (status, {row["outcome"] for row in json.loads(out)}) == (0, {"kept"})


def test_names_in_a_plan_are_escaped(verify: Verify, plan: Path) -> None:
    plan.write_text(plan.read_text().replace('"audit"', '"\\u001b[31m{found}\\u0007"'))
    status, text, err = verify("--format", "text")
    assert (status, "{found}" in text, "\x1b" in text + err, "\x07" in text + err) == (3, True, False, False)


def test_a_plan_without_promises_gives_status_3_and_no_plan_2(verify: Verify, plan: Path) -> None:
    status, _, err = verify("--topic", "__cluster*")
    assert (status, err) == (
        3,
        "nothing to verify: the document promises nothing of these partitions; a scan of the new copies shows what is left\n",
    )
    plan.write_text("{}")
    status, _, err = verify()
    assert (status, "plan PATH... --format json --output plan.json" in err) == (2, True)


def test_offsets_that_the_plan_gives_up_are_named(verify: Verify) -> None:
    text = verify("--elected", "1")[1]
    assert "given up the planned elections lose 70 offsets of audit-0; no recovered records of these were given" in text
