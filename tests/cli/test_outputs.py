"""Every format: what it holds, its shape, and that no byte of evidence reaches a terminal as it is."""

import csv
import io
import json
import re
import unicodedata
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

from kafka_forensics.analysis.catalogue import CATALOGUE, finding
from kafka_forensics.cli.options import FORMATS
from kafka_forensics.cli.outputs.scan import write_result
from kafka_forensics.cli.streams import Destination
from kafka_forensics.export.json_document import FINDING_COLUMNS
from kafka_forensics.model.findings import Place
from kafka_forensics.model.json_objects import with_twins
from kafka_forensics.model.results import Incomplete, ScanResult
from tests.support.json_schemas import json_schema, validate
from tests.support.results import EVIL, clean_result, hostile_result, result_of, unclean_result

RESULTS: dict[str, Callable[[], ScanResult]] = {
    "unclean": unclean_result,
    "clean": clean_result,
    "hostile": hostile_result,
    "empty": lambda: result_of(incomplete=(Incomplete("broker-9", "permission denied"),)),
    "every kind": lambda: result_of(*[finding(kind, Place("orders", 1, 2)) for kind in CATALOGUE]),
}


def rendered(result: ScanResult, format_name: str, *, width: int = 80, colour: bool = False, verbose: bool = False) -> str:
    stream = io.StringIO()
    write_result(result, format_name, Destination(stream, width, colour), verbose=verbose)
    return stream.getvalue()


@pytest.mark.parametrize("name", RESULTS)
def test_json_and_its_lines_obey_the_schema(name: str) -> None:
    validate("scan", json.loads(rendered(RESULTS[name](), "json")))
    validate("scan", *map(json.loads, rendered(RESULTS[name](), "jsonl").splitlines()), definition="line")


@pytest.mark.parametrize("name", ["broker", "summary", "partition", "replica", "finding", "incident", "incomplete"])
def test_the_schema_demands_what_is_always_written(name: str) -> None:
    described = json_schema()["$defs"][name]
    assert set(described["required"]) == set(described["properties"])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda document: document.update(extra=1),
        lambda document: document["findings"][0].update(extra=1),
        lambda document: document["incidents"][0].update(findings=[]),
        lambda document: document["partitions"][0]["replicas"][0].update(extra=1),
        lambda document: document["summary"].pop("records"),
        lambda document: document["findings"][0].update(severity="fatal"),
        lambda document: document["findings"][0].update(offset_start="3"),
    ],
)
def test_the_schema_can_refuse(spoil: Callable[[Any], object]) -> None:
    document = json.loads(rendered(unclean_result(), "json"))
    spoil(document)
    with pytest.raises(jsonschema.ValidationError):
        validate("scan", document)


def test_json_has_the_contract_s_keys_in_its_order() -> None:
    document = json.loads(rendered(unclean_result(), "json"))
    assert list(document) == ["schema_version", "tool", "input", "summary", "partitions", "findings", "incidents", "incomplete"]
    assert document["tool"]["engine"] == "local"
    assert list(document["summary"]["findings"].items()) == [("critical", 1), ("error", 5), ("warning", 1), ("info", 2)]
    audit = document["partitions"][0]
    assert (audit["topic"], audit["verdict"], audit["leader"]) == ("audit", "critical", None)
    assert audit["agreement"] == {"kind": "conflict", "common_end_offset": 300, "fork_epochs": {"1": 2, "2": 0}}
    assert audit["replicas"][0]["leader_epochs"] == [[0, 0], [2, 300]]
    assert tuple(document["findings"][0]) == FINDING_COLUMNS


def test_json_lines_go_partition_by_partition() -> None:
    lines = [json.loads(line) for line in rendered(unclean_result(), "jsonl").splitlines()]
    audit = [line["type"] for line in lines if line.get("topic") == "audit"]
    assert audit == ["partition", "replica", "replica", "replica", "finding", "finding"]
    types = [line["type"] for line in lines]
    assert types[:4] == ["broker", "broker", "broker", "finding"]
    assert types[-1] == "summary"
    assert types.count("finding") == len(unclean_result().findings)
    assert [line["topic"] for line in lines if line["type"] == "partition"] == sorted(
        line["topic"] for line in lines if line["type"] == "partition"
    )


def test_incidents_name_their_findings_by_place_in_json_and_json_lines() -> None:
    document = json.loads(rendered(unclean_result(), "json"))
    lines = [json.loads(line) for line in rendered(unclean_result(), "jsonl").splitlines()]
    findings = [line for line in lines if line["type"] == "finding"]
    of_lines = [line for line in lines if line["type"] == "incident"]
    for incidents, of_findings in ((document["incidents"], document["findings"]), (of_lines, findings)):
        assert [incident["cause"] for incident in incidents] == ["replicas_diverge", "damaged_log", "mixed_copies"]
        kinds = [sorted({of_findings[place]["kind"] for place in incident["findings"]}) for incident in incidents]
        assert kinds == [sorted(incident["kinds"]) for incident in incidents]
        assert incidents[0]["partitions"][0]["lost_at_least"] == incidents[0]["lost_at_least"] == 70
    ranks = [["critical", "error", "warning", "info"].index(finding["severity"]) for finding in document["findings"]]
    assert ranks == sorted(ranks)
    told = [{**incident, "type": "incident", "findings": len(incident["findings"])} for incident in document["incidents"]]
    assert told == [{**incident, "findings": len(incident["findings"])} for incident in of_lines]


