"""What scans and comparisons of snapshots share as answers, and where they differ."""

import pyarrow as pa
import pytest

from kafka_forensics.errors import UsageError
from kafka_forensics.model.changes import SnapshotsResult
from kafka_forensics.model.findings import Answer
from kafka_forensics.model.results import Drawing, ScanResult, Totals


class Named:
    """Views that say what they were asked for."""

    def table(self, fact: str) -> pa.Table:
        return pa.table({"fact": [fact]})

    def json(self) -> str:
        return "{}"

    def html(self) -> str:
        return "<p>"

    def lanes(self, topic: str, partition: int) -> Drawing:
        raise UsageError(f"{topic}-{partition} is not drawn here")


def scan(views: Named | None = None) -> ScanResult:
    return ScanResult("local", [], [], [], Totals(), [], views)


def snapshots(views: Named | None = None) -> SnapshotsResult:
    return SnapshotsResult({}, [], views=views)


def test_each_has_its_own_table() -> None:
    assert scan(Named()).to_arrow().to_pydict() == {"fact": ["findings"]}
    assert snapshots(Named()).to_pandas()["fact"].tolist() == ["changes"]
    for one in (scan(Named()), snapshots(Named())):
        assert one.facts("batches").to_pydict() == {"fact": ["batches"]}
        assert (one.to_json(), one._repr_html_()) == ("{}", "<p>")


@pytest.mark.parametrize(("one", "hint"), [(scan(), "kafka_forensics.scan"), (snapshots(), "scan_snapshots")])
def test_one_without_views_says_who_gives_one_with(one: Answer, hint: str) -> None:
    assert one._repr_html_() is None
    if isinstance(one, ScanResult):
        with pytest.raises(UsageError, match="does not know where its facts are"):
            one.lanes("audit", 0)
    for ask in (one.to_arrow, one.to_json):
        with pytest.raises(UsageError, match="does not know where its facts are") as caught:
            ask()
        assert caught.value.hint == f"take the one that {hint} gives"


def test_answers_have_a_short_text() -> None:
    assert repr(scan()) == "<ScanResult clean: 0 partitions, 0 replicas, 0 findings>"
    assert repr(snapshots()) == "<SnapshotsResult clean: 0 snapshots, 0 changes, 0 findings between them>"
