"""What `plan` advises where the way is not the usual one: nobody need be forced, a file is to be mended first, a broker is dead."""

import json
import shutil
from pathlib import Path

import pytest

from tests.support.plan_runs import SAMPLES, Run, validated
from tests.support.replicas import put_replica
from tests.support.segments import batch

AUDIT = ("--topic", "audit", "--format", "table")
HEALTHY = ("--topic", "orders", "--partition", "0", "--format", "table")


def flat(out: str) -> str:
    return " ".join(out.split())


def test_without_a_controllers_log_nobody_is_stopped_where_all_logs_agree(run_plan: Run, tmp_path: Path) -> None:
    for broker in (1, 2, 3):
        put_replica(tmp_path, broker, batch(0, 3), high_watermark=3)
    for asked in ((), ("--elect", "2")):
        _, out, err = run_plan(tmp_path, *asked, "--format", "table")
        assert "Nothing that the copies hold would be lost, whoever leads: any order will do." in flat(out)
        assert "1. Make sure that no other broker has a replica: no controller's log here says so, and it may hold more." in flat(
            out
        )
        assert "2. Start the brokers in any order: whoever of them is elected, nothing is lost." in flat(out)
        assert "Stop" not in out
        assert "election.json" not in out
        assert err == "1 partition: no election would lose anything that the copies here hold\n"
    assert "Broker 2 can be made the leader without force once it is in the ISR." in flat(out)
    assert run_plan(SAMPLES / "healthy", *HEALTHY, "--elect", "3")[1].count("any order") == 2


def test_where_nothing_tells_the_present_topic_it_is_to_be_found_out(run_plan: Run, tmp_path: Path) -> None:
    for broker, topic in ((1, "C" * 21 + "Q"), (2, "C" * 21 + "Q"), (3, "B" * 21 + "Q")):
        put_replica(tmp_path, broker, batch(0, 3), high_watermark=3, topic_id=topic)
    out = flat(run_plan(tmp_path, "--format", "table", "--elect", "2")[1])
    assert "1. Find out by the controller's log which topic id is the present one, and plan again before anything below" in out
    assert "any order" not in out


def test_what_lies_below_the_new_leaders_log_start_is_not_said_to_stay(run_plan: Run, tmp_path: Path) -> None:
    put_replica(tmp_path, 1, batch(0, 3) + batch(3, 3), high_watermark=6)
    put_replica(tmp_path, 2, batch(3, 3), high_watermark=6, base_offset=3)
    out = flat(run_plan(tmp_path, "--format", "table", "--as-of", "2040-01-01T00:00:00Z")[1])
    assert "whoever of them is elected, nothing is lost but what lies below the log start of who is." in out


def test_a_dead_broker_among_copies_without_names_is_asked_for(run_plan: Run, audit: Path, tmp_path: Path) -> None:
    copies = shutil.copytree(audit, tmp_path / "copies")
    for broker in (2, 3):
        (copies / f"broker-{broker}" / "meta.properties").unlink()
    status, out, err = run_plan(copies, *AUDIT, "--dead", "2")
    assert (status, out) == (2, "")
    assert "which of the copies called broker-2, broker-3 is of broker 2 cannot be told" in err
    assert "say whose they are, as in 2=PATH" in err


def test_that_no_controllers_log_is_here_is_told_of_many_partitions(run_plan: Run, tmp_path: Path) -> None:
    for name in ("a-0", "b-0"):
        for broker in (1, 2):
            put_replica(tmp_path / name, broker, batch(0, 3), partition=name)
    told = "No controller's log is here to say for 2 partitions whether there are further replicas, which may hold more."
    for format_name in ("table", "markdown", "tsv"):
        _, out, err = run_plan(tmp_path / "a-0", tmp_path / "b-0", "--format", format_name)
        assert told in flat(err if format_name == "tsv" else out).replace("\\", "")
        assert "2 partitions: no election would lose anything that the copies here hold" in flat(err)
    document = json.loads(run_plan(tmp_path / "a-0", tmp_path / "b-0", "--format", "json")[1])
    validated(None, [document])
    assert document["controller_unsaid"] == [{"kind": "no_controller_log", "partitions": 2}]


