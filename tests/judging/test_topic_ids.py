"""Logs without `partition.metadata`: told where a broker under KRaft would not serve them, and nowhere else."""

import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_forensics.cli.outputs.plan_words import topic_id_lines
from kafka_forensics.engine import local
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import Finding
from kafka_forensics.questions.collect import CollectOptions, collect
from kafka_forensics.questions.plan import PlanOptions, make_plans
from kafka_forensics.wording import advice, message
from kafka_forensics.writers.files import write_meta_properties, write_offset_checkpoint, write_partition_metadata
from tests.support.controller_log import controlled_by, in_sync, record
from tests.support.faults import CLUSTER_ID, HEALTHY, TOPIC_ID, Brokers, Log, healthy, histories, write_files
from tests.support.faults_verdict import only, said, verdict

KIND = "TOPIC_ID_MISSING"
METADATA = "partition.metadata"
OTHER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.fixture(name="brokers")
def three_equal_replicas(tmp_path: Path) -> Brokers:
    return healthy(tmp_path)


@pytest.fixture(name="lacking")
def broker_2_without_the_id(brokers: Brokers) -> Brokers:
    brokers.named(2, METADATA).unlink()
    return brokers


def told(brokers: Brokers) -> Finding:
    return only(verdict(brokers), KIND)


def of_logs_alone(log_dir: Path) -> None:
    """Leave only `.log` files in the partitions' directories."""
    for path in log_dir.glob("*-*/*"):
        if path.suffix != ".log":
            path.unlink()


def test_the_other_copies_tell_the_id(lacking: Brokers) -> None:
    finding = told(lacking)
    assert (finding.severity.value, finding.confidence.value, finding.place.broker) == ("error", "proven", 2)
    assert (finding.place.file, finding.place.offset_start, finding.place.offset_end) == (f"t-0/{METADATA}", 0, HEALTHY.next_offset)
    assert finding.evidence == {"topic_id": TOPIC_ID, "told_by": ["broker 1", "broker 3"]}
    assert "-stray and begins anew with an empty log (Kafka 3.7.1 and later), or does not start (3.7.0)" in message(finding)
    assert f"`topic_id: {TOPIC_ID}` (the id is from broker 1 and broker 3)" in str(advice(finding))
    assert said(verdict(lacking, live=True)) == [(KIND, "info", 2)]


def test_copies_of_several_topics_or_clusters_tell_none(lacking: Brokers) -> None:
    lacking.named(3, METADATA).write_bytes(write_partition_metadata(OTHER_ID))
    assert told(lacking).evidence == {}
    assert "kafka-topics.sh --describe" in str(advice(told(lacking)))
    lacking.named(3, METADATA).write_bytes(write_partition_metadata(TOPIC_ID))
    for broker in (1, 3):
        meta = write_meta_properties(node_id=broker, cluster_id=OTHER_ID)
        (lacking.log_dir(broker) / "meta.properties").write_bytes(meta)
    assert told(lacking).evidence == {}


@pytest.mark.parametrize(
    ("level", "severity", "words"),
    [(14, "warning", "harmless if"), (19, "error", "3.7.1 and later"), (20, "error", "an empty log.")],
)
def test_the_controllers_log_tells_the_id_and_the_version(lacking: Brokers, level: int, severity: str, words: str) -> None:
    controlled_by(lacking, *in_sync([1, 2, 3]), record(12, name="metadata.version", feature_level=level))
    finding = told(lacking)
    assert (finding.severity.value, finding.evidence.get("sets_aside")) == (severity, True if level == 20 else None)
    assert (finding.evidence["topic_id"], finding.evidence["told_by"]) == (TOPIC_ID, ["__cluster_metadata"])
    assert words in message(finding)


def test_brokers_under_zookeeper_take_the_id_from_the_controller(lacking: Brokers) -> None:
    meta = write_meta_properties(version=0, node_id=2, cluster_id=CLUSTER_ID)
    (lacking.log_dir(2) / "meta.properties").write_bytes(meta)
    assert said(verdict(lacking)) == []


