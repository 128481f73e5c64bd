"""A bundle that tests of damaged bundles change."""

from pathlib import Path

import pytest

from tests.support.bundles import make_bundle, put_broker


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A valid bundle."""
    folder = tmp_path_factory.mktemp("bundle")
    return make_bundle(put_broker(folder), folder / "right.kfb")
