"""A `ScanResult` in a notebook: tables, JSON, pandas, and a page that stays small and harmless."""

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

ONE = str(SAMPLES / "unclean-election")


class Tags(HTMLParser):
    """Which tags and attributes a page has."""

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


def parsed(text: str | None) -> Tags:
    assert text is not None
    assert len(text.encode()) < MAX_PAGE_BYTES
    tags = Tags()
    tags.feed(text)
    assert tags.tags <= {"div", "p", "b", "span", "table", "thead", "tbody", "tr", "th", "td"}
    assert tags.attributes <= {"style"}
    assert all(one.isprintable() for one in text)
    return tags


def test_findings_as_arrow_and_pandas() -> None:
    result = kf.scan(ONE, topic="audit")
    frame = result.to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert list(frame["kind"]) == [finding.kind for finding in result.findings] == result.to_arrow()["kind"].to_pylist()
    evidence = [json.loads(one) for one in frame["evidence"]]
    assert evidence == [json.loads(json.dumps(finding.evidence)) for finding in result.findings]


def test_without_pandas_an_error_names_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match="pandas is not installed") as raised:
        kf.scan(str(SAMPLES / "silent-divergence")).to_pandas()
    assert raised.value.hint == "pip install pandas, or use to_arrow()"


def test_the_page_says_what_is_wrong() -> None:
    text = parsed(kf.scan(ONE)._repr_html_()).text
    assert text.startswith("critical")
    for word in ("audit-0", "UNCLEAN_LOSS", "conflict"):
        assert word in text


def test_hostile_names_are_text_and_nothing_more(tmp_path: Path) -> None:
    for result in (kf.scan([str(path) for path in hostile(tmp_path).log_dirs]), hostile_result()):
        parsed(page(result))
    assert "<script>" not in page(hostile_result())
    assert HOSTILE_TEXT not in page(hostile_result())


def test_a_page_of_very_much_is_cut_and_says_so() -> None:
    result = kf.scan(ONE)
    result.findings *= 5000
    result.partitions *= 5000
    text = parsed(page(result)).text
    assert "of 3" in text or "of 4" in text or "of 5" in text
    assert "the first 60" in text


def test_a_fact_or_an_engine_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no fact 'batch'"):
        kf.scan(str(SAMPLES / "silent-divergence")).facts("batch")
    with pytest.raises(UsageError, match="no engine 'spark'"):
        kf.scan(ONE, engine="spark")


def test_a_scan_asks_for_what_the_command_line_would() -> None:
    result = kf.scan(ONE, topic="aud*", partition=0, broker=2)
    assert [(partition.topic, partition.partition) for partition in result.partitions] == [("audit", 0)]
    assert [replica.broker for replica in result.replicas] == [2]
    assert set(result.facts("batches")["broker"].to_pylist()) == {"2"}
    assert set(result.facts("checkpoints")["topic"].to_pylist()) == {"audit"}
