"""A finding in words: its sentence and what to do next, of the templates in `analysis/kinds/` and the words here, which many share.

Evidence may be incomplete or hostile: nothing here raises for it.
"""

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kafka_forensics.analysis.kinds import CATALOGUE
from kafka_forensics.errors import UsageError, did_you_mean
from kafka_forensics.model.files import typed_words
from kafka_forensics.model.findings import Asked, Finding, Severity
from kafka_forensics.model.json_objects import Json
from kafka_forensics.wording.prose import Value, filled, prose
from kafka_forensics.wording.values import (
    LIST_LIMIT,
    TEXT_LIMIT,
    amount,
    brokers_by_offsets,
    clean,
    copies_on,
    defect,
    listed,
    mending,
    named_brokers,
    on_start,
    span,
    spoken,
)

_ONLY: Final = "Only one copy was looked at: if others exist, give their log directories, too."
_OPTION: Final = re.compile(r"--?[a-z]")
_LONGEST_WORD: Final = 4096
_MISPLACED_SHOWN: Final = 3
_NAME_FIRST: Final = re.compile(r"\{\{ (file|log_dirs)\b")
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
        "partitioner",
        "partitioner_before",
    )
)
"""Names in the evidence whose values are words of ours, written with underscores; any other text is a name and stays as it is."""


def title(kind: str) -> str:
    """A short noun phrase for finding kind `kind`."""
    return prose(kind).title


def message(finding: Finding) -> str:
    """One sentence that says what was found and where: no line breaks, no control characters, no payload bytes."""
    place = finding.place
    template = prose(finding.kind).message
    body = _counted(finding) or _filled(template, finding)
    partition = "" if place.topic is None or place.partition is None else f"{clean(place.topic)}-{clean(place.partition)}"
    broker = "" if place.broker is None else f"broker {clean(place.broker)}"
    where = " on ".join(part for part in (partition, broker) if part)
    if where:
        return f"{where}: {body}."
    return f"{body}." if _begins_with_name(template, finding) else f"{body[:1].upper()}{body[1:]}."


def _begins_with_name(template: str, finding: Finding) -> bool:
    """Whether a sentence begins with the name of a file or directory, which stays as it is."""
    name = _NAME_FIRST.match(template)
    if name is None:
        return False
    if name[1] == "file":
        return finding.place.file is not None
    names = _evidence(finding, name[1])
    return names is not None and listed(names.value) is not None


def _counted(finding: Finding) -> str:
    """What is said of very many findings of a kind that are told as one; nothing of any other."""
    number, examples = finding.evidence.get("counted"), finding.evidence.get("examples")
    if not isinstance(number, int) or not isinstance(examples, list):
        return ""
    return f"{number} more findings of this kind ({title(finding.kind)}), among them {', '.join(map(clean, examples))}"


def advice(finding: Finding) -> str | None:
    """The next step, or None where nothing need be done; with `held_by` in view it never destroys the last good copy."""
    words = prose(finding.kind)
    holders = finding.evidence.get("held_by")
    parts = [_filled(words.advice, finding)]
    if isinstance(holders, list) and finding.severity is not Severity.INFO:
        if len(holders) < 2 or finding.severity is Severity.CRITICAL:
            parts.insert(0, _guard(finding, holders))
        broker, there = finding.place.broker, not finding.evidence.get("absent")
        if words.repairable and there and len(holders) > 1 and broker is not None and clean(broker) not in map(clean, holders):
            parts.append(
                f"To repair broker {clean(broker)}, stop it while one of {named_brokers(holders)} leads the partition, move (never"
                " delete) this partition's directory out of its log directory, and let it copy the partition again."
            )
    return " ".join(part for part in parts if part) or None


