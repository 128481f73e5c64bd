"""Signatures of known incidents: each has a tree that matches and a near miss that does not, and healthy replicas match none."""

import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from kafka_forensics import wording
from kafka_forensics.analysis.incidents import SIGNATURES
from kafka_forensics.analysis.incidents.signatures import Weight, signature_key
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import Confidence, Finding, Severity
from kafka_forensics.model.results import ScanResult
from kafka_forensics.scanning.engine.local import scan
from kafka_forensics.scanning.judging import partitions
from lab import signatures as lab_signatures
from tests.gallery.incidents import TREES, Tree, joined_after_fork
from tests.gallery.transactions import cut_within
from tests.support.archives import archive_params
from tests.support.brokers import healthy, put_brokers, put_replicas
from tests.support.faults_verdict import scan_brokers
from tests.support.logs import history

pytestmark = pytest.mark.faults

TREE_OF = {tree.key: tree for tree in TREES}
EXPECTED = {condition.text for signature in SIGNATURES for condition in signature.conditions if condition.weight is Weight.EXPECTED}


def matches(result: ScanResult) -> dict[str, Finding]:
    """The matches of a scan by the key of their signature."""
    findings = [finding for finding in result.findings if finding.kind == "INCIDENT_SIGNATURE"]
    return {signature_key(finding.evidence["incident"], finding.evidence["issue"]): finding for finding in findings}


cached_matches = cache(lab_signatures.matched_signatures)
"""Trees are made and scanned once for all tests."""


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: tree.key)
def test_the_tree_matches_and_the_near_miss_does_not(tree: Tree) -> None:
    found = cached_matches(tree.make)
    assert sorted(found) == sorted([tree.key, *tree.also])
    finding = found[tree.key]
    assert finding.severity is Severity.INFO
    assert finding.confidence in (Confidence.SUSPECTED, Confidence.INFERRED)
    assert (bool(finding.evidence["fits"]), finding.evidence["does_not_fit"]) == (True, [])
    assert (finding.place.topic is None, finding.place.file) == (finding.place.partition is None, None)
    missed = cached_matches(tree.make_near_miss)
    assert tree.key not in missed
    assert not EXPECTED & {text for other in missed.values() for text in other.evidence["does_not_fit"]}


def test_every_signature_has_one_tree_and_a_unique_key() -> None:
    keys = [signature.key for signature in SIGNATURES]
    assert sorted(TREE_OF) == sorted(keys)
    assert len(keys) == len(TREES) == len(TREE_OF)


def test_the_page_is_up_to_date_and_names_every_incident_and_no_near_miss() -> None:
    text = lab_signatures.PAGE.read_text()
    assert text == lab_signatures.page(cached_matches)
    assert list(dict.fromkeys(re.findall(r"^\| (d\d+) .*$", text, re.MULTILINE))) == [f"d{number}" for number in range(1, 26)]
    assert "NAMED" not in text


def test_healthy_replicas_match_nothing(tmp_path: Path) -> None:
    assert matches(scan_brokers(healthy(tmp_path))) == {}


def test_copies_of_running_brokers_do_not_match_early_compaction(tmp_path: Path) -> None:
    """A cleaner may have run between the copying of two files."""
    brokers = TREE_OF["d8 Redpanda 2026-06-25"].make(tmp_path / "brokers")
    (brokers.log_dir(2) / ".kafka_cleanshutdown").unlink()
    for live in (False, True):
        assert "d8 Redpanda 2026-06-25" not in matches(scan_brokers(brokers, live=live))


def test_a_clean_shutdown_of_all_brokers_does_not_match_a_lost_last_replica(tmp_path: Path) -> None:
    """An older backup in place of the last replica lacks committed records too."""
    brokers = TREE_OF["d5 KIP-966"].make(tmp_path / "brokers")
    (log_dir,) = [path for path in brokers.log_dirs if not (path / ".kafka_cleanshutdown").exists()]
    (log_dir / ".kafka_cleanshutdown").write_bytes(b'{"version": 0, "brokerEpoch": 5}')
    assert "d5 KIP-966" not in matches(scan_brokers(brokers))


