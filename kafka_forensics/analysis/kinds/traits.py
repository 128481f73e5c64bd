"""Traits of kinds of findings, by which other code decides."""

from enum import StrEnum, auto


class Trait(StrEnum):
    """A property of every finding of a kind, and of damage of that kind in a log."""

    # bytes of a segment
    WRONG_BYTES = auto()
    """Bytes of a segment are wrong."""
    HIDES_OFFSETS = auto()
    """There may be whole batches that were not read, at unknown offsets."""
    RECORDS_IN_DOUBT = auto()
    """Records were not read, or their checksum is wrong."""
    STOPS_READERS = auto()
    """Kafka finds no batch after it in the segment."""
    IS_TAIL = auto()
    """A crash leaves it at the end of a log; no whole batch is lost with it."""
    CHECKSUM_MAY_BE_RIGHT = auto()
    """A batch with a right checksum can be wrong in this way; then it is not a good copy of another batch."""
    HEADER_MISCOUNTS = auto()
    """The header of a batch miscounts its records, which can be read nevertheless."""
    RECORDS_READ_ANYWAY = auto()
    """Damage despite which a search reads every record."""
    CUT_AFTER_CRASH = auto()
    """A start after a crash may truncate the log there."""

    # offsets and epochs
    OUT_OF_ORDER = auto()
    """Offsets of batches do not ascend."""
    LACKS_OFFSETS = auto()
    """Offsets between others, or whole segments, are missing."""
    LACKS_LOG_START = auto()
    """Offsets may be missing before the first batch."""
    CONTENT_IS_LOST = auto()
    """Its records cannot be compared; a good copy must have the same leader epochs."""
    REPAIRED_BY_COPY = auto()
    """Any replica with all of the same offsets is a good copy."""
    LEFTOVERS_MAY_FILL = auto()
    """Files to be deleted may hold its offsets."""
    CRITICAL_BELOW_HW = auto()
    """Critical if it begins below the high watermark."""
    EPOCH_IN_DOUBT = auto()
    """A batch's leader epoch, which no checksum covers, may be wrong."""
    CONCERNS_EPOCHS = auto()
    """About the epochs of a log, or about a checkpoint that may have them."""

    # replicas and committed records
    PARTS_REPLICAS = auto()
    """Replicas hold different records at the same offsets or of the same keys."""
    IS_FORK = auto()
    """Logs diverge at an offset, and no version of the records is known to be lost."""
    NAMES_ONE_VERSION = auto()
    """Its holders hold one version of its offsets."""
    HARMLESS_DIFFERENCE = auto()
    """Copies differ in a way that Kafka allows."""
    OFFSETS_WERE_THERE = auto()
    """Its offsets are known to have existed."""
    LOST_BY_ELECTION = auto()
    """A leader that lacks committed records was elected."""
    ELECTION_MAY_LOSE = auto()
    """A member of the ISR lacks committed records, which its election would lose."""
    LOST_COMMITTED = auto()
    """Its offsets are committed; they are lost if the finding is proven."""
    COMMITTED_AT_RISK = auto()
    """Its offsets may be lost in the future, even if brokers hold them."""
    ABSENT_OFFSETS = auto()
    """No copy has its offsets."""

    # transactions and groups
    OPEN_TRANSACTION = auto()
    """A transaction has not ended, and `read_committed` waits."""
    ONE_TRANSACTION = auto()
    """About one transaction, from its first offset to the log end."""
    FOLLOWS_TRANSACTION = auto()
    """Accompanies a hanging transaction, or one with contradictory ends, found on any replica."""
    CONCERNS_GROUPS = auto()
    """About consumers and their committed offsets."""

    # files and witnesses
    CHECKPOINT_BEYOND_LOG = auto()
    """A checkpoint has an offset beyond the log end or beyond another checkpoint."""
    SALVAGE_BUILDS_FILE = auto()
    """About an index, snapshot or checkpoint, which a salvage rebuilds."""
    PREVENTS_SALVAGE = auto()
    """A log that has it, or is damaged, is not salvaged."""
    CONTRADICTS_WITNESS = auto()
    """Witnesses for the planning of elections contradict each other or the logs."""
    AFFECTS_ELECTIONS = auto()
    """Decides, like CONTRADICTS_WITNESS, which election loses what."""
    AFFECTS_ALL_PARTITIONS = auto()
    """Outside partitions, it concerns all partitions of its broker or cluster."""
    IS_BACKGROUND = auto()
    """Of severity `info`, but the likely cause of more severe findings."""
    MAY_BE_OF_MOMENTS = auto()
    """Good files that were copied at different times look the same."""
    HARMLESS_IF_LIVE = auto()
    """About the log end or small files: harmless if the broker ran during the copy."""
