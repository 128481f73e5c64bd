"""A finding in words: its message and advice, made from the templates in `analysis/kinds/` and from phrases that templates share.

Evidence may be incomplete or hostile: nothing here raises for it.
"""

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kafka_forensics.analysis.kinds import CATALOGUE
from kafka_forensics.errors import UsageError, did_you_mean
from kafka_forensics.model.constants import REMOTE_LOG_METADATA_TOPIC
from kafka_forensics.model.files import file_arguments
from kafka_forensics.model.findings import Finding, RerunArguments, Severity
from kafka_forensics.model.json_objects import Json
from kafka_forensics.model.offset_ranges import offset_range
from kafka_forensics.model.remote_log import REMOTE
from kafka_forensics.wording.kind_text import Value, fill_template, kind_text
from kafka_forensics.wording.values import (
    LIST_LIMIT,
    TEXT_LIMIT,
    amount,
    brokers_by_range,
    clean,
    copies_on,
    defect,
    listed,
    named_brokers,
    on_start,
    repair_advice,
    without_underscores,
)

_ONLY: Final = "Only one copy was scanned: if others exist, give their log directories, too."
_OPTION: Final = re.compile(r"--?[a-z]")
_MAX_ARGUMENT_LENGTH: Final = 4096
_MISPLACED_SHOWN: Final = 3
_NAME_FIRST: Final = re.compile(r"\{\{ (file|log_dirs)\b")
_CODES: Final = frozenset(
    {
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
    }
)
"""Names in the evidence whose values are our own codes, printed without underscores; other text is a name and stays unchanged."""


def is_background(finding: Finding) -> bool:
    """Whether a finding of `info` is printed nevertheless: a known incident, or an unclean election of a different leader."""
    unclean_election = finding.kind == "UNCLEAN_ELECTION" and "same_leader" not in finding.evidence
    return unclean_election or finding.kind == "INCIDENT_SIGNATURE"


def severity_order(finding: Finding) -> tuple[int, bool, int]:
    """Sort key: severity, then background, then the number of offsets of critical findings."""
    place, lost = finding.place, 0
    if finding.severity is Severity.CRITICAL and place.offset_start is not None and place.offset_end is not None:
        lost = place.offset_end - place.offset_start
    return -finding.severity.rank, not is_background(finding), -lost


def title(kind: str) -> str:
    """A short noun phrase for finding kind `kind`."""
    return kind_text(kind).title


def message(finding: Finding) -> str:
    """One sentence about what was found and where: no line breaks, no control characters, no payload bytes."""
    place = finding.place
    template = kind_text(finding.kind).message
    body = _counted(finding) or _filled(template, finding)
    partition = "" if place.topic is None or place.partition is None else f"{clean(place.topic)}-{clean(place.partition)}"
    broker = "" if place.broker is None else f"broker {clean(place.broker)}"
    where = " on ".join(part for part in (partition, broker) if part)
    if place.broker == REMOTE:
        where = f"{partition} in remote storage"
    if where:
        return f"{where}: {body}."
    return f"{body}." if _begins_with_name(template, finding) else f"{body[:1].upper()}{body[1:]}."


def _begins_with_name(template: str, finding: Finding) -> bool:
    """Whether a sentence begins with the name of a file or directory, which keeps its lower case."""
    name = _NAME_FIRST.match(template)
    if name is None:
        return False
    if name[1] == "file":
        return finding.place.file is not None
    names = _evidence(finding, name[1])
    return names is not None and listed(names.value) is not None


def _counted(finding: Finding) -> str:
    """The message of a finding that stands for many of its kind; empty for others."""
    number, examples = finding.evidence.get("counted"), finding.evidence.get("examples")
    if not isinstance(number, int) or not isinstance(examples, list):
        return ""
    return f"{number} more findings of this kind ({title(finding.kind)}), among them {', '.join(map(clean, examples))}"


