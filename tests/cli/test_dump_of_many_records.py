"""Records of a dump that are written many at once equal those written one by one, byte for byte."""

from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from kafka_forensics.cli.outputs.dump import FileRows, write_file_rows
from kafka_forensics.cli.streams import Destination
from kafka_forensics.questions.dump import DumpOptions, find_files, log_columns, log_rows, log_runs
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.support.kernels import kernels
from tests.support.segments import segment_file
from tests.support.strategies import LOG

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.usefixtures("chosen_kernels")

FORMATS = ("tsv", "jsonl")
Headers = list[tuple[str, bytes | None]]
BATCH_CONTENTS: list[tuple[bytes | None, Headers, int, str]] = [
    (b"k", [], 1_700_000_000_000, "CreateTime"),
    (None, [("h", b"1"), ("h", None), ('qu"o', b"\xff")], -5, "CreateTime"),
    (b'"', [("", b"")], 2**62, "LogAppendTime"),
    (b"k", [("trace", b"a"), ("b", None)], 253_402_300_799_999, "CreateTime"),
]
"""(key, headers) of all records of a batch; its base timestamp and timestamp type."""
SPECIAL_VALUES = [b"", b"plain", b'quo"te', b"back\\slash", b"\ttab", b"\xff\x00", "\u202eé".encode(), b"\x7f", b"{}", None]


@pytest.fixture(autouse=True)
def _compiled() -> "Iterator[None]":
    with kernels(compiled=True):
        yield


def dumped(rows: "Callable[..., Iterator[object]]", path: Path, options: DumpOptions, format_name: str, *, several: bool) -> str:
    """The output of a dump of a file, with rows from `rows`."""
    stream = StringIO()
    [file] = find_files([str(path)], options).files
    columns = log_columns(options)
    section = FileRows(file.shown, columns, rows(file, options))
    shown_columns = ["more", *columns] if several else columns
    write_file_rows([section], shown_columns, format_name, Destination(stream, 80, colour=False), several=several)
    return stream.getvalue()


@given(LOG, st.booleans(), st.sampled_from(FORMATS), st.booleans(), st.sampled_from([(None, None), (5, None), (0, 2**39)]))
def test_any_log_is_written_the_same(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, payloads: bool, format_name: str, several: bool, offsets: tuple[int, int]
) -> None:
    directory = tmp_path_factory.mktemp("log") / "t-0"
    directory.mkdir()
    path = directory / segment_file(0)
    path.write_bytes(data)
    options = DumpOptions(records=True, show_payloads=payloads, offset_start=offsets[0], offset_end=offsets[1])
    one_by_one = dumped(log_rows, path, options, format_name, several=several)
    assert dumped(log_runs, path, options, format_name, several=several) == one_by_one


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("compression_type", ["none", "zstd"])
def test_special_keys_values_and_headers_are_written_the_same(tmp_path: Path, format_name: str, compression_type: str) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    path = directory / segment_file(0)
    batches = [
        write_batch(
            [RecordToWrite(key, value, headers, number) for number, value in enumerate(SPECIAL_VALUES)],
            base_offset=len(SPECIAL_VALUES) * index,
            base_timestamp=timestamp,
            compression_type=compression_type,
            timestamp_type=timestamp_type,
        )
        for index, (key, headers, timestamp, timestamp_type) in enumerate(BATCH_CONTENTS)
    ]
    path.write_bytes(b"".join(batches))
    options = DumpOptions(records=True, show_payloads=True)
    text = dumped(log_runs, path, options, format_name, several=False)
    assert text == dumped(log_rows, path, options, format_name, several=False)
    assert text.count("\n") == 4 * len(SPECIAL_VALUES) + (format_name == "tsv")
    [file] = find_files([str(path)], options).files
    assert any(isinstance(run, pa.RecordBatch) for run in log_runs(file, options)), "many are written at once"


def test_records_are_kept_while_the_next_ones_are_read(tmp_path: Path) -> None:
    """The records of a batch with a wrong number of records are read into the same memory as those before them."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    path = directory / segment_file(0)
    sound = write_batch([RecordToWrite(b"key", b"a longer value")], base_offset=0, base_timestamp=0, compression_type="zstd")
    other = write_batch([RecordToWrite(b"k", b"v")], base_offset=1, base_timestamp=0, compression_type="zstd")
    path.write_bytes(sound + other[:57] + (2).to_bytes(4, "big") + other[61:])
    options = DumpOptions(records=True, show_payloads=True)
    text = dumped(log_runs, path, options, "jsonl", several=False)
    assert text == dumped(log_rows, path, options, "jsonl", several=False)
    [file] = find_files([str(path)], options).files
    assert isinstance(next(log_runs(file, options)), pa.RecordBatch)


def test_records_of_internal_topics_are_written_one_by_one(tmp_path: Path) -> None:
    directory = tmp_path / "__consumer_offsets-0"
    directory.mkdir()
    path = directory / segment_file(0)
    path.write_bytes(write_batch([RecordToWrite(b"k", b"v")], base_offset=0, base_timestamp=0))
    [file] = find_files([str(path)], DumpOptions(records=True)).files
    assert [type(row) for row in log_runs(file, DumpOptions(records=True))] == [tuple]
