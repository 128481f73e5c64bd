"""A salvage as a runbook: stop, put its directories in the place of the others on every broker, start, and the way back."""

import shlex
from collections.abc import Iterator, Sequence
from typing import Final

from kafka_forensics.cli.outputs.rows import markdown
from kafka_forensics.cli.outputs.runbook_commands import (
    OF_BROKERS,
    ON,
    asking_topic_id,
    copying,
    host,
    log_dir_variables,
    one_by_one,
    partition_metadata,
    place_variables,
    shell,
    told,
    topic_id_filled_in,
    way_back,
)
from kafka_forensics.cli.outputs.salvage import stale, without_topic_id
from kafka_forensics.cli.outputs.words import name
from kafka_forensics.cli.streams import printable
from kafka_forensics.model.amounts import plural
from kafka_forensics.questions.places import BrokerPlace
from kafka_forensics.questions.salvage import MANIFEST, Salvaged, SalvagedPartition
from kafka_forensics.replication.recovery import HIGH_WATERMARK_FILE, LOG_START_FILE, RECOVERY_POINT_FILE
from kafka_forensics.version import __version__

PARTITIONS_TOLD: Final = 500
_CHECKPOINT: Final = (
    "# checkpoint HOST FILE TOPIC PARTITION [OFFSET]: takes a partition's line out of a checkpoint file, or gives it this offset",
    (
        'checkpoint() { if on "$1" $SUDO test ! -e "$2"; then test -n "${5-}" || return 0;'
        ' printf "0\\n0\\n" | on "$1" $SUDO tee "$2" > /dev/null && on "$1" $SUDO chown --reference="${2%/*}" "$2" || return; fi;'
        ' on "$1" $SUDO awk -v t="$3" -v p="$4" -v o="${5:--}" \'NR==1{v=$0;next} NR==2{next} !($1==t&&$2==p){r[n++]=$0}'
        ' END{if(o!="-")r[n++]=t" "p" "o; print v; print n+0; for(i=0;i<n;i++)print r[i]}\' "$2" > "${SAFE:?}/checkpoint.new" &&'
        ' on "$1" $SUDO tee "$2" < "${SAFE:?}/checkpoint.new" > /dev/null; }'
    ),
)


def salvage_runbook(salvaged: Salvaged) -> Iterator[str]:
    """The runbook, as Markdown in pieces."""
    partitions = salvaged.partitions[:PARTITIONS_TOLD]
    yield f"# Runbook: start on what was salvaged\n\nMade by kafka-forensics {__version__}. Every replica of "
    yield f"{plural(len(salvaged.partitions), 'partition')} gets the same log, that of the manifest. **Delete nothing.**\n"
    yield from _what_is_lost(salvaged)
    yield "\n## What the commands below need\n\nFill in what is empty, in the bash in which you run the rest.\n"
    lines = [
        "SAFE=  # a directory with room for all copies, on no broker's disk",
        "AFTER=  # another one, for the copies of step 4",
    ]
    lines.append(f"SALVAGED={told(salvaged.output)}  # the directory that was written")
    yield shell(*lines, *OF_BROKERS, *place_variables(salvaged.places), ON, *_CHECKPOINT)
    metadata = next((partition for partition in salvaged.partitions if partition.quorum is not None), None)
    yield "\n## 1. Stop and copy\n"
    if metadata is not None:
        yield from _of_controllers(metadata, salvaged.places)
    yield "\nAll brokers, so that there is a way back:\n"
    yield one_by_one(*copying(salvaged.places, "SAFE", stop=True))
    yield "\n## 2. Put it in place\n\n"
    yield "What stands there is moved aside. Where a broker has several log directories, take the one that has the partition.\n"
    if len(salvaged.partitions) > len(partitions):
        yield f"\nOf {len(salvaged.partitions)} partitions {len(partitions)} are told; do the same with the others.\n"
    for place in salvaged.places:
        own = [partition for partition in partitions if place.broker in partition.assigned]
        if own:
            yield f"\n### Broker {markdown(str(place.broker))}\n"
            yield one_by_one(*_placing(place, own))
    yield "\n## 3. Start the brokers\n\nIn any order: all replicas are alike. Each runs its recovery first, which cuts nothing:\n"
    places = salvaged.places
    if metadata is not None:
        yield "\nVoters come first: without a majority of them no broker comes up. Start all before you wait for one.\n"
        places = sorted(places, key=lambda place: place.broker not in metadata.voting)
    yield shell(*(f"on {host(place.broker)} $START" for place in places))
    yield "\n## 4. See that it has come true\n\nCopy all log directories once more, brokers may run:\n"
    yield one_by_one(*copying(salvaged.places, "AFTER", stop=False))
    yield "\nThen, every promise should be `kept`:\n"
    yield shell(f'kafka-forensics verify --live "${{AFTER:?}}"/*.tar --against "${{SALVAGED:?}}/{MANIFEST}"')
    yield from way_back(salvaged.places)


def _of_controllers(metadata: SalvagedPartition, places: Sequence[BrokerPlace]) -> Iterator[str]:
    """What is to be done about nodes of which no copy was given, and about the voters."""
    assert metadata.quorum is not None
    directory = markdown(name(metadata.topic, metadata.partition))
    voters = ", ".join(map(str, metadata.quorum.voters))
    given = {place.broker for place in places}
    unseen = [voter for voter in metadata.voting if voter not in given]
    yield f"\n**Every voter ({voters}) must be stopped, and stay so until all of them have the salvaged {directory}**, quorum-state"
    yield " and all, so that nobody votes by what it had before. If one has run since the copies were made, salvage new copies."
    if unseen:
        nodes = ", ".join(markdown(str(voter)) for voter in unseen)
        yield f" No copy of {nodes} was given: stop it, too, set its {directory} aside, and put the salvaged one in its place,"
        yield " beside the `meta.properties` that it has."
    yield f" On nodes that are not named below set {directory} aside as well: they fetch it anew, while their own may have records"
    yield " that were never committed.\n"