def test_an_empty_log_may_lack_it(tmp_path: Path) -> None:
    brokers = histories(tmp_path, dict.fromkeys((1, 2), Log()), {1: 0, 2: 0})
    brokers.named(2, METADATA).unlink()
    assert KIND not in {kind for kind, _, _ in said(verdict(brokers))}


def emptied(brokers: Brokers, *numbers: int) -> Brokers:
    """Leave only an empty segment behind the end of these logs, as retention does."""
    for number in numbers:
        directory = brokers.log_dir(number) / "t-0"
        for path in [*directory.glob("*.log"), *directory.glob("*.*index")]:
            path.unlink()
        for suffix in ("log", "index", "timeindex"):
            (directory / f"{HEALTHY.next_offset:020d}.{suffix}").touch()
        for name in ("log-start-offset", "recovery-point-offset", "replication-offset"):
            offsets = write_offset_checkpoint({("t", 0): HEALTHY.next_offset})
            (brokers.log_dir(number) / f"{name}-checkpoint").write_bytes(offsets)
    return brokers


def test_a_log_that_retention_has_emptied_begins_at_0_again(lacking: Brokers) -> None:
    finding = told(emptied(lacking, 1, 2, 3))
    assert (finding.severity.value, finding.confidence.value, finding.place.broker) == ("warning", "proven", 2)
    assert (finding.place.offset_start, finding.place.offset_end) == (HEALTHY.next_offset, HEALTHY.next_offset)
    assert finding.evidence == {"topic_id": TOPIC_ID, "told_by": ["broker 1", "broker 3"], "is_empty": True}
    assert "this empty log has no topic id" in message(finding)
    assert message(finding).endswith("; no records are lost, but if it leads, offsets begin at 0 again.")
    assert said(verdict(lacking, live=True)) == [(KIND, "info", 2)]
    (planned,) = make_plans([str(lacking.root)], ScanOptions(), PlanOptions()).planned
    assert planned.matters
    assert len(list(topic_id_lines(planned))) == 1


@pytest.mark.parametrize("what", ["garbage", "missing segment", "link"])
def test_what_cannot_be_read_is_not_called_empty(what: str, lacking: Brokers) -> None:
    emptied(lacking, 1, 2, 3)
    directory = lacking.log_dir(2) / "t-0"
    (log,) = directory.glob("*.log")
    if what == "garbage":
        log.write_bytes(b"\xff" * 300)
    elif what == "link":
        log.unlink()
        log.symlink_to("elsewhere")
    else:
        (directory / f"{0:020d}.index").write_bytes(bytes(range(16)))
    told = [finding.evidence for finding in local.scan([str(lacking.root)], ScanOptions()).findings if finding.kind == KIND]
    assert not any("is_empty" in evidence for evidence in told)


def test_emptied_logs_that_are_served_all_the_same_are_not_told(brokers: Brokers) -> None:
    assert said(verdict(emptied(brokers, 1, 2, 3))) == [], "with the file"
    brokers.named(2, METADATA).unlink()
    meta = write_meta_properties(version=0, node_id=2, cluster_id=CLUSTER_ID)
    kraft = (brokers.log_dir(2) / "meta.properties").read_bytes()
    (brokers.log_dir(2) / "meta.properties").write_bytes(meta)
    assert said(verdict(brokers)) == [], "under ZooKeeper"
    (brokers.log_dir(2) / "meta.properties").write_bytes(kraft)
    controlled_by(brokers, *in_sync([1, 2, 3]), record(12, name="metadata.version", feature_level=14))
    assert KIND not in {kind for kind, _, _ in said(verdict(brokers))}, "before 3.7"


def on_its_way_out(brokers: Brokers, suffix: str) -> None:
    directory = brokers.log_dir(2) / "t-0"
    directory.rename(directory.with_name(f"t-0.0123456789abcdef0123456789abcdef-{suffix}"))


