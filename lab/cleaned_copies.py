"""Compacted topics whose cleaners have been by, on each broker another number of times, and what is then done to the copies.

Keys are written many times and deleted in rounds. After each round the cleaner of one more broker is held, so that broker 1 has
cleaned last of all and takes tombstones that the others still have.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from lab.cluster import ADMIN_TIMEOUT_SECONDS, Cluster
from lab.files import copy_tree
from lab.jvm import wait_until
from lab.salvage_states import change, cut, delete_segment, flip, logs, positions
from lab.workload import SMALL_SEGMENTS, Message, Writer

BROKER_SETTINGS: Final = {
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.delete.retention.ms": "0",
    "log.cleaner.min.cleanable.ratio": "0.01",
}
CLEANED_WITHIN_SECONDS: Final = 60
KEYS: Final = 40
BATCHES: Final = 60
"""Of each round."""
DELETED: Final = 1 / 6
DIRTIEST: Final = "log.cleaner.min.cleanable.ratio"
SETTINGS: Final = {**SMALL_SEGMENTS, "cleanup.policy": "compact"}
ALWAYS: Final = {"min.cleanable.dirty.ratio": "0.01"}
"""Of a topic that a broker cleans whose cleaner is held for others."""


@dataclass(slots=True)
class Written:
    """What clients were told of a topic."""

    latest: dict[bytes, bytes | None] = field(default_factory=dict)
    """Key → newest value; None where it was deleted."""
    ever: dict[bytes, set[bytes | None]] = field(default_factory=dict)
    end: int = 0

    @property
    def there(self) -> dict[bytes, bytes]:
        """Key → value of all that were not deleted."""
        return {key: value for key, value in self.latest.items() if value is not None}


Harm = Callable[[Sequence[Path]], object]
"""What is done to the copies of brokers 1, 2 and 3."""


@dataclass(frozen=True, slots=True)
class CleanedState:
    """A topic; its name is the state's."""

    name: str
    harm: Harm
    settings: Mapping[str, str] = field(default_factory=dict)
    is_apart: bool = True
    """Whether its copies were cleaned to different points."""
    is_told: bool = True
    """Whether headers and copies that are alike prove a log without gaps."""


def batch_at(directory: Path, number: int) -> tuple[int, int]:
    """(segment, batch in it) of a batch of a sound copy, by its number in the log; the first thirty of each copy were cleaned."""
    places = [(segment, batch) for segment in range(len(logs(directory))) for batch in range(len(positions(directory, segment)))]
    return places[number]


def zero(directory: Path, number: int) -> None:
    """Overwrite a batch with zeros."""
    segment, batch = batch_at(directory, number)
    starts = [*positions(directory, segment), logs(directory)[segment].stat().st_size]
    low, high = starts[batch], starts[batch + 1]
    change(logs(directory)[segment], lambda data: data[:low] + bytes(high - low) + data[high:])


def _flips_in_each(copies: Sequence[Path]) -> None:
    """Bits are turned over in two batches of each that were cleaned, and broker 2's end is torn."""
    for number, directory in enumerate(copies):
        places = [batch_at(directory, 3 + number), batch_at(directory, 20 + number)]
        for place in places:
            flip(directory, *place)
    cut(copies[1], 9)


def _segments_gone(copies: Sequence[Path]) -> None:
    """Broker 1 lacks its first segment, broker 2 the end of its last; of broker 3 bits are turned over in two."""
    delete_segment(copies[0], 0)
    cut(copies[1], 700)
    places = [batch_at(copies[2], number) for number in (4, 12)]
    for place in places:
        flip(copies[2], *place)


def _zeros_and_a_segment(copies: Sequence[Path]) -> None:
    """Nothing but the index tells of a segment in the middle of broker 2's copy."""
    zero(copies[0], 3)
    logs(copies[1])[-2].unlink()
    flip(copies[2], *batch_at(copies[2], 9))


def _zeros_in_each(copies: Sequence[Path]) -> None:
    """No header is left of a batch of each."""
    for number, directory in enumerate(copies):
        zero(directory, 5 + 8 * number)


