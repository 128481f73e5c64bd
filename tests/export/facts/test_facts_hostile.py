"""For any bytes in any file, every fact is a table with its schema; impossible values are rows, not errors."""

import random
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import kafka_forensics as kf
from kafka_forensics.export.facts.rows import array
from kafka_forensics.model.schemas import FACTS
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.support.brokers import put_segment
from tests.support.logs import APP_ID
from tests.support.places import SAMPLES
from tests.support.segments import MUTATIONS

SAMPLE = SAMPLES / "unclean-election" / "broker-1"
DIRECTORIES = ("payments-0", "audit-0", "__transaction_state-0", "__consumer_offsets-0", "__cluster_metadata-0")
ROUNDS = 12


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_every_fact_of_any_bytes_is_a_valid_table(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    for name in DIRECTORIES:
        shutil.copytree(SAMPLE / name, tmp_path / "b" / name)
    for path in SAMPLE.iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path / "b")
    for path in sorted((tmp_path / "b").rglob("*")):
        if path.is_file() and rng.random() < 0.6:
            for _ in range(rng.choice((1, 1, 3))):
                path.write_bytes(rng.choice(MUTATIONS)(rng, path.read_bytes()))
    result = kf.scan(str(tmp_path / "b"))
    for fact in FACTS:
        result.facts(fact).validate(full=True)
    assert result.to_json()
    assert result._repr_html_()


def test_offsets_at_the_ends_of_their_range_are_rows(tmp_path: Path) -> None:
    partition = tmp_path / "t-0"
    partition.mkdir()
    data = b""
    for base_offset, last_offset_delta in ((0, 0), (1, 2**31 - 1), (-(2**63), 2**31 - 1), (2**63 - 2, 0)):
        data += write_batch(
            [RecordToWrite(b"key", b"value")],
            base_offset=base_offset,
            base_timestamp=-(2**63),
            producer_id=APP_ID,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
            last_offset_delta=last_offset_delta,
        )
    put_segment(partition, 0, data)
    result = kf.scan(str(tmp_path))
    for fact in FACTS:
        result.facts(fact).validate(full=True)
    assert 2**63 - 2 in result.facts("batches")["base_offset"].to_pylist()


def test_a_number_out_of_range_becomes_the_nearest_one() -> None:
    assert array([2**70, -(2**70), None, 5], pa.int64()).to_pylist() == [2**63 - 1, -(2**63), None, 5]
    assert array([2**31, -1], pa.int32()).to_pylist() == [2**31 - 1, -1]
