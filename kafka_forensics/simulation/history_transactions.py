"""Transactions told while they are played: what clients ask the coordinator for, and what becomes of it."""

from kafka_forensics.simulation import transactions
from kafka_forensics.simulation.cluster import ABORT, COMMIT, Partition, Sent
from kafka_forensics.simulation.history import History, named
from kafka_forensics.simulation.producers import Producer, number
from kafka_forensics.simulation.transactions import FENCED, INVALID, OK, Coordinator

_MARKERS = {True: COMMIT, False: ABORT}


def begin(h: History, producer: Producer, *, note: str = "") -> None:
    """A client takes its producer id and a new epoch."""
    done = transactions.init_producer_id(h.cluster, coordinator_of(h), producer)
    said = f"has epoch {producer.producer_epoch} of producer {producer.producer_id}" if done == OK else "has to wait for its epoch"
    h.tell(f"{producer.transactional_id} {said}{note}")


def write(h: History, partition: Partition, producer: Producer, *, named_before: bool = True, note: str = "") -> Sent:
    """A record of a transaction; `named_before`: its partition is named to the coordinator first, as clients do once in each."""
    coordinator = coordinator_of(h)
    if named_before and transactions.add_partitions(h.cluster, coordinator, producer, [partition.name]) != OK:
        ids = h.cluster.new_ids(1)
        h.tell(f"{producer.transactional_id} may not write {named(ids)}: it is fenced{note}")
        return Sent(partition.name, ids, -1, partition.leader, partition.leader_epoch, FENCED)
    return _sent(h, partition, producer, transactions.write(h.cluster, coordinator, partition, producer), "writes", note)


def late(h: History, partition: Partition, producer: Producer, *, note: str = "") -> Sent:
    """A record that is on its way for long: it has its number, and arrives with `arrive`."""
    ids = h.cluster.new_ids(1)
    number(producer, partition, ids)
    h.tell(f"{producer.transactional_id} sends {named(ids)} to {_place(partition)}, and the network keeps it{note}")
    return Sent(partition.name, ids, -1, partition.leader, partition.leader_epoch)


def arrive(h: History, partition: Partition, producer: Producer, sent: Sent, *, note: str = "") -> Sent:
    """A late record arrives."""
    done = transactions.write(h.cluster, coordinator_of(h), partition, producer, again=sent)
    h.tell(f"{named(sent.ids)} arrives at {_place(partition)}{_refusal(done)}{note}")
    return done


def end(h: History, producer: Producer, *, commit: bool, note: str = "") -> str:
    """A client ends its transaction, and the coordinator has the markers written."""
    name = str(producer.transactional_id)
    done = transactions.end_transaction(h.cluster, coordinator_of(h), name, producer.producer_epoch, commit=commit)
    verb = "commits" if commit else "aborts"
    h.tell(f"{name} {verb}{_markers(h, name, commit=commit) if done == OK else f': {_why(done)}'}{note}")
    transactions.begin_next(coordinator_of(h), producer)
    return done


def end_arrives(h: History, producer: Producer, *, commit: bool, note: str = "") -> str:
    """A late EndTxn of an earlier transaction arrives."""
    name = str(producer.transactional_id)
    done = transactions.end_transaction(h.cluster, coordinator_of(h), name, producer.producer_epoch, commit=commit)
    verdict = "commit" if commit else "abort"
    came = _markers(h, name, commit=commit) if done == OK else f": {_why(done)}"
    h.tell(f"the late {verdict} of {name} arrives{came}{note}")
    return done


def coordinator_of(h: History) -> Coordinator:
    """The coordinator, which such a history must have."""
    assert h.coordinator is not None
    return h.coordinator


def _sent(h: History, partition: Partition, producer: Producer, sent: Sent, verb: str, note: str) -> Sent:
    h.tell(f"{producer.transactional_id} {verb} {named(sent.ids)} to {_place(partition)}{_refusal(sent)}{note}")
    return sent


def _refusal(sent: Sent) -> str:
    return "" if sent.answer in ("waiting", "acknowledged") else f": {_why(sent.answer)}"


def _why(answer: str) -> str:
    return {FENCED: "refused, it is fenced", INVALID: "refused, there is no such transaction"}.get(answer, answer)


def _markers(h: History, name: str, *, commit: bool) -> str:
    """What the coordinator had written just now."""
    log = coordinator_of(h).log
    prepared = next(state for _, each, state in reversed(log) if each == name and state.state.startswith("Prepare"))
    where = " and ".join(f"{topic}-{number}" for topic, number in prepared.partitions)
    return f": {_MARKERS[commit]} in {where}"


def _place(partition: Partition) -> str:
    return f"{partition.topic}-{partition.number}"
