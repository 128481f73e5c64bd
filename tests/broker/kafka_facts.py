"""Our facts of Kafka's files held to what Kafka's own tool prints of them: batch by batch, record by record, entry by entry.

The tool ends at the first thing that it refuses; we read on. All that it prints before must be equal here, except a batch that it
calls invalid itself where we report lost bytes."""

import hashlib
import json
import os
import re
from base64 import b64decode
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from kafka_forensics.cli.main import outcome
from kafka_forensics.model.constants import (
    CLUSTER_METADATA_TOPIC,
    MAX_SEQUENCE,
    NO_SEQUENCE,
    REMOTE_LOG_METADATA_TOPIC,
    delivery_state_name,
)
from kafka_forensics.model.coordinators import RECORD_TYPES, TRANSACTION_STATES
from kafka_forensics.model.json_objects import Json
from kafka_forensics.parsers.flexible_fields import UNKNOWN_TAGS
from kafka_forensics.parsers.internal_topics import record_describer
from kafka_forensics.parsers.log.records import parse_control_record
from lab.dump_facts import DECODERS, INDEXES, LOGS, Row, tables
from lab.files import copy_sparse
from lab.kafka_jars import KAFKA_VERSION
from lab.make_golden import OF_TOPICS
from tests.support.layouts.metadata_records import MESSAGES

SUFFIXES: Final = (*LOGS, *INDEXES, ".snapshot", ".txnindex")
BESIDE: Final = {".index": (".log",), ".timeindex": (".index", ".log")}
"""Suffix of an index → suffixes of files that the tool reads with it."""
_SNAPSHOT_COMPLAINTS: Final = {
    "version": "Snapshot contained an unknown file version {version}",
    "short": "Snapshot failed schema validation: ",
    "crc": "Snapshot is corrupt (CRC is no longer valid). Stored crc: {stored}. Computed crc: {computed}",
}
"""Reason of a corrupt snapshot → part of the tool's complaint. The tool checks them in this order and reports the first."""
_LOST_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


@dataclass(frozen=True)
class CopiedFile:
    """A file in the layout, relative to it, and the internal topic of its records, if any."""

    path: str
    source: str
    """Name of its directory and file in the source."""
    topic: str | None


@dataclass
class Facts:
    """What `dump` shows of a file: rows of batches and rows of records; the same rows in both for a file that is not a log."""

    batches: list[Json] = field(default_factory=list)
    records: list[Json] = field(default_factory=list)


def lay_out(trees: Iterable[Path], layout: Path) -> list[CopiedFile]:
    """Copy every file that the tool reads, each content once, into a separate directory, with the files that the tool reads with
    it."""
    seen: set[bytes] = set()
    laid = []
    for source in _sources(trees):
        internal = _internal_topic(source)
        beside = [source.with_suffix(suffix) for suffix in BESIDE.get(source.suffix, ())]
        read = [path for path in (source, *beside) if path.exists()]
        mark = hashlib.sha256(f"{internal} {source.name} ".encode())
        for path in read:
            mark.update(path.read_bytes())
        if mark.digest() in seen:
            continue
        seen.add(mark.digest())
        directory = layout / f"{len(seen):04}"
        directory.mkdir(parents=True)
        for path in read:
            copy_sparse(path, directory / path.name)
        laid.append(CopiedFile(f"{directory.name}/{source.name}", f"{source.parent.name}/{source.name}", internal))
    return laid


def _internal_topic(source: Path) -> str | None:
    """The internal topic of a file's records, from its partition's directory or from the golden input."""
    topic = OF_TOPICS.get(source.parent.name, source.parent.name.rpartition("-")[0])
    return topic if topic in DECODERS and source.suffix in LOGS else None


def _sources(trees: Iterable[Path]) -> Iterator[Path]:
    for tree in trees:
        for folder, _, names in sorted(os.walk(tree)):
            yield from (Path(folder, name) for name in sorted(names) if name.endswith(SUFFIXES) and name[0].isdigit())


