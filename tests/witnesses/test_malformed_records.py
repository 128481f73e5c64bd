"""Malformed records of internal topics: some get a finding each, and the last of these says how many more there are."""

from pathlib import Path

import pytest

import kafka_forensics as kf
from kafka_forensics.model.findings import Finding
from kafka_forensics.witnesses import malformed_records
from kafka_forensics.wording import message
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.support.controller_log import CONTROLLER, ControllerLog
from tests.support.gallery_controller import BAD, lost_member, malformed_twice
from tests.support.replicas import put_replica
from tests.support.segments import BASE_TIMESTAMP

KIND = "METADATA_RECORD_MALFORMED"


def malformed(*paths: Path) -> list[Finding]:
    return [finding for finding in kf.scan([str(path) for path in paths]).findings if finding.kind == KIND]


@pytest.mark.parametrize(("kept", "more"), [(5, None), (4, 1), (3, 2)])
def test_of_the_coordinators_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int, more: int | None) -> None:
    monkeypatch.setattr(malformed_records, "MAX_FINDINGS", kept)
    records = [RecordToWrite(b"\0\x63", b"x", offset_delta=delta) for delta in range(3)]
    for partition, several in ((0, records), (1, records[:2])):
        log = write_batch(several, base_offset=0, base_timestamp=BASE_TIMESTAMP)
        put_replica(tmp_path / str(partition), 1, log, partition=f"__transaction_state-{partition}")
    findings = malformed(*(tmp_path / str(partition) / "broker-1" for partition in (0, 1)))
    assert [finding.place.offset_start for finding in findings] == [0, 1, 2, 0, 1][:kept]
    assert [finding.evidence.get("records_more") for finding in findings] == [*[None] * (kept - 1), more]
    told = {None: "", 1: "; 1 further record cannot be read either.", 2: "; 2 further records cannot be read either."}
    assert message(findings[-1]).endswith(told[more])
    assert "further" not in message(findings[0])


def test_of_the_controllers_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = lost_member(tmp_path)
    log = ControllerLog().lead([CONTROLLER]).append(*malformed_twice(BAD["unknown version"][0]))
    log.put(brokers.root / f"c{CONTROLLER}")
    first, _ = malformed(*brokers.log_dirs)
    monkeypatch.setattr(malformed_records, "MAX_FINDINGS", 1)
    (finding,) = malformed(*brokers.log_dirs)
    assert finding.evidence == {**first.evidence, "records_more": 1}
