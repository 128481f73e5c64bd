"""The one place where the report's templates meet values: all that is printed is freed of invisible letters and escaped."""

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
_WORDS: Final = 2_000
"""Letters of a sentence."""


def text_of(name: str) -> str:
    """A file among the templates."""
    data = pkgutil.get_data(__package__, f"templates/{name}")
    assert data is not None
    return data.decode()


@cache
def environment() -> Environment:
    """How templates are read: a name that is not known raises, every value is escaped, and cut unless it is `whole`."""
    made = Environment(
        autoescape=True, undefined=StrictUndefined, finalize=_printed, loader=FunctionLoader(text_of), keep_trailing_newline=False
    )
    made.filters |= {"number": number, "moment": moment, "end": _end, "epochs": _epochs}
    made.filters |= {"transactions": _transactions, "cuts": _cuts, "missing": _missing, "coded": _coded, "whole": Markup.escape}
    return made


def rendered(name: str, **values: object) -> Markup:
    """A template filled; what it gives is markup."""
    return Markup(environment().get_template(name).render(values))  # noqa: S704 - made by an environment that escapes


def _printed(value: object) -> object:
    """What is printed of a value; markup was made by one of our templates."""
    return value if isinstance(value, Markup) else shown(value)


def _coded(text: object) -> Markup:
    """Words of ours with what stands between backticks as code; an odd one is only a letter."""
    parts = shown(text, _WORDS).split("`")
    if len(parts) % 2 == 0:
        return Markup.escape(shown(text, _WORDS))
    return Markup().join(Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts))


def _end(replica: ReplicaRow) -> str:
    if replica.log_end_offset is not None:
        return str(replica.log_end_offset)
    return UNKNOWN if replica.read_end_offset is None else f"read to {replica.read_end_offset}"


def _epochs(replica: ReplicaRow) -> str:
    if replica.leader_epochs is None:
        return UNKNOWN
    entries = [f"{epoch} from {start}" for epoch, start in replica.leader_epochs[-_EPOCHS_LISTED:]]
    more = len(replica.leader_epochs) - len(entries)
    return ", ".join([*([f"{more} earlier"] if more else []), *entries]) or "none"


def _transactions(replica: ReplicaRow) -> str:
    counts = replica.transactions
    known = (("committed", counts.committed), ("aborted", counts.aborted), ("open", counts.open), ("hanging", counts.hanging))
    return ", ".join(f"{UNKNOWN if count is None else count} {name}" for name, count in known if count != 0) or "none"


def _cuts(candidate: Candidate) -> str:
    """What its followers cut."""
    said = [
        f"broker {follower.broker} at {follower.truncation_offset} of {follower.log_end_offset}"
        for follower in candidate.followers
        if follower.truncation_offset is not None and follower.truncation_offset < follower.log_end_offset
    ]
    return "; ".join(said) or "nothing"


def _missing(planned: Planned) -> str:
    """Witnesses that a plan lacks, by their kinds."""
    brokers: dict[str, list[str]] = {}
    for missing in planned.plan.missing:
        brokers.setdefault(missing.kind, []).extend([] if missing.broker is None else [str(missing.broker)])
    return "; ".join(kind.replace("_", " ") + (f" (broker {', '.join(names)})" if names else "") for kind, names in brokers.items())
