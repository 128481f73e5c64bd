"""Brokers' log directories with one partition, for tests that compare replicas."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from kafka_forensics.model.files import EpochEntry
from kafka_forensics.writers.files import write_leader_epochs


def put_replica(
    folder: Path,
    broker: int | str,
    log: bytes | Mapping[int, bytes],
    *,
    partition: str = "orders-0",
    high_watermark: int = 0,
    base_offset: int = 0,
    topic_id: str | None = None,
    epochs: Sequence[tuple[int, int]] | None = None,
) -> Path:
    """`folder/broker-N`, a log directory whose segments are `log`, by base offset if there are several.

    `epochs` is its leader-epoch-checkpoint. A broker that is no number has no `meta.properties`.
    """
    log_dir = folder / f"broker-{broker}"
    directory = log_dir / partition
    directory.mkdir(parents=True)
    for offset, data in (log if isinstance(log, Mapping) else {base_offset: log}).items():
        (directory / f"{offset:020d}.log").write_bytes(data)
    if isinstance(broker, int):
        (log_dir / "meta.properties").write_text(f"version=1\nnode.id={broker}\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n")
    topic, _, number = partition.rpartition("-")
    (log_dir / "replication-offset-checkpoint").write_text(f"0\n1\n{topic} {number} {high_watermark}\n")
    if topic_id is not None:
        (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
    if epochs is not None:
        (directory / "leader-epoch-checkpoint").write_bytes(write_leader_epochs([EpochEntry(*entry) for entry in epochs]))
    return log_dir
