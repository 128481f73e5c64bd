"""What Kafka's own DumpLogSegments prints of files, as rows of facts: batches, records, entries of indexes and snapshots.

A row holds the numbers of one line under the names that the tool of 4.3.0 gives them, whatever the version of the tool. A table of
rows is kept as tab-separated values, in which backslashes and control characters are spelled `\\uXXXX`.
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
"""Version of Kafka → the main class of its tool."""
DECODERS: Final = {
    "__consumer_offsets": "--offsets-decoder",
    "__transaction_state": "--transaction-log-decoder",
    "__cluster_metadata": "--cluster-metadata-decoder",
    "__share_group_state": "--share-group-state-decoder",
    "__remote_log_metadata": "--remote-log-metadata-decoder",
}
"""Internal topic → the option with which the tool takes its records apart."""
PRINT: Final = "--print-data-log"
SANITY: Final = "--index-sanity-check"
INDEXES: Final = (".index", ".timeindex")
LOGS: Final = (".log", ".checkpoint")
TIMEOUT_SECONDS: Final = 180
FILES_A_RUN: Final = 2000
"""So many names fit into one argument."""
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
"""Of all tables, in their order; first those of records. `said` is text: a record's key and payload, or what a control record says,
or why the tool ended, or what it complains of."""

_TIMES: Final = ("CreateTime", "LogAppendTime", "NoTimestampType")
_NOT_OF_THE_RECORD: Final = frozenset(
    {"baseOffset", "lastOffset", "baseSequence", "lastSequence", "producerEpoch", "partitionLeaderEpoch", "batchSize", "magic"}
    | {"compressType", "position"}
)
"""What Kafka 2.8 repeats of the batch in the line of a record."""
_DUMPING: Final = re.compile(r"^Dumping (\S+)$", re.MULTILINE)
_NEXT_LINE: Final = re.compile(
    r"\n(?=\| offset: \d|baseOffset: \d|offset: \d|Found \d+ invalid bytes|timestamp: |version: |producerId: |\Z)"
)
_NUMBER: Final = re.compile(r"(\w+): (\S+)")
_RECORD: Final = re.compile(r"\| ((?:(?!headerKeys: |key: |payload: )\w+: \S+ ?)+)(?:headerKeys: (\[.*?\]) ?)?(.*)", re.DOTALL)
"""Numbers, names of headers where the format has them, and text."""
_OPTIONAL: Final = re.compile(r"(?:OptionalLong|Some)[\[(](-?\d+)[\])]")
_EXCEPTION: Final = re.compile(r'^Exception in thread "main" (?:[\w.]+\.)?(\w+(?:: .*)?)$', re.MULTILINE)
_COMPLAINT: Final = re.compile(r"^ *((?:Index|Indexed) (?:offset|timestamp): .*)$")
_OF_SNAPSHOT: Final = re.compile(r"^Snapshot .*$", re.MULTILINE)
"""A complaint about a snapshot, which names no file. The tool prints no entry of such a snapshot."""
_SPELLED: Final = re.compile(r"[\\\x00-\x1f\x7f-\x9f\u2028\u2029]")


class Printed(NamedTuple):
    """What the tool printed of one file: lines without its name, complaints about an index or snapshot, and why it ended there."""

    lines: list[str]
    complaints: list[str]
    end: str | None


def printed(files: Sequence[str], directory: Path, *options: str, version: str = KAFKA_VERSION) -> dict[str, Printed]:
    """File → what the tool prints of it, all in one run; where that ends at a file that is refused, the others are in another."""
    found: dict[str, Printed] = {}
    left = list(files)
    while left:
        chunk = left[:FILES_A_RUN]
        done = _run(chunk, directory, options, version)
        texts = _by_file(done.stdout.decode())
        if done.exit_code == 0:
            complaints = _complaints(done.stderr.decode(), directory)
            found |= {name: Printed(_lines(texts[name]), complaints[name], None) for name in chunk}
            if _OF_SNAPSHOT.search(done.stderr.decode()):
                suspects = [name for name in chunk if name.endswith(".snapshot") and not found[name].lines]
                found |= {name: _of_snapshot(name, directory, options, version) for name in suspects}
            left = left[len(chunk) :]
        else:
            refused = list(texts)[-1]
            found[refused] = Printed(_lines(texts[refused]), [], _reason(done.stderr.decode(), directory))
            left.remove(refused)
    return found


def _run(files: list[str], directory: Path, options: tuple[str, ...], version: str) -> ToolResult:
    arguments = [*options, "--files", ",".join(files)]
    jars = VERSIONS[version].jars
    return run_tool(TOOLS[version], arguments, directory=directory, jars=jars, timeout_seconds=TIMEOUT_SECONDS)


def _of_snapshot(name: str, directory: Path, options: tuple[str, ...], version: str) -> Printed:
    """What the tool prints of one snapshot in a run of its own: only so does a complaint belong to a file."""
    done = _run([name], directory, options, version)
    return Printed(_lines(_by_file(done.stdout.decode())[name]), _OF_SNAPSHOT.findall(done.stderr.decode()), None)


def _by_file(text: str) -> dict[str, str]:
    parts = _DUMPING.split(text)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _lines(text: str) -> list[str]:
    """One for each batch, record or entry, although payloads are printed with their line breaks."""
    return [line for line in _NEXT_LINE.split(text) if line.strip("\n")]


def _complaints(text: str, directory: Path) -> dict[str, list[str]]:
    """Index → what the tool says of its entries; what it says without naming a file is left out."""
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
    """The exception with which the tool ended, without the place of the files."""
    reason = _EXCEPTION.search(text)
    if reason is None:
        raise LabError(f"Kafka's tool ended without an exception: {text[-2000:]}")
    return reason[1].replace(f"{directory}/", "")


def numbers(line: str) -> Row:
    """The numbers of a line that tells of a batch or an entry."""
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
    """A number, without what Java and Scala write around one that may be missing; `-` for a missing one."""
    optional = _OPTIONAL.fullmatch(value)
    return optional[1] if optional else "-" if value in ("OptionalLong.empty", "None") else value


def record(line: str) -> Row:
    """What the line of a record says."""
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
    """Rows of a log: of each batch, followed by its records where the tool gave them.

    A row `records_end` stands where the tool refused to read on when it read records, a row `end` where it did without.
    """
    held: dict[str, list[Row]] = {}
    of_batch: list[Row] = []
    for line in records.lines:
        if line.startswith("| "):
            of_batch.append(record(line))
        elif "position: " in line:
            of_batch = held.setdefault(numbers(line)["position"], [])
    if records.end is not None:
        of_batch.append({"span": "records_end", "said": records.end})
    rows = []
    for line in batches.lines:
        if line.startswith("Found "):
            rows.append({"span": "end", "said": line.rpartition(" at the end of ")[0]})
        elif "position: " in line:
            batch = {"span": "batch", **numbers(line)}
            rows += [batch, *held.pop(batch["position"], [])]
    if held:
        raise LabError(f"Kafka's tool showed other batches with their records than without: at {', '.join(held)}")
    return rows if batches.end is None else [*rows, {"span": "end", "said": batches.end}]


def entry_rows(entries: Printed, sanity: Printed | None = None) -> list[Row]:
    """Rows of an index or a snapshot: its entries, where the tool ended, what it complains of, and whether an index is `sane`."""
    rows = [{"span": "entry", **numbers(line)} for line in entries.lines if ": " in line]
    rows += [] if entries.end is None else [{"span": "end", "said": entries.end}]
    rows += [{"span": "complaint", "said": complaint} for complaint in entries.complaints]
    if sanity is not None and sanity.end is not None:
        rows.append({"span": "insane", "said": sanity.end})
    return rows


def tables(
    files: Iterable[str], directory: Path, *, decoders: Mapping[str, str] | None = None, version: str = KAFKA_VERSION
) -> Iterator[tuple[str, list[Row]]]:
    """File → its rows. Records are printed by the decoder that is given for the file, or as text."""
    wanted = list(files)
    batches = printed(wanted, directory, version=version)
    sanity = printed([name for name in wanted if name.endswith(INDEXES)], directory, SANITY, version=version)
    by_option: dict[str, list[str]] = defaultdict(list)
    for name in wanted:
        if name.endswith(LOGS):
            by_option[(decoders or {}).get(name, PRINT)].append(name)
    records: dict[str, Printed] = {}
    for option, names in by_option.items():
        records |= printed(names, directory, option, version=version)
    for name in wanted:
        yield name, log_rows(batches[name], records[name]) if name in records else entry_rows(batches[name], sanity.get(name))


def as_table(rows: Sequence[Row]) -> str:
    """The rows as tab-separated values, in the columns that one of them has."""
    columns = [name for name in COLUMNS if name == "span" or any(name in row for row in rows)]
    lines = ["\t".join(columns), *("\t".join(_spelled(row.get(name)) for name in columns).rstrip("\t") for row in rows)]
    return "".join(f"{line}\n" for line in lines)


def from_table(text: str) -> list[Row]:
    """The rows of such a table; what a row has not is not in it."""
    head, *lines = (line.split("\t") for line in text.removesuffix("\n").split("\n"))
    return [{name: _read(cell) for name, cell in zip(head, line, strict=False) if cell} for line in lines]


def _spelled(cell: str | None) -> str:
    return "" if cell is None else _SPELLED.sub(lambda found: f"\\u{ord(found[0]):04x}", cell)


def _read(cell: str) -> str:
    return re.sub(r"\\u(.{4})", lambda found: chr(int(found[1], 16)), cell)
