"""What is not there, on disk: wiped and absent replicas, older backups, heads that are gone, old controllers, partial copies."""

import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from kafka_forensics.cli.outputs.plan import summary_line
from kafka_forensics.cli.outputs.plan_words import step_lines
from kafka_forensics.engine.local import scan
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.ledger import Extent
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.questions.plan import Planned, PlanOptions, make_plans
from kafka_forensics.replication.planner.plans import costs_of
from kafka_forensics.storage.local import LocalSource
from kafka_forensics.wording import message
from kafka_forensics.writers.files import write_leader_epochs, write_offset_checkpoint
from tests.support.controller_log import (
    CONTROLLER,
    ControllerLog,
    change,
    controlled_by,
    in_sync,
    partition,
    record,
    setting,
    topic,
)
from tests.support.faults import (
    BASE_TIMESTAMP,
    HEALTHY,
    HIGH_WATERMARK,
    LOG_END,
    TOPIC_ID,
    Brokers,
    healthy,
    histories,
    write_checkpoint,
)
from tests.support.faults_verdict import offsets, only, said
from tests.support.replicas import put_replica
from tests.support.segments import batch
from tests.support.snapshot_trees import cut

OTHER_ID = "AAAAAAAAAAAAAAAAAAAABQ"
YOUNG = BASE_TIMESTAMP + 120_000
"""Two minutes behind the first record: where the controllers' log ends."""


def paths(brokers: Brokers) -> list[str]:
    return [str(path) for path in sorted(brokers.root.iterdir())]


def told(brokers: Brokers, **asked: Any) -> list[tuple[str, str, int | str | None]]:
    """Every finding above `info`."""
    return [row for row in said(scan(paths(brokers), ScanOptions(**asked))) if row[1] != "info"]


def planned(brokers: Brokers) -> Planned:
    (found,) = make_plans(paths(brokers), ScanOptions(), PlanOptions()).planned
    return found


def wipe(brokers: Brokers, broker: int) -> None:
    """The broker's log directory holds `meta.properties` alone."""
    for path in brokers.log_dir(broker).iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != "meta.properties":
            path.unlink()


# 1. an empty or wiped replica that may lead


def test_a_wiped_sole_member_of_the_isr_is_critical_and_planned(tmp_path: Path) -> None:
    brokers = controlled_by(healthy(tmp_path), *in_sync([3]))
    wipe(brokers, 3)
    result = scan(paths(brokers), ScanOptions())
    assert told(brokers) == [("LOG_DIR_WIPED", "warning", 3), ("LRS_RISK", "critical", 3)]
    risk = only(result, "LRS_RISK")
    assert (offsets(risk), risk.evidence["held_by"], risk.confidence.value) == ((0, HIGH_WATERMARK), [1, 2], "inferred")
    assert any("taken as wiped" in premise for premise in risk.evidence["premises"])
    assert "no directory of it is there: it lacks offsets 0 to" in message(risk)
    plan = planned(brokers).plan
    assert (plan.ordinary, plan.ordinary_loss, plan.recommended) == ((3,), HIGH_WATERMARK, 1)


@pytest.mark.parametrize(("isr", "severity"), [([1, 3], "critical"), ([1, 2], None)])
def test_one_of_several_members_and_one_that_is_none(tmp_path: Path, isr: list[int], severity: str | None) -> None:
    brokers = controlled_by(healthy(tmp_path), *in_sync(isr))
    wipe(brokers, 3)
    member = [] if severity is None else [("ISR_MEMBER_MISSING_COMMITTED", severity, 3)]
    assert told(brokers) == [*member, ("LOG_DIR_WIPED", "warning", 3)]
    assert (planned(brokers).plan.ordinary_loss or 0) == (HIGH_WATERMARK if severity else 0)


def test_a_directory_that_is_gone_from_a_whole_copy_is_the_same(tmp_path: Path) -> None:
    brokers = controlled_by(healthy(tmp_path), *in_sync([3]))
    shutil.rmtree(brokers.log_dir(3) / "t-0")
    assert told(brokers) == [("LRS_RISK", "critical", 3), ("REPLICA_MISSING", "warning", 3)]


