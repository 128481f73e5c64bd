"""Kafka's shell scripts, which its jars do not include: each runs a main class of the jars."""

import shlex
import zipfile
from pathlib import Path
from typing import Final

from lab.jvm import KAFKA_SERVER, LEADER_ELECTION, QUICK_START, QUIET, STORAGE_TOOL

CONFIG_COMMANDS: Final = ("org.apache.kafka.tools.ConfigCommand", "kafka.admin.ConfigCommand")
"""The main class of `kafka-configs.sh`: since 4.4, and before."""
TOOLS: Final = {
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-dump-log.sh": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-get-offsets.sh": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-leader-election.sh": LEADER_ELECTION,
    "kafka-metadata-quorum.sh": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-storage.sh": STORAGE_TOOL,
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions.sh": "org.apache.kafka.tools.TransactionsCommand",
}
SERVER_TIMEOUT: Final = "4h"
"""A server that nobody stops ends after this time."""
START: Final = """#!/bin/sh
# Usage: kafka-server-start.sh [-daemon] FILE.properties; a daemon writes FILE.output and FILE.pid.
if [ "$1" = -daemon ]; then
  file="${{2%.properties}}"
  nohup timeout {timeout} {java} "$2" > "$file.output" 2>&1 &
  echo $! > "$file.pid"
else
  exec timeout --foreground {timeout} {java} "$1"
fi
"""
STOP: Final = """#!/bin/sh
# Usage: kafka-server-stop.sh FILE.properties...; ends the daemons and waits.
for properties; do
  file="${properties%.properties}"
  pid="$(cat "$file.pid")" && kill "$pid" && while kill -0 "$pid" 2> /dev/null; do sleep 0.2; done
  rm -f "$file.pid"
done
"""


def write_scripts(folder: Path, jars: Path) -> None:
    """Write Kafka's scripts into a folder, for the jars of any version since 3.9."""
    folder.mkdir(parents=True, exist_ok=True)
    tools = {name: _java(main_class, jars) for name, main_class in TOOLS.items()}
    tools["kafka-configs.sh"] = _java(_config_command(jars), jars)
    scripts = {name: f'#!/bin/sh\nexec {command} "$@"\n' for name, command in tools.items()}
    server = _java(KAFKA_SERVER, jars, QUIET.replace("warn", "info"), "-Xmx384m")
    scripts["kafka-server-start.sh"] = START.format(timeout=SERVER_TIMEOUT, java=server)
    scripts["kafka-server-stop.sh"] = STOP
    for name, text in scripts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)


def _java(main_class: str, jars: Path, *options: str) -> str:
    return shlex.join(["java", *QUICK_START, *(options or (QUIET, "-Xmx256m")), "-cp", f"{jars}/*", main_class])


def _config_command(jars: Path) -> str:
    """The main class of `kafka-configs.sh` that these jars have."""
    classes = [name for path in jars.glob("kafka*.jar") for name in zipfile.ZipFile(path).namelist()]
    return next(command for command in CONFIG_COMMANDS if f"{command.replace('.', '/')}.class" in classes)
