"""Parses the output of Kafka's DumpLogSegments into rows of facts: batches, records, entries of indexes and snapshots.

A row holds the numbers of one line under the names that the tool of 4.3.0 uses, whatever the version of the tool. A table of rows
is stored as tab-separated values, with backslashes and control characters written `\\uXXXX`.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from lab.errors import LabError
from lab.jvm import DUMP_LOG_SEGMENTS, ToolResult, run_tool
from lab.kafka_jars import KAFKA_VERSION
from lab.versions import VERSIONS

Row = dict[str, str]
TOOLS: Final = {
    "2.8.2": "kafka.tools.DumpLogSegments",
    "3.9.1": "kafka.tools.DumpLogSegments",
    KAFKA_VERSION: DUMP_LOG_SEGMENTS,
}
"""Version of Kafka → main class of its DumpLogSegments."""
DECODERS: Final = {
    "__consumer_offsets": "--offsets-decoder",
    "__transaction_state": "--transaction-log-decoder",
    "__cluster_metadata": "--cluster-metadata-decoder",
    "__share_group_state": "--share-group-state-decoder",
    "__remote_log_metadata": "--remote-log-metadata-decoder",
}
"""Internal topic → option that decodes its records."""
PRINT: Final = "--print-data-log"
SANITY: Final = "--index-sanity-check"
INDEXES: Final = (".index", ".timeindex")
LOGS: Final = (".log", ".checkpoint")
TIMEOUT_SECONDS: Final = 180
FILES_A_RUN: Final = 2000
"""Limit of file names in one argument."""
COLUMNS: Final = (
    *("span", "offset", "timestampType", "timestamp", "sequence", "keySize", "valueSize", "headerKeys", "said", "crc", "isvalid"),
    *(
        "position",
        "size",
        "magic",
        "compresscodec",
        "baseOffset",
        "lastOffset",
        "count",
        "baseSequence",
        "lastSequence",
        "producerId",
    ),
    *("producerEpoch", "partitionLeaderEpoch", "isTransactional", "isControl", "deleteHorizonMs", "version", "firstOffset"),
    *("lastStableOffset", "coordinatorEpoch", "currentTxnFirstOffset", "lastTimestamp", "firstSequence", "offsetDelta"),
)
"""Columns of all tables, in order, those of records first. `said` is text: a record's key and payload, the content of a control
record, the error that ended the tool, or a complaint."""

_TIMES: Final = ("CreateTime", "LogAppendTime", "NoTimestampType")
_NOT_OF_THE_RECORD: Final = frozenset(
    {"baseOffset", "lastOffset", "baseSequence", "lastSequence", "producerEpoch", "partitionLeaderEpoch", "batchSize", "magic"}
    | {"compressType", "position"}
)
"""Fields of the batch that Kafka 2.8 repeats in the line of a record."""
_DUMPING: Final = re.compile(r"^Dumping (\S+)$", re.MULTILINE)
_NEXT_LINE: Final = re.compile(
    r"\n(?=\| offset: \d|baseOffset: \d|offset: \d|Found \d+ invalid bytes|timestamp: |version: |producerId: |\Z)"
)
_NUMBER: Final = re.compile(r"(\w+): (\S+)")
_RECORD: Final = re.compile(r"\| ((?:(?!headerKeys: |key: |payload: )\w+: \S+ ?)+)(?:headerKeys: (\[.*?\]) ?)?(.*)", re.DOTALL)
"""Groups: numbers, header keys (if the format has them), text."""
_OPTIONAL: Final = re.compile(r"(?:OptionalLong|Some)[\[(](-?\d+)[\])]")
_EXCEPTION: Final = re.compile(r'^Exception in thread "main" (?:[\w.]+\.)?(\w+(?:: .*)?)$', re.MULTILINE)
_COMPLAINT: Final = re.compile(r"^ *((?:Index|Indexed) (?:offset|timestamp): .*)$")
_SNAPSHOT_COMPLAINT: Final = re.compile(r"^Snapshot .*$", re.MULTILINE)
"""A complaint about a snapshot; it names no file, and the tool prints no entry of that snapshot."""
_ESCAPED: Final = re.compile(r"[\\\x00-\x1f\x7f-\x9f\u2028\u2029]")


class Printed(NamedTuple):
    """The tool's output for one file: lines, complaints about an index or snapshot, and the error if the tool ended at this
    file."""

    lines: list[str]
    complaints: list[str]
    end: str | None


def printed(files: Sequence[str], directory: Path, *options: str, version: str = KAFKA_VERSION) -> dict[str, Printed]:
    """File → the tool's output. One run dumps many files; if it ends at a file with an error, the next run dumps the others."""
    found: dict[str, Printed] = {}
    remaining = list(files)
    while remaining:
        chunk = remaining[:FILES_A_RUN]
        done = _run(chunk, directory, options, version)
        texts = _by_file(done.stdout.decode())
        if done.exit_code == 0:
            complaints = _complaints(done.stderr.decode(), directory)
            found |= {name: Printed(_lines(texts[name]), complaints[name], None) for name in chunk}
            if _SNAPSHOT_COMPLAINT.search(done.stderr.decode()):
                suspects = [name for name in chunk if name.endswith(".snapshot") and not found[name].lines]
                found |= {name: _dump_snapshot(name, directory, options, version) for name in suspects}
            remaining = remaining[len(chunk) :]
        else:
            refused = list(texts)[-1]
            found[refused] = Printed(_lines(texts[refused]), [], _reason(done.stderr.decode(), directory))
            remaining.remove(refused)
    return found