def advice(finding: Finding) -> str | None:
    """The next step, which never destroys the last good copy in `held_by`; None if nothing need be done."""
    text = kind_text(finding.kind)
    holders = finding.evidence.get("held_by")
    parts = [_filled(text.advice, finding)]
    if isinstance(holders, list) and finding.severity is not Severity.INFO:
        if len(holders) < 2 or finding.severity is Severity.CRITICAL:
            parts.insert(0, _guard(finding, holders))
        broker, present = finding.place.broker, finding.place.broker != REMOTE and not finding.evidence.get("absent")
        if text.repairable and present and len(holders) > 1 and broker is not None and clean(broker) not in map(clean, holders):
            parts.append(
                f"To repair broker {clean(broker)}, stop it while one of {named_brokers(holders)} leads the partition, move (never"
                " delete) this partition's directory out of its log directory, and let it copy the partition again."
            )
    return " ".join(part for part in parts if part) or None


def _guard(finding: Finding, holders: list[int | str]) -> str:
    """How to protect the good copies: `holders` have all of it, or remote segments do."""
    in_part = any(broker not in holders for row in _held_ranges(finding) for broker in row["brokers"])
    if not holders and finding.evidence.get("in_remote_storage"):
        return "Copy these remote segments to another place, and keep every log directory as it is: no other good copy is known."
    if not holders:
        none = "No known copy has all of it" if in_part else "No good copy is known"
        return f"{none}: keep every log directory and every backup as it is."
    if len(holders) == 1:
        why = "no other copy has all of it" if in_part else "no other good copy is known"
        return f"Leave {named_brokers(holders)} stopped until its log directory is copied elsewhere: {why}."
    return f"Copy the log directories of {named_brokers(holders)} elsewhere before any broker of this partition starts."


def explain_page(kind: str) -> str:
    """The Markdown page on `kind`, in any case and with dashes or underscores. Raises UsageError if there is no such kind."""
    name = kind.strip().upper().replace("-", "_")
    if name not in CATALOGUE:
        hint = did_you_mean(name, CATALOGUE, otherwise="`kafka-forensics explain` lists the kinds")
        raise UsageError(f"there is no finding kind and no known incident {kind[:TEXT_LIMIT]!r}", hint=hint)
    return kind_text(name).page


def _filled(template: str, finding: Finding) -> str:
    return fill_template(template, lambda name: DERIVED[name](finding) if name in DERIVED else _evidence(finding, name))


def _evidence(finding: Finding, name: str) -> Value | None:
    """The evidence under a name; None for -1, and for 0 `batches_recovered`."""
    value = finding.evidence.get(name)
    if value is None or (isinstance(value, int) and (value == -1 or (value == 0 and name == "batches_recovered"))):
        return None
    if name == "entry_kind" and value == "other":
        return Value("a pipe, socket or device")
    return Value(without_underscores(value) if name in _CODES else value)


# Phrases that templates use by the names in DERIVED.


def _among(finding: Finding) -> str:
    """What precedes examples that are not all."""
    counts = [finding.evidence.get(name) for name in ("replicas", "may_have_held")]
    total = max((count for count in counts if isinstance(count, int)), default=0)
    examples = finding.evidence.get("examples")
    return "among them " if isinstance(examples, list) and total > len(examples) else ""


def _offsets(finding: Finding) -> str | None:
    return offset_range(finding.place.offset_start, finding.place.offset_end, "offset") or None


def _file(finding: Finding) -> str:
    """The file's name, with its directory unless that is the partition's."""
    place = finding.place
    return "a file" if place.file is None else clean(str(place.file).removeprefix(f"{place.topic}-{place.partition}/"))


def _batch(finding: Finding) -> str:
    start, offsets = finding.place.byte_start, _offsets(finding)
    batch = "a batch" if start is None else f"the batch at byte {clean(start)}"
    return f"{batch} of {_file(finding)}{f' ({offsets})' if offsets else ''}"