def _what_is_lost(salvaged: Salvaged) -> Iterator[str]:
    """What starting on it gives up, and what it does not touch."""
    left = [partition for partition in salvaged.partitions if partition.left_behind and partition.quorum is None]
    yield from _by_partition(
        "Records of another lineage stay behind in the copies; `kafka-forensics recover` takes them out:",
        [(partition, _left(partition)) for partition in left if partition.warning is None],
    )
    yield from _by_partition(
        "Of these compacted topics batches stay behind, for nothing tells which of them still hold. Keep the copies:",
        [(partition, _left(partition)) for partition in left if partition.warning is not None],
    )
    gaps = [partition for partition in salvaged.partitions if partition.gaps]
    yield from _by_partition(
        "No copy has these offsets: readers pass over them.",
        [(partition, _gaps(partition)) for partition in gaps if partition.warning is None],
    )
    yield from _by_partition(
        "These offsets were left out of compacted topics: readers pass over them.",
        [(partition, _gaps(partition)) for partition in gaps if partition.warning is not None],
    )
    yield from (f"\n{line}.\n" for line in stale(salvaged.partitions))
    yield from _topic_ids(salvaged)
    if salvaged.refused:
        yield "\nThese were refused; nothing below is about them:\n\n"
        for refused in salvaged.refused[:PARTITIONS_TOLD]:
            yield f"- {markdown(name(refused.topic, refused.partition))}: {markdown(refused.reason)}\n"


def _by_partition(head: str, told: list[tuple[SalvagedPartition, str]]) -> Iterator[str]:
    """A list with a line for each of some partitions, if there are any."""
    if told:
        yield f"\n{head}\n\n"
        yield from (f"- {_spelled(partition)}: {words}\n" for partition, words in told[:PARTITIONS_TOLD])


def _gaps(partition: SalvagedPartition) -> str:
    return ", ".join(f"{gap.start} to {gap.end - 1}" for gap in partition.gaps)


def _topic_ids(salvaged: Salvaged) -> Iterator[str]:
    """How ids of topics that nothing here tells are asked for; with them step 2 writes the files."""
    topics = dict.fromkeys(partition.topic for partition in salvaged.partitions if partition.wants_topic_id)
    if not topics:
        return
    yield f"\n**Before anything else**: {without_topic_id(salvaged.partitions)[0]}. Ask a broker while one is up; step 2 writes the"
    yield " files.\n"
    yield shell("BOOTSTRAP=  # HOST:PORT of a broker that is up")
    for topic in topics:
        yield from (shell(printable(line)) for line in asking_topic_id(topic))


def _spelled(partition: SalvagedPartition) -> str:
    return markdown(name(partition.topic, partition.partition))


def _left(partition: SalvagedPartition) -> str:
    return ", ".join(f"{left.start} to {left.end - 1} on broker {markdown(str(left.broker))}" for left in partition.left_behind)


def _checkpointed(partition: SalvagedPartition) -> dict[str, int | None]:
    """Checkpoint files, and what each is to say of a partition; None: nothing.

    Without its log start a broker begins a log where its first segment does, and records that DeleteRecords took come back.
    """
    return {
        RECOVERY_POINT_FILE: None,
        HIGH_WATERMARK_FILE: partition.high_watermark,
        LOG_START_FILE: partition.log_start_offset or None,
    }


def _placing(place: BrokerPlace, partitions: list[SalvagedPartition]) -> Iterator[str]:
    """Commands that put the salvaged directories of one broker in the place of its own."""
    on, logs = f"on {host(place.broker)}", f"${{{log_dir_variables(place)[0]}:?}}"
    for topic in dict.fromkeys(partition.topic for partition in partitions if partition.wants_topic_id):
        yield f": {topic_id_filled_in(topic)}"
    yield f'{on} $SUDO mkdir -p "{logs}.aside"'
    for partition in partitions:
        directory = printable(shlex.quote(f"{partition.topic}-{partition.partition}"))
        yield f'{{ {on} $SUDO test ! -e "{logs}"/{directory} || {on} $SUDO mv "{logs}"/{directory} "{logs}.aside/"; }}'
        yield f'tar -C "${{SALVAGED:?}}" -cf - {directory} | {on} $SUDO tar -C "{logs}" --no-same-owner -xf -'
        if partition.wants_topic_id:
            lines = printable(partition_metadata(partition.topic, None))
            yield f'{on} $SUDO tee "{logs}"/{directory}/partition.metadata <<< {lines}'
        yield f'{on} $SUDO chown -R --reference="{logs}" "{logs}"/{directory}'
        if partition.quorum is not None:
            continue
        topic = printable(shlex.quote(partition.topic))
        for checkpoint, offset in _checkpointed(partition).items():
            given = "" if offset is None else f" {offset}"
            yield f'checkpoint {host(place.broker)} "{logs}/{checkpoint}" {topic} {partition.partition}{given}'
    mark = f'"{logs}/.kafka_cleanshutdown"'
    yield f'{{ {on} $SUDO test ! -e {mark} || {on} $SUDO mv {mark} "{logs}.aside/"; }}'
