"""Numbered steps of plans and salvages, each with the command that it needs. All of it is safe to print."""

import csv
import io
import os
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from kafka_forensics.cli.outputs.plan_words import brokers, capital
from kafka_forensics.cli.outputs.rows import markdown
from kafka_forensics.cli.outputs.words import extent_words, name
from kafka_forensics.cli.streams import PLAIN_WIDTH, command_lines, shown_command, wrapped
from kafka_forensics.model.amounts import plural
from kafka_forensics.model.findings import Finding, TopicPartition
from kafka_forensics.model.json_objects import Json, attributes, json_text, object_of
from kafka_forensics.model.recovered import PRODUCE_BACK
from kafka_forensics.model.safe_text import printable
from kafka_forensics.replication.planner import Broker
from kafka_forensics.wording import advice, message

_BYTES_A_MINUTE: Final = 3_000_000_000
"""Bytes that a broker's recovery reads in a minute, at 50 MB a second."""
_SERVER: Final = "--bootstrap-server HOST:PORT"
_CONTROLLER: Final = "--bootstrap-controller HOST:PORT"
DESCRIBE: Final = f"kafka-topics.sh {_SERVER} --describe"
ELECT_UNCLEANLY: Final = f"kafka-leader-election.sh {_SERVER} --election-type unclean"
_NAME_CONTROLLER: Final = f"kafka-metadata-quorum.sh {_CONTROLLER} describe --status"
_CONFIGS: Final = f"kafka-configs.sh {_CONTROLLER}"
OF_ALL_BROKERS: Final = f"{_CONFIGS} --broker-defaults --alter"
PLAN: Final = "plan.json"
"""The file of a plan in printed commands."""
_GROUPS_NAMED: Final = 3
"""Consumer groups that a command names; it selects more with an option."""
_NAMED: Final = 4
"""Runs of consecutive partitions that a sentence names; more are counted."""
_STEP: Final = attributes("kind text command brokers")


