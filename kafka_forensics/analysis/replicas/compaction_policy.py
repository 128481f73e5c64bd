"""Whether a partition is compacted, by all of its replicas: each may have another witness, so one may know what others do not."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafka_forensics.analysis.replica import Replica


def is_compacted(*replicas: "Replica") -> bool:
    """Whether any of the replicas is known as compacted: a cleaner lists nothing else, and not to know of one proves nothing."""
    return any(replica.context.compacted for replica in replicas)


def replicas_disagree(replicas: "list[Replica]") -> str | None:
    """Who knows the partition as compacted and who does not, as a premise; None where all say the same."""
    knowing = [replica.broker for replica in replicas if replica.context.compacted]
    others = [replica.broker for replica in replicas if not replica.context.compacted]
    if not knowing or not others:
        return None
    return f"compacted by what is known of {_named(knowing)}; nothing says so of {_named(others)}"


def compaction_premise(replicas: "list[Replica]") -> str:
    """Where the cleanup policy came from, in one short line."""
    told = "compacted" if is_compacted(*replicas) else "not listed in cleaner-offset-checkpoint"
    return replicas_disagree(replicas) or told


def _named(brokers: list[int | str]) -> str:
    return f"broker{'s' if len(brokers) > 1 else ''} {', '.join(map(str, brokers))}"
