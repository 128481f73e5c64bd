"""The report page: its size, its content, its reproducibility, and that evidence in it is only text."""

import base64
import hashlib
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kafka_forensics.errors import UsageError
from kafka_forensics.export.json_document import document
from kafka_forensics.model.results import Incomplete, ScanResult
from kafka_forensics.questions import report
from kafka_forensics.report.document import Document, document_of, read_document
from kafka_forensics.report.page import LARGEST, Provenance, page
from kafka_forensics.report.words import grouped
from tests.report.pages import START_MS, Page, history, results_with_loss
from tests.support.results import HOSTILE_TEXT, clean_result, hostile_result, unclean_result

HARMFUL = frozenset(
    {"script", "iframe", "object", "embed", "img", "link", "base", "form", "input", "image", "use", "foreignobject"}
)
URL_ATTRIBUTES = frozenset({"src", "srcset", "action", "formaction", "poster", "data", "background", "xlink:href", "ping"})
NO_RECORDS = {"records_lost_at_least": None, "records_lost_at_most": None}


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


def plain_text(text: str) -> str:
    return " ".join(Page(text).text.split())


@pytest.mark.parametrize("count", [2_000, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_a_page_of_many_partitions_is_below_1_mib(count: int) -> None:
    result, facts = results_with_loss(count, 300)
    text = page(document_of(result), facts, Provenance())
    assert len(text.encode()) <= LARGEST == 1024 * 1024
    assert_harmless(text)
    lost = sum(70 + number // 300 % 50 for number in range(count))
    assert f"{count:,} partitions of 300 topics: {lost:,} records lost" in plain_text(text)
    assert text.count('aria-label="Replicas of payments.settled.by-region.0-') == 2  # the lanes, and a table


def test_a_page_of_long_hostile_names_is_below_1_mib() -> None:
    result, facts = results_with_loss(2_000, 2_000)
    for number, summary in enumerate(result.partitions):
        summary.leader = number  # each partition has other lanes
        summary.topic = HOSTILE_TEXT * 8 + str(number)
        summary.replicas[1].log_dir = HOSTILE_TEXT * 12
    text = page(document_of(result), facts, Provenance())
    assert len(text.encode()) <= LARGEST
    assert "Not drawn: 1,9" in plain_text(text)


@pytest.mark.parametrize("length", [40, 400, 4_000])
def test_a_page_of_long_lists_is_below_1_mib(length: int) -> None:
    """The lists that do not depend on partitions may be the largest part of a page."""
    result, facts = results_with_loss(40)
    text = HOSTILE_TEXT * (length // 10)
    result.brokers = [replace(result.brokers[0], broker=f"{text}{number}", log_dirs=[text] * 30) for number in range(300)]
    result.incomplete = [Incomplete(f"{text}{number}", text) for number in range(200)]
    for summary in result.partitions:
        summary.replicas[0].log_dir = text
    page_text = page(document_of(result), facts, Provenance(command=text))
    assert len(page_text.encode()) <= LARGEST
    assert_harmless(page_text)
    assert "40 partitions of 1 topic" in plain_text(page_text)
    assert re.search(r"\d+ further brokers\.", plain_text(page_text))


def test_partitions_that_differ_in_the_same_way_share_lanes() -> None:
    result, facts = results_with_loss(60, 3)
    result.partitions[7].leader = 2
    text = page(document_of(result), facts, Provenance())
    words = plain_text(text)
    assert text.count('<article class="p"') == 2
    assert "59 partitions of 3 topics: 4,698 records lost" in words
    assert "payments.settled.by-region.1-2: 72 records lost" in words
    assert "Drawn: payments.settled.by-region.0-19, the largest loss." in words
    assert "payments.settled.by-region.0-19 300–388 89 records" in words
    assert page(document_of(result), facts, Provenance()) == text


def test_no_sentence_is_repeated_for_each_partition() -> None:
    result, facts = results_with_loss(60, 3)
    sentences = Counter(sentence for sentence in Page(page(document_of(result), facts, Provenance())).texts if len(sentence) > 40)
    assert max(sentences.values()) == 1


def test_the_first_screen_has_the_sums_of_the_incidents_and_the_next_step() -> None:
    result, facts = results_with_loss(60, 3)
    least, most = (sum(getattr(incident, name) for incident in result.incidents) for name in ("lost_at_least", "lost_at_most"))
    assert least == most == sum(range(70, 90)) * 3
    provenance = Provenance(next_command="kafka-forensics plan copies")
    words = plain_text(page(document_of(result), facts, provenance))
    start = words.index("The replicas of 60 partitions")
    assert words[start:].startswith(
        "The replicas of 60 partitions hold different records at the same offsets, and no file shows why."
        " committed records lost 4,770 recoverable from these copies 4,770 keep stopped until copied broker 2"
        " Next step kafka-forensics plan copies 60 partitions, 180 replicas on 3 brokers."
    )
    assert (
        words.index("Timeline Incidents Partitions that differ")
        < words.index("Unclean election: broker 1")
        < words.index("4,770 records")
    )


@pytest.mark.parametrize("result", [hostile_result(), unclean_result(), clean_result()])
def test_hostile_evidence_is_only_text(result: ScanResult) -> None:
    rows = [["record", 5, 9, HOSTILE_TEXT, HOSTILE_TEXT, HOSTILE_TEXT, HOSTILE_TEXT]]
    sides = [report.DifferenceSide(HOSTILE_TEXT, HOSTILE_TEXT, [tuple(row) for row in rows], frozenset({0}), HOSTILE_TEXT)] * 2
    moments = history()
    moments.moments[-1].unclean[1][0] = (HOSTILE_TEXT, 0)
    facts = report.PageFacts(history=moments, committed_ms={HOSTILE_TEXT: START_MS})
    facts.differences = {(row.topic, row.partition): report.FirstDifference(3, sides) for row in result.partitions}
    facts.hashes = [report.InputHash(HOSTILE_TEXT, 3, HOSTILE_TEXT)]
    assert_harmless(page(document_of(result), facts, Provenance(HOSTILE_TEXT, HOSTILE_TEXT, HOSTILE_TEXT)))
    objects = json_of(result)
    incident = {
        "cause": HOSTILE_TEXT,
        "known_as": HOSTILE_TEXT,
        "message": HOSTILE_TEXT,
        "advice": HOSTILE_TEXT,
        "brokers": [HOSTILE_TEXT],
        "held_by": [HOSTILE_TEXT],
    }
    lost = {"lost_at_least": 1, "lost_at_most": 2} | NO_RECORDS
    places = {"offset_start": None, "offset_end": None, "held_by": [HOSTILE_TEXT], "held_ranges": []}
    full = (
        incident
        | lost
        | {"severity": "critical", "confidence": HOSTILE_TEXT, "from_ms": None, "to_ms": None, "kinds": {HOSTILE_TEXT: 1}}
    )
    objects["incidents"] = [full | {"partitions": [{"topic": HOSTILE_TEXT, "partition": 0} | lost | places]}]
    assert_harmless(page(read(objects), facts, Provenance()))


def test_the_content_security_policy_allows_only_the_page_style() -> None:
    text = page(document_of(unclean_result()), report.PageFacts(), Provenance())
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
    text = Page(page(document_of(result), report.PageFacts(), Provenance(document="scan.json"))).text
    for sentence in (
        "No file holds a high watermark.",
        "Leader not known",
        "ISR not known",
        "5 partitions: no file holds a high watermark.",
        "5 partitions: no controllers' log names the leader and the ISR.",
        "Broker 7 has replicas of 5 partitions, and no copy of it was given.",
        "The JSON document of a scan has no plans and no timeline",
        "elections, ISRs and brokers that were down are not known",
        "1 input could not be read.",
        "broker-9",
        "not requested (--hashes)",
    ):
        assert sentence in text


def test_commands_in_sentences_are_code() -> None:
    objects = json_of(unclean_result())
    objects["findings"][0] |= {"message": "run `scan <b>` now", "advice": "an odd ` stays <i>"}
    text = page(read(objects), report.PageFacts(), Provenance())
    assert "run <code>scan &lt;b&gt;</code> now" in text
    assert "an odd ` stays &lt;i&gt;" in text


def test_incidents_have_a_bar_of_loss_for_each_topic() -> None:
    objects = json_of(unclean_result())
    first = objects["incidents"][0]
    assert (first["cause"], first["lost_at_least"], first["held_by"]) == ("replicas_diverge", 70, [2])
    text = page(read(objects), report.PageFacts(), Provenance())
    assert f"Replicas diverge: critical {first['message']} First: {first['advice']}" in plain_text(text)
    assert "good copies on broker 2" in plain_text(text)
    assert 'audit</th><td class="n">1</td><td class="n">70</td>' in text
    assert '<g class="lost"><line x1="0" x2="100%"' in text
    result, facts = results_with_loss(700, 350)
    text = page(document_of(result), facts, Provenance())
    assert "88 more topics" in text
    assert "250 further topics: 35,250 records." in text


def test_numbers_in_sentences_have_separators() -> None:
    sentence = "audit-12345: offsets {} to {} of producer 40011 in epoch 12345, 2026-11-21T03:56:10Z (KAFKA-10751), {} records."
    assert grouped(sentence.format(1234567, 12345678, 1000)) == sentence.format("1,234,567", "12,345,678", "1,000")


def test_hashes_can_be_checked_with_sha256sum(tmp_path: Path) -> None:
    hashes = [report.InputHash("a", 1, "00" * 32), report.InputHash("b", 2, "ff" * 32), report.InputHash("c", 1 << 50, None)]
    text = Page(page(document_of(clean_result()), report.PageFacts(hashes=hashes), Provenance())).text
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
    with pytest.raises(UsageError, match="is not a document of scan"):
        read_document(data, "scan.json")


def test_a_result_and_its_document_give_the_same_page() -> None:
    result, facts = results_with_loss(5)
    assert page(read(json_of(result)), facts, Provenance()) == page(document_of(result), facts, Provenance())
