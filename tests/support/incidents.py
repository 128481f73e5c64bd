"""Every tree of the known incidents, in the order of docs/incidents.md."""

from typing import Final

from tests.support.incident_trees import HISTORY_TREES, Tree
from tests.support.incident_trees_files import FILE_TREES
from tests.support.incident_trees_records import RECORD_TREES
from tests.support.incident_trees_transactions import TRANSACTION_TREES


def _number(tree: Tree) -> int:
    return int(tree.key.split()[0].removeprefix("d"))


TREES: Final = tuple(sorted((*HISTORY_TREES, *FILE_TREES, *RECORD_TREES, *TRANSACTION_TREES), key=_number))
