"""Records of `__cluster_metadata` that stop a node: the checks that a controller makes when it applies a record to its state.

The checks are those of Kafka's managers (ReplicationControlManager, ClusterControlManager, AclControlManager, ScramControlManager,
ProducerIdControlManager, OffsetControlManager; their `replay` throws) and of the image that every node builds (TopicsDelta,
ClusterDelta, AclsDelta, MetadataBatchLoader). On a node with the controller role either ends the process. A node that is only a
broker continues without the record.
"""

from enum import IntEnum
from typing import Final

from msgspec import Struct, field

from kafka_forensics.model.controller import MetadataRecord, MetadataSnapshot
from kafka_forensics.model.json_objects import Json


class ApiKey(IntEnum):
    """Types of records that change what this package replays (MetadataRecordType)."""

    REGISTER_BROKER = 0
    UNREGISTER_BROKER = 1
    TOPIC = 2
    PARTITION = 3
    CONFIG = 4
    PARTITION_CHANGE = 5
    FENCE_BROKER = 7
    UNFENCE_BROKER = 8
    REMOVE_TOPIC = 9
    SCRAM_CREDENTIAL = 11
    FEATURE_LEVEL = 12
    PRODUCER_IDS = 15
    BROKER_REGISTRATION_CHANGE = 17
    ACL = 18
    REMOVE_ACL = 19
    REMOVE_SCRAM_CREDENTIAL = 22
    BEGIN_TRANSACTION = 23
    END_TRANSACTION = 24
    ABORT_TRANSACTION = 25
    REGISTER_CONTROLLER = 27
    CLEAR_ELR = 28
    UNREGISTER_CONTROLLER = 29


_IMAGE_EXCEPTION, _MANAGER_EXCEPTION = "IllegalStateException", "RuntimeException"
REPLAY_EXCEPTIONS: Final = {
    "directories_do_not_match_the_replicas": ("IllegalArgumentException", "InvalidReplicaDirectoriesException"),
    "a_fencing_value_is_unknown": (_IMAGE_EXCEPTION,),
    "the_acl_does_not_exist": (_IMAGE_EXCEPTION, _MANAGER_EXCEPTION),
    "the_broker_has_another_epoch": (_IMAGE_EXCEPTION, _MANAGER_EXCEPTION),
    "the_broker_is_not_registered": (_IMAGE_EXCEPTION, _MANAGER_EXCEPTION),
    "the_leader_recovery_state_is_unknown": ("IllegalArgumentException",),
    "the_topic_does_not_exist": ("NullPointerException", _MANAGER_EXCEPTION),
    "the_topic_to_remove_does_not_exist": (_MANAGER_EXCEPTION, "UnknownTopicIdException"),
}
"""Problem → the exceptions of a controller, which prints the first of them that occurs; for other problems a RuntimeException."""
RECOVERY_STATES: Final = frozenset({0, 1})
NO_CHANGE: Final = -1
MIGRATING: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""A replica's directory from before directories had ids; Kafka ignores directories that are all this (PartitionRegistration)."""


class _State(Struct):
    """The state after the records so far, as far as checks need it."""

    topics: dict[str, str] = field(default_factory=dict)
    """Topic id → name."""
    ids: dict[str, str] = field(default_factory=dict)
    partitions: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)
    """Topic id → partition → number of replicas and of directories; 0 directories fit any number of replicas."""
    brokers: dict[int, int] = field(default_factory=dict)
    """Broker → its epoch."""
    controllers: set[int] = field(default_factory=set)
    acls: set[str] = field(default_factory=set)
    credentials: set[tuple[str, int]] = field(default_factory=set)
    next_producer_id: int = -1


