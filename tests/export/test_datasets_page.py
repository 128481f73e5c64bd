"""What docs/datasets.md shows runs as it stands."""

import re
from pathlib import Path
from typing import Any

import pytest

import kafka_forensics as kf
from kafka_forensics.cli.main import outcome
from kafka_forensics.export.iceberg import NAMESPACE
from tests.export.datasets import FORMS, ONE, OTHER, append, files, read
from tests.support.places import SAMPLES

pytestmark = pytest.mark.nightly

PAGE = (SAMPLES.parent / "docs" / "datasets.md").read_text()
CODE = PAGE.split("```python\n")[1:]
COMMANDS = [
    line for line in re.findall(r"^kafka-forensics (.*)$", PAGE, re.MULTILINE) if "s3://" not in line and "spark" not in line
]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By the names that the page has for them."""
    folder: Path = tmp_path_factory.mktemp("nights")
    named = dict(zip(("DIR", "LAKE", "ICEBERG"), FORMS, strict=True))
    for name, form in named.items():
        for snapshot, path in (("2026-02-28", ONE), ("2026-03-01", OTHER)):
            assert append(folder / name, "payments", snapshot, "--table-format", form, path=path) == 0
    return {name: folder / name for name in named}


def run(number: int, places: dict[str, Path]) -> dict[str, Any]:
    """The names that an example leaves."""
    code = CODE[number].split("```")[0]
    for name, place in places.items():
        code = re.sub(rf"\b{name}/", f"{place}/", code).replace(f'"{name}"', f'"{place}"')
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 - the page's own example
    return names


def test_the_examples_work(places: dict[str, Path]) -> None:
    assert len(CODE) == 5
    many = kf.scan(str(OTHER)).facts("batches").num_rows
    few = kf.scan(str(ONE)).facts("batches").num_rows
    nights = run(0, places)["nights"].to_pylist()
    assert {row["snapshot"] for row in nights} == {"2026-03-01"}
    assert sum(row["kind_count"] for row in nights) == kf.scan(str(OTHER)).facts("findings").num_rows
    expected = {("payments", "2026-02-28", few), ("payments", "2026-03-01", many)}
    assert set(run(1, places)["counts"]) == expected
    per_night = run(3, places)["per_night"]
    assert set(zip(*(per_night[name].to_pylist() for name in ("cluster", "snapshot", "batches")), strict=True)) == expected
    assert run(4, places)["batches"].num_rows == few + many
    assert NAMESPACE == "kafka_forensics"


def test_the_commands_work(tmp_path: Path) -> None:
    assert len(COMMANDS) == 2
    for command in COMMANDS:
        words = command.replace("/copies/tonight/broker-*", str(ONE)).replace("/shared", str(tmp_path)).split()
        assert outcome([*words, "-q"]) == 0
    assert read(tmp_path / "nights", "findings").num_rows == read(tmp_path / "lake", "findings", "delta").num_rows > 0


def test_the_page_says_what_lies_there(places: dict[str, Path]) -> None:
    assert len(files(places["DIR"], "batches")) == 2
    assert (places["LAKE"] / "batches" / "_delta_log").is_dir()
    assert (places["ICEBERG"] / "_catalog.sqlite").is_file()
