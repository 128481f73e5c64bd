"""Directories that stay open while they are read give the same entries."""

import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from kafka_forensics.parsers import log_dir
from kafka_forensics.parsers.log_dir import discover
from kafka_forensics.storage.local import LocalSource, directory_kept_open
from tests.storage.trees import make_tree
from tests.support.brokers import put_segment
from tests.support.segments import segment_file


def unusual_tree(root: Path) -> Path:
    """A broker with links, pipes and unusual names in its directories."""
    make_tree(root)
    broker = root / "broker-1"
    for name in ("linked-0", "piped-0", "b\udcff-0", "links-0"):
        (broker / name).mkdir()
        put_segment(broker / name, 0, b"x")
    os.mkfifo(broker / "piped-0" / "pipe")
    (broker / "linked-0" / segment_file(5)).symlink_to("../orders-0/00000000000000000000.log")
    (broker / "links-1").symlink_to("links-0")
    (broker / "nowhere-0").symlink_to("/nowhere")
    os.utime(broker / "piped-0" / segment_file(0), ns=(-5, -5))
    return broker


def test_discovery_is_equal_with_and_without_open_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = unusual_tree(tmp_path)
    for root in (broker, tmp_path):
        reopening, keeping_open = LocalSource(str(root)), LocalSource(str(root))
        entries = discover(keeping_open)
        with monkeypatch.context() as patched:
            patched.setattr(log_dir, "directory_kept_open", lambda *_: nullcontext())
            assert entries == discover(reopening)
        assert keeping_open.roots_used == reopening.roots_used


def test_a_renamed_directory_is_read_while_it_is_kept_open(tmp_path: Path) -> None:
    unusual_tree(tmp_path)
    source, broker = LocalSource(str(tmp_path)), tmp_path / "broker-1"
    before = len(os.listdir("/proc/self/fd"))
    with directory_kept_open(source, "broker-1/orders-0"), directory_kept_open(source, "broker-1/orders-0"):
        expected = source.list("broker-1/orders-0")
        (broker / "orders-0").rename(tmp_path / "renamed")
        (broker / "orders-0").mkdir()
        with source.open("broker-1/orders-0/leader-epoch-checkpoint") as file:
            assert file.read_at(0, 9) == b"0\n1\n0 0\n"
        assert source.stat(expected[0].path) == expected[0]
    assert source.list("broker-1/orders-0") == []
    assert len(os.listdir("/proc/self/fd")) == before