def _held(finding: Finding) -> str:
    """The end of a sentence: who has a good copy, if that is known."""
    holders = finding.evidence.get("held_by")
    copies = copies_on(holders)
    if copies is not None:
        return f"; {copies}"
    in_part = _holders(finding)
    if in_part is not None:
        return f"; no copy has all of them, and of some good copies are on {in_part}"
    if holders == [] and finding.evidence.get("in_remote_storage"):
        return "; other remote segments have these records"
    return "; no good copy is known" if holders == [] else ""


def _harmless(finding: Finding) -> str:
    """The end of a sentence: under which condition the finding is harmless."""
    condition = _evidence(finding, "harmless_if")
    return "" if condition is None else f", which is harmless if {clean(condition.value, 4 * TEXT_LIMIT)}"


def _not_read(finding: Finding) -> str:
    """The end of a sentence about replicas that differ in further ranges."""
    count = _evidence(finding, "ranges_not_compared")
    return "" if count is None else f"; {amount(count.value, 'further range')} of offsets in between differ and were not read"


def _dump(finding: Finding) -> str | None:
    arguments = file_arguments(finding.place)
    access = () if finding.rerun_arguments is None else finding.rerun_arguments.access
    return f"`{_command_line('dump', (*arguments, *access, '--explain'))}`." if arguments else None


def _compare(finding: Finding) -> str | None:
    return None if finding.is_only_copy else _on_partition("compare", finding)


def _on_partition(command: str, finding: Finding) -> str:
    """The command for the partition of a finding."""
    place = finding.place
    known = place.topic is not None and place.partition is not None
    options = ("--topic", str(place.topic), "--partition", str(place.partition)) if known else ()
    return f"`{rerun_command(command, finding.rerun_arguments, *options)}`."


def _misplaced(finding: Finding) -> str | None:
    """`billing is in 9, its coordinator reads 49`."""
    places, read = finding.evidence.get("in_partitions"), finding.evidence.get("read_from")
    if not isinstance(places, dict) or not isinstance(read, dict):
        return None
    rows = [(name, numbers, read[name]) for name, numbers in places.items() if name in read]
    shown = [f"{clean(name, 40)} is in {clean(numbers)}, its coordinator reads {clean(number)}" for name, numbers, number in rows]
    return "; ".join(shown[:_MISPLACED_SHOWN]) or None


def rerun_command(command: str, arguments: RerunArguments | None, *options: str) -> str:
    """The command line that reads the same copies again; with `PATH...` if their paths are not known."""
    if arguments is None or not arguments.paths:
        return f"kafka-forensics {command} PATH... {_shell_words(options)}".rstrip()
    return _command_line(command, (*arguments.paths, *arguments.access, *arguments.reading, *options))


def _command_line(command: str, arguments: Iterable[str]) -> str:
    """`kafka-forensics COMMAND ARGUMENT...`, quoted for a shell."""
    return f"kafka-forensics {command} {_shell_words(arguments)}"


def _shell_words(arguments: Iterable[str]) -> str:
    """Arguments quoted for a shell. One that looks like an option and is none, such as a path -1, gets `./` before it."""
    cleaned = (clean(argument, _MAX_ARGUMENT_LENGTH) for argument in arguments)
    return shlex.join(f"./{text}" if text.startswith("-") and not _OPTION.match(text) else text for text in cleaned)


def _replicas_seen(finding: Finding) -> str:
    compare = _compare(finding)
    return _ONLY if compare is None else f"Compare the replicas there with {compare}"


def _look(finding: Finding) -> str:
    """The least advice: to look at the bytes, and at the other replicas."""
    dump = _dump(finding)
    return _replicas_seen(finding) if dump is None else f"See the bytes with {dump} {_replicas_seen(finding)}"


def _weigh(finding: Finding) -> str:
    """Advice where an election decides what is lost, after the guard if there is one."""
    if finding.severity is not Severity.INFO and finding.evidence.get("held_by") == []:
        copied = "Copy them all elsewhere before any broker starts. "
    elif _others(finding):
        copied = "Copy those of the other brokers, too, before any of them starts. "
    else:
        copied = "Copy the log directories of all brokers elsewhere before any of them starts. "
    return f"{copied}See what each election would lose with {_on_partition('plan', finding)} {_replicas_seen(finding)}"


