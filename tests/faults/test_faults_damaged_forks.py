"""Damage at offsets where another replica has another history: a copy of other records is none of the damaged batch."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from kafka_forensics.wording import message
from kafka_forensics.writers.files import write_offset_checkpoint
from tests.support.compacted import CLEANED, History, filled
from tests.support.controller_log import change, controlled_by, in_sync
from tests.support.faults import HEALTHY, TOPIC, Brokers, Log, healthy, histories, write_checkpoint
from tests.support.faults_verdict import offsets, only, said, verdict
from tests.support.injections import claim_epochs, history

pytestmark = pytest.mark.faults

COMMON = [("p", 0)] * 4
"""Offsets [0, 12) of a history."""
OLD = history(*COMMON, ("old", 0), ("old", 0), records=3)
NEW = history(*COMMON, ("new", 2), records=3)


def unclean(root: Path, logs: dict[int, Log] | None = None) -> Brokers:
    """Broker 2 has committed [12, 18) in epoch 0; broker 1 leads epoch 2 with other records from 12 on."""
    given = logs or {1: NEW, 2: OLD}
    ends = {broker: log.next_offset for broker, log in given.items()}
    return histories(root, given, ends)


def test_a_fork_whose_losing_side_is_damaged_is_still_a_fork(tmp_path: Path) -> None:
    brokers = unclean(tmp_path)
    brokers.flip(2, OLD.at(12), 100)
    result = verdict(brokers)
    assert said(result) == [("BATCH_CRC_MISMATCH", "error", 2), ("UNCLEAN_LOSS", "critical", None)]
    loss = only(result, "UNCLEAN_LOSS")
    assert (offsets(loss), loss.evidence["held_by"]) == ((12, 18), [2])
    assert loss.evidence["not_whole"] == [{"broker": 2, "offset_start": 12, "offset_end": 15}]
    assert "offsets 12 to 14 lie damaged on broker 2" in message(loss)
    assert only(result, "BATCH_CRC_MISMATCH").evidence["held_by"] == []


def test_all_that_is_left_of_the_losing_side_is_damaged(tmp_path: Path) -> None:
    brokers = unclean(tmp_path)
    for offset in (12, 15):
        brokers.flip(2, OLD.at(offset), 100)
    result = verdict(brokers)
    assert {kind for kind, _, _ in said(result)} == {"BATCH_CRC_MISMATCH", "UNCLEAN_LOSS"}
    loss = only(result, "UNCLEAN_LOSS")
    assert (offsets(loss), loss.evidence["held_by"]) == ((12, 18), [2])
    assert loss.evidence["not_whole"] == [{"broker": 2, "offset_start": 12, "offset_end": 18}]
    assert all(finding.evidence["held_by"] == [] for finding in result.findings if finding.kind == "BATCH_CRC_MISMATCH")


def test_the_losing_side_has_a_second_copy_that_is_whole(tmp_path: Path) -> None:
    """The damaged one and the whole one are of one history: one is good for the other, and alone holds the loss."""
    brokers = unclean(tmp_path, {1: NEW, 2: OLD, 3: OLD})
    brokers.flip(2, OLD.at(12), 100)
    result = verdict(brokers)
    loss = only(result, "UNCLEAN_LOSS")
    assert (offsets(loss), loss.evidence["held_by"]) == ((12, 18), [3])
    assert "not_whole" not in loss.evidence
    assert only(result, "BATCH_CRC_MISMATCH").evidence["held_by"] == [3]
    assert only(result, "REPLICA_DIFFERS").evidence["held_by"] == [3]


def test_the_winning_side_is_damaged(tmp_path: Path) -> None:
    """The first batch of the new epoch rots: only the checkpoint bears out its header, and the old records are no copy of it."""
    brokers = unclean(tmp_path)
    brokers.flip(1, NEW.at(12), 100)
    result = verdict(brokers)
    assert only(result, "BATCH_CRC_MISMATCH").evidence["held_by"] == []
    assert not [finding for finding in result.findings if finding.kind in ("REPLICA_DIFFERS", "REPLICA_LAGS")]


@pytest.mark.parametrize("injure", ["flip", "frame"])
def test_a_fork_that_lost_nothing_stays_harmless_where_the_winners_first_batch_is_damaged(tmp_path: Path, injure: str) -> None:
    """The checkpoint says where the epoch began whose first batch is damaged; the old records behind that were never committed."""
    longer = history(*COMMON, ("new", 2), ("new", 2), records=3)
    brokers = histories(tmp_path, {1: longer, 2: OLD, 3: longer}, {1: 18, 2: 12, 3: 18})
    if injure == "flip":
        brokers.flip(1, longer.at(12), 100)
    else:
        brokers.overwrite(1, longer.at(12), b"\xff" * 30)
    result = verdict(brokers)
    assert {kind for kind, severity, _ in said(result) if severity == "critical"} == set()
    assert only(result, "FORK_ABOVE_HW").severity.value == "info"
    damage = only(result, "BATCH_CRC_MISMATCH" if injure == "flip" else "FRAMING_LOST")
    assert damage.evidence["held_by"] == [3]


def test_a_lost_frame_beside_another_history_is_held_by_nobody(tmp_path: Path) -> None:
    brokers = unclean(tmp_path)
    brokers.overwrite(2, OLD.at(12), b"\xff" * 30)
    lost = only(verdict(brokers), "FRAMING_LOST")
    assert lost.evidence["held_by"] == []


def test_damage_where_the_other_copies_are_good_stays_as_it_is(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    brokers.flip(2, HEALTHY.at(40), 100)
    result = verdict(brokers)
    assert said(result) == [("BATCH_CRC_MISMATCH", "error", 2), ("REPLICA_DIFFERS", "error", 2)]
    differs = only(result, "REPLICA_DIFFERS")
    assert (differs.evidence["held_by"], differs.evidence["majority"]) == ([1, 3], [1, 3])
    assert "premises" not in differs.evidence
    assert message(differs).endswith("within one leader epoch; good copies are on brokers 1 and 3.")


@pytest.mark.parametrize("byte", [17, 23, 57])
def test_a_batch_whose_ends_lie_still_has_its_twins(tmp_path: Path, byte: int) -> None:
    """A flip in the stored CRC, the last offset or the number of records: the other copies of the batch are known by the rest."""
    brokers = healthy(tmp_path)
    brokers.flip(2, HEALTHY.at(40), byte, bit=6)
    assert only(verdict(brokers), "REPLICA_DIFFERS").evidence["held_by"] == [1, 3]


def test_a_header_whose_epoch_nothing_bears_out_is_taken_for_one_batch_on_a_premise(tmp_path: Path) -> None:
    """The epoch field and the records are hit: the checkpoint and the neighbours give these offsets the others' epoch."""
    brokers = healthy(tmp_path)
    target = HEALTHY.at(40)
    noise = bytearray(target.data)
    noise[15] ^= 0x40
    noise[17] ^= 0x01
    noise[100] ^= 0x01
    brokers.overwrite(2, target, bytes(noise))
    differs = only(verdict(brokers), "REPLICA_DIFFERS")
    assert differs.evidence["held_by"] == [1, 3]
    assert differs.confidence.value == "inferred"
    assert len(differs.evidence["premises"]) == 1
    assert "within one leader epoch" not in message(differs)


