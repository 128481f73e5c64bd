"""The report page: its size, its content, its reproducibility, and that evidence in it is only text."""

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from kafka_forensics.errors import UsageError
from kafka_forensics.export.json_document import document
from kafka_forensics.model.results import Incomplete, ScanResult
from kafka_forensics.questions import report
from kafka_forensics.report.document import Document, document_of, read_document
from kafka_forensics.report.page import SMALL, Provenance, allowed, page
from tests.report.pages import Page, controller_state, results_with_loss
from tests.support.results import HOSTILE_TEXT, clean_result, hostile_result, unclean_result

HARMFUL = frozenset(
    {"script", "iframe", "object", "embed", "img", "link", "base", "form", "input", "image", "use", "foreignobject"}
)
URL_ATTRIBUTES = frozenset({"src", "srcset", "action", "formaction", "poster", "data", "background", "xlink:href", "ping"})
NO_RECORD_COUNTS = {"records_lost_at_least": None, "records_lost_at_most": None}


def json_of(result: ScanResult) -> Any:
    """The JSON document of a result."""
    return json.loads("".join(document(result)))


def read(objects: dict[str, Any]) -> Document:
    return read_document(json.dumps(objects).encode(), "scan.json")


def assert_harmless(text: str) -> Page:
    """Assert that evidence is only text: no tag that runs or loads anything, no handler, no link out of the page."""
    parsed = Page(text)
    assert not HARMFUL & set(parsed.tags)
    assert not URL_ATTRIBUTES & {name for _, name, _ in parsed.attributes}
    assert [(name, value) for _, name, value in parsed.attributes if name.startswith("on") or name == "style"] == []
    assert [value for _, name, value in parsed.attributes if name == "href" and not re.fullmatch(r"#[a-z]+\d*", value)] == []
    assert "url(" not in text
    assert "@import" not in text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028\u202a-\u202e\u2066-\u2069\ud800-\udfff]", text)
    return parsed


def test_a_page_of_1000_partitions_is_below_1_mb_and_shows_the_worst_in_full() -> None:
    result, details = results_with_loss(1_000)
    text = page(document_of(result), details, Provenance())
    assert len(text.encode()) <= SMALL == allowed(1_000)
    parsed = assert_harmless(text)
    sections = re.findall('<section class="p".*?</section>', text, re.DOTALL)
    assert len(sections) == report.DRAWN
    assert text.count('<td class="v critical">') == 1_000
    assert "The 200 worst are drawn below." in parsed.text
    with_elections = ["What each election would cut</summary>" in section for section in sections]
    assert with_elections[0]
    assert with_elections == sorted(with_elections, reverse=True)
    assert [("Shortened" in section) for section in sections].count(False) < 20


def test_partitions_are_ordered_by_loss_and_pages_are_reproducible() -> None:
    result, details = results_with_loss(60)
    text = page(document_of(result), details, Provenance())
    order = re.findall('<th scope="row"><a href="#p[0-9]+">[^<]*-([0-9]+)</a>', text)
    assert (order[:3], len(order)) == (["49", "48", "47"], 60)
    assert page(document_of(result), details, Provenance()) == text
    few, few_details = results_with_loss(3)
    assert "Shortened" not in page(document_of(few), few_details, Provenance())


@pytest.mark.parametrize("result", [hostile_result(), unclean_result(), clean_result()])
def test_hostile_evidence_is_only_text(result: ScanResult) -> None:
    rows = [["record", 5, 9, HOSTILE_TEXT, HOSTILE_TEXT, HOSTILE_TEXT, HOSTILE_TEXT]]
    sides = [report.DifferenceSide(HOSTILE_TEXT, HOSTILE_TEXT, [tuple(row) for row in rows], frozenset({0}), HOSTILE_TEXT)] * 2
    details = {
        (partition.topic, partition.partition): report.PartitionDetails(
            None,
            controller_state(30),
            report.PartitionTransactions(HOSTILE_TEXT, [report.TransactionSpan(1, 0, 2, 3)]),
            report.FirstDifference(3, sides),
        )
        for partition in result.partitions
    }
    hashes = [report.InputHash(HOSTILE_TEXT, 3, HOSTILE_TEXT)]
    text = page(document_of(result), details, Provenance(HOSTILE_TEXT, (HOSTILE_TEXT,), HOSTILE_TEXT, hashes=hashes))
    assert_harmless(text)
    objects = json_of(result)
    incident = {
        "cause": HOSTILE_TEXT,
        "known_as": HOSTILE_TEXT,
        "message": HOSTILE_TEXT,
        "advice": HOSTILE_TEXT,
        "brokers": [HOSTILE_TEXT],
        "held_by": [HOSTILE_TEXT],
    }
    lost = {"lost_at_least": 1, "lost_at_most": 2} | NO_RECORD_COUNTS
    full = (
        incident
        | lost
        | {"severity": "critical", "confidence": HOSTILE_TEXT, "from_ms": None, "to_ms": None, "kinds": {HOSTILE_TEXT: 1}}
    )
    objects["incidents"] = [full | {"partitions": [{"topic": HOSTILE_TEXT, "partition": 0} | lost]}]
    assert_harmless(page(read(objects), details, Provenance()))


