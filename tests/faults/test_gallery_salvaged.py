"""Every fault of the gallery, salvaged: three replicas that were equal become that log again, or are refused with a reason."""

from pathlib import Path

import pytest

from kafka_forensics.engine.local import scan
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.salvage import SalvageOptions, salvage
from tests.gallery.case import Case, Injected
from tests.gallery.cases import one_of_each_fault
from tests.support.faults import healthy
from tests.support.salvaged import log_of

KINDS = {"compacted", "controllers_log", "gaps", "internal_topic", "not_sound", "nothing_read", "rivals", "topic_undecided"}


@pytest.fixture(scope="module", name="truth")
def what_was_written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The log of `t-0` before anything was done to it."""
    brokers = healthy(tmp_path_factory.mktemp("healthy"))
    return b"".join(path.read_bytes() for path in sorted((brokers.log_dir(1) / "t-0").glob("*.log")))


@pytest.mark.parametrize("case", [param for param in one_of_each_fault() if not str(param.id).startswith("P7")])
def test_a_fault_is_mended_or_refused(case: Case, truth: bytes, tmp_path: Path) -> None:
    """P7 is left out: 256 MiB are as sound as any record, and take seconds."""
    copies, output = tmp_path / "in", tmp_path / "out"
    copies.mkdir()
    case.make(copies)
    options = ScanOptions(live=case.live, deep=case.deep)
    salvaged = salvage([str(copies)], output, options, SalvageOptions())
    assert {refused.kind for refused in salvaged.refused} <= KINDS
    named = [(partition.topic, partition.partition) for partition in salvaged.partitions]
    named += [(refused.topic, refused.partition) for refused in salvaged.refused]
    assert len(named) == len(set(named))
    assert set(named) == {(partition.topic, partition.partition) for partition in scan([str(copies)], options).partitions}
    if isinstance(case.make, Injected) and ("t", 0) in named[: len(salvaged.partitions)]:
        assert log_of(output, "t-0") == truth
        assert not any(partition.gaps for partition in salvaged.partitions if partition.topic == "t")
