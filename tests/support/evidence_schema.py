"""Checks that evidence follows its declared schema: a finding carries every field that the class of its kind declares, and no
other."""

from collections.abc import Iterable, Iterator
from types import UnionType
from typing import TYPE_CHECKING, Any, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

import pytest

if TYPE_CHECKING:
    from kafka_forensics.model.findings import Finding
    from kafka_forensics.model.results import ScanResult


@pytest.fixture(scope="session", autouse=True)
def _evidence_is_as_declared() -> Iterator[None]:
    """Check the evidence of every scan that runs in a test's process."""
    from kafka_forensics.scanning.judging.whole_scan import (
        Scan,  # imported late: pytest loads this plugin before all tests, even when the package cannot be imported
    )

    original_finish = Scan.finish

    def finish(self: Scan) -> "ScanResult":
        result = original_finish(self)
        assert evidence_errors(result.findings) == []
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scan, "finish", finish)
        yield


def evidence_errors(findings: "Iterable[Finding]") -> list[str]:
    """Differences between the findings' evidence and its declared classes, one line each."""
    from kafka_forensics.analysis.kinds import CATALOGUE

    return [
        f"{finding.kind}: {fault}"
        for finding in findings
        for fault in _faults(
            dict(finding.evidence), CATALOGUE[finding.kind].evidence, "evidence", counted="counted" in finding.evidence
        )
    ]


def _faults(value: Any, declared: Any, place: str, *, counted: bool = False) -> Iterator[str]:
    """Differences between a value and its declared type; a finding `counted` for several omits fields that differ among them."""
    if is_typeddict(declared):
        yield from _typed_dict_faults(value, declared, place, counted=counted)
    elif declared is Any:
        return
    elif get_origin(declared) in (Union, UnionType):
        if all(list(_faults(value, choice, place)) for choice in get_args(declared)):
            yield f"{place}: {value!r} is no {declared}"
    elif get_origin(declared) is list:
        if not isinstance(value, list | tuple):
            yield f"{place}: {value!r} is no list"
            return
        for item in value:
            yield from _faults(item, get_args(declared)[0], f"{place}[]")
    elif get_origin(declared) is dict:
        if not isinstance(value, dict):
            yield f"{place}: {value!r} is no object"
            return
        for name, item in value.items():
            yield from _faults(name, get_args(declared)[0], f"{place} name")
            yield from _faults(item, get_args(declared)[1], f"{place}.{name}")
    elif type(value) is not declared and not (isinstance(declared, type) and declared is str and isinstance(value, str)):
        yield f"{place}: {value!r} is no {declared.__name__}"


def _typed_dict_faults(value: Any, declared: Any, place: str, *, counted: bool) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{place}: {value!r} is no {declared.__name__}"
        return
    hints = get_type_hints(declared, include_extras=True)
    for name, item in value.items():
        if name not in hints:
            yield f"{place}.{name} is not declared in {declared.__name__}"
            continue
        hint = get_args(hints[name])[0] if get_origin(hints[name]) is NotRequired else hints[name]
        yield from _faults(item, hint, f"{place}.{name}")
    if not counted:
        yield from (f"{place}.{name} is missing" for name in sorted(declared.__required_keys__ - value.keys()))
