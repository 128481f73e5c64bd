"""An incident in words: its name, what happened, what to do first. The messages of its findings have the details."""

from typing import Final, NamedTuple

from kafka_forensics.model.findings import Broker, Confidence
from kafka_forensics.model.incidents import Cause, CountedLoss, Incident
from kafka_forensics.wording.kind_text import Value, fill_template
from kafka_forensics.wording.values import amount, brokers_by_range, listed, named_brokers, utc_time


class _IncidentText(NamedTuple):
    """A noun phrase, a sentence about what happened, and a first step that is always safe; the last two are templates."""

    title: str
    message: str
    advice: str


_GUARD: Final = "{{ guard }}"
_WEIGH: Final = f"{_GUARD} Then see what each election would lose."
_REPAIR: Final = (
    "{% if holders %} To repair a replica, stop its broker while a broker with a good copy leads the partition, move (never delete)"
    " the partition's directory out of its log directory, and let it copy the partition again.{% endif %}"
)

TEXTS: Final[dict[Cause, _IncidentText]] = {
    Cause.UNCLEAN_ELECTION: _IncidentText(
        "unclean election",
        "a leader was elected uncleanly instead of {{ brokers or 'the last leader' }} and"
        " {% if proven %}lacks{% else %}may lack{% endif %} committed records of {{ partitions }}",
        _WEIGH,
    ),
    Cause.LAST_REPLICA_ELECTED: _IncidentText(
        "last replica elected without its records",
        "{{ brokers or 'a broker' }} came back without committed records of {{ partitions }} and"
        " was elected as the last of the ISR",
        _WEIGH,
    ),
    Cause.REPLICAS_DIVERGE: _IncidentText(
        "replicas diverge",
        "the replicas of {{ partitions }} hold different records at the same offsets, and no file shows why",
        _WEIGH,
    ),
    Cause.LOG_DIRECTORY_MISSING: _IncidentText(
        "missing replicas",
        "{{ brokers or 'a broker' }} has no files of {{ partitions }}, although other files list its replicas",
        "Do not start {{ brokers or 'this broker' }} before the other replicas are copied elsewhere: it would start with empty"
        " logs. If the directory was copied only in part, use --partial.",
    ),
    Cause.SHORT_REPLICA: _IncidentText(
        "replica lacks committed records",
        "{{ brokers or 'a broker' }} lacks committed records of {{ partitions }}, as after a crash that lost its last writes,"
        " or if an older copy of its disk was restored",
        f"{_GUARD}{{% if brokers and holders %}} Do not let {{{{ brokers }}}} lead these partitions before a broker that has the"
        " records; `plan` prints the order of starts.{% endif %}",
    ),
    Cause.UNCLEAN_SHUTDOWN: _IncidentText(
        "unclean stop",
        "{{ brokers or 'a broker' }} was not shut down cleanly, and its next start would change its logs of {{ partitions }}",
        "Copy the log directories of {{ brokers or 'this broker' }} elsewhere before it starts.",
    ),
    Cause.DAMAGED_LOG: _IncidentText(
        "damaged segments",
        "segments of {{ partitions }} are damaged{% if brokers %} on {{ brokers }}{% endif %}",
        "Copy the log directories of {{ brokers or 'this broker' }} elsewhere before it starts: its start may cut the logs at"
        " the damage." + _REPAIR,
    ),
    Cause.DAMAGED_FILES: _IncidentText(
        "damaged index, snapshot or checkpoint",
        "indexes, snapshots or checkpoints of {{ partitions }} are damaged{% if brokers %} on {{ brokers }}{% endif %};"
        " segments are not",
        "Copy the log directories of {{ brokers or 'this broker' }} elsewhere before it starts; each finding states what its"
        " file costs.",
    ),
    Cause.TOPIC_RECREATED: _IncidentText(
        "topic ids disagree",
        "directories of {{ partitions }} belong to another topic with the same name{% if brokers %} ({{ brokers }}){% endif %}",
        "Copy the directories of every id elsewhere before any broker starts, and find out which id the cluster uses.",
    ),
    Cause.HANGING_TRANSACTION: _IncidentText(
        "hanging transactions",
        "transactions in {{ partitions }} are open, or have records after their marker, and no coordinator will end them",
        "Run kafka-transactions.sh find-hanging (Kafka 3.0 or later) for each; abort only those it lists.",
    ),
    Cause.TORN_TRANSACTION: _IncidentText(
        "transactions that ended in two ways",
        "transactions in {{ partitions }} did not end as their coordinator decided",
        "Keep every log directory and backup as it is; the coordinator's decision is in __transaction_state.",
    ),
    Cause.PRODUCER_SEQUENCE: _IncidentText(
        "producer sequences with gaps or repeats",
        "sequence numbers of producers in {{ partitions }} are not consecutive",
        "Compare with the other replicas, then with what the producers logged at that time.",
    ),
    Cause.READERS_HELD_BACK: _IncidentText(
        "consumers cannot read the newest records",
        "the high watermark of {{ partitions }} does not move, and consumers wait for it",
        "Find the member of the ISR that does not fetch, and why it does not.",
    ),
    Cause.OLDER_FORMAT: _IncidentText(
        "older message format",
        "a replica of {{ partitions }} has records in an older message format, without their headers or transactions",
        f"{_GUARD} Let a replica with the newer format lead, and let the other copy the partition again.",
    ),
    Cause.CLEANER_STOPPED: _IncidentText(
        "log cleaner that stopped",
        "{{ brokers or 'a broker' }} does not clean its compacted logs; other brokers cleaned the same logs further",
        "Find out from the server log of {{ brokers or 'this broker' }} why kafka-log-cleaner-thread ended. Restart the broker.",
    ),
    Cause.COMMITTED_LOST: _IncidentText(
        "committed records are lost",
        "{% if proven %}no copy has some committed records of {{ partitions }}"
        "{% else %}some committed records of {{ partitions }} may be in no copy{% endif %}, and no file shows why",
        "Look for further copies: other replicas, other log directories, backups, files ending in .deleted. Scan them together.",
    ),
    Cause.LOST_SINCE: _IncidentText(
        "committed records lost since the older snapshot",
        "committed records of {{ partitions }} that the older snapshot has are missing{% if brokers %} on {{ brokers }}{% endif %}",
        "Keep the older snapshot as it is: it has these records. A controller's log shows which brokers led since then.",
    ),
    Cause.MIXED_COPIES: _IncidentText(
        "copies that do not belong together",
        "the given copies are from different clusters, nodes or times, or include files that are not Kafka's",
        "Find out which copies belong together before you rely on the other findings.",
    ),
    Cause.UNREADABLE_RECORDS: _IncidentText(
        "records that could not be read",
        "records of {{ partitions }} could not be read; their content is unknown",
        "Scan again with the newest version of this tool and every replica of these partitions.",
    ),
    Cause.REMOTE_LOG: _IncidentText(
        "remote log with missing or wrong segments",
        "readers of {{ partitions }} do not get all records in remote storage, or get wrong records",
        "Delete nothing in the remote store, and stop everything that may delete there. Look for older versions of missing"
        " objects.",
    ),
    Cause.CONTROLLERS: _IncidentText(
        "controllers that must not start",
        "controllers lack records of {{ partitions }} that others have, or cannot apply one of its records",
        "Copy every log directory elsewhere first. Keep the controllers stopped until the problems in these findings are repaired.",
    ),
    Cause.SETTINGS: _IncidentText(
        "risky settings", "settings of {{ partitions }} allow a loss of records", "Check whether the topic needs safer settings."
    ),
}


