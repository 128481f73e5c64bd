"""Which nodes the controllers' quorum may elect as leader: a node needs the votes of a majority of the voters, and no voter votes
for a log that is less up-to-date than its own (KIP-595; KafkaRaftClient, UnattachedState)."""

from collections.abc import Sequence

from kafka_forensics.model.controller import QuorumLog


def possible_leaders(logs: Sequence[QuorumLog]) -> list[QuorumLog]:
    """The nodes that may be elected among those of `logs`, one for each node; the majority is of the voters in a node's own log."""

    def can_win(candidate: QuorumLog) -> bool:
        voters = candidate.voters
        if voters is None or not voters.has(candidate.node, candidate.directory_id):
            return False
        votes = sum(voters.has(log.node, log.directory_id) and log.rank <= candidate.rank for log in logs)
        return votes >= voters.majority

    return [log for log in logs if can_win(log)]
