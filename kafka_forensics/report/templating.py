"""Fills the report's templates; spells out invisible letters in all values and escapes them."""

import pkgutil
from functools import cache
from typing import Final

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from kafka_forensics.report.document import ReplicaRow
from kafka_forensics.report.words import UNKNOWN, grouped, moment, number, plural, shown

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
    """The environment of templates: unknown names raise, every value is escaped and cut."""
    templates = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printed,
        loader=FunctionLoader(template_text),
        keep_trailing_newline=False,
    )
    templates.filters |= {"number": number, "moment": moment, "plural": plural, "end": _log_end, "epochs": _epochs}
    templates.filters |= {"sentence": _sentence, "percent": _percent}
    return templates


def render(name: str, **values: object) -> Markup:
    """A filled template."""
    return Markup(environment().get_template(name).render(values))  # noqa: S704 - made by an environment that escapes


def _printed(value: object) -> object:
    """A value as templates print it; Markup was made by one of them."""
    return value if isinstance(value, Markup) else shown(value)


def _percent(place: float) -> str:
    return f"{place:.2f}".rstrip("0").rstrip(".") + "%"


def _sentence(text: object) -> Markup:
    """A sentence with its numbers grouped and the parts in backticks as code; a backtick without a second one is only a letter."""
    parts = shown(text, _SENTENCE_LETTERS).split("`")
    if len(parts) % 2 == 0:
        return Markup.escape("`".join(parts))
    return Markup().join(Markup("<code>{}</code>").format(part) if index % 2 else grouped(part) for index, part in enumerate(parts))


def _log_end(replica: ReplicaRow) -> str:
    """The log end offset, or how far the log was read."""
    if replica.log_end_offset is not None:
        return number(replica.log_end_offset)
    return UNKNOWN if replica.read_end_offset is None else f"read to {number(replica.read_end_offset)}"


def _epochs(replica: ReplicaRow) -> str:
    if replica.leader_epochs is None:
        return UNKNOWN
    entries = [f"{epoch:,} from {start:,}" for epoch, start in replica.leader_epochs[-_EPOCHS_LISTED:]]
    more = len(replica.leader_epochs) - len(entries)
    return "; ".join([*([f"{more:,} earlier"] if more else []), *entries]) or "none"
