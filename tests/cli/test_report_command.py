"""`report`: a page of copies or of a scan's document, refused options, and hidden payloads and secrets."""

import hashlib
import json
import shutil
import tarfile
from pathlib import Path
from typing import Final

import pytest

from tests.cli.runs import Run
from tests.report.pages import GOLDEN_PAGES, Page, golden_lanes
from tests.support.audit import put_audit
from tests.support.places import SAMPLES

SAMPLE: Final = SAMPLES / "unclean-election"


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """From each broker of the sample: a partition that lost data, one with transactions, and the controllers' log."""
    copies = put_audit(tmp_path_factory.mktemp("report") / "copies")
    for broker in (1, 2, 3):
        shutil.copytree(SAMPLE / f"broker-{broker}" / "payments-0", copies / f"broker-{broker}" / "payments-0")
    return copies


@pytest.fixture
def document(run: Run, copies: Path, tmp_path: Path) -> Path:
    """A scan's document."""
    run("scan", copies, "--format", "json", "--output", tmp_path / "scan.json")
    return tmp_path / "scan.json"


def page_of(run: Run, output: Path, *arguments: object) -> str:
    status, out, err = run("report", *arguments, "--output", output)
    assert (status, out) == (0, ""), err
    return output.read_text(encoding="utf-8")


def test_the_page_says_what_happened_and_what_to_do(run: Run, copies: Path, tmp_path: Path) -> None:
    status, out, err = run("report", copies, "--output", tmp_path / "incident.html")
    assert (status, out) == (0, "")
    assert err == f"wrote {tmp_path / 'incident.html'}: critical\n"
    text = " ".join(Page((tmp_path / "incident.html").read_text()).text.split())
    assert text.startswith(
        "Kafka log forensics: critical Skip to the content Kafka log forensics: critical A leader was elected uncleanly"
    )
    assert "committed records lost 70 recoverable from these copies 70 keep stopped until copied broker 2" in text
    step = f"kafka-forensics plan {copies}"
    assert f"Next step {step} 3 partitions, 9 replicas on 3 brokers." in text
    assert step in " ".join(run("scan", copies)[1].replace("\\\n", " ").split())
    assert "2026-11-21T03:56:10.014Z Unclean election: broker 1, from outside the ISR, becomes leader of audit-0." in text
    assert "2026-11-21T03:56:08.677Z 13 partitions have no leader. Broker 2 is down." in text
    assert "lost records, written 2026-11-21T03:55:59.057Z to 2026-11-21T03:55:59.117Z" in text
    assert "elect 2: broker 1 loses 300–344, 45 records (unclean, recommended)" in text
    assert f"Command kafka-forensics report {copies} Read" in text
    assert "Time range 2026-11-21T03:55:" in text


def test_the_page_has_the_numbers_of_scan_and_plan(run: Run, copies: Path, tmp_path: Path) -> None:
    text = " ".join(Page(page_of(run, tmp_path / "page.html", copies)).text.split())
    scanned = json.loads(run("scan", copies, "--format", "json")[1])
    assert [incident["records_lost_at_most"] for incident in scanned["incidents"]] == [70]
    plan = json.loads(run("plan", copies, "--format", "json")[1])
    elections = [candidate for planned in plan["partitions"] for candidate in planned["candidates"]]
    assert elections
    for candidate in elections:
        for loss in candidate["losses"]:
            holders = loss["held_by"]
            assert len(holders) == 1
            span = f"{loss['offset_start']}–{loss['offset_end'] - 1}"
            assert f"elect {candidate['broker']}: broker {holders[0]} loses {span}, {loss['records']} records" in text


def test_lanes_of_the_sample_equal_the_golden_ones() -> None:
    assert golden_lanes() == (GOLDEN_PAGES / "audit-0.svg").read_text(encoding="utf-8")


