"""Topics with segments in remote storage (KIP-405): output of every command, and logs of a salvage."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kafka_forensics.model.files import ProducerEntry
from kafka_forensics.parsers.checkpoints import parse_leader_epochs
from kafka_forensics.parsers.indexes import parse_producer_snapshot
from kafka_forensics.writers.files import write_producer_snapshot
from tests.cli.runs import Run
from tests.support.brokers import DIRECTORY, OFFSETS_ID_TEXT, TOPIC_ID, put_consumer_offsets, put_replica, put_topic_id
from tests.support.controllers import CONTROLLER, START_MS, ControllerLog, partition, partition_change, setting, topic
from tests.support.groups import commit_key, commit_value, coordinator_batches
from tests.support.memory import MemoryFile
from tests.support.remote_log import COPY_FINISHED, DELETE_STARTED, copy_started, put_remote_log, segment_update
from tests.support.segments import flip_bit, log, segment_file

pytestmark = pytest.mark.usefixtures("wide")
OLD_EPOCHS, NEW_EPOCHS = ((0, 0),), ((0, 0), (2, 20))
LOST = (20, 30)
"""Broker 1 committed these offsets and copied them to remote storage; broker 2, elected uncleanly, wrote others from 20 on."""
SEGMENTS = {1: (0, 19, ((0, 0),)), 2: (20, 29, ((0, 20),)), 3: (20, 23, ((2, 20),))}
WITNESSES = ("settings", "events", "files")
"""Proof that the topic is tiered: settings in the controllers' log, `__remote_log_metadata`, or only files of the replicas."""
PRODUCER = ProducerEntry(7, 0, 5, 19, 0, 7, -1, -1)


