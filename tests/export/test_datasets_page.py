"""The Python examples and commands of docs/datasets.md work."""

import re
from pathlib import Path
from typing import Any

import pytest

import kafka_forensics as kf
from kafka_forensics.cli.main import outcome
from kafka_forensics.export.iceberg import NAMESPACE
from kafka_forensics.export.opening import TABLE_FORMATS
from tests.export.datasets import SILENT_DIVERGENCE, UNCLEAN_ELECTION, append, files, read
from tests.support.places import SAMPLES

pytestmark = pytest.mark.nightly

PAGE = (SAMPLES.parent / "docs" / "datasets.md").read_text()
CODE = PAGE.split("```python\n")[1:]
LINES = re.findall(r"^kafka-forensics (.*)$", PAGE.replace(" \\\n", " "), re.MULTILINE)
COMMANDS = [line for line in LINES if "s3://" not in line and "spark" not in line]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The name of a dataset on the page → its directory."""
    folder: Path = tmp_path_factory.mktemp("nights")
    formats = dict(zip(("DIR", "LAKE", "ICEBERG"), TABLE_FORMATS, strict=True))
    for name, table_format in formats.items():
        for snapshot, path in (("2026-02-28", SILENT_DIVERGENCE), ("2026-03-01", UNCLEAN_ELECTION)):
            assert append(folder / name, "payments", snapshot, "--table-format", table_format, path=path) == 0
    return {name: folder / name for name in formats}


def run(number: int, places: dict[str, Path]) -> dict[str, Any]:
    """The variables of an example after it ran."""
    code = CODE[number].split("```")[0]
    for name, place in places.items():
        code = re.sub(rf"\b{name}/", f"{place}/", code).replace(f'"{name}"', f'"{place}"')
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 - an example of the page
    return names


def test_the_python_examples_work(places: dict[str, Path]) -> None:
    assert len(CODE) == 4
    many = kf.scan(str(UNCLEAN_ELECTION)).facts("batches").num_rows
    few = kf.scan(str(SILENT_DIVERGENCE)).facts("batches").num_rows
    example = run(0, places)
    nights = example["nights"].to_pylist()
    assert {row["snapshot"] for row in nights} == {"2026-03-01"}
    assert sum(row["kind_count"] for row in nights) == kf.scan(str(UNCLEAN_ELECTION)).facts("findings").num_rows
    expected = {("payments", "2026-02-28", few), ("payments", "2026-03-01", many)}
    assert {row[:2] for row in example["counts"]} == {row[:2] for row in expected}
    assert sum(row[-1] for row in example["counts"]) == example["lazy"].collect().height == few + many
    assert len(example["frame"]) == sum(row["kind_count"] for row in nights)
    per_night = run(2, places)["per_night"]
    assert set(zip(*(per_night[name].to_pylist() for name in ("cluster", "snapshot", "batches")), strict=True)) == expected
    assert run(3, places)["batches"].num_rows == few + many
    assert NAMESPACE == "kafka_forensics"


def test_the_commands_work(tmp_path: Path) -> None:
    assert len(COMMANDS) == 3
    for command in COMMANDS:
        words = command.replace("/copies/tonight/broker-*", str(SILENT_DIVERGENCE)).replace("/shared", str(tmp_path)).split()
        assert outcome([*words, "-q"]) == 0
    assert read(tmp_path / "nights", "findings").num_rows == read(tmp_path / "lake", "findings", "delta").num_rows > 0


def test_datasets_have_the_files_that_the_page_names(places: dict[str, Path]) -> None:
    assert len(files(places["DIR"], "batches")) == 2
    assert (places["LAKE"] / "batches" / "_delta_log").is_dir()
    assert (places["ICEBERG"] / "_catalog.sqlite").is_file()