def test_a_scan_document_gives_a_page_of_its_content(run: Run, document: Path, tmp_path: Path) -> None:
    document.write_text(document.read_text().replace('"engine": "local"', '"engine": "spark"'))
    text = Page(page_of(run, tmp_path / "incident.html", document)).text
    assert "The JSON document of a scan has no plans and no timeline" in text
    assert "engine spark" in " ".join(text.split())
    assert "UNCLEAN_LOSS" in text
    assert "elect 1" not in text
    status, _, _ = run("report", document, "--output", tmp_path / "incident.html", "--fail-on", "critical")
    assert status == 1
    incomplete = json.loads(document.read_text()) | {"incomplete": [{"path": "x", "reason": "y"}]}
    document.write_text(json.dumps(incomplete))
    assert run("report", document, "--output", tmp_path / "incident.html")[0] == 3


def test_bytes_and_hashes_are_shown_only_on_request(run: Run, copies: Path, tmp_path: Path) -> None:
    """An archive is hashed as one file."""
    archive = tmp_path / "copies.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(copies, "copies")
    plain = page_of(run, tmp_path / "plain.html", archive)
    assert ("Bytes at the first difference" in plain, b"user-".hex(" ") in plain) == (False, False)
    with_bytes = page_of(run, tmp_path / "shown.html", archive, "--show-payloads", "--hashes")
    assert "Bytes at the first difference of audit-0, offset 300" in Page(with_bytes).text
    assert b"user-".hex(" ") in with_bytes
    assert hashlib.sha256(archive.read_bytes()).hexdigest() in with_bytes
    assert "the list of 1 file below" in with_bytes


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("{copies}", "--output", "{out}/page.txt"), "does not end in .html"),
        (("{copies}", "--output", "{out}/none/page.html"), "its directory does not exist"),
        (("{out}/none.json", "--output", "{out}/page.html"), "cannot read"),
        (("{out}/a.json", "{copies}", "--output", "{out}/page.html"), "give a scan's document without other paths"),
        (("{out}/a.json", "--topic", "audit", "--output", "{out}/page.html"), "--topic cannot be used with a scan's document"),
        (("{out}/a.json", "--hashes", "--output", "{out}/page.html"), "--hashes cannot be used with a scan's document"),
        (("{out}/a.json", "--output", "{out}/page.html"), "is not a document of scan"),
    ],
)
def test_invalid_options_give_status_2_and_a_hint(
    run: Run, copies: Path, tmp_path: Path, arguments: tuple[str, ...], error: str
) -> None:
    (tmp_path / "a.json").write_text("{}")
    status, out, err = run("report", *(argument.format(copies=copies, out=tmp_path) for argument in arguments))
    assert (status, out, error in err) == (2, "", True)
    assert "hint: " in err
    assert not (tmp_path / "page.html").exists()


def test_the_page_hides_secrets_of_the_command_line(run: Run, copies: Path, tmp_path: Path) -> None:
    text = page_of(run, tmp_path / "page.html", copies, "--storage-option", "secret_key=hunter2", "--topic", "audit", "--no-deep")
    assert "hunter2" not in text
    assert "--topic audit --no-deep --storage-option &#39;secret_key=***&#39;" in text
    assert "Records were not decoded" in text


# `scan --report`: the same page beside the answer.


@pytest.mark.parametrize("format_name", ["tsv", "text"])
def test_a_scan_writes_the_same_page_beside_its_answer(run: Run, copies: Path, tmp_path: Path, format_name: str) -> None:
    page = tmp_path / "page.html"
    status, out, err = run("scan", copies, "--format", format_name)
    assert run("scan", copies, "--format", format_name, "--report", page) == (status, out, err + f"wrote {page}\n")
    assert page.read_text() == page_of(run, tmp_path / "report.html", copies)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--report", "{out}/page.txt"), "does not end in .html"),
        (("--report", "s3://bucket/page.html"), "--report must be a local file"),
    ],
)
def test_an_invalid_report_path_is_refused(run: Run, copies: Path, tmp_path: Path, arguments: tuple[str, ...], error: str) -> None:
    status, out, err = run("scan", copies, *(argument.format(copies=copies, out=tmp_path) for argument in arguments))
    assert (status, out, error in err) == (2, "", True)
    assert "hint: " in err
