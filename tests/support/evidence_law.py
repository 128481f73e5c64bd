"""Evidence follows its declared schema: a finding carries what the class of its kind declares, all of it, and nothing else."""

from collections.abc import Iterable, Iterator
from types import UnionType
from typing import TYPE_CHECKING, Any, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

import pytest

if TYPE_CHECKING:
    from kafka_forensics.model.findings import Finding
    from kafka_forensics.model.results import ScanResult


@pytest.fixture(scope="session", autouse=True)
def _evidence_is_as_declared() -> Iterator[None]:
    """Every scan of every test, in its process: what its findings carry is what the catalogue says."""
    from kafka_forensics.scanning.judging.whole_scan import (
        Scan,  # late: as a plugin this is loaded before all tests, and must not break with it
    )

    right = Scan.finish

    def finish(self: Scan) -> "ScanResult":
        result = right(self)
        assert broken(result.findings) == []
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scan, "finish", finish)
        yield


def broken(findings: "Iterable[Finding]") -> list[str]:
    """What in the evidence of these is not as it is declared, a line each."""
    from kafka_forensics.analysis.kinds import CATALOGUE

    return [
        f"{finding.kind}: {fault}"
        for finding in findings
        for fault in _faults(
            dict(finding.evidence), CATALOGUE[finding.kind].evidence, "evidence", counted="counted" in finding.evidence
        )
    ]


def _faults(value: Any, declared: Any, place: str, *, counted: bool = False) -> Iterator[str]:
    """Faults of a value; of one `counted` for several, what is not alike in all of them is left out."""
    if is_typeddict(declared):
        yield from _of_names(value, declared, place, counted=counted)
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


def _of_names(value: Any, declared: Any, place: str, *, counted: bool) -> Iterator[str]:
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
