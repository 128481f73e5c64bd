"""`changes`: inputs, formats and exit statuses, on the samples and on small snapshots."""

import json
import shutil
import tarfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import kafka_forensics as kf
from kafka_forensics.errors import UsageError
from kafka_forensics.model.changes import CHANGE_COLUMNS
from kafka_forensics.model.schemas import CHANGES_FACT, FACTS
from tests.cli.runs import Run
from tests.support.json_schemas import validate
from tests.support.logs import HEALTHY, LOG_END
from tests.support.places import SAMPLES
from tests.support.snapshot_trees import NEW, OLD, Snapshots

BEFORE, AFTER = str(SAMPLES / "healthy"), str(SAMPLES / "unclean-election")


@pytest.fixture
def run(run: Run) -> Run:
    """`changes` with these arguments: exit status, stdout, stderr."""
    return partial(run, "changes")


@pytest.fixture
def snapshots(tmp_path: Path) -> Snapshots:
    """Two snapshots: broker 1 appended records, and broker 2 truncated committed ones."""
    made = Snapshots(tmp_path / "snapshots")
    made.put(OLD, HEALTHY)
    made.put(NEW, {1: HEALTHY.extended(), 2: HEALTHY.truncated_to(55), 3: HEALTHY})
    return made


def test_two_samples_of_one_cluster_have_appended_and_created_logs(run: Run) -> None:
    status, out, err = run(BEFORE, AFTER, "--format", "json")
    assert status == 1  # the newer sample has a critical finding, though nothing was lost between the two
    document = json.loads(out)
    validate("changes", document)
    counts = document["summary"]["changes"]
    assert counts == {**dict.fromkeys(document["summary"]["changes"], 0), "appended": 3, "created": 3, "unchanged": 36}
    changed = [(row["topic"], row["broker"], row["kind"]) for row in document["changes"] if row["kind"] != "unchanged"]
    appended = [("__cluster_metadata", broker, "appended") for broker in (1, 2, 3)]
    assert changed == [*appended, *(("audit", broker, "created") for broker in (1, 2, 3))]
    assert (document["findings"], document["notes"]) == ([], [])
    assert err.splitlines()[0] == (
        "critical: nothing new between 2 snapshots, healthy and unclean-election; unclean-election alone is critical"
        f" (1 critical, 12 info): `kafka-forensics scan {AFTER}` shows it"
    )
    assert document["summary"]["verdict"] == "critical"


def test_every_format_shows_the_changes(run: Run, snapshots: Snapshots) -> None:
    status, out, err = run(snapshots.root, "--format", "tsv")
    header, *rows = [line.split("\t") for line in out.splitlines()]
    assert (status, tuple(header), len(rows)) == (0, CHANGE_COLUMNS, 3)
    assert "warning: 1 warning between 2 snapshots" in err
    objects = [json.loads(line) for line in run(snapshots.root, "--format", "jsonl")[1].splitlines()]
    assert [row["type"] for row in objects] == ["snapshot"] * 2 + ["change"] * 3 + ["finding", "incident", "summary"]
    out = run(f"a\x1b[31mb\n={snapshots.root / OLD}", f"c={snapshots.root / NEW}", "--format", "text")[1]
    assert "appended in epoch 2; 2 batches, 6 records" in " ".join(out.split())
    assert ("unchanged" in out, "COMMITTED_TRUNCATED_SINCE" in out, "\x1b" in out) == (False, True, False)
    assert max(map(len, out.splitlines())) <= 80
    assert "unchanged" in run(snapshots.root, "--format", "text", "-v")[1]


def test_the_status_follows_the_most_severe_finding_between_snapshots(run: Run, snapshots: Snapshots) -> None:
    assert run(snapshots.root, "--snapshot", NEW, "--snapshot", OLD)[0] == 0  # in this order nothing is lost
    statuses = {fail_on: run(snapshots.root, "--fail-on", fail_on)[0] for fail_on in ("none", "warning", "error", "info")}
    assert statuses == {"none": 0, "warning": 1, "error": 0, "info": 1}


