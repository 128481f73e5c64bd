"""One tree of files for all tests of this room."""

from pathlib import Path

import pytest

from tests.storage.trees import make_tree


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small broker's directory; never written to."""
    root = tmp_path_factory.mktemp("tree")
    make_tree(root)
    return root
