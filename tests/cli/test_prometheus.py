"""Metrics: valid for Prometheus' parser, limited in number, and written atomically."""

import os
import threading
from pathlib import Path
from unittest.mock import Mock

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kafka_forensics.analysis.kinds import finding
from kafka_forensics.cli.main import outcome
from kafka_forensics.cli.outputs import prometheus
from kafka_forensics.model.findings import Confidence, Place
from kafka_forensics.model.results import Incomplete, ScanResult
from kafka_forensics.version import __version__
from tests.support.places import SAMPLES
from tests.support.results import HOSTILE_TEXT, hostile_result, result_of, unclean_result

Key = tuple[str, frozenset[tuple[str, str]]]


def samples(text: str) -> dict[Key, float]:
    """Every sample by name and labels; fails on a duplicate, and on a metric without help or type."""
    read: dict[Key, float] = {}
    for family in text_string_to_metric_families(text):
        assert family.type == "gauge"
        assert family.documentation
        assert family.name.startswith("kafka_forensics_")
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in read
            assert sample.timestamp is None
            read[key] = sample.value
    return read


def metrics(result: ScanResult, status: int = 0, as_of_ms: int | None = None) -> dict[Key, float]:
    return samples("".join(prometheus.lines(result, status, as_of_ms)))


def value_of(read: dict[Key, float], name: str, /, **labels: str) -> float:
    return read[f"kafka_forensics_{name}", frozenset(labels.items())]


def test_metrics_summarise_a_scan() -> None:
    result = unclean_result()
    result.incomplete.append(Incomplete("broker-9", "permission denied"))
    read = metrics(result, 3, 1_767_225_600_500)
    assert value_of(read, "info", version=__version__, engine="local") == 1
    assert value_of(read, "scan_as_of_timestamp_seconds") == 1_767_225_600.5
    assert ("kafka_forensics_scan_as_of_timestamp_seconds", frozenset()) not in metrics(result)
    assert value_of(read, "scan_exit_status") == 3
    assert value_of(read, "scan_incomplete_inputs") == 1
    verdicts = ("clean", "info", "unknown", "warning", "error", "critical")
    assert [value_of(read, "scan_verdict", verdict=verdict) for verdict in verdicts] == [0, 0, 0, 0, 0, 1]
    assert [value_of(read, "partitions", verdict=verdict) for verdict in verdicts] == [2, 1, 0, 0, 1, 1]
    assert value_of(read, "replicas", read="whole") == 14
    assert value_of(read, "read_bytes", outcome="damaged") == 500
    assert [value_of(read, "findings", severity=severity) for severity in ("critical", "error", "warning", "info")] == [1, 5, 1, 2]
    assert value_of(read, "findings_by_kind", kind="BATCH_CRC_MISMATCH", severity="error") == 5
    assert value_of(read, "lost_records_at_least") == 70
    assert value_of(read, "lost_records_at_most") == 70  # other brokers have the damaged records
    assert value_of(read, "topic_findings", topic="orders", severity="error") == 5
    assert not any(("topic", "clicks") in labels for _, labels in read)  # nothing worse than info


def test_losses_count_every_offset_once_and_risks_separately() -> None:
    def at(start: int, end: int, partition: int = 0) -> Place:
        return Place("t", partition, 1, offset_start=start, offset_end=end)

    findings = [
        finding("UNCLEAN_LOSS", at(10, 20)),
        finding("COMMITTED_LOST_EVERYWHERE", at(15, 30)),
        finding("COMMITTED_LOST_EVERYWHERE", at(0, 5, 1), confidence=Confidence.SUSPECTED),
        finding("FORK_BELOW_HW", at(28, 40)),
        finding("BATCH_CRC_MISMATCH", at(100, 110), {"held_by": []}),
        finding("BATCH_CRC_MISMATCH", at(110, 120), {"held_by": [2]}),
        finding("TXN_HANGING", at(500, 600)),
    ]
    read = metrics(result_of(*findings))
    assert value_of(read, "topic_lost_records_at_least", topic="t") == value_of(read, "lost_records_at_least") == 20
    assert value_of(read, "topic_lost_records_at_most", topic="t") == value_of(read, "lost_records_at_most") == 30 + 5 + 10


