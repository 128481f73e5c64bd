"""Links within what is given: every command answers as if there were none, and a link and its target are one replica."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.plan_runs import Run

HEALTHY = Path(__file__).resolve().parents[2] / "sample_logs" / "healthy"
SEGMENT = f"{0:020d}.log"
COMMANDS = {
    "scan": ["scan", "--format", "json"],
    "compare": ["compare", "--topic", "orders", "--partition", "0", "--format", "json"],
    "transactions": ["transactions", "--format", "json"],
    "epochs": ["epochs", "--format", "json"],
    "metadata": ["metadata", "--format", "json"],
    "groups": ["groups", "--format", "json"],
    "find": ["find", "--offset", "0", "--topic", "orders", "--format", "json"],
    "plan": ["plan", "--topic", "orders", "--partition", "0", "--format", "json"],
    "dump": ["dump", "--topic", "orders", "--format", "json"],
}

OF_ORDERS = ("scan", "compare", "epochs", "find", "plan", "dump")
"""Commands that read the files of `orders` there."""


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    """The healthy sample's brokers."""
    shutil.copytree(HEALTHY, tmp_path / "copies")
    return tmp_path / "copies"


def aside(path: Path, store: Path, *, relative: bool) -> None:
    """Move `path` to `store` and leave a link in its place."""
    store.parent.mkdir(parents=True, exist_ok=True)
    path.rename(store)
    path.symlink_to(os.path.relpath(store, path.parent) if relative else store)


def linked_log_directory(copies: Path, store: Path, *, relative: bool) -> None:
    """Broker 2's log directory is a link."""
    aside(copies / "broker-2", store / "disk", relative=relative)


def linked_partition(copies: Path, store: Path, *, relative: bool) -> None:
    """One of broker 2's partitions is a link."""
    aside(copies / "broker-2" / "orders-0", store / "orders-0", relative=relative)


def linked_partition_of_another_name(copies: Path, store: Path, *, relative: bool) -> None:
    """The same, and its target is called otherwise."""
    aside(copies / "broker-2" / "orders-0", store / "moved" / "somewhere", relative=relative)


def linked_segment(copies: Path, store: Path, *, relative: bool) -> None:
    """One of its segments is a link."""
    aside(copies / "broker-2" / "orders-0" / SEGMENT, store / SEGMENT, relative=relative)


def linked_small_files(copies: Path, store: Path, *, relative: bool) -> None:
    """Small files and an index of broker 2 are links."""
    for name in (
        "meta.properties",
        "replication-offset-checkpoint",
        "orders-0/leader-epoch-checkpoint",
        f"orders-0/{0:020d}.index",
    ):
        aside(copies / "broker-2" / name, store / "small" / Path(name).name, relative=relative)


LAYOUTS = [linked_log_directory, linked_partition, linked_partition_of_another_name, linked_segment, linked_small_files]


@pytest.mark.parametrize(
    ("layout", "relative"),
    [
        (linked_log_directory, True),
        (linked_partition, False),
        (linked_partition_of_another_name, True),
        (linked_segment, False),
        (linked_small_files, True),
    ],
)
def test_every_command_answers_as_without_links(
    run: Run, copies: Path, tmp_path: Path, layout: Callable[..., None], *, relative: bool
) -> None:
    wanted = {name: run(*command, copies) for name, command in COMMANDS.items()}
    assert {status for status, _, _ in wanted.values()} == {0}
    layout(copies, tmp_path / "store", relative=relative)
    for name, command in COMMANDS.items():
        status, out, _ = run(*command, copies, tmp_path / "store")
        assert (name, status, json.loads(out)) == (name, 0, json.loads(wanted[name][1]))
    for name in OF_ORDERS:
        status, _, err = run(*COMMANDS[name], copies)
        assert (name, status, "not followed" in err) == (name, 3, True)