def test_snapshots_may_be_archives_named_or_given_by_broker(run: Run, snapshots: Snapshots, tmp_path: Path) -> None:
    archives = tmp_path / "archives"
    archives.mkdir()
    for name in (OLD, NEW):
        with tarfile.open(archives / f"{name}.tar.gz", "w:gz") as archive:
            archive.add(snapshots.root / name, name)
    old, new = snapshots.root / OLD, snapshots.root / NEW
    by_broker = [f"{name}={folder / broker}" for name, folder in ((OLD, old), (NEW, new)) for broker in ("b1", "b2", "b3")]
    expected = [summary_of_change(line) for line in run(snapshots.root, "--format", "jsonl")[1].splitlines()]
    for paths in ([archives], [f"{OLD}={old}", f"{NEW}={new}"], [old, new], by_broker):
        _, out, _ = run(*paths, "--format", "jsonl")
        assert [summary_of_change(line) for line in out.splitlines()] == expected


def summary_of_change(line: str) -> tuple[Any, ...]:
    row = json.loads(line)
    return tuple(row.get(name) for name in ("type", "broker", "from_snapshot", "kind", "offset_start", "offset_end", "bytes"))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["{root}", "--snapshot", "2026-11-22"], "there is no snapshot 2026-11-22"),
        (["{root}", "--snapshot", OLD], f"there is nothing to compare: snapshots here: {OLD}"),
        (["{root}", "--snapshot", OLD, "--snapshot", OLD], f"snapshot {OLD} was chosen twice"),
        (["{root}/" + OLD, "{root}/" + OLD], f"two snapshots are called {OLD}"),
        (["a={root}/" + OLD, "b={root}/" + OLD], "is given as snapshot a and as snapshot b"),
        (["{root}/" + OLD], "no broker is in two consecutive snapshots"),
        (["{root}/nowhere", "{root}/" + OLD], "nowhere"),
        (["{root}/" + OLD + "/b1/meta.properties"], "is one snapshot, not a folder of snapshots"),
        (["{root}", "--topic", "x*"], "nothing matches --topic x*"),
        (["{root}", "--broker", "9"], "no broker matches"),
        (["{root}", "--output", "{root}/out.json"], "out.json"),
        (["{root}", "--spark-master", "local[1]"], "--engine spark"),
    ],
)
def test_invalid_arguments_are_refused(run: Run, snapshots: Snapshots, arguments: list[str], error: str) -> None:
    status, out, err = run(*(argument.format(root=snapshots.root) for argument in arguments))
    assert (status, out, error in err) == (2, "", True)


def test_unrelated_files_among_snapshots_are_skipped(run: Run, snapshots: Snapshots) -> None:
    expected = run(*sorted(snapshots.root.iterdir()), "--format", "json")
    snapshots.root.joinpath("README").write_text("copies")
    snapshots.root.joinpath("truth.json").write_text("{}")
    status, out, err = run(*sorted(snapshots.root.iterdir()), "--format", "json")
    assert (status, out) == expected[:2]
    assert f"skipped, without Kafka files: {snapshots.root}/README, {snapshots.root}/truth.json\n" in err
    assert run(snapshots.root / "README", snapshots.root / "truth.json")[0] == 2


def test_unread_links_and_archives_are_reported(run: Run, snapshots: Snapshots, tmp_path: Path) -> None:
    snapshots.root.joinpath("latest\x1b[31m").symlink_to(snapshots.root / NEW)
    snapshots.root.joinpath("gone").symlink_to(tmp_path / "nowhere")
    snapshots.root.joinpath("2026-11-19.tar.bz2").write_bytes(b"BZh")
    snapshots.root.joinpath("README").write_text("copies")
    status, out, err = run(snapshots.root, "--format", "json")
    assert status == 0
    assert list(json.loads(out)["notes"]) == [
        f"links in {snapshots.root} are not followed, give their targets as paths: gone, latest\x1b[31m",
        f"archives in {snapshots.root} of unsupported kinds, unpack them first: 2026-11-19.tar.bz2",
    ]
    notes = [line for line in err.splitlines() if line.startswith("note: ")]
    assert ["gone, latest" in notes[0], notes[1].endswith("unpack them first: 2026-11-19.tar.bz2")] == [True, True]
    assert "\x1b" not in err
    assert json.loads(run(snapshots.root, "--snapshot", OLD, "--snapshot", NEW, "--format", "json")[1])["notes"] == []
    status, _, err = run(snapshots.root, "--snapshot", "latest", "--snapshot", NEW)
    assert (status, "links in" in err) == (2, True)