def _guard(finding: Finding, whole: list[int | str]) -> str:
    """What to leave alone while these are known to have a good copy of all of it, or remote segments are."""
    in_part = any(broker not in whole for row in _held_ranges(finding) for broker in row["brokers"])
    if not whole and finding.evidence.get("in_remote_storage"):
        return "Copy these remote segments to another place, and keep every log directory as it is: no other good copy is known."
    if not whole:
        known = "No copy is known to have all of it" if in_part else "No good copy is known"
        return f"{known}: keep every log directory and every backup as it is."
    if len(whole) == 1:
        why = "no other copy has all of it" if in_part else "no other good copy is known"
        return f"Leave {named_brokers(whole)} stopped until its log directory is copied elsewhere: {why}."
    return f"Copy the log directories of {named_brokers(whole)} elsewhere before any broker of this partition starts."


def explain_page(kind: str) -> str:
    """The Markdown page on `kind`, which may be in any case and with dashes. Raises UsageError if there is no such kind."""
    name = kind.strip().upper().replace("-", "_")
    if name not in CATALOGUE:
        hint = did_you_mean(name, CATALOGUE, otherwise="`kafka-forensics explain` lists the kinds")
        raise UsageError(f"there is no finding kind and no known incident {kind[:TEXT_LIMIT]!r}", hint=hint)
    return prose(name).page


def _filled(template: str, finding: Finding) -> str:
    """`template` with what the finding has for the names in it."""
    return filled(template, lambda name: DERIVED[name](finding) if name in DERIVED else _evidence(finding, name))


def _evidence(finding: Finding, name: str) -> Value | None:
    """What the evidence has under a name; -1 and, of batches that were recovered, 0 are none."""
    value = finding.evidence.get(name)
    if value is None or (isinstance(value, int) and (value == -1 or (value == 0 and name == "batches_recovered"))):
        return None
    if name == "entry_kind" and value == "other":
        return Value("a pipe, socket or device")
    return Value(spoken(value) if name in _CODES else value)


# Words that several kinds share, or that say more than one number does: the names of DERIVED.


def _among(finding: Finding) -> str:
    """What stands before examples that are not all there is."""
    counts = [finding.evidence.get(name) for name in ("replicas", "may_have_held")]
    total = max((count for count in counts if isinstance(count, int)), default=0)
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


def _held(finding: Finding) -> str:
    """How a sentence ends that says who has a good copy, if that was looked at."""
    whole = finding.evidence.get("held_by")
    copies = copies_on(whole)
    if copies is not None:
        return f"; {copies}"
    in_part = holders(finding)
    if in_part is not None:
        return f"; no copy has all of them, and of some good copies are on {in_part}"
    return "; no good copy is known" if whole == [] else ""


def _harmless(finding: Finding) -> str:
    """How a sentence goes on of which it is known what would make it harmless."""
    condition = _evidence(finding, "harmless_if")
    return "" if condition is None else f", which is harmless if {clean(condition.value, 4 * TEXT_LIMIT)}"


def _not_read(finding: Finding) -> str:
    """How a sentence goes on where replicas differ in more than was looked at."""
    count = _evidence(finding, "ranges_not_compared")
    return "" if count is None else f"; {amount(count.value, 'further range')} of offsets in between differ and were not read"


def _dump(finding: Finding) -> str | None:
    words = typed_words(finding.place)
    access = () if finding.asked is None else finding.asked.access
    return f"`{command_line('dump', (*words, *access, '--explain'))}`." if words else None


def _compare(finding: Finding) -> str | None:
    return None if finding.alone else _looked_at_by("compare", finding)


def _plan(finding: Finding) -> str:
    return _looked_at_by("plan", finding)


def _looked_at_by(command: str, finding: Finding) -> str:
    """The command on the partition that a finding is of."""
    place = finding.place
    if place.topic is None or place.partition is None:
        return f"`{asked_command(command, finding.asked)}`."
    return f"`{asked_command(command, finding.asked, '--topic', place.topic, '--partition', str(place.partition))}`."


def _misplaced(finding: Finding) -> str | None:
    """`billing is in 9, its coordinator reads 49`: whose state is in which partition, and which one is read."""
    places, read = finding.evidence.get("in_partitions"), finding.evidence.get("read_from")
    if not isinstance(places, dict) or not isinstance(read, dict):
        return None
    known = [(name, numbers, read[name]) for name, numbers in places.items() if name in read]
    shown = [f"{clean(name, 40)} is in {clean(numbers)}, its coordinator reads {clean(number)}" for name, numbers, number in known]
    return "; ".join(shown[:_MISPLACED_SHOWN]) or None