@pytest.mark.parametrize("broken", ["replication-offset-checkpoint", "audit-0/leader-epoch-checkpoint"])
def test_a_broken_checkpoint_is_mended_before_anything_is_forced(run_plan: Run, audit: Path, tmp_path: Path, broken: str) -> None:
    copies = shutil.copytree(audit, tmp_path / "copies")
    (copies / "broker-2" / broken).write_text("junk\n")
    out = flat(run_plan(copies, *AUDIT)[1])
    first = f"1. Broker 2 would not start as it is, for its {broken.rpartition('/')[2]} cannot be read: copy its log directories,"
    assert first in out
    assert "Recommended of those that would start: broker 1" in out
    assert "copy again and plan again before anything below is done. 2. " in out


def test_a_broker_that_does_not_start_leaves_no_order_free(run_plan: Run, tmp_path: Path) -> None:
    """Brokers 2 and 3 agree; broker 1 lacks records that both have, and would lose them if it led."""
    whole = batch(0, 3) + batch(3, 3)
    for broker, log in ((1, batch(0, 3)), (2, whole), (3, whole)):
        put_replica(tmp_path, broker, log, high_watermark=3, topic_id="C" * 21 + "Q")
    (tmp_path / "broker-1" / "orders-0" / "leader-epoch-checkpoint").write_text("junk\n")
    _, out, err = run_plan(tmp_path, "--format", "table")
    assert "any order" not in out
    assert err == "1 partition: no election of a broker that would start would lose anything that the copies here hold\n"
    for broker in (1, 2):
        put_replica(tmp_path / "more", broker, batch(0, 3), partition="b-0")
    several = run_plan(tmp_path, tmp_path / "more", "--format", "table")[1]
    document = json.loads(run_plan(tmp_path, tmp_path / "more", "--format", "json")[1])
    validated(None, [document])
    assert document["do_not_start"] == [{"broker": 1, "partitions": 1}]
    told = "Broker 1 would not start on its copy of 1 partition: what it would do, once that is mended, is not planned."
    assert told in flat(several)


def test_a_dead_broker_is_not_to_be_copied_or_stopped(run_plan: Run, audit: Path) -> None:
    out = flat(run_plan(audit, *AUDIT, "--dead", "1")[1])
    assert "1. Keep the copy of broker 1 given here: of what would be lost, no more than that is left." in out
    assert "2. Stop broker 3; it stays down until broker 2 leads." in out
    others = (audit / "broker-2", audit / "broker-3")
    status, table, _ = run_plan(*others, *AUDIT, "--dead", "1")
    out = flat(table)
    assert status == 0
    assert "Missing: broker 1 will not come back, and no copy of it is here: what only it held is lost unseen." in out
    assert "Copy the log directories" not in out
    document = json.loads(run_plan(*others, "--topic", "audit", "--dead", "1", "--format", "json")[1])
    validated(None, [document])
    assert document["partitions"][0]["missing_witnesses"] == [{"kind": "dead_copy_absent", "broker": 1}]
    status, _, err = run_plan(*others, *AUDIT, "--dead", "x")
    assert status == 2
    assert "no copy here is of broker x, and no controller's log here gives it a replica" in err
    assert "brokers known here: 1, 2, 3" in err


def test_two_copies_of_one_broker_are_named_and_tables_stay_in_line(run_plan: Run, audit: Path, tmp_path: Path) -> None:
    copies = shutil.copytree(audit, tmp_path / "copies")
    shutil.copytree(copies / "broker-2", copies / "broker-2-old")
    out = run_plan(copies, *AUDIT)[1]
    assert f"Several copies of one broker (NODE_ID_CLASH): {copies / 'broker-2'} and" in flat(out)
    assert "are all of broker 2, which can start on one of them alone." in flat(out)
    table = out[: out.index("Several")]
    assert str(copies) not in table
    assert "broker-2-old at 300" in flat(table).replace("- ", "-")
    document = json.loads(run_plan(copies, "--topic", "audit", "--format", "json")[1])
    validated(None, [document])
    told = [one["broker"] for one in document["partitions"][0]["missing_witnesses"] if one["kind"] == "same_broker"]
    assert told == [str(copies / "broker-2"), str(copies / "broker-2-old")]


