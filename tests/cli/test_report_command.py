"""`report`: a page of copies or of a scan's document, what it refuses, and what it keeps to itself."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

import pytest

from kafka_forensics.engine import local
from kafka_forensics.model.results import ScanResult
from tests.cli.test_interrupts import judged_so_far
from tests.support.plan_runs import Run
from tests.support.report_pages import GOLDEN, Page, golden_lanes

SAMPLE: Final = Path(__file__).resolve().parents[2] / "sample_logs" / "unclean-election"


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    """Of each broker of the sample one partition that lost data, one with transactions, and the controllers' log."""
    for broker in (1, 2, 3):
        for name in ("audit-0", "payments-0", "__cluster_metadata-0"):
            shutil.copytree(SAMPLE / f"broker-{broker}" / name, tmp_path / "copies" / f"broker-{broker}" / name)
        for path in (SAMPLE / f"broker-{broker}").iterdir():
            if path.is_file():
                shutil.copy(path, tmp_path / "copies" / f"broker-{broker}")
    return tmp_path / "copies"


def page_of(run: Run, output: Path, *arguments: object) -> str:
    status, out, err = run("report", *arguments, "--output", output)
    assert (status, out) == (0, ""), err
    return output.read_text(encoding="utf-8")


def test_one_page_tells_what_happened_and_how_to_go_on(run: Run, copies: Path, tmp_path: Path) -> None:
    status, out, err = run("report", copies, "--output", tmp_path / "incident.html")
    assert (status, out) == (0, "")
    assert err == f"wrote {tmp_path / 'incident.html'}: critical\n"
    text = " ".join(Page((tmp_path / "incident.html").read_text()).text.split())
    assert text.startswith(
        "Kafka log forensics: critical Skip to the content Kafka log forensics: critical 3 partitions, 9 replicas"
    )
    assert "Leadership and ISR over time" in text
    assert "2026-11-21T03:56:10.014Z 296 changed, unclean election 1 2 1 none 2, 3, 1" in text
    assert "broker 2 (loses least) unclean 45 45 45 broker 1 at 300 of 345" in text
    assert f"The steps: kafka-forensics plan {copies} --topic audit --partition 0" in text
    assert "open, offsets 72 to 74" in text
    assert "last stable offset 72" in text
    assert f"Command kafka-forensics report {copies} Read" in text
    assert "Time range 2026-11-21T03:55:" in text


def test_the_step_for_a_log_without_its_topics_id_is_told_where_nothing_else_matters(run: Run, tmp_path: Path) -> None:
    shutil.copytree(SAMPLE.with_name("healthy"), tmp_path / "copies")
    text = Page(page_of(run, tmp_path / "whole.html", tmp_path / "copies")).text
    assert "The steps:" not in text
    (tmp_path / "copies" / "broker-2" / "orders-1" / "partition.metadata").unlink()
    text = " ".join(Page(page_of(run, tmp_path / "lacking.html", tmp_path / "copies")).text.split())
    assert text.count("The steps:") == 1
    assert f"The steps: kafka-forensics plan {tmp_path / 'copies'} --topic orders --partition 1" in text
    assert "Not known to the plan: no topic id (broker 2)." in text


def test_the_same_bytes_every_time_at_any_number_of_jobs(run: Run, copies: Path, tmp_path: Path) -> None:
    one = page_of(run, tmp_path / "one.html", copies, "--jobs", 1)
    assert one == page_of(run, tmp_path / "two.html", copies, "--jobs", 8)


def test_lanes_of_the_sample_are_the_golden_ones() -> None:
    assert golden_lanes() == (GOLDEN / "audit-0.svg").read_text(encoding="utf-8")


def test_a_scans_document_gives_a_page_of_what_stands_in_it(run: Run, copies: Path, tmp_path: Path) -> None:
    document = tmp_path / "scan.json"
    run("scan", copies, "--format", "json", "--output", document)
    text = Page(page_of(run, tmp_path / "incident.html", document)).text
    assert "This page was made from a scan's document" in text
    assert "UNCLEAN_LOSS" in text
    assert "What each election would cut" not in text
    status, _, _ = run("report", document, "--output", tmp_path / "incident.html", "--fail-on", "critical")
    assert status == 1
    incomplete = json.loads(document.read_text()) | {"incomplete": [{"path": "x", "reason": "y"}]}
    document.write_text(json.dumps(incomplete))
    assert run("report", document, "--output", tmp_path / "incident.html")[0] == 3


def test_bytes_are_shown_only_when_asked_for(run: Run, copies: Path, tmp_path: Path) -> None:
    plain = page_of(run, tmp_path / "plain.html", copies)
    assert "Bytes at the first difference" not in plain
    shown = Page(page_of(run, tmp_path / "shown.html", copies, "--show-payloads")).text
    assert "Bytes at the first difference, offset 300" in shown
    assert b"user-".hex(" ") in shown
    assert b"user-".hex(" ") not in plain


def test_every_file_that_was_read_is_hashed_when_asked_for(run: Run, copies: Path, tmp_path: Path) -> None:
    text = page_of(run, tmp_path / "hashed.html", copies, "--hashes")
    log = copies / "broker-2" / "audit-0" / "00000000000000000000.log"
    assert hashlib.sha256(log.read_bytes()).hexdigest() in text
    rows = re.findall('<tr><td class="l">([^<]*)</td><td class="n">([0-9,]+)</td><td><code>([0-9a-f]{64})</code></td></tr>', text)
    assert len(rows) > 50
    assert all(hashlib.sha256(Path(path).read_bytes()).hexdigest() == digest for path, _, digest in rows)
    listing = "".join(f"{digest}  {path}\n" for path, _, digest in rows)
    assert f"{hashlib.sha256(listing.encode()).hexdigest()}, of the list of {len(rows)} files below" in text
    assert "not asked for" not in text


