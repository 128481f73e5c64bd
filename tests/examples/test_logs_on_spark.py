"""The notebook on Spark runs from the first cell to the last, and shows what is stored in it."""

import pytest

from tests.support.notebooks import EXAMPLES, charted, errors, fresh, printed, stored

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

PATH = EXAMPLES / "logs_on_spark.ipynb"


def test_it_runs_and_shows_what_is_stored_in_it() -> None:
    kept, again = stored(PATH), fresh(PATH)
    assert errors(kept) == errors(again) == []
    assert printed(again) == printed(kept)
    assert charted(again) == charted(kept)


def test_it_shows_where_the_logs_part() -> None:
    assert "audit-0 offset 300: broker 1 in leader epoch 2, broker 2 in leader epoch 0" in printed(stored(PATH))
    [chart] = charted(stored(PATH))
    assert [label for label in chart if "log end offset: 370" in label] == [label for label in chart if "broker: 2" in label][-1:]