def test_snapshots_of_different_clusters_and_empty_snapshots_are_refused(run: Run, snapshots: Snapshots) -> None:
    for path in (snapshots.root / NEW).glob("*/meta.properties"):
        path.write_text(path.read_text().replace("cluster.id=", "cluster.id=A")[:-2] + "\n")
    status, _, err = run(snapshots.root)
    assert (status, f"snapshots {OLD} and {NEW} belong to different clusters" in err) == (2, True)
    (snapshots.root / "2026-11-22").mkdir()
    status, _, err = run(snapshots.root)
    assert (status, "there is no Kafka log in" in err) == (2, True)


def test_the_python_result_gives_tables_and_a_page(snapshots: Snapshots) -> None:
    result = kf.scan_snapshots({"a": str(snapshots.root / OLD), "b": [str(snapshots.root / NEW)]})
    assert repr(result) == "<SnapshotsResult warning: 2 snapshots, 3 changes, 1 findings between them>"
    assert result.to_arrow().schema.equals(CHANGES_FACT.schema)
    assert tuple(name for name in CHANGES_FACT.schema.names if name != "node_id") == CHANGE_COLUMNS
    assert result.to_arrow().column("kind").to_pylist() == ["appended", "truncated", "unchanged"]
    assert result.to_pandas()["held_by"].map(list).tolist() == [[], ["1", "3"], []]
    validate("changes", json.loads(result.to_json()))
    page = result._repr_html_() or ""
    assert "COMMITTED_TRUNCATED_SINCE" in page
    assert len(page) < 100_000
    with pytest.raises(UsageError, match="there is no fact"):
        result.facts("batch")


def test_facts_have_a_column_with_their_snapshot(snapshots: Snapshots) -> None:
    result = kf.scan_snapshots([f"a={snapshots.root / OLD}", f"b={snapshots.root / NEW}"], order=["b", "a"])
    assert list(result.snapshots) == ["b", "a"]
    for name, fact in FACTS.items():
        table = result.facts(name)
        assert table.schema.names == ["snapshot", *fact.schema.names]
        parts = [scan.facts(name).num_rows for scan in result.snapshots.values()]
        assert table.num_rows == sum(parts) + (len(result.findings) if name == "findings" else 0)
    replicas = result.facts("replicas").to_pylist()
    log_ends = [(replica["snapshot"], replica["log_end_offset"]) for replica in replicas if replica["broker"] == "1"]
    assert log_ends == [("b", LOG_END + 6), ("a", LOG_END)]


# Incidents: findings between two snapshots, grouped by cause.


@pytest.fixture
def emptied_logs(tmp_path: Path) -> Path:
    """Two snapshots; in the newer one, logs are empty: of three partitions on every broker, of three others on one broker."""
    for name in (OLD, NEW):
        shutil.copytree(AFTER, tmp_path / name)
    on_every_broker = dict.fromkeys(("append-time-0", "codec-gzip-0", "codec-lz4-0"), (1, 2, 3))
    for directory, brokers in (on_every_broker | {"audit-0": (2,), "codec-snappy-0": (1,), "codec-zstd-0": (1,)}).items():
        for broker in brokers:
            empty_log(tmp_path / NEW / f"broker-{broker}" / directory)
    return tmp_path


def empty_log(directory: Path) -> None:
    for path in directory.iterdir():
        if path.suffix == ".log":
            path.write_bytes(b"")
        elif path.name != "partition.metadata":
            path.unlink()


def test_incidents_are_sorted_by_loss_and_contain_every_finding_once(run: Run, emptied_logs: Path) -> None:
    document = json.loads(run(emptied_logs, "--format", "json")[1])
    validate("changes", document)
    names = ("severity", "brokers", "partitions_count", "lost_at_least", "lost_at_most")
    incidents = [tuple(incident[name] for name in names) for incident in document["incidents"]]
    assert incidents == [("critical", [1, 2, 3], 3, 260, 260), ("critical", [2], 1, 70, 370), ("warning", [1], 2, 0, 240)]
    assert {incident["cause"] for incident in document["incidents"]} == {"lost_since"}
    numbers = [number for incident in document["incidents"] for number in incident["findings"]]
    assert sorted(numbers) == list(range(len(document["findings"])))
    assert [partition["held_by"] for partition in document["incidents"][2]["partitions"]] == [[2, 3], [2, 3]]
