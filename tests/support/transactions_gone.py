"""A cluster on which one partition has no transaction left, though a decision to commit lists it."""

from pathlib import Path

from kafka_forensics.writers.files import write_offset_checkpoint, write_partition_metadata
from tests.support.controller_log import CONTROLLER, ControllerLog, partition, topic
from tests.support.faults import TOPIC_ID
from tests.support.transaction_histories import ABORT, COMMIT, ended
from tests.support.transaction_logs import BROKERS, OTHER, CoordinatorLog, DataLog, ms, write_cluster


def copies(root: Path, *, commit: bool = True, clean: bool = True, start: int = 0, topic_id: str = TOPIC_ID) -> list[Path]:
    """Three brokers: `t-0` as the coordinator decided, and `t-1`, which the decision lists too, empty from offset `start` on."""
    state = CoordinatorLog()
    state.transaction(0, (0,), commit=True, name=OTHER)
    state.transaction(30, (0, 1), commit=commit)
    state.transaction(60, (0,), commit=True, name=OTHER)
    logs = {"t-0": ended(30, COMMIT if commit else ABORT), "t-1": DataLog(next_offset=start), "__transaction_state-0": state}
    paths = write_cluster(root, logs, clean=clean)
    for path in paths:
        starts = {("t", 0): 0, ("t", 1): start, ("__transaction_state", 0): 0}
        (path / "log-start-offset-checkpoint").write_bytes(write_offset_checkpoint(starts))
        for name in ("t-0", "t-1"):
            (path / name / "partition.metadata").write_bytes(write_partition_metadata(topic_id))
            if start and name == "t-1":
                for file in (path / name).glob(f"{0:020d}.*"):
                    file.rename(file.with_name(f"{start:020d}{file.suffix}"))
    return paths


def controller(root: Path, created: float, isr: tuple[int, ...] = BROKERS) -> Path:
    """The controller's log of a topic that was created at second `created`, with these replicas in sync."""
    states = [partition(list(isr), isr[0], partition_id=number, replicas=[1, 2, 3]) for number in (0, 1)]
    return ControllerLog(start_ms=ms(created)).lead([CONTROLLER]).append(topic(), *states).put(root)
