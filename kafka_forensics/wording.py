"""Findings in words: title, one-sentence message, advice and explanation page of every kind. The one module with prose.

`_PROSE` has a block a kind: `KIND: title`, the indented message, and behind `>` advice that is always safe to follow. `{name}` or
`{name:format}` is a number of the evidence or the place, `<held>` and `<look>` are phrases below, and `[first|second]` keeps the
first alternative whose numbers are all known, else nothing. Evidence may be incomplete or hostile: nothing here raises for it,
text is freed of control characters and cut, and bytes are never shown.
"""

import re
import shlex
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, SupportsIndex

from kafka_forensics.analysis.catalogue import CATALOGUE
from kafka_forensics.errors import UsageError
from kafka_forensics.model.findings import Finding, Severity
from kafka_forensics.model.typed_paths import typed_words

_PROSE: Final = """
BATCH_CRC_MISMATCH: batch with a wrong checksum
    {batch} does not match its checksum[ (stored {stored_crc:crc}, computed {computed_crc:crc})]<held>
BATCH_MAGIC_UNKNOWN: batch of an unknown format version
    {batch} has a format version[ ({magic})] that no Kafka release writes, although Kafka would accept it<held>
BATCH_MAGIC_REGRESSION: batch of an older format than those before it
    {batch} has an older format version[ ({magic})] than the batches before it<held>
BATCH_COUNT_LIE: batch with a false number of records
    {batch} declares a number of records[ ({records_count})] that its bytes do not hold<held>
BATCH_RANGE_INCONSISTENT: batch whose offsets do not fit its records
    {batch} covers another number of offsets than it has records[ ({records_count})], on a topic that is not compacted<held>
RECORD_VARINT_OVERLONG: record with a number that does not end
    [record {record_index} of {batch}|a record of {batch}] has a variable-length number longer than the format allows<held>
RECORD_LENGTH_OUT_OF_BOUNDS: record with a length beyond its end
    [record {record_index} of {batch}|a record of {batch}] declares a length[ of {declared_length:byte}] beyond its end<held>
RECORD_MALFORMED: record that cannot be decoded
    [record {record_index} of {batch}|a record of {batch}] cannot be decoded[ ({reason})]<held>
FRAMING_LOST: bytes that are no batch
    no batch starts at {bytes}[ ({reason})][; then {batches_recovered:batch}, from offset {first_recovered_offset}]<held>
HIDDEN_BYTES: good batches that Kafka does not see
    [{batches_recovered:good batch}|good batches] in {bytes}[, offsets {first_recovered_offset} to {last_recovered_offset},] cannot
    be seen by Kafka and would be cut off at its next recovery<held>
    > Copy this log directory elsewhere before the broker starts: recovery cuts the file before these batches. <look>
SEG_TORN_TAIL: last batch cut short
    the log ends inside a batch[ behind offset {last_valid_offset}], at {bytes}[{clean_shutdown:if}, after a clean stop]
    > Kafka cuts this off when it next recovers the log; see whether another replica has the whole batch with {compare}
SEG_SHORT: older segment cut short
    {file} ends inside a batch[ behind offset {last_valid_offset}], although a later segment follows<held>
SEG_ZERO_TAIL: zeros after the last batch
    only zeros follow the last batch, at {bytes}, as preallocation or a crash leaves them
SEG_HOLE: zeros where batches should be
    no batch starts at {bytes}, where [{zero_bytes:zero byte}|zeros] stand[; then {batches_recovered:batch}]<held>
SEG_NAME_MISMATCH: segment named after the wrong offset
    the name of {file} does not fit the offsets in it[: they start at {first_offset}, the name says {name_offset}]
    > Keep the file under the name it has[; see what is in it with {dump}|.]
BUDGET_EXCEEDED: bytes not examined to the end
    {bytes} were not examined to the end, because that would take too long[ ({reason})]
DECOMP_LIMIT_EXCEEDED: batch that unpacks to too much
    {batch} unpacks to more than [{limit:byte}|the limit][ ({codec})], so its records were not all read
CODEC_SIZE_LIE: compressed data with a false size
    the [{codec}|compressed] data of {batch} declare a size[ of {declared_length:byte}] that their bytes do not have<held>
CODEC_MALFORMED: compressed data that cannot be unpacked
    the [{codec}|compressed] data of {batch} cannot be unpacked[ ({reason})]<held>
LEGACY_NESTED_COMPRESSION: compressed message within a compressed message
    {batch} holds a compressed message within a compressed one, which Kafka does not read<held>
OFFSET_GAP: missing offsets
    no batch of this log covers [{offsets}|some offsets][{below_high_watermark:if}, although committed]<held>
    > See what the other replicas have there with {compare}
OFFSET_REGRESSION: offsets that stand in the log twice
    {batch} goes back to offsets that the log has already passed[ (offset {found_offset} where {expected_offset} was due)]<held>
OFFSET_NON_MONOTONIC: batches out of order
    {batch} is out of order[ (offset {found_offset} where {expected_offset} was due)]: a later one has the offsets left out<held>
OFFSET_DISCONTINUITY: batch with a wrong offset
    {batch} claims an offset[, {found_offset},] where its neighbours leave room for [{expected_offset}|another]<held>
SEGMENT_MISSING: missing segment
    a whole segment is gone: no file of this replica holds [{offsets}|the offsets between its neighbours]<held>
    > Look for the file in backups and among names ending in .deleted, .swap or .cleaned; see who has the offsets with {compare}
EPOCH_FIELD_MISMATCH: batch with a wrong leader epoch
    {batch} says [leader epoch {epoch}|a leader epoch] where [{expected_epoch}|another] is due[ according to {witnesses:list}]<held>
DUPLICATE_BATCH: batch written twice
    {batch} was already written[ at offset {first_offset}][ by producer {producer_id}], so that readers get its records twice
PRODUCER_SEQ_GAP: skipped sequence numbers
    [producer {producer_id}|a producer] skips sequence numbers at {batch}[: {found_sequence} where {expected_sequence} was due]
PRODUCER_SEQ_REGRESSION: sequence numbers going back
    [producer {producer_id}|a producer] goes back in sequence at {batch}[: {found_sequence} where {expected_sequence} was due]
PRODUCER_EPOCH_REGRESSION: producer epoch going back
    [producer {producer_id}|a producer] goes back to an older epoch[ ({producer_epoch} after {previous_epoch})] at {batch}
TXN_OPEN: open transaction
    [producer {producer_id}|a producer] has a transaction open[ since offset {first_offset}][, last written to at
    {last_timestamp:time}][; read_committed readers wait at offset {last_stable_offset}][, {hidden_records:offset} held back]
    > Normal while the producer works; if it stays, let kafka-transactions.sh find-hanging judge it on the running cluster.
TXN_LATE_WRITE: transactional data after its own marker
    {batch} was written[ by producer {producer_id}, epoch {producer_epoch},] after the marker that fenced it[ (epoch {later_epoch})]
    > On the running cluster look at this producer with kafka-transactions.sh describe-producers before aborting anything.
INDEX_MISMATCH: index that contradicts its log
    {file} does not fit its log[ ({reason})][ at entry {entry}]; no record is harmed and Kafka can rebuild the file
    > Do not touch the .log; `kafka-forensics explain INDEX_MISMATCH` says how Kafka rebuilds the index.
INDEX_MISSING: missing index files
    index files of [{segments:segment}|some segments] are missing; Kafka rebuilds them from the log
TXNINDEX_MISSING_ABORT: aborted transaction missing from the index
    {file}[{file_missing:if} is missing and so] lacks an aborted transaction[ of producer {producer_id}][, offsets {first_offset}
    to {last_offset}], so that read_committed readers would get its records
    > Keep the .log; `kafka-forensics explain TXNINDEX_MISSING_ABORT` says how Kafka rebuilds the file.
TXNINDEX_PHANTOM_ABORT: aborted transaction that the log does not have
    {file} lists an aborted transaction[ of producer {producer_id}][, offsets {first_offset} to {last_offset},] that the log does
    not have, so that read_committed readers would miss good records
    > Keep the .log; `kafka-forensics explain TXNINDEX_PHANTOM_ABORT` says how Kafka rebuilds the file.
PRODUCER_SNAPSHOT_CORRUPT: damaged producer snapshot
    {file} cannot be trusted[ ({reason})]; Kafka drops it and rebuilds the producers' state from the log
    > Nothing to repair; what it holds can be seen with [{dump}|`kafka-forensics dump`.]
EPOCH_CACHE_MISMATCH: epoch checkpoint that contradicts the batches
    leader-epoch-checkpoint does not fit the epochs of the batches[ ({reason})][: as a follower this replica would be cut at offset
    {truncation_offset_by_checkpoint} by the file, {truncation_offset_by_batches} by the batches]<held>
    > Copy this log directory elsewhere before the broker starts: Kafka truncates by the file, not by the batches. <look>
HW_BEYOND_LEO: high watermark beyond the log's end
    the checkpointed high watermark[ {high_watermark}] lies beyond the log's end[ {log_end_offset}], so this replica lost
    [{offsets}|committed offsets], unless it was copied while running<held>
    > If the copy was taken from a running broker, scan it again with --live; else find the offsets with {compare}
HW_UNKNOWN: unknown high watermark
    no high watermark is known[ for {partitions:partition}][ (checkpoint: {reason})], so nothing is said about what was committed
    > Add replication-offset-checkpoint of the log directory to the copy, if it can still be had.
CHECKPOINT_OUT_OF_ORDER: checkpoint that contradicts the log
    [{what} {value}|a checkpointed offset] contradicts [{limit_name} {limit}|the log]
    > Check whether the copy was taken from a running broker (--live) before looking for a fault.
CHECKPOINT_MALFORMED: unreadable checkpoint or identity file
    {file} cannot be read as what it should be[ ({reason})], so what it says is unknown
    > [See its content with {dump}]
REPLICA_DIFFERS: replica that differs from the others
    [the copy on {minority:brokers} differs from {majority:brokers}|replicas differ][ at {offsets}] within one leader epoch<held>
REPLICA_LAGS: replica that is behind
    this replica ends [{behind:offset}|some offsets] before the longest[, whose log end is {leader_end}], and agrees with it so far
    > Keep the longer copy[ (on {held_by:brokers})] until this one has caught up.
BATCHES_REENCODED: same records in other batches
    [{brokers:brokers}|the replicas] hold equal records in differently encoded batches[ at {offsets}]
SAME_EPOCH_DIVERGENCE: different records of one leader epoch
    the replicas hold different records of one leader epoch[ at offset {offset}][ ({versions})], which no election can explain
FORK_ABOVE_HW: logs that part above the high watermark
    the logs part at [offset {offset}|one offset][ ({versions})], above every known high watermark[; Kafka cuts at {cut}]
    > Kafka settles this by cutting one side; if acks=1 was in use, copy that log directory first and see its records with {compare}
FORK_BELOW_HW: logs that part below the high watermark
    the logs part at [offset {offset}|one offset][ ({versions})], below what was committed, and differ in [{offsets}|committed
    offsets][; the version at risk is on {held_by:brokers}|{held_by:none}; which version was acknowledged is unknown]
UNCLEAN_LOSS: committed records that a new leader lacks
    [{offsets}|some offsets], once committed, can be had [only from {held_by:brokers}|no more from the present leader][ and would
    be cut off at offset {cut} when that copy follows the new leader][ ({versions})]
COMMITTED_LOST_EVERYWHERE: committed records that no copy holds
    no given copy holds [{offsets}|some offsets], once committed[ (high watermark {high_watermark})][ according to {witness}]
    > Look for further copies: other replicas, other log directories, backups, files ending in .deleted. Then scan them together.
COMPACTED_VALUE_DIFFERS: keys with different latest values
    the replicas of this compacted partition disagree on the latest value of a key[ at {offsets}][ ({versions})]<held>
TOPIC_ID_MISMATCH: different topics of one name
    the copies are of different topics with the same name[ ({topic_ids:list})] and were not compared
    > Find out which topic id the cluster has now, and scan the copies of each topic by themselves.
CLUSTER_ID_MISMATCH: copies of different clusters
    the copies come from different clusters[ ({cluster_ids:list})] and were not compared
    > Scan each cluster's copies by themselves.
NODE_ID_CLASH: two brokers with one id
    log directories that are not one broker's claim the same node id[ ({node_id})][: {log_dirs:list}]
    > Name them apart with NAME=PATH, or leave one out if it is an older copy of the other.
REPLICA_MISSING: replica whose directory is gone
    {file} of this copy gives the partition[ {high_watermark} committed offsets], but its directory is not there
    > Look for the directory on the broker itself; if it is gone there too, keep every other replica as it is.
INCONSISTENT_CUT: files copied at different moments
    this replica's files are of different moments[ ({reason})| ({what} {value}, {limit_name} {limit})], so its end is not judged
    > For a firm answer copy the directory again while the broker is stopped, or from one storage snapshot.
EVIDENCE_CHANGED: file that changed while it was read
    {file} changed while it was read[ (before: {before:list}; after: {after:list})], so what was found in it is not sure
    > Copy the directory to where nothing writes and scan the copy, or use --live.
NON_REGULAR_SKIPPED: entry that is no regular file
    {file} is no regular file[ ({entry_kind})] and was not opened
SPARSE_FILE: file with holes
    {file} occupies [only {allocated_bytes:byte} of its {size_in_bytes:byte}|less than its size]; the holes read as zeros
DIR_NAME_ILLEGAL: illegal directory name
    Kafka gives no partition directory [the name "{name:list}"|such a name]
    > Kafka refuses to start on such a directory; find out who made it.
INTERRUPTED_SWAP: unfinished replacement of segments
    cleaning or splitting was interrupted[ and left {leftovers:list}]; the broker's next start finishes or undoes it
    > Copy the directory elsewhere before the broker starts: its start renames and removes files here.
FILE_UNKNOWN: file of no known kind
    the directory holds [{count:file}|a file] of no known kind[: {names:list}]
"""
_HELD: Final = "[; a good copy is on {held_by:brokers}|{held_by:none}; no good copy is known]"
_LOOK: Final = "[See the bytes with {dump} ]See what every replica holds there with {compare}"
_GUARDS: Final = (  # what to leave alone while no, one, more holders of a good copy are known
    "No good copy is known: keep every log directory and every backup as it is.",
    "Do not start {held_by:brokers}, and copy its log directory elsewhere first: no other good copy is known.",
    "Copy the log directories of {held_by:brokers} elsewhere before any broker of this partition starts.",
)
_REPAIR: Final = """stop it while one of {held_by:brokers} leads the partition, move (never delete) this partition's directory \
out of its log directory, and let it copy the partition again."""
_TOKEN: Final = re.compile(r"\[([^\]]*)\]|(\{\w+(?::[\w ]+)?\})")
_FIELD: Final = re.compile(r"\{(\w+)(?::([\w ]+))?\}")
_TEXT_LIMIT: Final = 160
_LIST_LIMIT: Final = 6