def _others(finding: Finding) -> bool:
    """Whether the advice begins with a guard that names the holders of a good copy."""
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
"""Risks in the evidence, and sentences about them."""


def _risks_text(finding: Finding) -> str | None:
    """What makes a loss possible, in sentences."""
    risks = finding.evidence.get("risks")
    texts = [clean(risk) for risk in risks] if isinstance(risks, list) else []
    replaced = [next((m.expand(words) for pattern, words in RISKS if (m := pattern.fullmatch(text))), text) for text in texts]
    return listed(replaced) if replaced else None


def _kafka_command(finding: Finding, key: str) -> str | None:
    """A command of Kafka's tools in the evidence."""
    command = finding.evidence.get(key)
    return f"`{clean(command, _MAX_ARGUMENT_LENGTH)}`" if isinstance(command, str) else None


def _formats(finding: Finding) -> str | None:
    """`2 on broker 1, 0 and 1 on broker 2`: the message formats of two brokers' batches."""
    brokers, formats = finding.evidence.get("brokers"), finding.evidence.get("message_formats")
    if not isinstance(brokers, list) or not isinstance(formats, list):
        return None
    pairs = zip(brokers, formats, strict=False)
    return ", ".join(f"{listed(of_broker)} on {named_brokers([broker])}" for broker, of_broker in pairs) or None


def _not_held(finding: Finding) -> str | None:
    """What the older message format of a replica cannot hold of another replica's records."""
    texts = []
    for name, noun in (("without_headers", "headers"), ("without_transactions", "transactions")):
        brokers = named_brokers(finding.evidence.get(name))
        if brokers:
            texts.append(f"the older format on {brokers} lacks their {noun}")
    return " and ".join(texts) or None


def _versions(finding: Finding) -> str | None:
    """`epoch 2 on broker 1 against epoch 0 on brokers 2 and 3`: the versions at a fork."""
    texts = []
    for version in _rows(finding, "versions")[:LIST_LIMIT]:
        brokers, epoch = named_brokers(version.get("brokers")), version.get("epoch", -1)
        if brokers:
            texts.append(brokers if epoch in (-1, None) else f"epoch {clean(epoch)} on {brokers}")
    return " against ".join(texts) or None


def _holders(finding: Finding) -> str | None:
    """`broker 1`, or `brokers 1 and 2 (offsets 300 to 339) and broker 1 (offsets 340 to 369)`: who has good copies."""
    holders, rows = finding.evidence.get("held_by"), _held_ranges(finding)
    if holders and len({str(row["brokers"]) for row in rows}) < 2:
        return named_brokers(holders)
    return brokers_by_range(rows) or named_brokers(holders)


def _held_ranges(finding: Finding) -> list[Json]:
    """Rows of `held_ranges` with holders."""
    return [row for row in _rows(finding, "held_ranges") if row.get("brokers")]


def _or_another(finding: Finding) -> str | None:
    """`that in epoch 3`, `one of those in epochs 1 and 3`: other elections that may have cost the same."""
    epochs = finding.evidence.get("or_in_epochs")
    if not isinstance(epochs, list) or not epochs:
        return None
    return f"that in epoch {listed(epochs)}" if len(epochs) == 1 else f"one of those in epochs {listed(epochs)}"


def _not_whole(finding: Finding) -> str | None:
    """`offsets 300 to 309 are damaged on broker 2`: damage of the holders, if none has all."""
    damaged: dict[str, list[str]] = {}
    for row in _rows(finding, "not_whole")[:LIST_LIMIT]:
        offsets = offset_range(row.get("offset_start"), row.get("offset_end"), "offset")
        if offsets:
            damaged.setdefault(clean(row.get("broker")), []).append(offsets)
    return " and ".join(f"{listed(spans)} are damaged on broker {broker}" for broker, spans in damaged.items()) or None