QUIET: dict[str, Callable[[Brokers], object]] = {
    "a directory of unknown kind": lambda lacking: (lacking.log_dir(2) / "meta.properties").unlink(),
    "a file that cannot be parsed": lambda lacking: lacking.named(2, METADATA).write_bytes(b"version: 0\n"),
    "emptied logs alone": lambda lacking: of_logs_alone(emptied(lacking, 1, 2, 3).log_dir(2)),
    "a deleted directory": lambda lacking: on_its_way_out(lacking, "delete"),
    "a stray directory": lambda lacking: on_its_way_out(lacking, "stray"),
    "a future directory": lambda lacking: on_its_way_out(lacking, "future"),
}


@pytest.mark.parametrize("case", QUIET)
def test_where_nothing_is_said(case: str, lacking: Brokers) -> None:
    QUIET[case](lacking)
    assert KIND not in {kind for kind, _, _ in said(verdict(lacking))}


def test_a_copy_of_the_logs_alone_is_told_of_once(brokers: Brokers) -> None:
    write_files(brokers.log_dir(2) / "u-0", HEALTHY)
    of_logs_alone(brokers.log_dir(2))
    finding = told(brokers)
    assert (finding.severity.value, finding.confidence.value) == ("info", "suspected")
    assert (finding.place.topic, finding.place.broker, finding.evidence["partitions"]) == (None, 2, 2)
    assert "the 2 logs here lack a partition.metadata" in message(finding)


def test_a_log_without_small_files_beside_others_that_have_them_is_told_of(brokers: Brokers) -> None:
    of_logs_alone(brokers.log_dir(2))
    write_files(brokers.log_dir(2) / "u-0", HEALTHY)
    finding = told(brokers)
    assert (finding.severity.value, finding.place.topic, finding.place.broker) == ("error", "t", 2)


def test_files_and_directories_given_by_themselves(lacking: Brokers) -> None:
    """Of a partition's directory the one around it tells that it is a KRaft broker's; a file says nothing of those beside it."""
    partition = lacking.log_dir(2) / "t-0"

    def kinds(*paths: Path) -> set[str]:
        return {finding.kind for finding in local.scan(list(map(str, paths)), ScanOptions(jobs=1)).findings}

    assert KIND in kinds(partition)
    assert KIND not in kinds(*partition.glob("*.log"))
    alone = shutil.copytree(partition, lacking.root / "elsewhere" / "t-0")
    assert KIND not in kinds(alone)


def test_an_archive_says_the_same(lacking: Brokers, tmp_path: Path) -> None:
    archive = tmp_path / "b2.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(lacking.log_dir(2), "b2")
    result = local.scan([str(archive)], ScanOptions(jobs=1))
    assert only(result, KIND).evidence == {}


@pytest.mark.parametrize("options", [ScanOptions(), ScanOptions(topic_glob="t")], ids=["whole", "one topic"])
def test_bundles_say_the_same(lacking: Brokers, options: ScanOptions, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder, paths = tmp_path_factory.mktemp("bundles"), []
    for broker in (1, 2, 3):
        path = folder / f"{broker}.kfb"
        with path.open("w+b") as file:
            collect([str(lacking.log_dir(broker))], CollectOptions(options), file)
        paths.append(str(path))
    (found,) = [finding for finding in local.scan(paths, ScanOptions()).findings if finding.kind == KIND]
    assert (found.place.broker, found.severity, found.evidence) == (2, told(lacking).severity, told(lacking).evidence)


def test_a_plan_has_the_step(lacking: Brokers) -> None:
    (planned,) = make_plans([str(lacking.root)], ScanOptions(), PlanOptions()).planned
    assert planned.without_topic_id == {2: TOPIC_ID}
    steps = list(topic_id_lines(planned))
    assert len(steps) == 1
    assert (
        'Before broker 2 starts, write a file partition.metadata into its directory t-0, of the two lines "version: 0"' in steps[0]
    )
    assert f'"topic_id: {TOPIC_ID}"' in steps[0]
    assert planned.matters