class _Words(NamedTuple):
    title: str
    message: str
    advice: str
    repairable: bool


def title(kind: str) -> str:
    """A short noun phrase for finding kind `kind`."""
    return _WORDS[kind].title


def message(finding: Finding) -> str:
    """One sentence that says what was found and where: no line breaks, no control characters, no payload bytes."""
    place = finding.place
    body = _fill(_WORDS[finding.kind].message, finding)
    partition = "" if place.topic is None or place.partition is None else f"{_clean(place.topic)}-{_clean(place.partition)}"
    broker = "" if place.broker is None else f"broker {_clean(place.broker)}"
    where = " on ".join(each for each in (partition, broker) if each)
    return f"{where}: {body}." if where else f"{body[:1].upper()}{body[1:]}."


def advice(finding: Finding) -> str | None:
    """The next step, or None where nothing need be done; with `held_by` in view it never destroys the last good copy."""
    words = _WORDS[finding.kind]
    holders = finding.evidence.get("held_by")
    parts = [_fill(words.advice, finding)]
    if isinstance(holders, list) and finding.severity is not Severity.INFO:
        if len(holders) < 2 or finding.severity is Severity.CRITICAL:
            parts.insert(0, _fill(_GUARDS[min(len(holders), 2)], finding))
        broker = finding.place.broker
        if words.repairable and len(holders) > 1 and broker is not None and _clean(broker) not in map(_clean, holders):
            parts.append(f"To repair broker {_clean(broker)}, {_fill(_REPAIR, finding)}")
    return " ".join(part for part in parts if part) or None


