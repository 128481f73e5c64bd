"""The steps that start brokers on a salvage: stop, move aside, copy, start. All of it is safe to print."""

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence

from kafka_forensics.cli.outputs.plan_words import brokers, capital
from kafka_forensics.cli.outputs.steps import (
    DESCRIBE,
    ELECT_UNCLEANLY,
    OperatorStep,
    controllers_first,
    controllers_step,
    minutes_to_start,
    of_topics,
    partitions_words,
    show_retention_command,
)
from kafka_forensics.evidence.inputs import broker_order
from kafka_forensics.evidence.options import listed
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC, REMOTE_LOG_METADATA_TOPIC
from kafka_forensics.model.remote_log import REMOTE
from kafka_forensics.model.safe_text import printable, unquoted
from kafka_forensics.questions.salvage import ELECTION_FILE, MANIFEST, METADATA_LOG, PassedLimit, Refused, Salvaged
from kafka_forensics.replication.small_files import KRAFT_DIRECTORY
from kafka_forensics.wording import repair_advice, rerun_command


def preamble(salvaged: Salvaged) -> str:
    """The paragraph above the steps, which applies to all of them."""
    sizes = Counter[object]()
    for target in salvaged.log_dirs:
        sizes[target.node] += target.size_in_bytes
    minutes = minutes_to_start(sizes.values())
    return (
        "HOST:PORT is a running node, LOG_DIR a log directory in its place. If a command does not show what its step says within "
        f"{minutes} minutes, stop all brokers."
    )


def steps_of(salvaged: Salvaged) -> list[OperatorStep]:
    """What to do, in this order; empty where nothing was salvaged."""
    if not salvaged.partitions:
        return []
    if salvaged.is_selection:
        text = (
            "DIR holds only what --topic, --partition or --broker chose, and brokers start for all. Salvage all before any starts:"
        )
        return [
            OperatorStep("salvage", text, rerun_command("salvage", salvaged.rerun_arguments, *salvaged.options, "--output", "DIR"))
        ]
    refusals = [refusal for refusal in salvaged.refused if refusal.topic != CLUSTER_METADATA_TOPIC]
    if refused := tuple((refusal.topic, refusal.partition) for refusal in refusals):
        again = "Do as the reasons say, and salvage again to another directory."
        text = f"Start no broker on DIR, which lacks {partitions_words(refused)}. {again}"
        if not any(refusal.topic == REMOTE_LOG_METADATA_TOPIC or _is_only_remote(refusal) for refusal in refusals):
            text += " If that is impossible, follow the steps of `plan` instead."
        if salvaged.from_store:
            text = f"DIR lacks {partitions_words(refused)}. {again}"
        return [OperatorStep("refused", text, None, (), refused)]
    if salvaged.from_store:
        return list(_put_on_other_cluster(salvaged))
    if salvaged.controller_findings:
        return list(controllers_first(salvaged.controller_findings))
    return [*_replace_log_dirs(salvaged), *_start(salvaged)]


def _is_only_remote(refusal: Refused) -> bool:
    """Whether brokers without its directory would delete a partition's remote segments, and no election can help."""
    return refusal.is_tiered and refusal.kind in ("no_copy", "gaps")


def _put_on_other_cluster(salvaged: Salvaged) -> Iterator[OperatorStep]:
    """Give the logs to new topics of a cluster without remote storage."""
    keys = tuple(partition.key for partition in salvaged.partitions if partition.quorum is None)
    text = (
        "DIR is for a cluster whose brokers have no remote storage, and not for the brokers of the copies. Create the topics "
        "there, without remote.storage.enable, each partition on brokers that DIR has it for:"
    )
    create = "kafka-topics.sh --bootstrap-server HOST:PORT --create --topic TOPIC --replica-assignment N:N,..."
    yield OperatorStep("create_topics", text, create, (), keys)
    yield OperatorStep("stop", "Stop the brokers of that cluster.")
    text = "Put the logs in the place of the new empty ones, all files but partition.metadata, which has the new topic's id:"
    source = shlex.quote(f"{salvaged.output}/broker-N/NAME/TOPIC-N")
    command = f"find LOG_DIR/TOPIC-N -type f ! -name partition.metadata -delete; cp -an {source}/. LOG_DIR/TOPIC-N"
    yield OperatorStep("copy", text, command, (), keys)
    if trimmed := tuple(
        partition.key for partition in salvaged.partitions if partition.log_start_offset and partition.quorum is None
    ):
        text = (
            f"Put the lines of DIR's log-start-offset-checkpoint of {partitions_words(trimmed)} into that of LOG_DIR, and count "
            "them in its second line."
        )
        yield OperatorStep("copy", text, None, (), trimmed)
    text = "Have each broker recover its logs, and give them to KAFKA, the user that runs Kafka:"
    yield OperatorStep("own", text, "rm -f LOG_DIR/.kafka_cleanshutdown; chown -R KAFKA: LOG_DIR")
    text = (
        "Start the brokers. Recovery reads every batch, and cuts nothing. A day long, idempotent producers may get "
        "OUT_OF_ORDER_SEQUENCE_NUMBER, if they have the id of a producer of the other cluster: start them again."
    )
    yield OperatorStep("start", text)


