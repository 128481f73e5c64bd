"""Evidence is declared for every kind, and undeclared evidence is found."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

import pytest

import kafka_forensics
from kafka_forensics.analysis.kinds import CATALOGUE, finding
from kafka_forensics.model.findings import Place
from tests.support.evidence_schema import evidence_errors

HIDDEN = {"bytes": 3, "batches_recovered": 1, "first_recovered_offset": 7, "last_recovered_offset": 8}
FORK = {"offset": 1, "versions": [{"brokers": [1, "b"], "epoch": 2, "log_end_offset": 9, "high_watermark": None}]}


def test_every_class_has_a_docstring_and_a_unique_name() -> None:
    classes = {kind.evidence for kind in CATALOGUE.values()}
    assert all(declared.__doc__ and len(declared.__doc__) > 10 for declared in classes)
    assert len({declared.__name__ for declared in classes}) == len(classes)


@pytest.mark.parametrize(
    ("kind", "evidence", "fault"),
    [
        ("HIDDEN_BYTES", HIDDEN, None),
        ("HIDDEN_BYTES", HIDDEN | {"held_by": [1, "b"], "harmless_if": "so"}, None),
        ("HIDDEN_BYTES", HIDDEN | {"bytes": True}, "evidence.bytes: True is no int"),
        ("HIDDEN_BYTES", HIDDEN | {"bytes": None}, "evidence.bytes: None is no int"),
        ("HIDDEN_BYTES", HIDDEN | {"held_by": [1.5]}, "evidence.held_by[]: 1.5 is no int | str"),
        ("HIDDEN_BYTES", HIDDEN | {"extra": 1}, "evidence.extra is not declared in HiddenBytesEvidence"),
        ("HIDDEN_BYTES", {name: 1 for name in HIDDEN if name != "bytes"}, "evidence.bytes is missing"),
        ("HIDDEN_BYTES", {"counted": 4}, None),
        ("FORK_BELOW_HW", FORK, None),
        (
            "FORK_BELOW_HW",
            {"versions": [{"brokers": [], "epoch": 2, "log_end_offset": 9}]},
            "evidence.versions[].high_watermark is missing",
        ),
        ("EVIDENCE_CHANGED", {"before": {"size": "x"}, "after": None}, "evidence.before.size: 'x' is no int"),
    ],
)
def test_undeclared_evidence_is_found(kind: str, evidence: dict[str, object], fault: str | None) -> None:
    assert evidence_errors([finding(kind, Place(), evidence)]) == ([] if fault is None else [f"{kind}: {fault}"])


DECLARED = {name for kind in CATALOGUE.values() for name in get_type_hints(kind.evidence)}


OF_CHANGES = {"in_parts_on", "lost", "lost_offsets"}
"""Evidence of changes, which are not findings."""


def keys_read(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, key) of every literal key that is read from something called evidence."""
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=of, slice=ast.Constant(value=str(key))) if is_evidence(of):
                yield node.lineno, key
            case ast.Call(func=ast.Attribute(value=of, attr="get"), args=[ast.Constant(value=str(key)), *_]) if is_evidence(of):
                yield node.lineno, key
            case ast.Compare(left=ast.Constant(value=str(key)), ops=[ast.In() | ast.NotIn()], comparators=[of]) if is_evidence(of):
                yield node.lineno, key


def is_evidence(node: ast.expr) -> bool:
    """Whether an expression is `evidence` or an attribute of this name."""
    return (isinstance(node, ast.Name) and node.id == "evidence") or (isinstance(node, ast.Attribute) and node.attr == "evidence")


def test_every_key_that_code_reads_is_declared() -> None:
    root = Path(kafka_forensics.__file__).parent
    read = [
        (path.relative_to(root).as_posix(), line, key)
        for path in sorted(root.rglob("*.py"))
        for line, key in keys_read(ast.parse(path.read_text()))
    ]
    assert len(read) > 100
    assert [row for row in read if row[2] not in DECLARED | OF_CHANGES] == []


def test_every_key_that_signatures_read_is_declared() -> None:
    rules = Path(kafka_forensics.__file__).parent / "analysis" / "incidents"
    calls = [
        node
        for path in sorted(rules.glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "has_finding"
    ]
    keys = [
        (arg.value, keyword.arg)
        for call in calls
        for arg in call.args
        if isinstance(arg, ast.Constant)
        for keyword in call.keywords
    ]
    assert keys
    assert [(kind, key) for kind, key in keys if key not in get_type_hints(CATALOGUE[str(kind)].evidence)] == []
