"""The log directories of a salvage are complete: their replicas and their small files."""

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from kafka_forensics.cli.outputs.salvage_steps import preamble, steps_of
from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.inputs import CHECKPOINTS, gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.controller import ControllerHistory, PartitionControl
from kafka_forensics.parsers.checkpoints import parse_meta_properties
from kafka_forensics.questions.salvage import ELECTION_FILE, MANIFEST, METADATA_LOG, Salvaged, SalvageOptions, TargetDir, salvage
from kafka_forensics.questions.salvage.log_dirs import target_dirs, targets_of
from kafka_forensics.questions.salvage.manifest import SalvagedPartition, SalvagedQuorum
from kafka_forensics.questions.verify import ExecutedPlan, Outcome, read_promises, verify
from kafka_forensics.storage.local import LocalSource
from kafka_forensics.writers.files import write_quorum_state
from tests.questions.salvage.salvaged import NAME, batches_of, salvaged_of
from tests.support.brokers import (
    OFFSETS_ID_TEXT,
    TOPIC_ID,
    put_copies,
    put_log_dir,
    put_meta_properties,
    put_partition,
    put_replica,
    put_topic_id,
    write_checkpoint,
)
from tests.support.controllers import ControllerLog, partition as partition_record, setting, topic
from tests.support.places import SAMPLES
from tests.support.remote_log import COPY_FINISHED, copy_started, put_remote_log, segment_update
from tests.support.segments import batch, flip_bit, segment_file

HEALTHY = SAMPLES / "healthy"
KEY = ("orders", 0)
METADATA = "__cluster_metadata-0"
ID_A, ID_B, ID_C = ("B" * 21 + last for last in "gwA")
DAY_MS = 24 * 3600 * 1000
UNASSIGNED = "AAAAAAAAAAAAAAAAAAAAAQ"


def target(node: int, directory_id: str | None, *partitions: tuple[str, int], is_empty: bool = False) -> TargetDir:
    name = f"broker-{node}/{directory_id}"
    return TargetDir(node, name, name, node, directory_id, is_empty, expected=frozenset(partitions))


def assigned(nodes: list[int], directories: list[str] | None) -> ControllerHistory:
    return ControllerHistory({KEY: PartitionControl(None, None, None, None, nodes, directories=directories)})


A, B, WITH_COPY = target(1, ID_A), target(1, ID_B), target(1, ID_B, KEY)
DISK, OTHER = target(1, ID_B, is_empty=True), target(2, ID_C, KEY)


PLACES: dict[str, tuple[list[TargetDir], ControllerHistory | None, list[TargetDir]]] = {
    "by the ids of directories": ([A, B, OTHER], assigned([1, 2], [ID_B, ID_C]), [B, OTHER]),
    "not in the directory of an old copy": ([A, WITH_COPY], assigned([1], [ID_A]), [A]),
    "on the disk that has the id of the lost one": ([A, DISK], assigned([1], [ID_B]), [DISK]),
    "in the directory of its copy, if it is assigned to none yet": ([A, WITH_COPY], assigned([1], [UNASSIGNED]), [WITH_COPY]),
    "in the directory of its copy, in versions without ids": ([A, WITH_COPY], assigned([1], None), [WITH_COPY]),
    "on the new disk, if there is no copy": ([A, DISK], assigned([1], None), [DISK]),
    "in none, if its directories were not given": ([A], assigned([1, 2], [ID_B, ID_C]), []),
    "not on a broker that lost its assignment": ([A, OTHER], assigned([1], [ID_A]), [A]),
    "with its copy, without a controllers' log": ([A, OTHER], None, [OTHER]),
    "with its copy, if the controllers' log does not know it": ([A, OTHER], ControllerHistory({}), [OTHER]),
}


@pytest.mark.parametrize("case", PLACES)
def test_a_replica_is_put_into_its_assigned_directory(case: str) -> None:
    targets, controller, expected = PLACES[case]
    assert targets_of(KEY, targets, controller) == expected


