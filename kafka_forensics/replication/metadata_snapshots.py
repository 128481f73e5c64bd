"""What the controller's log does with its own snapshots when it is opened (KafkaRaftLog): check 42 of docs/recovery.md."""

from dataclasses import dataclass

from kafka_forensics.replication.recovery_facts import METADATA_SNAPSHOT, LogFacts, Step

FINISHED, PARTIAL, DELETED = ".checkpoint", ".checkpoint.part", ".checkpoint.deleted"


@dataclass(frozen=True, slots=True)
class SnapshotOutcome:
    """Steps in order; `refused`: the node does not start; `start_at`: the log is emptied and begins at this offset."""

    steps: tuple[Step, ...] = ()
    refused: bool = False
    start_at: int | None = None


def snapshot_outcome(log: LogFacts, start: int, end: int) -> SnapshotOutcome:
    """What becomes of the snapshots of a log that was loaded as `[start, end)`.

    Unfinished ones, those marked to be deleted and those below the log start go. A log that does not begin at 0 needs one at or
    above its start, or the node does not start. The latest (by epoch, then offset) takes the log's place if it is of a later epoch
    than the log's last, or of the same and behind the log's end: a follower that crashed between fetching it and cutting
    (KafkaRaftLog.createLog).
    """
    found = sorted((_epoch(name), _offset(name), name) for name in log.files if _is_snapshot(name))
    doomed = [name for _, offset, name in found if not name.endswith(FINISHED) or offset < start]
    kept = [one for one in found if one[2] not in doomed]
    if start > 0 and (not kept or kept[-1][1] < start):
        return SnapshotOutcome((Step(METADATA_SNAPSHOT, "refuse", kept[-1][2] if kept else "", start),), refused=True)
    steps = [Step(METADATA_SNAPSHOT, "delete", name) for name in sorted(doomed)]
    if not kept:
        return SnapshotOutcome(tuple(steps))
    epoch, offset, latest = kept[-1]
    own = max((entry.leader_epoch for entry in log.epochs if entry.start_offset < end), default=0)
    if epoch < own or (epoch == own and offset <= end):
        return SnapshotOutcome(tuple(steps))
    steps.append(Step(METADATA_SNAPSHOT, "truncate", "", offset))
    steps += [Step(METADATA_SNAPSHOT, "rename", name, to=f"{name}.deleted") for _, _, name in kept if name != latest]
    return SnapshotOutcome(tuple(steps), start_at=offset)


def _is_snapshot(name: str) -> bool:
    digits = name[:20] + name[21:31]
    named = len(name) > 31 and name[20] == "-" and digits.isascii() and digits.isdigit()
    return named and name.endswith((FINISHED, PARTIAL, DELETED))


def _offset(name: str) -> int:
    return int(name[:20])


def _epoch(name: str) -> int:
    return int(name[21:31])
