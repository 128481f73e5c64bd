"""What to say when nothing is what was asked for: the option, and the nearest name that is there."""

import logging
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

from kafka_forensics.errors import UsageError, nearest
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import Place

TopicPartition = tuple[str, int]

_NAMES_LISTED: Final = 12


def require_match(there: Iterable[tuple[int | str, TopicPartition]], brokers: Iterable[int | str], options: ScanOptions) -> None:
    """Raise UsageError if no partition that is `there` (on which broker) is asked for, though some are asked for."""
    asked = options.broker
    names = list(dict.fromkeys(str(broker) for broker in brokers))
    if asked is not None and asked not in names:
        near = nearest(asked, names)
        meant = f"did you mean --broker {near}? " if near else ""
        raise UsageError(f"nothing fits --broker {asked}: there is no such broker", hint=f"{meant}brokers here: {listed(names)}")
    if options.topic_glob is None and options.partition is None:
        return
    found = {one for broker, one in there if asked is None or str(broker) == asked}
    if not any(fits(one, options) for one in found):
        raise nothing_there(found, options)


def fits(topic_partition: tuple[str, int | None], options: ScanOptions) -> bool:
    """Whether topic and partition are asked for."""
    topic, partition = topic_partition
    if options.partition is not None and partition != options.partition:
        return False
    return options.topic_glob is None or fnmatchcase(topic, options.topic_glob)


def concerns(place: Place, options: ScanOptions) -> bool:
    """Whether a place may be of a partition and of a broker that are asked for: all that names no other."""
    if options.broker is not None and place.broker is not None and str(place.broker) != options.broker:
        return False
    if place.topic is None or place.partition is None:
        return True
    return fits((place.topic, place.partition), options)


def raise_unless_hidden(error: UsageError, *, hidden: bool) -> None:
    """Raise `error`; only a note of it where what was asked for may be `hidden` in what could not be read."""
    if not hidden:
        raise error
    hint = f"; {error.hint}" if error.hint else ""
    logging.getLogger(__name__).warning("note: in what could be read %s%s", error, hint)


def nothing_there(there: Iterable[TopicPartition], options: ScanOptions) -> UsageError:
    """What to say when no partition fits: the nearest that is there, and the others, those of internal topics last."""
    every = sorted(there, key=lambda one: (one[0].startswith("__"), one))
    if not every:
        return UsageError("no partition was found", hint="give log directories of brokers, or partition directories")
    wanted = "-".join(str(part) for part in (options.topic_glob, options.partition) if part is not None)
    named = (("--topic", options.topic_glob), ("--partition", options.partition), ("--broker", options.broker))
    given = " ".join(f"{option} {value}" for option, value in named if value is not None)
    names = [f"{topic}-{number}" for topic, number in every]
    by_name = dict(zip(names, every, strict=True)) | {topic: (topic, number) for topic, number in reversed(every)}
    near = nearest(wanted, by_name, cutoff=0.5)
    meant = "" if near is None else "did you mean --topic {} --partition {}? ".format(*by_name[near])
    kept = "" if options.broker is None else f" on broker {options.broker}"
    noun = "topic" if options.partition is None else "partition"
    return UsageError(f"nothing fits {given}: there is no {noun} {wanted!r}{kept}", hint=f"{meant}there is {listed(names)}")


def listed(names: Iterable[str]) -> str:
    """The first of many names, and how many more there are."""
    every = list(names)
    more = f" and {len(every) - _NAMES_LISTED} more" if len(every) > _NAMES_LISTED else ""
    return ", ".join(every[:_NAMES_LISTED]) + more
