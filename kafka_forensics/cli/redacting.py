"""`--redact` around a command: its answer with pseudonyms for names, and nothing else of evidence on stderr either."""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafka_forensics.cli import options, streams
from kafka_forensics.errors import ForensicsError, UsageError

if TYPE_CHECKING:
    from kafka_forensics.evidence.inputs import Inputs
    from kafka_forensics.export.redaction import Redaction

Answer = TypeVar("Answer")
_PATHS: Final = ("snapshots", "log_dirs", "paths")
"""What commands call their inputs."""


@dataclass(slots=True)
class _Running:
    """The command that runs in this process."""

    redaction: "Redaction | None" = None


_RUNNING = _Running()


def redacted(answer: Answer) -> Answer:
    """`answer` as the command that runs may show it: with pseudonyms for its names, if it was asked to."""
    redaction = _RUNNING.redaction
    return answer if redaction is None else redaction.answer(answer)


def learn(document: object) -> None:
    """Take the names out of what was read beside the evidence, before anything is said of it."""
    if _RUNNING.redaction is not None:
        _RUNNING.redaction.learn(document)


def redaction_asked_for() -> "Redaction | None":
    """The pseudonyms of the command that runs; None where it shows names as they are."""
    return _RUNNING.redaction


def redactable(command: Callable[..., int]) -> Callable[..., int]:
    """`command` with the options of `options.Privacy`, and with what they ask for.

    The log of what is done is held back until all names that the evidence has in its files are known, too.
    """

    @wraps(command)
    def run(**given: Any) -> int:
        privacy: options.Privacy = given.pop("privacy")
        paths: list[str] = next(given[name] for name in _PATHS if name in given)
        places = [path for typed in paths for path in (typed, typed.partition("=")[2]) if path]
        redaction = _begun(privacy, places, payloads=bool(given.get("show_payloads")))
        if redaction is None:
            return command(**given)
        redaction.learn(getattr(given.get("selection"), "topic", None), "topic")
        _RUNNING.redaction = redaction
        held: list[str] = []
        try:
            with streams.holding_back(held, redaction.text):
                _learn_all(redaction, places, given)
                held.clear()  # the command says it again
                try:
                    status = command(**given)
                except BaseException as error:
                    _rewrite(redaction, error)
                    redaction.keep()
                    raise
        finally:
            _RUNNING.redaction = None
            streams.tell_held(map(redaction.text, held))
        redaction.keep()
        return status

    own = [*signature(command).parameters.values()]
    at = next(number for number, parameter in enumerate(own) if parameter.name in ("form", "printing"))
    own.insert(at, Parameter("privacy", Parameter.KEYWORD_ONLY, annotation=options.Privacy))
    keywords = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in own]
    run.__signature__ = Signature(keywords, return_annotation=int)  # type: ignore[attr-defined]
    run.__annotations__ = {**command.__annotations__, "privacy": options.Privacy}
    return run


def _begun(privacy: options.Privacy, places: list[str], *, payloads: bool) -> "Redaction | None":
    """The pseudonyms that were asked for, None if none were. Raises UsageError for options that do not go together."""
    if not privacy.redact:
        if privacy.redact_map is not None:
            raise UsageError("--redact-map goes with --redact", hint="add --redact")
        return None
    if payloads:
        hint = "leave out one of them: no pseudonym stands for what is in records"
        raise UsageError("--redact and --show-payloads contradict each other", hint=hint)
    if privacy.redact_map is None:
        hint = "add --redact-map names.json: it keeps the key, and which pseudonym stands for which name; keep it to yourself"
        raise UsageError("--redact needs --redact-map FILE", hint=hint)
    streams.check_output(privacy.redact_map, places)
    from kafka_forensics.export.redaction import PseudonymMap, Redaction

    redaction = Redaction(PseudonymMap.at(privacy.redact_map))
    redaction.learn_paths(places)
    return redaction


def _learn_all(redaction: "Redaction", places: Iterable[str], given: dict[str, Any]) -> None:
    """Learn the names of what lies in the directories that were given, before anything is said of them."""
    from kafka_forensics.evidence.inputs import gather_log_dirs

    where = next((value for value in given.values() if isinstance(value, options.Access)), None)
    pairs = options.storage_pairs(None if where is None else where.storage_option)
    snapshots = [path for place in places for path in _folders(place)] if "snapshots" in given else []
    for path in (*places, *snapshots):
        with suppress(ForensicsError):  # what cannot be listed tells no names
            _learn_inputs(redaction, gather_log_dirs([path], pairs))


def _folders(place: str) -> list[str]:
    """The folders in one of this machine; none if it cannot be listed, or is elsewhere."""
    try:
        return sorted(entry.path for entry in os.scandir(place) if entry.is_dir())
    except OSError:
        return []


def _learn_inputs(redaction: "Redaction", inputs: "Inputs") -> None:
    from kafka_forensics.storage.bundles import BundleSource

    for source in inputs.sources:
        if isinstance(source, BundleSource):
            redaction.meet(source.about.redaction)
    for log_dir in inputs.log_dirs:
        redaction.learn(log_dir.broker, "broker")
        redaction.learn(None if log_dir.meta is None else log_dir.meta.cluster_id, "cluster_id")
        for directory in log_dir.found.partitions:
            redaction.learn(directory.topic, "topic")


def _rewrite(redaction: "Redaction", error: BaseException | None) -> None:
    """Put pseudonyms into what an error, and those it came of, will say."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        error.args = tuple(redaction.text(part) if isinstance(part, str) else part for part in error.args)
        if isinstance(error, ForensicsError) and error.hint is not None:
            error.hint = redaction.text(error.hint)
        error = error.__cause__ or error.__context__
