"""The notebooks run from the first cell to the last, and show what is stored in them."""

from pathlib import Path

import pytest

from tests.examples.notebooks import EXAMPLES, charted, errors, fresh, printed, stored

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

NAMES = ("aborted_transactions", "where_replicas_part", "logs_on_spark", "replicas_in_sql")
NOTEBOOKS = [EXAMPLES / f"{name}.ipynb" for name in NAMES]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_is_stored_in_it(path: Path) -> None:
    kept, again = stored(path), fresh(path)
    assert errors(kept) == errors(again) == []
    assert printed(again) == printed(kept)
    assert charted(again) == charted(kept)


def test_there_are_no_others() -> None:
    assert sorted(EXAMPLES.glob("*.ipynb")) == sorted(NOTEBOOKS)


def test_they_name_what_was_lost_and_who_wrote() -> None:
    aborted, parted, spark, _ = (printed(stored(path)) for path in NOTEBOOKS)
    assert "payments-0  offsets 36 to 40  aborted at 41  by teller-1 (producer 2, epoch 0)" in aborted
    assert "wait at offset 72 of payments-0, for teller-who-left" in aborted
    assert "they part at offset 300 in leader epochs {'1': 2, '2': 0}" in parted
    assert "audit-0 offset 300: broker 1 in leader epoch 2, broker 2 in leader epoch 0" in spark
    assert "only broker 2 has these 70 records: offsets 300 to 369" in parted


def test_their_charts_show_it() -> None:
    [aborted], [parted], [spark] = (charted(stored(path)) for path in NOTEBOOKS[:3])
    assert "offset: 36; lane: payments-0 teller-1; end_offset: 41; state: aborted" in aborted
    assert "offset: 72; lane: payments-0 teller-who-left; end_offset: 75; state: open" in aborted
    assert "offset: 300; lane: broker 1; end_offset: 315; leader epoch: 2" in parted
    assert "offset: 300; lane: broker 2; end_offset: 310; leader epoch: 0" in parted
    assert [label for label in spark if "log end offset: 370" in label] == [label for label in spark if "broker: 2" in label][-1:]
