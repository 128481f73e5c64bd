"""Checks the tool against oracles that share no code with it: header fields, records, CRCs, log ends, first differences."""

import ast
import tarfile
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

import kafka_forensics
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import COMPRESSION_TYPES
from kafka_forensics.model.results import PartitionSummary, ScanResult
from kafka_forensics.parsers.log.records import decode_batch
from kafka_forensics.simulation.materialise import materialise
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.conftest import CORPORA
from tests.oracles.decoder import Batch, Record, batches
from tests.oracles.replicas import NaiveReplica, first_of_all, only_on_one, replica_of
from tests.simulation.random_histories import random_history
from tests.support.archives import SHIPPED, archive_params
from tests.support.segments import batch_positions, read
from tests.support.strategies import batch_lists, records_to_write
from tests.support.times import ms_of

HERE = Path(__file__).parent
SAMPLES = HERE.parents[1] / "sample_logs"
FIELDS = Batch._fields[:-1]
MAY_IMPORT = {"struct", "zlib", "cramjam", "google_crc32c", "collections", "dataclasses", "itertools", "typing", "tests"}
HISTORIES = 30
LARGE = ("kafka-4.3.0-clean-end", "kafka-4.3.0-healthy", "kafka-4.3.0-lag")


@pytest.mark.parametrize("module", ["decoder", "replicas"])
def test_an_oracle_imports_nothing_of_the_package(module: str) -> None:
    tree = ast.parse((HERE / f"{module}.py").read_text())
    names = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    assert {name.split(".")[0] for name in names} <= MAY_IMPORT
    assert {name for name in names if name.startswith("tests")} <= {"tests.oracles.decoder"}
    assert not any(isinstance(node, ast.Call) and getattr(node.func, "id", "") == "__import__" for node in ast.walk(tree))


def files_of_folders(folders: list[Path]) -> Iterator[tuple[str, bytes]]:
    """(path, content) of every `.log` file."""
    for folder in folders:
        for path in sorted(folder.rglob("*.log")):
            yield str(path), path.read_bytes()


def files_of_archive(archive: Path) -> Iterator[tuple[str, bytes]]:
    """(name, content) of every `.log` member of an archive."""
    with tarfile.open(archive) as opened:
        for member in opened:
            content = opened.extractfile(member) if member.isfile() and member.name.endswith(".log") else None
            if content is not None:
                yield member.name, content.read()


def judge(result: ScanResult, files: Iterator[tuple[str, bytes]]) -> dict[str, int]:
    """Compare a scan with the oracles' results for its files; return how much was compared."""
    assert not result.incomplete
    contents = {tuple(path.split("/")[-3:]): data for path, data in files}
    facts = {name: result.facts(name, payloads=True).to_pylist() for name in ("batches", "records")}
    by_file: dict[str, dict[tuple[str, ...], list[dict[str, object]]]] = {"batches": {}, "records": {}}
    for name, rows in facts.items():
        for row in rows:
            log_dir = str(row["log_dir"]).rstrip("/").split("/")[-1]
            directory, file = str(row["file"]).split("/")[-2:]
            by_file[name].setdefault((log_dir, directory, file), []).append(row)
    counted = dict.fromkeys(("batches", "records", "log ends", "partitions", "conflicts"), 0)
    for partition in result.partitions:
        naive = []
        for replica in partition.replicas:
            place = (str(replica.log_dir).rstrip("/").split("/")[-1], f"{partition.topic}-{partition.partition}")
            files_of_replica = {key[2]: data for key, data in contents.items() if key[:2] == place}
            naive.append(naive_replica := replica_of(files_of_replica))
            for file, decoded in naive_replica.segments.items():
                rows = by_file["batches"].get((*place, file), [])
                assert [tuple(stored(row[field]) for field in FIELDS) for row in rows] == [batch[:-1] for batch in decoded], (
                    place,
                    file,
                )
                records = [record for batch in decoded for record in batch.records]
                rows = by_file["records"].get((*place, file), [])
                assert [record_of_row(row) for row in rows] == [with_timestamp(record) for record in records]
                counted["batches"] += len(decoded)
                counted["records"] += len(records)
            assert replica.log_end_offset == naive_replica.log_end_offset
            counted["log ends"] += 1
        judge_agreement(partition, naive, counted)
    assert sum(map(len, by_file["batches"].values())) == len(facts["batches"])
    return counted


def record_of_row(row: dict[str, object]) -> Record:
    """A record from the tool's row."""
    headers = row["headers"]
    assert isinstance(headers, list)
    pairs = tuple((header["key"], header["value"]) for header in headers)
    return Record(row["offset"], stored(row["timestamp"]), row["key"], row["value"], pairs)  # type: ignore[arg-type]