@pytest.mark.parametrize(("isr", "severity"), [([1, 2], "info"), ([1, 2, 3], "critical")])
def test_a_replica_that_only_the_controllers_expect_is_named(tmp_path: Path, isr: list[int], severity: str) -> None:
    brokers = controlled_by(healthy(tmp_path), *in_sync(isr))
    shutil.rmtree(brokers.log_dir(3) / "t-0")
    write_checkpoint(brokers.log_dir(3), "replication", 0)
    result = scan(paths(brokers), ScanOptions(copied=Extent.WHOLE))
    kind = "REPLICA_MISSING" if severity == "info" else "ISR_MEMBER_MISSING_COMMITTED"
    assert [row for row in said(result) if row[2] == 3 and row[0] in (kind, "REPLICA_MISSING")] == [(kind, severity, 3)]
    if severity == "info":
        assert "the controller's log gives this broker a replica, but its directory is not there" in message(only(result, kind))


def test_said_to_be_partial_it_is_not_concluded_from(tmp_path: Path) -> None:
    brokers = controlled_by(healthy(tmp_path), *in_sync([3]))
    wipe(brokers, 3)
    assert told(brokers, copied=Extent.PARTIAL) == []
    plans = make_plans(paths(brokers), ScanOptions(copied=Extent.PARTIAL), PlanOptions())
    assert [missing.kind for missing in plans.planned[0].plan.missing] == ["not_copied"]
    assert plans.planned[0].plan.ordinary_loss is None


