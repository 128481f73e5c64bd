"""Spans tile every file of the six trees, whatever its bytes are, and sum up to what the scan counts."""

import pytest

from tests.equivalence.conftest import Made
from tests.equivalence.trees import SECTIONS_OF
from tests.facts.test_facts_spans import assert_tiled


@pytest.mark.parametrize("name", SECTIONS_OF)
def test_spans_tile_the_files(name: str, made: Made) -> None:
    assert_tiled([made(name, every=True).root])