def _run(files: list[str], directory: Path, options: tuple[str, ...], version: str) -> ToolResult:
    arguments = [*options, "--files", ",".join(files)]
    jars = VERSIONS[version].jars
    return run_tool(TOOLS[version], arguments, directory=directory, jars=jars, timeout_seconds=TIMEOUT_SECONDS)


def _dump_snapshot(name: str, directory: Path, options: tuple[str, ...], version: str) -> Printed:
    """The tool's output for one snapshot, in a separate run, because complaints about snapshots name no file."""
    done = _run([name], directory, options, version)
    return Printed(_lines(_by_file(done.stdout.decode())[name]), _SNAPSHOT_COMPLAINT.findall(done.stderr.decode()), None)


def _by_file(text: str) -> dict[str, str]:
    parts = _DUMPING.split(text)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _lines(text: str) -> list[str]:
    """The lines of batches, records and entries; a line break inside a payload does not end a line."""
    return [line for line in _NEXT_LINE.split(text) if line.strip("\n")]


def _complaints(text: str, directory: Path) -> dict[str, list[str]]:
    """Index file → the tool's complaints about its entries; complaints that name no file are left out."""
    found: dict[str, list[str]] = defaultdict(list)
    file = ""
    for line in text.splitlines():
        if (complaint := _COMPLAINT.match(line)) is not None:
            found[file].append(complaint[1])
        else:
            _, named, path = line.partition(f"{directory}/")
            file = path if named else ""
    return found


def _reason(text: str, directory: Path) -> str:
    """The exception that ended the tool, without the path of the directory. Raises LabError if there is none."""
    reason = _EXCEPTION.search(text)
    if reason is None:
        raise LabError(f"Kafka's tool ended without an exception: {text[-2000:]}")
    return reason[1].replace(f"{directory}/", "")


def numbers(line: str) -> Row:
    """The numbers in the line of a batch or an entry."""
    row: Row = {}
    for name, value in _NUMBER.findall(line):
        if name in _TIMES:
            row |= {"timestampType": name, "timestamp": value}
        else:
            row[name] = _plain(value)
    if "compresscodec" in row:
        row["compresscodec"] = row["compresscodec"].lower()
    return row


def _plain(value: str) -> str:
    """A number without Java's OptionalLong or Scala's Some; `-` if it is absent."""
    optional = _OPTIONAL.fullmatch(value)
    return optional[1] if optional else "-" if value in ("OptionalLong.empty", "None") else value


