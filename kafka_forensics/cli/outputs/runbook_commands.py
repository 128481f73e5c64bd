"""What the commands of runbooks are made of: bash with names and paths in variables, each filled as far as it is known."""

import re
import shlex
from collections.abc import Iterable, Iterator
from typing import Final
from zlib import crc32

from kafka_forensics.cli.streams import printable
from kafka_forensics.questions.places import BrokerPlace
from kafka_forensics.replication.planner import Broker

_LETTERS: Final = 24
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9]")
ON: Final = 'on() { host=$1; shift; ssh "$host" "$(printf \'%q \' "$@")"; }  # runs a command there'


def shell(*lines: str) -> str:
    """A block of commands."""
    return "\n```sh\n" + "".join(f"{line}\n" for line in lines) + "```\n"


def one_by_one(*lines: str) -> str:
    """Commands of which each is run only if the one before did what it should, also if they are pasted."""
    return shell(*(f"{line} &&" for line in lines[:-1]), *lines[-1:])


def name_of(broker: Broker) -> str:
    """A broker's name in names of variables, and of files."""
    if isinstance(broker, int):
        return str(broker)
    return f"{_UNSAFE.sub('_', broker)[-_LETTERS:]}_{crc32(broker.encode('utf-8', 'surrogateescape')):08x}"


def log_dir_variables(place: BrokerPlace, what: str = "LOGS") -> list[str]:
    """Variables of a broker's log directories, or of `what` there is of them."""
    names = [f"{what}_{name_of(place.broker)}"]
    return [*names, *(f"{names[0]}_{number}" for number in range(2, len(place.log_dirs) + 1))]


def place_variables(places: Iterable[BrokerPlace]) -> Iterator[str]:
    """A line for the host of each broker, and for each of its log directories."""
    for place in places:
        yield f"HOST_{name_of(place.broker)}={told(place.host)}  # broker {printable(str(place.broker))}"
        for variable, (source, path) in zip(log_dir_variables(place), place.log_dirs, strict=True):
            yield f"{variable}={told(path)}  # {printable(source)}"


OF_BROKERS: Final = (
    "SUDO='sudo'  # who may read and write log directories; empty if you may",
    "START='sudo systemctl start kafka'  # how a broker is started",
    "STOP='sudo systemctl stop kafka'  # and stopped",
)


def told(value: str | None) -> str:
    """A value as a shell takes it, nothing if it is not known or cannot be shown."""
    return shlex.quote(value) if value is not None and value == printable(value) else ""


def host(broker: Broker) -> str:
    """The variable that holds a broker's host; a command fails where it is not filled in."""
    return f'"${{HOST_{name_of(broker)}:?}}"'


def _topic_id_variable(topic: str) -> str:
    return f"TOPIC_ID_{name_of(topic)}"


def asking_topic_id(topic: str) -> tuple[str, str]:
    """The command that asks a broker for a topic's id, and the variable to fill in with what it shows."""
    asked = f'kafka-topics.sh --bootstrap-server "${{BOOTSTRAP:?}}" --describe --topic {shlex.quote(topic)}'
    return asked, f"{_topic_id_variable(topic)}=  # what it shows as TopicId: of {topic}"


def topic_id_filled_in(topic: str) -> str:
    """The variable; a command fails where it is not filled in."""
    return f'"${{{_topic_id_variable(topic)}:?}}"'


def partition_metadata(topic: str, topic_id: str | None) -> str:
    """The lines of a `partition.metadata` as a shell takes them, with the id that is known, or else filled in; they are expanded
    before anything is written."""
    known = topic_id_filled_in(topic) if topic_id is None else shlex.quote(topic_id)
    return f"$'version: 0\\ntopic_id: '{known}"


def tars(place: BrokerPlace, where: str = "SAFE") -> Iterator[tuple[str, str]]:
    """Of each log directory of a broker its variable, and its copy in a directory, as a shell takes them."""
    for number, variable in enumerate(log_dir_variables(place), 1):
        copy = f"broker-{name_of(place.broker)}.tar" if number == 1 else f"broker-{name_of(place.broker)}-{number}.tar"
        yield f"${{{variable}:?}}", f'"${{{where}:?}}/{copy}"'


def copying(places: Iterable[BrokerPlace], where: str, *, stop: bool) -> Iterator[str]:
    """Commands that copy log directories to a directory, and look whether the copies are whole."""
    for place in places:
        if stop:
            yield f"on {host(place.broker)} $STOP"
        for variable, copy in tars(place, where):
            yield f'on {host(place.broker)} $SUDO tar -C "{variable}" -cf - . > {copy}'
            yield f"tar -tf {copy} > /dev/null"


def way_back(places: Iterable[BrokerPlace]) -> Iterator[str]:
    """The last section: how all becomes what it was when it was copied."""
    yield "\n## 5. The way back\n\n"
    yield (
        "At any time: stop all brokers, move what they made aside, and put the copies of step 1 in its place, as the user who owns"
        " the files. Where a log directory is a disk's mount point, move what is in it instead. Then all is as it was.\n"
    )
    lines = []
    for place in places:
        lines.append(f"on {host(place.broker)} $STOP")
        for variable, copy in tars(place):
            lines += [
                f"tar -tf {copy} > /dev/null",
                f'on {host(place.broker)} test ! -e "{variable}.failed"',
                f'on {host(place.broker)} $SUDO mv "{variable}" "{variable}.failed"',
                f'on {host(place.broker)} $SUDO mkdir "{variable}"',
                f'on {host(place.broker)} $SUDO tar -C "{variable}" -xpf - < {copy}',
            ]
    yield one_by_one(*lines)
    yield "\nThen begin again, with a new plan on the copies.\n"