def test_times_and_wide_numbers_have_twins() -> None:
    evidence = {
        "first_timestamp_ms": 1767225600123,
        "last_timestamp": -1,
        "age_ms": 5,
        "producer_id": 2**60,
        "producer_ids": [1, 2],
        "hash": 2**63,
        "nested": [{"delete_horizon_ms": 0}],
        "same": True,
    }
    renamed = {"last_timestamp_ms": -1, "last_timestamp": None}
    assert with_twins(evidence) == evidence | renamed | {
        "first_timestamp": "2026-01-01T00:00:00.123Z",
        "producer_id_string": str(2**60),
        "producer_ids_string": ["1", "2"],
        "hash_string": str(2**63),
        "nested": [{"delete_horizon_ms": 0, "delete_horizon": "1970-01-01T00:00:00.000Z"}],
    }


@pytest.mark.parametrize("name", RESULTS)
def test_tsv_has_a_row_a_finding_and_nothing_but_its_columns(name: str) -> None:
    result = RESULTS[name]()
    rows = list(csv.reader(rendered(result, "tsv").splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))
    assert tuple(rows[0]) == FINDING_COLUMNS
    assert [len(row) for row in rows[1:]] == [len(FINDING_COLUMNS)] * len(result.findings)
    evidence = FINDING_COLUMNS.index("evidence")
    assert all(isinstance(json.loads(row[evidence]), dict) for row in rows[1:])


@pytest.mark.parametrize("verbose", [False, True])
@pytest.mark.parametrize("format_name", FORMATS)
def test_hostile_text_never_reaches_the_reader_s_terminal(format_name: str, verbose: bool) -> None:
    text = rendered(hostile_result(), format_name, verbose=verbose)
    allowed = {"\n", "\t"} if format_name == "tsv" else {"\n"}
    bad = {each for each in text if unicodedata.category(each) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}}
    assert bad <= allowed
    assert b"\x1b" not in text.encode("utf-8")
    assert "pwned" in text  # it was shown, not dropped


def test_colours_are_the_only_escapes_of_a_coloured_table() -> None:
    text = rendered(hostile_result(), "table", colour=True, verbose=True)
    assert "\x1b[" in text
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", re.sub(r"\x1b\[[0-9;]*m", "", text))
    assert "\x1b]" not in text  # neither titles nor links


def test_markdown_shows_hostile_text_literally() -> None:
    text = rendered(hostile_result(), "markdown")
    live = re.sub(r"\\.|`[^`]*`", "", text)  # without what is escaped, and without code
    assert not re.search(r"[<`*_\[\]]", live.replace("<br>", ""))
    assert "script" in live


def test_json_gives_hostile_text_back_unchanged() -> None:
    result = hostile_result()
    topics = [finding["topic"] for finding in json.loads(rendered(result, "json"))["findings"]]
    assert sorted(map(str, topics)) == sorted(str(finding.place.topic) for finding in result.findings)
    assert EVIL in topics


@pytest.mark.parametrize("width", [40, 80, 132])
def test_table_keeps_to_the_width(width: int) -> None:
    text = rendered(unclean_result(), "table", width=width, verbose=True)
    lines = text.splitlines()
    prose = re.sub(r"^ *\$ (?:.*\\\n)*.*\n", "", text, flags=re.MULTILINE).splitlines()
    assert max(map(len, prose)) <= width
    assert all(line == line.rstrip() for line in lines)


def test_table_puts_the_worst_first_and_the_healthy_into_counts() -> None:
    text = rendered(unclean_result(), "table")
    headlines = [line.split()[:2] for line in text.splitlines() if line[:1].isupper()]
    assert headlines == [["CRITICAL", "audit-0"], ["ERROR", "orders-1"], ["WARNING", "brokers"]]
    assert "clean     2 partitions, 5 replicas: nothing found" in text
    assert "REPLICA_LAGS on clicks-0" in " ".join(text.split())
    assert "payments" not in text
    assert "... and 2 more BATCH_CRC_MISMATCH" in text
    assert "    $ kafka-forensics " in text


@pytest.mark.parametrize("format_name", FORMATS)
def test_same_answer_gives_the_same_bytes_and_rows_for_programs_know_no_width(format_name: str) -> None:
    wanted = rendered(unclean_result(), format_name)
    assert wanted == rendered(unclean_result(), format_name)
    if format_name not in ("table", "markdown"):
        assert {rendered(unclean_result(), format_name, width=width) for width in (20, 2000)} == {wanted}
