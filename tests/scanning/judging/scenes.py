"""Log directories with absent, truncated or older replicas, or harmless look-alikes, and the answers of a scan and a plan.

The answers are kept in `answers.json` beside it. After a change of a rule: `python -m tests.scanning.judging.scenes`, and read the
difference before it is committed.
"""

import json
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from kafka_forensics.evidence.ledger import CopyExtent
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.plan import Planned, PlanOptions, make_plans
from kafka_forensics.replication.planner.plans import Loss, costs_of
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.gallery.answers import answer
from tests.support.brokers import (
    CLUSTER_ID,
    DIRECTORY,
    TOPIC_ID,
    Brokers,
    Logs,
    healthy,
    put_brokers,
    put_checkpoint,
    put_consumer_offsets,
    put_epochs,
    put_meta_properties,
    put_partition,
    put_replica,
    put_replicas,
    put_segment,
    put_topic_id,
    write_checkpoint,
)
from tests.support.controllers import (
    CONTROLLER,
    ControllerLog,
    partition,
    partition_change,
    record,
    setting,
    topic,
    topic_with_isr,
    with_controller,
)
from tests.support.groups import commit_key, commit_value, coordinator_batches
from tests.support.kept_answers import write_answers
from tests.support.logs import HEALTHY, HIGH_WATERMARK, LOG_END, CoordinatorLog, DataLog, Log, history as any_history, ms
from tests.support.plan_values import unreported_losses
from tests.support.segments import (
    BASE_TIMESTAMP,
    BASE_TIMESTAMP as RECORDED_MS,
    batch,
    flip_bit,
    marker,
    producer_batch,
    segment_file,
)

ANSWERS: Final = Path(__file__).with_name("answers.json")
OTHER_ID: Final = "AAAAAAAAAAAAAAAAAAAABQ"
YOUNG: Final = BASE_TIMESTAMP + 120_000
"""Two minutes after the first record, when the controllers' log ends."""
DAY_MS: Final = 24 * 3600 * 1000
METADATA: Final = "partition.metadata"

Scene = Callable[[Path], Brokers | Sequence[Path]]
Options = dict[str, Any]
SCENES: Final[dict[str, tuple[Scene, tuple[Options, ...]]]] = {}
"""Name → a function that writes log directories into an empty folder, and the options of each scan."""


def scene(name: str, make: Callable[..., Brokers | Sequence[Path]], *values: Any, options: Sequence[Options] = ({},)) -> None:
    """Declare a scene; `make` is called with the folder and these values."""
    assert name not in SCENES
    SCENES[name] = (lambda root: make(root, *values), tuple(options))


def answers(name: str, root: Path) -> list[dict[str, Any]]:
    """The results of a scan and a plan of a scene with each of its options; checks that the scan reports losses of the plan."""
    make, options = SCENES[name]
    made = make(root)
    paths = [str(path) for path in (sorted(made.root.iterdir()) if isinstance(made, Brokers) else made)]
    documents = []
    for option in options:
        plans = make_plans(paths, ScanOptions(jobs=1, **option), PlanOptions())
        assert plans.result is not None
        assert option.get("live") or list(unreported_losses(plans)) == []
        documents.append(answer(plans.result, root) | {"plans": [plan_row(planned) for planned in plans.planned]})
    return json.loads(json.dumps(documents).replace(json.dumps(str(root))[1:-1], ""))  # type: ignore[no-any-return]


def plan_row(planned: Planned) -> dict[str, Any]:
    """Recommended leaders, and the cost of each election."""
    plan = planned.plan
    return {
        "partition": f"{plan.topic}-{plan.partition}",
        "leaders": [plan.recommended, plan.ordinary, plan.ordinary_loss],
        "missing": [[missing.kind, missing.broker] for missing in plan.missing],
        "strays": [plan.strays, costs_of(plan.at_stake)],
        "without_topic_id": planned.without_topic_id,
        "candidates": [
            [candidate.broker, candidate.election, candidate.at_least, candidate.at_most, list(map(loss_row, candidate.losses))]
            for candidate in plan.candidates
        ],
    }


def loss_row(loss: Loss) -> list[object]:
    """Offsets, their holders before and after, and the witness that proves them committed."""
    witness = None if loss.witness is None else [loss.witness.end_offset, loss.witness.kind]
    return [loss.start, loss.end, loss.held_by, loss.kept_by, loss.committed, witness]


# An empty or wiped replica that may lead.


def wipe(brokers: Brokers, broker: int) -> Brokers:
    """Leave only `meta.properties` in the broker's log directory."""
    for path in brokers.log_dir(broker).iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != "meta.properties":
            path.unlink()
    return brokers


