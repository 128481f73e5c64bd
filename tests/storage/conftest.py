"""One tree of files for all tests of storage, and the archives made from it."""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from kafka_forensics.storage.remote import errors as remote_errors
from tests.storage.trees import CONTAINERS, make_tree
from tests.support.object_stores import ACCESS_KEY, SECRET_KEY, S3Server


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a small broker, which no test changes."""
    root = tmp_path_factory.mktemp("tree")
    make_tree(root)
    return root


@pytest.fixture(scope="session")
def packed(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """form → an archive of the tree in its own directory, which no test changes."""

    @cache
    def archive(form: str) -> Path:
        name, make = CONTAINERS[form]
        path = tmp_path_factory.mktemp("packed") / name
        make(tree, path)
        return path

    return archive


@pytest.fixture
def credentials(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials in the environment, and short pauses between attempts."""
    monkeypatch.setattr(remote_errors, "PAUSES", (0.01, 0.01, 0.01))
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    values = {"ACCESS_KEY_ID": ACCESS_KEY, "SECRET_ACCESS_KEY": SECRET_KEY, "ENDPOINT_URL": s3.endpoint}
    for name, value in (values | {"EC2_METADATA_DISABLED": "true"}).items():
        monkeypatch.setenv(f"AWS_{name}", value)
