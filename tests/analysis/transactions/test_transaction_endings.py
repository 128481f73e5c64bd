"""Aborted transactions and entries of `.txnindex` files that are one another's only ones."""

import numpy as np
import pytest

from kafka_forensics.analysis.transactions.endings import ENDING_WIDTH, FIRST_OFFSET, IS_ABORT, LAST_OFFSET, PRODUCER_ID, paired


@pytest.mark.parametrize(
    ("first_offset", "listed_first_offset", "is_abort", "agree"),
    [(3, 3, 1, True), (3, 4, 1, False), (-1, 9, 1, True), (-1, 3, 1, False), (-1, 9, 0, False), (9, 9, 0, False)],
)
def test_an_abort_of_nothing_agrees_with_an_entry_that_begins_with_itself(
    first_offset: int, listed_first_offset: int, is_abort: int, *, agree: bool
) -> None:
    endings = np.zeros((1, ENDING_WIDTH), np.int64)
    endings[0, [PRODUCER_ID, LAST_OFFSET, FIRST_OFFSET, IS_ABORT]] = (7, 9, first_offset, is_abort)
    of_endings, of_entries, named = paired(endings, np.array([[7, listed_first_offset, 9]], np.int64))
    assert (of_endings.tolist(), of_entries.tolist(), named.tolist()) == ([agree], [agree], [True])