STATES: Final = (
    CleanedState("apart-flipped", _flips_in_each),
    CleanedState("apart-segments-gone", _segments_gone),
    CleanedState("alike-zeros", _zeros_and_a_segment, ALWAYS, is_apart=False),
    CleanedState("apart-zeros", _zeros_in_each, is_told=False),
)


def play(cluster: Cluster) -> dict[str, Written]:
    """Write all topics in three rounds, and have them cleaned by all brokers, by 1 and 2, and by 1 alone."""
    written = {state.name: Written() for state in STATES}
    for state in STATES:
        cluster.create_topic(state.name, settings={**SETTINGS, **state.settings})
    for turn, held in enumerate(((), (3,), (2, 3))):
        for broker in held:
            set_cleaner(cluster, broker, "1.0")
        for state in STATES:
            write_round(cluster, state, turn, written[state.name])
        for state in STATES:
            for broker in set(cluster.brokers) - set(held if state.is_apart else ()):
                await_cleaner(cluster, broker, state.name)
    return written


def write_round(cluster: Cluster, state: CleanedState, turn: int, written: Written) -> None:
    """Batches of one record up to eight of some keys, every sixth of which deletes its key; beside them keys that stay, and some
    that are deleted at once. Where copies are to be alike nothing is deleted: cleaners stamp what they keep of that with the time.
    """
    topic, dice, writer = state.name, random.Random(f"{state.name} {turn}"), Writer(cluster, linger_ms=5)
    for number in range(BATCHES):
        messages = [Message(dice.randbytes(30).hex().encode(), b"kept-%d-%d" % (turn, number))] if number % 2 else []
        for _ in range(dice.randint(1, 8)):
            key, value = b"key-%03d" % dice.randrange(KEYS), b"%s %d %s" % (topic.encode(), turn, dice.randbytes(60).hex().encode())
            messages.append(Message(None if state.is_apart and dice.random() < DELETED else value, key))
        soon_gone = state.is_apart and number % 3 == 0
        messages += [Message(b"soon deleted", b"gone-%d-%d" % (turn, number))] if soon_gone else []
        writer.batch(topic, messages)
        if soon_gone:
            messages.append(Message(None, messages[-1].key))
            writer.batch(topic, messages[-1:])
        for message in messages:
            written.latest[message.key or b""] = message.value
            written.ever.setdefault(message.key or b"", set()).add(message.value)
    written.end = writer.end_offset


def set_cleaner(cluster: Cluster, broker: int, ratio: str | None) -> None:
    """From which share of dirty bytes on a broker's cleaner comes by; None: as it was configured."""
    operation = AlterConfigOpType.DELETE if ratio is None else AlterConfigOpType.SET
    entry = ConfigEntry(DIRTIEST, ratio, incremental_operation=operation)
    resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[entry])
    admin = cluster.admin()
    admin.incremental_alter_configs([resource])[resource].result(ADMIN_TIMEOUT_SECONDS)


def await_cleaner(cluster: Cluster, broker: int, topic: str) -> None:
    """Wait until a broker has cleaned a topic up to its active segment, and put in place what it wrote."""
    directory = cluster.log_dir(broker) / f"{topic}-0"

    def is_clean() -> bool:
        active = int(logs(directory)[-1].stem)
        on_the_way = [path for path in directory.iterdir() if path.suffix in {".cleaned", ".swap"}]
        return cluster.checkpointed(broker, "cleaner-offset-checkpoint").get((topic, 0), 0) == active > 0 and not on_the_way

    wait_until(f"broker {broker} cleans {topic}", is_clean, timeout_seconds=CLEANED_WITHIN_SECONDS)


def copy_and_harm(cluster: Cluster, root: Path, sound: Path) -> None:
    """Kill all brokers, copy their log directories to `broker-1` … below both, stop the controllers; harm the copies in `root`."""
    cluster.kill(*cluster.brokers)
    for broker in cluster.brokers:
        for folder in (root, sound):
            copy_tree(cluster.log_dir(broker), folder / f"broker-{broker}")
    cluster.stop(*cluster.controllers)
    for state in STATES:
        state.harm([root / f"broker-{broker}" / f"{state.name}-0" for broker in cluster.brokers])