def stored(value: object) -> object:
    """A value of a row as the file has it: a time in milliseconds, -1 for none. No other column compared here is ever null."""
    if value is None:
        return -1
    return ms_of(value) if isinstance(value, datetime) else value


def with_timestamp(record: Record) -> Record:
    """The oracle's record with -1 for no timestamp, as the tool has it."""
    return record._replace(timestamp=-1) if record.timestamp is None else record


def judge_agreement(partition: PartitionSummary, replicas: list[NaiveReplica], counted: dict[str, int]) -> None:
    """Compare the first difference of the replicas, and that replicas said to agree have none."""
    agreement, first = partition.agreement, first_of_all(replicas)
    counted["partitions"] += 1
    if agreement.kind == "conflict":
        assert agreement.common_end_offset == first, partition.topic
        counted["conflicts"] += 1
        return
    assert first is None, (partition.topic, agreement)
    if len(replicas) > 1 and agreement.kind in ("identical", "prefix", "compacted"):
        assert agreement.common_end_offset == min(replica.log_end_offset for replica in replicas)
    if agreement.kind in ("identical", "prefix"):
        assert not any(only_on_one(left, right) for left, right in combinations(replicas, 2))
    if agreement.kind == "identical":
        assert len({replica.log_end_offset for replica in replicas}) == 1


@pytest.mark.parametrize("sample", sorted(path.name for path in SAMPLES.iterdir() if (path / "broker-1").is_dir()))
def test_samples_agree_with_the_oracles(sample: str) -> None:
    folders = sorted(path for path in (SAMPLES / sample).iterdir() if path.is_dir())
    counted = judge(kafka_forensics.scan([str(folder) for folder in folders]), files_of_folders(folders))
    assert counted["conflicts"] == (sample in ("silent-divergence", "unclean-election"))
    assert min(counted[name] for name in ("batches", "records", "log ends", "partitions")) > 0


@pytest.mark.parametrize(
    "name", archive_params(*sorted({path.name for folder in (SHIPPED, CORPORA) for path in folder.glob("*.tar.xz")}), nightly=LARGE)
)
def test_archives_of_real_brokers_agree_with_the_oracles(archives: Path, name: str) -> None:
    archive = archives / name
    counted = judge(kafka_forensics.scan(str(archive)), files_of_archive(archive))
    assert counted["records"] > 0
    assert counted["conflicts"] == any(part in name for part in ("unclean", "divergence", "truncation"))


def test_random_histories_agree_with_the_oracles(tmp_path: Path) -> None:
    sums: Counter[str] = Counter()
    for seed in range(HISTORIES):
        history = random_history(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        folders = materialise(history.cluster, folder, history.coordinator)
        sums.update(judge(kafka_forensics.scan([str(path) for path in folders]), files_of_folders(folders)))
    assert sums["conflicts"] > 2
    assert sums["records"] > 1000


@given(batch_lists(max_size=12))
def test_every_field_of_any_sound_batch_agrees_with_the_oracle(written: list[bytes]) -> None:
    data = b"".join(written)
    naive = list(batches(data))
    assert [(batch.position, batch.size_in_bytes) for batch in naive] == list(
        zip(batch_positions(written)[:-1], map(len, written), strict=True)
    )
    columns = [BatchColumn[field.upper()] for field in FIELDS]
    assert [tuple(row) for row in read(data).columns[columns].T.tolist()] == [batch[:-1] for batch in naive]
    for written_batch, naive_batch in zip(written, naive, strict=True):
        decoded = decode_batch(written_batch)
        assert decoded.problems == []
        assert [
            Record(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
            for record in decoded.iter_records()
        ] == [with_timestamp(record) for record in naive_batch.records]


@given(
    records=st.lists(records_to_write(), max_size=5), codec=st.sampled_from(COMPRESSION_TYPES), time=st.integers(-(2**62), 2**62)
)
def test_any_records_agree_with_the_oracle(records: list[RecordToWrite], codec: str, time: int) -> None:
    """Deltas are limited, because readers differ on sums beyond int64."""
    small = [
        replace(write, timestamp_delta=write.timestamp_delta % 2**61, offset_delta=number) for number, write in enumerate(records)
    ]
    data = write_batch(small, base_offset=5, base_timestamp=time, max_timestamp=7, compression_type=codec)
    (naive,) = batches(data)
    decoded = decode_batch(data)
    assert decoded.problems == []
    assert [
        (record.offset, record.timestamp, record.key, record.value, tuple((k, v) for k, v in record.headers))
        for record in decoded.iter_records()
    ] == [tuple(record) for record in naive.records]
