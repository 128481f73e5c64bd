"""Random histories written as log directories: scan, plan and the list of transactions find what happened, and nothing else."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from kafka_forensics.analysis.replicas import comparison, forks, verdicts
from kafka_forensics.analysis.replicas import controllers_word as word
from kafka_forensics.analysis.replicas import forks as fork_versions
from kafka_forensics.analysis.transactions_across import across as transactions_across
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.replication.acks import SequenceVerdict
from kafka_forensics.replication.epochs import follower_cut
from kafka_forensics.replication.planner import planner
from kafka_forensics.simulation import actions, materialise, producers
from kafka_forensics.writers.files import write_leader_epochs
from tests.support.history_scans import wrongs_on_disk
from tests.support.random_histories import random_history

CHUNK = 50
"""Histories of a test; the nightly run has 20 such tests."""
RED_WITHIN = 200
"""A broken rule must show in one of the first so many histories."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "first_seed" in metafunc.fixturenames:
        chunks = 20 if metafunc.config.getoption("--nightly") else 1
        metafunc.parametrize("first_seed", range(0, chunks * CHUNK, CHUNK))


def test_scan_and_plan_find_what_the_simulator_knows(first_seed: int, tmp_path: Path) -> None:
    counted: Counter[str] = Counter()
    for seed in range(first_seed, first_seed + CHUNK):
        assert list(all_wrongs(seed, tmp_path, counted)) == [], f"seed {seed}"
    assert counted["forked"] > 0
    assert counted["transactions listed"] > 0
    assert counted["open transactions"] > 0
    # A loss that no watermark reaches to leaves no trace in any file.
    assert counted["records lost without a trace"] > counted["records lost with a trace"]


@pytest.mark.parametrize("seed", [375])
def test_histories_in_which_they_once_disagreed(seed: int, tmp_path: Path) -> None:
    """What a marker alone proves committed, a plan counted and a scan did not tell (375)."""
    counted = Counter[str]()
    assert list(all_wrongs(seed, tmp_path, counted)) == []
    assert counted["members short of a marker"] > 0


def all_wrongs(seed: int, folder: Path, counted: Counter[str]) -> Iterator[str]:
    """What is wrong in one history, whose directories are removed again."""
    root = folder / str(seed)
    root.mkdir()
    yield from wrongs_on_disk(random_history(seed), root, counted)
    rmtree(root)


def without_its_last_epoch(entries: list[EpochEntry]) -> bytes:
    """A broker that forgets to write its last epoch down."""
    return write_leader_epochs(entries[:-1])


def one_further(*given: Any) -> int:
    """A follower that keeps one record more than it may."""
    return follower_cut(*given) + 1


MUTANTS: dict[str, tuple[Any, str, Any]] = {
    "a version is judged by its first replica": (fork_versions.Version, "head", property(lambda version: version.replicas[0])),
    "every side of a fork is a holder": (forks, "_holders", lambda version, *_: version.brokers),
    "no version loses": (forks, "_losers", lambda *_: []),
    "only records make an epoch": (comparison, "trailing_epoch_loss", lambda *_: None),
    "forks are told once": (comparison, "unexplained", lambda *_: {}),
    "losses are told again": (comparison, "untold", lambda found, _: found),
    "the first election is to blame": (
        word,
        "_losing_elections",
        lambda _, control, __: word._elections(control)[:1],
    ),
    "the last unclean election is to blame": (word._Lineage, "lacks", lambda *_: None),
    "all members of the ISR have everything": (word, "_short_members", lambda *_: []),
    "no election is unclean": (word, "_unclean_elections", lambda *_: []),
    "watermarks are within their logs": (verdicts, "checkpoint_findings", lambda _: []),
    "differing records count as kept, in plans": (planner._Planning, "_differing", lambda *_: ()),
    "followers keep one too many, in plans": (planner, "follower_cut", one_further),
    "watermarks prove nothing, in plans": (planner, "_capped", lambda *_: []),
    "decisions need no marker": (transactions_across, "contradictions", lambda *_: []),
    "brokers forget their last epoch": (materialise, "write_leader_epochs", without_its_last_epoch),
    "followers skip their step": (actions, "truncate", lambda *_: None),
    "leaders begin no epoch": (actions, "assign_epoch", lambda *_: None),
    "leaders know no producers": (producers, "judge", lambda *_: (SequenceVerdict.APPEND, -1)),
}
"""A rule that is broken, in the tool, in the writing of files or in brokers → what is put in its place."""


RED_AT = {
    "a version is judged by its first replica": 132,
    "every side of a fork is a holder": 149,
    "forks are told once": 82,
    "losses are told again": 693,
    "the first election is to blame": 36,
    "the last unclean election is to blame": 545,
    "all members of the ISR have everything": 187,
    "decisions need no marker": 52,
}
"""Where a rule seldom matters: a seed that shows it, which is tried first."""


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_rule_is_found(mutant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MUTANTS[mutant])
    seeds = dict.fromkeys([RED_AT.get(mutant, 0), *range(RED_WITHIN)])
    assert any(wrong for seed in seeds for wrong in all_wrongs(seed, tmp_path, Counter())), "nothing went red"