def test_under_zookeeper_it_is_suspected(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    wipe(brokers, 3)
    assert told(brokers) == [("EMPTY_REPLICA_MAY_LEAD", "critical", 3), ("LOG_DIR_WIPED", "warning", 3)]
    finding = only(scan(paths(brokers), ScanOptions()), "EMPTY_REPLICA_MAY_LEAD")
    assert (finding.confidence.value, offsets(finding), finding.evidence["held_by"]) == ("suspected", (0, HIGH_WATERMARK), [1, 2])
    assert told(brokers, live=True) == [("LOG_DIR_WIPED", "warning", 3)]


def test_a_new_broker_without_replicas_is_no_finding(tmp_path: Path) -> None:
    brokers = controlled_by(healthy(tmp_path), topic(), partition([1, 2], 1))
    wipe(brokers, 3)
    assert told(brokers) == []


def test_nothing_is_at_risk_where_nobody_holds_records(tmp_path: Path) -> None:
    brokers = controlled_by(healthy(tmp_path), *in_sync([3]))
    for broker in (1, 2):
        for segment in HEALTHY.segments:
            for path in (brokers.log_dir(broker) / "t-0").glob(f"{segment:020d}.*"):
                path.unlink()
        write_checkpoint(brokers.log_dir(broker), "replication", 0)
    wipe(brokers, 3)
    assert not {"LRS_RISK", "ISR_MEMBER_MISSING_COMMITTED"} & {kind for kind, _, _ in told(brokers)}


# 2. an older backup on one broker


def older_copy(root: Path) -> Brokers:
    """Broker 3 has its older copy again; brokers 1 and 2 hold all."""
    return histories(root, {1: HEALTHY, 2: HEALTHY, 3: cut(HEALTHY, 29)}, {1: HIGH_WATERMARK, 2: HIGH_WATERMARK, 3: 29})


def older_backup(root: Path, *after: bytes) -> Brokers:
    """The same, and it was the last leader."""
    brokers = older_copy(root)
    return controlled_by(brokers, topic(), partition([3], 3, replicas=[1, 2, 3], leader_epoch=2), *after)


def test_an_election_of_the_last_leader_again_silences_no_watermark(tmp_path: Path) -> None:
    again = change(leader=-1, isr=[], eligible_leader_replicas=[3]), change(leader=3, isr=[3], leader_recovery_state=1)
    brokers = older_backup(tmp_path, *again)
    risk = only(scan(paths(brokers), ScanOptions()), "LRS_RISK")
    assert (risk.place.broker, offsets(risk), risk.evidence["held_by"]) == (3, (29, HIGH_WATERMARK), [1, 2])
    assert planned(brokers).plan.ordinary_loss == HIGH_WATERMARK - 29


def test_a_last_leader_is_electable_where_isr_and_elr_are_empty(tmp_path: Path) -> None:
    brokers = older_backup(tmp_path, change(leader=-1, isr=[]))
    assert only(scan(paths(brokers), ScanOptions()), "LRS_RISK").evidence["membership"] == "last_known_leader"


def test_under_zookeeper_it_looks_like_a_follower_that_lags_and_its_cost_is_told(tmp_path: Path) -> None:
    brokers = older_copy(tmp_path)
    assert told(brokers) == []
    lags = only(scan(paths(brokers), ScanOptions()), "REPLICA_LAGS")
    assert (lags.place.broker, lags.evidence["behind"], lags.evidence["committed"]) == (3, LOG_END - 29, HIGH_WATERMARK - 29)
    assert f"if it led, {HIGH_WATERMARK - 29} offsets that are committed would be lost, and no controller's log says" in message(
        lags
    )
    candidate = planned(brokers).candidate(3)
    assert candidate is not None
    assert candidate.at_least == HIGH_WATERMARK - 29


def test_where_the_controllers_say_who_is_in_sync_a_follower_that_lags_costs_nothing(tmp_path: Path) -> None:
    brokers = controlled_by(older_copy(tmp_path), *in_sync([1, 2]))
    assert "committed" not in only(scan(paths(brokers), ScanOptions()), "REPLICA_LAGS").evidence


@pytest.mark.parametrize("hidden", [False, True])
def test_nothing_is_lost_everywhere_while_what_may_be_a_log_directory_was_not_read(tmp_path: Path, hidden: bool) -> None:
    brokers = healthy(tmp_path / "given")
    outside = tmp_path / "outside"
    brokers.log_dir(3).rename(outside)
    for broker in (1, 2):
        shutil.rmtree(brokers.log_dir(broker) / "t-0")
    if hidden:
        brokers.log_dir(3).symlink_to(outside)
    result = scan([str(brokers.root)], ScanOptions(copied=Extent.WHOLE))
    assert bool(result.incomplete) is hidden
    lost = [finding for finding in result.findings if finding.kind == "COMMITTED_LOST_EVERYWHERE"]
    assert len(lost) == (0 if hidden else 1)


# 3. a head that is gone


def without_head(root: Path, isr: tuple[int, ...], *more: bytes) -> Brokers:
    """Broker 2 lacks its first segment, [0, 29); the controllers' log ends two minutes after its records."""
    brokers = healthy(root)
    for path in (brokers.log_dir(2) / "t-0").glob(f"{0:020d}.*"):
        path.unlink()
    return controlled_by(brokers, *in_sync(list(isr)), *more, start_ms=YOUNG)


@pytest.mark.parametrize(("isr", "severity"), [((1, 3), "error"), ((1, 2), "critical")])
def test_a_first_segment_that_is_gone_for_no_reason(tmp_path: Path, isr: tuple[int, ...], severity: str) -> None:
    brokers = without_head(tmp_path, isr)
    assert told(brokers) == [("LOG_HEAD_MISSING", severity, 2)]
    head = only(scan(paths(brokers), ScanOptions()), "LOG_HEAD_MISSING")
    assert (offsets(head), head.evidence["held_by"]) == ((0, 29), [1, 3])
    candidate = planned(brokers).candidate(2)
    assert candidate is not None
    assert [(loss.start, loss.end, loss.held_by, loss.kept_by) for loss in candidate.losses] == [(0, 29, (1, 3), ())]


@pytest.mark.parametrize(
    "reason",
    [
        setting("retention.ms", "1000"),
        setting("retention.bytes", "100"),
        setting("cleanup.policy", "compact"),
        setting("remote.storage.enable", "true"),
    ],
    ids=["by age", "by size", "compacted", "tiered"],
)
def test_what_takes_a_head_for_good_reason_is_no_finding(tmp_path: Path, reason: bytes) -> None:
    brokers = without_head(tmp_path, (1, 2), reason)
    assert told(brokers) == []
    assert all(not candidate.losses for one in [planned(brokers)] for candidate in one.plan.candidates)


def beheaded(root: Path, *more: bytes) -> Brokers:
    """All brokers lack their first segment, [0, 29)."""
    brokers = without_head(root, (1, 2), *more)
    remove_heads(brokers)
    return brokers


def remove_heads(brokers: Brokers) -> None:
    for broker in (1, 2, 3):
        for path in (brokers.log_dir(broker) / "t-0").glob(f"{0:020d}.*"):
            path.unlink()


def test_a_first_segment_that_is_gone_everywhere_is_told_by_the_epochs(tmp_path: Path) -> None:
    brokers = beheaded(tmp_path)
    assert told(brokers) == [("LOG_HEAD_MISSING", "warning", broker) for broker in (1, 2, 3)]
    for paths_given in (paths(brokers), paths(brokers)[1:2]):
        heads = [finding for finding in scan(paths_given, ScanOptions()).findings if finding.kind == "LOG_HEAD_MISSING"]
        assert {(offsets(head), tuple(head.evidence["held_by"]), head.evidence["epochs_start"]) for head in heads} == {
            ((0, 29), (), 0)
        }
    assert len(scan(paths(brokers), ScanOptions()).incidents) == 1
    assert told(brokers, live=True) == []


def test_where_no_settings_are_known_it_may_be_in_remote_storage(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    remove_heads(brokers)
    heads = [finding for finding in scan(paths(brokers), ScanOptions()).findings if finding.kind == "LOG_HEAD_MISSING"]
    assert [(head.severity.value, head.confidence.value) for head in heads] == [("info", "suspected")] * 3


@pytest.mark.parametrize(
    "reason",
    [setting("cleanup.policy", "compact"), setting("remote.storage.enable", "true")],
    ids=["compacted", "tiered"],
)
def test_heads_of_other_topics_are_not_judged_by_epochs(tmp_path: Path, reason: bytes) -> None:
    assert told(beheaded(tmp_path, reason)) == []


@pytest.mark.parametrize("how", ["epochs", "checkpoint", "waiting"])
def test_a_head_that_the_broker_deleted_is_no_finding(how: str, tmp_path: Path) -> None:
    brokers = beheaded(tmp_path)
    for broker in (1, 2, 3):
        directory = brokers.log_dir(broker) / "t-0"
        if how == "epochs":
            epochs = (directory / "leader-epoch-checkpoint").read_text().splitlines()
            assert epochs[2] == "0 0"
            (directory / "leader-epoch-checkpoint").write_text("\n".join([*epochs[:2], "0 29", *epochs[3:]]) + "\n")
        elif how == "checkpoint":
            write_checkpoint(brokers.log_dir(broker), "log-start", 29)
        else:
            (directory / f"{0:020d}.log.deleted").write_bytes(b"")
    assert told(brokers) == []


def test_records_deleted_by_hand_are_in_a_log_start_checkpoint(tmp_path: Path) -> None:
    brokers = without_head(tmp_path, (1, 2))
    write_checkpoint(brokers.log_dir(1), "log-start", 29)
    assert told(brokers) == []


def test_an_old_head_is_only_suspected_where_no_settings_are_known(tmp_path: Path) -> None:
    brokers = without_head(tmp_path, (1, 2))
    day = BASE_TIMESTAMP + 24 * 3600 * 1000
    assert told(brokers, as_of_ms=day) == [("LOG_HEAD_MISSING", "warning", 2)]
    assert told(brokers, as_of_ms=day + 30 * 24 * 3600 * 1000) == []


def test_of_two_that_lose_nothing_the_lower_log_start_leads(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    for path in (brokers.log_dir(1) / "t-0").glob(f"{0:020d}.*"):
        path.unlink()
    controlled_by(brokers, *in_sync([1, 2, 3]), setting("retention.ms", "1000"), start_ms=YOUNG)
    assert planned(brokers).plan.recommended == 2


# 4. a controllers' log of an old time


def test_topics_that_the_controllers_do_not_know_are_named(tmp_path: Path) -> None:
    brokers = controlled_by(healthy(tmp_path), topic("other", OTHER_ID), partition([1, 2, 3], 1, topic_id=OTHER_ID))
    assert told(brokers) == [("TOPIC_UNKNOWN_TO_CONTROLLER", "error", None)]
    result = scan(paths(brokers), ScanOptions())
    finding = only(result, "TOPIC_UNKNOWN_TO_CONTROLLER")
    assert (finding.evidence["brokers"], finding.evidence["topic_id"]) == ([1, 2, 3], TOPIC_ID)
    assert finding.confidence.value == "inferred"
    assert "-stray" in message(finding)
    assert [each.verdict for each in result.partitions if each.topic == "t"] == ["error"]


@pytest.mark.parametrize(
    ("level", "severity", "strays", "at_least"),
    [(14, "critical", "deleted", HIGH_WATERMARK), (15, "error", "set_aside", 0), (None, "error", "set_aside", 0)],
)
def test_of_a_topic_that_the_controllers_do_not_know_all_is_at_stake(
    tmp_path: Path, level: int | None, severity: str, strays: str, at_least: int
) -> None:
    features = [] if level is None else [record(12, name="metadata.version", feature_level=level)]
    known = [topic("other", OTHER_ID), partition([1, 2, 3], 1, topic_id=OTHER_ID)]
    brokers = controlled_by(healthy(tmp_path), *features, *known)
    assert told(brokers) == [("TOPIC_UNKNOWN_TO_CONTROLLER", severity, None)]
    plan = planned(brokers).plan
    assert (plan.candidates, plan.ordinary, plan.strays) == ((), (), strays)
    assert (plan.ordinary_loss, costs_of(plan.at_stake)) == (HIGH_WATERMARK, (HIGH_WATERMARK, at_least, LOG_END))
    assert [missing.kind for missing in plan.missing] == ["topic_unknown"]


def test_what_a_damaged_controllers_log_does_not_say_it_may_have_known(tmp_path: Path) -> None:
    brokers = controlled_by(healthy(tmp_path), topic("other", OTHER_ID), partition([1, 2, 3], 1, topic_id=OTHER_ID))
    path = next((tmp_path / f"c{CONTROLLER}" / "__cluster_metadata-0").glob("*.log"))
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    assert "TOPIC_UNKNOWN_TO_CONTROLLER" not in {kind for kind, _, _ in told(brokers)}
    assert planned(brokers).plan.strays is None


@pytest.mark.parametrize(("start", "kinds"), [(0, ["COMMITTED_LOST_EVERYWHERE"]), (5, [])])
def test_a_topic_that_the_controllers_never_knew_was_not_deleted_by_them(tmp_path: Path, start: int, kinds: list[str]) -> None:
    """After brokers started with such a log: their directories are gone, and their checkpoints are left."""
    brokers = healthy(tmp_path)
    log = ControllerLog(next_offset=start).lead([CONTROLLER])
    log.append(topic("other", OTHER_ID)).append(partition([1, 2, 3], 1, topic_id=OTHER_ID))
    log.put(tmp_path / f"c{CONTROLLER}", start=start)
    for broker in (1, 2, 3):
        shutil.rmtree(brokers.log_dir(broker) / "t-0")
    result = scan(paths(brokers), ScanOptions())
    assert [finding.kind for finding in result.findings if finding.severity.value == "critical"] == kinds
    for finding in result.findings if kinds else ():
        if finding.kind in ("COMMITTED_LOST_EVERYWHERE", "REPLICA_MISSING"):
            assert "never knew the topic" in message(finding)
    gone = make_plans(paths(brokers), ScanOptions(), PlanOptions())
    assert ("COMMITTED_LOST_EVERYWHERE" in summary_line(gone)) is bool(kinds)


def test_a_topic_that_the_controllers_deleted_is_gone_as_it_should_be(tmp_path: Path) -> None:
    brokers = controlled_by(healthy(tmp_path), *in_sync([1, 2, 3]), record(9, topic_id=TOPIC_ID))
    for broker in (1, 2, 3):
        shutil.rmtree(brokers.log_dir(broker) / "t-0")
    assert told(brokers) == []


@pytest.mark.parametrize(
    ("epoch", "batches", "asked", "told"),
    [
        (6, b"", ScanOptions(), True),
        (0, b"", ScanOptions(), False),
        (6, batch(0, 1), ScanOptions(), False),
        (6, b"", ScanOptions(topic_glob="t"), False),
        (6, b"", ScanOptions(broker="1"), False),
    ],
    ids=["empty", "a new cluster", "one record somewhere", "one topic alone", "one broker alone"],
)
def test_logs_that_are_all_empty_are_told(tmp_path: Path, epoch: int, batches: bytes, asked: ScanOptions, told: bool) -> None:
    """As after a start of the only replica in sync with empty disks, which leaves nothing else."""
    for broker in (1, 2):
        for name, held in (("t-0", b""), ("u-0", batches if broker == 2 else b""), ("__consumer_offsets-0", b"")):
            log_dir = put_replica(tmp_path, broker, held, partition=name)
            (log_dir / name / "leader-epoch-checkpoint").write_bytes(write_leader_epochs([EpochEntry(epoch, 0)]))
    result = scan([str(tmp_path / f"broker-{broker}") for broker in (1, 2)], asked)
    findings = [finding for finding in result.findings if finding.kind == "ALL_LOGS_EMPTY"]
    assert [finding.evidence for finding in findings] == (
        [{"partitions": 3, "leader_epoch": 6, "internal_topics": ["__consumer_offsets"]}] if told else []
    )
    if told:
        assert message(findings[0]).startswith(
            "Every log of 3 partitions here ends at offset 0, in leader epochs up to 6; among them"
        )


def test_a_wiped_disk_alone_is_told(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    wipe(brokers, 1)
    wiped = [str(brokers.log_dir(1))]
    (finding,) = scan(wiped, ScanOptions()).findings
    assert (finding.kind, finding.severity.value, finding.confidence.value) == ("LOG_DIR_WIPED", "warning", "suspected")
    assert "harmless if the broker is new" in message(finding)
    assert scan(wiped, ScanOptions(copied=Extent.PARTIAL)).findings == []
    assert "LOG_DIR_WIPED" in summary_line(make_plans(wiped, ScanOptions(), PlanOptions()))


def test_a_sole_voters_old_copy_never_catches_up(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    old = ControllerLog().lead([CONTROLLER])
    whole = old.copy()
    for value in in_sync([1, 2, 3]):
        whole.append(value)
    for broker in (1, 2):
        directory = brokers.log_dir(broker)
        identity = (directory / "meta.properties").read_bytes()
        whole.put(directory, broker)
        (directory / "meta.properties").write_bytes(identity)
    old.put(tmp_path / f"c{CONTROLLER}")
    result = scan(paths(brokers), ScanOptions())
    behind = only(result, "CONTROLLER_LOG_OLD")
    assert (behind.evidence["voters"], behind.evidence["voters_end"], behind.evidence["held_by"]) == ([CONTROLLER], 1, [1, 2])
    assert only(result, "TOPIC_UNKNOWN_TO_CONTROLLER").place.topic == "t"
    assert planned(brokers).plan.strays == "set_aside"
    whole.put(tmp_path / f"c{CONTROLLER}")
    assert told(brokers) == []


def test_what_only_observers_hold_says_nothing_of_who_will_be_in_sync(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    old = ControllerLog().lead([CONTROLLER])
    for value in in_sync([1, 2, 3]):
        old.append(value)
    whole = old.copy()
    whole.append(change(isr=[1], leader=1))
    directory = brokers.log_dir(1)
    identity = (directory / "meta.properties").read_bytes()
    whole.put(directory, 1)
    (directory / "meta.properties").write_bytes(identity)
    old.put(tmp_path / f"c{CONTROLLER}")
    plan = planned(brokers).plan
    assert [missing.kind for missing in plan.missing] == ["voters_behind"]
    assert plan.ordinary_loss is None
    lines = list(step_lines(planned(brokers), plan.candidates[0]))
    assert lines[0].startswith("Look for a newer copy of a voter's")
    assert not any("any order" in line for line in lines)


@pytest.mark.parametrize("hides", ["archive", "link", None])
def test_what_was_not_read_may_hold_what_no_copy_has(tmp_path: Path, hides: str | None) -> None:
    """A gap that every copy has, and a partition of which no directory is left."""
    brokers = healthy(tmp_path / "given")
    for broker in (1, 2, 3):
        for path in (brokers.log_dir(broker) / "t-0").glob(f"{29:020d}.*"):
            path.unlink()
        checkpoint = brokers.log_dir(broker) / "replication-offset-checkpoint"
        checkpoint.write_text(f"0\n2\nt 0 {HIGH_WATERMARK}\nu 0 50\n")
    if hides == "archive":
        source = healthy(tmp_path / "other").log_dir(1)
        (source / "t-0").rename(source / "x-0")
        with tarfile.open(tmp_path / "given" / "b4.tar", "w") as tar:
            tar.add(source, "b4")
        data = (tmp_path / "given" / "b4.tar").read_bytes()
        (tmp_path / "given" / "b4.tar").write_bytes(data[: len(data) // 3])
    elif hides == "link":
        (tmp_path / "given" / "b4").symlink_to(tmp_path / "nowhere")
    given = [str(brokers.root)] if hides == "link" else paths(brokers)
    result = scan(given, ScanOptions(copied=Extent.WHOLE))
    lost = [finding for finding in result.findings if finding.kind == "COMMITTED_LOST_EVERYWHERE"]
    assert bool(result.incomplete) is (hides is not None)
    if hides is None:
        assert {finding.place.topic: finding.confidence.value for finding in lost} == {"t": "proven", "u": "inferred"}
        return
    (finding,) = lost
    assert (finding.place.topic, finding.confidence.value) == ("t", "suspected")
    assert message(finding).endswith("which is harmless if a copy in what could not be read holds them.")


# 5. a partial copy


def partial(root: Path) -> Brokers:
    """Of each broker `t-0` alone, with checkpoints that name three more."""
    brokers = healthy(root)
    for log_dir in brokers.log_dirs:
        for name in ("replication", "recovery-point"):
            text = (log_dir / f"{name}-offset-checkpoint").read_text().splitlines()
            lines = [*text[2:], "u 0 10", "v 0 10", "w 0 10"]
            (log_dir / f"{name}-offset-checkpoint").write_text(f"0\n{len(lines)}\n" + "\n".join(lines) + "\n")
    return brokers


def test_what_was_not_copied_is_an_info_line_a_broker(tmp_path: Path) -> None:
    result = scan(paths(partial(tmp_path)), ScanOptions())
    assert said(result) == [("PARTIAL_COPY", "info", broker) for broker in (1, 2, 3)]
    finding = result.findings[0]
    assert (finding.evidence["partitions"], finding.evidence["there"]) == (3, 1)
    assert finding.evidence["examples"] == ["u-0", "v-0", "w-0"]


def test_said_to_be_whole_all_of_it_is_gone(tmp_path: Path) -> None:
    brokers = partial(tmp_path)
    kinds = {(kind, severity) for kind, severity, _ in told(brokers, copied=Extent.WHOLE)}
    assert kinds == {("COMMITTED_LOST_EVERYWHERE", "critical"), ("REPLICA_MISSING", "warning")}


def test_one_of_several_that_is_absent_stays_a_finding(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    for log_dir in brokers.log_dirs:
        shutil.copytree(log_dir / "t-0", log_dir / "u-0")
        (log_dir / "replication-offset-checkpoint").write_text(f"0\n2\nt 0 {HIGH_WATERMARK}\nu 0 {LOG_END}\n")
    shutil.rmtree(brokers.log_dir(2) / "u-0")
    assert ("REPLICA_MISSING", "warning", 2) in told(brokers)


def test_a_replica_whose_directory_is_gone_is_told(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    shutil.rmtree(brokers.log_dir(2) / "t-0")
    result = scan([str(brokers.log_dir(broker)) for broker in (1, 2, 3)], ScanOptions())
    [gone] = [finding for finding in result.findings if finding.kind == "REPLICA_MISSING"]
    assert (gone.place.topic, gone.place.partition, gone.place.broker) == ("t", 0, 2)
    assert gone.place.offset_end == gone.evidence["high_watermark"] > 0
    assert [finding.kind for finding in result.findings if finding.severity.rank > 0] == [
        "EMPTY_REPLICA_MAY_LEAD",
        "REPLICA_MISSING",
    ]


def test_every_partition_that_is_gone_everywhere_is_told(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    for broker in (1, 2, 3):
        checkpoint = brokers.log_dir(broker) / "replication-offset-checkpoint"
        lines = [*(f"gone {number} {number + 1}" for number in range(40)), "t 0 " + checkpoint.read_text().split()[-1]]
        checkpoint.write_text(f"0\n{len(lines)}\n" + "".join(f"{line}\n" for line in lines))
    result = scan([str(brokers.log_dir(broker)) for broker in (1, 2, 3)], ScanOptions(copied=Extent.WHOLE))
    lost = [finding for finding in result.findings if finding.kind == "COMMITTED_LOST_EVERYWHERE"]
    assert [(finding.place.topic, finding.place.partition, finding.place.offset_end) for finding in lost] == [
        ("gone", number, number + 1) for number in range(40)
    ]


def test_an_offset_of_zero_is_no_proof(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    checkpoint = brokers.log_dir(2) / "replication-offset-checkpoint"
    checkpoint.write_text("0\n2\nnever-written 0 0\nt 0 " + checkpoint.read_text().split()[-1] + "\n")
    result = scan([str(brokers.log_dir(broker)) for broker in (1, 2, 3)], ScanOptions())
    assert "REPLICA_MISSING" not in {finding.kind for finding in result.findings}


def test_what_was_not_asked_for_is_not_told(tmp_path: Path) -> None:
    """Of a topic, a partition, a broker nothing was asked for of the others, whose directories are gone everywhere."""
    brokers = healthy(tmp_path)
    for broker in (1, 2, 3):
        path = brokers.log_dir(broker) / "replication-offset-checkpoint"
        path.write_bytes(write_offset_checkpoint({("t", 0): 72, ("t", 1): 8, ("other", 0): 9}))
    gone = {"COMMITTED_LOST_EVERYWHERE", "REPLICA_MISSING"}

    def told(**asked: Any) -> set[tuple[str, str | None, int | None, int | str | None]]:
        result = scan([str(path) for path in brokers.log_dirs], ScanOptions(copied=Extent.WHOLE, **asked))
        places = [(finding.kind, finding.place) for finding in result.findings if finding.kind in gone]
        return {(kind, place.topic, place.partition, place.broker) for kind, place in places}

    missing = {("REPLICA_MISSING", "t", 1, broker) for broker in (1, 2, 3)}
    assert told(topic_glob="t") == {*missing, ("COMMITTED_LOST_EVERYWHERE", "t", 1, None)}
    assert told(topic_glob="t", partition=0) == set()
    assert told(topic_glob="t", broker="2") == {("REPLICA_MISSING", "t", 1, 2)}
    assert len(told()) == 8


def test_a_checkpoint_of_a_replica_that_is_gone_proves_what_no_copy_holds(tmp_path: Path) -> None:
    """Broker 2's directory is gone, its checkpoint says 100; the copies left end at 75."""
    brokers = healthy(tmp_path)
    shutil.rmtree(brokers.log_dir(2) / "t-0")
    write_checkpoint(brokers.log_dir(2), "replication", 100)
    paths = [str(path) for path in brokers.log_dirs]
    result = scan(paths, ScanOptions())
    [lost] = [finding for finding in result.findings if finding.kind == "COMMITTED_LOST_EVERYWHERE"]
    assert (lost.place.offset_start, lost.place.offset_end, lost.confidence.value) == (LOG_END, 100, "inferred")
    assert lost.evidence["witness"] == "replication-offset-checkpoint of broker 2"
    assert (lost.evidence["directories_missing_on"], lost.evidence["held_by"]) == ([2], [])
    assert "its directory is gone on broker 2." in message(lost)
    [partition] = result.partitions
    assert (partition.verdict, partition.high_watermark_at_least) == ("critical", 100)
    brokers.crash(1)
    [lost] = [finding for finding in scan(paths, ScanOptions()).findings if finding.kind == "COMMITTED_LOST_EVERYWHERE"]
    assert (lost.confidence.value, "while their brokers ran" in lost.evidence["harmless_if"]) == ("suspected", True)
    for asked in ({"live": True}, {"broker": "2"}, {"broker": "1"}):
        assert "COMMITTED_LOST_EVERYWHERE" not in {finding.kind for finding in scan(paths, ScanOptions(**asked)).findings}


@pytest.mark.parametrize("replicas", [[1, 2, 3], [1, 3]])
def test_a_broker_that_has_no_replica_proves_nothing_lost(tmp_path: Path, replicas: list[int]) -> None:
    """The same copies: broker 2's directory is gone, and its checkpoint reaches beyond the others."""
    brokers = controlled_by(healthy(tmp_path), *in_sync([3]), change(replicas=replicas, isr=[1, 3]))
    shutil.rmtree(brokers.log_dir(2) / "t-0")
    write_checkpoint(brokers.log_dir(2), "replication", 100)
    findings = scan([str(path) for path in sorted(tmp_path.iterdir())], ScanOptions()).findings
    told = {
        finding.kind: finding.severity.value
        for finding in findings
        if finding.severity.rank > 0 or finding.kind == "REPLICA_MISSING"
    }
    if 2 in replicas:
        assert told == {"COMMITTED_LOST_EVERYWHERE": "critical", "REPLICA_MISSING": "warning"}
    else:
        assert told == {"REPLICA_MISSING": "info"}
        [finding] = [each for each in findings if each.kind == "REPLICA_MISSING"]
        assert finding.evidence["harmless_if"] == "the replica was moved away, as the controller's log says"


@pytest.mark.parametrize("refused", ["t-0", f"t-0/{55:020d}.log"])
def test_a_copy_that_cannot_be_read_may_hold_what_the_others_lack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    brokers = healthy(tmp_path)
    shutil.rmtree(brokers.log_dir(2) / "t-0")
    write_checkpoint(brokers.log_dir(2), "replication", 100)
    opening, listing = LocalSource.open, LocalSource.list

    def unless_refused(self: LocalSource, path: str) -> str:
        if (self.name, path) == (str(brokers.log_dir(3)), refused):
            raise SourceError(path, "permission denied")
        return path

    monkeypatch.setattr(LocalSource, "open", lambda self, path: opening(self, unless_refused(self, path)))
    monkeypatch.setattr(LocalSource, "list", lambda self, path="": listing(self, unless_refused(self, path)))
    result = scan([str(path) for path in brokers.log_dirs], ScanOptions())
    assert {incomplete.reason for incomplete in result.incomplete} == {"permission denied"}
    assert "COMMITTED_LOST_EVERYWHERE" not in {finding.kind for finding in result.findings}
