"""Facts of the samples and golden inputs, some of them damaged, compared with the tools of three versions of Kafka."""

from pathlib import Path

import pytest

from lab.dump_facts import TOOLS
from lab.make_golden import INPUTS
from lab.make_samples import SAMPLE_LOGS
from lab.tiered import STORE
from tests.broker.kafka_facts import differences_from_kafka_s_tool, lay_out
from tests.support.archives import archive_members

LOG = f"{0:020}"
OTHERWISE = {f"aborted-version/{LOG}.txnindex": ["entry 0: version '0', here '9'"]}
"""The tool reads only the high byte of the version."""
OLDER = OTHERWISE | {
    f"time-index-wrong-offset/{160:020}.timeindex": ["complaints [], here ['Indexed offset: 163, found log offset: 179']"]
}
"""The older tools do not name the file of this complaint."""
WITHOUT_SNAPSHOTS = OLDER | {
    f"bootstrap/{LOG}-{0:010}.checkpoint": ["batch at 0: only here", "batch at 83: only here", "batch at 336: only here"]
}
"""Kafka 2.8 does not read snapshots of the controllers' log."""
DIFFERENCES = {"2.8.2": WITHOUT_SNAPSHOTS, "3.9.1": OLDER, "4.3.0": OTHERWISE}
pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    "version", [pytest.param(version, marks=pytest.mark.slice if version == "4.3.0" else pytest.mark.nightly) for version in TOOLS]
)
def test_facts_are_those_of_kafka_s_tool(version: str, tmp_path: Path) -> None:
    layout = tmp_path / "layout"
    log_dirs = [path for path in sorted(SAMPLE_LOGS.glob("*/*")) if path.name != STORE]  # the tool takes no names of remote objects
    laid = lay_out([*log_dirs, INPUTS], layout)
    assert len(laid) >= 150
    assert differences_from_kafka_s_tool(laid, layout, tmp_path, version=version) == DIFFERENCES[version]


@pytest.mark.corpora
@pytest.mark.nightly
def test_events_of_real_remote_stores_are_those_of_kafka_s_tool(corpora: Path, tmp_path: Path) -> None:
    for archive in (corpora / "tiered").glob("*.tar.xz"):
        for name, content in archive_members(archive, r".*/__remote_log_metadata-\d+/\d+\.log"):
            path = tmp_path / "logs" / archive.name / name
            path.parent.mkdir(parents=True)
            path.write_bytes(content)
    laid = lay_out([tmp_path / "logs"], tmp_path / "layout")
    assert len(laid) >= 15
    assert differences_from_kafka_s_tool(laid, tmp_path / "layout", tmp_path) == {}
