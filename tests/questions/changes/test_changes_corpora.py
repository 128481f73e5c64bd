"""One cluster of real brokers at four times: only the comparison over time still sees what was lost."""

from pathlib import Path

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.changes.snapshots import changes
from tests.support.snapshot_trees import findings

TIMES = ("healthy", "lag", "unclean", "clean-end")


@pytest.mark.nightly
@pytest.mark.corpora
def test_a_loss_whose_trace_is_gone_from_the_logs(corpora: Path) -> None:
    given = {name: str(corpora / f"kafka-4.3.0-{name}.tar.xz") for name in TIMES}
    result = changes(given, ScanOptions()).result
    assert findings(result) == [("COMMITTED_TRUNCATED_SINCE", "critical", 300, 370)]
    (finding,) = result.findings
    assert (finding.evidence["from_snapshot"], finding.evidence["held_before"], finding.evidence["replaced_by"]) == (
        "unclean",
        [2],
        [2],
    )
    assert all(within.severity.rank == 0 for within in result.snapshots["clean-end"].findings)
    quiet = [
        change for change in result.changes if change.topic not in ("audit", "__cluster_metadata") and change.kind != "unchanged"
    ]
    assert {(change.topic, change.kind.value, change.to_snapshot) for change in quiet} == {
        ("clicks", "created", "lag"),
        ("clicks", "appended", "unclean"),
    }
    assert result.notes == []
