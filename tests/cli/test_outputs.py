"""Every format: content, shape, and no raw escape sequence of the evidence on a terminal."""

import csv
import io
import json
import re
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kafka_forensics.analysis.kinds import CATALOGUE, finding
from kafka_forensics.cli.options import FORMATS
from kafka_forensics.cli.outputs.scan import write_result
from kafka_forensics.cli.outputs.words import SHOWN_ROWS, by_kind, gap_lines, headline, replica_words, summary_lines
from kafka_forensics.cli.streams import Destination
from kafka_forensics.errors import DENIED
from kafka_forensics.export.json_document import FINDING_COLUMNS
from kafka_forensics.model.findings import Finding, Place
from kafka_forensics.model.json_objects import with_number_texts
from kafka_forensics.model.results import Agreement, Incomplete, ReadExtent, ScanResult, TransactionCounts
from tests.cli.runs import Run
from tests.support.audit import put_unclean_election
from tests.support.json_schemas import json_schema, validate
from tests.support.results import HOSTILE_TEXT, clean_result, hostile_result, partition, replica, result_of, unclean_result

RESULTS: dict[str, Callable[[], ScanResult]] = {
    "unclean": unclean_result,
    "clean": clean_result,
    "hostile": hostile_result,
    "empty": lambda: result_of(incomplete=(Incomplete("broker-9", "permission denied"),)),
    "every kind": lambda: result_of(*[finding(kind, Place("orders", 1, 2)) for kind in CATALOGUE]),
}


def rendered(
    result: ScanResult,
    format_name: str = "text",
    *,
    width: int = 80,
    colour: bool = False,
    verbose: bool = False,
    by: str = "incident",
) -> str:
    stream = io.StringIO()
    write_result(result, format_name, Destination(stream, width, colour), by=by, verbose=verbose)
    return stream.getvalue()


@pytest.mark.parametrize("name", RESULTS)
def test_json_and_its_lines_obey_the_schema(name: str) -> None:
    validate("scan", json.loads(rendered(RESULTS[name](), "json")))
    validate("scan", *map(json.loads, rendered(RESULTS[name](), "jsonl").splitlines()), definition="line")


@pytest.mark.parametrize("name", ["broker", "summary", "partition", "replica", "finding", "incident", "incomplete"])
def test_the_schema_requires_every_property(name: str) -> None:
    definition = json_schema()["$defs"][name]
    assert set(definition["required"]) == set(definition["properties"])