def test_a_shorter_copy_is_no_good_copy_of_a_batch_it_holds_in_part(tmp_path: Path) -> None:
    """Broker 1's epoch 0 ends within the offsets of the damaged batch, in a smaller batch."""
    wide = history(*COMMON, records=3)
    wide.plain(6)
    short = history(*COMMON, records=3)
    short.plain(3)
    brokers = histories(tmp_path, {1: short, 2: wide}, {1: 15, 2: 15})
    brokers.flip(2, wide.at(12), 100)
    result = verdict(brokers)
    assert only(result, "BATCH_CRC_MISMATCH").evidence["held_by"] == []
    assert only(result, "REPLICA_DIFFERS").evidence["held_by"] == []


def test_an_epoch_the_checkpoint_contradicts_makes_no_fork(tmp_path: Path) -> None:
    """Broker 2's checkpoint gives [12, 18) another epoch than the damaged header, so that nothing tells which it is of."""
    brokers = unclean(tmp_path)
    claim_epochs(brokers, 2, (0, 0), (2, 12))
    brokers.flip(2, OLD.at(12), 100)
    brokers.flip(2, OLD.at(15), 100)
    result = verdict(brokers)
    assert not [finding for finding in result.findings if finding.kind == "UNCLEAN_LOSS"]
    assert only(result, "REPLICA_DIFFERS").evidence["premises"]


