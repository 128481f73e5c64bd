"""What a replica's own files prove, on replicas made in memory: each fault is told by one rule."""

from collections import Counter

import pytest

from kafka_forensics.analysis.replica import ReplicaState, whole
from kafka_forensics.analysis.replicas.verdicts import own_findings
from tests.support.producer_log import context
from tests.support.segments import log, read


@pytest.mark.parametrize("beyond", [0, 3])
@pytest.mark.parametrize("cut", [0, 20])
def test_a_segment_cut_short_is_told_once(beyond: int, cut: int) -> None:
    """By its torn batch, or by the index that goes on behind its last whole one, not by both."""
    data = b"".join(log(4))
    state, following = ReplicaState(0, compacted=False), ReplicaState(10, compacted=False)
    for chunk in read(data[: len(data) - cut]).chunks:
        state.step(chunk)
    for chunk in read(b"".join(log(2, start=10))).chunks:
        following.step(chunk)
    state.merge(following)
    replica = whole(context(segment_base_offsets=[0, 10]), state)
    replica.entries_beyond[0, "index"] = beyond
    told = {"SEG_SHORT": 1} if cut or beyond else {"SEGMENT_MISSING": 1}
    assert Counter(finding.kind for finding in own_findings(replica)) == {"OFFSET_GAP": 1} | told
