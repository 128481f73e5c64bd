"""Findings in words: title, one-sentence message, advice and explanation page of every kind. The one room with prose.

Each module beside this one has the prose of one subject, a block a kind: `KIND: title`, the indented message, and behind `>`
advice that is always safe to follow. `{name}` or `{name:format}` is a number of the evidence or the place, `<held>` and `<look>`
are phrases below, and `[first|second]` keeps the first alternative whose numbers are all known, else nothing. Evidence may be
incomplete or hostile: nothing here raises for it, text is freed of control characters and cut, and bytes are never shown.
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
from kafka_forensics.wording import (
    compaction,
    copies,
    elections,
    groups,
    incidents,
    order,
    recovery,
    replicas,
    segments,
    small_files,
    snapshots,
    topics,
    transactions,
    witnesses,
)

_HELD: Final = "[; {held_by:copies}|{held_by:none}; no good copy is known]"
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
_UNITS: Final = ((172_800, 86_400, 3600, ("d", "h")), (3600, 3600, 60, ("h", "min")), (60, 60, 1, ("min", "s")))
"""From how many seconds on, how many each of two units has, and their names."""
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
    """Kind → words of some prose, phrases filled in; above info the least advice is to look."""
    table: dict[str, _Words] = {}
    for block in re.split(r"\n(?=\S)", prose.strip()):
        heading, *lines = (line.strip() for line in block.split("\n"))
        kind, name = heading.split(": ", 1)
        text, _, step = " ".join(lines).strip().partition(" > ")
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


def _copies(value: object) -> str | None:
    """`a good copy is on broker 2`, `good copies are on brokers 1 and 2`."""
    holders = _brokers(value)
    return holders and (f"good copies are on {holders}" if holders.startswith("brokers") else f"a good copy is on {holders}")


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


def duration(milliseconds: object) -> str:
    """A time that passed, in its two largest units: `22 h 5 min`; `unknown` for what is none."""
    if not isinstance(milliseconds, int) or not 0 <= milliseconds < 1 << 63:
        return "unknown"
    seconds = milliseconds // 1000
    for least, large, small, units in _UNITS:
        if seconds >= least:
            rest = seconds % large // small
            return f"{seconds // large} {units[0]}" + (f" {rest} {units[1]}" if rest else "")
    return f"{seconds} s"


def _span(start: object, end: object, noun: str) -> str | None:
    """`offset 5` for exclusive end 6, `offsets 5 to 9` for 10."""
    if not isinstance(start, int) or start < 0:
        return None
    if isinstance(end, int) and end > start + 1:
        return f"{noun}s {_clean(start)} to {_clean(end - 1)}"
    return f"{noun} {_clean(start)}"


def _offsets(finding: Finding) -> str | None:
    return _span(finding.place.offset_start, finding.place.offset_end, "offset")


def _topic(finding: Finding) -> str | None:
    return None if finding.place.topic is None else _clean(finding.place.topic)


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


def _not_whole(finding: Finding) -> str | None:
    """`offsets 300 to 309 lie damaged on broker 2`: of holders of which none has all."""
    rows = finding.evidence.get("not_whole")
    told: dict[str, list[str]] = {}
    for row in rows[:_LIST_LIMIT] if isinstance(rows, (list, tuple)) else []:
        span = _span(row.get("offset_start"), row.get("offset_end"), "offset") if isinstance(row, dict) else None
        if span is not None:
            told.setdefault(_clean(row.get("broker")), []).append(span)
    return " and ".join(f"{_listed(spans)} lie damaged on broker {broker}" for broker, spans in told.items()) or None


def _cut(finding: Finding) -> str | None:
    """Where a follower would be cut; both offsets where the checkpoint file and the batches say different ones."""
    rows, holders = finding.evidence.get("truncation_offsets"), finding.evidence.get("held_by") or None
    known: set[int] = set()
    for row in rows if isinstance(rows, list) else [rows]:
        if isinstance(row, dict) and (not isinstance(holders, list) or row.get("follower", holders[0]) in holders):
            cuts = (row.get("from_batches"), row.get("from_checkpoint"))
            known.update(each for each in cuts if isinstance(each, int) and each >= 0)
    return " or ".join(map(_clean, sorted(known))) or None


def _successor(finding: Finding) -> str:
    """Whom the holders of a loss will follow: by name where the sides of the fork do not say it."""
    leaders, versions = finding.evidence.get("leaders"), finding.evidence.get("versions")
    sides = versions if isinstance(versions, (list, tuple)) else []
    told = [one for one in sides if isinstance(one, dict) and one.get("brokers") == leaders]
    brokers, epoch = _brokers(leaders), finding.evidence.get("latest_epoch")
    if brokers is None or (told and len(sides) == 2):
        return "the new leader"
    return f"the new leader, {brokers}{f' in epoch {_clean(epoch)}' if isinstance(epoch, int) and epoch >= 0 else ''}"


def _dump(finding: Finding) -> str | None:
    words = typed_words(finding.place)
    return f"`kafka-forensics dump {shlex.join(_clean(word, 4096) for word in words)} --explain`." if words else None


def _defect(finding: Finding) -> str | None:
    """What is wrong with a small file, and in which line."""
    reason, line = finding.evidence.get("reason"), finding.evidence.get("line")
    if reason is None:
        return None
    words = small_files.DEFECTS.get(reason) if isinstance(reason, str) else None
    return (words or _amount(reason, "")) + (f" (line {_clean(line)})" if isinstance(line, int) else "")


def _stops(finding: Finding) -> str | None:
    """Nothing, where a broker does not start."""
    return "" if finding.evidence.get("starts") is False else None


def _without(finding: Finding) -> str | None:
    return small_files.WITHOUT.get(str(finding.place.file).rpartition("/")[2])


def _compare(finding: Finding) -> str:
    place = finding.place
    if place.topic is None or place.partition is None:
        return "`kafka-forensics compare PATH...`."
    return f"`kafka-forensics compare PATH... --topic {shlex.quote(_clean(place.topic))} --partition {_clean(place.partition)}`."


def _end_transaction(finding: Finding) -> str | None:
    """The command that ends a hanging transaction (Kafka 3.0 and later)."""
    place, first = finding.place, finding.evidence.get("first_offset")
    if place.topic is None or place.partition is None or not isinstance(first, int):
        return None
    where = f"--topic {shlex.quote(_clean(place.topic, 4096))} --partition {_clean(place.partition)} --start-offset {_clean(first)}"
    return f"`kafka-transactions.sh --bootstrap-server HOST:PORT abort {where}`"


_DERIVED: Final[dict[str, Callable[[Finding], str | None]]] = {
    each.__name__[1:]: each
    for each in (
        _batch,
        _bytes,
        _compare,
        _cut,
        _defect,
        _dump,
        _end_transaction,
        _file,
        _not_whole,
        _offsets,
        _stops,
        _successor,
        _topic,
        _versions,
        _without,
    )
}
_FORMATS: Final[dict[str, Callable[[Any], str | None]]] = {
    "brokers": _brokers,
    "copies": _copies,
    "duration": duration,
    "crc": lambda value: f"0x{value:08x}" if isinstance(value, int) and 0 <= value < 2**32 else _clean(value),
    "if": lambda value: "" if value is True else None,
    "list": _listed,
    "none": lambda value: "" if value == [] else None,
    "time": _time,
}
_SUBJECTS: Final = (
    segments,
    order,
    transactions,
    small_files,
    replicas,
    elections,
    copies,
    groups,
    recovery,
    incidents,
    witnesses,
    compaction,
    topics,
    snapshots,
)
_WORDS: Final = _parse("".join(each.PROSE for each in _SUBJECTS))