@pytest.mark.parametrize(
    "damage",
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
def test_the_schema_refuses_wrong_documents(damage: Callable[[Any], object]) -> None:
    document = json.loads(rendered(unclean_result(), "json"))
    damage(document)
    with pytest.raises(jsonschema.ValidationError):
        validate("scan", document)


def test_json_has_the_documented_keys_in_order() -> None:
    document = json.loads(rendered(unclean_result(), "json"))
    assert list(document) == ["schema_version", "tool", "input", "summary", "partitions", "findings", "incidents", "incomplete"]
    assert document["tool"]["engine"] == "local"
    assert list(document["summary"]["findings"].items()) == [("critical", 1), ("error", 5), ("warning", 1), ("info", 2)]
    audit = document["partitions"][0]
    assert (audit["topic"], audit["verdict"], audit["leader"]) == ("audit", "critical", None)
    assert audit["agreement"] == {"kind": "conflict", "common_end_offset": 300, "fork_epochs": {"1": 2, "2": 0}}
    assert audit["replicas"][0]["leader_epochs"] == [[0, 0], [2, 300]]
    assert tuple(document["findings"][0]) == FINDING_COLUMNS


def test_json_lines_are_grouped_by_partition() -> None:
    lines = [json.loads(line) for line in rendered(unclean_result(), "jsonl").splitlines()]
    audit = [line["type"] for line in lines if line.get("topic") == "audit"]
    assert audit == ["partition", "replica", "replica", "replica", "finding", "finding"]
    types = [line["type"] for line in lines]
    assert (types[:4], types[-1]) == (["broker", "broker", "broker", "finding"], "summary")
    assert types.count("finding") == len(unclean_result().findings)
    assert [line["topic"] for line in lines if line["type"] == "partition"] == sorted(
        line["topic"] for line in lines if line["type"] == "partition"
    )


def test_incidents_refer_to_findings_by_index_in_json_and_json_lines() -> None:
    document = json.loads(rendered(unclean_result(), "json"))
    lines = [json.loads(line) for line in rendered(unclean_result(), "jsonl").splitlines()]
    findings = [line for line in lines if line["type"] == "finding"]
    incidents_of_lines = [line for line in lines if line["type"] == "incident"]
    for incidents, listed_findings in ((document["incidents"], document["findings"]), (incidents_of_lines, findings)):
        assert [incident["cause"] for incident in incidents] == ["replicas_diverge", "damaged_log", "mixed_copies"]
        kinds = [sorted({listed_findings[index]["kind"] for index in incident["findings"]}) for incident in incidents]
        assert kinds == [sorted(incident["kinds"]) for incident in incidents]
        assert incidents[0]["partitions"][0]["lost_at_least"] == incidents[0]["lost_at_least"] == 70
    ranks = [["critical", "error", "warning", "info"].index(finding["severity"]) for finding in document["findings"]]
    assert ranks == sorted(ranks)
    expected = [{**incident, "type": "incident", "findings": len(incident["findings"])} for incident in document["incidents"]]
    assert expected == [{**incident, "findings": len(incident["findings"])} for incident in incidents_of_lines]


def test_times_and_large_numbers_are_also_written_as_text() -> None:
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
    assert with_number_texts(evidence) == evidence | renamed | {
        "first_timestamp": "2026-01-01T00:00:00.123Z",
        "producer_id_string": str(2**60),
        "producer_ids_string": ["1", "2"],
        "hash_string": str(2**63),
        "nested": [{"delete_horizon_ms": 0, "delete_horizon": "1970-01-01T00:00:00.000Z"}],
    }


@pytest.mark.parametrize("name", RESULTS)
def test_tsv_has_one_row_per_finding_with_all_columns(name: str) -> None:
    result = RESULTS[name]()
    rows = list(csv.reader(rendered(result, "tsv").splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))
    assert tuple(rows[0]) == FINDING_COLUMNS
    assert [len(row) for row in rows[1:]] == [len(FINDING_COLUMNS)] * len(result.findings)
    evidence = FINDING_COLUMNS.index("evidence")
    assert all(isinstance(json.loads(row[evidence]), dict) for row in rows[1:])


@pytest.mark.parametrize("verbose", [False, True])
@pytest.mark.parametrize("format_name", FORMATS)
def test_every_format_escapes_hostile_text(format_name: str, verbose: bool) -> None:
    text = rendered(hostile_result(), format_name, verbose=verbose)
    allowed = {"\n", "\t"} if format_name == "tsv" else {"\n"}
    invisible = {letter for letter in text if unicodedata.category(letter) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}}
    assert invisible <= allowed
    assert b"\x1b" not in text.encode("utf-8")
    assert "pwned" in text  # shown, not removed