def test_cells_that_are_folded_stay_in_their_line(run_plan: Run, tmp_path: Path) -> None:
    """Of each loss what is said of it begins in one line, however long the names are."""
    for broker, log in (("a" * 30, batch(0, 2)), ("b" * 30, batch(0, 2) + batch(2, 2)), ("c" * 30, batch(0, 2) + batch(2, 1))):
        put_replica(tmp_path, broker, log)
    lines = run_plan(tmp_path, "--format", "table")[1].splitlines()
    first = next(line for line in lines if line.startswith("broker-a"))
    assert " 2 " in first
    assert first.split()[-1] == "0"


def test_a_hole_in_a_follower_is_told_to_be_copied_anew(run_plan: Run, tmp_path: Path) -> None:
    for broker in (1, 2):
        log_dir = put_replica(tmp_path, broker, batch(0, 3), high_watermark=9)
        for base in (3, 6):
            (log_dir / "orders-0" / f"{base:020d}.log").write_bytes(batch(base, 3))
    (tmp_path / "broker-1" / "orders-0" / f"{3:020d}.log").unlink()
    out = flat(run_plan(tmp_path, "--format", "table")[1])
    assert "Recommended: broker 2. Nothing that the copies hold would be lost." in out
    assert "Move the directory orders-0 of broker 1 out of its log directory (never delete it), so that it copies" in out


def test_what_decides_is_said_where_another_would_lose_fewer(run_plan: Run, audit: Path, tmp_path: Path) -> None:
    copies = shutil.copytree(audit, tmp_path / "copies")
    (copies / "broker-2" / "replication-offset-checkpoint").unlink()
    out = flat(run_plan(copies, *AUDIT)[1])
    assert "Recommended: broker 1, which loses nothing that is proven committed: 70 records at offsets 300 to 369, on" in out
    doubt = (
        "That is open to doubt: broker 2 has no checkpointed high watermark to prove what it holds committed, and electing broker 2"
    )
    assert f"{doubt} would lose less, 45 records." in out
    assert "open to doubt" not in flat(run_plan(audit, *AUDIT)[1])


def test_a_watermark_beyond_the_log_is_told_as_it_is(run_plan: Run, tmp_path: Path) -> None:
    put_replica(tmp_path, 1, batch(0, 3), high_watermark=3)
    put_replica(tmp_path, 2, batch(0, 3) + batch(3, 3), high_watermark=9)
    out = flat(run_plan(tmp_path, "--elect", "1", "--format", "table")[1])
    assert "all proven committed (high watermark 9 of broker 2, whose log ends at 6)" in out


def test_one_record_is_at_one_offset(run_plan: Run, tmp_path: Path) -> None:
    put_replica(tmp_path, 1, batch(0, 1))
    put_replica(tmp_path, 2, batch(0, 1) + batch(1, 1))
    assert "1 record at offset 1, on broker 2 alone" in flat(run_plan(tmp_path, "--elect", "1", "--format", "table")[1])


def test_controllers_elect_among_themselves(run_plan: Run) -> None:
    status, _, err = run_plan(SAMPLES / "healthy", "--topic", "__cluster_metadata")
    assert status == 0
    assert err == "nothing to plan: the leader of __cluster_metadata is elected by the controllers among themselves\n"


def test_lines_beneath_the_list_are_wrapped(run_plan: Run) -> None:
    out = run_plan(SAMPLES / "healthy" / "broker-1", "--format", "table")[1]
    assert max(map(len, out.splitlines())) <= 80
