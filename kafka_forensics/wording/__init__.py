"""Findings in words: title, one-sentence message, advice and explanation page of every kind. The one room with prose.

Each module beside this one has the prose of one subject, a block a kind: `KIND: title`, the indented message, and behind `>`
advice that is always safe to follow. `{name}` or `{name:format}` is a number of the evidence or the place, `<held>`, `<look>`
and `<weigh>` are phrases below, `<repair>` ends advice to which the steps of a repair belong, and `[first|second]` keeps the first
alternative whose numbers are all known, else nothing.
Evidence may be incomplete or hostile: nothing here raises for it, text is freed of control characters and cut, and bytes are
never shown.
"""

import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from kafka_forensics.analysis.catalogue import CATALOGUE
from kafka_forensics.errors import UsageError, did_you_mean
from kafka_forensics.model.files import typed_words
from kafka_forensics.model.findings import Finding, Severity
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
from kafka_forensics.wording.fork_words import kept_by, not_whole, rivals, successor, truncation, versions_held
from kafka_forensics.wording.values import TEXT_LIMIT, amount, clean, copies_on, duration, listed, moment, named_brokers, span

_HELD: Final = "[; {held_by:copies}|{held_by:none}; no good copy is known]"
_ONLY: Final = "Only one copy was looked at: if others exist, give their log directories, too."
_LOOK: Final = "[See the bytes with {dump} ][See what every replica holds there with {compare}|<only>]"
_WEIGH: Final = """[{kept}Copy them all elsewhere before any broker starts. |{others}Copy those of the other brokers, too, before \
any of them starts. |Copy the log directories of all brokers elsewhere before any of them starts. ]Weigh what each election would \
cost with {plan} [See what every replica holds there with {compare}|<only>]"""
_GUARDS: Final = (  # what to leave alone while no, one, more holders of a good copy are known
    "No good copy is known: keep every log directory and every backup as it is.",
    "Leave {held_by:brokers} stopped until its log directory is copied elsewhere: no other good copy is known.",
    "Copy the log directories of {held_by:brokers} elsewhere before any broker of this partition starts.",
)
_REPAIR: Final = """stop it while one of {held_by:brokers} leads the partition, move (never delete) this partition's directory \
out of its log directory, and let it copy the partition again."""
_TOKEN: Final = re.compile(r"\[([^\]]*)\]|(\{\w+(?::[\w ]+)?\})")
_NAME_FIRST: Final = re.compile(r"\[*(\{(file|log_dirs)(?::\w+)?\})")
_CODE: Final = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)+")
_CODES: Final = frozenset(
    (
        "reason",
        "what",
        "limit_name",
        "harmless_if",
        "decision",
        "shown_as",
        "record_type",
        "entry_kind",
        "codec",
        "coordinator_state",
    )
)
"""Fields whose values are words of ours, written with underscores; any other text is a name and stays as it is."""
_FIELD: Final = re.compile(r"\{(\w+)(?::([\w ]+))?\}")


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
    template = _WORDS[finding.kind].message
    body = _counted(finding) or _fill(template, finding)
    partition = "" if place.topic is None or place.partition is None else f"{clean(place.topic)}-{clean(place.partition)}"
    broker = "" if place.broker is None else f"broker {clean(place.broker)}"
    where = " on ".join(each for each in (partition, broker) if each)
    if where:
        return f"{where}: {body}."
    return f"{body}." if _begins_with_name(template, body, finding) else f"{body[:1].upper()}{body[1:]}."


def _begins_with_name(template: str, body: str, finding: Finding) -> bool:
    """Whether a sentence begins with the name of a file or directory, which stays as it is."""
    field = _NAME_FIRST.match(template)
    if field is None or (field[2] == "file" and finding.place.file is None):
        return False
    return body.startswith(_fill(field[1], finding))


def _counted(finding: Finding) -> str:
    """What is said of very many findings of a kind that are told as one; nothing of any other."""
    number, examples = finding.evidence.get("counted"), finding.evidence.get("examples")
    if not isinstance(number, int) or not isinstance(examples, list):
        return ""
    return f"{number} more findings of this kind ({title(finding.kind)}), among them {', '.join(map(clean, examples))}"


