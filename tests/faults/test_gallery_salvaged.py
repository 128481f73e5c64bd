"""Salvages every fault of the gallery: three replicas that were equal become that log again, or are refused with a reason."""

import itertools
import json
from pathlib import Path

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.salvage import SalvageOptions, salvage
from kafka_forensics.scanning.engine.local import scan
from tests.gallery.case import Case, Injected
from tests.gallery.cases import FAULTS, named, one_of_each_fault
from tests.questions.salvage.salvaged import log_of
from tests.support.brokers import healthy

CASES = [case for case in FAULTS if case.fault != "P7"]
"""Without P7, whose 256 MiB take seconds and are as sound as any record."""
REFUSED: dict[str, list[str]] = json.loads(Path(__file__).with_name("refused.json").read_text())
"""Refused partition and kind of reason → cases; all other partitions are salvaged."""


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The log of `t-0` before the damage."""
    brokers = healthy(tmp_path_factory.mktemp("healthy"))
    return b"".join(path.read_bytes() for path in sorted((brokers.log_dir(1) / "t-0").glob("*.log")))


def test_refused_cases_are_of_the_gallery() -> None:
    assert set(itertools.chain(*REFUSED.values())) <= {named(case) for case in CASES}


@pytest.mark.parametrize("case", one_of_each_fault(CASES))
def test_a_fault_is_salvaged_or_refused(case: Case, truth: bytes, tmp_path: Path) -> None:
    copies, output = tmp_path / "in", tmp_path / "out"
    copies.mkdir()
    case.make(copies)
    options = ScanOptions(live=case.live, deep=case.deep)
    salvaged = salvage([str(copies)], output, options, SalvageOptions())
    kinds = sorted(f"{refused.topic}-{refused.partition} {refused.kind}" for refused in salvaged.refused)
    assert kinds == [kind for kind, cases in sorted(REFUSED.items()) if named(case) in cases]
    names = [(partition.topic, partition.partition) for partition in salvaged.partitions]
    names += [(refused.topic, refused.partition) for refused in salvaged.refused]
    assert len(names) == len(set(names))
    assert set(names) == {(partition.topic, partition.partition) for partition in scan([str(copies)], options).partitions}
    if isinstance(case.make, Injected) and ("t", 0) in names[: len(salvaged.partitions)]:
        assert log_of(output, "t-0") == truth
        assert not any(partition.gaps for partition in salvaged.partitions if partition.topic == "t")
