"""Nouns and units: one rule, whoever writes them."""

import pytest

from kafka_forensics.model.amounts import exact_size, plural
from kafka_forensics.report import words
from kafka_forensics.wording import values


@pytest.mark.parametrize(
    ("count", "noun", "said"), [(0, "log", "0 logs"), (1, "batch", "1 batch"), (12345, "batch", "12345 batches")]
)
def test_nouns(count: int, noun: str, said: str) -> None:
    assert plural(count, noun) == said == values.amount(count, noun)


def test_digits_are_grouped_on_a_page_alone() -> None:
    assert (words.plural(12345, "branch"), words.plural(1, "branch")) == ("12,345 branches", "1 branch")


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (20774, "20.8 kB (20,774 bytes)"),
        (10**16, "10 PB (10,000,000,000,000,000 bytes)"),
    ],
)
def test_a_page_tells_every_byte(count: int, said: str) -> None:
    assert exact_size(count) == said