def advice(finding: Finding) -> str | None:
    """The next step, or None where nothing need be done; with `held_by` in view it never destroys the last good copy."""
    words = _WORDS[finding.kind]
    holders = finding.evidence.get("held_by")
    parts = [_fill(words.advice, finding)]
    if isinstance(holders, list) and finding.severity is not Severity.INFO:
        if len(holders) < 2 or finding.severity is Severity.CRITICAL:
            parts.insert(0, _fill(_GUARDS[min(len(holders), 2)], finding))
        broker, there = finding.place.broker, not finding.evidence.get("absent")
        if words.repairable and there and len(holders) > 1 and broker is not None and clean(broker) not in map(clean, holders):
            parts.append(f"To repair broker {clean(broker)}, {_fill(_REPAIR, finding)}")
    return " ".join(part for part in parts if part) or None


def explain_page(kind: str) -> str:
    """The Markdown page on `kind`, which may be in any case and with dashes. Raises UsageError if there is no such kind."""
    from importlib.resources import files  # only for `explain`, which is not in a hurry

    name = kind.strip().upper().replace("-", "_")
    if name not in CATALOGUE:
        hint = did_you_mean(name, CATALOGUE, otherwise="`kafka-forensics explain` lists the kinds")
        raise UsageError(f"there is no finding kind and no known incident {kind[:TEXT_LIMIT]!r}", hint=hint)
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
        repairable = "<held>" in text or "<repair>" in step
        advised = step.replace(" <repair>", "").replace("<look>", _LOOK).replace("<weigh>", _WEIGH).replace("<only>", _ONLY)
        table[kind] = _Words(name, text.replace("<held>", _HELD), advised, repairable)
    return table


def _fill(template: str, finding: Finding) -> str:
    """`template` with its numbers; what is unknown is left out with its brackets, or called `unknown` outside of them."""

    def field(name: str, form: str) -> str | None:
        if name in _DERIVED:
            return _DERIVED[name](finding)
        value = finding.evidence.get(name)
        if value is None or (isinstance(value, int) and (value == -1 or (value == 0 and name == "batches_recovered"))):
            return None
        if name == "entry_kind" and value == "other":
            return "a pipe, socket or device"
        if name in _CODES and isinstance(value, str) and _CODE.fullmatch(value):
            return value.replace("_", " ")
        return _FORMATS[form](value) if form in _FORMATS else amount(value, form)

    def token(match: re.Match[str]) -> str:
        for alternative in (match[2] or match[1]).split("|"):
            literals = _FIELD.split(alternative)  # text, name, format, text, name, format, …, text
            texts = [field(name, form or "") for name, form in zip(literals[1::3], literals[2::3], strict=True)]
            if None not in texts:
                return "".join(f"{text}{filled}" for text, filled in zip(literals[::3], [*texts, ""], strict=True))
        return "unknown" if match[2] else ""

    return _TOKEN.sub(token, template)


def _among(finding: Finding) -> str:
    """What stands before examples that are not all there is."""
    counts = [finding.evidence.get(name) for name in ("replicas", "may_have_held")]
    total = max((each for each in counts if isinstance(each, int)), default=0)
    examples = finding.evidence.get("examples")
    return "among them " if isinstance(examples, list) and total > len(examples) else ""


def _offsets(finding: Finding) -> str | None:
    return span(finding.place.offset_start, finding.place.offset_end, "offset")


def _topic(finding: Finding) -> str | None:
    return None if finding.place.topic is None else clean(finding.place.topic)


def _file(finding: Finding) -> str:
    """The file's name, with its directory where that is not simply the partition's."""
    place = finding.place
    own = f"{place.topic}-{place.partition}/"
    return "a file" if place.file is None else clean(str(place.file).removeprefix(own))


def _bytes(finding: Finding) -> str:
    return f"{span(finding.place.byte_start, finding.place.byte_end, 'byte') or 'some bytes'} of {_file(finding)}"