def test_a_replica_stays_in_the_directory_of_its_copy_before_one_whose_checkpoint_has_it(tmp_path: Path) -> None:
    put_partition(tmp_path / "b" / NAME, {0: b"".join(batches_of(2))})
    put_log_dir(tmp_path / "a", 1, {}, committed={NAME: 2})
    for paths in (("a", "b"), ("b", "a")):
        inputs = gather([f"1={tmp_path / path}" for path in paths], ScanOptions())
        assert [place.log_dir for place in targets_of(KEY, target_dirs(inputs, None, {}), None)] == [str(tmp_path / "b")]


def test_a_new_disk_gets_the_id_that_the_controllers_have_for_it(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    inputs = gather([str(HEALTHY / "broker-1"), f"3={tmp_path / 'disk'}"], ScanOptions())

    def new_disk_id(controller: ControllerHistory | None, voters: dict[int, str | None]) -> str | None:
        return target_dirs(inputs, controller, voters)[1].directory_id

    assert new_disk_id(assigned([1, 3], [ID_A, ID_B]), {3: ID_C}) == ID_B
    assert new_disk_id(None, {3: ID_C}) == ID_C
    assert new_disk_id(None, {3: None}) == new_disk_id(None, {}) != new_disk_id(None, {3: ID_C})
    assert len(str(new_disk_id(None, {}))) == 22


def test_a_directory_gets_the_id_that_the_controllers_have_for_its_partitions(tmp_path: Path) -> None:
    for name, partition in (("a", "orders-0"), ("b", "other-0")):
        put_partition(tmp_path / name / partition, {0: b"".join(batches_of(2))})
        (tmp_path / name / "meta.properties").write_bytes(b"garbage")
    inputs = gather([str(HEALTHY / "broker-2"), *(f"1={tmp_path / name}" for name in "ab")], ScanOptions())
    controller = assigned([1], [ID_B])
    controller.partitions["other", 0] = assigned([1], [ID_A]).partitions[KEY]
    assert [row.directory_id for row in target_dirs(inputs, controller, {})][1:] == [ID_B, ID_A]


def test_the_controllers_log_is_put_into_the_directory_of_its_copy_or_a_new_disk() -> None:
    with_copy, empty, second = target(1, ID_A, METADATA_LOG), target(2, None, is_empty=True), structs.replace(DISK, partitions=[])
    assert targets_of(METADATA_LOG, [with_copy, second, empty, A], None) == [with_copy, empty]


@pytest.fixture
def copies(tmp_path: Path) -> list[str]:
    """The disk of broker 3 was replaced; the copy of broker 1 has a torn tail, and that of broker 2 a flipped bit."""
    for broker in (1, 2):
        shutil.copytree(HEALTHY / f"broker-{broker}", tmp_path / f"broker-{broker}")
    (tmp_path / "disk").mkdir()
    torn = max((tmp_path / "broker-1" / NAME).glob("*.log"))
    torn.write_bytes(torn.read_bytes()[:-9])
    damaged = min((tmp_path / "broker-2" / NAME).glob("*.log"))
    damaged.write_bytes(flip_bit(damaged.read_bytes(), 200))
    return [str(tmp_path / "broker-1"), str(tmp_path / "broker-2"), f"3={tmp_path / 'disk'}"]


def whole(copies: list[str], output: Path) -> Salvaged:
    return salvage(copies, output, ScanOptions(), SalvageOptions())


def test_every_broker_gets_a_complete_log_directory(copies: list[str], tmp_path: Path) -> None:
    announced: list[int] = []
    output = tmp_path / "out"

    def announce(salvaged: Salvaged) -> None:
        announced.append(salvaged.bytes_to_write)
        assert not [path for path in tmp_path.rglob("*.log") if "out" in str(path)]

    salvaged = salvage(copies, output, ScanOptions(), SalvageOptions(), announce=announce)
    logs = [path for path in output.rglob("*.log") if path.parent.name != "__cluster_metadata-0"]
    assert (
        announced == [sum(path.stat().st_size for path in logs)] == [json.loads((output / MANIFEST).read_text())["bytes_to_write"]]
    )
    assert {path.stat().st_nlink for path in logs} == {1}
    places = {broker: output / f"broker-{broker}" / name for broker, name in ((1, "broker-1"), (2, "broker-2"), (3, "disk"))}
    for broker, place in places.items():
        theirs = HEALTHY / f"broker-{broker}"
        assert {path.name for path in place.glob("*-[0-9]")} == {path.name for path in theirs.glob("*-[0-9]")} - {
            "__cluster_metadata-0"
        }
        for name in [path.name for path in place.glob("*-[0-9]")]:
            ours, before = (b"".join(path.read_bytes() for path in sorted((at / name).glob("*.log"))) for at in (place, theirs))
            assert ours == before, (broker, name)
            assert (place / name / "partition.metadata").read_bytes() == (theirs / name / "partition.metadata").read_bytes()
        ids = [parse_meta_properties(LocalSource(str(at)).open("meta.properties")) for at in (place, theirs)]
        assert ids[0] == ids[1]  # also the id of the directory that was lost, which the controllers' log has
        assert "orders 0 500" in (place / "replication-offset-checkpoint").read_text().splitlines()
    assert (places[1] / "meta.properties").read_bytes() == (HEALTHY / "broker-1" / "meta.properties").read_bytes()
    assert [row.meta_properties for row in salvaged.log_dirs] == ["copied", "copied", "built"]


def test_verify_checks_every_broker(copies: list[str], tmp_path: Path) -> None:
    output = tmp_path / "out"
    whole(copies, output)
    paths = [str(output / f"broker-{broker}") for broker in (1, 2, 3)]
    document = read_promises(str(output / MANIFEST))
    options = ScanOptions(topic_glob="codec-gzip")
    for read in (options, replace(options, live=True)):
        assert {promise.outcome for promise in verify(paths, document, read, ExecutedPlan()).promises} == {Outcome.KEPT}
    absent = verify(paths[:2], document, options, ExecutedPlan()).promises
    assert {promise.broker for promise in absent if promise.reason == "no_copy"} == {3}


def test_steps_stop_move_aside_copy_and_start_with_limits(copies: list[str], tmp_path: Path) -> None:
    salvaged = whole(copies, tmp_path / "out")
    steps = steps_of(salvaged)
    kinds = ["stop", "move_aside", "copy", "copy_back", "own", "controllers", "keep_records", "start"]
    kinds += ["elect", "in_sync", "verify", "restore_retention"]
    assert [step.kind for step in steps] == kinds
    assert "within 2 minutes" in preamble(salvaged)
    by_kind = {step.kind: step for step in steps}
    assert "broker-3/disk" in by_kind["copy"].text
    assert by_kind["copy_back"].command == "cp -a LOG_DIR.before/__cluster_metadata-0 LOG_DIR"
    assert by_kind["copy"].command == f"cp -a {tmp_path}/out/broker-N/NAME/. LOG_DIR"  # also where that is a mount point
    assert by_kind["start"].brokers[-1] == 3  # whose disk is new
    assert by_kind["verify"].command == f"kafka-forensics verify PATH... --live --against {tmp_path}/out/{MANIFEST}"
    absent = steps_of(whole(copies[:2], tmp_path / "two"))  # broker 3, which stays stopped
    assert [step.kind for step in absent if 3 in step.brokers] == ["copy", "stop"]
    assert f" --path-to-json-file {tmp_path}/out/{ELECTION_FILE}" in str(by_kind["elect"].command)
    (only,) = steps_of(salvage(copies, tmp_path / "some", ScanOptions(topic_glob="orders"), SalvageOptions()))
    assert only.kind == "salvage"


@pytest.mark.parametrize(
    ("settings", "age_ms", "changed", "restored"),
    [
        ({}, 8 * DAY_MS, "retention.ms=-1", ["--delete-config retention.ms"]),
        ({}, DAY_MS, None, []),
        ({"retention.ms": "3600000"}, DAY_MS, "retention.ms=-1", ["--add-config retention.ms=3600000"]),
        ({"retention.ms": "-1"}, 99 * DAY_MS, None, []),
        ({"retention.bytes": "100"}, 0, "retention.bytes=-1", ["--add-config retention.bytes=100"]),
        ({"retention.bytes": "9000", "cleanup.policy": "compact"}, 99 * DAY_MS, None, []),
    ],
)
def test_a_setting_before_the_start_keeps_what_retention_would_delete(
    tmp_path: Path, settings: dict[str, str], age_ms: int, changed: str | None, restored: list[str]
) -> None:
    log = ControllerLog().lead([1, 2, 3]).append(topic(), partition_record([1], 1))
    log.append(*(setting(*pair) for pair in settings.items())).put(tmp_path / "in" / "broker-1", 1)
    written = int(time.time() * 1000) - age_ms
    batches = {offset: batch(offset, 3, base_timestamp=written) for offset in (0, 3)}
    put_replica(tmp_path / "in", 1, batches, partition="t-0", topic_id=TOPIC_ID, high_watermark=6)
    steps = [step for step in steps_of(salvaged_of(tmp_path / "in", tmp_path / "out")) if step.kind != "refused"]
    kinds = [step.kind for step in steps]
    by_kind = {step.kind: step for step in steps}
    assert [str(step.command).partition("--entity-name t ")[2] for step in steps if step.kind == "restore_retention"] == restored
    if changed is None:
        assert "keep_records" not in kinds
        return
    assert kinds.index("controllers") < kinds.index("keep_records") < kinds.index("start")
    assert f"--alter --entity-type topics --entity-name t --add-config {changed}" in str(by_kind["keep_records"].command)
    assert "start as many as a majority needs with process.roles=controller" in by_kind["controllers"].text


def old_log(age_ms: int = 8 * DAY_MS) -> dict[int, bytes]:
    """Two segments with records of this age, for `put_replica`."""
    return {offset: batch(offset, 3, base_timestamp=int(time.time() * 1000) - age_ms) for offset in (0, 3)}


def test_without_a_controllers_log_settings_are_noted_and_restored_except_of_internal_topics(tmp_path: Path) -> None:
    """Internal topics may have other limits: `__remote_log_metadata` has none (-1)."""
    for number, name in enumerate(("t", "u", "__remote_log_metadata", "__share_group_state")):
        options: dict[str, Any] = {"topic_id": TOPIC_ID[:-1] + "AQgw"[number], "high_watermark": 6}
        put_replica(tmp_path / "in", 1, old_log(), partition=f"{name}-0", **options)
    put_meta_properties(tmp_path / "in" / "broker-1", 1)
    steps = steps_of(salvaged_of(tmp_path / "in", tmp_path / "out"))
    assert "--delete-config" not in "".join(str(step.command) for step in steps)
    assert [step.kind for step in steps if "__" in f"{step.text} {step.command}"] == []
    note_retention, keep_records, restore_retention = [step for step in steps if "retention" in str(step.command)]
    assert (note_retention.kind, keep_records.kind, restore_retention.kind) == (
        "note_retention",
        "keep_records",
        "restore_retention",
    )
    assert (
        "brokers may delete the oldest records of t, u: they have passed retention.ms=604800000, the default" in note_retention.text
    )
    configs = "kafka-configs.sh --bootstrap-controller HOST:PORT"
    assert str(note_retention.command).startswith(
        f"for topic in t u; do {configs} --describe --all --entity-type topics --entity-name"
    )
    assert str(note_retention.command).endswith("; done | grep -e 'All configs' -e DYNAMIC_TOPIC_CONFIG:retention")
    assert str(keep_records.command).endswith("--add-config retention.ms=-1; done")
    assert (
        restore_retention.command == f"{configs} --alter --entity-type topics --entity-name TOPIC --add-config retention.ms=NOTED"
    )


def test_a_damaged_controllers_log_does_not_show_the_settings_of_topics(tmp_path: Path) -> None:
    log = ControllerLog().lead([1]).append(topic(), partition_record([1], 1)).append(setting("retention.ms", "-1"))
    path = log.put(tmp_path / "in" / "broker-1", 1) / segment_file(0)
    path.write_bytes(flip_bit(path.read_bytes(), path.stat().st_size - 3))
    put_replica(tmp_path / "in", 1, old_log(), partition="t-0", topic_id=TOPIC_ID, high_watermark=6)
    steps = steps_of(salvaged_of(tmp_path / "in", tmp_path / "out"))
    assert "--delete-config" not in "".join(str(step.command) for step in steps)
    assert "note_retention" in [step.kind for step in steps]


def test_limits_of_topics_do_not_apply_to_the_controllers_log(tmp_path: Path) -> None:
    log = ControllerLog().lead([1]).append(topic(), partition_record([1], 1))
    directory = log.put(tmp_path / "in" / "broker-1", 1)
    put_topic_id(directory, "AAAAAAAAAAAAAAAAAAAAAQ")
    (directory / "quorum-state").write_bytes(write_quorum_state(1, 0, [1]))
    put_replica(tmp_path / "in", 1, old_log(), partition="t-0", topic_id=TOPIC_ID, high_watermark=6)
    salvaged = salvaged_of(tmp_path / "in", tmp_path / "out")
    limits = {partition.topic: [limit.setting for limit in partition.passed_limits] for partition in salvaged.partitions}
    assert limits == {"__cluster_metadata": [], "t": ["retention.ms"]}
    assert [step.kind for step in steps_of(salvaged) if "__cluster_metadata" in f"{step.text} {step.command}"] == []


@pytest.mark.parametrize(
    ("settings", "age_ms", "changed"),
    [
        ({}, 8 * DAY_MS, ["retention.ms"]),
        ({}, 6 * DAY_MS, []),
        ({"retention.ms": "-1", "local.retention.ms": "1"}, 8 * DAY_MS, []),
        ({"retention.bytes": "4096"}, 0, ["retention.bytes"]),
        ({"retention.bytes": "8192"}, 0, []),
    ],
)
def test_the_oldest_remote_segment_of_a_tiered_topic_counts(
    tmp_path: Path, settings: dict[str, str], age_ms: int, changed: list[str]
) -> None:
    """Two remote segments have this age; the local segments are old."""
    log = ControllerLog().lead([1]).append(topic(), partition_record([1], 1), setting("remote.storage.enable", "true"))
    log.append(*(setting(*pair) for pair in settings.items())).put(tmp_path / "in" / "broker-1", 1)
    batches = {6: batch(6, 3, base_timestamp=1_000)}
    options: dict[str, Any] = {"topic_id": TOPIC_ID, "high_watermark": 9, "log_start": 0, "epochs": ((0, 0),)}
    log_dir = put_replica(tmp_path / "in", 1, batches, partition="t-0", **options)
    without = salvaged_of(tmp_path / "in", tmp_path / "before")
    assert [partition.passed_limits for partition in without.partitions if partition.topic == "t"] == [()]
    oldest = int(time.time() * 1000) - age_ms
    started = [
        copy_started(number, 3 * number, 3 * number + 2, topic_id=TOPIC_ID, max_timestamp_ms=oldest + number) for number in (0, 1)
    ]
    finished = [segment_update(number, COPY_FINISHED, topic_id=TOPIC_ID) for number in (0, 1)]
    put_topic_id(put_remote_log(log_dir, *started, *finished).parent, OFFSETS_ID_TEXT)
    salvaged = salvaged_of(tmp_path / "in", tmp_path / "out")
    (tiered,) = [partition for partition in salvaged.partitions if partition.topic == "t"]
    assert [limit.setting for limit in tiered.passed_limits] == changed


def test_under_zookeeper_the_setting_is_changed_in_zookeeper(tmp_path: Path) -> None:
    put_replica(tmp_path / "in", 1, batch(0, 3), high_watermark=3)
    put_meta_properties(tmp_path / "in" / "broker-1", 1, version=0)
    (keep_records,) = [step for step in steps_of(salvaged_of(tmp_path / "in", tmp_path / "out")) if step.kind == "keep_records"]
    assert "may delete the oldest records of orders: they have passed retention.ms=604800000, the default" in keep_records.text
    config = '{"version": 1, "config": {"retention.ms": "-1"}}'
    assert keep_records.command == f"zookeeper-shell.sh ZOOKEEPER:PORT set /config/topics/orders '{config}'"


def test_files_that_keep_a_broker_from_starting_are_repaired_and_not_copied_back(copies: list[str], tmp_path: Path) -> None:
    for file in (f"{METADATA}/quorum-state", "meta.properties", "bootstrap.checkpoint"):
        (Path(copies[1]) / file).write_bytes(b"garbage")
    (tmp_path / "broker-2").rename(tmp_path / "two")
    steps = steps_of(whole([copies[0], str(tmp_path / "two"), copies[2]], tmp_path / "out"))
    repaired_files = [step.text.split()[1] for step in steps if step.kind == "repair"]
    assert sorted(repaired_files) == [f"{METADATA}/quorum-state", "bootstrap.checkpoint", "meta.properties"]
    assert [step.command for step in steps if step.kind == "copy_back"] == [f"cp -a LOG_DIR.before/{METADATA} LOG_DIR"]


def test_a_controller_that_was_not_given_keeps_its_own_files_and_can_read_its_log(tmp_path: Path) -> None:
    log = SalvagedPartition(*METADATA_LOG, None, 100, "quorum", 0, 0, 9, None, quorum=SalvagedQuorum([100, 101], [100], 5))
    controller_dir = structs.replace(target(100, ID_A, METADATA_LOG), partitions=[METADATA_LOG])
    steps = steps_of(Salvaged("DIR", [log], log_dirs=[controller_dir]))
    assert [(step.kind, step.brokers) for step in steps[3:6:2]] == [("copy", (101,)), ("own", (100, 101))]
    assert steps[3].command == f"mv LOG_DIR/{METADATA} LOG_DIR.before && cp -a DIR/broker-100/{ID_A}/{METADATA} LOG_DIR"


def test_a_disk_with_too_little_space_is_refused_immediately(
    copies: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: real._replace(free=500))
    with pytest.raises(UsageError, match=r"out needs 2\d\d kB, but its disk has 500 B free"):
        whole(copies, tmp_path / "out")
    assert not [*tmp_path.glob("out*")]


def test_without_a_controllers_log_replicas_stay_with_their_copies_or_checkpoints(tmp_path: Path) -> None:
    log = b"".join(batches_of(4))
    put_copies(tmp_path / "in", (1, 2, 3), {0: log}, high_watermark=8)
    shutil.rmtree(tmp_path / "in" / "broker-2" / NAME)
    put_partition(tmp_path / "in" / "broker-3" / "other-0", {0: log})
    put_meta_properties(tmp_path / "in" / "broker-3-b", 3)
    put_partition(tmp_path / "in" / "broker-3-b" / "third-0", {0: log})
    salvaged = salvaged_of(tmp_path / "in", tmp_path / "out")
    assert {partition.topic: [directory for _, directory in partition.replicas] for partition in salvaged.partitions} == {
        "orders": ["broker-1/broker-1", "broker-2/broker-2", "broker-3/broker-3"],
        "other": ["broker-3/broker-3"],
        "third": ["broker-3/broker-3-b"],
    }
    marks = tmp_path / "out" / "broker-3" / "broker-3-b" / "recovery-point-offset-checkpoint"
    assert marks.read_text() == "0\n1\nthird 0 0\n"


def test_a_refused_partition_keeps_its_lines_in_every_checkpoint(tmp_path: Path) -> None:
    batches = batches_of(4)
    log_dir = put_replica(tmp_path / "in", 1, {0: batches[0] + flip_bit(batches[1], 70) + b"".join(batches[2:])}, high_watermark=8)
    put_partition(log_dir / "other-0", {0: b"".join(batches)})
    for number, name in enumerate(CHECKPOINTS):
        write_checkpoint(log_dir, name.removesuffix("-offset-checkpoint"), 4 - number, NAME)
    salvaged = salvaged_of(tmp_path / "in", tmp_path / "out")
    for number, name in enumerate(CHECKPOINTS):
        assert f"orders 0 {4 - number}" in (tmp_path / "out/broker-1/broker-1" / name).read_text().splitlines()
    assert [step.kind for step in steps_of(salvaged)] == ["refused"]


def test_an_unreadable_meta_properties_is_rebuilt_and_an_empty_directory_needs_a_node(tmp_path: Path) -> None:
    put_copies(tmp_path / "in", (1, 2), {0: b"".join(batches_of(2))}, high_watermark=4)
    (tmp_path / "in" / "broker-2" / "meta.properties").write_bytes(b"version=1\nnode.id=\n")
    (tmp_path / "in" / "broker-2").rename(tmp_path / "two")
    paths = [str(tmp_path / "in"), f"2={tmp_path / 'two'}"]
    assert [row.meta_properties for row in whole(paths, tmp_path / "out").log_dirs] == ["copied", "built"]
    meta = (tmp_path / "out" / "broker-2" / "two" / "meta.properties").read_text()
    assert "node.id=2\n" in meta
    assert "directory.id=" in meta
    (tmp_path / "disk").mkdir()
    with pytest.raises(UsageError, match="the node of the empty log directory"):
        whole([*paths, f"new={tmp_path / 'disk'}"], tmp_path / "no")
