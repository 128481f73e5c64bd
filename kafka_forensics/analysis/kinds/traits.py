"""Traits of kinds: what is true of every finding of a kind, and what other code decides by."""

from enum import StrEnum, auto


class Trait(StrEnum):
    """What is true of every finding of a kind; of damage that reading a log gives, too."""

    # bytes of a segment
    WRONG_BYTES = auto()
    """Bytes of a segment are wrong."""
    HIDES_OFFSETS = auto()
    """Whole batches may be there that were not read: nobody knows their offsets."""
    RECORDS_IN_DOUBT = auto()
    """Which records were there is in doubt: they were not read, or their checksum is wrong."""
    STOPS_READERS = auto()
    """Kafka finds no batch behind it in the segment."""
    IS_TAIL = auto()
    """A crash leaves it at the end of a log; it takes no whole batch with it."""
    CHECKSUM_MAY_BE_RIGHT = auto()
    """A batch can be wrong in this way though its checksum is right: then it is no good copy of another one."""
    HEADER_MISCOUNTS = auto()
    """The header of a batch is wrong about its records, which can be read all the same."""
    RECORDS_READ_ANYWAY = auto()
    """Damage in spite of which a search reads every record."""
    CUT_AFTER_CRASH = auto()
    """A start after a crash may cut the log there."""

    # offsets and epochs
    OUT_OF_ORDER = auto()
    """Offsets of batches do not ascend."""
    LACKS_OFFSETS = auto()
    """Offsets are missing between others, or whole segments."""
    LACKS_LOG_START = auto()
    """Offsets may be missing before the first batch."""
    CONTENT_IS_GONE = auto()
    """What was there cannot be compared any more: a good copy has to be of the same leader epochs."""
    MENDED_BY_COPY = auto()
    """Any replica that holds the same offsets whole can stand in for it."""
    LEFTOVERS_MAY_FILL = auto()
    """Files on their way out may hold its offsets."""
    CRITICAL_BELOW_HW = auto()
    """Critical if it begins below the high watermark."""
    EPOCH_IN_DOUBT = auto()
    """The leader epoch in a batch's header, which no checksum covers, may be wrong."""
    CONCERNS_EPOCHS = auto()
    """About the epochs of a log, or about a checkpoint, which may be theirs."""

    # replicas and committed records
    PARTS_REPLICAS = auto()
    """Replicas hold different records of the same offsets or keys."""
    IS_FORK = auto()
    """Logs part at an offset, and no version of the records is known to be lost."""
    NAMES_ONE_VERSION = auto()
    """Its holders are those of one version of the offsets that it gives."""
    HARMLESS_DIFFERENCE = auto()
    """Copies differ as Kafka lets them."""
    OFFSETS_WERE_THERE = auto()
    """Its offsets are known to have been there."""
    LOST_BY_ELECTION = auto()
    """A leader that lacks committed records was elected."""
    ELECTION_MAY_LOSE = auto()
    """A member of the ISR lacks committed records: its election loses them."""
    LOST_COMMITTED = auto()
    """Its offsets are committed, and lost if that is proven."""
    COMMITTED_AT_RISK = auto()
    """Its offsets may come to be lost, whoever holds them now."""
    ABSENT_OFFSETS = auto()
    """No copy has anything at its offsets."""

    # transactions and groups
    OPEN_TRANSACTION = auto()
    """A transaction has not ended: `read_committed` waits."""
    ONE_TRANSACTION = auto()
    """About one transaction, from its first offset to wherever the log ends."""
    FOLLOWS_TRANSACTION = auto()
    """Comes with a transaction that hangs or ended in two ways, on whichever replica that was found."""
    CONCERNS_GROUPS = auto()
    """About readers, and what they committed."""

    # files and witnesses
    CHECKPOINT_BEYOND_LOG = auto()
    """A checkpoint names an offset beyond the log, or beyond another checkpoint's."""
    SALVAGE_BUILDS_FILE = auto()
    """About an index, a snapshot or a checkpoint, which a salvage builds anew."""
    SPOILS_SALVAGE = auto()
    """No log that has it is salvaged, and none with damage."""
    CONTRADICTS_WITNESS = auto()
    """Witnesses from which an election is planned contradict each other, or the logs."""
    BEARS_ON_ELECTIONS = auto()
    """Decides, beside what contradicts a witness, which election loses what."""
    BEARS_ON_ALL_PARTITIONS = auto()
    """Found in no partition, it bears on those of its broker or cluster."""
    IS_BACKGROUND = auto()
    """Of info, and yet the likely reason of what is worse."""
    MAY_BE_OF_MOMENTS = auto()
    """Good files look like it if they were copied at different moments."""
    HARMLESS_IF_LIVE = auto()
    """About the end of a log or its small files: harmless if the broker ran while it was copied."""
