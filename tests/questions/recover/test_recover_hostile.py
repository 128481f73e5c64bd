"""Every offset that a plan calls lost is counted once, for any bytes in the logs."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, strategies as st

from kafka_forensics.questions.recover import Undecided
from tests.questions.recover.recoveries import recovered
from tests.support.brokers import put_replica
from tests.support.strategies import any_segments, batch_lists


@given(
    common=batch_lists(max_size=3),
    kept=any_segments(),
    lost=any_segments(),
    keep=st.sampled_from([1, 2]),
    watermark=st.integers(0, 12),
)
def test_offsets_add_up_for_any_bytes(common: list[bytes], kept: bytes, lost: bytes, keep: int, watermark: int) -> None:
    with TemporaryDirectory() as folder:
        for broker, log in ((1, kept), (2, lost)):
            put_replica(Path(folder), broker, b"".join(common) + log, high_watermark=watermark)
        done = recovered(Path(folder), keep)
    if isinstance(done.only_partition.side, Undecided):
        assert done.rows == []
        return
    assert done.reasons.get("recovered", 0) == len(done.rows)
    assert min(value for value in done.reasons.values()) > 0 if done.reasons else done.only_partition.at_most == 0