def explain_page(kind: str) -> str:
    """The Markdown page on `kind`, which may be in any case and with dashes. Raises UsageError if there is no such kind."""
    from difflib import get_close_matches  # these two only for `explain`, which is not in a hurry
    from importlib.resources import files

    name = kind.strip().upper().replace("-", "_")
    if name not in CATALOGUE:
        near = get_close_matches(name[:_TEXT_LIMIT], CATALOGUE, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else "`kafka-forensics explain` lists the kinds"
        raise UsageError(f"there is no finding kind {kind[:_TEXT_LIMIT]!r}", hint=hint)
    return files("kafka_forensics").joinpath("explanations", f"{name}.md").read_text(encoding="utf-8")


def _parse(prose: str) -> dict[str, _Words]:
    """Kind → words of `_PROSE`, phrases filled in; above info the least advice is to look."""
    table: dict[str, _Words] = {}
    for block in re.split(r"\n(?=\S)", prose.strip()):
        heading, *lines = (line.strip() for line in block.split("\n"))
        kind, name = heading.split(": ", 1)
        text, _, step = " ".join(lines).partition(" > ")
        if not step and CATALOGUE[kind].severity is not Severity.INFO:
            step = "<look>"
        table[kind] = _Words(name, text.replace("<held>", _HELD), step.replace("<look>", _LOOK), "<held>" in text)
    return table


def _fill(template: str, finding: Finding) -> str:
    """`template` with its numbers; what is unknown is left out with its brackets, or called `unknown` outside of them."""

    def field(name: str, form: str) -> str | None:
        if name in _DERIVED:
            return _DERIVED[name](finding)
        value = finding.evidence.get(name)
        if value is None or (isinstance(value, int) and (value == -1 or (value == 0 and name == "batches_recovered"))):
            return None
        return _FORMATS[form](value) if form in _FORMATS else _amount(value, form)

    def token(match: re.Match[str]) -> str:
        for alternative in (match[2] or match[1]).split("|"):
            literals = _FIELD.split(alternative)  # text, name, format, text, name, format, …, text
            texts = [field(name, form or "") for name, form in zip(literals[1::3], literals[2::3], strict=True)]
            if None not in texts:
                return "".join(f"{text}{filled}" for text, filled in zip(literals[::3], [*texts, ""], strict=True))
        return "unknown" if match[2] else ""

    return _TOKEN.sub(token, template)


def _clean(value: object, limit: int = _TEXT_LIMIT) -> str:
    """`value` as printable text of bounded length; of anything but text, numbers and lists of them only its type."""
    if isinstance(value, (list, tuple)) and limit:
        return ", ".join(_clean(each, limit // 4) for each in value[:_LIST_LIMIT])
    if isinstance(value, SupportsIndex):
        number = int(value)
        return str(number) if number.bit_length() <= 128 else "a huge number"
    text = str(value) if isinstance(value, (str, float)) else f"({type(value).__name__})"
    shown = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text[:limit])
    return shown if len(text) <= limit else f"{shown}…"


def _listed(value: object) -> str | None:
    """`1 and 2`, or `a: x and b: y`: the first few of many, None for nothing; anything else as it is."""
    if isinstance(value, dict):
        items = [f"{_clean(key, 40)}: {_clean(each, 60)}" for key, each in list(value.items())[:_LIST_LIMIT]]
    elif isinstance(value, (list, tuple)):
        items = [_clean(each, 60) for each in value[:_LIST_LIMIT]]
    else:
        return _clean(value)
    if len(value) > len(items):
        items.append(f"{len(value) - len(items)} more")
    return " and ".join(each for each in (", ".join(items[:-1]), *items[-1:]) if each) or None


def _brokers(value: object) -> str | None:
    return f"broker{'s' if len(value) > 1 else ''} {_listed(value)}" if isinstance(value, (list, tuple)) and value else None


def _amount(value: object, noun: str) -> str:
    """`1 batch`, `2 batches`; without a noun a number or a word as it is, underscores as blanks."""
    number = _clean(value).replace("_", " ")
    plural = "" if number == "1" or not noun else "es" if noun.endswith("ch") else "s"
    return f"{number} {noun}{plural}".rstrip()


def _time(value: object) -> str:
    """Milliseconds as a UTC time, or the bare number where there is no such time."""
    if isinstance(value, int) and 0 <= value < 253_402_300_800_000:
        return datetime.fromtimestamp(value // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return _clean(value)


def _span(start: object, end: object, noun: str) -> str | None:
    """`offset 5` for exclusive end 6, `offsets 5 to 9` for 10."""
    if not isinstance(start, int) or start < 0:
        return None
    if isinstance(end, int) and end > start + 1:
        return f"{noun}s {_clean(start)} to {_clean(end - 1)}"
    return f"{noun} {_clean(start)}"


def _offsets(finding: Finding) -> str | None:
    return _span(finding.place.offset_start, finding.place.offset_end, "offset")


def _file(finding: Finding) -> str:
    """The file's name, with its directory where that is not simply the partition's."""
    place = finding.place
    own = f"{place.topic}-{place.partition}/"
    return "a file" if place.file is None else _clean(str(place.file).removeprefix(own))


def _bytes(finding: Finding) -> str:
    return f"{_span(finding.place.byte_start, finding.place.byte_end, 'byte') or 'some bytes'} of {_file(finding)}"


def _batch(finding: Finding) -> str:
    start, offsets = finding.place.byte_start, _offsets(finding)
    batch = "a batch" if start is None else f"the batch at byte {_clean(start)}"
    return f"{batch} of {_file(finding)}{f' ({offsets})' if offsets else ''}"


def _versions(finding: Finding) -> str | None:
    """`epoch 2 on broker 1 against epoch 0 on brokers 2 and 3`."""
    versions = finding.evidence.get("versions")
    sides = [side for side in versions if isinstance(side, dict)] if isinstance(versions, (list, tuple)) else []
    texts = []
    for side in sides[:_LIST_LIMIT]:
        brokers, epoch = _brokers(side.get("brokers")), side.get("epoch", -1)
        if brokers:
            texts.append(brokers if epoch in (-1, None) else f"epoch {_clean(epoch)} on {brokers}")
    return " against ".join(texts) or None


def _cut(finding: Finding) -> str | None:
    """Where a follower would be cut; both offsets where the checkpoint file and the batches say different ones."""
    rows, holders = finding.evidence.get("truncation_offsets"), finding.evidence.get("held_by") or None
    known: set[int] = set()
    for row in rows if isinstance(rows, list) else [rows]:
        if isinstance(row, dict) and (not isinstance(holders, list) or row.get("follower", holders[0]) in holders):
            cuts = (row.get("from_batches"), row.get("from_checkpoint"))
            known.update(each for each in cuts if isinstance(each, int) and each >= 0)
    return " or ".join(map(_clean, sorted(known))) or None


def _dump(finding: Finding) -> str | None:
    words = typed_words(finding.place)
    return f"`kafka-forensics dump {shlex.join(_clean(word, 4096) for word in words)} --explain`." if words else None


def _compare(finding: Finding) -> str:
    place = finding.place
    if place.topic is None or place.partition is None:
        return "`kafka-forensics compare PATH...`."
    return f"`kafka-forensics compare PATH... --topic {shlex.quote(_clean(place.topic))} --partition {_clean(place.partition)}`."


_DERIVED: Final[dict[str, Callable[[Finding], str | None]]] = {
    each.__name__[1:]: each for each in (_batch, _bytes, _compare, _cut, _dump, _file, _offsets, _versions)
}
_FORMATS: Final[dict[str, Callable[[Any], str | None]]] = {
    "brokers": _brokers,
    "crc": lambda value: f"0x{value:08x}" if isinstance(value, int) and 0 <= value < 2**32 else _clean(value),
    "if": lambda value: "" if value is True else None,
    "list": _listed,
    "none": lambda value: "" if value == [] else None,
    "time": _time,
}
_WORDS: Final = _parse(_PROSE)