def _cut(finding: Finding) -> str | None:
    """Where followers would truncate, within the loss; both offsets where checkpoint and batches say different ones."""
    offsets = {offset for row in _truncations(finding) for offset in (row.get("from_batches"), row.get("from_checkpoint"))}
    cuts = {offset for offset in offsets if isinstance(offset, int) and offset >= 0 and not _removes_nothing(finding, offset)}
    return " or ".join(map(clean, sorted(cuts))) or None


def _kept_by(finding: Finding) -> str | None:
    """`leader-epoch-checkpoint`, if by that file Kafka would not truncate a loss that it truncates by the batches."""
    spared = any(
        _removes_nothing(finding, row.get("from_checkpoint")) and not _removes_nothing(finding, row.get("from_batches"))
        for row in _truncations(finding)
    )
    return "leader-epoch-checkpoint" if spared else None


def _removes_nothing(finding: Finding, truncation_offset: object) -> bool:
    """Whether a truncation removes nothing of a loss."""
    end = finding.place.offset_end
    return finding.kind == "UNCLEAN_LOSS" and isinstance(truncation_offset, int) and end is not None and truncation_offset >= end


def _truncations(finding: Finding) -> list[Json]:
    """Rows of `truncation_offsets` whose follower is a holder."""
    rows, holders = finding.evidence.get("truncation_offsets"), finding.evidence.get("held_by") or None
    if holders is None and finding.evidence.get("in_remote_storage"):
        return []
    objects = [row for row in (rows if isinstance(rows, list) else [rows]) if isinstance(row, dict)]
    return [row for row in objects if not isinstance(holders, list) or row.get("follower", holders[0]) in holders]


def _successor(finding: Finding) -> str:
    """The leader that the holders of a loss will follow, with its name unless the versions of the fork tell it."""
    leaders, versions = finding.evidence.get("leaders"), _rows(finding, "versions")
    brokers, epoch = named_brokers(leaders), finding.evidence.get("latest_epoch")
    is_version = any(version.get("brokers") == leaders for version in versions)
    if brokers is None or (is_version and len(versions) == 2):
        return "the new leader"
    return f"the new leader, {brokers}{f' in epoch {clean(epoch)}' if isinstance(epoch, int) and epoch >= 0 else ''}"


def _rivals(finding: Finding) -> str | None:
    """`offsets 300 to 344 on broker 1`: committed offsets of versions that no holder of the loss has."""
    start, holders, texts = finding.evidence.get("offset"), finding.evidence.get("held_by"), []
    if not isinstance(start, int) or start < 0 or not isinstance(holders, list):
        return None
    versions = _rows(finding, "versions")
    if finding.evidence.get("in_remote_storage"):
        versions = [version for version in versions if version.get("brokers") == finding.evidence.get("leaders")]
    for version in versions[:LIST_LIMIT]:
        brokers = named_brokers(version.get("brokers"))
        ends = [end for end in (version.get("high_watermark"), version.get("log_end_offset")) if isinstance(end, int)]
        if brokers and len(ends) == 2 and min(ends) > start and not any(broker in holders for broker in version["brokers"]):
            texts.append(f"{offset_range(start, min(ends), 'offset')} on {brokers}")
    return " and ".join(texts) or None


def _remote_ids(finding: Finding) -> str | None:
    """Ids of the first remote segments of a finding, as in the names of their objects."""
    rows = _rows(finding, "remote_segments") or _rows(finding, "segments")
    return _first([clean(row.get("segment_id")) for row in rows])


def _remote_states(finding: Finding) -> str | None:
    """`ID (COPY_SEGMENT_STARTED)`: the remote segments at the offsets of a hole, with their last states."""
    return _first([f"{clean(row.get('segment_id'))} ({clean(row.get('state'))})" for row in _rows(finding, "segments")])


