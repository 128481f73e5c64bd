"""What the commands read from a remote store among the paths: one log a partition, its remote part, then its local part."""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow.parquet as pq
import pytest

from kafka_forensics import read_batches, read_records
from kafka_forensics.evidence import inputs
from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.export.facts.facts import scan_for_facts
from kafka_forensics.export.facts.read import read_task
from kafka_forensics.export.facts.rows import FactQuery
from kafka_forensics.export.facts.splits import plan_tasks
from tests.cli.runs import Run, rows
from tests.export.exports import read_back
from tests.support.brokers import DIRECTORY, OFFSETS_ID_TEXT, TOPIC_ID, put_consumer_offsets, put_replica, put_topic_id
from tests.support.groups import commit_key, commit_value, coordinator_batches
from tests.support.places import SAMPLES
from tests.support.remote_log import (
    COPY_FINISHED,
    LAYOUTS,
    copy_started,
    put_cluster,
    put_object,
    put_remote_log,
    segment_id,
    segment_update,
)
from tests.support.segments import flip_bit, log, marker, producer_batch

pytestmark = pytest.mark.usefixtures("wide")
EPOCHS = ((0, 0),)


def found(run: Run, *arguments: str) -> list[tuple[Any, int, str]]:
    return [(row["broker"], row["offset"], row["file"].rpartition("/")[2][:20]) for row in rows(run, "find", *arguments)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("events", [True, False])
def test_find_reads_both_parts(run: Run, tmp_path: Path, layout: str, *, events: bool) -> None:
    broker, store = put_cluster(tmp_path, events=events, layout=layout)
    assert found(run, broker, store, "--offset", "9..20", "--topic", "t") == [
        *((1, 20, f"{20:020d}"),),
        *(("remote", offset, f"{0 if offset < 10 else 10:020d}") for offset in range(9, 20)),
    ]
    assert found(run, store, "--offset", "19..24") == [("remote", 19, f"{10:020d}")]
    assert found(run, broker, store, "--offset", "0..", "--broker", "1", "--topic", "t")[0][:2] == (1, 20)


def test_find_says_whether_the_remote_part_was_searched(run: Run, tmp_path: Path) -> None:
    broker, store = put_cluster(tmp_path)
    assert "are in remote storage, which was not searched" in run("find", broker, "--offset", "5")[2]
    assert "which was not searched" in run("find", broker, store, "--offset", "5", "--broker", "1", "--topic", "t")[2]
    assert "remote storage" not in run("find", broker, store, "--offset", "5")[2]
    assert "nothing matches" in run("find", store, "--offset", "5", "--topic", "other")[2]


@pytest.mark.parametrize("events", [True, False])
def test_find_says_which_offsets_no_object_has(run: Run, tmp_path: Path, *, events: bool) -> None:
    broker, store = put_cluster(tmp_path, events=events)
    next(Path(store).glob(f"*/{0:020d}-*.log")).unlink()
    for offset, text in (("5", "offset 5 is"), ("5..11", "offsets 5 to 9 are"), ("4..5", "offsets 4 to 5 are")):
        assert f"t-0: {text} in no object of the store" in run("find", broker, store, "--offset", offset)[2]
    assert "no object" not in run("find", broker, store, "--offset", "10..")[2]


def test_unfinished_copies_are_not_searched(run: Run, tmp_path: Path) -> None:
    broker, store = put_cluster(tmp_path)
    put_object(tmp_path / "store", 5, 20, log(5, start=20), topic_id=TOPIC_ID, partition=DIRECTORY)
    assert [row[:2] for row in found(run, broker, store, "--offset", "20")] == [(1, 20)]
    assert [row[:2] for row in found(run, store, "--offset", "20")] == [("remote", 20)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_dump_shows_records_of_a_store(run: Run, tmp_path: Path, layout: str) -> None:
    _, store = put_cluster(tmp_path, layout=layout)
    shown = rows(run, "dump", store, "--records", "--topic", "t", "--offset", "8..11")
    assert [row["offset"] for row in shown] == [8, 9, 10, 11]
    text = run("dump", store, "--records", "--offset", "2..3", "--format", "text")[1]
    assert (text.count(".log"), "(nothing)" in text) == (1, False)
    text = run("dump", store, "--records", "--offset", "12..13", "--format", "text")[1]
    assert (text.count(".log"), "(nothing)" in text) == (1, False)
    assert run("dump", store, "--records", "--offset", "50..59", "--format", "text")[1] == "(nothing)\n"
    batches = rows(run, "dump", store)
    assert [row["base_offset"] for row in batches] == [*range(0, 20, 2)]
    run_of_other = run("dump", store, "--topic", "other")
    assert run_of_other[0] == 2


def test_damage_in_an_object_is_read_over(run: Run, tmp_path: Path) -> None:
    broker, store = put_cluster(tmp_path)
    path = next((tmp_path / "store").glob(f"*/{0:020d}*.log"))
    data = path.read_bytes()
    path.write_bytes(flip_bit(data, 3 * (len(data) // 5) - 3))
    shown = rows(run, "find", broker, store, "--offset", "0..9", "--topic", "t")
    assert [row["offset"] for row in shown if not row["is_valid"]] == [4, 5]
    assert len(shown) == 10


@pytest.mark.parametrize("layout", LAYOUTS)
def test_export_has_facts_of_both_parts(run: Run, tmp_path: Path, layout: str) -> None:
    broker, store = put_cluster(tmp_path, layout=layout)
    facts = ("--fact", "batches", "--fact", "records")
    status, _, errors = run("export", broker, store, "--topic", "t", *facts, "--output", tmp_path / "out")
    assert status == 0
    assert "remote storage" not in errors
    for fact, count in (("batches", {"1": 5, "remote": 10}), ("records", {"1": 10, "remote": 20})):
        found = read_back(tmp_path / "out", fact).to_pylist()
        assert Counter(row["broker"] for row in found) == count
        remote = [row for row in found if row["broker"] == "remote"]
        assert {row["log_dir"] for row in remote} == {store}
        assert all((Path(row["log_dir"]) / row["file"]).is_file() for row in remote)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tasks_of_facts_have_both_parts(tmp_path: Path, layout: str) -> None:
    paths = list(put_cluster(tmp_path, layout=layout))
    query = FactQuery("records", ("broker", "offset"), topics=("t",), brokers=("remote",))
    read = [row for task in plan_tasks(paths, query) for batch in read_task(task, query) for row in batch.to_pylist()]
    assert [(row["broker"], row["offset"]) for row in read] == [("remote", offset) for offset in range(20)]


def test_tasks_of_facts_list_everything_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Mock(side_effect=inputs.open_paths)
    monkeypatch.setattr(inputs, "open_paths", opened)
    assert plan_tasks(list(put_cluster(tmp_path)), FactQuery("records", ("offset",)))
    assert opened.call_count == 1


def test_parts_of_transactions_have_the_weights_of_their_logs(tmp_path: Path) -> None:
    paths = list(put_transactions(tmp_path))
    reader = scan_for_facts(gather(paths, ScanOptions()), ScanOptions(), lambda _: ("", None))
    for fact in ("records", "transactions"):
        logs = [(plan.context.topic, str(plan.context.broker)) for plan in reader.logs_of(fact)]
        assert logs == [(keys.topic, keys.broker) for keys, _ in reader.parts(fact)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_objects_are_read_by_themselves(tmp_path: Path, layout: str) -> None:
    path = put_object(tmp_path / "store", 0, 10, log(5, start=10), layout=layout)
    assert [offset for batch in read_records(str(path)) for offset in batch.column("offset").to_pylist()] == list(range(10, 20))
    assert sum(batch.num_rows for batch in read_batches(str(path))) == 5


def in_transaction(offset: int, epoch: int = 0) -> bytes:
    """Two records of producer 7, which are equal whatever their leader epoch is."""
    return producer_batch(offset, "a", "b", sequence=offset, is_transactional=True, epoch=epoch)


def put_unclean(folder: Path) -> tuple[list[str], str]:
    """Broker 1 committed and copied [20, 30), broker 2 was elected uncleanly and wrote others; returns brokers and store."""
    store, id_of = folder / "remote", {"topic_id": TOPIC_ID}
    lost = [in_transaction(offset) for offset in range(20, 28, 2)] + [marker(28, commit=True)]
    common, new = log(10), log(4, start=20, epoch=2, value=b"other")
    segments = {1: (0, common, ((0, 0),)), 2: (20, lost, ((0, 0),)), 3: (20, new[:2], ((0, 0), (2, 20)))}
    events = []
    for number, (start, batches, epochs) in segments.items():
        put_object(store, number, start, batches, partition=DIRECTORY, epochs=epochs, **id_of)
        end, inside = {1: 19, 2: 28, 3: 23}[number], ((epochs[-1][0], start),)
        events.append(copy_started(number, start, end, epochs=inside, broker_id=1 if number < 3 else 2, **id_of))
        events.append(segment_update(number, COPY_FINISHED, **id_of))
    options: dict[str, Any] = {"log_start": 0, "topic_id": TOPIC_ID, "clean": True, "partition": DIRECTORY}
    put_replica(folder, 1, {29: []}, high_watermark=29, epochs=((0, 0),), **options)
    broker = put_replica(folder, 2, {24: new[2:]}, high_watermark=28, epochs=((0, 0), (2, 20)), **options)
    put_topic_id(put_remote_log(broker, *events).parent, OFFSETS_ID_TEXT)
    return sorted(str(path) for path in folder.iterdir() if path != store), str(store)


def recovered(run: Run, out: Path, *paths: str) -> tuple[list[tuple[int, Any]], dict[str, Any]]:
    run("recover", *paths, "--topic", "t", "--keep", "2", "--output", out)
    lines = map(json.loads, (out / "records.jsonl").read_text().splitlines())
    report = json.loads((out / "report.json").read_text())["partitions"][0]
    return [(line["offset"], line["txn_state"]) for line in lines], report


def test_recover_reads_what_only_remote_segments_hold(run: Run, tmp_path: Path) -> None:
    brokers, store = put_unclean(tmp_path)
    records, without_store = recovered(run, tmp_path / "out1", *brokers)
    assert (records, without_store["unreadable"]["in_remote_storage"]) == ([], 9)
    records, report = recovered(run, tmp_path / "out2", *brokers, store)
    assert records == [(offset, "committed") for offset in range(20, 28)]
    assert report["plan"] == without_store["plan"]
    assert (report["offsets"]["control"], report["offsets"]["unreadable"]) == (1, 0)
    assert report["ranges"][0]["read_from"] == [[20, 29, "remote"]]


def test_recover_needs_no_copy_of_the_losing_broker(run: Run, tmp_path: Path) -> None:
    brokers, store = put_unclean(tmp_path)
    records, _ = recovered(run, tmp_path / "out", brokers[1], store)
    assert [offset for offset, _ in records] == list(range(20, 28))


def test_records_that_the_surviving_log_has_in_remote_storage_are_not_recovered(run: Run, tmp_path: Path) -> None:
    """Their producers sent them again to the new leader."""
    brokers, store = put_unclean(tmp_path)
    again = next(Path(store).glob(f"*/*-{segment_id(3)}.log"))
    again.write_bytes(in_transaction(20, epoch=2) + marker(22, commit=True, epoch=2))
    records, report = recovered(run, tmp_path / "out", *brokers, store)
    assert [offset for offset, _ in records] == list(range(22, 28))
    assert report["offsets"]["surviving"] == 2


def put_transactions(folder: Path) -> tuple[str, str]:
    """Producer 7 commits [0, 2), and aborts [3, 9) across the start of the local log at 5; segments of the store overlap."""
    log_of_7 = [
        in_transaction(0),
        marker(2, commit=True),
        *(in_transaction(offset) for offset in (3, 5, 7)),
        marker(9, commit=False),
    ]
    options: dict[str, Any] = {"log_start": 0, "topic_id": TOPIC_ID, "epochs": EPOCHS, "clean": True}
    broker = put_replica(folder, 1, {5: log_of_7[3:]}, partition=DIRECTORY, high_watermark=10, **options)
    for number, (start, batches) in enumerate({0: log_of_7[:3], 3: log_of_7[2:4], 20: log(1, start=20)}.items()):
        put_object(folder / "store", number, start, batches, topic_id=TOPIC_ID, partition=DIRECTORY)
    return str(broker), str(folder / "store")


def test_a_transaction_that_begins_in_remote_storage_is_one(run: Run, tmp_path: Path) -> None:
    broker, store = put_transactions(tmp_path)

    def transactions(*paths: str) -> list[tuple[Any, ...]]:
        names = ("broker", "state", "first_offset", "last_offset", "marker_offset")
        return [tuple(row[name] for name in names) for row in rows(run, "transactions", *paths, "--topic", "t")]

    assert transactions(broker) == [(1, "aborted", 5, 8, 9)]
    assert transactions(broker, store) == [(1, "committed", 0, 1, 2), (1, "aborted", 3, 8, 9)]
    assert "t-0: 1 committed, 1 aborted, 0 open" in run("transactions", broker, store, "--topic", "t")[2]
    run("export", broker, store, "--topic", "t", "--fact", "transactions", "--output", tmp_path / "out")
    (part,) = (tmp_path / "out").rglob("*transactions*/**/*.parquet")
    exported = pq.read_table(part).to_pylist()
    assert [(row["first_offset"], row["marker_offset"]) for row in exported] == [(0, 2), (3, 9)]


@pytest.mark.parametrize("is_missing", [True, False])
def test_an_object_that_cannot_be_read_hides_no_other_transaction(run: Run, tmp_path: Path, *, is_missing: bool) -> None:
    """Producer 7 ends a transaction in [0, 3), has one in [3, 6), which cannot be read, and two more from 6 on."""
    store, layout = tmp_path / "store", "plain" if is_missing else "chunks"
    logs: dict[int, list[bytes]] = {
        0: [in_transaction(0), marker(2, commit=True), in_transaction(3)],
        5: [marker(5, commit=False), in_transaction(6)],
        8: [in_transaction(8), marker(10, commit=True)],
        11: [in_transaction(11), marker(13, commit=False)],
    }
    options: dict[str, Any] = {"log_start": 0, "topic_id": TOPIC_ID, "epochs": EPOCHS, "clean": True}
    broker = put_replica(tmp_path, 1, {11: logs[11]}, partition=DIRECTORY, high_watermark=14, **options)
    events = []
    for number, (start, end) in enumerate(((0, 4), (5, 7), (8, 10))):
        put_object(store, number, start, logs[start], topic_id=TOPIC_ID, partition=DIRECTORY, layout=layout)
        events += [copy_started(number, start, end, topic_id=TOPIC_ID), segment_update(number, COPY_FINISHED, topic_id=TOPIC_ID)]
    put_topic_id(put_remote_log(broker, *events).parent, OFFSETS_ID_TEXT)
    path = next(store.rglob(f"*{5:020d}-*.log"))
    path.unlink() if is_missing else path.write_bytes(b"")
    status, out, text = run("transactions", broker, store, "--topic", "t", "--format", "jsonl")
    listed = [(row["state"], row["first_offset"], row["marker_offset"]) for row in map(json.loads, out.splitlines())]
    assert listed == [("committed", 0, 2), ("committed", 8, 10), ("aborted", 11, 13)]
    assert (status, f"incomplete: {path}: " in text) == ((0, False) if is_missing else (3, True))
    run("export", broker, store, "--topic", "t", "--fact", "transactions", "--output", tmp_path / "out")
    (part,) = (tmp_path / "out").rglob("*transactions*/**/*.parquet")
    assert [row["marker_offset"] for row in pq.read_table(part).to_pylist()] == [2, 10, 13]


def test_groups_say_whether_remote_storage_covers_a_committed_offset(run: Run, tmp_path: Path) -> None:
    broker, store = put_cluster(tmp_path)
    put_consumer_offsets(Path(broker), coordinator_batches((commit_key("g", "t", 0), commit_value(4))))

    def notes(*paths: str) -> str:
        return " ".join(run("groups", *paths, "--topic", "t", "--format", "text")[1].split())

    assert "up to 20 from remote storage, where they are by __remote_log_metadata" in notes(broker)
    assert notes(broker, store).endswith("up to 20 from remote storage, where they are")
    next(Path(store).glob(f"*/{10:020d}-*.log")).unlink()
    assert "up to 20 from remote storage, where 10 to 19 are missing" in notes(broker, store)
    path = next(Path(store).glob(f"*/{0:020d}-*.log"))
    path.write_bytes(path.read_bytes()[:-1])
    assert "up to 20 from remote storage, where 4 to 19 are missing" in notes(broker, store)
    shutil.rmtree(store)
    (Path(store) / "kafka-tiered-storage" / f"other-0-{TOPIC_ID}").mkdir(parents=True)
    assert "up to 20 from remote storage, where 4 to 19 are missing" in notes(broker, store)


def compared(run: Run, *paths: str) -> tuple[dict[str, Any], str]:
    _, out, text = run("compare", *paths, "--topic", "t", "--format", "json")
    return json.loads(out), text


def test_compare_shows_remote_storage_as_a_column(run: Run, tmp_path: Path) -> None:
    broker, store = put_cluster(tmp_path, local_start=10)
    document, text = compared(run, broker, store)
    assert document["first_difference"] is None
    assert "no difference: 1 replica and remote storage have the same where any two have an offset" in text
    path = next(Path(store).glob(f"*/{10:020d}-*.log"))
    path.write_bytes(b"".join([*log(2, start=10), *log(3, start=14, value=b"other")]))
    document, _ = compared(run, broker, store)
    assert (document["first_difference"], document["verdict"]) == (14, "clean")
    (row,) = [row for row in document["offsets"] if row["offset"] == 14]
    assert [(held["broker"], held["state"], held["value_size"]) for held in row["replicas"]] == [
        *((1, "record", 5),),
        *(("remote", "record", 5),),
    ]
    _, out, _ = run("compare", broker, store, "--topic", "t", "--format", "text")
    assert "first difference at offset 14" in " ".join(out.split())


def test_compare_needs_a_copy_of_a_broker(run: Run, tmp_path: Path) -> None:
    _, store = put_cluster(tmp_path)
    assert run("compare", store, "--topic", "t")[0] == 2


def scanned(run: Run, *paths: str) -> list[tuple[Any, ...]]:
    """Findings above info: kind, broker, offsets and holders."""
    _, out, _ = run("scan", *paths, "--topic", "t", "--format", "json")
    return [
        (row["kind"], row["broker"], row["offset_start"], row["offset_end"], row["evidence"].get("held_by"))
        for row in json.loads(out)["findings"]
        if row["severity"] != "info"
    ]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_deep_scan_reads_objects(run: Run, tmp_path: Path, layout: str) -> None:
    broker, store = put_cluster(tmp_path, local_start=10, layout=layout)
    assert scanned(run, broker, store, "--deep") == []
    batches = log(15)
    damaged = flip_bit(b"".join(batches[5:10]), -3)
    put_object(tmp_path / "store", 1, 10, [damaged], topic_id=TOPIC_ID, partition=DIRECTORY, layout=layout)
    assert scanned(run, broker, store) == []
    assert scanned(run, broker, store, "--deep") == [("BATCH_CRC_MISMATCH", "remote", 18, 20, [1])]
    other = [*batches[5:8], *log(2, start=16, value=b"other")]
    put_object(tmp_path / "store", 1, 10, other, topic_id=TOPIC_ID, partition=DIRECTORY, layout=layout)
    assert scanned(run, broker, store, "--deep") == [("REMOTE_SEGMENT_DIFFERS", "remote", 16, 20, None)]
    assert scanned(run, broker, store, "--deep", "--live") == []


@pytest.mark.parametrize(
    ("field", "value", "found"),
    [("end_offset", 7, 9), ("max_timestamp_ms", 5, 1700000000014), ("start_offset", 2, 0), ("segment_leader_epochs", 1, 0)],
)
def test_objects_that_contradict_their_events(run: Run, tmp_path: Path, field: str, value: int, found: int) -> None:
    broker, store = put_cluster(tmp_path)
    event: dict[str, Any] = {"max_timestamp_ms": 2**42, "segment_size_in_bytes": len(b"".join(log(5)))}
    start, end = value if field == "start_offset" else 0, value if field == "end_offset" else 9
    epochs = ((value, start),) if field == "segment_leader_epochs" else ((0, start),)
    event |= {field: value} if field == "max_timestamp_ms" else {}
    started = copy_started(0, start, end, topic_id=TOPIC_ID, epochs=epochs, **event)
    put_topic_id(put_remote_log(Path(broker), started, segment_update(0, COPY_FINISHED, topic_id=TOPIC_ID)).parent, OFFSETS_ID_TEXT)
    _, out, _ = run("scan", broker, store, "--topic", "t", "--deep", "--format", "json")
    (row,) = [row["evidence"] for row in json.loads(out)["findings"] if row["kind"] == "REMOTE_SEGMENT_DIFFERS"]
    assert (row["found"], row["listed"]) == (found, value)
    found_alone = scanned(run, broker, store, "--deep", "--broker", "remote")
    assert {found_row[0] for found_row in found_alone} == {"REMOTE_SEGMENT_DIFFERS", "REMOTE_OBJECT_UNREFERENCED"}
    assert scanned(run, broker, store, "--deep", "--broker", "remote", "--live") == []


def test_a_deep_scan_reads_a_store_alone(run: Run, tmp_path: Path) -> None:
    _, store = put_cluster(tmp_path)
    assert scanned(run, store, "--deep") == []
    path = next(Path(store).glob(f"*/{0:020d}*.log"))
    path.write_bytes(flip_bit(path.read_bytes(), -3))
    assert scanned(run, store, "--deep") == [("BATCH_CRC_MISMATCH", "remote", 8, 10, [])]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_object_given_by_itself_is_read_as_the_broker_wrote_it(run: Run, tmp_path: Path, layout: str) -> None:
    path = put_object(tmp_path / "store", 1, 10, log(5, start=10), topic_id=TOPIC_ID, partition=DIRECTORY, layout=layout)
    for deep in ((), ("--deep",)):
        document = json.loads(run("scan", str(path), *deep, "--format", "json")[1])
        assert [row for row in document["findings"] if row["severity"] != "info"] == []
        (partition,) = document["partitions"]
        (replica,) = partition["replicas"]
        assert (partition["topic"], replica["broker"], replica["log_end_offset"]) == ("t", "remote", 20)
    assert [row["base_offset"] for row in rows(run, "dump", str(path))] == [*range(10, 20, 2)]
    shown = rows(run, "dump", str(path), "--records", "--topic", "t", "--offset", "12..13")
    assert [row["offset"] for row in shown] == [12, 13]
    assert run("dump", str(path), "--topic", "other")[0] == 2
    assert found(run, str(path), "--offset", "12") == [("remote", 12, f"{10:020d}")]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_damage_of_an_object_given_by_itself_is_placed_in_it(run: Run, tmp_path: Path, layout: str) -> None:
    damaged = [flip_bit(b"".join(log(5, start=10)), -3)]
    path = put_object(tmp_path / "store", 1, 10, damaged, topic_id=TOPIC_ID, partition=DIRECTORY, layout=layout)
    document = json.loads(run("scan", str(path), "--format", "json")[1])
    (row,) = [row for row in document["findings"] if row["severity"] != "info"]
    file = str(path.relative_to(tmp_path / "store"))
    assert (row["kind"], row["broker"], row["file"]) == ("BATCH_CRC_MISMATCH", "remote", file)


def test_an_object_without_its_manifest_is_named_as_unread(run: Run, tmp_path: Path) -> None:
    path = put_object(tmp_path / "store", 1, 10, log(5, start=10), topic_id=TOPIC_ID, partition=DIRECTORY, layout="chunks")
    path.with_suffix(".rsm-manifest").unlink()
    document = json.loads(run("scan", str(path), "--format", "json")[1])
    assert ["rsm-manifest: no such file" in row["reason"] for row in document["incomplete"]] == [True]
    assert [row["kind"] for row in document["findings"] if row["kind"] == "FRAMING_LOST"] == []
    assert "rsm-manifest" in run("dump", str(path))[2]


def test_a_store_alone_does_not_make_a_scan_clean(run: Run, tmp_path: Path) -> None:
    broker, store = put_cluster(tmp_path)
    hint = "give the brokers' log directories to know what is missing"
    for options, extent in (((), "listed"), (("--deep",), "read")):
        _, out, text = run("scan", store, *options, "--format", "json")
        assert json.loads(out)["summary"]["verdict"] == "unknown"
        assert f"no log directories: only the remote store was {extent} (1 partition, 2 segments); {hint}" in text
    _, _, text = run("scan", broker, store, "--broker", "remote", "--deep")
    assert "no replica was read: only the remote store" in text


def test_what_was_read_of_remote_storage(run: Run, tmp_path: Path) -> None:
    broker, store = put_cluster(tmp_path)
    put_consumer_offsets(Path(broker), coordinator_batches((commit_key("g", "t", 0), commit_value(4))))
    listed, not_read = "remote objects of t were listed, not read: scan --deep reads them", "not read: what tiered topics have"
    other = str(put_object(tmp_path / "other", 7, 0, log(5)).parents[1])

    def said(command: str, *paths: str) -> list[bool]:
        _, out, text = run(command, broker, *paths, "--topic", "t", "--format", "json")
        return [listed in text, not_read in text, "the objects of the given store were listed" in out]

    assert said("scan", store) == [True, False, True]
    assert said("scan", store, "--deep") == [False, False, True]
    assert said("scan", other) == said("scan", other, "--deep") == [False, True, False]
    assert said("groups", store)[:2] == [True, False]
    assert said("transactions", store)[:2] == [False, False]
    for path in Path(store).glob("*/*"):
        path.unlink()
    assert said("scan", store, "--deep")[:2] == [False, True]


def test_a_folder_called_remote_is_a_broker(run: Run, tmp_path: Path) -> None:
    broker, store = put_cluster(tmp_path)
    folder = (tmp_path / "remote").absolute()
    shutil.move(broker, folder)
    (folder / "meta.properties").unlink(missing_ok=True)
    assert found(run, str(folder), store, "--offset", "19..20", "--topic", "t") == [
        ("remote", 19, f"{10:020d}"),
        ("remote/", 20, f"{20:020d}"),
    ]
    run("export", folder, store, "--topic", "t", "--fact", "batches", "--output", tmp_path / "out")
    assert len(set(read_back(tmp_path / "out", "batches")["broker"].to_pylist())) == 2


def test_an_export_of_a_store_without_a_log_is_incomplete(run: Run, tmp_path: Path) -> None:
    status, _, text = run(
        "export", SAMPLES / "tiered", "--topic", "measurements", "--fact", "records", "--output", tmp_path / "out"
    )
    assert status == 3
    assert "offsets 100 to 149 are in remote segments whose log is missing or cut" in text
    assert list(tmp_path.rglob("_INCOMPLETE"))