@pytest.mark.parametrize(("epochs", "told"), [(((0, 0),), "damage_hides"), (((0, 0), (2, 12)), "agree_again")])
def test_what_an_unclean_election_cost_may_lie_in_a_lost_frame(
    tmp_path: Path, epochs: tuple[tuple[int, int], ...], told: str
) -> None:
    """Broker 2's log is one frame that is lost from 12 on; its checkpoint knows the new epoch, or does not."""
    brokers = unclean(tmp_path)
    brokers.overwrite(2, OLD.at(12), b"\xff" * 30)
    brokers.overwrite(2, OLD.at(15), b"\xff" * 30)
    claim_epochs(brokers, 2, *epochs)
    controlled_by(brokers, *in_sync([2]), change(leader=-1, isr=[]), change(leader=1, isr=[1], leader_recovery_state=1))
    election = only(verdict(brokers), "UNCLEAN_ELECTION")
    assert {"damage_hides", "agree_again"} & set(election.evidence) == {told}
    assert ("cannot be told" in message(election)) == (told == "damage_hides")


def much_overwritten(dropped: Iterable[int] = range(7)) -> Log:
    """Offsets [0, 16), of which a cleaner took some: at first those that one key's value at 7 overwrote."""
    story = History()
    for number in range(8):
        story.put(("a", str(number)))
    return filled(story).left(set(dropped), roll=CLEANED)


def cleaned_and_lost(root: Path, cleaned: Log) -> Brokers:
    """Broker 1 leads epoch 2 from offset 0; brokers 2 and 3 hold what was committed before, as a cleaner left it."""
    brokers = histories(root, {1: history(("new", 2)), 2: cleaned, 3: cleaned}, {1: 1, 2: 16, 3: 16})
    for broker in (2, 3):
        (brokers.log_dir(broker) / "cleaner-offset-checkpoint").write_bytes(write_offset_checkpoint({(TOPIC, 0): CLEANED}))
    return brokers


def test_what_a_cleaner_took_from_the_head_of_the_only_good_copies_is_not_damaged(tmp_path: Path) -> None:
    result = verdict(cleaned_and_lost(tmp_path, much_overwritten()))
    loss = only(result, "UNCLEAN_LOSS")
    assert (offsets(loss), loss.evidence["held_by"], result.totals.bytes_damaged) == ((0, 16), [2, 3], 0)
    assert "not_whole" not in loss.evidence
    assert "damaged" not in message(loss)


@pytest.mark.parametrize("offset", [7, 9, 15])
def test_a_damaged_batch_of_a_cleaned_log_is_damaged_and_no_more(tmp_path: Path, offset: int) -> None:
    """The first batch that the cleaner left, one behind it, and the last of the log."""
    log = much_overwritten()
    brokers = cleaned_and_lost(tmp_path, log)
    for broker in (2, 3):
        brokers.flip(broker, log.at(offset), 65)
    rows = [{"broker": broker, "offset_start": offset, "offset_end": offset + 1} for broker in (2, 3)]
    assert only(verdict(brokers), "UNCLEAN_LOSS").evidence["not_whole"] == rows


def test_an_empty_segment_behind_what_a_cleaner_took_is_not_damaged(tmp_path: Path) -> None:
    """The active segment is empty and begins behind the last batch that the cleaner left."""
    brokers = cleaned_and_lost(tmp_path, much_overwritten([*range(7), 10, 11]))
    for broker in (2, 3):
        for suffix in ("log", "index", "timeindex"):
            brokers.file(broker, CLEANED, suffix).write_bytes(b"")
        write_checkpoint(brokers.log_dir(broker), "replication", CLEANED)
    loss = only(verdict(brokers), "UNCLEAN_LOSS")
    assert (offsets(loss), loss.evidence.get("not_whole")) == ((0, CLEANED), None)
