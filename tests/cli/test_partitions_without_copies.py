"""Partitions without any copy, known only from a checkpoint or from the controllers' log."""

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.runs import Run
from tests.support.brokers import healthy, put_checkpoint, put_meta_properties
from tests.support.controllers import partition as partition_record, setting, topic, with_controller
from tests.support.json_schemas import validate
from tests.support.places import SAMPLES

REASON = "it has no copy, although replication-offset-checkpoint of broker 1 has "
OTHER_ID = "AAECAwQFBgcICQoLDA0ODw"


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    """The healthy sample; no broker has `orders-1`."""
    return shutil.copytree(SAMPLES / "healthy", tmp_path / "in", ignore=shutil.ignore_patterns("orders-1"))


def test_salvage_refuses_the_partition_and_keeps_its_checkpoint_lines(run: Run, copies: Path, tmp_path: Path) -> None:
    status, out, _ = run("salvage", copies, "--output", tmp_path / "out", "--format", "text")
    assert f"refused orders-1: {REASON}69 committed offsets of it give further copies: " in " ".join(out.split())
    assert (status, "Start no broker on DIR, which lacks orders-1." in " ".join(out.split())) == (3, True)
    document = json.loads((tmp_path / "out" / "manifest.json").read_text())
    validate("salvage", document)
    (refused,) = [row for row in document["refused"] if row["topic"] == "orders"]
    assert (refused["kind"], refused["partition"], refused["brokers"]) == ("no_copy", 1, [1, 2, 3])
    assert "orders 1 69\n" in (tmp_path / "out/broker-1/broker-1/replication-offset-checkpoint").read_text()
    assert run("salvage", copies, "--topic", "orders", "--partial", "--output", tmp_path / "part")[0] == 0


def test_salvage_with_allow_gaps_lists_the_partition_as_begun_empty(run: Run, copies: Path, tmp_path: Path) -> None:
    arguments = ("salvage", copies, "--allow-gaps", "--output")
    status, out, _ = run(*arguments, tmp_path / "out", "--topic", "orders", "--format", "tsv")
    row = next(line.split("\t") for line in out.splitlines() if "started_empty" in line)
    assert (status, row[:3], row[-1]) == (0, ["orders", "1", "started_empty"], f"{REASON}69 committed offsets of it")
    document = json.loads((tmp_path / "out" / "manifest.json").read_text())
    validate("salvage", document)
    assert [(row["topic"], row["partition"]) for row in document["started_empty"]] == [("orders", 1)]
    assert "orders 1" not in (tmp_path / "out/broker-1/broker-1/replication-offset-checkpoint").read_text()
    out = " ".join(run(*arguments, tmp_path / "all", "--format", "text")[1].split())
    assert f"begun empty orders-1: {REASON}69 committed offsets of it " in out
    assert "1. DIR has nothing of orders-1, and brokers start without its records." in out


def test_the_controllers_log_excludes_deleted_topics_and_adds_assigned_partitions(run: Run, tmp_path: Path) -> None:
    """Broker 4 has no checkpoint: only the controllers' log names its partition. That of a tiered topic never begins empty."""
    other = topic("other", OTHER_ID), partition_record([4], 4, topic_id=OTHER_ID)
    values = topic(), partition_record([1, 2, 3], 1), topic("gone", "BBECAwQFBgcICQoLDA0ODw"), *other
    brokers = with_controller(healthy(tmp_path / "in"), *values, setting("remote.storage.enable", "true", "other"))
    put_meta_properties(brokers.log_dir(4), 4)
    put_checkpoint(brokers.log_dir(1), "replication", {"t-0": 60, "gone-0": 9, "__remote_log_metadata-0": 9})
    for outcome, options in (("refused", ()), ("begun empty", ("--allow-gaps",))):
        _, out, err = run("salvage", brokers.root, "--output", tmp_path / outcome, "--format", "text", *options)
        text = " ".join(out.split())
        assert text.count(": it has no copy") == 2
        lost = f"{outcome} __remote_log_metadata-0: {REASON}9 committed offsets of it; without it brokers do not find"
        assert lost in text
        assert "refused other-0: it has no copy, although the controllers' log assigns it to broker 4" in text
        assert "start no broker before other-0 is salvaged or copied back: Kafka would delete" in err
    assert [run("scan", brokers.root, "--topic", name)[0] for name in ("other", "gone", "nobody")] == [0, 0, 2]


def test_plan_reports_the_partition_first_and_accepts_its_name(run: Run, copies: Path) -> None:
    _, out, err = run("plan", copies, "--format", "json")
    assert "11 partitions: 1 partition without a copy (orders-1); no election would lose anything that the copies here" in err
    validate("plan", json.loads(out))
    first = json.loads(out)["steps"][0]
    assert (first["kind"], [row["partition_start"] for row in first["partitions"]]) == ("copy", [1])
    assert first["text"].startswith("orders-1 has no copy, and brokers start without its records. First look for more copies")
    status, _, err = run("plan", copies, "--topic", "orders", "--partition", "1")
    assert (status, "nothing to plan: 1 partition without a copy (orders-1)" in err) == (0, True)
    assert run("scan", copies, "--topic", "orders", "--partition", "1")[0] == 1
    assert run("scan", copies, "--topic", "orders", "--partition", "2")[0] == 2
