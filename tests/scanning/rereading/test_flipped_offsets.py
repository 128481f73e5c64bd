"""One bit of each byte of a base offset in logs of real brokers: every command answers as before, and a scan names the batch."""

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from kafka_forensics.errors import UsageError
from kafka_forensics.model.results import ReplicaSummary
from tests.scanning.witnesses.flipped_offsets import batches_of, changed, compared, flipped, found_offsets, planned, scanned
from tests.support.places import SAMPLES

BITS = (7, 0, 3, 1, 2, 5, 0, 6)
"""The bit that is flipped in each byte of a base offset."""


def answers_as_before(root: Path, log_dirs: str, directory: str, untouched: Path) -> None:
    """Flip a bit of each byte in the first, a middle and the last batch by turns, on each replica by turns."""
    topic, _, number = directory.rpartition("-")
    partition = int(number)
    paths = [str(path) for path in sorted(root.glob(log_dirs)) if path.is_dir()]
    older = [str(untouched / Path(path).relative_to(root)) for path in paths]
    holders = [Path(path) / directory for path in paths if (Path(path) / directory).is_dir()]
    alone = len(holders) == 1
    before = scanned(paths, topic, partition)
    end = before["replicas"][0].log_end_offset
    records = found_offsets(paths, topic, partition, end)
    sides = None if alone else compared(paths, topic, partition)
    for byte, bit in enumerate(BITS):
        holder = holders[(byte // 2) % len(holders)]
        batches = batches_of(holder)
        batch = batches[(0, len(batches) // 2, -1)[byte % 3]]
        broker = str(before["replicas"][holders.index(holder)].broker)
        losses = planned(paths, topic, partition, broker)
        with flipped(batch, byte, bit):
            after = scanned(paths, topic, partition)
            assert [as_alone(replica) for replica in after["replicas"]] == [as_alone(replica) for replica in before["replicas"]]
            differing = {str(replica.broker) for replica in after["replicas"] if replica.agreement_with_reference == "content"}
            assert differing <= {broker}, (byte, batch)
            assert after["high_watermark"] == before["high_watermark"]
            new = [finding for finding in after["findings"] if finding not in before["findings"]]
            assert [(finding[0], finding[1]) for finding in new] == [("OFFSET_DISCONTINUITY", broker)], (byte, batch)
            assert [finding for finding in before["findings"] if finding not in after["findings"]] == []
            assert planned(paths, topic, partition, broker) == losses
            assert found_offsets(paths, topic, partition, end) == records, (byte, batch)
            assert changed(older, paths, topic, partition) == []
            if alone:
                with pytest.raises(UsageError):
                    compared(paths, topic, partition)
            else:
                assert compared(paths, topic, partition) == sides


def as_alone(replica: ReplicaSummary) -> ReplicaSummary:
    """A replica without how it agrees with others."""
    return replace(replica, reference_broker=None, agreement_with_reference=None)


@pytest.mark.parametrize("directory", ["payments-0", "codec-gzip-0"])
def test_samples(tmp_path: Path, directory: str) -> None:
    for name in ("healthy", "untouched"):
        shutil.copytree(SAMPLES / "healthy", tmp_path / name)
    answers_as_before(tmp_path / "healthy", "broker-*", directory, tmp_path / "untouched")