_UNPROVEN_TITLES: Final = {
    Cause.COMMITTED_LOST: "committed records may be lost",
    Cause.LOST_SINCE: "committed records may be lost since the older snapshot",
}
"""Titles where no loss is proven."""
_ELECTION_CAUSES: Final = (Cause.UNCLEAN_ELECTION, Cause.LAST_REPLICA_ELECTED, Cause.REPLICAS_DIVERGE)
_COMMANDS: Final = {
    **dict.fromkeys(_ELECTION_CAUSES, "plan"),
    **dict.fromkeys((Cause.LOG_DIRECTORY_MISSING, Cause.SHORT_REPLICA, Cause.COMMITTED_LOST), "plan"),
    **dict.fromkeys((Cause.HANGING_TRANSACTION, Cause.TORN_TRANSACTION), "transactions"),
    Cause.READERS_HELD_BACK: "groups",
}


def incident_title(incident: Incident) -> str:
    """A short noun phrase."""
    title = TEXTS[incident.cause].title
    return title if incident.lost_at_least else _UNPROVEN_TITLES.get(incident.cause, title)


def incident_message(incident: Incident) -> str:
    """What happened and what it costs, in one to four sentences."""
    sentences = [_filled(TEXTS[incident.cause].message, incident), _loss(incident), _copies(incident)]
    if incident.confidence is Confidence.SUSPECTED:
        sentences.append("This is only suspected: a harmless cause can look the same.")
    return " ".join(sentence for sentence in sentences if sentence)


def incident_advice(incident: Incident) -> str:
    """What to do first."""
    return _filled(TEXTS[incident.cause].advice, incident)


def incident_precaution(incident: Incident) -> str:
    """What to do first other than keeping good copies safe and looking at elections; empty if there is nothing else."""
    template = TEXTS[incident.cause].advice
    return "" if template == _WEIGH else _filled(template.replace(_GUARD, ""), incident).removeprefix(".").strip()


def incident_command(incident: Incident) -> str | None:
    """The command that shows more about all its partitions at once; None if each has its own command."""
    return _COMMANDS.get(incident.cause)


