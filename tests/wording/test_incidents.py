"""Incidents in words, for one partition, several and none; no loss is claimed without proof."""

import re
from itertools import product

import pytest
from msgspec.structs import replace

from kafka_forensics import wording
from kafka_forensics.model.findings import Broker, Confidence, Severity
from kafka_forensics.model.incidents import Cause, Incident, IncidentPartition


def incident(
    cause: Cause, lost_at_least: int = 0, lost_at_most: int = 0, *held_by: list[Broker], brokers: tuple[Broker, ...] = (2,)
) -> Incident:
    """An incident with one partition per list of holders."""
    partitions = [
        IncidentPartition("audit", number, 0, 0, None, None, None, None, holders) for number, holders in enumerate(held_by)
    ]
    holders = sorted({broker for brokers_of_partition in held_by for broker in brokers_of_partition}, key=str)
    facts = (Severity.CRITICAL, Confidence.PROVEN, None, None, None)
    return Incident(cause, *facts, list(brokers), lost_at_least, lost_at_most, None, None, holders, partitions, [0], {"X": 1})


TEMPLATE_FAULT = re.compile(r"[{}\[\]<>]|\bNone\b|  | [,;:]| \.\W|\.\.|\b1 (?:committed )?\w+s\b(?! only)")
"""Traces of an unfilled template, and a plural after the number 1."""
BROKERS: list[tuple[Broker, ...]] = [(), (2,), (1, 2), ("old",)]
HOLDERS: list[tuple[list[Broker], ...]] = [(), ([],), ([1],), ([1], []), ([1, 3], [3])]
LOSSES = [(0, 0), (0, 1), (0, 9), (1, 1), (3, 9)]


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_has_text(cause: Cause) -> None:
    for brokers, held_by, loss in product(BROKERS, HOLDERS, LOSSES):
        an_incident = incident(cause, *loss, *held_by, brokers=brokers)
        for text in (wording.incident_message(an_incident), wording.incident_advice(an_incident)):
            assert text.endswith("."), text
            assert re.match(r"[A-Z0-9]", text), text
            assert not TEMPLATE_FAULT.search(text), text
    assert re.fullmatch(r"[a-z][\w ,-]{5,60}", wording.incident_title(an_incident))


def test_only_proven_losses_are_claimed() -> None:
    unproven = wording.incident_message(incident(Cause.UNCLEAN_ELECTION, 0, 9, [2]))
    assert "may lack committed records" in unproven
    assert "At most 9 committed offsets are at risk; no loss is proven. Good copies are on broker 2 alone." in unproven
    proven = wording.incident_message(incident(Cause.UNCLEAN_ELECTION, 9, 9, [2]))
    assert "lacks committed records" in proven
    assert "9 committed offsets survive only on broker 2, and Kafka would truncate them there" in proven
    suspected = replace(incident(Cause.SHORT_REPLICA, 0, 9, [1]), confidence=Confidence.SUSPECTED)
    assert wording.incident_message(suspected).endswith("This is only suspected: a harmless cause can look the same.")


def test_losses_count_records_if_known_and_offsets_otherwise() -> None:
    an_incident = replace(incident(Cause.UNCLEAN_ELECTION, 9, 9, [2]), records_lost_at_least=1, records_lost_at_most=1)
    assert "1 committed record survives only on broker 2, and Kafka would truncate it there" in wording.incident_message(
        an_incident
    )
    only_markers = replace(an_incident, records_lost_at_least=0, records_lost_at_most=0)
    assert "9 committed offsets survive only on broker 2" in wording.incident_message(only_markers)
    proven_in_part = replace(an_incident, records_lost_at_least=0, records_lost_at_most=4)
    assert "9 committed offsets survive only on broker 2" in wording.incident_message(proven_in_part)


def test_the_first_step_protects_the_last_copy() -> None:
    one_holder = wording.incident_advice(incident(Cause.UNCLEAN_ELECTION, 9, 9, [2], [2]))
    assert one_holder.startswith("Leave broker 2 stopped until its log directories are copied elsewhere.")
    no_holder = wording.incident_advice(incident(Cause.REPLICAS_DIVERGE, 0, 9, [], []))
    assert no_holder.startswith("Keep every log directory and every backup as it is.")


def test_brokers_with_only_some_offsets_are_named_with_them() -> None:
    rows = [{"offset_start": 300, "offset_end": 340, "brokers": [1, 2]}, {"offset_start": 340, "offset_end": 370, "brokers": [1]}]
    an_incident = incident(Cause.UNCLEAN_ELECTION, 70, 70, [1, 2])
    an_incident.partitions[0] = replace(an_incident.partitions[0], held_ranges=rows)
    assert (
        "survive only on brokers 1 and 2 (offsets 300 to 339) and broker 1 (offsets 340 to 369), and"
        in wording.incident_message(an_incident)
    )
    several = incident(Cause.UNCLEAN_ELECTION, 70, 70, [1, 2], [1])
    assert "survive only on broker 1, some of them on broker 2, too, and" in wording.incident_message(several)
    rows[0]["brokers"], rows[1]["brokers"] = [2], []
    short = incident(Cause.SHORT_REPLICA, 0, 70, [2])
    short.partitions[0] = replace(short.partitions[0], held_ranges=rows)
    assert "Good copies are on broker 2 (offsets 300 to 339)." in wording.incident_message(short)


def test_hostile_names_are_escaped() -> None:
    an_incident = incident(Cause.DAMAGED_LOG, 0, 0, [1], brokers=("\x1b[31m{{ 7 * 7 }}",))
    an_incident.partitions[0] = replace(an_incident.partitions[0], topic="\x1b]0;x\x07{{ 7 * 7 }}")
    for text in (wording.incident_message(an_incident), wording.incident_advice(an_incident)):
        assert text.isprintable()
        assert "49" not in text