def test_only_the_worst_topics_have_metrics_by_name() -> None:
    findings = [finding("UNCLEAN_LOSS", Place(f"t{n}", 0, offset_start=0, offset_end=n + 1)) for n in range(500)]
    findings += [finding("INDEX_MISMATCH", Place(f"w{n}", 0)) for n in range(500)]
    read = metrics(result_of(*findings))
    topics = {dict(labels)["topic"] for _, labels in read if "topic" in dict(labels)}
    assert len(topics) == prometheus.MOST_TOPICS + 1 == 201
    assert "t499" in topics
    assert "t299" not in topics
    assert value_of(read, "topic_findings", topic="(other)", severity="critical") == 300
    assert value_of(read, "topic_findings", topic="(other)", severity="warning") == 500
    by_topic = [value for (name, _), value in read.items() if name == "kafka_forensics_topic_lost_records_at_least"]
    assert sum(by_topic) == value_of(read, "lost_records_at_least") == 500 * 501 / 2


def test_hostile_names_are_labels_like_any_other() -> None:
    text = "".join(prometheus.lines(hostile_result(), 1))
    assert all(line.isprintable() for line in text.splitlines())
    text.encode()
    topics = {dict(labels)["topic"] for _, labels in samples(text) if "topic" in dict(labels)}
    assert len(topics) == 1
    assert "pwned" in topics.pop()
    quoted = result_of(finding("UNCLEAN_LOSS", Place('a"b\\c', 0)))
    assert value_of(metrics(quoted), "topic_lost_records_at_least", topic='a"b\\\\c'.replace("\\\\", "\\")) == 0
    assert HOSTILE_TEXT not in text


def test_a_scan_replaces_the_metrics_file_atomically(tmp_path: Path) -> None:
    target = tmp_path / "kafka.prom"
    target.write_text("before")
    target.chmod(0o640)
    descriptor = os.open(target, os.O_RDONLY)  # like a collector that is reading the file
    scan = ["scan", str(SAMPLES / "unclean-election"), "--output", str(target), "-q", "--as-of", "2026-12-01T00:00:00Z"]
    assert outcome(scan) == 1
    assert os.pread(descriptor, 100, 0) == b"before"
    os.close(descriptor)
    read = samples(target.read_text())
    assert (value_of(read, "scan_exit_status"), value_of(read, "scan_as_of_timestamp_seconds")) == (1, 1_796_083_200)
    assert value_of(read, "lost_records_at_least") == value_of(read, "topic_lost_records_at_least", topic="audit") == 70
    assert target.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["kafka.prom"]


def test_a_failure_leaves_the_previous_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "kafka.prom"
    target.write_text("before")
    monkeypatch.setattr(prometheus, "lines", Mock(side_effect=OSError(28, "No space left on device")))
    assert outcome(["scan", str(SAMPLES / "healthy"), "--output", str(target), "-q"]) == 2
    assert target.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["kafka.prom"]


def test_links_and_pipes_are_written_through(tmp_path: Path) -> None:
    (tmp_path / "real.prom").write_text("before")
    link = tmp_path / "link.prom"
    link.symlink_to("real.prom")
    assert outcome(["scan", str(SAMPLES / "healthy"), "--output", str(link), "-q"]) == 0
    assert link.is_symlink()
    assert samples((tmp_path / "real.prom").read_text())
    pipe = tmp_path / "pipe.prom"
    os.mkfifo(pipe)
    texts: list[str] = []
    reader = threading.Thread(target=lambda: texts.append(pipe.read_text()))
    reader.start()
    assert outcome(["scan", str(SAMPLES / "healthy"), "--output", str(pipe), "-q"]) == 0
    reader.join(30)
    assert samples(texts[0])
