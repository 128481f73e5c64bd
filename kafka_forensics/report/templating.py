"""Fills the report's templates; spells out invisible letters in all values and escapes them."""

import pkgutil
from functools import cache
from typing import Final

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from kafka_forensics.questions.plan import Planned
from kafka_forensics.replication.planner import Candidate
from kafka_forensics.report.document import ReplicaRow
from kafka_forensics.report.words import UNKNOWN, moment, number, shown

_EPOCHS_LISTED: Final = 16
_SENTENCE_LETTERS: Final = 2_000
"""Letters of a sentence that are shown."""


def template_text(name: str) -> str:
    """The text of a file in `templates`."""
    data = pkgutil.get_data(__package__, f"templates/{name}")
    assert data is not None
    return data.decode()


@cache
def environment() -> Environment:
    """The environment of templates: unknown names raise, every value is escaped, and cut unless it is `whole`."""
    templates = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printed,
        loader=FunctionLoader(template_text),
        keep_trailing_newline=False,
    )
    templates.filters |= {"number": number, "moment": moment, "end": log_end, "epochs": _epochs, "transactions": _transactions}
    templates.filters |= {"cuts": _cuts, "missing": _missing, "coded": _coded, "whole": Markup.escape}
    return templates


def render(name: str, **values: object) -> Markup:
    """A filled template."""
    return Markup(environment().get_template(name).render(values))  # noqa: S704 - made by an environment that escapes


def _printed(value: object) -> object:
    """A value as templates print it; Markup was made by one of them."""
    return value if isinstance(value, Markup) else shown(value)


def _coded(text: object) -> Markup:
    """A sentence with the parts in backticks as code; a backtick without a second one is only a letter."""
    parts = shown(text, _SENTENCE_LETTERS).split("`")
    if len(parts) % 2 == 0:
        return Markup.escape("`".join(parts))
    return Markup().join(Markup("<code>{}</code>").format(part) if index % 2 else part for index, part in enumerate(parts))


def log_end(replica: ReplicaRow, unread: str = UNKNOWN) -> str:
    """The log end offset, or how far the log was read; `unread` if it was not read."""
    if replica.log_end_offset is not None:
        return str(replica.log_end_offset)
    return unread if replica.read_end_offset is None else f"read to {replica.read_end_offset}"


def _epochs(replica: ReplicaRow) -> str:
    if replica.leader_epochs is None:
        return UNKNOWN
    entries = [f"{epoch} from {start}" for epoch, start in replica.leader_epochs[-_EPOCHS_LISTED:]]
    more = len(replica.leader_epochs) - len(entries)
    return ", ".join([*([f"{more} earlier"] if more else []), *entries]) or "none"


def _transactions(replica: ReplicaRow) -> str:
    counts = replica.transactions
    by_state = {"committed": counts.committed, "aborted": counts.aborted, "open": counts.open, "hanging": counts.hanging}
    return ", ".join(f"{UNKNOWN if count is None else count} {name}" for name, count in by_state.items() if count != 0) or "none"


def _cuts(candidate: Candidate) -> str:
    """The offsets at which followers of a candidate truncate their logs."""
    cuts = [
        f"broker {follower.broker} at {follower.truncation_offset} of {follower.log_end_offset}"
        for follower in candidate.followers
        if follower.truncation_offset is not None and follower.truncation_offset < follower.log_end_offset
    ]
    return "; ".join(cuts) or "nothing"


def _missing(planned: Planned) -> str:
    """Witnesses that a plan lacks, by kind."""
    brokers: dict[str, list[str]] = {}
    for missing in planned.plan.missing:
        brokers.setdefault(missing.kind, []).extend([] if missing.broker is None else [str(missing.broker)])
    return "; ".join(kind.replace("_", " ") + (f" (broker {', '.join(names)})" if names else "") for kind, names in brokers.items())
