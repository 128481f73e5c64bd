"""Brokers' log directories with one partition, for tests that compare replicas."""

from pathlib import Path


def put_replica(
    folder: Path,
    broker: int | str,
    log: bytes,
    *,
    partition: str = "orders-0",
    high_watermark: int = 0,
    base_offset: int = 0,
    topic_id: str | None = None,
) -> Path:
    """`folder/broker-N`, a log directory whose one segment is `log`; a broker that is no number has no `meta.properties`."""
    log_dir = folder / f"broker-{broker}"
    directory = log_dir / partition
    directory.mkdir(parents=True)
    (directory / f"{base_offset:020d}.log").write_bytes(log)
    if isinstance(broker, int):
        (log_dir / "meta.properties").write_text(f"version=1\nnode.id={broker}\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n")
    topic, _, number = partition.rpartition("-")
    (log_dir / "replication-offset-checkpoint").write_text(f"0\n1\n{topic} {number} {high_watermark}\n")
    if topic_id is not None:
        (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
    return log_dir
