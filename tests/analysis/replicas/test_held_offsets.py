"""Which part of a range of offsets a log has undamaged."""

import pytest

from kafka_forensics.analysis.replicas.holders import held_offsets
from tests.analysis.replica_logs import Logs, batches


@pytest.mark.parametrize("unread", [(), (99,)])
def test_damaged_offsets_are_not_held_even_in_a_log_not_read_completely(unread: tuple[int, ...]) -> None:
    """Offset 2 has a wrong checksum, offset 4 a wrong length."""
    written = [batch.written() for batch in batches((0, "abcdef"))]
    for number, place in ((2, 61), (4, 8)):
        written[number] = written[number][:place] + b"\xff" * 9 + written[number][place + 9 :]
    replica = Logs().add(1, [], data=b"".join(written), start=0)
    replica.state.unread.update(unread)
    assert held_offsets(replica, 1, 6) == ((1, 2), (3, 4), (5, 6))
