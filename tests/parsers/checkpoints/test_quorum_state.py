"""`quorum-state`, as Kafka 4.3.0 wrote it and as nobody does."""

from pathlib import Path

import pytest

from kafka_forensics.parsers.quorum_state import QuorumState, parse_quorum_state
from kafka_forensics.storage.local import LocalSource
from kafka_forensics.writers.files import write_quorum_state
from tests.support.memory import MemoryFile
from tests.support.plan_runs import SAMPLES

DYNAMIC = b'{"leaderId":-1,"leaderEpoch":7,"votedId":2,"votedDirectoryId":"J8aAPcfLQt2bqs1JT_rMgQ","data_version":1}'


def test_of_a_broker_that_follows() -> None:
    path = SAMPLES / "healthy" / "broker-1" / "__cluster_metadata-0" / "quorum-state"
    with LocalSource(str(path.parent)).open(path.name) as file:
        assert parse_quorum_state(file) == QuorumState(0, 1, (100,))
    ours = write_quorum_state(1, 0, [100])
    assert ours.replace(b'"leaderId":-1', b'"leaderId":100') == Path(path).read_bytes()


def test_what_is_written_is_read() -> None:
    assert parse_quorum_state(MemoryFile(DYNAMIC)) == parse_quorum_state(MemoryFile(DYNAMIC + b"\nmore")) == QuorumState(1, 7)
    for state in (QuorumState(0, 9, (1, 2), "c", 3), QuorumState(1, 2**31 - 1)):
        data = write_quorum_state(
            state.leader_epoch, state.data_version, state.voters, cluster_id=state.cluster_id, applied_offset=state.applied_offset
        )
        assert parse_quorum_state(MemoryFile(data)) == state


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 130,
        b"\xff{}",
        b"[]",
        b"{}",
        b"7",
        DYNAMIC[:-9],
        DYNAMIC.replace(b'"data_version":1', b'"data_version":2'),
        DYNAMIC.replace(b'"data_version":1', b'"data_version":true'),
        DYNAMIC.replace(b'"leaderEpoch":7', b'"leaderEpoch":2147483648'),
        DYNAMIC.replace(b'"leaderEpoch":7', b'"leaderEpoch":-1'),
        DYNAMIC.replace(b'"leaderEpoch":7', b'"leaderEpoch":7.5'),
        b'{"leaderEpoch":1,"currentVoters":[7],"data_version":0}',
        b'{"leaderEpoch":1,"currentVoters":[{"voterId":-2}],"data_version":0}',
        b'{"leaderEpoch":1,"currentVoters":{},"data_version":0}',
        b'{"leaderEpoch":1,"clusterId":8,"data_version":0}',
        b'{"leaderEpoch":1,"appliedOffset":"0","data_version":0}',
        b"[" * 100_000,
    ],
)
def test_what_is_none_is_none(data: bytes) -> None:
    assert parse_quorum_state(MemoryFile(data)) is None
