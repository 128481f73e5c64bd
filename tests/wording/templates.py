"""The templates of all sentences, their names, and evidence with values for them."""

from collections.abc import Iterator
from types import UnionType
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from jinja2 import nodes

from kafka_forensics.analysis.kinds import CATALOGUE
from kafka_forensics.wording.findings import DERIVED
from kafka_forensics.wording.kind_text import environment, kind_text


def templates() -> Iterator[tuple[str, nodes.Template]]:
    """(kind, tree) of every message and advice."""
    for kind in CATALOGUE:
        for text in (kind_text(kind).message, kind_text(kind).advice):
            yield kind, environment().parse(text)


EVIDENCE_NAMES = frozenset(name.name for _, tree in templates() for name in tree.find_all(nodes.Name)) - DERIVED.keys()
"""Names in templates that are values of the evidence."""


def full_evidence(kind: str) -> dict[str, Any]:
    """Evidence of a kind with a value of the declared type for every key."""
    evidence: dict[str, Any] = _example_of(CATALOGUE[kind].evidence)
    return evidence


def _example_of(declared: Any) -> Any:
    origin, arguments = get_origin(declared), get_args(declared)
    if is_typeddict(declared):
        return {name: _example_of(hint) for name, hint in get_type_hints(declared).items()}
    if origin in (NotRequired, Union, UnionType):
        return _example_of(arguments[0])
    if origin is list:
        return [_example_of(arguments[0])]
    if origin is dict:
        return {_example_of(arguments[0]): _example_of(arguments[1])}
    return arguments[0] if origin is Literal else {str: "some", int: 7, bool: True}.get(declared, "any")
