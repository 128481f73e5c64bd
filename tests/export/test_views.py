"""A `ScanResult` in a notebook: tables, JSON, pandas, and a small page that contains evidence only as text."""

import json
import sys
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

import kafka_forensics as kf
from kafka_forensics.errors import UsageError
from kafka_forensics.export.views import MAX_PAGE_BYTES, page
from kafka_forensics.model.findings import Severity, worst_first
from kafka_forensics.model.schemas import FACTS
from tests.gallery.of_replicas import hostile
from tests.support.places import SAMPLES
from tests.support.results import HOSTILE_TEXT, hostile_result

UNCLEAN_ELECTION = str(SAMPLES / "unclean-election")


class ParsedPage(HTMLParser):
    """The tags, attributes and text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


def parsed(text: str | None) -> ParsedPage:
    assert text is not None
    assert len(text.encode()) < MAX_PAGE_BYTES
    parsed_page = ParsedPage()
    parsed_page.feed(text)
    assert parsed_page.tags <= {"div", "p", "b", "span", "table", "thead", "tbody", "tr", "th", "td"}
    assert parsed_page.attributes <= {"style"}
    assert text.isprintable()
    return parsed_page


def test_findings_are_equal_as_arrow_and_pandas() -> None:
    result = kf.scan(UNCLEAN_ELECTION, topic="audit")
    frame = result.to_pandas()
    assert isinstance(frame, pd.DataFrame)
    findings = worst_first(result.findings)
    assert list(frame["kind"]) == [finding.kind for finding in findings] == result.to_arrow()["kind"].to_pylist()
    evidence = [json.loads(text) for text in frame["evidence"]]
    assert evidence == [json.loads(json.dumps(finding.evidence)) for finding in findings]


def test_the_worst_findings_come_first_in_every_view() -> None:
    result = kf.scan(UNCLEAN_ELECTION)
    ranks = [Severity(name).rank for name in result.to_pandas()["severity"]]
    assert ranks == sorted(ranks, reverse=True)
    assert ranks != [finding.severity.rank for finding in result.findings]
    assert result.facts("findings").equals(result.to_arrow())
    shown = parsed(result._repr_html_()).text.split("findings, worst first")[1]
    places = [shown.index(finding.kind) for finding in worst_first(result.findings) if finding.severity is not Severity.INFO]
    assert places == sorted(places)


def test_pandas_has_nullable_integers_and_times() -> None:
    result = kf.scan(UNCLEAN_ELECTION)
    for fact in FACTS:
        frame = result.to_pandas(fact)
        for field in FACTS[fact].schema:
            kind = str(frame[field.name].dtype)
            assert "float" not in kind
            if pa.types.is_integer(field.type):
                assert kind == str(field.type).replace("int", "Int")
            elif pa.types.is_temporal(field.type):
                assert kind == "datetime64[ms, UTC]"
            elif pa.types.is_boolean(field.type):
                assert kind == "boolean"
    assert result.to_pandas()["partition"].isna().any()


def test_payloads_come_only_when_asked_for() -> None:
    result = kf.scan(UNCLEAN_ELECTION)
    for fact, names in (("records", ("key", "value", "headers")), ("group_offsets", ("metadata",))):
        without, having = result.facts(fact), result.facts(fact, payloads=True)
        assert without.schema == having.schema
        assert all(without[name].null_count == without.num_rows > having[name].null_count for name in names)
        assert without.drop_columns(list(names)).equals(having.drop_columns(list(names)))
    frame = result.to_pandas("records", payloads=True)
    assert frame["value"].notna().any()
    path = f"{UNCLEAN_ELECTION}/broker-1/audit-0/00000000000000000000.log"
    assert all(batch["value"].null_count == batch.num_rows for batch in kf.read_records(path))
    assert any(batch["value"].null_count < batch.num_rows for batch in kf.read_records(path, payloads=True))


def test_without_pandas_an_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match="pandas is not installed") as raised:
        kf.scan(str(SAMPLES / "silent-divergence")).to_pandas()
    assert raised.value.hint == "pip install pandas, or use to_arrow()"


def test_the_page_shows_findings_by_severity() -> None:
    text = parsed(kf.scan(UNCLEAN_ELECTION)._repr_html_()).text
    assert text.startswith("critical")
    for word in ("audit-0", "UNCLEAN_LOSS", "conflict"):
        assert word in text


def test_hostile_names_are_only_text(tmp_path: Path) -> None:
    for result in (kf.scan([str(path) for path in hostile(tmp_path).log_dirs]), hostile_result()):
        parsed(page(result))
    assert "<script>" not in page(hostile_result())
    assert HOSTILE_TEXT not in page(hostile_result())


def test_a_long_page_is_cut_with_a_note() -> None:
    result = kf.scan(UNCLEAN_ELECTION)
    result.findings *= 5000
    result.partitions *= 5000
    text = parsed(page(result)).text
    assert "of 3" in text or "of 4" in text or "of 5" in text
    assert "the first 60" in text


def test_an_unknown_fact_or_engine_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no fact 'batch'"):
        kf.scan(str(SAMPLES / "silent-divergence")).facts("batch")
    with pytest.raises(UsageError, match="no engine 'spark'"):
        kf.scan(UNCLEAN_ELECTION, engine="spark")


def test_a_scan_takes_the_filters_of_the_command() -> None:
    result = kf.scan(UNCLEAN_ELECTION, topic="aud*", partition=0, broker=2)
    assert [(partition.topic, partition.partition) for partition in result.partitions] == [("audit", 0)]
    assert [replica.broker for replica in result.replicas] == [2]
    assert set(result.facts("batches")["broker"].to_pylist()) == {"2"}
    assert set(result.facts("checkpoints")["topic"].to_pylist()) == {"audit"}
