"""A `ScanResult` in a notebook: tables, JSON, pandas, and a small page that contains evidence only as text."""

import json
import sys
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

import kafka_forensics as kf
from kafka_forensics.errors import UsageError
from kafka_forensics.export.views import MAX_PAGE_BYTES, page
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
    assert list(frame["kind"]) == [finding.kind for finding in result.findings] == result.to_arrow()["kind"].to_pylist()
    evidence = [json.loads(text) for text in frame["evidence"]]
    assert evidence == [json.loads(json.dumps(finding.evidence)) for finding in result.findings]


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