def _batch(finding: Finding) -> str:
    start, offsets = finding.place.byte_start, _offsets(finding)
    batch = "a batch" if start is None else f"the batch at byte {clean(start)}"
    return f"{batch} of {_file(finding)}{f' ({offsets})' if offsets else ''}"


def _dump(finding: Finding) -> str | None:
    words = typed_words(finding.place)
    return f"`kafka-forensics dump {shlex.join(clean(word, 4096) for word in words)} --explain`." if words else None


def _defect(finding: Finding) -> str | None:
    """What is wrong with a small file, and in which line."""
    reason, line = finding.evidence.get("reason"), finding.evidence.get("line")
    if reason is None:
        return None
    words = small_files.DEFECTS.get(reason) if isinstance(reason, str) else None
    if words is None:
        words = clean(reason).replace("_", " ") if isinstance(reason, str) and _CODE.fullmatch(reason) else clean(reason)
    return words + (f" (line {clean(line)})" if isinstance(line, int) else "")


def _kept(finding: Finding) -> str | None:
    """Nothing, where the guard says that no good copy is known."""
    return "" if finding.severity is not Severity.INFO and finding.evidence.get("held_by") == [] else None


def _others(finding: Finding) -> str | None:
    """Nothing, where a guard stands before it that names the holders of a good copy."""
    holders = finding.evidence.get("held_by")
    guarded = isinstance(holders, list) and (len(holders) == 1 or (len(holders) > 1 and finding.severity is Severity.CRITICAL))
    return "" if guarded and finding.severity is not Severity.INFO else None


def _stops(finding: Finding) -> str | None:
    """Nothing, where a broker does not start."""
    return "" if finding.evidence.get("starts") is False else None


def _without(finding: Finding) -> str | None:
    return small_files.WITHOUT.get(str(finding.place.file).rpartition("/")[2])


def _looked_at_by(command: str, finding: Finding) -> str:
    """The command on the partition that a finding is of."""
    place = finding.place
    if place.topic is None or place.partition is None:
        return f"`kafka-forensics {command} PATH...`."
    return f"`kafka-forensics {command} PATH... --topic {shlex.quote(clean(place.topic))} --partition {clean(place.partition)}`."


def _compare(finding: Finding) -> str | None:
    return None if finding.alone else _looked_at_by("compare", finding)


def _plan(finding: Finding) -> str:
    return _looked_at_by("plan", finding)


def _end_transaction(finding: Finding) -> str | None:
    """The command that ends a hanging transaction (Kafka 3.0 and later)."""
    place, first = finding.place, finding.evidence.get("first_offset")
    if place.topic is None or place.partition is None or not isinstance(first, int):
        return None
    where = f"--topic {shlex.quote(clean(place.topic, 4096))} --partition {clean(place.partition)} --start-offset {clean(first)}"
    return f"`kafka-transactions.sh --bootstrap-server HOST:PORT abort {where}`"


_DERIVED: Final[Mapping[str, Callable[[Finding], str | None]]] = {
    "cut": truncation,
    "versions": versions_held,
} | {
    each.__name__.removeprefix("_"): each
    for each in (
        _among,
        _batch,
        _bytes,
        _compare,
        _defect,
        _dump,
        _end_transaction,
        _file,
        _kept,
        _offsets,
        _others,
        _plan,
        _stops,
        _topic,
        _without,
        kept_by,
        not_whole,
        rivals,
        successor,
    )
}
_FORMATS: Final[dict[str, Callable[[Any], str | None]]] = {
    "brokers": named_brokers,
    "copies": copies_on,
    "duration": duration,
    "crc": lambda value: f"0x{value:08x}" if isinstance(value, int) and 0 <= value < 2**32 else clean(value),
    "if": lambda value: "" if value is True else None,
    "list": listed,
    "none": lambda value: "" if value == [] else None,
    "time": moment,
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
_WORDS: Final = _parse("".join(subject.PROSE for subject in _SUBJECTS))
