"""The heat map has a column per partition and a row per broker; shared columns show the worst verdict, and its size is bounded."""

import re

import pytest
from msgspec.structs import replace

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.results import VERDICTS, Agreement
from kafka_forensics.report.document import Document, FindingRow, document_of
from kafka_forensics.report.heat_map import HEAT, heat_map
from kafka_forensics.report.page import Provenance, page, svg
from kafka_forensics.report.picture import LEFT, RIGHT, Picture
from kafka_forensics.scanning.engine import local
from tests.report.pages import results_with_loss
from tests.report.test_page import assert_harmless
from tests.support.places import SAMPLES
from tests.support.results import clean_result, partition, replica

SAMPLE = SAMPLES / "unclean-election"


def findings_of(document: Document) -> dict[tuple[str, int], list[FindingRow]]:
    by_partition: dict[tuple[str, int], list[FindingRow]] = {}
    for finding in document.findings:
        if finding.topic is not None and finding.partition is not None:
            by_partition.setdefault((finding.topic, finding.partition), []).append(finding)
    return by_partition


def picture_of(document: Document) -> Picture:
    picture = heat_map(document.partitions, findings_of(document))
    assert picture is not None
    return picture


def row_styles(picture: Picture, number: int) -> list[str]:
    """Styles of the cells of a row, from left to right."""
    tops = sorted({rect.y for rect in picture.rects})
    return [rect.style for rect in sorted(picture.rects, key=lambda rect: rect.x) if rect.y == tops[number]]


def test_every_partition_has_the_colour_of_its_verdict() -> None:
    document = document_of(local.scan([str(SAMPLE)], ScanOptions()))
    picture = picture_of(document)
    rows = sorted(document.partitions, key=lambda row: (row.topic, row.partition))
    assert row_styles(picture, 0) == [f"v{VERDICTS.index(row.verdict)}" for row in rows]
    assert [len(row_styles(picture, number)) for number in (1, 2, 3)] == [len(rows)] * 3
    assert [rect.title for rect in picture.rects if rect.title] == ["audit-0: critical"]
    assert picture.label.startswith(f"Heat map of {len(rows)} partitions: 1 critical, ")
    assert "broker 1: " in picture.label


def test_a_finding_on_one_broker_colours_only_its_row() -> None:
    result, _ = results_with_loss(3)  # each has a finding on broker 2
    picture = picture_of(document_of(result))
    assert [row_styles(picture, number) for number in range(4)] == [["v5"] * 3, ["v0"] * 3, ["v5"] * 3, ["v0"] * 3]


def test_a_missing_replica_has_no_cell_and_a_partly_read_one_is_unknown() -> None:
    result = clean_result()
    result.partitions = [
        partition("a", 0, Agreement("identical", 9), [replica(1, 9), replica(2, 9)], []),
        partition("a", 1, Agreement("identical", 9), [replica(1, 9)], []),
    ]
    document = document_of(result)
    document.partitions[0] = replace(
        document.partitions[0],
        replicas=[document.partitions[0].replicas[0], replace(document.partitions[0].replicas[1], read="part")],
    )
    picture = picture_of(document)
    assert (row_styles(picture, 1), row_styles(picture, 2)) == (["v0", "v0"], ["v2"])


@pytest.mark.parametrize("count", [134, 135, 2_000])
def test_any_number_of_partitions_fits_and_a_column_shows_its_worst_verdict(count: int) -> None:
    result, _ = results_with_loss(count)
    document = document_of(result)
    document.partitions[:] = [replace(row, verdict="clean") for row in document.partitions]
    document.partitions[-1] = replace(document.partitions[-1], verdict="critical", topic="zz")
    picture = heat_map(document.partitions, {})
    assert picture is not None
    assert all(rect.x >= LEFT and rect.x + rect.width <= RIGHT + 0.01 for rect in picture.rects)
    assert all(rect.width >= 2 for rect in picture.rects)
    assert row_styles(picture, 0)[-1] == "v5"
    assert set(row_styles(picture, 0)[:-1]) == {"v0"}
    assert bool(picture.notes) is (count > 134)
    assert len(svg(picture).encode()) < 20_000


def test_the_legend_explains_every_colour_of_the_page() -> None:
    result, details = results_with_loss(4)
    text = page(document_of(result), details, Provenance())
    parsed = assert_harmless(text)
    assert 'aria-label="Heat map of 4 partitions: 4 critical' in text
    assert 'aria-label="Replicas of ' in text
    legend = re.search('<ul class="k" aria-label="Colours of the heat map">(.*?)</ul>', text, re.DOTALL)
    assert legend is not None
    assert re.findall('class="(v[0-9])"', legend[1]) == [style for style, _ in HEAT]
    assert all(f".kf .{style}{{fill:" in text for style, _ in HEAT)
    assert "what concerns no broker alone is in the first row" in parsed.text
