"""The templates of all sentences, and what they ask for."""

from collections.abc import Iterator

from jinja2 import nodes

from kafka_forensics.analysis.catalogue import CATALOGUE
from kafka_forensics.wording.findings import DERIVED
from kafka_forensics.wording.prose import environment, prose


def templates() -> Iterator[tuple[str, nodes.Template]]:
    """(kind, tree) of every message and advice."""
    for kind in CATALOGUE:
        for text in (prose(kind).message, prose(kind).advice):
            yield kind, environment().parse(text)


NAMES = frozenset(name.name for _, tree in templates() for name in tree.find_all(nodes.Name)) - DERIVED.keys()
"""What templates ask the evidence for."""
