"""What is said of every kind, a file each: `analysis/kinds/KIND.md`. The one module that makes sentences of templates.

In front of the line `---` a file has lines `key: value`, which go on where lines are indented; behind it is the page that `explain`
shows. `title` is a short noun phrase, `message` one sentence, `advice` a next step that is always safe to follow (a kind that is
harmless may have none); `repairable` says whether the steps of a repair belong behind the advice; the other keys are a row of
docs/soundness.md. Message and advice are jinja2 templates. A name in them is a number of the evidence or one of `findings.DERIVED`.
It is true in an `if` or `or` where it is known, whatever it is, and has to be asked for there if it may not be known.

Templates are ours, and values are only ever printed by them. Evidence may be hostile: it is cut, and freed of control characters.
"""

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple, Never

from kafka_forensics.wording.values import amount, checksum, clean, copies_on, duration, listed, moment, named_brokers

if TYPE_CHECKING:
    from jinja2 import Environment, Template


class Prose(NamedTuple):
    """A file's front part, and the page behind it."""

    title: str
    message: str
    advice: str
    repairable: bool
    section: str
    proves: str
    cannot_see: str
    looks_like_it: str
    page: str


@dataclass(frozen=True, slots=True)
class Value:
    """A known value of the evidence: true, whatever it is, and printed as clean text."""

    value: object

    def __str__(self) -> str:
        return clean(self.value).rstrip()


class Phrase(str):
    """Known words: true even when there are none, and printed as they are."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return True


FILTERS: Final[Mapping[str, Callable[..., str | None]]] = {
    "amount": amount,
    "brokers": named_brokers,
    "copies": copies_on,
    "crc": checksum,
    "duration": duration,
    "listed": listed,
    "time": moment,
}
"""What a template may do with a value."""


@cache
def prose(kind: str) -> Prose:
    """What is said of `kind`, which is one of the catalogue's."""
    data = pkgutil.get_data("kafka_forensics.analysis.kinds", f"{kind}.md")
    assert data is not None
    front, page = data.decode().split("\n\n---\n\n", 1)
    lines = (line.partition(": ") for line in front.replace("\n  ", " ").splitlines())
    fields = {key: text for key, _, text in lines}
    return Prose(
        title=fields["title"],
        message=fields["message"],
        advice=fields.get("advice", ""),
        repairable=fields["repairable"] == "yes",
        section=fields["section"],
        proves=fields["proves"],
        cannot_see=fields["cannot see"],
        looks_like_it=fields["looks like it"],
        page=page,
    )


def filled(template: str, value_of: Callable[[str], Value | str | bool | None]) -> str:
    """`template` with what `value_of` gives for the names in it: None for what is not known, a bool for what is only asked for."""
    compiled, names = _compiled(template)
    values = {name: value_of(name) for name in names}
    known = {name: value for name, value in values.items() if value is not None and value is not False}
    return compiled.render({name: Phrase(value) if isinstance(value, str) else value for name, value in known.items()})


@cache
def _compiled(template: str) -> tuple["Template", frozenset[str]]:
    """A template, and the names in it."""
    from jinja2 import nodes

    tree = environment().parse(template)
    return environment().from_string(tree), frozenset(name.name for name in tree.find_all(nodes.Name))


@cache
def environment() -> "Environment":
    """How templates are read. What they do not ask for before they print it must be known: else they raise."""
    from jinja2 import Environment, Undefined  # only where a sentence is made: not for `--help`, nor for a scan without findings

    class Unknown(Undefined):
        """May be asked for; cannot be printed."""

        def __str__(self) -> Never:
            self._fail_with_undefined_error()

    def on_known(function: Callable[..., str | None]) -> Callable[..., object]:
        def applied(value: Value | Unknown, *arguments: str) -> object:
            words = function(value.value, *arguments) if isinstance(value, Value) else None
            return Unknown() if words is None else Phrase(words)

        return applied

    made = Environment(undefined=Unknown, autoescape=False)  # noqa: S701 - sentences, which whoever shows them escapes
    made.globals.clear()
    made.filters = {name: on_known(function) for name, function in FILTERS.items()}
    made.tests = {
        "true": lambda value: isinstance(value, Value) and value.value is True,
        "empty": lambda value: isinstance(value, Value) and value.value == [],
    }
    return made