def _groups(finding: Finding) -> str:
    return f"`{asked_command('groups', finding.asked, '--all-partitions')}`."


def _transactions(finding: Finding) -> str:
    return f"`{asked_command('transactions', finding.asked)}`."


def asked_command(command: str, asked: Asked | None, *options: str) -> str:
    """The command line that looks at the same copies again; `PATH...` stands for them where it is not known which they were."""
    if asked is None or not asked.paths:
        return f"kafka-forensics {command} PATH... {command_words(options)}".rstrip()
    return command_line(command, (*asked.paths, *asked.access, *asked.reading, *options))


def command_line(command: str, words: Iterable[str]) -> str:
    """`kafka-forensics COMMAND WORD...` as a shell takes it."""
    return f"kafka-forensics {command} {command_words(words)}"


def command_words(words: Iterable[str]) -> str:
    """Words as a shell takes them. A word like an option that is none, such as a path -1, is told apart from options."""
    return shlex.join(f"./{word}" if word.startswith("-") and not _OPTION.match(word) else word for word in map(_whole, words))


def _whole(word: str) -> str:
    return clean(word, _LONGEST_WORD)


def _only(_finding: Finding) -> str:
    return _ONLY


def _replicas_seen(finding: Finding) -> str:
    compare = _compare(finding)
    return _ONLY if compare is None else f"See what every replica holds there with {compare}"


def _look(finding: Finding) -> str:
    """The least advice: to look at the bytes, and at the other replicas."""
    dump = _dump(finding)
    return _replicas_seen(finding) if dump is None else f"See the bytes with {dump} {_replicas_seen(finding)}"


def _weigh(finding: Finding) -> str:
    """Advice where an election decides what is lost: behind a guard, if there is one, which names holders."""
    if finding.severity is not Severity.INFO and finding.evidence.get("held_by") == []:
        copied = "Copy them all elsewhere before any broker starts. "
    elif _others(finding):
        copied = "Copy those of the other brokers, too, before any of them starts. "
    else:
        copied = "Copy the log directories of all brokers elsewhere before any of them starts. "
    return f"{copied}Weigh what each election would cost with {_plan(finding)} {_replicas_seen(finding)}"


def _others(finding: Finding) -> bool:
    """Whether a guard stands before the advice that names the holders of a good copy."""
    holders = finding.evidence.get("held_by")
    guarded = isinstance(holders, list) and (len(holders) == 1 or (len(holders) > 1 and finding.severity is Severity.CRITICAL))
    return guarded and finding.severity is not Severity.INFO


RISKS: Final = (
    (
        re.compile(r"min\.insync\.replicas 1 with (.+) replicas"),
        r"with min.insync.replicas=1 one failed replica of \1 can lose them",
    ),
    (re.compile(r"unclean elections on"), "unclean.leader.election.enable=true lets a replica lead that lacks them"),
    (re.compile(r"one replica only"), "there is one replica only"),
    (re.compile(r"retention shorter than an open transaction"), "retention is shorter than a transaction has been open"),
)
"""What a setting does, instead of how evidence calls it."""


def _risks_told(finding: Finding) -> str | None:
    """What makes a loss possible, in sentences."""
    risks = finding.evidence.get("risks")
    told = []
    for risk in risks if isinstance(risks, list) else []:
        text = clean(risk)
        told.append(next((match.expand(words) for pattern, words in RISKS if (match := pattern.fullmatch(text))), text))
    return listed(told) if told else None


def _stops(finding: Finding) -> bool:
    """Whether a broker does not start."""
    return finding.evidence.get("starts") is False


def _end_transaction(finding: Finding) -> str | None:
    """The command that ends a hanging transaction (Kafka 3.0 and later)."""
    place, first = finding.place, finding.evidence.get("first_offset")
    if place.topic is None or place.partition is None or not isinstance(first, int):
        return None
    where = f"--topic {shlex.quote(clean(place.topic, 4096))} --partition {clean(place.partition)} --start-offset {clean(first)}"
    return f"`kafka-transactions.sh --bootstrap-server HOST:PORT abort {where}`"


