"""Records of the controllers' log, and why a controller stops at the last of them."""

from typing import Any, Final

from tests.gallery.of_controller import OTHER_ID
from tests.support.brokers import TOPIC_ID
from tests.support.controllers import broker_registration, partition, partition_change, raw_id, record, topic

ACL: Final[dict[str, Any]] = {"resource_type": 2, "resource_name": "t", "pattern_type": 3, "principal": "User:a", "host": "*",
       "operation": 3, "permission_type": 3}  # fmt: skip
KEY: Final[dict[str, Any]] = {"salt": "AAAA", "stored_key": "AAAA", "server_key": "AAAA", "iterations": 4096}
DIRECTORY: Final = bytes(15) + b"\x07"
MADE: Final = (topic(), partition([1, 2], 1))


def ids(next_id: int) -> bytes:
    return record(15, broker_id=1, broker_epoch=0, next_producer_id=next_id)


def acl(number: int) -> bytes:
    return record(18, id=bytes(15) + bytes([number]), **ACL)


BEGIN, END, ABORT = record(23, name="change"), record(24), record(25, reason="none")
CASES: Final[dict[str, tuple[tuple[bytes, ...], str | None]]] = {
    "a topic twice": ((topic(), topic()), "a_topic_of_this_name_exists"),
    "a topic of a name in use": ((topic(), topic(topic_id=OTHER_ID)), "a_topic_of_this_name_exists"),
    "a topic made anew": ((topic(), record(9, topic_id=raw_id(TOPIC_ID)), topic(topic_id=OTHER_ID)), None),
    "a partition of no topic": ((partition([1], 1),), "the_topic_does_not_exist"),
    "a partition twice": ((*MADE, partition([1, 2], 1)), None),
    "a partition twice, changed": ((*MADE, partition([1, 3], 1)), None),
    "a change of no topic": ((partition_change(leader=1),), "the_topic_does_not_exist"),
    "a change of no partition": ((*MADE, partition_change(partition_id=1, leader=1)), "the_partition_does_not_exist"),
    "a change of a partition": ((*MADE, partition_change(leader=2, isr=[2])), None),
    "an unknown recovery state": ((*MADE, partition_change(leader_recovery_state=7)), "the_leader_recovery_state_is_unknown"),
    "an unknown recovery state of a new partition": (
        (topic(), partition([1], 1, leader_recovery_state=7)), "the_leader_recovery_state_is_unknown"
    ),
    "fewer directories than replicas": (
        (topic(), partition([1, 2], 1, directories=[DIRECTORY])), "directories_do_not_match_the_replicas"
    ),
    "a change to fewer directories": (
        (*MADE, partition_change(replicas=[1, 2], directories=[DIRECTORY])), "directories_do_not_match_the_replicas"
    ),
    "a change of the directories to fewer than the replicas": (
        (*MADE, partition_change(directories=[DIRECTORY])), "directories_do_not_match_the_replicas"
    ),
    "a change of the replicas to more than the directories": (
        (topic(), partition([1, 2], 1, directories=[DIRECTORY] * 2), partition_change(replicas=[1, 2, 3])),
        "directories_do_not_match_the_replicas",
    ),
    "a change of the replicas where no directory has an id": (
        (topic(), partition([1, 2], 1, directories=[bytes(16)] * 2), partition_change(replicas=[1, 2, 3])), None
    ),
    "a change of the directories to none": (
        (
            *(topic(), partition([1, 2], 1, directories=[DIRECTORY] * 2)),
            *(partition_change(directories=[bytes(16)]), partition_change(replicas=[1, 2, 3])),
        ),
        None,
    ),
    "no topic to remove": ((record(9, topic_id=raw_id(OTHER_ID)),), "the_topic_to_remove_does_not_exist"),
    "a change of an unknown broker": ((record(17, broker_id=9, broker_epoch=0, fenced=-1),), "the_broker_is_not_registered"),
    "a change under another epoch": (
        (broker_registration(9, 3), record(17, broker_id=9, broker_epoch=4, fenced=-1)), "the_broker_has_another_epoch"
    ),
    "a change of a broker": ((broker_registration(9, 3), record(17, broker_id=9, broker_epoch=3, fenced=-1)), None),
    "an unknown fencing": (
        (broker_registration(9, 3), record(17, broker_id=9, broker_epoch=3, fenced=5)),
        "a_fencing_value_is_unknown",
    ),
    "an unknown broker is fenced": ((record(7, id=9, epoch=0),), "the_broker_is_not_registered"),
    "a broker is unfenced under another epoch": (
        (broker_registration(9, 3), record(8, id=9, epoch=4)),
        "the_broker_has_another_epoch",
    ),
    "no broker to unregister": ((record(1, broker_id=9, broker_epoch=0),), "the_broker_is_not_registered"),
    "a broker leaves under another epoch": (
        (broker_registration(9, 3), record(1, broker_id=9, broker_epoch=4)), "the_broker_has_another_epoch"
    ),
    "a broker leaves": ((broker_registration(9, 3), record(1, broker_id=9, broker_epoch=3)), None),
    "producer ids that do not rise": ((ids(2000), ids(2000)), "the_next_producer_id_is_not_higher"),
    "producer ids that rise": ((ids(2000), ids(3000)), None),
    "no credential to remove": ((record(22, name="a", mechanism=1),), "the_credential_does_not_exist"),
    "a credential is removed": ((record(11, name="a", mechanism=1, **KEY), record(22, name="a", mechanism=1)), None),
    "no ACL to remove": ((acl(1), record(19, id=bytes(15) + b"\2")), "the_acl_does_not_exist"),
    "an ACL is removed": ((acl(1), record(19, id=bytes(15) + b"\1")), None),
    "a transaction in a transaction": ((BEGIN, topic(), BEGIN), "a_transaction_is_open"),
    "an end of no transaction": ((END,), "no_transaction_is_open"),
    "an abort of no transaction": ((ABORT,), "no_transaction_is_open"),
    "what was aborted is made anew": ((BEGIN, topic(), ABORT, topic()), None),
    "a committed transaction": ((BEGIN, *MADE, END, partition_change(leader=2)), None),
    "ELRs of no topic are cleared": ((record(28, topic_name="none"),), "the_topic_does_not_exist"),
    "no controller to unregister": ((record(29, controller_id=9),), "the_controller_is_not_registered"),
}  # fmt: skip

"""Case → the values, and why the last of them cannot be applied; None if it can."""
