"""Records of `__cluster_metadata` over which a node stops: what a controller checks when it applies one to its state.

The checks are those of Kafka's managers (ReplicationControlManager, ClusterControlManager, AclControlManager, ScramControlManager,
ProducerIdControlManager, OffsetControlManager, whose `replay` throws) and of the image that every node builds (TopicsDelta,
ClusterDelta, AclsDelta, MetadataBatchLoader). On a node that is a controller, alone or beside a broker, either ends the process; a
node that is a broker alone goes on without the record.
"""

from dataclasses import dataclass, field
from typing import Final

from kafka_forensics.model.controller import MetadataRecord, MetadataSnapshot
from kafka_forensics.model.json_objects import Json

_TOPIC, _PARTITION, _CHANGE, _REMOVE_TOPIC = 2, 3, 5, 9
_REGISTER, _UNREGISTER, _REGISTER_CONTROLLER, _UNREGISTER_CONTROLLER = 0, 1, 27, 29
_FENCE, _UNFENCE, _REGISTRATION_CHANGE = 7, 8, 17
_PRODUCER_IDS, _CLEAR_ELR = 15, 28
_CREDENTIAL, _REMOVE_CREDENTIAL, _ACL, _REMOVE_ACL = 11, 22, 18, 19
_BEGIN, _END, _ABORT = 23, 24, 25
_OF_IMAGE, _OF_MANAGER = "IllegalStateException", "RuntimeException"
EXCEPTIONS: Final = {
    "directories_do_not_match_the_replicas": ("IllegalArgumentException", "InvalidReplicaDirectoriesException"),
    "a_fencing_value_is_unknown": (_OF_IMAGE,),
    "the_acl_does_not_exist": (_OF_IMAGE, _OF_MANAGER),
    "the_broker_has_another_epoch": (_OF_IMAGE, _OF_MANAGER),
    "the_broker_is_not_registered": (_OF_IMAGE, _OF_MANAGER),
    "the_leader_recovery_state_is_unknown": ("IllegalArgumentException",),
    "the_topic_does_not_exist": ("NullPointerException", _OF_MANAGER),
    "the_topic_to_remove_does_not_exist": (_OF_MANAGER, "UnknownTopicIdException"),
}
"""Problem → the exceptions of a controller that meets it, of which it prints the one that comes first; of all others a
RuntimeException."""
RECOVERY_STATES: Final = frozenset({0, 1})
NO_CHANGE: Final = -1
MIGRATING: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""The directory of a replica before directories have ids; where all are this, they count as none (PartitionRegistration)."""


@dataclass(slots=True)
class _State:
    """What the checks ask for of all that the records before say."""

    topics: dict[str, str] = field(default_factory=dict)
    """topic id → name."""
    ids: dict[str, str] = field(default_factory=dict)
    partitions: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)
    """topic id → partition → how many replicas and how many directories it has; no directories fit any replicas."""
    brokers: dict[int, int] = field(default_factory=dict)
    """broker → its epoch."""
    controllers: set[int] = field(default_factory=set)
    acls: set[str] = field(default_factory=set)
    credentials: set[tuple[str, int]] = field(default_factory=set)
    next_producer_id: int = -1


class MetadataChecks:
    """Records go in by offset; each gives why a node stops over it, None if it does not.

    Where records are missing, and after a transaction that was aborted, nothing is said until a snapshot states all anew.
    """

    def __init__(self) -> None:
        self._state = _State()
        self._in_transaction = False
        self.is_known = True
        """Whether all that the records before say is known."""

    def gap(self) -> None:
        """Some records are not known from here on."""
        self.is_known = False

    def restate(self, snapshot: MetadataSnapshot) -> None:
        """Begin with the state in a snapshot."""
        self._state, self._in_transaction = _State(), False
        self.is_known = all(record.problem is None for batch in snapshot.batches for _, record in batch.records)
        for batch in snapshot.batches:
            for _, record in batch.records:
                if record.fields is not None:
                    self._apply(record.api_key, record.fields)

    def step(self, record: MetadataRecord) -> str | None:
        """Apply a record. A node stops at the first that it cannot apply; those after it are judged as if it had gone on."""
        if record.problem is not None:
            self.gap()
        fields = record.fields
        if fields is None or not self.is_known:
            return None
        problem = self._problem(record.api_key, fields)
        if record.api_key == _ABORT and self._in_transaction:
            self.gap()  # what it undoes is not kept
        if record.api_key in (_BEGIN, _END, _ABORT):
            self._in_transaction = record.api_key == _BEGIN
        self._apply(record.api_key, fields)
        return problem

    def _problem(self, api_key: int, fields: Json) -> str | None:
        match api_key:
            case _ if api_key in (_TOPIC, _PARTITION, _CHANGE, _REMOVE_TOPIC, _CLEAR_ELR):
                return self._topic_problem(api_key, fields)
            case _ if api_key in (_UNREGISTER, _FENCE, _UNFENCE, _REGISTRATION_CHANGE):
                return self._broker_problem(fields)
            case _ if api_key == _UNREGISTER_CONTROLLER:
                return None if fields["controller_id"] in self._state.controllers else "the_controller_is_not_registered"
            case _ if api_key == _PRODUCER_IDS:
                return "the_next_producer_id_is_not_higher" if fields["next_producer_id"] <= self._state.next_producer_id else None
            case _ if api_key == _REMOVE_CREDENTIAL:
                known = not fields["name"] or _credential(fields) in self._state.credentials  # bundles name no user
                return None if known else "the_credential_does_not_exist"
            case _ if api_key == _REMOVE_ACL:
                return None if fields["id"] in self._state.acls else "the_acl_does_not_exist"
            case _ if api_key == _BEGIN:
                return "a_transaction_is_open" if self._in_transaction else None
            case _ if api_key in (_END, _ABORT):
                return None if self._in_transaction else "no_transaction_is_open"
            case _:
                return None

    def _topic_problem(self, api_key: int, fields: Json) -> str | None:
        state = self._state
        if api_key == _TOPIC:
            return "a_topic_of_this_name_exists" if fields["name"] in state.ids else None
        if api_key == _CLEAR_ELR:
            return "the_topic_does_not_exist" if fields["topic_name"] and fields["topic_name"] not in state.ids else None
        if fields["topic_id"] not in state.topics:
            return "the_topic_to_remove_does_not_exist" if api_key == _REMOVE_TOPIC else "the_topic_does_not_exist"
        if api_key == _REMOVE_TOPIC:
            return None
        if api_key == _CHANGE and fields["partition_id"] not in state.partitions[fields["topic_id"]]:
            return "the_partition_does_not_exist"
        recovery = fields["leader_recovery_state"]
        if recovery not in RECOVERY_STATES and not (api_key == _CHANGE and recovery == NO_CHANGE):
            return "the_leader_recovery_state_is_unknown"
        replicas, directories = self._sizes(api_key, fields)
        return "directories_do_not_match_the_replicas" if directories not in (0, replicas) else None

    def _sizes(self, api_key: int, fields: Json) -> tuple[int, int]:
        """How many replicas and directories a partition has once a record is applied to it."""
        replicas, directories = fields["replicas"], fields.get("directories")
        partitions = self._state.partitions.get(fields["topic_id"], {})
        before = partitions.get(fields["partition_id"], (0, 0)) if api_key == _CHANGE else (0, 0)
        given = [] if directories is None or set(directories) <= {MIGRATING} else directories
        return before[0] if replicas is None else len(replicas), before[1] if directories is None else len(given)

    def _broker_problem(self, fields: Json) -> str | None:
        broker, epoch = fields.get("broker_id", fields.get("id")), fields.get("broker_epoch", fields.get("epoch"))
        if broker not in self._state.brokers:
            return "the_broker_is_not_registered"
        if self._state.brokers[broker] != epoch:
            return "the_broker_has_another_epoch"
        if fields.get("fenced", 0) not in (-1, 0, 1) or fields.get("in_controlled_shutdown", 0) not in (0, 1):
            return "a_fencing_value_is_unknown"
        return None

    def _apply(self, api_key: int, fields: Json) -> None:
        state = self._state
        if api_key == _TOPIC:
            state.topics[fields["topic_id"]], state.ids[fields["name"]] = fields["name"], fields["topic_id"]
            state.partitions[fields["topic_id"]] = {}
        elif api_key in (_PARTITION, _CHANGE):
            state.partitions.setdefault(fields["topic_id"], {})[fields["partition_id"]] = self._sizes(api_key, fields)
        elif api_key == _REMOVE_TOPIC:
            state.ids.pop(state.topics.pop(fields["topic_id"], ""), None)
            state.partitions.pop(fields["topic_id"], None)
        elif api_key == _REGISTER:
            state.brokers[fields["broker_id"]] = fields["broker_epoch"]
        elif api_key == _UNREGISTER:
            state.brokers.pop(fields["broker_id"], None)
        elif api_key == _REGISTER_CONTROLLER:
            state.controllers.add(fields["controller_id"])
        elif api_key == _UNREGISTER_CONTROLLER:
            state.controllers.discard(fields["controller_id"])
        elif api_key == _PRODUCER_IDS:
            state.next_producer_id = fields["next_producer_id"]
        elif api_key == _CREDENTIAL:
            state.credentials.add(_credential(fields))
        elif api_key == _REMOVE_CREDENTIAL:
            state.credentials.discard(_credential(fields))
        elif api_key == _ACL:
            state.acls.add(fields["id"])
        elif api_key == _REMOVE_ACL:
            state.acls.discard(fields["id"])


def _credential(fields: Json) -> tuple[str, int]:
    return fields["name"], fields["mechanism"]