def wiped(root: Path, *values: bytes) -> Brokers:
    brokers = healthy(root)
    return wipe(with_controller(brokers, *values) if values else brokers, 3)


def without_directories(
    root: Path, values: Sequence[bytes], brokers: Sequence[int] = (3,), checkpointed: int | None = None
) -> Brokers:
    """Brokers lack the partition's directory; `checkpointed` is their high watermark, if it differs."""
    made = with_controller(healthy(root), *values) if values else healthy(root)
    for broker in brokers:
        shutil.rmtree(made.log_dir(broker) / DIRECTORY)
        if checkpointed is not None:
            made.checkpoint("replication", checkpointed, broker)
    return made


def nobody_holds_records(root: Path) -> Brokers:
    brokers = wiped(root, *topic_with_isr([3]))
    for broker in (1, 2):
        for segment in HEALTHY.segments:
            brokers.remove(broker, segment, "*")
        brokers.file(broker, 0).touch()
        brokers.checkpoint("replication", 0, broker)
    return brokers


PARTIAL, WHOLE = {"copied": CopyExtent.PARTIAL}, {"copied": CopyExtent.WHOLE}
LIVE = {"live": True}
scene("wiped: the sole member of the ISR", wiped, *topic_with_isr([3]), options=({}, PARTIAL))
scene("wiped: one of several members", wiped, *topic_with_isr([1, 3]))
scene("wiped: no member", wiped, *topic_with_isr([1, 2]))
scene("wiped: under ZooKeeper", wiped, options=({}, LIVE))
scene("wiped: a new broker without replicas", wiped, topic(), partition([1, 2], 1))
scene("wiped: nobody holds records", nobody_holds_records)
scene("wiped: a disk alone", lambda root: [wipe(healthy(root), 1).log_dir(1)], options=({}, PARTIAL))
scene("gone: the directory of the sole member of the ISR", without_directories, topic_with_isr([3]))
scene("gone: that only the controllers expect", without_directories, topic_with_isr([1, 2]), (3,), 0, options=(WHOLE,))
scene(
    "gone: that only the controllers expect, in the ISR", without_directories, topic_with_isr([1, 2, 3]), (3,), 0, options=(WHOLE,)
)
scene("gone: under ZooKeeper", without_directories, (), (2,))
scene(
    "gone: its checkpoint proves what no copy holds", without_directories, (), (2,), 100,
    options=({}, LIVE, {"broker": "2"}, {"broker": "1"}),
)  # fmt: skip


def crashed(root: Path) -> Brokers:
    brokers = without_directories(root, (), (2,), 100)
    brokers.crash(1)
    return brokers


scene("gone: its checkpoint was written while others ran", crashed)
for assigned in ([1, 2, 3], [1, 3]):
    moved = (*topic_with_isr([3]), partition_change(replicas=assigned, isr=[1, 3]))
    scene(f"gone: its checkpoint reaches beyond the others, replicas {assigned}", without_directories, moved, (2,), 100)


# An older backup on one broker.


def older_copy(root: Path, *values: bytes) -> Brokers:
    """Broker 3 has an older copy; brokers 1 and 2 have all records."""
    brokers = put_replicas(root, {1: HEALTHY, 2: HEALTHY, 3: HEALTHY.truncated_to(29)}, HIGH_WATERMARK)
    return with_controller(brokers, *values) if values else brokers


LED_BY_3 = (topic(), partition([3], 3, replicas=[1, 2, 3], leader_epoch=2))
ELECTED_AGAIN = (
    partition_change(leader=-1, isr=[], eligible_leader_replicas=[3]),
    partition_change(leader=3, isr=[3], leader_recovery_state=1),
)
scene("older: the last leader, elected again", older_copy, *LED_BY_3, *ELECTED_AGAIN)
scene("older: the last leader, ISR and ELR are empty", older_copy, *LED_BY_3, partition_change(leader=-1, isr=[]))
scene("older: under ZooKeeper", older_copy)
scene("older: not in sync", older_copy, *topic_with_isr([1, 2]))


def not_read(root: Path, hidden: bool) -> list[Path]:
    """Brokers 1 and 2 lack the partition; the log directory of broker 3 is outside, with or without a link to it."""
    brokers = healthy(root / "given")
    brokers.log_dir(3).rename(root / "outside")
    for broker in (1, 2):
        shutil.rmtree(brokers.log_dir(broker) / DIRECTORY)
    if hidden:
        brokers.log_dir(3).symlink_to(root / "outside")
    return [brokers.root]


for hidden in (False, True):
    scene(f"not read: {'a link to a log directory' if hidden else 'nothing'}", not_read, hidden, options=(WHOLE,))


# A missing start of the log.