def test_colours_are_the_only_escape_sequences_of_a_coloured_table() -> None:
    text = rendered(hostile_result(), "text", colour=True, verbose=True)
    assert "\x1b[" in text
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", re.sub(r"\x1b\[[0-9;]*m", "", text))
    assert "\x1b]" not in text  # neither titles nor links


def test_json_keeps_hostile_text_unchanged() -> None:
    result = hostile_result()
    topics = [finding["topic"] for finding in json.loads(rendered(result, "json"))["findings"]]
    assert sorted(map(str, topics)) == sorted(str(finding.place.topic) for finding in result.findings)
    assert HOSTILE_TEXT in topics


@pytest.mark.parametrize("width", [40, 80, 132])
def test_the_table_fits_the_width(width: int) -> None:
    text = rendered(unclean_result(), "text", width=width, verbose=True)
    lines = text.splitlines()
    assert max(map(len, re.sub(r"^ *\$ (?:.*\\\n)*.*\n", "", text, flags=re.MULTILINE).splitlines())) <= width
    assert all(line == line.rstrip() for line in lines)


def test_text_starts_with_the_most_severe_incident_and_counts_clean_partitions_if_verbose() -> None:
    text = rendered(unclean_result(), by="partition")
    headlines = [line.split()[:2] for line in text.splitlines() if line[:1].isupper()]
    assert headlines == [["CRITICAL", "audit-0:"], ["CRITICAL", "audit-0"], ["ERROR", "orders-1"], ["WARNING", "brokers"]]
    assert "... and 2 more BATCH_CRC_MISMATCH" in text
    assert "    $ kafka-forensics " in text
    assert "clean" not in text + rendered(unclean_result())
    verbose = rendered(unclean_result(), verbose=True)
    assert "clean     2 partitions, 5 replicas: nothing found" in verbose
    assert "REPLICA_LAGS  info" in verbose


@pytest.mark.parametrize("format_name", FORMATS)
def test_output_is_deterministic_and_rows_for_programs_ignore_the_width(format_name: str) -> None:
    expected = rendered(unclean_result(), format_name)
    assert expected == rendered(unclean_result(), format_name)
    if format_name != "text":
        assert {rendered(unclean_result(), format_name, width=width) for width in (20, 2000)} == {expected}


# The headline of a partition claims only what was read.


def test_a_damaged_replica_is_not_called_identical() -> None:
    healthy = partition("orders", 0, Agreement("identical", 9), [replica(1, 9), replica(2, 9)], [])
    assert headline(healthy).startswith("the replicas are identical; ")
    healthy.verdict = "error"
    assert headline(healthy).startswith("the replicas agree in what they still hold; ")


def test_the_headline_gives_an_offset_for_a_fork_but_not_for_damaged_batches() -> None:
    damaged = partition("orders", 0, Agreement("content", 79), [replica(1, 79), replica(2, 79)], [])
    assert headline(damaged).startswith("the replicas differ in batches of one leader epoch; ")
    conflict = partition("orders", 0, Agreement("conflict", 79), [replica(1, 90), replica(2, 90)], [])
    assert headline(conflict).startswith("the replicas diverge at offset 79; ")


def test_words_of_a_replica_separate_epoch_and_counts() -> None:
    summary = replica(1, 9, transactions=TransactionCounts(open=1), missing_offsets=1)
    assert replica_words(summary)[-1] == "epoch 0; 1 offset missing; 1 open transaction"


def test_unread_partitions_are_not_called_clean() -> None:
    result = clean_result()
    assert summary_lines(result)[0].startswith("clean: nothing found in 2 partitions, ")
    result.incomplete.append(Incomplete("b1/orders-0/00000000000000000000.index", "permission denied", "orders", 0, 1))
    assert summary_lines(result)[0].startswith("clean: nothing found where readable in 2 partitions, ")
    hidden = replace(result, incomplete=[Incomplete("b2", "permission denied")])
    assert summary_lines(hidden)[0].startswith("unknown: nothing found where readable in 2 partitions, ")
    assert rendered(result).startswith("clean     nothing found where readable in 2 partitions, ")
    assert "4 replicas: nothing found where readable\n" in rendered(result, verbose=True)


def test_harmless_findings_are_counted_and_shown_only_if_verbose() -> None:
    election = finding("UNCLEAN_ELECTION", Place("audit", 0), {"old_leader": 2, "new_leader": 1, "cost_finding": "UNCLEAN_LOSS"})
    result = result_of(election, finding("TXN_OPEN", Place("audit", 0), {}))
    assert rendered(result).splitlines()[0] == "info      2 info in 0 partitions, 0 replicas on 0 brokers; -v shows all"
    assert "an unclean election made broker 1 the leader" in " ".join(rendered(result, verbose=True).split())


def test_findings_are_sorted_by_severity_and_loss() -> None:
    without_cost = {"same_leader": True, "new_leader": 2}
    findings = [
        finding("RISKY_CONFIG", Place()),
        finding("UNCLEAN_ELECTION", Place("a", 0), without_cost),
        finding("UNCLEAN_LOSS", Place("b", 0, offset_start=5, offset_end=9)),
        finding("UNCLEAN_ELECTION", Place("c", 0), {"agree_again": True, "new_leader": 1}),
        finding("UNCLEAN_LOSS", Place("d", 0, offset_start=5, offset_end=50)),
    ]
    result = result_of(*findings)
    rows = [tuple(line.split("\t")[0:4:3]) for line in rendered(result, "tsv").splitlines()[1:]]
    assert rows == [
        ("UNCLEAN_LOSS", "d"),
        ("UNCLEAN_LOSS", "b"),
        ("UNCLEAN_ELECTION", "c"),
        ("RISKY_CONFIG", ""),
        ("UNCLEAN_ELECTION", "a"),
    ]
    headlines = [line.split()[:2] for line in rendered(result, verbose=True).splitlines() if line[:1].isalpha()]
    assert headlines[-5:] == [["CRITICAL", "d-0"], ["CRITICAL", "b-0"], ["info", "c-0"], ["info", "brokers"], ["info", "a-0"]]
    assert [row.place.topic for row in by_kind(findings)[0]] == ["d", "b"]


# Text by incident: it fits a screen, and the most severe incident comes first.


def partition_rows(text: str) -> list[list[str]]:
    """The cells of the partitions of the only incident, without the header."""
    lines = text.split("  partitions ")[1].splitlines()[1:]
    return [re.split(r" {2,}", line.strip()) for line in lines if re.match(r"  [\w.]+-\d+ ", line)]


def test_40_partitions_of_one_unclean_election_fit_a_screen(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    log_dirs = put_unclean_election(tmp_path / "copies", 40)
    status, out, err = run("scan", *log_dirs)
    assert status == 1
    assert len((out + err).splitlines()) <= 40
    text = " ".join(out.split())
    assert text.startswith("CRITICAL unclean election, 2026-11-21T05:46:43Z (KAFKA-10751): 40 partitions of topic audit lost ")
    assert "lost 2800 committed records of 40 partitions, proven; broker 2 holds all of them" in text
    assert "do first Keep broker 2 stopped until its log directories are copied elsewhere." in text
    assert "A leader was elected uncleanly instead of broker 2 and lacks committed records of 40 partitions." in text
    assert "2800 committed records survive only on broker 2, and Kafka would truncate them there to match the new leader." in text
    assert "found UNCLEAN_LOSS 40 (critical, proven)" in text
    assert partition_rows(out) == [["audit-0 to audit-39", "300 to 369", "2800", "2"]]
    paths = " ".join(map(str, log_dirs))
    commands = re.findall(r"\$ (.*)", out.replace(" \\\n", " "))
    found = [" ".join(command.split()) for command in commands]
    assert found == [f"kafka-forensics plan {paths}", f"kafka-forensics scan {paths} --by partition"]
    assert "every finding:\n" in out
    assert "\ncritical: 40 critical, " in f"\n{err}"
    assert max(map(len, re.sub(r"\n[^\n]*\$ (?:.*\\\n)*.*", "", out).splitlines())) <= 80


def loss_finding(number: int, offsets: int, topic: str = "audit") -> Finding:
    place = Place(topic, number, offset_start=0, offset_end=offsets)
    return finding("UNCLEAN_LOSS", place, {"held_by": [2], "versions": [{"brokers": [1]}, {"brokers": [2]}]})


def test_the_longest_loss_comes_first_and_several_kinds_are_listed() -> None:
    difference = finding("REPLICA_DIFFERS", Place("b", 1, 2, offset_start=0, offset_end=5), {"minority": [2], "held_by": [2]})
    losses = (loss_finding(0, 10, "a"), loss_finding(1, 30, "b"), difference, loss_finding(2, 20, "c"))
    text = rendered(result_of(*losses))
    assert partition_rows(text) == [
        ["b-1", "0 to 29", "30", "2", "UNCLEAN_LOSS, REPLICA_DIFFERS"],
        ["c-2", "0 to 19", "20", "2", "UNCLEAN_LOSS"],
        ["a-0", "0 to 9", "10", "2", "UNCLEAN_LOSS"],
    ]
    assert "CRITICAL  replicas diverge: 3 partitions of 3 topics\n" in text
    assert partition_rows(rendered(result_of(*losses), width=50))[0] == ["b-1", "0 to 29", "30", "2"]


def test_partitions_of_many_topics_are_counted_beyond_the_largest_losses() -> None:
    text = rendered(result_of(*(loss_finding(number, 100 - number, f"t{number}") for number in range(60))))
    assert len(text.splitlines()) <= 40
    assert len(partition_rows(text)) == SHOWN_ROWS - 1
    assert f"  {61 - SHOWN_ROWS} partitions of {61 - SHOWN_ROWS} topics more, {sum(range(41, 102 - SHOWN_ROWS))} lost\n" in text


def test_the_most_severe_incident_comes_first_at_any_size() -> None:
    crc_findings = [finding("BATCH_CRC_MISMATCH", Place("orders", number, 1), {"held_by": [2]}) for number in range(9)]
    text = rendered(result_of(*crc_findings, loss_finding(7, 10)))
    assert [line.split("  ")[0] for line in text.splitlines() if line[:1].isupper()] == ["CRITICAL", "CRITICAL", "ERROR"]
    assert text.startswith("CRITICAL  audit-7: replicas diverge; and 1 more incident\n")


def test_unread_partitions_are_listed_beside_incidents() -> None:
    result = result_of(loss_finding(0, 10), loss_finding(1, 10))
    unread = replica(1, 5, read=ReadExtent.NONE, log_end_offset=None)
    result.partitions = [partition("dark", number, Agreement("not_compared"), [unread], []) for number in range(9)]
    for summary in result.partitions:
        summary.judge([])
    text = rendered(result)
    assert "UNKNOWN   9 partitions not completely read: dark-0, dark-1, dark-2, dark-3," in text


@pytest.mark.parametrize(
    ("paths", "below"),
    [
        (("s3://a/x/1.log", "s3://a/x/2.log"), " below s3://a/x"),
        (("s3://a/x/1.log", "s3://b/x/1.log"), ""),
        (("s3://a/1.log", "gs://a/1.log"), ""),
    ],
)
def test_refused_objects_are_a_line_that_names_what_they_share(paths: tuple[str, str], below: str) -> None:
    (line,) = gap_lines(Incomplete(path, DENIED) for path in paths)
    assert line == f"incomplete: 2 objects{below} cannot be read; the first, {paths[0]}: {DENIED}"