def _events_list(finding: Finding) -> str | None:
    """`DELETE_SEGMENT_STARTED of ID at offset 7`: the first events that brokers drop."""
    rows = _rows(finding, "events")
    return _first(
        [f"{clean(row.get('state'))} of {clean(row.get('segment_id'))} at offset {clean(row.get('offset'))}" for row in rows]
    )


def _first(texts: list[str]) -> str | None:
    """The first of a list of texts, with dots for the others; None for none."""
    return ", ".join(texts[:LIST_LIMIT]) + (", ..." if len(texts) > LIST_LIMIT else "") or None


_REMOTE_DEFECTS: Final = {
    "all objects missing": "all objects are missing in the store",
    "log missing": "the object with the log is missing in the store",
    "other objects missing": "objects that brokers need to serve it are missing in the store",
    "log cut": "the object with the log is truncated",
    "log too large": "the object with the log is larger than the segment",
}


def _remote_defect(finding: Finding) -> str:
    """What is wrong with the objects of remote segments."""
    evidence = finding.evidence
    reason, lacking = evidence.get("reason"), listed(evidence.get("lacking"))
    text = _REMOTE_DEFECTS.get(str(reason), "its objects differ from what was copied")
    size_in_bytes, expected = evidence.get("size_in_bytes"), evidence.get("expected_bytes")
    if isinstance(size_in_bytes, int) and isinstance(expected, int) and size_in_bytes != expected:
        return f"{text} ({size_in_bytes:,} bytes of {expected:,})"
    return f"{text} ({lacking}), and its log is there" if reason == "other objects missing" and lacking else text


def _rows(finding: Finding, name: str) -> list[dict[str, Any]]:
    """The objects in a list of the evidence."""
    rows = finding.evidence.get(name)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, (list, tuple)) else []


DERIVED: Final[Mapping[str, Callable[[Finding], str | bool | None]]] = {
    "abort": lambda finding: _kafka_command(finding, "command"),
    "among": _among,
    "batch": _batch,
    "bytes": lambda finding: (
        f"{offset_range(finding.place.byte_start, finding.place.byte_end, 'byte') or 'some bytes'} of {_file(finding)}"
    ),
    "compare": _compare,
    "confirm_hanging": lambda finding: _kafka_command(finding, "find_hanging"),
    "cut": _cut,
    "defect": defect,
    "deleted_remotely": lambda finding: bool(finding.evidence.get("remote_segments_deleted")),
    "dump": _dump,
    "events_list": _events_list,
    "file": _file,
    "formats": _formats,
    "groups": lambda finding: f"`{rerun_command('groups', finding.rerun_arguments, '--all-partitions')}`.",
    "harmless": _harmless,
    "has_remote_events": lambda finding: finding.place.topic == REMOTE_LOG_METADATA_TOPIC,
    "has_no_event": lambda finding: finding.evidence.get("reason") == "no event",
    "is_left": lambda finding: finding.evidence.get("reason") == "copy not finished, or deleted",
    "held": _held,
    "holders": _holders,
    "kept_by": _kept_by,
    "look": _look,
    "mending": repair_advice,
    "misplaced": _misplaced,
    "not_held": _not_held,
    "not_read": _not_read,
    "not_whole": _not_whole,
    "offsets": _offsets,
    "on_start": on_start,
    "only": lambda _: _ONLY,
    "or_another": _or_another,
    "others": _others,
    "plan": lambda finding: _on_partition("plan", finding),
    "remote_defect": _remote_defect,
    "remote_ids": _remote_ids,
    "remote_states": _remote_states,
    "risks_text": _risks_text,
    "rivals": _rivals,
    "stops": lambda finding: finding.evidence.get("starts") is False,
    "successor": _successor,
    "topic": lambda finding: None if finding.place.topic is None else clean(finding.place.topic),
    "transactions": lambda finding: f"`{rerun_command('transactions', finding.rerun_arguments)}`.",
    "uncommitted": lambda finding: finding.evidence.get("cost_finding") == "FORK_ABOVE_HW",
    "versions": _versions,
    "weigh": _weigh,
}
"""Names in templates that are not values of the evidence, and what they stand for."""