def dumped(paths: Sequence[Path], scratch: Path) -> dict[Path, Facts]:
    """File → its facts in the output of `dump`; all files in two runs."""
    facts: dict[Path, Facts] = {path: Facts() for path in paths}
    for name, options in (("batches", ()), ("records", ("--records", "--show-payloads"))):
        output = scratch / f"{name}.jsonl"
        given = [*map(str, paths), *options, "--format", "jsonl", "--output", str(output)]
        assert outcome(["dump", *given]) == 0
        with output.open(encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                getattr(facts[Path(row["file"])], name).append(row)
        output.unlink()
    return facts


def with_logs(paths: Iterable[Path]) -> list[Path]:
    """These files, and the logs of their indexes."""
    logs = (path.with_suffix(".log") for path in paths if path.suffix in INDEXES)
    return [*dict.fromkeys([*paths, *(log for log in logs if log.exists())])]


def differences(path: Path, rows: Sequence[Row], facts: Mapping[Path, Facts], topic: str | None = None) -> list[str]:
    """Differences between the facts of a file and the tool's output; `topic` if the tool decoded its records as those of that
    topic."""
    if path.suffix in LOGS:
        return log_differences(rows, facts[path], topic)
    if path.suffix in INDEXES:
        return index_differences(path, rows, facts)
    if path.suffix == ".snapshot":
        return snapshot_differences(rows, facts[path])
    return entry_differences(rows, facts[path], _aborted)


def log_differences(rows: Sequence[Row], facts: Facts, topic: str | None) -> list[str]:
    ours = {row["position"]: row for row in facts.batches if row["span"] == "batch"}
    lost = [range(row["position"], row["position"] + row["size_in_bytes"]) for row in facts.batches if row["position"] not in ours]
    records: dict[int, list[Json]] = defaultdict(list)
    for row in facts.records:
        if row["span"] == "record":
            records[row["position"]].append(row)
    found: list[str] = []
    last, refused = -1, False
    seen = set()
    for batch, following in _by_batch(rows):
        last = position = int(batch["position"])
        if position not in ours:
            if batch.get("isvalid") != "false" or not any(position in span for span in lost):
                found.append(f"batch at {position}: not here")
            continue
        seen.add(position)
        found += _unequal(f"batch at {position}", batch, batch_facts(ours[position]))
        printed = [row for row in following if row["span"] == "record"]
        refused = refused or len(following) > len(printed)
        if len(printed) > len(records[position]) or (len(printed) < len(records[position]) and not refused):
            found.append(f"batch at {position}: {len(printed)} records, here {len(records[position])}")
        for theirs, record in zip(printed, records[position], strict=False):
            found += record_differences(theirs, record, ours[position], topic)
    ended = bool(rows) and rows[-1]["span"] == "end"
    return found + [
        f"batch at {position}: only here" for position in ours if position not in seen and not (ended and position > last)
    ]


def _by_batch(rows: Sequence[Row]) -> Iterator[tuple[Row, list[Row]]]:
    """Each batch with the rows up to the next; a batch is incomplete only if the tool ended within its line."""
    starts = [index for index, row in enumerate(rows) if row["span"] == "batch"]
    for start, end in pairwise([*starts, len(rows)]):
        assert "isvalid" in rows[start] or rows[-1]["span"] == "end"
        yield rows[start], [row for row in rows[start + 1 : end] if row["span"] != "end"]


def batch_facts(row: Json) -> Row:
    facts = {
        "position": row["position"],
        "size": row["size_in_bytes"],
        "magic": row["magic"],
        "compresscodec": row["compression_type"],
        "timestampType": row["timestamp_type"],
        "timestamp": row["max_timestamp_ms"],
        "crc": row["crc"],
        "isvalid": row["is_valid"],
    }
    if row["magic"] < 2:
        return _texts(facts | {"offset": row["last_offset"]})
    places = _in_camel_case(row, "base_offset", "last_offset", "partition_leader_epoch", "delete_horizon_ms", "is_transactional")
    producer = _in_camel_case(row, "producer_id", "producer_epoch", "base_sequence", "last_sequence")
    return _texts(facts | places | producer | {"count": row["records_count"], "isControl": row["is_control_batch"]})


def record_differences(theirs: Row, row: Json, batch: Json, topic: str | None) -> list[str]:
    key, value = _bytes(row["key"]), _bytes(row["value"])
    facts = {
        "offset": row["offset"],
        "timestampType": row["timestamp_type"],
        "timestamp": row["timestamp_ms"],
        "keySize": row["key_size"],
        "valueSize": row["value_size"],
    }
    if batch["magic"] < 2:
        facts["isvalid"] = row["is_valid"]
    else:
        names = (java_text(_bytes(name) or b"") for name, _ in row["headers"])
        facts |= {"sequence": row["sequence"], "headerKeys": f"[{','.join(names)}]"}
    said = theirs.get("said", "")
    if batch["is_control_batch"]:
        is_same = _control_agrees(key, value, row, said)
    elif topic is not None:
        is_same = agrees(topic, key, value, said)
    else:
        is_same = said == _payload_text(key, value)
    where = f"record {row['offset']}"
    numbers = {name: cell for name, cell in theirs.items() if name not in ("said", "crc")}
    return _unequal(where, numbers, _texts(facts)) + ([] if is_same else [f"{where}: {said!r}"])


def _payload_text(key: bytes | None, value: bytes | None) -> str:
    parts = {"key": key, "payload": value}
    return " ".join(f"{name}: {java_text(data)}" for name, data in parts.items() if data is not None)


def java_text(data: bytes) -> str:
    """Bytes as Java decodes UTF-8: half a surrogate pair, whole or cut, is one replacement character."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _LOST_SURROGATE.sub("\ufffd".encode(), data).decode("utf-8", "replace")


def _bytes(shown: object) -> bytes | None:
    if isinstance(shown, dict):
        return b64decode(shown["base64"])
    return shown.encode() if isinstance(shown, str) else None


def _control_agrees(key: bytes | None, value: bytes | None, row: Json, said: str) -> bool:
    if said.startswith("endTxnMarker: "):
        return said == f"endTxnMarker: {row['control_record_type']} coordinatorEpoch: {row['coordinator_epoch']}"
    control = parse_control_record(key, value)
    if control.name != row["control_record_type"] or control.problem is not None:
        return False
    if said.startswith("controlType: "):
        return said.endswith(f"({control.type})")
    name, _, printed = said.partition(" ")
    named = name.rstrip(":").lower() == control.name.replace("_", "").lower()
    return named and snake(json.loads(printed)) == {"version": control.version, **control.fields}


def index_differences(path: Path, rows: Sequence[Row], facts: Mapping[Path, Facts]) -> list[str]:
    """Differences between the entries of an index and the tool's output, and complaints of the tool that we cannot explain."""
    of_time = path.suffix == ".timeindex"
    shown = _as_the_tool_sees(path, facts[path])
    found = entry_differences(rows, shown, _time_entry if of_time else _index_entry)
    printed = sum(row["span"] == "entry" for row in rows)
    entries = [row for row in shown.batches if row["span"] == "entry"][:printed]
    complaints = [row["said"] for row in rows if row["span"] == "complaint"]
    log = facts.get(path.with_suffix(".log"), Facts())
    batches = [row for row in log.batches if row["span"] == "batch"]
    expected = list(_time_complaints(entries, batches, log.records) if of_time else _index_complaints(entries, batches))
    if sorted(complaints) != sorted(expected) and not any(row["span"] == "end" for row in rows):
        found.append(f"complaints {complaints}, here {expected}")
    if any(row["span"] == "insane" for row in rows) and all(row["span"] == "entry" for row in facts[path].batches):
        found.append("sane here")
    return found


def _as_the_tool_sees(path: Path, facts: Facts) -> Facts:
    """The facts of an index; of one that is all preallocated zeros, with the first zeros as an entry."""
    if not facts.batches or facts.batches[0]["span"] != "zero_tail":
        return facts
    zeros = {"span": "entry", "offset": int(path.stem), "log_position": 0, "timestamp_ms": 0, "detail": None}
    return Facts([zeros, *facts.batches])


def _index_complaints(entries: list[Json], batches: list[Json]) -> Iterator[str]:
    last_offsets = {batch["position"]: batch["last_offset"] for batch in batches}
    for entry in entries:
        last = last_offsets.get(entry["log_position"])
        if last != entry["offset"]:
            yield f"Index offset: {entry['offset']}, log offset: {last}"


def _time_complaints(entries: list[Json], batches: list[Json], records: list[Json]) -> Iterator[str]:
    largest_of: dict[int, int] = defaultdict(lambda: -1)
    for record in records:
        if record["span"] == "record":
            largest_of[record["position"]] = max(largest_of[record["position"]], record["timestamp_ms"])
    previous = -1
    for entry in entries:
        batch = next((row for row in batches if row["last_offset"] >= entry["offset"]), None)
        if batch is None or batch["last_offset"] != entry["offset"]:
            yield f"Indexed offset: {entry['offset']}, found log offset: {-1 if batch is None else batch['last_offset']}"
        else:
            largest = largest_of[batch["position"]]
            if largest != entry["timestamp_ms"]:
                yield f"Index timestamp: {entry['timestamp_ms']}, log timestamp: {largest}"
            if entry["timestamp_ms"] <= previous:
                yield f"Index timestamp: {entry['timestamp_ms']}, Previously indexed timestamp: {previous}"
        previous = entry["timestamp_ms"]


def snapshot_differences(rows: Sequence[Row], facts: Facts) -> list[str]:
    """Differences between the entries of a snapshot and the tool's output, and between our and its verdict of corruption."""
    found = entry_differences(rows, facts, _producer)
    complaints = [row["said"] for row in rows if row["span"] == "complaint"]
    reasons = {row["detail"]["reason"]: row["detail"] for row in facts.batches if row["span"] == "PRODUCER_SNAPSHOT_CORRUPT"}
    expected = [_SNAPSHOT_COMPLAINTS[reason].format(**reasons[reason]) for reason in _SNAPSHOT_COMPLAINTS if reason in reasons][:1]
    if len(complaints) != len(expected) or not all(map(str.__contains__, complaints, expected)):
        found.append(f"complaints {complaints}, here {expected}")
    return found


def entry_differences(rows: Sequence[Row], facts: Facts, as_printed: Callable[[Json], Json]) -> list[str]:
    """Differences between entries and the tool's output; of a damaged file the tool may have printed fewer entries."""
    theirs = [row for row in rows if row["span"] == "entry"]
    ours = [_texts(as_printed(row)) for row in facts.batches if row["span"] == "entry"]
    is_damaged = any(row["detail"] for row in facts.batches if row["span"] not in ("entry", "header"))
    ended = any(row["span"] == "end" for row in rows)
    found = []
    if len(theirs) > len(ours) or (len(theirs) < len(ours) and not (is_damaged or ended)):
        found.append(f"{len(theirs)} entries, here {len(ours)}")
    for number, (printed, entry) in enumerate(zip(theirs, ours, strict=False)):
        found += _unequal(f"entry {number}", printed, entry)
    return found


def _index_entry(row: Json) -> Json:
    return {"offset": row["offset"], "position": row["log_position"]}


def _time_entry(row: Json) -> Json:
    return {"timestamp": row["timestamp_ms"], "offset": row["offset"]}


def _in_camel_case(row: Json, *names: str) -> Json:
    return {re.sub("_([a-z])", lambda letter: letter[1].upper(), name): row[name] for name in names}


def _aborted(row: Json) -> Json:
    return _in_camel_case(row, "version", "producer_id", "first_offset", "last_offset", "last_stable_offset")


def _producer(row: Json) -> Json:
    last, delta, open_from = row["last_sequence"], row["offset_delta"], row["current_txn_first_offset"]
    first = NO_SEQUENCE if last < 0 else last - delta if last >= delta else MAX_SEQUENCE - (delta - last) + 1
    names = ("producer_id", "producer_epoch", "coordinator_epoch", "last_sequence", "last_offset", "offset_delta")
    times = dict.fromkeys(("lastTimestamp", "timestamp"), row["timestamp_ms"])
    opened = {"currentTxnFirstOffset": None if open_from < 0 else open_from}
    return _in_camel_case(row, *names) | times | opened | {"firstSequence": first}


def _texts(facts: Json) -> Row:
    return {
        name: "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in facts.items()
    }


def _unequal(where: str, theirs: Row, ours: Row) -> list[str]:
    pairs = ((name, cell, ours.get(name)) for name, cell in theirs.items() if name != "span")
    return [f"{where}: {name} {cell!r}, here {mine!r}" for name, cell, mine in pairs if mine != cell]


def differences_from_kafka_s_tool(
    laid: Sequence[CopiedFile], layout: Path, scratch: Path, *, version: str = KAFKA_VERSION
) -> dict[str, list[str]]:
    """Source → differences between its facts and the output of a version's tool; only the newest decodes internal topics."""
    sources = {file.path: file.source for file in laid}
    topics = {file.path: file.topic for file in laid if file.topic is not None and version == KAFKA_VERSION}
    facts = dumped(with_logs([layout / file.path for file in laid]), scratch)
    decoders = {path: DECODERS[topic] for path, topic in topics.items()}
    found = {}
    for name, rows in tables([file.path for file in laid], layout, decoders=decoders, version=version):
        if unequal := differences(layout / name, rows, facts, topics.get(name)):
            found[sources[name]] = unequal
    return found


UNPRINTED: Final[Json] = {
    "leader_epoch": -1,
    "expire_timestamp": -1,
    "topic_id": None,
    "current_state_timestamp": -1,
    "group_instance_id": None,
    "rebalance_timeout": -1,
    "previous_producer_id": -1,
    "next_producer_id": -1,
    "next_producer_epoch": -1,
    "client_transaction_version": 0,
}
"""Values of fields that the tool leaves out, because the record's version lacks them, or they are defaults of tagged fields."""
UNKNOWN_TO_4_3: Final = {
    "ShareGroupPartitionMetadata",
    "StreamsGroupPartitionMetadata",
    "StreamsGroupTargetAssignmentResolvedTopicIds",
}
"""Kinds of records that we know and the tool of Kafka 4.3 does not."""
_PRINTED: Final = re.compile(r"(?:key: (.*?))?(?:(?:^| )payload: (.*))?", re.DOTALL)


def agrees(topic: str, key: bytes | None, value: bytes | None, printed: str) -> bool:
    """Whether the fields of a record equal those that the tool printed; if it printed an error, whether we report a problem too."""
    decode = record_describer(topic)
    assert decode is not None
    ours = decode(key, value, True)  # noqa: FBT003 - with fields that only payloads show
    matched = _PRINTED.fullmatch(printed)
    assert matched is not None
    if re.match(r"(?:key|payload): (?:Error at|Unknown record type)", printed):
        return "problem" in ours or ours["record"] in UNKNOWN_TO_4_3
    if topic == REMOTE_LOG_METADATA_TOPIC:
        return matched[2] == remote_log_text(ours["record"], ours["value"])
    if topic == CLUSTER_METADATA_TOPIC:
        payload = json.loads(matched[2])
        tags = {tag.name: tag.default for tag in MESSAGES[ours["api_key"]][ours["version"]].tags}
        return (payload["type"], payload["version"]) == (ours["record"], ours["version"]) and fits(
            snake(payload["data"]), ours["value"], tags
        )
    key_fields = snake(json.loads(matched[1]))
    if not _key_fits(key_fields, ours["key"]):
        return False
    if matched[2] == "<DELETE>":
        return ours["value"] is None and "problem" not in ours
    payload = json.loads(matched[2])
    assert value is not None
    version = int.from_bytes(value[:2], "big")
    return payload["version"] == str(version) and fits(
        *_normalized(ours["record"], snake(payload["data"]), ours["value"]), UNPRINTED
    )


def remote_log_text(record: str, fields: Json) -> str:
    """The fields of a record of `__remote_log_metadata` in the form that the tool prints."""
    segment = fields.get("remote_log_segment_id", fields)
    partition = segment.get("topic_id_partition")
    named = None if partition is None else f"{partition['id']}:{partition['name']}-{partition['partition']}"
    custom = fields.get("custom_metadata")
    epochs = {entry["leader_epoch"]: entry["offset"] for entry in fields.get("segment_leader_epochs", ())}
    words = {
        "remoteLogSegmentId": f"RemoteLogSegmentId{{topicIdPartition={named}, id={segment.get('id')}}}",
        "topicPartition": named,
        "segmentLeaderEpochs": f"{{{', '.join(f'{epoch}={offset}' for epoch, offset in sorted(epochs.items()))}}}",
        "customMetadata": "Optional.empty" if custom is None else f"Optional[CustomMetadata{{{len(b64decode(custom))} bytes}}]",
        "state": fields.get("remote_log_segment_state", fields.get("remote_partition_delete_state")),
        "txnIdxEmpty": str(fields.get("txn_index_empty")).lower(),
    }
    words |= {field: fields.get(name) for field in _NUMBERS for name in snake({field: None})}
    name, names = _REMOTE_LOG_TEXTS[record]
    return f"{name}{{{', '.join(f'{field}={words[field]}' for field in names.split())}}}"


_NUMBERS: Final = ["startOffset", "endOffset", "brokerId", "maxTimestampMs", "eventTimestampMs", "segmentSizeInBytes", "segmentId"]
_LAST_FIELDS: Final = " segmentSizeInBytes customMetadata state txnIdxEmpty"
_REMOTE_LOG_TEXTS: Final = {
    "RemoteLogSegmentMetadataRecord": (
        "RemoteLogSegmentMetadata",
        "remoteLogSegmentId startOffset endOffset brokerId maxTimestampMs eventTimestampMs segmentLeaderEpochs" + _LAST_FIELDS,
    ),
    "RemoteLogSegmentMetadataUpdateRecord": (
        "RemoteLogSegmentMetadataUpdate",
        "remoteLogSegmentId customMetadata state eventTimestampMs brokerId",
    ),
    "RemotePartitionDeleteMetadataRecord": (
        "RemotePartitionDeleteMetadata",
        "topicPartition state eventTimestampMs brokerId",
    ),
    "RemoteLogSegmentMetadataSnapshotRecord": (
        "RemoteLogSegmentMetadataSnapshot",
        "segmentId startOffset endOffset maxTimestampMs segmentLeaderEpochs" + _LAST_FIELDS,
    ),
}
"""Record → the class that the tool prints, and its fields in order."""


def snake(value: Any) -> Any:
    if isinstance(value, dict):
        return {re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", name): snake(item) for name, item in value.items()}
    return [snake(item) for item in value] if isinstance(value, list) else value


def fits(printed: Any, ours: Any, unprinted: Json) -> bool:
    """Whether a value equals the printed one; fields that were not printed must have their default; the tool drops unknown tags."""
    if isinstance(printed, dict):
        left_out = {name: value for name, value in ours.items() if name not in printed and name != UNKNOWN_TAGS}
        return all(name in ours and fits(value, ours[name], unprinted) for name, value in printed.items()) and all(
            name in unprinted and unprinted[name] == value for name, value in left_out.items()
        )
    if isinstance(printed, list):
        return len(printed) == len(ours) and all(fits(*pair, unprinted) for pair in zip(printed, ours, strict=True))
    return bool(printed == ours)


def _key_fits(printed: Json, ours: Json) -> bool:
    if "record_type" in ours:
        of_type = ours["record_type"]
        return printed["type"] == str(of_type) and list(printed["data"].values()) == [
            part for name, part in ours.items() if name != "record_type"
        ]
    return printed == {"type": "0", "data": ours}


def _normalized(record: str, printed: Json, ours: Json) -> tuple[Json, Json]:
    """Both with the same names and units, where ours differ from the tool's."""
    if record == "TransactionLog":
        partitions = printed.pop("transaction_partitions") or []
        printed["partitions"] = [f"{part['topic']}-{number}" for part in partitions for number in part["partition_ids"]]
        printed["state"] = TRANSACTION_STATES[printed.pop("transaction_status")]
        for name in ("last_update_timestamp", "start_timestamp"):
            printed[name] = printed.pop(f"transaction_{name}_ms")
    elif record == RECORD_TYPES[2]:
        ours = {name: value for name, value in ours.items() if name != "members_count"}
        ours["members"] = [{name.removesuffix("_ms"): value for name, value in member.items()} for member in ours["members"]]
        for member in printed["members"]:
            member["subscription_size"] = _size_in_bytes(member.pop("subscription"))
            member["assignment_size"] = _size_in_bytes(member.pop("assignment"))
    for batch in printed.get("state_batches", ()):
        batch["delivery_state"] = delivery_state_name(batch["delivery_state"])
    return printed, ours


def _size_in_bytes(printed: str | Json) -> int:
    """The size of a subscription or an assignment: the tool prints those of consumers as fields, others as Base64."""
    if isinstance(printed, str):
        return len(b64decode(printed))
    version = 2
    return version + sum(_size_of_field(name, value) for name, value in printed.items())


def _size_of_field(name: str, value: Any) -> int:
    """The size of a field, as Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment write it."""
    if isinstance(value, list):
        return 4 + sum(map(_size_of_element, value))
    if name == "user_data":
        return 4 + len(b64decode(value or ""))
    return 4 if isinstance(value, int) else 2 + len((value or "").encode())


def _size_of_element(element: str | int | Json) -> int:
    if isinstance(element, dict):
        return sum(_size_of_field(name, value) for name, value in element.items())
    return _size_of_field("", element)
