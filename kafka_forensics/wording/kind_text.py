"""The text of every kind, from `analysis/kinds/KIND.md`, and the filling of templates.

A file has lines `key: value`, which continue on indented lines, before the line `---`, and after it the page that `explain` shows.
`title` is a short noun phrase, `message` one sentence, `advice` a next step that is always safe to follow (harmless kinds may have
none), `repairable` whether the steps of a repair belong after the advice. The other keys are a row of docs/soundness.md. Message
and advice are jinja2 templates. A name in them is a value of the evidence or one of `findings.DERIVED`. It is true in an `if` or
`or` if its value is known, whatever it is; a template must test a name that may be unknown.

Templates are ours and only print values. Evidence may be hostile: it is shortened, and its control characters are escaped.
"""

import pkgutil
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Never

from msgspec import Struct

from kafka_forensics.wording.values import amount, checksum, clean, duration, listed, named_brokers, utc_time

if TYPE_CHECKING:
    from jinja2 import Environment, Template


class KindText(NamedTuple):
    """The values of a file, and its page."""

    title: str
    message: str
    repairable: bool
    section: str
    proves: str
    cannot_see: str
    looks_like_it: str
    page: str
    advice: str = ""


class Value(Struct, frozen=True):
    """A known value of the evidence: always true, printed as clean text."""

    value: object

    def __str__(self) -> str:
        return clean(self.value).rstrip()


class TrustedText(str):
    """Our own text: true even if empty, printed unchanged."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return True


FILTERS: Final[Mapping[str, Callable[..., str | None]]] = {
    "amount": amount,
    "brokers": named_brokers,
    "crc": checksum,
    "duration": duration,
    "listed": listed,
    "time": utc_time,
}
"""The filters of templates."""


@cache
def kind_text(kind: str) -> KindText:
    """The text of `kind`, which must be in the catalogue."""
    data = pkgutil.get_data("kafka_forensics.analysis.kinds", f"{kind}.md")
    assert data is not None
    front, page = data.decode().split("\n\n---\n\n", 1)
    lines = (line.partition(": ") for line in front.replace("\n  ", " ").splitlines())
    fields: dict[str, Any] = {key.replace(" ", "_"): text for key, _, text in lines}
    return KindText(**fields | {"repairable": fields["repairable"] == "yes", "page": page})


def fill_template(template: str, value_of: Callable[[str], Value | str | bool | None]) -> str:
    """`template` with the values that `value_of` returns for its names: None if unknown, a bool for names that are only tested."""
    compiled, names = _compiled(template)
    values = {name: value_of(name) for name in names}
    known = {name: value for name, value in values.items() if value is not None and value is not False}
    return compiled.render({name: TrustedText(value) if isinstance(value, str) else value for name, value in known.items()})


@cache
def _compiled(template: str) -> tuple["Template", frozenset[str]]:
    """A template, and its names."""
    from jinja2 import nodes

    tree = environment().parse(template)
    return environment().from_string(tree), frozenset(name.name for name in tree.find_all(nodes.Name))


@cache
def environment() -> "Environment":
    """The environment of all templates, which raise if they print a name without a value."""
    from jinja2 import Environment, Undefined  # late: not needed for `--help` and for scans without findings

    class Unknown(Undefined):
        """A name without a value: it can be tested, not printed."""

        def __str__(self) -> Never:
            self._fail_with_undefined_error()

    def on_known(function: Callable[..., str | None]) -> Callable[..., object]:
        def applied(value: Value | Unknown, *arguments: str) -> object:
            text = function(value.value, *arguments) if isinstance(value, Value) else None
            return Unknown() if text is None else TrustedText(text)

        return applied

    made = Environment(undefined=Unknown, autoescape=False)  # noqa: S701 - sentences, which whoever shows them escapes
    made.globals.clear()
    made.filters = {name: on_known(function) for name, function in FILTERS.items()}
    made.tests = {
        "true": lambda value: isinstance(value, Value) and value.value is True,
        "empty": lambda value: isinstance(value, Value) and value.value == [],
    }
    return made