def without_log_start(root: Path, values: Sequence[bytes] = (), brokers: Sequence[int] = (2,), trace: str = "") -> Brokers:
    """Brokers lack the first segment, [0, 29); the controllers' log ends two minutes after its records."""
    made = healthy(root)
    for broker in brokers:
        made.remove(broker, 0, "*")
        directory = made.log_dir(broker) / DIRECTORY
        if trace == "epochs":
            put_epochs(directory, (0, 29), *HEALTHY.epochs[1:])
        elif trace == "checkpoint":
            made.checkpoint("log-start", 29, broker)
        elif trace:
            put_segment(directory, 0, b"", "log.deleted")
    return with_controller(made, *values, start_ms=YOUNG) if values else made


def deleted_by_hand(root: Path) -> Brokers:
    brokers = without_log_start(root, topic_with_isr([1, 2]))
    brokers.checkpoint("log-start", 29, 1)
    return brokers


REASONS = {
    "by age": setting("retention.ms", "1000"),
    "by size": setting("retention.bytes", "100"),
    "compacted": setting("cleanup.policy", "compact"),
    "tiered": setting("remote.storage.enable", "true"),
}
ALL_BROKERS = (1, 2, 3)
AS_OF = tuple({"as_of_ms": BASE_TIMESTAMP + days * DAY_MS} for days in (1, 31))
scene("head: for no reason, out of the ISR", without_log_start, topic_with_isr([1, 3]))
scene("head: for no reason, in the ISR", without_log_start, topic_with_isr([1, 2]), options=({}, *AS_OF))
for words, reason in REASONS.items():
    scene(f"head: {words}", without_log_start, (*topic_with_isr([1, 2]), reason))
for words in ("compacted", "tiered"):
    scene(f"head: everywhere, {words}", without_log_start, (*topic_with_isr([1, 2]), REASONS[words]), ALL_BROKERS)
scene("head: everywhere", without_log_start, topic_with_isr([1, 2]), ALL_BROKERS, options=({}, LIVE))
scene("head: everywhere, one broker alone", lambda root: [without_log_start(root, (), ALL_BROKERS).log_dir(2)])
scene("head: everywhere, no settings are known", without_log_start, (), ALL_BROKERS)
for trace in ("epochs", "checkpoint", "waiting"):
    scene(f"head: deleted by the broker: {trace}", without_log_start, topic_with_isr([1, 2]), ALL_BROKERS, trace)
scene("head: records deleted by hand", deleted_by_hand)
scene(
    "head: of two that lose nothing the lower log start leads",
    without_log_start,
    (*topic_with_isr([1, 2, 3]), REASONS["by age"]),
    (1,),
)

# An old copy of the controllers' log.

OTHER = topic("other", OTHER_ID), partition([1, 2, 3], 1, topic_id=OTHER_ID)


def controlled(root: Path, *values: bytes) -> Brokers:
    return with_controller(healthy(root), *values)


def damaged_controllers(root: Path) -> Brokers:
    brokers = controlled(root, *OTHER)
    path = next((root / f"c{CONTROLLER}" / "__cluster_metadata-0").glob("*.log"))
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    return brokers


def never_knew(root: Path, start: int) -> Brokers:
    """Brokers started with a controllers' log that never had the topic: only their checkpoints still have the partition."""
    log = ControllerLog(next_offset=start).lead([CONTROLLER]).append(OTHER[0]).append(OTHER[1])
    brokers = without_directories(root, (), ALL_BROKERS)
    log.put(root / f"c{CONTROLLER}", start=start)
    return brokers


def all_empty(root: Path, epoch: int, batches: bytes) -> list[Path]:
    """Empty logs, as after a start of the only replica in sync on an empty disk."""
    for broker in (1, 2):
        for name, data in (("t-0", b""), ("u-0", batches if broker == 2 else b""), ("__consumer_offsets-0", b"")):
            put_replica(root, broker, data, partition=name, epochs=[(epoch, 0)])
    return [root / f"broker-{broker}" for broker in (1, 2)]


def with_observers(root: Path, voters: ControllerLog, observers: ControllerLog, *brokers: int) -> Brokers:
    """Brokers whose copies of the controllers' log may be longer than those of the voters."""
    made = healthy(root)
    for broker in brokers:
        observers.put(made.log_dir(broker), broker)
    voters.put(root / f"c{CONTROLLER}")
    return made


def appended(log: ControllerLog, *values: bytes) -> ControllerLog:
    longer = log.copy()
    for value in values:
        longer.append(value)
    return longer


WITHOUT_TOPIC = ControllerLog().lead([CONTROLLER])
WITH_TOPIC = appended(WITHOUT_TOPIC, *topic_with_isr([1, 2, 3]))


