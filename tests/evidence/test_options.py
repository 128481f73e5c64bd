"""Options of the public functions."""

from typing import Any

import pytest

from kafka_forensics.evidence.ledger import CopyExtent
from kafka_forensics.evidence.options import ScanOptions, scan_options


def test_keywords_become_the_options_of_the_command() -> None:
    from_keywords = scan_options(
        jobs=2, deep=True, as_of_ms=5, topic="orders*", broker=3, whole=False, storage_options={"region": "here"}
    )
    options = ScanOptions("orders*", None, "3", 2, CopyExtent.PARTIAL, deep=True, as_of_ms=5, storage_options=(("region", "here"),))
    assert from_keywords == options
    assert scan_options(jobs=1, deep=None, as_of_ms=None) == ScanOptions()


def test_an_unknown_option_is_refused() -> None:
    unknown: dict[str, Any] = {"topics": "orders"}
    with pytest.raises(TypeError, match="topics"):
        scan_options(jobs=1, deep=None, as_of_ms=None, **unknown)