def test_an_archive_is_hashed_as_one_file(run: Run, copies: Path, tmp_path: Path) -> None:
    archive = tmp_path / "copies.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(copies, "copies")
    text = page_of(run, tmp_path / "packed.html", archive, "--hashes")
    assert hashlib.sha256(archive.read_bytes()).hexdigest() in text
    assert "the list of 1 file below" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("{copies}", "--output", "{out}/page.txt"), "does not end in .html"),
        (("{copies}", "--output", "{copies}/broker-1/page.html"), "inside"),
        (("{copies}", "--output", "{out}/none/page.html"), "its directory does not exist"),
        (("{copies}", "--engine", "spark", "--output", "{out}/page.html"), "on this machine only"),
        (("{out}/none.json", "--output", "{out}/page.html"), "cannot read"),
        (("{out}/a.json", "{copies}", "--output", "{out}/page.html"), "is given alone"),
        (("{out}/a.json", "--topic", "audit", "--output", "{out}/page.html"), "--topic does not go with a scan's document"),
        (("{out}/a.json", "--hashes", "--output", "{out}/page.html"), "--hashes does not go with a scan's document"),
        (("{out}/a.json", "--output", "{out}/page.html"), "is no document of scan"),
    ],
)
def test_what_cannot_be_is_refused_with_a_hint(
    run: Run, copies: Path, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    (tmp_path / "a.json").write_text("{}")
    status, out, err = run("report", *(argument.format(copies=copies, out=tmp_path) for argument in arguments))
    assert (status, out) == (2, "")
    assert said in err
    assert "hint: " in err
    assert not (tmp_path / "page.html").exists()


def test_secrets_of_a_command_line_stay_out(run: Run, copies: Path, tmp_path: Path) -> None:
    text = page_of(run, tmp_path / "page.html", copies, "--storage-option", "secret_key=hunter2", "--topic", "audit", "--no-deep")
    assert "hunter2" not in text
    assert "--topic audit --no-deep --storage-option &#39;secret_key=***&#39;" in text
    assert "Records were not decoded" in text


def test_hostile_directories_are_only_text(run: Run, tmp_path: Path) -> None:
    name = "<script>alert(1)<&\"'`{{7*7}}-0"
    shutil.copytree(SAMPLE / "broker-1" / "audit-0", tmp_path / "copies" / name.replace("/", ""))
    status, _, _ = run("report", tmp_path / "copies", "--output", tmp_path / "page.html")
    assert status in (0, 3)
    found = Page((tmp_path / "page.html").read_text())
    assert "script" not in found.tags
    assert "49" not in [word.strip(":- ") for word in found.text.split()]


# `scan --report`: the same page beside the ordinary answer.


@pytest.mark.parametrize("format_name", ["jsonl", "tsv", "report", "prometheus"])
def test_a_scan_writes_the_same_page_beside_its_answer(run: Run, copies: Path, tmp_path: Path, format_name: str) -> None:
    page = tmp_path / "page.html"
    status, out, err = run("scan", copies, "--format", format_name)
    with_page = run("scan", copies, "--format", format_name, "--report", page)
    assert with_page == (status, out, err + f"wrote {page}\n")
    assert page.read_text() == page_of(run, tmp_path / "report.html", copies)


def test_a_scan_reads_its_copies_once_for_both(run: Run, copies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scans: list[object] = []
    once = local.scan_inputs

    def counted(*arguments: object) -> ScanResult:
        scans.append(arguments)
        return once(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("kafka_forensics.questions.report.scan_inputs", counted)
    monkeypatch.setattr(local, "scan", counted)
    assert run("scan", copies, "--report", tmp_path / "page.html", "-q")[0] == 1
    assert len(scans) == 1


def test_the_page_is_there_though_nobody_reads_the_answer(run: Run, copies: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    reader, writer = os.pipe()
    os.close(reader)
    try:
        command = [sys.executable, "-m", "kafka_forensics", "scan", str(copies), "--report", str(page)]
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")
    assert "Partitions in detail" in page.read_text()


def test_an_interrupted_scan_has_a_page_of_what_was_judged(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = judged_so_far("json", "--report", str(page))
    assert done.returncode == 130
    text = " ".join(Page(page.read_text()).text.split())
    assert "interrupted after 3 of 11 partitions" in text
    assert "audit-0: critical" in text
    assert "What each election would cut" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--report", "{out}/page.txt"), "does not end in .html"),
        (("--report", "{copies}/broker-1/page.html"), "inside"),
        (("--report", "s3://bucket/page.html"), "--report is a file of this machine"),
        (("--report", "{out}/page.html", "--output", "{out}/page.html", "--format", "json"), "name one file"),
    ],
)
def test_a_page_is_not_written_everywhere(run: Run, copies: Path, tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    status, out, err = run("scan", copies, *(argument.format(copies=copies, out=tmp_path) for argument in arguments))
    assert (status, out) == (2, "")
    assert said in err
    assert "hint: " in err


def test_a_document_of_spark_gives_a_page(run: Run, copies: Path, tmp_path: Path) -> None:
    document = tmp_path / "scan.json"
    run("scan", copies, "--format", "json", "--output", document)
    document.write_text(document.read_text().replace('"engine": "local"', '"engine": "spark"'))
    text = " ".join(Page(page_of(run, tmp_path / "page.html", document)).text.split())
    assert "engine spark" in text
    assert "audit-0: critical" in text