def _formats(finding: Finding) -> str | None:
    """`2 on broker 1, 0 and 1 on broker 2`: the message formats of two brokers' batches."""
    brokers, formats = finding.evidence.get("brokers"), finding.evidence.get("message_formats")
    if not isinstance(brokers, list) or not isinstance(formats, list):
        return None
    return ", ".join(f"{listed(each)} on {named_brokers([broker])}" for broker, each in zip(brokers, formats, strict=False)) or None


def _not_held(finding: Finding) -> str | None:
    """Whose message format lacks what records of another have."""
    texts = []
    for name, words in (("without_headers", "headers"), ("without_transactions", "transactions")):
        brokers = named_brokers(finding.evidence.get(name))
        if brokers:
            texts.append(f"the older format on {brokers} lacks their {words}")
    return " and ".join(texts) or None


# What a fork's evidence says, in words: its versions, who holds them, and where Kafka cuts.


def versions_held(finding: Finding) -> str | None:
    """`epoch 2 on broker 1 against epoch 0 on brokers 2 and 3`."""
    texts = []
    for side in _sides(finding)[:LIST_LIMIT]:
        brokers, epoch = named_brokers(side.get("brokers")), side.get("epoch", -1)
        if brokers:
            texts.append(brokers if epoch in (-1, None) else f"epoch {clean(epoch)} on {brokers}")
    return " against ".join(texts) or None


def holders(finding: Finding) -> str | None:
    """`broker 1`, or `brokers 1 and 2 (offsets 300 to 339) and broker 1 (offsets 340 to 369)`: who has good copies."""
    whole, rows = finding.evidence.get("held_by"), _held_ranges(finding)
    if whole and len({str(row["brokers"]) for row in rows}) < 2:
        return named_brokers(whole)
    return brokers_by_offsets(rows) or named_brokers(whole)


def _held_ranges(finding: Finding) -> list[Json]:
    """Rows of the offsets that somebody holds."""
    rows = finding.evidence.get("held_ranges")
    return [row for row in rows if isinstance(row, dict) and row.get("brokers")] if isinstance(rows, list) else []


def or_another(finding: Finding) -> str | None:
    """`that in epoch 3`, `one of those in epochs 1 and 3`: other elections that may have cost the same."""
    epochs = finding.evidence.get("or_in_epochs")
    if not isinstance(epochs, list) or not epochs:
        return None
    return f"that in epoch {listed(epochs)}" if len(epochs) == 1 else f"one of those in epochs {listed(epochs)}"


def uncommitted(finding: Finding) -> bool:
    """Whether what an election cost is not known to have been committed."""
    return finding.evidence.get("cost_finding") == "FORK_ABOVE_HW"


def not_whole(finding: Finding) -> str | None:
    """`offsets 300 to 309 lie damaged on broker 2`: of holders of which none has all."""
    rows = finding.evidence.get("not_whole")
    damaged: dict[str, list[str]] = {}
    for row in rows[:LIST_LIMIT] if isinstance(rows, (list, tuple)) else []:
        offsets = span(row.get("offset_start"), row.get("offset_end"), "offset") if isinstance(row, dict) else None
        if offsets is not None:
            damaged.setdefault(clean(row.get("broker")), []).append(offsets)
    return " and ".join(f"{listed(spans)} lie damaged on broker {broker}" for broker, spans in damaged.items()) or None


def truncation(finding: Finding) -> str | None:
    """Where a follower would be cut; both offsets where the checkpoint file and the batches say different ones. Who is cut behind
    what is lost is not cut there."""
    known = [offset for row in _cuts(finding) for offset in (row.get("from_batches"), row.get("from_checkpoint"))]
    cuts = {offset for offset in known if isinstance(offset, int) and offset >= 0 and not _spares(finding, offset)}
    return " or ".join(map(clean, sorted(cuts))) or None


def kept_by(finding: Finding) -> str | None:
    """`leader-epoch-checkpoint`, where by that file Kafka would not cut a loss that it cuts by the batches."""
    spared = any(
        _spares(finding, row.get("from_checkpoint")) and not _spares(finding, row.get("from_batches")) for row in _cuts(finding)
    )
    return "leader-epoch-checkpoint" if spared else None


