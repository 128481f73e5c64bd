"""A scan's answer as SARIF 2.1.0, for tools that gather findings of many scanners and follow each from run to run.

Written row by row. What tells a finding from others (`partialFingerprints`) comes of its kind, its place on the broker and the
names in its evidence: neither of where the copies lie on this machine nor of anything that a later scan has otherwise.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Final
from urllib.parse import quote

from kafka_forensics.analysis.catalogue import CATALOGUE, Kind
from kafka_forensics.model.findings import Finding, Place, Severity
from kafka_forensics.model.json_objects import Json, JsonArray, json_text, with_twins
from kafka_forensics.model.results import Incomplete, ScanResult
from kafka_forensics.version import __version__
from kafka_forensics.wording import advice, explain_page, message, title

SCHEMA_URI: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
MOST_RESULTS: Final = 25_000
"""What readers of the format take; the worst come first, the rest is counted."""
FINGERPRINT: Final = "kafkaForensicsFinding/v1"

_LEVELS: Final = {Severity.CRITICAL: "error", Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_WORST_FIRST: Final = sorted(Severity, key=lambda severity: -severity.rank)
_IDENTIFYING: Final = (
    *("reason", "what", "limit_name", "check", "api_key", "record_type", "entry_kind", "incident", "suffix", "line", "epoch"),
    *("producer_id", "producer_epoch", "transactional_id", "group", "first_offset", "position", "entry", "node_id", "name"),
)
"""Evidence that tells one finding from another of its kind at the same place, and that a later scan of the same copies has, too."""
_NUMBERS_OF: Final = {kind: number for number, kind in enumerate(CATALOGUE)}
_NOT_READ: Final = "INCOMPLETE"
_CUT: Final = "RESULTS_CUT"
_NOTIFICATIONS: Final = {
    _NOT_READ: "An input could not be read, so that nothing is known of what it holds.",
    _CUT: "There are more findings than a SARIF file may hold; the gravest are in it.",
}
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_IN_PATHS: Final = "/!$&'()*+,;=@~"
"""Characters of a path that a URI has as they are."""
_MARKS: Final = re.compile(r"\*\*|`|^#+ |^```\w*$", re.MULTILINE)


def lines(result: ScanResult, status: int) -> Iterator[str]:
    """The log in pieces, a result a line; `status` is that with which the command ends."""
    shown = min(len(result.findings), MOST_RESULTS)
    yield f'{{"$schema": {json_text(SCHEMA_URI)},\n "version": "2.1.0",\n "runs": [{{\n'
    yield f'  "tool": {{"driver": {{"name": "kafka-forensics", "version": {json_text(__version__)},\n'
    yield f'   "notifications": {json_text([_notification_rule(name) for name in _NOTIFICATIONS])},\n'
    yield from _array('   "rules"', (_rule(kind, usual) for kind, usual in CATALOGUE.items()), "}},\n")
    complete = json_text(not result.incomplete)
    yield f'  "invocations": [{{"executionSuccessful": {complete}, "exitCode": {status},\n'
    yield from _array('   "toolExecutionNotifications"', _notifications(result, shown), "}],\n")
    yield f'  "properties": {json_text({"verdict": result.verdict, "findings": len(result.findings)})},\n'
    yield from _array('  "results"', _results(result, shown), "}]}\n")


def _array(opening: str, items: Iterable[Json], closing: str) -> Iterator[str]:
    yield f"{opening}: ["
    for number, item in enumerate(items):
        yield f"{',' if number else ''}\n    {json_text(item)}"
    yield f"]{closing}"


def _rule(kind: str, usual: Kind) -> Json:
    """A kind of finding, with its page."""
    page = explain_page(kind)
    return {
        "id": kind,
        "shortDescription": {"text": _text(title(kind))},
        "defaultConfiguration": {"level": _LEVELS[usual.severity]},
        "help": {"text": _text(_MARKS.sub("", page).strip()), "markdown": _braced(page)},
        "properties": {"severity": usual.severity.value, "confidence": usual.confidence.value, "tags": ["kafka"]},
    }


def _notification_rule(name: str) -> Json:
    return {"id": name, "shortDescription": {"text": _NOTIFICATIONS[name]}}


def _notifications(result: ScanResult, shown: int) -> Iterator[Json]:
    """What could not be read, and how many findings are not here."""
    for gap in result.incomplete:
        yield {
            "descriptor": {"id": _NOT_READ},
            "level": "error",
            "message": {"text": _text(f"{gap.path}: {gap.reason}")},
            "locations": [_gap_location(gap)],
        }
    if more := len(result.findings) - shown:
        yield {
            "descriptor": {"id": _CUT},
            "level": "warning",
            "message": {"text": f"{more} more findings, none graver than those here, are left out; --format jsonl has them all."},
        }


def _gap_location(gap: Incomplete) -> Json:
    location: Json = {"physicalLocation": {"artifactLocation": {"uri": _uri(gap.path)}}}
    logical = _logical_locations(Place(gap.topic, gap.partition, gap.broker))
    return {**location, "logicalLocations": logical} if logical else location


def _results(result: ScanResult, shown: int) -> Iterator[Json]:
    """The worst findings, each with its fingerprint; of several with the same one each is numbered."""
    numbers = {
        (str(broker.broker), log_dir): number for broker in result.brokers for number, log_dir in enumerate(sorted(broker.log_dirs))
    }
    seen: Counter[bytes] = Counter()
    left = shown
    for severity in _WORST_FIRST:
        for finding in result.findings:
            if left and finding.severity is severity:
                left -= 1
                fingerprint = _fingerprint(finding, numbers)
                seen[fingerprint] += 1
                yield _result(finding, f"{fingerprint.hex()}:{seen[fingerprint]}")


def _fingerprint(finding: Finding, numbers: dict[tuple[str, str], int]) -> bytes:
    """What tells a finding from others, as a digest; of its log directory the number among its broker's (`numbers`)."""
    place = finding.place
    names = {name: finding.evidence[name] for name in _IDENTIFYING if finding.evidence.get(name) is not None}
    log_dir = numbers.get((str(place.broker), place.log_dir or ""))
    where = [place.topic, place.partition, str(place.broker), log_dir, place.file, place.byte_start, place.offset_start]
    return sha256(json_text([finding.kind, where, names]).encode()).digest()[:16]