def record(line: str) -> Row:
    """The row of a record's line. Raises LabError for an unknown format."""
    matched = _RECORD.fullmatch(line)
    if matched is None:
        raise LabError(f"Kafka's tool prints records in a way unknown here: {line!r}")
    row = {name: value.rstrip("}") for name, value in numbers(matched[1]).items() if name not in _NOT_OF_THE_RECORD}
    if matched[2] is None:
        row["isvalid"] = row.pop("isValid", row.get("isvalid", ""))
    else:
        row = {name: value for name, value in row.items() if name not in ("crc", "isValid")} | {"headerKeys": matched[2]}
    return {"span": "record", **row, "said": matched[3]}


def log_rows(batches: Printed, records: Printed) -> list[Row]:
    """Rows of a log: each batch, followed by its records if the tool printed them.

    A row `records_end` marks where the tool failed while it read records, a row `end` where it failed without reading records.
    """
    records_by_position: dict[str, list[Row]] = {}
    batch_records: list[Row] = []
    for line in records.lines:
        if line.startswith("| "):
            batch_records.append(record(line))
        elif "position: " in line:
            batch_records = records_by_position.setdefault(numbers(line)["position"], [])
    if records.end is not None:
        batch_records.append({"span": "records_end", "said": records.end})
    rows = []
    for line in batches.lines:
        if line.startswith("Found "):
            rows.append({"span": "end", "said": line.rpartition(" at the end of ")[0]})
        elif "position: " in line:
            batch = {"span": "batch", **numbers(line)}
            rows += [batch, *records_by_position.pop(batch["position"], [])]
    if records_by_position:
        unexpected = ", ".join(records_by_position)
        raise LabError(f"Kafka's tool showed other batches with their records than without: at {unexpected}")
    return rows if batches.end is None else [*rows, {"span": "end", "said": batches.end}]


def entry_rows(entries: Printed, sanity: Printed | None = None) -> list[Row]:
    """Rows of an index or a snapshot: entries, the error that ended the tool, complaints, and the error of the sanity check."""
    rows = [{"span": "entry", **numbers(line)} for line in entries.lines if ": " in line]
    rows += [] if entries.end is None else [{"span": "end", "said": entries.end}]
    rows += [{"span": "complaint", "said": complaint} for complaint in entries.complaints]
    if sanity is not None and sanity.end is not None:
        rows.append({"span": "insane", "said": sanity.end})
    return rows


def tables(
    files: Iterable[str], directory: Path, *, decoders: Mapping[str, str] | None = None, version: str = KAFKA_VERSION
) -> Iterator[tuple[str, list[Row]]]:
    """(file, its rows). Records are printed by the file's decoder in `decoders`, or as text."""
    names = list(files)
    batches = printed(names, directory, version=version)
    sanity = printed([name for name in names if name.endswith(INDEXES)], directory, SANITY, version=version)
    by_option: dict[str, list[str]] = defaultdict(list)
    for name in names:
        if name.endswith(LOGS):
            by_option[(decoders or {}).get(name, PRINT)].append(name)
    records: dict[str, Printed] = {}
    for option, logs in by_option.items():
        records |= printed(logs, directory, option, version=version)
    for name in names:
        yield name, log_rows(batches[name], records[name]) if name in records else entry_rows(batches[name], sanity.get(name))


def as_table(rows: Sequence[Row]) -> str:
    """The rows as tab-separated values, in the columns that at least one row has."""
    columns = [name for name in COLUMNS if name == "span" or any(name in row for row in rows)]
    lines = ["\t".join(columns), *("\t".join(_escape(row.get(name)) for name in columns).rstrip("\t") for row in rows)]
    return "".join(f"{line}\n" for line in lines)


def from_table(text: str) -> list[Row]:
    """The rows of a table made by `as_table`; empty cells are left out."""
    columns, *lines = (line.split("\t") for line in text.removesuffix("\n").split("\n"))
    return [{name: _unescape(cell) for name, cell in zip(columns, line, strict=False) if cell} for line in lines]


def _escape(cell: str | None) -> str:
    return "" if cell is None else _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", cell)


def _unescape(cell: str) -> str:
    return re.sub(r"\\u(.{4})", lambda found: chr(int(found[1], 16)), cell)