def put_tiered(
    folder: Path, replicas: dict[int, tuple[int, int, tuple[tuple[int, int], ...]]], witness: str, log_start: int | None = 0
) -> list[str]:
    """Write brokers with (first local offset, log end, epochs), and return the paths of all."""
    for broker, (start, end, epochs) in replicas.items():
        batches = log((end - start) // 2, start=start, epoch=epochs[-1][0])
        options: dict[str, Any] = {"log_start": log_start, "topic_id": TOPIC_ID, "epochs": epochs, "clean": True}
        path = put_replica(folder, broker, {start: batches}, partition=DIRECTORY, high_watermark=end, **options)
        (path / DIRECTORY / segment_file(start, "snapshot")).write_bytes(write_producer_snapshot([PRODUCER]))
        if witness == "events":
            started = [
                copy_started(number, first, last, epochs=epochs, topic_id=TOPIC_ID, broker_id=1 if number < 3 else 2)
                for number, (first, last, epochs) in SEGMENTS.items()
            ]
            log_path = put_remote_log(
                path, *started, *(segment_update(number, COPY_FINISHED, topic_id=TOPIC_ID) for number in SEGMENTS)
            )
            put_topic_id(log_path.parent, OFFSETS_ID_TEXT)
    if witness == "settings":
        created = topic(), setting("remote.storage.enable", "true"), partition([1], 1, replicas=list(replicas))
        elected = partition_change(leader=-1), partition_change(leader=2, isr=[2], leader_recovery_state=1)
        ControllerLog().lead([CONTROLLER]).append(*created, *elected).put(folder / "controller")
    return sorted(map(str, folder.iterdir()))


def forked(folder: Path, witness: str) -> list[str]:
    """The state after the unclean election: broker 1's local log is empty."""
    return put_tiered(folder, {1: (30, 30, OLD_EPOCHS), 2: (24, 28, NEW_EPOCHS)}, witness)


def healthy(folder: Path, witness: str, log_start: int | None = 0) -> list[str]:
    return put_tiered(folder, {1: (26, 28, NEW_EPOCHS), 2: (24, 28, NEW_EPOCHS)}, witness, log_start)


def answer(run: Run, *arguments: str) -> Any:
    return json.loads(run(*arguments, "--format", "json")[1])


def losses(document: Any) -> list[Any]:
    names = ("offset_start", "offset_end", "severity")
    rows = [row for row in document["findings"] if row["kind"] == "UNCLEAN_LOSS"]
    return [
        [*(row[name] for name in names), row["evidence"]["held_by"], row["evidence"].get("remote_segments_count")] for row in rows
    ]


@pytest.mark.parametrize("witness", WITNESSES)
def test_records_that_only_remote_segments_hold_are_lost(run: Run, tmp_path: Path, witness: str) -> None:
    paths = forked(tmp_path, witness)
    document = answer(run, "scan", *paths)
    assert losses(document) == [[*LOST, "critical", [], 1 if witness == "events" else None]]
    row = next(row for row in document["partitions"] if row["topic"] == "t")
    assert [
        row["is_tiered"],
        *([replica["log_start_offset"], replica["local_log_start_offset"]] for replica in row["replicas"]),
    ] == [
        True,
        [0, 30],
        [0, 24],
    ]
    assert "TIERED_TOPICS" in {finding["kind"] for finding in document["findings"]}
    text = run("scan", *paths, "--format", "text")[1]
    assert "survive only in" in text
    assert [row["records_lost_at_most"] for row in document["incidents"] if row["severity"] == "critical"] == [None]
    assert "empty" not in text


@pytest.mark.parametrize("keep", [(), ("--keep", "1"), ("--keep", "2")])
def test_remote_segments_alone_prove_a_loss(run: Run, tmp_path: Path, keep: tuple[str, ...]) -> None:
    paths = healthy(tmp_path, "events")
    assert losses(answer(run, "scan", *paths)) == [[*LOST, "critical", [], 1]]
    run("recover", *paths, *keep, "--output", str(tmp_path / "out"))
    report = json.loads((tmp_path / "out/report.json").read_text())
    (partition_report,) = [row for row in report["partitions"] if row["topic"] == "t"]
    assert (partition_report["unreadable"]["in_remote_storage"], partition_report["ranges"][0]["held_by"]) == (10, [])


@pytest.mark.parametrize("witness", WITNESSES)
def test_the_cost_of_an_election_includes_remote_segments(run: Run, tmp_path: Path, witness: str) -> None:
    plans = answer(run, "plan", *forked(tmp_path, witness))["partitions"]
    candidates = next(row for row in plans if row["topic"] == "t")["candidates"]
    assert {candidate["broker"]: candidate["committed"] for candidate in candidates} == {1: 8, 2: 10}
    remote_segments = {
        candidate["broker"]: (candidate["remote_segments_unreferenced"], candidate["remote_segments_deleted"])
        for candidate in candidates
    }
    assert remote_segments == ({1: (1, 0), 2: (1, 0)} if witness == "events" else {1: (0, 0), 2: (0, 0)})
    assert all(loss["records"] is None for candidate in candidates for loss in candidate["losses"])


def test_a_leader_without_epochs_deletes_remote_segments(run: Run, tmp_path: Path) -> None:
    paths = forked(tmp_path, "events")
    (tmp_path / "broker-2" / DIRECTORY / "leader-epoch-checkpoint").unlink()
    plans = answer(run, "plan", *paths)["partitions"]
    candidates = next(row for row in plans if row["topic"] == "t")["candidates"]
    assert {candidate["broker"]: candidate["remote_segments_deleted"] for candidate in candidates} == {1: 0, 2: 3}


@pytest.mark.parametrize(
    ("options", "brokers", "copies_logs"), [(("--dead", "1"), "broker 2", False), ((), "brokers 1 and 2", True)]
)
def test_steps_copy_remote_segments_that_an_election_gives_up(
    run: Run, tmp_path: Path, options: tuple[str, ...], brokers: str, *, copies_logs: bool
) -> None:
    """Broker 1 has none of the lost records on disk, so its copy need not be kept; broker 2 has some of them."""
    steps = answer(run, "plan", *forked(tmp_path, "events"), "--topic", "t", *options)["steps"]
    (stop,) = [step["text"] for step in steps if step["kind"] == "stop"]
    copied_first = "; keep copies of the log directories of broker 2: only they hold what is given up"
    assert stop == (
        f"Stop clients and {brokers}{copied_first if copies_logs else ''}. Copy the remote segments of t-0, which this plan gives "
        "up, from the remote store to another place first. If one ran since it was copied, plan again."
    )
    assert "keep" not in {step["kind"] for step in steps}
    (recover,) = [step for step in steps if " recover " in str(step["command"])]
    assert "the remote store as one more PATH" in recover["text"]
    assert recover["command"].endswith(" --plan plan.json --output lost")


@pytest.mark.parametrize("witness", ["events", "settings"])
@pytest.mark.parametrize("selection", [(), ("--topic", "other"), ("--topic", "other*", "--partition", "0")])
def test_no_broker_starts_without_the_directories_of_a_tiered_topic(
    run: Run, tmp_path: Path, witness: str, selection: tuple[str, ...]
) -> None:
    paths = healthy(tmp_path, witness)
    for broker in (1, 2):
        (tmp_path / f"broker-{broker}" / DIRECTORY).rename(tmp_path / f"broker-{broker}" / "other-0")
    document = answer(run, "plan", *paths, *selection)
    (step,) = document["steps"]
    assert (step["kind"], step["brokers"]) == ("salvage", [1, 2])
    assert step["text"].startswith("Start no broker: t-0 has no copy, ")
    assert "go on" not in step["text"]
    assert {row["broker"] for row in document["do_not_start"]} == {1, 2}
    _, out, err = run("plan", *paths, *selection, "--format", "text")
    assert "Start no broker" in out
    assert "start no broker" in err
    assert "nothing is lost" not in out


@pytest.mark.parametrize("witness", ["settings", "files"])
def test_healthy_logs_that_start_in_remote_storage_have_no_findings_above_info(run: Run, tmp_path: Path, witness: str) -> None:
    paths = healthy(tmp_path, witness)
    assert {finding["severity"] for finding in answer(run, "scan", *paths)["findings"]} <= {"info"}
    assert run("compare", *paths, "--topic", "t")[0] == 0
    statuses = {
        row["status"] for row in answer(run, "epochs", *paths, "--topic", "t") if row["checkpoint_start_offset"] is not None
    }
    assert statuses == {"in_remote_storage"}


def test_groups_and_find_mention_offsets_in_remote_storage(run: Run, tmp_path: Path) -> None:
    paths = healthy(tmp_path, "files")
    put_consumer_offsets(tmp_path / "broker-1", coordinator_batches((commit_key("g", "t", 0), commit_value(10))))
    assert "up to 24 from remote storage" in run("groups", *paths, "--format", "text")[1]
    assert "before offset 24 are in remote storage" in run("find", *paths, "--offset", "10")[2]
    assert "remote storage" not in run("find", *paths, "--offset", "27")[2]


@pytest.mark.parametrize(("witness", "log_start"), [("settings", 0), ("files", 0), ("files", None), ("settings", None)])
def test_a_salvage_keeps_log_starts_epochs_and_producers(run: Run, tmp_path: Path, witness: str, log_start: int | None) -> None:
    paths = healthy(tmp_path / "in", witness, log_start)
    damaged = tmp_path / "in/broker-1" / DIRECTORY / segment_file(26)
    damaged.write_bytes(flip_bit(damaged.read_bytes(), 70))
    status, _, text = run("salvage", *paths, "--topic", "t", "--output", str(tmp_path / "out"))
    assert status == 0, text
    for broker in (1, 2):
        (log_dir,) = (tmp_path / f"out/broker-{broker}").iterdir()
        lines = (log_dir / "log-start-offset-checkpoint").read_text().splitlines()[2:]
        assert lines == ([] if log_start is None else ["t 0 0"])
        assert (log_dir / "recovery-point-offset-checkpoint").read_text().splitlines()[2:] == ["t 0 24"]
        epochs = parse_leader_epochs(MemoryFile((log_dir / DIRECTORY / "leader-epoch-checkpoint").read_bytes()))
        assert [(entry.leader_epoch, entry.start_offset) for entry in epochs.entries] == list(NEW_EPOCHS)
        snapshot = (log_dir / DIRECTORY / segment_file(24, "snapshot")).read_bytes()
        assert parse_producer_snapshot(MemoryFile(snapshot), 24).entries == [PRODUCER]


def test_a_salvage_neither_chooses_between_histories_nor_invents_epochs(run: Run, tmp_path: Path) -> None:
    status, out, err = run("salvage", *forked(tmp_path / "in", "files"), "--topic", "t", "--output", str(tmp_path / "out"))
    assert (status, "has other committed records, in remote storage" in out) == (3, True)
    assert err.splitlines()[1].startswith("start no broker before t-0 is salvaged or copied back: Kafka would delete")
    for witness in ("settings", "files"):
        paths = healthy(tmp_path / witness, witness)
        for broker in (1, 2):
            (tmp_path / witness / f"broker-{broker}" / DIRECTORY / "leader-epoch-checkpoint").unlink()
        status, out, _ = run("salvage", *paths, "--topic", "t", "--output", str(tmp_path / f"out-{witness}"))
        assert (status, "lacks the epochs of its remote segments" in out) == (3, True)


def test_plan_counts_records_that_only_remote_segments_prove(run: Run, tmp_path: Path) -> None:
    """The copy of the old leader is missing, and the other replica ends before the segments that this leader copied."""
    paths = put_tiered(tmp_path, {2: (14, 20, OLD_EPOCHS)}, "events")
    plans = answer(run, "plan", *paths)["partitions"]
    (candidate,) = next(row for row in plans if row["topic"] == "t")["candidates"]
    assert [(loss["offset_start"], loss["offset_end"], loss["held_by"]) for loss in candidate["losses"]] == [(*LOST, [])]
    assert candidate["losses"][0]["witness"]["kind"] == "remote_segment"
    assert "in remote storage, in no given log" in run("plan", *paths, "--topic", "t", "--partition", "0", "--format", "text")[1]


def is_tiered(run: Run, paths: list[str]) -> bool:
    return any(row["is_tiered"] for row in answer(run, "scan", *paths)["partitions"] if row["topic"] == "t")


def test_one_replica_is_enough_to_recognise_a_tiered_topic(run: Run, tmp_path: Path) -> None:
    """A running broker may not have written its log start yet."""
    paths = forked(tmp_path, "files")
    (tmp_path / "broker-1/log-start-offset-checkpoint").unlink()
    assert losses(answer(run, "scan", *paths)) == [[*LOST, "critical", [], None]]


def test_remote_log_metadata_outweighs_files_of_replicas(run: Run, tmp_path: Path) -> None:
    paths = healthy(tmp_path, "files")
    assert is_tiered(run, paths)
    log_path = put_remote_log(tmp_path / "broker-1", copy_started(1, 0, 9, topic="other"))
    put_topic_id(log_path.parent, OFFSETS_ID_TEXT)
    assert not is_tiered(run, paths)


def test_a_formerly_compacted_topic_can_be_tiered(run: Run, tmp_path: Path) -> None:
    paths = put_tiered(tmp_path, {1: (26, 28, OLD_EPOCHS)}, "files")
    compacted, deleted = (setting("cleanup.policy", policy) for policy in ("compact", "delete"))
    records = topic(), compacted, deleted, setting("remote.storage.enable", "true"), partition([1], 1)
    ControllerLog().lead([CONTROLLER]).append(*records).put(tmp_path / "controller")
    assert is_tiered(run, [*paths, str(tmp_path / "controller")])


@pytest.mark.parametrize("deleted", [False, True])
def test_epochs_of_records_deleted_by_retention_are_not_reported_missing(run: Run, tmp_path: Path, deleted: bool) -> None:
    """The first epoch entry moves with the log start, whose line in the checkpoint follows a minute later."""
    paths = put_tiered(tmp_path, {1: (26, 28, NEW_EPOCHS[1:]), 2: (24, 28, NEW_EPOCHS[1:])}, "events")
    if deleted:
        started = [
            copy_started(number, first, last, epochs=epochs, topic_id=TOPIC_ID)
            for number, (first, last, epochs) in SEGMENTS.items()
        ]
        finished = [segment_update(number, COPY_FINISHED, topic_id=TOPIC_ID) for number in (1, 3)]
        for path in map(Path, paths):
            put_topic_id(
                put_remote_log(path, *started, *finished, segment_update(1, DELETE_STARTED, topic_id=TOPIC_ID)).parent,
                OFFSETS_ID_TEXT,
            )
    findings = [row for row in answer(run, "scan", *paths)["findings"] if row["topic"] == "t"]
    severities = [row["severity"] for row in findings if row["kind"] == "EPOCH_CACHE_MISMATCH"]
    assert severities == ([] if deleted else ["error", "error"])


def test_remote_segments_that_a_leader_deletes_are_never_called_harmless(run: Run, tmp_path: Path) -> None:
    """The topic started again in epoch 4, or log starts were rewritten to those of the local segments."""
    restarted = put_tiered(tmp_path / "begun", {1: (0, 20, ((4, 0),)), 2: (0, 20, ((4, 0),))}, "events")
    raised = put_tiered(tmp_path / "raised", {1: (24, 28, ((2, 24),)), 2: (24, 28, ((2, 24),))}, "events", 24)
    for paths in (restarted, raised):
        _, out, err = run("plan", *paths, "--topic", "t", "--format", "text")
        assert "it deletes 3 remote segments" in out
        assert "a leader would delete remote segments" in out + err
        assert "nothing is lost" not in out
    text = run("scan", *restarted, "--topic", "t", "--format", "text")[1]
    assert "and which it deletes" in text
    status, out, _ = run("salvage", *restarted, "--topic", "t", "--output", str(tmp_path / "out"))
    assert (status, "its leader would delete 3 remote segments" in out) == (3, True)


def test_logs_in_remote_storage_without_epochs_are_an_error(run: Run, tmp_path: Path) -> None:
    paths = healthy(tmp_path, "settings")
    for broker in (1, 2):
        (tmp_path / f"broker-{broker}" / DIRECTORY / "leader-epoch-checkpoint").unlink()
    findings = answer(run, "scan", *paths)["findings"]
    assert [row["severity"] for row in findings if row["kind"] == "EPOCH_CACHE_MISMATCH"] == ["error"] * 2


def test_an_isr_member_that_lacks_records_in_remote_storage_is_reported(run: Run, tmp_path: Path) -> None:
    paths = put_tiered(tmp_path, {1: (30, 30, OLD_EPOCHS), 2: (14, 20, OLD_EPOCHS)}, "files")
    records = topic(), setting("remote.storage.enable", "true"), partition([1, 2], 1)
    ControllerLog(start_ms=START_MS).lead([CONTROLLER]).append(*records).put(tmp_path / "controller")
    findings = answer(run, "scan", *paths, str(tmp_path / "controller"))["findings"]
    missing = [row for row in findings if row["kind"] == "ISR_MEMBER_MISSING_COMMITTED"]
    assert [(row["broker"], row["offset_start"], row["offset_end"]) for row in missing] == [(2, *LOST)]


def test_a_salvage_that_ends_before_remote_segments_is_refused(run: Run, tmp_path: Path) -> None:
    paths = put_tiered(tmp_path / "in", {2: (14, 20, OLD_EPOCHS)}, "events")
    status, out, _ = run("salvage", *paths, "--topic", "t", "--output", str(tmp_path / "out"))
    assert (status, "remote segments have offsets 20 to 29 of it" in out) == (3, True)


@pytest.mark.parametrize("has_broker", [True, False], ids=["its broker given", "its broker not given"])
def test_a_partition_that_only_the_remote_log_names_is_refused(run: Run, tmp_path: Path, has_broker: bool) -> None:
    """It has no directory, checkpoint line or controllers' log, and a start of its broker would delete its remote segments."""
    for path in map(Path, healthy(tmp_path / "copies", "events")):
        shutil.rmtree(path / DIRECTORY)
        (path / "replication-offset-checkpoint").unlink()
        if not has_broker:
            meta = path / "meta.properties"
            meta.write_text(meta.read_text().replace("node.id=", "node.id=7"))
    code, out, err = run("salvage", str(tmp_path / "copies"), "--output", str(tmp_path / "out"))
    warning = "start no broker before t-0 is salvaged or copied back: Kafka would delete what it has in remote storage"
    assert (code, warning in err, "copied its segments to remote storage" in out) == (
        3 if has_broker else 0,
        has_broker,
        has_broker,
    )
