"""Makes `docs/incidents.md` from scans of the tree that each signature is tested with: `python -m lab.signatures`."""

import argparse
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from kafka_forensics.analysis.incidents import SIGNATURES, IncidentSignature, Weight, signature_key
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import Finding
from kafka_forensics.scanning.engine.local import scan
from lab.kafka_jars import LAB
from tests.gallery.incidents import TREES
from tests.support.brokers import Brokers

PAGE: Final = LAB.parent / "docs" / "incidents.md"
HEAD: Final = """# Known incidents

If the files show the traces of a known incident, `scan` reports the finding `INCIDENT_SIGNATURE` (info). It names the issue, what
matches, what does not match, and what these files cannot show. The finding shows a resemblance. It does not prove the cause, and it
does not change other findings. `kafka-forensics explain incident-signature` explains how to read it.

The affected and fixed versions are those of the issue. No file contains Kafka's version, but some files prove a minimum version:
leader epochs and producer snapshots (0.11), `partition.metadata` and `meta.properties` of version 1 (2.8), a broker epoch in
`.kafka_cleanshutdown` (3.7), the level of `metadata.version` in a controller's log (3.0 and later). If this minimum is the fixed
version or a later one, the finding states it: the incident may be older than the upgrade. If only the required traces match, and
the minimum version or another trace contradicts the incident, there is no finding.

| incident | issue | what happened | affected | fixed in |
|---|---|---|---|---|
"""
CONDITIONS: Final = """
## What a scan compares

A test scans log directories that show each incident, and others that almost show it (the near miss). They are made from the
replicas of the [fault gallery](faults.md). `python -m lab.signatures` writes this page.

| incident | required | also considered | example | near miss |
|---|---|---|---|---|
"""
TAIL: Final = """
No file shows reads above the high watermark or the last stable offset (KAFKA-9835, KAFKA-9807), or races of the high watermark
(KAFKA-14704, KAFKA-13141). At most, a group's committed offset beyond a fork is a sign of them.
"""


MatchSignatures = Callable[[Callable[[Path], Brokers]], dict[str, Finding]]
"""Maker of a tree → the findings of signatures in a scan of it, by signature."""


def matched_signatures(make: Callable[[Path], Brokers]) -> dict[str, Finding]:
    """The findings of signatures in a scan of a tree, by signature."""
    with tempfile.TemporaryDirectory() as folder:
        brokers = make(Path(folder) / "brokers")
        findings = scan([str(path) for path in brokers.log_dirs], ScanOptions(jobs=1)).findings
    matched = [finding for finding in findings if finding.kind == "INCIDENT_SIGNATURE"]
    return {signature_key(finding.evidence["incident"], finding.evidence["issue"]): finding for finding in matched}


def page(match: MatchSignatures = matched_signatures) -> str:
    """The page as Markdown."""
    signatures = sorted(SIGNATURES, key=_order)
    return "".join([HEAD, *map(_incident, signatures), CONDITIONS, *(_conditions(row, match) for row in signatures), TAIL])


def _incident(signature: IncidentSignature) -> str:
    cells = [signature.incident, signature.issue or "no issue", signature.summary, signature.affected_versions]
    return _line([*cells, ", ".join(signature.fixed_in) or "-"])


def _conditions(signature: IncidentSignature, match: MatchSignatures) -> str:
    tree = next(tree for tree in TREES if tree.key == signature.key)
    matched = match(tree.make).get(signature.key)
    near_miss = match(tree.make_near_miss).get(signature.key)
    also = f", and {', '.join(tree.also)}" if tree.also else ""
    considered = [
        *_texts(signature, Weight.EXPECTED, Weight.EXTRA),
        *(f"not: {text}" for text in _texts(signature, Weight.AGAINST)),
    ]
    cells = [
        tree.key,
        "; ".join(_texts(signature, Weight.MUST)),
        "; ".join(considered) or "-",
        f"{tree.shows}: {'not named' if matched is None else f'named, {matched.confidence}{also}'}",
        f"{tree.near_miss}: {'not named' if near_miss is None else 'NAMED'}",
    ]
    return _line(cells)


def _order(signature: IncidentSignature) -> tuple[int, str]:
    return int(signature.incident.removeprefix("d")), signature.issue or ""


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |\n"


def _texts(signature: IncidentSignature, *weights: Weight) -> Iterator[str]:
    return (condition.text for condition in signature.conditions if condition.weight in weights)


def main() -> None:
    """Write the page, or with `--check` exit with 1 if it is out of date."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--check", action="store_true")
    text = page()
    if parser.parse_args().check:
        raise SystemExit(0 if PAGE.read_text() == text else 1)
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