def _result(finding: Finding, fingerprint: str) -> Json:
    place = finding.place
    words = message(finding)
    step = advice(finding)
    properties: Json = {
        "severity": finding.severity.value,
        "confidence": finding.confidence.value,
        **{
            name: value
            for name, value in (("offset_start", place.offset_start), ("offset_end", place.offset_end))
            if value is not None
        },
        "evidence": with_twins(finding.evidence),
        **({} if step is None else {"advice": step}),
    }
    return {
        "ruleId": finding.kind,
        "ruleIndex": _NUMBERS_OF[finding.kind],
        "level": _LEVELS[finding.severity],
        "message": {"text": _text(words)},
        "locations": _locations(place),
        "partialFingerprints": {FINGERPRINT: fingerprint},
        "properties": properties,
    }


def _locations(place: Place) -> JsonArray:
    """Where: file and bytes, and partition and broker."""
    location: Json = {}
    path = "/".join(part.rstrip("/") for part in (place.log_dir, place.file) if part)
    if path:
        physical: Json = {"artifactLocation": {"uri": _uri(path)}}
        if place.byte_start is not None and place.byte_start >= 0:
            length = {} if place.byte_end is None else {"byteLength": max(0, place.byte_end - place.byte_start)}
            physical["region"] = {"byteOffset": place.byte_start, **length}
        location["physicalLocation"] = physical
    if logical := _logical_locations(place):
        location["logicalLocations"] = logical
    return [location] if location else []


def _logical_locations(place: Place) -> JsonArray:
    locations: JsonArray = []
    name = "-".join(str(part) for part in (place.topic, place.partition) if part is not None)
    if name:
        kind = "topic" if place.partition is None else "topic-partition"
        locations.append({"name": name, "fullyQualifiedName": name, "kind": kind})
    if place.broker is not None:
        locations.append({"name": str(place.broker), "fullyQualifiedName": f"broker {place.broker}", "kind": "broker"})
    return locations


def _uri(path: str) -> str:
    """A path or URI as a URI reference; bytes that are no UTF-8 as what they are."""
    scheme = _URI.match(path)
    if scheme is not None:
        return scheme[0] + quote(
            path[scheme.end() :].encode("utf-8", "surrogateescape" if _is_bytes(path) else "replace"), _IN_PATHS
        )
    quoted = quote(path.encode("utf-8", "surrogateescape" if _is_bytes(path) else "replace"), _IN_PATHS)
    return f"file://{quoted}" if path.startswith("/") else quoted


def _is_bytes(path: str) -> bool:
    """Whether half surrogates in a path are bytes of a file's name, as Python reads them."""
    return all("\udc80" <= letter <= "\udcff" for letter in path if "\ud800" <= letter <= "\udfff")


def _text(words: str) -> str:
    """A message's text: with braces doubled, and no link, so that nothing in a name is read as a placeholder or leads anywhere."""
    return _braced(words).replace("](", "\\](")


def _braced(words: str) -> str:
    return words.replace("{", "{{").replace("}", "}}")