def incident_time(incident: Incident) -> str | None:
    """`2026-11-21T03:56:10Z`, or first to last time; None if unknown."""
    if incident.from_ms is None or incident.to_ms is None:
        return None
    first, last = utc_time(incident.from_ms), utc_time(incident.to_ms)
    return first if first == last else f"{first} to {last}"


def incident_loss(counted: CountedLoss, incident: CountedLoss) -> tuple[int, int, str]:
    """The loss of an incident or of its partition `counted`: (at least, at most, noun). It counts committed records if these
    are known for the whole incident, else committed offsets."""
    least, most = incident.records_lost_at_least, incident.records_lost_at_most
    if least is None or most is None or (least == 0) != (incident.lost_at_least == 0) or most == 0:
        return counted.lost_at_least, counted.lost_at_most, "committed offset"
    return counted.records_lost_at_least or 0, counted.records_lost_at_most or 0, "committed record"


def _loss(incident: Incident) -> str:
    """A sentence about the loss, beginning with the number; empty without a loss."""
    least, most, noun = incident_loss(incident, incident)
    if not most:
        return ""
    if not least:
        return f"At most {amount(most, noun)} {'is' if most == 1 else 'are'} at risk; no loss is proven."
    number = amount(least, noun)
    if incident.cause is Cause.LOST_SINCE:
        more = f", and {most - least} more {'is' if most - least == 1 else 'are'} at risk" if least < most else ""
        return f"{number} {'is' if least == 1 else 'are'} in no copy of the newer snapshot{more}."
    if least < most:
        number = f"At least {least} and at most {amount(most, noun)}"
    survive, verb, pronoun = ("survives", "is", "it") if most == 1 else ("survive", "are", "them")
    holders = _common_holders(incident)
    if incident.cause in _ELECTION_CAUSES and holders:
        only_on = f"{survive} only on {_only_on(incident, holders)}"
        return f"{number} {only_on}, and Kafka would truncate {pronoun} there to match the new leader."
    if not incident.held_by:
        return f"{number} {verb} in no given copy."
    return f"{number} {verb} lost unless a replica with a good copy leads."


def _copies(incident: Incident) -> str:
    """A sentence about the holders of good copies; empty if `_loss` names them, or none are needed."""
    holders = _common_holders(incident)
    if holders:
        if incident.cause in _ELECTION_CAUSES and incident.lost_at_least:
            return ""
        in_part = brokers_by_range(incident.partitions[0].held_ranges) if len(incident.partitions) == 1 else None
        alone = " alone" if len(holders) == 1 else ""
        return f"Good copies are on {in_part or f'{named_brokers(holders)}{alone}'}."
    if incident.held_by:
        without = sum(not partition.held_by for partition in incident.partitions)
        rest = f"; for {amount(without, 'partition')} no good copy is known" if without else ""
        return f"Good copies are on {named_brokers(incident.held_by)}, each of some partitions{rest}."
    is_known = incident.lost_at_least or incident.cause is Cause.LOST_SINCE  # the older snapshot has them
    return "No good copy is known." if incident.lost_at_most and not is_known else ""


def _common_holders(incident: Incident) -> list[Broker]:
    """Brokers with a good copy of every partition."""
    every = [partition.held_by for partition in incident.partitions]
    return [broker for broker in (every[0] if every else []) if all(broker in held_by for held_by in every)]


def _only_on(incident: Incident, holders: list[Broker]) -> str | None:
    """The holders of what survives: of one partition by offsets, of several with those that hold only some of it."""
    if len(incident.partitions) == 1 and incident.partitions[0].held_ranges:
        return brokers_by_range(incident.partitions[0].held_ranges)
    others = [broker for broker in incident.held_by if broker not in holders]
    return f"{named_brokers(holders)}{f', some of them on {named_brokers(others)}, too' if others else ''}"


def _guard(incident: Incident) -> str:
    """What to keep stopped and to copy before any broker starts."""
    holders = _common_holders(incident)
    if len(holders) == 1:
        return (
            f"Leave {named_brokers(holders)} stopped until its log directories are copied elsewhere. Copy those of the other"
            " brokers, too, before any of them starts."
        )
    if not incident.held_by:
        return "Keep every log directory and every backup as it is. Copy them all elsewhere before any broker starts."
    return f"Copy the log directories of {named_brokers(incident.held_by)} elsewhere before any broker starts."


def _filled(template: str, incident: Incident) -> str:
    partitions = incident.partitions
    name = f"{len(partitions)} partitions" if partitions else "partitions"
    if len(partitions) == 1:
        name = f"{partitions[0].topic}-{partitions[0].partition}"
    values: dict[str, Value | str | bool | None] = {
        "brokers": named_brokers(incident.brokers),
        "guard": _guard(incident),
        "holders": listed(incident.held_by),
        "partitions": Value(name),
        "proven": incident.lost_at_least > 0,
    }
    text = fill_template(template, values.__getitem__)
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith(".") else ".")