def gap_in_every_copy(root: Path, hides: str) -> list[Path]:
    """A gap in every copy, a partition without directories, and (`hides`) a truncated archive or a broken link."""
    brokers = healthy(root / "given")
    for broker in ALL_BROKERS:
        brokers.remove(broker, 29, "*")
        write_checkpoint(brokers.log_dir(broker), "replication", 50, "u-0")
    if hides == "an archive":
        source = healthy(root / "other").log_dir(1)
        (source / "t-0").rename(source / "x-0")
        with tarfile.open(brokers.root / "b4.tar", "w") as tar:
            tar.add(source, "b4")
        data = (brokers.root / "b4.tar").read_bytes()
        (brokers.root / "b4.tar").write_bytes(data[: len(data) // 3])
    elif hides == "a link":
        (brokers.root / "b4").symlink_to(root / "nowhere")
    return [brokers.root] if hides == "a link" else sorted(brokers.root.iterdir())


scene("controllers: do not know the topic", controlled, *OTHER)
for level in (14, 15):
    scene(f"controllers: nor at level {level}", controlled, record(12, name="metadata.version", feature_level=level), *OTHER)
scene("controllers: a damaged log may have known it", damaged_controllers)
for start in (0, 5):
    scene(f"controllers: never knew a topic that is gone, their log begins at {start}", never_knew, start)
scene("controllers: deleted it", without_directories, (*topic_with_isr([1, 2, 3]), record(9, topic_id=TOPIC_ID)), ALL_BROKERS)
scene("controllers: a sole voter's old copy", with_observers, WITHOUT_TOPIC, WITH_TOPIC, 1, 2)
scene("controllers: a sole voter's whole copy", with_observers, WITH_TOPIC, WITH_TOPIC, 1, 2)
scene(
    "controllers: only observers hold the end",
    with_observers,
    WITH_TOPIC,
    appended(WITH_TOPIC, partition_change(isr=[1], leader=1)),
    1,
)
scene("empty: all logs", all_empty, 6, b"", options=({}, {"topic_glob": "t"}, {"broker": "1"}))
scene("empty: of a new cluster", all_empty, 0, b"")
scene("empty: all but one record", all_empty, 6, batch(0, 1))
for hides in ("nothing", "an archive", "a link"):
    scene(f"not read: {hides} beside a gap that every copy has", gap_in_every_copy, hides, options=(WHOLE,))

# A partial copy, and absent replicas.


def with_checkpoints(root: Path, checkpoints: Sequence[str], more: dict[str, int]) -> Brokers:
    """Checkpoints that name further partitions."""
    brokers = healthy(root)
    for log_dir in brokers.log_dirs:
        for name in checkpoints:
            put_checkpoint(log_dir, name, {DIRECTORY: HIGH_WATERMARK} | more)
    return brokers


def one_of_several(root: Path) -> Brokers:
    brokers = with_checkpoints(root, ("replication",), {"u-0": LOG_END})
    for broker in (1, 3):
        shutil.copytree(brokers.log_dir(broker) / "t-0", brokers.log_dir(broker) / "u-0")
    return brokers


def never_written(root: Path) -> Brokers:
    brokers = healthy(root)
    put_checkpoint(brokers.log_dir(2), "replication", {"never-written-0": 0, DIRECTORY: HIGH_WATERMARK})
    return brokers


UVW = {f"{name}-0": 10 for name in "uvw"}
SELECTIONS: tuple[Options, ...] = ({}, {"topic_glob": "t"}, {"topic_glob": "t", "partition": 0}, {"topic_glob": "t", "broker": "2"})
scene("partial: one partition of four", with_checkpoints, ("replication", "recovery-point"), UVW, options=({}, WHOLE))
scene("partial: one of several is absent on a broker", one_of_several)
scene("absent: an offset of 0 is no proof", never_written)
scene(
    "absent: others than were asked for", with_checkpoints, ("replication",), {"t-1": 8, "other-0": 9},
    options=tuple(WHOLE | option for option in SELECTIONS),
)  # fmt: skip

# Replicas of brokers without a copy, and unclean elections.


def without_paths(root: Path, values: Sequence[bytes], *names: str) -> list[Path]:
    """The directories of the brokers and the controller, without those of these names."""
    return [path for path in sorted(with_controller(healthy(root), *values).root.iterdir()) if path.name not in names]


def without_node_id(root: Path) -> list[Path]:
    paths = without_paths(root, topic_with_isr([2, 3]), "b2")
    (root / "b1" / "meta.properties").unlink()
    return paths


def with_another_topic(root: Path) -> list[Path]:
    other = topic("other", OTHER_ID), partition([2, 3], 2, topic_id=OTHER_ID, replicas=[2, 3])
    paths = without_paths(root, (*topic_with_isr([2]), *other), "b2")
    shutil.copytree(root / "b3" / "t-0", root / "b3" / "other-0")
    return paths


UNCLEAN = (*topic_with_isr([2]), partition_change(leader=-1, isr=[]), partition_change(leader=1, isr=[1], leader_recovery_state=1))
scene("not given: two brokers", without_paths, topic_with_isr([2, 3]), "b2", "b3")
scene("not given: nobody", without_paths, topic_with_isr([2, 3]))
scene("not given: a directory is nobody's", without_node_id)
scene("not given: another topic was not asked for", with_another_topic, options=({"topic_glob": "t"}, {}))
scene("not given: the old leader of an unclean election", without_paths, UNCLEAN, "b2")
scene("not given: an old leader that has followed", without_paths, (*UNCLEAN, partition_change(isr=[1, 2])), "b2")
scene(
    "not given: an old leader that is no replica any more",
    without_paths,
    (*UNCLEAN, partition_change(replicas=[1, 3], isr=[1, 3])),
    "b2",
)
scene("given: an old leader that was not asked for", without_paths, UNCLEAN, options=({"broker": "1"},))

# Logs without a topic id.


def without_topic_id(root: Path, *steps: Callable[[Brokers], object]) -> Brokers:
    """Broker 2 has no `partition.metadata`."""
    brokers = healthy(root)
    brokers.file_named(2, METADATA).unlink()
    for step in steps:
        step(brokers)
    return brokers


def emptied(brokers: Brokers) -> None:
    """Leave only an empty segment at the end of all logs, as retention does."""
    for broker in ALL_BROKERS:
        directory = brokers.log_dir(broker) / "t-0"
        for path in [*directory.glob("*.log"), *directory.glob("*.*index")]:
            path.unlink()
        for suffix in ("log", "index", "timeindex"):
            (directory / segment_file(HEALTHY.next_offset, suffix)).touch()
        for name in ("log-start", "recovery-point", "replication"):
            brokers.checkpoint(name, HEALTHY.next_offset, broker)


def active_log(brokers: Brokers) -> Path:
    return brokers.file(2, HEALTHY.next_offset)


def garbage(brokers: Brokers) -> None:
    active_log(brokers).write_bytes(b"\xff" * 300)


def linked_away(brokers: Brokers) -> None:
    active_log(brokers).unlink()
    active_log(brokers).symlink_to("elsewhere")


def index_alone(brokers: Brokers) -> None:
    brokers.file(2, 0, "index").write_bytes(bytes(range(16)))


def logs_alone(brokers: Brokers) -> None:
    """Leave only `.log` files in broker 2's partitions."""
    for path in brokers.log_dir(2).glob("*-*/*"):
        if path.suffix != ".log":
            path.unlink()


def another_partition(brokers: Brokers) -> None:
    put_partition(brokers.log_dir(2) / "u-0", HEALTHY)


def put_identities(brokers: Brokers, numbers: Sequence[int], **fields: Any) -> None:
    for broker in numbers:
        put_meta_properties(brokers.log_dir(broker), broker, **fields)


def under_zookeeper(brokers: Brokers) -> None:
    put_identities(brokers, [2], version=0, cluster_id=CLUSTER_ID)


def topic_id_on_3(topic_id: str) -> Callable[[Brokers], object]:
    return lambda brokers: put_topic_id(brokers.directory(3), topic_id)


def with_metadata_version(level: int) -> Callable[[Brokers], object]:
    return lambda brokers: with_controller(
        brokers, *topic_with_isr([1, 2, 3]), record(12, name="metadata.version", feature_level=level)
    )


def renamed_directory(suffix: str) -> Callable[[Brokers], object]:
    name = f"t-0.0123456789abcdef0123456789abcdef-{suffix}"
    return lambda brokers: (brokers.log_dir(2) / "t-0").rename(brokers.log_dir(2) / name)


def empty_log(root: Path) -> Brokers:
    brokers = put_replicas(root, dict.fromkeys((1, 2), Log()), 0)
    brokers.file_named(2, METADATA).unlink()
    return brokers


def elsewhere(root: Path) -> list[Path]:
    return [shutil.copytree(without_topic_id(root).log_dir(2) / "t-0", root / "elsewhere" / "t-0")]


scene("no id: the other copies tell it", without_topic_id, options=({}, LIVE))
scene("no id: copies of several topics", without_topic_id, topic_id_on_3(OTHER_ID))
scene("no id: copies of another cluster", without_topic_id, lambda brokers: put_identities(brokers, (1, 3), cluster_id=OTHER_ID))
for level in (14, 19, 20):
    scene(f"no id: the controllers' log tells it, level {level}", without_topic_id, with_metadata_version(level))
scene("no id: under ZooKeeper", without_topic_id, under_zookeeper)
scene("no id: a directory of unknown kind", without_topic_id, lambda brokers: (brokers.log_dir(2) / "meta.properties").unlink())
scene("no id: an empty log", empty_log)
scene("no id: retention has emptied the log", without_topic_id, emptied, options=({}, LIVE))
for step in (garbage, linked_away, index_alone):
    scene(f"no id: not called empty: {step.__name__}", without_topic_id, emptied, step)
scene("no id: emptied under ZooKeeper", without_topic_id, emptied, under_zookeeper)
scene("no id: emptied before 3.7", without_topic_id, emptied, with_metadata_version(14))
scene("no id: emptied logs alone", without_topic_id, emptied, logs_alone)
scene("an id: emptied", without_topic_id, emptied, lambda brokers: put_topic_id(brokers.directory(2), TOPIC_ID))
for suffix in ("delete", "stray", "future"):
    scene(f"no id: a directory on its way out: {suffix}", without_topic_id, renamed_directory(suffix))
scene(
    "no id: a file that cannot be parsed",
    without_topic_id,
    lambda brokers: brokers.file_named(2, METADATA).write_bytes(b"version: 0\n"),
)
scene("no id: a copy of the logs alone", without_topic_id, another_partition, logs_alone)
scene("no id: a log without small files beside others that have them", without_topic_id, logs_alone, another_partition)
scene("no id: the partition's directory by itself", lambda root: [without_topic_id(root).log_dir(2) / "t-0"])
scene("no id: its files by themselves", lambda root: sorted((without_topic_id(root).log_dir(2) / "t-0").glob("*.log")))
scene("no id: the directory elsewhere", elsewhere)

# Legal states that look like faults, and faults that are hard to see.

P = ("p", 0)
"""A batch of a history and its leader epoch."""


history = partial(any_history, records=3)


def put_logs(root: Path, logs: Sequence[Log], watermarks: Sequence[int], *steps: Callable[[Brokers], object]) -> Brokers:
    brokers = put_replicas(root, dict(enumerate(logs, 1)), dict(enumerate(watermarks, 1)))
    for step in steps:
        step(brokers)
    return brokers


def without_meta_properties(root: Path, folders: Sequence[str], directories: bool) -> list[Path]:
    """Copies without a node id in folders of equal or different names."""
    brokers = put_logs(root / "brokers", [history(*[P] * 4)] * 2, [12, 12])
    for broker, folder in enumerate(folders, 1):
        shutil.copytree(brokers.log_dir(broker) / DIRECTORY, root / folder / DIRECTORY)
    return [root / folder / DIRECTORY if directories else root / folder for folder in folders]


THREE_SEGMENTS = history(*[P] * 3, ("|", 0), *[P] * 3, ("|", 0), *[P] * 3)
"""Offsets [0, 27) in the segments 0, 9 and 18."""


def cut_out(broker: int, *offsets: int) -> Callable[[Brokers], object]:
    """Remove batches from their segment, and its indexes."""
    segment = THREE_SEGMENTS.at(offsets[0]).segment
    remaining = b"".join(batch.data for batch in THREE_SEGMENTS.batches_of_segment(segment) if batch.base_offset not in offsets)

    def step(brokers: Brokers) -> None:
        brokers.file(broker, segment).write_bytes(remaining)
        for suffix in ("index", "timeindex"):
            brokers.file(broker, segment, suffix).unlink()

    return step


SIXTY = history(*[P] * 60)


def corrupt_last_batches(brokers: Brokers) -> None:
    data = bytearray(brokers.file(2, 0).read_bytes())
    for corrupt_batch in SIXTY.batches[10:]:
        data[corrupt_batch.position + 70] ^= 1
    brokers.file(2, 0).write_bytes(data)


def epochs(epoch: int, start: int) -> Callable[[Brokers], object]:
    return lambda brokers: brokers.put_epochs(1, (epoch, start))


def crash_broker_1(brokers: Brokers) -> None:
    brokers.crash(1)


def log_from(tag: str, offset: int) -> Log:
    log = Log(tag=tag, next_offset=offset)
    log.plain()
    return log


def reencoded(root: Path) -> list[Path]:
    """Re-encoded batches before a conflict."""
    for name, compression_type, last_value in (("a", "none", b"x"), ("b", "gzip", b"y")):
        batches = [
            write_batch([RecordToWrite(b"k", value)], base_offset=n, base_timestamp=0, compression_type=compression_type)
            for n, value in enumerate([b"v"] * 60 + [last_value] * 4)
        ]
        put_segment(root / name / DIRECTORY, 0, batches)
    return [root / "a", root / "b"]


def without_a_log(root: Path) -> list[Path]:
    put_partition(root / "broker-1" / "t-0", {}, epochs=[])
    put_meta_properties(root / "broker-1", 1, cluster_id="c")
    return [root / "broker-1"]


for folders in (("one", "two"), ("one/data", "two/data")):
    for directories in (False, True):
        scene(f"alike: {folders[0]}{' itself' if directories else ''}", without_meta_properties, folders, directories)
COMMON = history(*[P] * 4)
OVERLONG = (2**31 - 1).to_bytes(4, "big")
scene("damage at the front", put_logs, [COMMON] * 2, [12] * 2, lambda brokers: brokers.overwrite(2, COMMON.batches[0], OVERLONG, 8))
scene("an empty last segment", put_logs, [history(*[P] * 4, ("|", 0))] * 2, [12] * 2)
SPLIT = history(P, P, ("|", 0), P, P, ("|", 0))
scene("a segment missing before an empty one", put_logs, [SPLIT] * 2, [6, 12], lambda brokers: brokers.remove(1, 6, "*"))
RETRIES = history(*[P] * 4, ("retry", 0)), history(*[P] * 4, ("retry", 1), ("n", 1))
scene("a retry that came to two leaders", put_logs, RETRIES, [12] * 2)
FORKS = history(P, ("p", 1), ("a", 1)), history(P, ("p", 1), ("b", 1)), history(P, ("x", 2))
scene("a second fork behind the first", put_logs, FORKS, [3] * 3)
VERSIONS = history(*[P] * 4, *[("old", 0)] * 2), history(*[P] * 4, *[("new", 1)] * 2), log_from("old", 15)
for watermark in (12, 18):
    scene(f"a replica that begins behind a fork, watermark {watermark}", put_logs, VERSIONS, [12, 12, watermark])
for watermark in (27, 13):
    steps = cut_out(1, 9, 12), cut_out(2, 12, 15)
    scene(f"lost everywhere below watermark {watermark}", put_logs, [THREE_SEGMENTS] * 2, [watermark] * 2, *steps)
expired = cut_out(1, 3), lambda brokers: brokers.remove(2, 0, "*")
scene("expired on the other replica", put_logs, [THREE_SEGMENTS] * 2, [27] * 2, *expired)
scene("many rotten batches at the end", put_logs, [SIXTY] * 2, [180] * 2, corrupt_last_batches)
TWO_EPOCHS, BEHIND = history(P, P, ("p", 1), ("p", 1)), history(P, P, ("|", 0), P, ("p", 1), ("p", 1))
for log, end, epoch, start in ((TWO_EPOCHS, 12, 1, 8), *((BEHIND, 15, 1, start) for start in (9, 10, 12))):
    for words, after in (("stopped", ()), ("killed", (crash_broker_1,))):
        name = f"epochs from {start} of {end} on, {words}"
        scene(name, put_logs, [log], [end], epochs(epoch, start), *after, options=({}, LIVE) if after else ({},))
for epoch in (1, 2):
    steps = epochs(epoch, 12), crash_broker_1
    scene(f"records deleted up to the log end, epoch {epoch}", put_logs, [TWO_EPOCHS], [12], *steps)
    started = *steps, lambda brokers: brokers.checkpoint("log-start", 12, 1)
    scene(f"the same, and it was written down, epoch {epoch}", put_logs, [TWO_EPOCHS], [12], *started)
scene("batches written anew before a conflict", reencoded)
scene("a partition directory without any log", without_a_log, options=({}, WHOLE))

# Electable replicas that lack records that a marker or a group's offset proves committed.


def short_of_a_marker(
    root: Path, client: int = 2, diverges: bool = False, completed: bool = True, as_of: float = 2, isr: Sequence[int] = (1, 2),
    clean: bool = True,
) -> Brokers:  # fmt: skip
    """Broker 1 ends before the transaction that 2 and 3 have; high watermarks in checkpoints are 0."""
    short, full, coordinator, other = DataLog(), DataLog(), CoordinatorLog(), DataLog()
    for log in (short, full, other):
        log.traffic(0)
    other.plain()
    epoch = 1 if client == 2 else 0
    full.data(1, epoch=epoch)
    full.marker(1.07, commit=True, epoch=epoch)
    coordinator.state(1, "Ongoing", (0,), client=client)
    coordinator.state(1.05, "PrepareCommit", (0,), epoch=epoch, since=1, client=client)
    if completed:
        coordinator.state(1.09, "CompleteCommit", epoch=epoch, since=1, client=client)
    logs: Logs = {"t-0": {1: short, 2: full, 3: other if diverges else full}, "__transaction_state-0": coordinator}
    put_brokers(root, logs, clean=clean)
    for broker in ALL_BROKERS:
        write_checkpoint(root / f"b{broker}", "replication", 0)
    controllers = ControllerLog(start_ms=ms(as_of) - 2000).lead([CONTROLLER]).append(topic())
    controllers.append(partition([*isr], isr[0], replicas=[1, 2, 3])).put(root / f"c{CONTROLLER}")
    return Brokers(root, full)


def short_of_a_commit(root: Path, offset: int, at_ms: int, isr: Sequence[int]) -> list[Path]:
    """Broker 1 ends at 6, broker 2 at 9; a group committed an offset; no checkpoint has a high watermark."""
    first = put_replica(root, 1, batch(0, 6), partition="t-0", topic_id=TOPIC_ID)
    second = put_replica(root, 2, batch(0, 6) + batch(6, 3), partition="t-0", topic_id=TOPIC_ID)
    put_consumer_offsets(second, coordinator_batches((commit_key(), commit_value(offset, timestamp=RECORDED_MS + at_ms))))
    for log_dir in (first, second):
        (log_dir / ".kafka_cleanshutdown").write_bytes(b"{}")
    controllers = ControllerLog().lead([CONTROLLER]).append(topic())
    controllers.append(partition([*isr], isr[0], replicas=[1, 2])).put(root / f"c{CONTROLLER}")
    return sorted(root.iterdir())


OF_T = {"topic_glob": "t"}
MARKED: dict[str, tuple[Any, ...]] = {
    "a member of the ISR": (),
    "the only one": (2, False, True, 2, (1,)),
    "not completed": (2, False, False),
    "a marker of whatever transaction": (0,),
    "another log": (2, True),
    "a controllers' log older than the marker": (2, False, True, 1.0),
    "nobody who may be elected": (2, False, True, 2, (2, 3)),
    "not stopped cleanly": (2, False, True, 2, (1, 2), False),
}
for words, values in MARKED.items():
    scene(f"short of a marker: {words}", short_of_a_marker, *values, options=(OF_T, OF_T | LIVE) if not values else (OF_T,))
COMMITS: dict[str, tuple[int, int, Sequence[int]]] = {
    "in sync": (8, 100, (1, 2)),
    "alone in sync": (8, 100, (1,)),
    "not in sync": (8, 100, (2,)),
    "it has them": (6, 100, (1, 2)),
    "older than the record": (8, -100, (1, 2)),
    "beyond every log": (10, 100, (1, 2)),
}
for words, values in COMMITS.items():
    scene(f"short of a group's offset: {words}", short_of_a_commit, *values, options=(OF_T,))

# Logs whose producers a broker cannot replay at its start.

OTHER_PRODUCER = 7001


def data(offset: int, producer: int = 7000, *, is_transactional: bool = True) -> bytes:
    return producer_batch(offset, "x" * 40, sequence=offset, producer=producer, key=None, is_transactional=is_transactional)


def abort(offset: int, producer: int = 7000) -> bytes:
    return marker(offset, commit=False, producer=producer)


def control(offset: int, key: bytes, value: bytes) -> bytes:
    numbers: Options = {"producer_id": 7000, "producer_epoch": 0, "is_transactional": True, "is_control_batch": True}
    return write_batch([RecordToWrite(key, value)], base_offset=offset, base_timestamp=RECORDED_MS, **numbers)


OUTSIDE = (data(0), data(1, is_transactional=False))
REPLAYED = {
    "ordinary transactions": (
        data(0), data(1, OTHER_PRODUCER), abort(2), data(3), abort(4, OTHER_PRODUCER), data(5, 9, is_transactional=False), abort(6)
    ),
    "outside of the transaction": OUTSIDE,
    "key of a marker": (data(0), control(1, b"\0\0", bytes(6))),
    "value of a marker": (data(0), control(1, bytes(4), b"\0\0")),
    "type of a marker": (data(0), control(1, b"\0\0\0\2", bytes(6))),
    "markers of aborts that go back": (data(0), data(1, OTHER_PRODUCER), abort(2), abort(2, OTHER_PRODUCER)),
    "behind damage": (data(0), flip_bit(data(1, OTHER_PRODUCER), 70), data(2, is_transactional=False)),
}  # fmt: skip
for words, batches in REPLAYED.items():
    scene(f"replayed: {words}", lambda root, log: [put_replica(root, 1, log)], b"".join(batches))


def main() -> None:
    """Write `answers.json`."""
    by_scene = {}
    for name in SCENES:
        with tempfile.TemporaryDirectory() as folder:
            by_scene[name] = answers(name, Path(folder))
    write_answers(ANSWERS, by_scene, depth=4)


if __name__ == "__main__":
    main()