def _replace_log_dirs(salvaged: Salvaged) -> Iterator[OperatorStep]:
    """Stop the brokers, move their log directories aside, and copy the salvaged ones to their places."""
    targets, absent, order = salvaged.log_dirs, _absent(salvaged), _order(salvaged)
    if empty := tuple((refusal.topic, refusal.partition) for refusal in salvaged.started_empty):
        text = f"DIR has nothing of {partitions_words(empty)}, and brokers start without its records. Look for more copies"
        yield OperatorStep("copy", f"{text} first, and salvage again with them. Go on only if there are none.", None, (), empty)
    nodes = tuple(sorted({target.node for target in targets}, key=broker_order))
    if absent:
        text = (
            f"Give the log directories of {brokers(absent)}, too, as N=DIR, which may hold more, or N=EMPTYDIR for a replaced "
            "disk, and salvage again. Go on only if that cannot be done, and do not start what was not given."
        )
        yield OperatorStep("copy", text, None, absent)
    running = brokers(sorted({*order, *absent}, key=broker_order)) if order else "the nodes"
    with_metadata = {target.node: target.directory for target in targets if METADATA_LOG in target.partitions}
    too = " and all controllers" if with_metadata else ""
    yield OperatorStep("stop", f"Stop {running}{too}. If a broker ran since it was copied, salvage again.", None, (*nodes, *absent))
    text = (
        f"Move the given log directories of {brokers(nodes)} aside; of a mount point, its content. Never delete them: they are "
        "evidence. Do not move other log directories."
    )
    yield OperatorStep("move_aside", text, "mv LOG_DIR LOG_DIR.before", nodes)
    places = [
        f"{target.directory} for {target.log_dir}{', which was empty,' if target.is_empty else ''} of "
        f"{f'controller {target.node}' if target.is_only_of_controller else brokers([target.node])}"
        for target in targets
    ]
    command = f"cp -a {shlex.quote(f'{salvaged.output}/broker-N/NAME')}/. LOG_DIR"
    yield OperatorStep("copy", f"Copy each directory of DIR to its place: {unquoted(', '.join(places))}.", command, nodes)
    voters = sorted(_voters(salvaged) - with_metadata.keys())
    for voter in voters:
        source = f"{salvaged.output}/{next(iter(with_metadata.values()))}/{KRAFT_DIRECTORY}"
        text = (
            f"Controller {voter} was not given. In its metadata.log.dir, LOG_DIR here, replace the controllers' log with "
            "the same one; leave everything else."
        )
        aside = f"mv LOG_DIR/{KRAFT_DIRECTORY} LOG_DIR.before"
        yield OperatorStep("copy", text, f"{aside} && cp -a {shlex.quote(source)} LOG_DIR", (voter,))
    yield from _complete_log_dirs(salvaged, nodes)
    text = "Give them to KAFKA, the user that runs Kafka: so far only the user who ran salvage can read them."
    yield OperatorStep("own", text, "chown -R KAFKA: LOG_DIR", (*nodes, *voters))