class OperatorStep(Struct, frozen=True):
    """One step; `kind` is for programs."""

    kind: str
    text: str
    command: str | None = None
    brokers: tuple[Broker, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    file: tuple[str, str] | None = None
    """Name and content of the file that its command reads, if there is one."""

    def document(self, minutes: int) -> Json:
        """The step in JSON; `minutes` is what its command may take."""
        keys = ("topic", "partition_start", "partition_end")
        runs = [dict(zip(keys, (topic, first, last + 1), strict=True)) for topic, first, last in _runs(self.partitions)]
        return {**object_of(_STEP, self), "limit_seconds": None if self.command is None else 60 * minutes, "partitions": runs}


def minutes_to_start(sizes: Iterable[int]) -> int:
    """How long a broker may take to start; `sizes` are the bytes that the recovery of each broker reads."""
    return 2 + max(sizes, default=0) // _BYTES_A_MINUTE


def steps_text(head: str, steps: Sequence[OperatorStep], width: int) -> Iterator[str]:
    """Numbered steps as text below `head`, each command below its step."""
    if steps:
        yield "\n"
        yield from wrapped(f"Steps. {head}", width)
    for number, step in enumerate(steps, 1):
        yield from wrapped(f"{number}. {step.text}", width, "   ")
        if step.command is not None:
            yield from (f"{line}\n" for line in shown_command(printable(step.command), width, 3))


def steps_markdown(head: str, steps: Sequence[OperatorStep]) -> Iterator[str]:
    """Numbered steps as a section of Markdown."""
    if steps:
        yield "\n## Steps\n" + (f"\n{markdown(head)}\n" if head else "")
    for number, step in enumerate(steps, 1):
        yield f"\n{number}. {markdown(step.text)}\n"
        if step.command is not None:
            indent = " " * len(f"{number}. ")
            lines = ["```sh", *command_lines(printable(step.command), PLAIN_WIDTH - len(indent)), "```"]
            yield "\n" + "".join(f"{indent}{line}\n" for line in lines)


def controllers_first(findings: Iterable[Finding]) -> Iterator[OperatorStep]:
    """What must be repaired before any controller starts, and so before any broker."""
    for finding in findings:
        place, evidence = finding.place, finding.evidence
        whose = evidence.get("leaders") or evidence.get("brokers") or ([] if place.broker is None else [place.broker])
        yield OperatorStep("controllers", f"{message(finding)} {advice(finding)} Then copy again.", None, tuple(whose))


def controllers_step(both: Sequence[Broker], who: str = "the controllers") -> OperatorStep:
    """Start the controllers, before any broker; `both` are nodes that are controllers and brokers."""
    text = f"Let {who} run"
    if both:
        text += (
            f". {capital(brokers(both))} {'is a controller' if len(both) == 1 else 'are controllers'}, too: start as many as a "
            "majority needs with process.roles=controller and only the controller's listener, and with their normal settings when "
            "their turn as a broker comes"
        )
    return OperatorStep("controllers", f"{text}. This names the controllers' leader:", _NAME_CONTROLLER, tuple(both))


def of_topics(topics: Collection[str], change: str) -> str:
    """The command that changes settings of topics, on running controllers."""
    return _for_each("--alter", topics, f" {change}")


def show_retention_command(topics: Collection[str]) -> str:
    """The command that shows retention settings of topics, on running controllers.

    Without `--all`, kafka-configs.sh would first ask for the list of topics, which controllers do not serve.
    """
    return f"{_for_each('--describe --all', topics)} | grep -e 'All configs' -e DYNAMIC_TOPIC_CONFIG:retention"


def _for_each(action: str, topics: Collection[str], change: str = "") -> str:
    command = f"{_CONFIGS} {action} --entity-type topics --entity-name"
    if len(topics) == 1:
        return f"{command} {shlex.join(topics)}{change}"
    return f'for topic in {shlex.join(topics)}; do {command} "$topic"{change}; done'


def _runs(partitions: Iterable[TopicPartition]) -> list[tuple[str, int, int]]:
    """(topic, first, last) of each run of consecutive partitions."""
    runs: list[tuple[str, int, int]] = []
    for topic, number in sorted(partitions):
        if runs and runs[-1][0] == topic and runs[-1][2] == number - 1:
            runs[-1] = topic, runs[-1][1], number
        else:
            runs.append((topic, number, number))
    return runs


def partitions_words(partitions: Sequence[TopicPartition]) -> str:
    """`audit-0 to audit-121`, `audit-0 to audit-121 and orders-3 (123 partitions)`, or `96 partitions of 16 topics`."""
    runs = _runs(partitions)
    if len(runs) > _NAMED:
        return extent_words(partitions)
    names = [name(topic, first) + ("" if first == last else f" to {name(topic, last)}") for topic, first, last in runs]
    text = " and ".join(", ".join(names).rsplit(", ", 1))
    return text if len(names) == 1 else f"{text} ({plural(len(partitions), 'partition')})"


def election_command(partitions: Sequence[TopicPartition], election_file: str) -> str:
    """The command that elects a leader uncleanly; for several partitions it reads the file that lists them."""
    if len(partitions) == 1:
        topic, number = partitions[0]
        return f"{ELECT_UNCLEANLY} --topic {shlex.quote(topic)} --partition {number}"
    return f"{ELECT_UNCLEANLY} --path-to-json-file {shlex.quote(election_file)}"


def election_json(partitions: Sequence[TopicPartition]) -> str:
    """The file that `election_command` names."""
    return json_text({"partitions": [{"topic": topic, "partition": partition} for topic, partition in partitions]}) + "\n"


def leader_lines(partitions: Sequence[TopicPartition], leader: Broker) -> str:
    """What `kafka-topics.sh --describe` prints of partitions that this broker leads, a line each, for `grep -F`."""
    return "".join(f"Topic: {topic}\tPartition: {partition}\tLeader: {leader}\t\n" for topic, partition in partitions)


def reset_command(offsets: Mapping[str, Mapping[TopicPartition, int]], file: str) -> str:
    """The command that sets committed offsets of groups on running brokers; more than one stand in `file`, see `reset_csv`."""
    groups = " ".join(f"--group {shlex.quote(group)}" for group in offsets) if len(offsets) <= _GROUPS_NAMED else "--all-groups"
    command = f"kafka-consumer-groups.sh {_SERVER} {groups} --reset-offsets --execute"
    rows = [(partition, offset) for of_group in offsets.values() for partition, offset in of_group.items()]
    if len(rows) > 1:
        return f"{command} --from-file {shlex.quote(file)}"
    (((topic, partition), offset),) = rows
    return f"{command} --topic {shlex.quote(f'{topic}:{partition}')} --to-offset {offset}"


def reset_csv(offsets: Mapping[str, Mapping[TopicPartition, int]]) -> str:
    """The file of `reset_command`: topic, partition and offset; before them the group, if there are several."""
    text = io.StringIO()
    for group, of_group in offsets.items():
        rows = [(*partition, offset) for partition, offset in of_group.items()]
        csv.writer(text, lineterminator="\n").writerows(rows if len(offsets) == 1 else [(group, *row) for row in rows])
    return text.getvalue()


def produce_command(directory: str) -> str:
    """The command that prints what would be produced again of the records in a directory; `--send` after it produces them."""
    script = os.path.join("./" if directory.startswith("-") else "", directory, PRODUCE_BACK)
    return f"python3 {shlex.quote(script)} --bootstrap-servers HOST:PORT"
