"""`leader-epoch-checkpoint`: the first offset of every leader epoch (LeaderEpochCheckpointFile, KIP-101)."""

from kafka_forensics.model.constants import INT64_MAX
from kafka_forensics.model.files import EpochEntry, LeaderEpochs
from kafka_forensics.parsers.bounded import parse_integer
from kafka_forensics.parsers.checkpoints.offsets import MAX_INT32, read_checkpoint
from kafka_forensics.storage.source import ByteFile


def parse_leader_epochs(file: ByteFile) -> LeaderEpochs:
    """Every readable line of a `leader-epoch-checkpoint`, in file order; no bytes at all are no entries.

    Whether epochs and offsets rise is not judged. Damage is `CHECKPOINT_MALFORMED`, see `checkpoints.read_checkpoint`.
    """
    entries: list[EpochEntry] = []

    def take(words: list[bytes]) -> str | None:
        if len(words) != 2:
            return "fields"
        leader_epoch = parse_integer(words[0], 0, MAX_INT32)
        start_offset = parse_integer(words[1], 0, INT64_MAX)
        if leader_epoch is None:
            return "epoch"
        if start_offset is None:
            return "offset"
        entries.append(EpochEntry(leader_epoch, start_offset))
        return None

    damage = read_checkpoint(file, take)
    return LeaderEpochs(entries, damage)