def test_the_content_security_policy_allows_only_the_page_style() -> None:
    text = page(document_of(unclean_result()), {}, Provenance())
    styles = re.findall("<style>(.*?)</style>", text, re.DOTALL)
    assert len(styles) == 1
    digest = base64.b64encode(hashlib.sha256(styles[0].encode()).digest()).decode()
    policy = next(value for tag, name, value in Page(text).attributes if tag == "meta" and name == "content" and "default" in value)
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}';")


def test_unknown_values_are_shown_as_not_known() -> None:
    result = unclean_result()
    for partition in result.partitions:
        partition.high_watermark_at_least = partition.high_watermark_witness = None
        partition.replica_assignment = [1, 2, 7]
    result.incomplete = [Incomplete("broker-9", "permission denied")]
    text = Page(page(document_of(result), {}, Provenance(document="scan.json"))).text
    for sentence in (
        "high watermark not known",
        "leader not known",
        "ISR not known",
        "5 partitions: no file tells a high watermark.",
        "5 partitions: no controller's log says who leads, and who is in sync.",
        "No copy of broker 7 was given, which has replicas of 5 partitions.",
        "This page was made from a scan's document",
        "1 input could not be read.",
        "broker-9",
        "not asked for (--hashes)",
    ):
        assert sentence in text


def test_commands_in_sentences_are_code() -> None:
    objects = json_of(unclean_result())
    objects["findings"][0] |= {"message": "run `scan <b>` now", "advice": "an odd ` stays <i>"}
    text = page(read(objects), {}, Provenance())
    assert "run <code>scan &lt;b&gt;</code> now" in text
    assert "an odd ` stays &lt;i&gt;" in text


def test_incidents_come_first() -> None:
    objects = json_of(unclean_result())
    first = objects["incidents"][0]
    assert (first["cause"], first["lost_at_least"], first["held_by"]) == ("replicas_diverge", 70, [2])
    text = " ".join(Page(page(read(objects), {}, Provenance())).text.split())
    assert f"Replicas diverge: critical {first['message']} {first['advice']}" in text
    assert "Committed offsets lost at least 70" in text
    assert "Good copies on broker 2" in text


def test_hashes_can_be_checked_with_sha256sum(tmp_path: Path) -> None:
    hashes = [report.InputHash("a", 1, "00" * 32), report.InputHash("b", 2, "ff" * 32), report.InputHash("c", 1 << 50, None)]
    text = Page(page(document_of(clean_result()), {}, Provenance(hashes=hashes))).text
    listing = "".join(f"{file.sha256}  {file.path}\n" for file in hashes[:2])
    assert "not made: nearly all of it is a hole" in text
    assert hashlib.sha256(listing.encode()).hexdigest() in text
    assert "of the list of 2 files below" in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _: [], "Expected `object`"),
        (lambda objects: objects | {"partitions": 3}, "partitions"),
        (lambda objects: {key: value for key, value in objects.items() if key != "summary"}, "summary"),
        (lambda objects: objects | {"summary": objects["summary"] | {"verdict": "x' onload='"}}, "no verdict"),
        (lambda objects: objects | {"findings": [objects["findings"][0] | {"severity": "grave"}]}, "no verdict or severity"),
        (lambda objects: objects | {"findings": [objects["findings"][0] | {"offset_end": 2**63}]}, "offset_end"),
    ],
)
def test_another_document_is_refused_with_the_place(change: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        read(change(json_of(unclean_result())))
    assert "scan PATH... --format json" in str(caught.value.hint)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000, b'{"a": ' + b"9" * 5_000 + b"}"])
def test_invalid_json_is_refused(data: bytes) -> None:
    with pytest.raises(UsageError, match="is no document of scan"):
        read_document(data, "scan.json")


def test_a_result_and_its_document_give_the_same_page() -> None:
    result, details = results_with_loss(5)
    assert page(read(json_of(result)), details, Provenance()) == page(document_of(result), details, Provenance())