def _complete_log_dirs(salvaged: Salvaged, nodes: tuple[int | str, ...]) -> Iterator[OperatorStep]:
    """Add the files that a salvage could not build."""
    repaired = {(finding.place.log_dir or "").rstrip("/") for finding in salvaged.files_to_repair}
    unbuilt = [target for target in salvaged.log_dirs if target.meta_properties is None and target.log_dir not in repaired]
    if unbuilt:
        names = unquoted(", ".join(target.directory for target in unbuilt))
        text = f"Copy meta.properties back, too, which salvage could not build: {names}."
        yield OperatorStep("copy_back", text, "cp -a LOG_DIR.before/meta.properties LOG_DIR")
    lacking = [partition for partition in salvaged.partitions if partition.needs_topic_id]
    if without_id := tuple((partition.topic, partition.partition) for partition in lacking):
        text = (
            f"Write partition.metadata for {partitions_words(without_id)}, with the topic's id from kafka-topics.sh --describe: "
            "without it a broker sets the log aside and starts with an empty one."
        )
        command = r"printf 'version: 0\ntopic_id: ID\n' > LOG_DIR/TOPIC-N/partition.metadata"
        yield OperatorStep("write_topic_id", text, command, (), without_id)
    if salvaged.refused:
        text = f"Copy back the controllers' log, which was refused, to those of {brokers(nodes)} that had one."
        yield OperatorStep("copy_back", text, f"cp -a LOG_DIR.before/{KRAFT_DIRECTORY} LOG_DIR", (), (METADATA_LOG,))
    for finding in salvaged.files_to_repair:
        whose = () if finding.place.broker is None else (finding.place.broker,)
        file, log_dir = unquoted(str(finding.place.file)), unquoted(str(finding.place.log_dir))
        yield OperatorStep("repair", f"Repair {file} in place of {log_dir}: {printable(repair_advice(finding))}.", None, whose)


def _start(salvaged: Salvaged) -> Iterator[OperatorStep]:
    """Start the controllers, then the brokers, first those whose copies the salvage is based on; check the result."""
    order, limits = _order(salvaged), _topics_by_limits(salvaged)
    if salvaged.is_kraft:
        yield controllers_step([node for node in order if node in salvaged.controller_voters])
    for passed, topics in limits.items():
        yield from _retention_suspended(passed, topics, is_kraft=salvaged.is_kraft)
    yield from _configure_remote_storage(salvaged)
    if order:
        sequence, absent = ", then ".join(brokers([node]) for node in order), _absent(salvaged)
        waiting = ", each when the one before is up" if len(order) > 1 else ""
        text = f"Start {sequence}{waiting}. Recovery reads every batch, and cuts nothing."
        yield OperatorStep("start", text, None, order)
        if salvaged.is_kraft and salvaged.to_elect():
            text = "Elect leaders where a crash left none. All replicas in DIR are equal, so this loses nothing:"
            command = f"{ELECT_UNCLEANLY} --path-to-json-file {shlex.quote(f'{salvaged.output}/{ELECTION_FILE}')}"
            yield OperatorStep("elect", text, command, order, tuple(salvaged.to_elect()))
        command = f"{DESCRIBE} --under-replicated-partitions"
        lacking = f" but partitions that lack only {brokers(absent)}" if absent else ""
        yield OperatorStep("in_sync", f"Check that all replicas are in sync: this prints nothing{lacking}.", command, order)
    command = rerun_command("verify", None, "--live", "--against", f"{salvaged.output}/{MANIFEST}")
    text = "Copy the log directories again while brokers run, and check every byte"
    if gaps := [partition.key for partition in salvaged.partitions if partition.gaps]:
        text += f"; `scan` and `plan` still report the gaps in {partitions_words(gaps)}, which no copy fills"
    yield OperatorStep("verify", f"{text}:", command)
    for passed, topics in limits.items() if salvaged.is_kraft else ():
        yield from _retention_restored(passed, topics)


def _configure_remote_storage(salvaged: Salvaged) -> Iterator[OperatorStep]:
    """Have brokers of tiered topics use the store with the remote parts of their logs."""
    tiered = [partition for partition in salvaged.partitions if partition.has_remote_part]
    metadata = [partition for partition in salvaged.partitions if partition.topic == REMOTE_LOG_METADATA_TOPIC]
    if not tiered:
        return
    text = (
        "Check that every broker has its former settings of remote storage, remote.log.*, rsm.config.* and rlmm.config.*, and "
        "reaches the same, unchanged store."
    )
    if only_remote := tuple(partition.key for partition in tiered if partition.base_broker == REMOTE):
        text += f" The local logs of {partitions_words(only_remote)} begin where their remote logs end."
    if built := tuple(partition.key for partition in metadata if partition.base_broker == REMOTE):
        text += f" {capital(partitions_words(built))} are built from the store: all its segments in them are as if just copied."
    yield OperatorStep("remote_storage", text, None, _order(salvaged), only_remote)