def test_a_version_with_the_fix_is_evidence_against_a_match(tmp_path: Path) -> None:
    logs = {1: history(("r0", 0), ("r2", 2)), 2: history(("r1", 1), ("r2", 2))}
    finding = matches(scan_brokers(put_replicas(tmp_path, logs, 1)))["d3 KAFKA-6361"]
    assert finding.confidence is Confidence.SUSPECTED
    assert finding.evidence["does_not_fit"] == [".kafka_cleanshutdown with an epoch: Kafka 3.7.0 or later"]
    assert finding.evidence["version_at_least"] == "3.7.0"


def test_signatures_do_not_change_other_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("d1 KAFKA-3919", "d5 KIP-966"):
        paths = [str(path) for path in TREE_OF[key].make(tmp_path / key).log_dirs]
        matched = [finding for finding in scan(paths, ScanOptions(jobs=1)).findings if finding.kind != "INCIDENT_SIGNATURE"]
        with monkeypatch.context() as patch:
            patch.setattr(partitions, "SIGNATURES", ())
            assert scan(paths, ScanOptions(jobs=1)).findings == matched


def test_the_message_of_a_match(tmp_path: Path) -> None:
    finding = matches(scan_brokers(joined_after_fork(tmp_path)))["d3 KAFKA-6361"]
    assert wording.message(finding) == (
        "t-0: matches KAFKA-6361 (logs that diverged in a fast fail-over and then became equal): an epoch of one log is in no"
        " other, but a later epoch is in both and the logs diverge below a known high watermark."
    )
    advice = wording.advice(finding) or ""
    assert advice.startswith("Affected: 0.11.0.0 to 1.1.1; fixed in 2.0.0. ")
    assert advice.endswith(" See more with `kafka-forensics explain d3`.")


@pytest.mark.parametrize("client", [0, 2])
def test_a_missing_marker_does_not_match_a_transaction_with_two_outcomes(tmp_path: Path, client: int) -> None:
    """The log ends before the marker, so nothing in it ended differently."""
    assert matches(scan([str(path) for path in put_brokers(tmp_path, cut_within(client)).log_dirs], ScanOptions(jobs=1))) == {}


ARCHIVE_MATCHES: dict[str, list[tuple[str, str, int, int]]] = {
    "kafka-0.10.2.2-hw-truncation": [("d4", "ledger", 0, 10)],
    "kafka-0.10.2.2-hw-divergence": [("d4", "ledger", 0, 3)],
    "kafka-4.3.0-unclean": [("d6", "audit", 300, 370)],
    "kafka-4.3.0-healthy": [],
    "kafka-4.3.0-lag": [],
    "kafka-4.3.0-clean-end": [],
    "public-five-brokers": [],
    "public-magic0-golden": [],
}
"""Archive of real brokers' directories → (incident, topic, first offset, end offset) of its matches."""
LEFT: Final = ("kafka-0.10.2.2-hw-divergence", "kafka-4.3.0-lag", "kafka-4.3.0-clean-end")


@pytest.mark.parametrize("name", archive_params(*ARCHIVE_MATCHES, nightly=LEFT))
def test_matches_of_real_directories(archives: Path, name: str) -> None:
    findings = scan([str(archives / f"{name}.tar.xz")], ScanOptions()).findings
    matched = [finding for finding in findings if finding.kind == "INCIDENT_SIGNATURE"]
    places = [(finding.evidence["incident"], finding.place) for finding in matched]
    assert [(number, place.topic, place.offset_start, place.offset_end) for number, place in places] == ARCHIVE_MATCHES[name]
    assert {finding.confidence for finding in matched} <= {Confidence.INFERRED}
    assert all(finding.evidence["does_not_fit"] == [] for finding in matched)
    if name == "kafka-4.3.0-unclean":
        assert matched[0].evidence["version_at_least"] == "4.3.0"
        assert matched[0].evidence["version_witnesses"][-1] == "metadata.version 30: 4.3.0 or later"
