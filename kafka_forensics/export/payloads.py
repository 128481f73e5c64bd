"""Findings without the bytes of records: what is told of them unless payloads are asked for."""

import dataclasses
from typing import Final

from kafka_forensics.model.findings import Finding

_PAYLOAD_NAMES: Final = frozenset({"key", "keys", "value", "values", "header", "headers", "payload"})
_HIDDEN: Final = "(hidden; --show-payloads shows it)"


def without_payloads(finding: Finding) -> Finding:
    """`finding` with what came out of records hidden in its evidence, at any depth."""
    return dataclasses.replace(finding, evidence={name: _hidden(name, value) for name, value in finding.evidence.items()})


def _hidden(name: str, value: object) -> object:
    if name in _PAYLOAD_NAMES and value is not None and not isinstance(value, int):  # a checkpoint's value is a number
        return _HIDDEN
    if isinstance(value, dict):
        return {inner: _hidden(inner, each) for inner, each in value.items()}
    if isinstance(value, list):
        return [_hidden("", each) for each in value]
    return value