def _topics_by_limits(salvaged: Salvaged) -> dict[tuple[PassedLimit, ...], list[str]]:
    """Retention limits that the oldest records exceed → the topics whose records brokers would delete when they start."""
    limits: dict[str, set[PassedLimit]] = {}
    for partition in salvaged.partitions:
        limits.setdefault(partition.topic, set()).update(partition.passed_limits)
    topics: dict[tuple[PassedLimit, ...], list[str]] = {}
    for topic, passed in sorted(limits.items()):
        if passed:
            topics.setdefault(tuple(sorted(passed, key=lambda limit: limit.setting)), []).append(topic)
    return topics


def _retention_suspended(passed: Sequence[PassedLimit], topics: Sequence[str], *, is_kraft: bool) -> Iterator[OperatorStep]:
    """Suspend retention before any broker runs. ZooKeeper holds all settings of a topic in one value, which is written whole."""
    limits = " and ".join(f"{limit.setting}={limit.value}{'' if limit.is_known else ', the default'}" for limit in passed)
    named, settings = listed(map(unquoted, topics)), ",".join(f"{limit.setting}=-1" for limit in passed)
    text = f"Half a minute after they start, brokers delete the oldest records of {named} ({limits}). To keep them, "
    if unknown := _unknown_settings(passed):
        text = (
            f"Half a minute after they start, brokers may delete the oldest records of {named}: they have passed {limits}, and no "
            "given controllers' log shows whether these topics have other limits. To keep them, "
        )
    if not is_kraft:
        text += (
            "change that of each topic in ZooKeeper before, and back after the last step. First note what `get` for `set` shows: "
            "the topic's other settings must stay."
        )
        config = json.dumps({"version": 1, "config": {limit.setting: "-1" for limit in passed}})
        command = f"zookeeper-shell.sh ZOOKEEPER:PORT set {shlex.quote(f'/config/topics/{topics[0]}')} {shlex.quote(config)}"
        yield OperatorStep("keep_records", text, command)
    elif unknown:
        yield OperatorStep(
            "note_retention", f"{text}first note the {unknown} of the topics, if this shows any:", show_retention_command(topics)
        )
        yield OperatorStep("keep_records", "Then suspend it for the time being:", of_topics(topics, f"--add-config {settings}"))
    else:
        yield OperatorStep("keep_records", f"{text}change that before:", of_topics(topics, f"--add-config {settings}"))


def _retention_restored(passed: Sequence[PassedLimit], topics: Sequence[str]) -> Iterator[OperatorStep]:
    """Restore the settings of retention: those known here, or those that the operator noted."""
    text = f"When the old records of {listed(map(unquoted, topics))} are read or copied, let brokers delete them again"
    if unknown := _unknown_settings(passed):
        text += f": set {unknown} of each topic as you noted. Remove it, with --delete-config, only where none was shown:"
        noted = ",".join(f"{limit.setting}=NOTED" for limit in passed)
        yield OperatorStep("restore_retention", text, of_topics(["TOPIC"], f"--add-config {noted}"))
        return
    changes = [f"--add-config {limit.setting}={limit.topic_value}" for limit in passed if limit.topic_value is not None]
    changes += [f"--delete-config {limit.setting}" for limit in passed if limit.topic_value is None]
    yield from (OperatorStep("restore_retention", f"{text}:", of_topics(topics, change)) for change in changes)


def _unknown_settings(passed: Sequence[PassedLimit]) -> str:
    """The settings for which no controllers' log says whether the topics override the default; empty without any."""
    return " and ".join(limit.setting for limit in passed if not limit.topic_value_is_known)


def _voters(salvaged: Salvaged) -> set[int]:
    return {voter for partition in salvaged.partitions if partition.quorum is not None for voter in partition.quorum.voters}


def _absent(salvaged: Salvaged) -> tuple[int | str, ...]:
    """Brokers with replicas of salvaged partitions whose log directories were not given."""
    given = {str(name) for target in salvaged.log_dirs for name in (target.broker, target.node)}
    partitions = [partition for partition in salvaged.partitions if partition.quorum is None]
    unseen = {kind_and_broker.partition(":")[2] for partition in partitions for kind_and_broker in partition.unseen}
    named = [int(name) if name.isdecimal() else name for name in unseen - given if name]
    return tuple(sorted(named, key=broker_order))


def _order(salvaged: Salvaged) -> tuple[int | str, ...]:
    """Brokers in the order of their start: those whose copy is the base of most partitions first, replaced disks last."""
    bases = Counter(partition.base_broker for partition in salvaged.partitions if partition.quorum is None)
    counts = {target.node: bases[target.broker] for target in salvaged.log_dirs if not target.is_only_of_controller}
    return tuple(sorted(counts, key=lambda node: (-counts[node], broker_order(node))))
