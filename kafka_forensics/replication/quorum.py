"""Who may become the leader of the controllers' quorum: it takes votes of a majority of the voters, and nobody votes for a log that
is less up-to-date than its own (KIP-595; KafkaRaftClient, UnattachedState)."""

from collections.abc import Sequence

from kafka_forensics.model.controller import QuorumLog


def possible_leaders(logs: Sequence[QuorumLog]) -> list[QuorumLog]:
    """The nodes that the others of `logs`, one a node, may elect; a node stands for election by the voters that it knows itself."""
    return [log for log in logs if _has_majority(log, logs)]


def _has_majority(candidate: QuorumLog, logs: Sequence[QuorumLog]) -> bool:
    voters = candidate.voters
    if voters is None or not voters.has(candidate.node, candidate.directory_id):
        return False
    votes = [log for log in logs if voters.has(log.node, log.directory_id) and log.rank <= candidate.rank]
    return len(votes) >= voters.majority