class MetadataChecks:
    """Takes records in offset order and returns for each why a node stops at it, None if it does not.

    After missing records and after an aborted transaction nothing is reported until a snapshot.
    """

    def __init__(self) -> None:
        self._state = _State()
        self._in_transaction = False
        self.is_known = True
        """Whether the state after the records so far is known."""

    def gap(self) -> None:
        """Note that records are missing here."""
        self.is_known = False

    def replace_state(self, snapshot: MetadataSnapshot) -> None:
        """Replace the state by that of a snapshot."""
        self._state, self._in_transaction = _State(), False
        self.is_known = all(record.problem is None for batch in snapshot.batches for _, record in batch.records)
        for batch in snapshot.batches:
            for _, record in batch.records:
                if record.fields is not None:
                    self._apply(record.api_key, record.fields)

    def step(self, record: MetadataRecord) -> str | None:
        """Check and apply a record. A node stops at its first problem; later records are checked as if it had continued."""
        if record.problem is not None:
            self.gap()
        fields = record.fields
        if fields is None or not self.is_known:
            return None
        problem = self._problem(record.api_key, fields)
        if record.api_key == ApiKey.ABORT_TRANSACTION and self._in_transaction:
            self.gap()  # the state before the transaction is not kept
        if record.api_key in (ApiKey.BEGIN_TRANSACTION, ApiKey.END_TRANSACTION, ApiKey.ABORT_TRANSACTION):
            self._in_transaction = record.api_key == ApiKey.BEGIN_TRANSACTION
        self._apply(record.api_key, fields)
        return problem

    def _problem(self, api_key: int, fields: Json) -> str | None:
        state = self._state
        wrong: str | bool | None = None
        match api_key:
            case ApiKey.TOPIC:
                wrong = fields["name"] in state.ids and "a_topic_of_this_name_exists"
            case ApiKey.CLEAR_ELR:
                wrong = fields["topic_name"] and fields["topic_name"] not in state.ids and "the_topic_does_not_exist"
            case ApiKey.REMOVE_TOPIC:
                wrong = fields["topic_id"] not in state.topics and "the_topic_to_remove_does_not_exist"
            case ApiKey.PARTITION | ApiKey.PARTITION_CHANGE:
                wrong = self._partition_problem(api_key, fields)
            case ApiKey.UNREGISTER_BROKER | ApiKey.FENCE_BROKER | ApiKey.UNFENCE_BROKER | ApiKey.BROKER_REGISTRATION_CHANGE:
                wrong = self._broker_problem(fields)
            case ApiKey.UNREGISTER_CONTROLLER:
                wrong = fields["controller_id"] not in state.controllers and "the_controller_is_not_registered"
            case ApiKey.PRODUCER_IDS:
                wrong = fields["next_producer_id"] <= state.next_producer_id and "the_next_producer_id_is_not_higher"
            case ApiKey.REMOVE_SCRAM_CREDENTIAL:  # bundles have no names of users
                wrong = fields["name"] and _credential(fields) not in state.credentials and "the_credential_does_not_exist"
            case ApiKey.REMOVE_ACL:
                wrong = fields["id"] not in state.acls and "the_acl_does_not_exist"
            case ApiKey.BEGIN_TRANSACTION:
                wrong = self._in_transaction and "a_transaction_is_open"
            case ApiKey.END_TRANSACTION | ApiKey.ABORT_TRANSACTION:
                wrong = not self._in_transaction and "no_transaction_is_open"
        return wrong if isinstance(wrong, str) and wrong else None

    def _partition_problem(self, api_key: int, fields: Json) -> str | None:
        if fields["topic_id"] not in self._state.topics:
            return "the_topic_does_not_exist"
        is_change = api_key == ApiKey.PARTITION_CHANGE
        if is_change and fields["partition_id"] not in self._state.partitions[fields["topic_id"]]:
            return "the_partition_does_not_exist"
        recovery = fields["leader_recovery_state"]
        if recovery not in RECOVERY_STATES and not (is_change and recovery == NO_CHANGE):
            return "the_leader_recovery_state_is_unknown"
        replicas, directories = self._sizes(api_key, fields)
        return "directories_do_not_match_the_replicas" if directories not in (0, replicas) else None

    def _sizes(self, api_key: int, fields: Json) -> tuple[int, int]:
        """The numbers of replicas and directories of a partition after a record."""
        replicas, directories = fields["replicas"], fields.get("directories")
        before = (0, 0)
        if api_key == ApiKey.PARTITION_CHANGE:
            before = self._state.partitions.get(fields["topic_id"], {}).get(fields["partition_id"], before)
        with_ids = [] if directories is None or set(directories) <= {MIGRATING} else directories
        return before[0] if replicas is None else len(replicas), before[1] if directories is None else len(with_ids)

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
        match api_key:
            case ApiKey.TOPIC:
                state.topics[fields["topic_id"]], state.ids[fields["name"]] = fields["name"], fields["topic_id"]
                state.partitions[fields["topic_id"]] = {}
            case ApiKey.PARTITION | ApiKey.PARTITION_CHANGE:
                sizes = self._sizes(api_key, fields)
                state.partitions.setdefault(fields["topic_id"], {})[fields["partition_id"]] = sizes
            case ApiKey.REMOVE_TOPIC:
                state.ids.pop(state.topics.pop(fields["topic_id"], ""), None)
                state.partitions.pop(fields["topic_id"], None)
            case ApiKey.REGISTER_BROKER:
                state.brokers[fields["broker_id"]] = fields["broker_epoch"]
            case ApiKey.UNREGISTER_BROKER:
                state.brokers.pop(fields["broker_id"], None)
            case ApiKey.REGISTER_CONTROLLER:
                state.controllers.add(fields["controller_id"])
            case ApiKey.UNREGISTER_CONTROLLER:
                state.controllers.discard(fields["controller_id"])
            case ApiKey.PRODUCER_IDS:
                state.next_producer_id = fields["next_producer_id"]
            case ApiKey.SCRAM_CREDENTIAL:
                state.credentials.add(_credential(fields))
            case ApiKey.REMOVE_SCRAM_CREDENTIAL:
                state.credentials.discard(_credential(fields))
            case ApiKey.ACL:
                state.acls.add(fields["id"])
            case ApiKey.REMOVE_ACL:
                state.acls.discard(fields["id"])


def _credential(fields: Json) -> tuple[str, int]:
    return fields["name"], fields["mechanism"]
