"""Whatever bytes stand in logs: every offset that a plan calls lost is counted once."""

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
def test_any_bytes_add_up(common: list[bytes], kept: bytes, lost: bytes, keep: int, watermark: int) -> None:
    with TemporaryDirectory() as folder:
        for broker, log in ((1, kept), (2, lost)):
            put_replica(Path(folder), broker, b"".join(common) + log, high_watermark=watermark)
        done = recovered(Path(folder), keep)
    if isinstance(done.one.side, Undecided):
        assert done.rows == []
        return
    assert done.reasons.get("recovered", 0) == len(done.rows)
    assert min(value for value in done.reasons.values()) > 0 if done.reasons else done.one.at_most == 0
