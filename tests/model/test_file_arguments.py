"""Command-line arguments that select the file of a finding, for every kind of input."""

import pytest

from kafka_forensics.model.files import file_arguments
from kafka_forensics.model.findings import Place

LOG = "orders-0/00000000000000000000.log"


@pytest.mark.parametrize(
    ("log_dir", "file", "expected"),
    [
        ("copies/b1", LOG, ["copies/b1/" + LOG]),
        ("copies/b1/", LOG, ["copies/b1/" + LOG]),
        (".", LOG, ["./" + LOG]),
        (None, LOG, [LOG]),
        ("b1/orders-0", LOG, ["b1/" + LOG]),
        ("orders-0", LOG, [LOG]),
        ("b1/" + LOG, LOG, ["b1/" + LOG]),
        ("00000000000000000000.log", LOG, ["00000000000000000000.log"]),
        ("x/d/saved.log", "d/00000000000000000000.log", ["x/d/saved.log"]),
        ("../saved.log", "d/00000000000000000000.log", ["../saved.log"]),
        ("/data/kafka.log", LOG, ["/data/kafka.log/" + LOG]),
        ("b1", "meta.properties", ["b1/meta.properties"]),
        ("b.tar.gz/broker-1", LOG, ["b.tar.gz", "--topic", "orders", "--partition", "0"]),
        ("a/b.ZIP", LOG, ["a/b.ZIP", "--topic", "orders", "--partition", "0"]),
        ("b.zipped/broker-1", LOG, ["b.zipped/broker-1/" + LOG]),
    ],
)
def test_arguments_select_the_file(log_dir: str | None, file: str, expected: list[str]) -> None:
    assert file_arguments(Place("orders", 0, 1, log_dir, file)) == expected


def test_only_arguments_of_logs_select_offsets() -> None:
    assert file_arguments(Place("orders", 0, 1, "b1", LOG, offset_start=3, offset_end=9)) == ["b1/" + LOG, "--offset", "3..8"]
    index = "orders-0/00000000000000000000.index"
    assert file_arguments(Place("orders", 0, 1, "b1", index, offset_start=3, offset_end=9)) == ["b1/" + index]


def test_a_finding_without_a_file_has_no_arguments_and_one_without_a_partition_the_archive() -> None:
    assert file_arguments(Place("orders", 0, 1, "b1")) is None
    assert file_arguments(Place(None, None, 1, "b.tar/broker-1", "meta.properties")) == ["b.tar"]