def _spares(finding: Finding, cut: object) -> bool:
    """Whether nothing of a loss is behind a cut."""
    end = finding.place.offset_end
    return finding.kind == "UNCLEAN_LOSS" and isinstance(cut, int) and end is not None and cut >= end


def _cuts(finding: Finding) -> list[Json]:
    """Rows of what the holders would be cut at."""
    rows, holders = finding.evidence.get("truncation_offsets"), finding.evidence.get("held_by") or None
    if holders is None and finding.evidence.get("in_remote_storage"):
        return []
    given = [row for row in (rows if isinstance(rows, list) else [rows]) if isinstance(row, dict)]
    return [row for row in given if not isinstance(holders, list) or row.get("follower", holders[0]) in holders]


def successor(finding: Finding) -> str:
    """Whom the holders of a loss will follow: by name where the sides of the fork do not say it."""
    leaders, sides = finding.evidence.get("leaders"), _sides(finding)
    led = [side for side in sides if side.get("brokers") == leaders]
    brokers, epoch = named_brokers(leaders), finding.evidence.get("latest_epoch")
    if brokers is None or (led and len(sides) == 2):
        return "the new leader"
    return f"the new leader, {brokers}{f' in epoch {clean(epoch)}' if isinstance(epoch, int) and epoch >= 0 else ''}"


def rivals(finding: Finding) -> str | None:
    """`offsets 300 to 344 on broker 1`: what is committed of the versions that no holder of the loss has."""
    start, holders, texts = finding.evidence.get("offset"), finding.evidence.get("held_by"), []
    if not isinstance(start, int) or start < 0 or not isinstance(holders, list):
        return None
    sides = _sides(finding)
    if finding.evidence.get("in_remote_storage"):
        sides = [side for side in sides if side.get("brokers") == finding.evidence.get("leaders")]
    for side in sides[:LIST_LIMIT]:
        brokers = named_brokers(side.get("brokers"))
        ends = [end for end in (side.get("high_watermark"), side.get("log_end_offset")) if isinstance(end, int)]
        if brokers and len(ends) == 2 and min(ends) > start and not any(broker in holders for broker in side["brokers"]):
            texts.append(f"{span(start, min(ends), 'offset')} on {brokers}")
    return " and ".join(texts) or None


def deleted_remotely(finding: Finding) -> bool:
    """Whether the leader deletes remote segments that hold what is lost, for it knows no epoch as old as theirs."""
    return bool(finding.evidence.get("remote_segments_deleted"))


def remote_ids(finding: Finding) -> str | None:
    """The first remote segments that hold what is lost, by the ids in the names of their objects."""
    rows = finding.evidence.get("remote_segments")
    ids = [clean(row.get("segment_id")) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return ", ".join(ids[:LIST_LIMIT]) + (", ..." if len(ids) > LIST_LIMIT else "") or None


def _sides(finding: Finding) -> list[Json]:
    versions = finding.evidence.get("versions")
    return [side for side in versions if isinstance(side, dict)] if isinstance(versions, (list, tuple)) else []


DERIVED: Final[Mapping[str, Callable[[Finding], str | bool | None]]] = {
    "cut": truncation,
    "versions": versions_held,
} | {
    function.__name__.removeprefix("_"): function
    for function in (
        *(
            _among,
            _batch,
            _bytes,
            _compare,
            _dump,
            _end_transaction,
            _file,
            _formats,
            _groups,
            _harmless,
            _held,
            _look,
            _misplaced,
            _not_held,
            _not_read,
            _offsets,
            _only,
        ),
        *(
            _others,
            _plan,
            _risks_told,
            _stops,
            _topic,
            _transactions,
            _weigh,
            defect,
            deleted_remotely,
            holders,
            kept_by,
            mending,
            not_whole,
            on_start,
            or_another,
            remote_ids,
            rivals,
            successor,
            uncommitted,
        ),
    )
}
"""Names in templates that are not simply numbers of the evidence, and what they stand for."""
