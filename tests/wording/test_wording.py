"""Messages and advice: every kind has them, any evidence gives a sentence, and no advice endangers the last copy."""

import itertools
import re
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from kafka_forensics import wording
from kafka_forensics.analysis.kinds import CATALOGUE, finding
from kafka_forensics.errors import UsageError
from kafka_forensics.model.findings import Finding, Place, Severity
from tests.wording.templates import EVIDENCE_NAMES, full_evidence

KINDS = list(CATALOGUE)
PLACE = Place("audit", 0, 2, "/evidence/b2", "audit-0/00000000000000000000.log", 100, 260, 300, 370)


def assert_sentence(text: str) -> None:
    assert text.endswith("."), text
    assert text.isprintable(), text
    assert not re.search(r"[{}\[\]<>]", text), f"a template shows through: {text}"
    assert not re.search(r"  | [,;:]| \.\W|\(\)|\bNone\b|[.!?] ", text), f"a hole, or a second sentence: {text}"
    assert re.match(r"[A-Z0-9]|(?:[\w.-]+-\d+|broker \d+|[\w.-]+-\d+ on broker \d+): |data1 and data2 ", text), text


def test_messages_are_one_sentence_each() -> None:
    for kind, place in itertools.product(KINDS, [Place(), Place("audit", 0), Place(broker=2), PLACE]):
        for evidence in ({}, full_evidence(kind), {**full_evidence(kind), "held_by": []}):
            text = wording.message(finding(kind, place, evidence))
            assert_sentence(text)
            assert "audit-0" in text or place.topic is None, kind


def test_full_evidence_gives_longer_messages() -> None:
    for kind in KINDS:
        assert wording.message(finding(kind, PLACE, full_evidence(kind))) != wording.message(finding(kind, PLACE, {})), kind


def test_unknown_values_are_not_printed() -> None:
    """Every name of the evidence is missing once, and is once the only one with a value."""
    for kind in KINDS:
        complete = full_evidence(kind)
        for name in complete:
            for evidence in ({name: complete[name]}, {other: value for other, value in complete.items() if other != name}):
                row = finding(kind, PLACE, evidence)
                assert_sentence(wording.message(row))
                assert not re.search(r"  | [,;:]|\(\)|\bNone\b", wording.advice(row) or ""), (kind, name)


def test_only_gaps_in_committed_offsets_say_so() -> None:
    assert "committed" in wording.message(finding("OFFSET_GAP", PLACE, {"below_high_watermark": True}))
    assert "committed" not in wording.message(finding("OFFSET_GAP", PLACE, {"below_high_watermark": False}))


def test_an_unclean_loss_names_the_last_holder_and_the_truncation() -> None:
    evidence = {
        "held_by": [2],
        "versions": [{"brokers": [1], "epoch": 2, "log_end_offset": 345}, {"brokers": [2], "epoch": 0, "high_watermark": 370}],
        "truncation_offsets": [
            {"follower": 2, "leader": 1, "from_checkpoint": 300, "from_batches": 300},
            {"follower": 3, "leader": 1, "from_checkpoint": 99, "from_batches": 99},
        ],
    }
    loss = finding("UNCLEAN_LOSS", Place("audit", 0, offset_start=300, offset_end=370), evidence)
    assert wording.message(loss) == (
        "audit-0: committed records at offsets 300 to 369 survive only on broker 2, and Kafka will truncate them at offset 300 to"
        " match the new leader (epoch 2 on broker 1 against epoch 0 on broker 2)."
    )
    evidence["truncation_offsets"] = [{"follower": 2, "leader": 1, "from_checkpoint": 370, "from_batches": 300}]
    assert wording.message(finding("UNCLEAN_LOSS", loss.place, evidence)).endswith(
        " will truncate them at offset 300 to match the new leader (epoch 2 on broker 1 against epoch 0 on broker 2); because"
        " of the leader-epoch-checkpoint Kafka does not truncate there, and that copy would permanently differ from the leader."
    )
    assert wording.advice(loss) == (
        "Leave broker 2 stopped until its log directory is copied elsewhere: no other good copy is known. Copy those of the other"
        " brokers, too, before any of them starts. See what each election would lose with `kafka-forensics plan PATH... --topic"
        " audit --partition 0`. Compare the replicas there with `kafka-forensics compare PATH... --topic audit"
        " --partition 0`."
    )


def test_brokers_with_only_some_offsets_are_named_with_them() -> None:
    rows: list[Any] = [
        {"offset_start": 300, "offset_end": 340, "brokers": [1, 2]},
        {"offset_start": 340, "offset_end": 370, "brokers": [1]},
    ]
    place = Place("audit", 0, offset_start=300, offset_end=370)
    loss = finding("UNCLEAN_LOSS", place, {"held_by": [1], "held_ranges": rows})
    assert wording.message(loss).endswith(
        " survive only on brokers 1 and 2 (offsets 300 to 339) and broker 1 (offsets 340 to 369)."
    )
    assert "Leave broker 1 stopped until its log directory is copied elsewhere: no other copy has all" in str(wording.advice(loss))
    rows[1] = {"offset_start": 340, "offset_end": 370, "brokers": []}
    end = finding("HW_BEYOND_LEO", place, {"held_by": [], "held_ranges": rows})
    assert wording.message(end).endswith(
        "; no copy has all of them, and of some good copies are on brokers 1 and 2 (offsets 300 to 339)."
    )
    assert "No known copy has all of it: keep every log directory" in str(wording.advice(end))
    rows[:] = [7, {"brokers": "x"}, {"brokers": [2], "offset_start": []}]
    assert_sentence(wording.message(finding("UNCLEAN_LOSS", place, {"held_by": [1], "held_ranges": rows})))


def test_a_missing_segment_names_its_end_and_the_witness() -> None:
    evidence = {"missing": 70, "witnesses": ["producer snapshot", "time index"], "held_by": []}
    missing = finding("SEGMENT_MISSING", PLACE, evidence)
    assert " has offsets 300 to 369 (by producer snapshot and time index); no good copy is known." in wording.message(missing)
    assert " has offsets 300 to 369, at least (by " in wording.message(missing.with_evidence(at_least=True))
    empty = finding("SEGMENT_MISSING", Place("audit", 0, offset_start=300), {"harmless_if": "the segment was empty"})
    assert wording.message(empty).endswith(" has the segment that began at offset 300, which is harmless if the segment was empty.")


def test_an_election_names_others_that_may_have_cost_the_same() -> None:
    place = Place("audit", 0, offset_start=300, offset_end=370)

    def cost(kind: str, *epochs: int) -> str:
        row = finding("UNCLEAN_ELECTION", place, {"leader_epoch": 4, "cost_finding": kind, "or_in_epochs": list(epochs)})
        return wording.message(row).partition("; ")[2]

    assert cost("UNCLEAN_LOSS") == "it cost offsets 300 to 369."
    assert cost("UNCLEAN_LOSS", 2) == "it, or that in epoch 2, cost offsets 300 to 369."
    assert cost("LRS_LOSS", 2, 3) == "it, or one of those in epochs 2 and 3, cost offsets 300 to 369."
    assert cost("FORK_ABOVE_HW") == "it cost at most offsets 300 to 369, not known to have been committed."


def test_a_loss_names_committed_offsets_of_the_other_version() -> None:
    sides = [
        {"brokers": [1], "epoch": 2, "log_end_offset": 345, "high_watermark": 350},
        {"brokers": [2, 3], "epoch": 0, "log_end_offset": 370, "high_watermark": 370},
        {"brokers": [4], "epoch": 1, "log_end_offset": 310, "high_watermark": 300},
    ]
    for kind in ("UNCLEAN_LOSS", "LRS_LOSS"):
        loss = finding(
            kind, Place("audit", 0, offset_start=300, offset_end=370), {"held_by": [2], "offset": 300, "versions": sides}
        )
        assert wording.message(loss).endswith("; other records are committed at offsets 300 to 344 on broker 1.")


def test_advice_before_elections_is_to_copy_every_log_and_to_plan() -> None:
    kinds = ("UNCLEAN_LOSS", "FORK_BELOW_HW", "LRS_LOSS", "LRS_RISK", "ISR_MEMBER_MISSING_COMMITTED", "SAME_EPOCH_DIVERGENCE")
    evidences: dict[str, dict[str, Any]] = {
        "of all brokers": {},
        "Copy them all": {"held_by": []},
        "Copy those": {"held_by": [2, 3]},
    }
    for kind, (expected, evidence) in itertools.product(kinds, evidences.items()):
        text = wording.advice(finding(kind, Place("audit", 0), evidence)) or ""
        assert expected in text, kind
        plan_step = "See what each election would lose with `kafka-forensics plan PATH... --topic audit --partition 0`."
        assert plan_step in text, kind


def test_a_fork_without_epochs_and_holders_has_unknown_versions() -> None:
    evidence = {"offset": 0, "held_by": [], "versions": [{"brokers": [1], "epoch": -1}, {"brokers": [2, 3], "epoch": -1}]}
    fork = finding("FORK_BELOW_HW", Place("ledger", 0, offset_start=0, offset_end=3), evidence)
    assert wording.message(fork) == (
        "ledger-0: the replicas diverge at offset 0 (broker 1 against brokers 2 and 3), below the high watermark, and differ in"
        " offsets 0 to 2; which version was acknowledged is unknown."
    )
    assert (wording.advice(fork) or "").startswith("No good copy is known: keep every log directory")


def test_the_only_holder_stays_stopped_until_it_is_copied() -> None:
    severities = [Severity.WARNING, Severity.ERROR, Severity.CRITICAL]
    for kind, severity, broker in itertools.product(KINDS, severities, [None, 1, 2]):
        place = replace(PLACE, broker=broker)
        text = wording.advice(finding(kind, place, {**full_evidence(kind), "held_by": [2]}, severity=severity)) or ""
        assert text.startswith("Leave broker 2 stopped until its log directory is copied elsewhere"), kind
        rest = text.split(".", 1)[1]
        assert "To repair" not in rest, kind
        dangerous_step = re.search(
            r"(?:^|[.;:,] )(?:then )?(?:start|restart|delete|remove|move|wipe|truncate|abort)\b", rest, re.IGNORECASE
        )
        assert not dangerous_step, kind


def test_advice_deletes_nothing_and_repairs_need_two_other_holders() -> None:
    holder_lists: tuple[list[Any] | None, ...] = (None, [], [1], [2], [1, 2], [2, 3], ["2", "3"], [1, 3])
    destroys = re.compile(r"(?<!never )\b(?:delete|remove|wipe|format)\b", re.IGNORECASE)
    assert [kind for kind in KINDS if destroys.search(wording.kind_text(kind).advice)] == []
    for kind, severity in itertools.product(KINDS, Severity):
        repaired = []
        for holders, broker in itertools.product(holder_lists, (1, "1", None)):
            evidence = {} if holders is None else {"held_by": holders}
            text = wording.advice(finding(kind, replace(PLACE, broker=broker), evidence, severity=severity)) or ""
            assert not destroys.search(text), kind
            if "To repair" in text:
                repaired.append((holders, broker))
                assert "move (never delete)" in text, kind
        offered = list(itertools.product(([2, 3], ["2", "3"]), (1, "1"))) if severity is not Severity.INFO else []
        assert repaired == (offered if wording.kind_text(kind).repairable else []), kind


def test_a_damaged_batch_is_repaired_but_a_loss_is_not() -> None:
    assert "To repair broker 2, stop it while one of brokers 1 and 3 leads" in (
        wording.advice(finding("BATCH_CRC_MISMATCH", PLACE, {"held_by": [1, 3]})) or ""
    )
    for kind in ("UNCLEAN_LOSS", "FORK_BELOW_HW", "COMMITTED_LOST_EVERYWHERE", "SAME_EPOCH_DIVERGENCE"):
        text = wording.advice(finding(kind, PLACE, {"held_by": [1, 3]})) or ""
        assert text.startswith("Copy the log directories of brokers 1 and 3 elsewhere before any broker of this partition starts.")
        assert "To repair" not in text


def test_findings_above_info_have_advice() -> None:
    bare = [finding(kind, PLACE) for kind in KINDS]
    assert [row.kind for row in bare if row.severity is not Severity.INFO and not wording.advice(row)] == []


def test_advised_commands_can_be_pasted() -> None:
    place = replace(PLACE, topic="a b;rm -rf", log_dir="/evidence of/b2")
    text = wording.advice(finding("BATCH_CRC_MISMATCH", place)) or ""
    assert "dump '/evidence of/b2/audit-0/00000000000000000000.log' --offset 300..369 --explain`" in text
    assert "--topic 'a b;rm -rf' --partition 0`" in text


HOSTILE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([10**4000, -1, 2**63]),
    st.floats(),
    st.text(),
    st.binary(),
    st.sampled_from(["\x1b]0;own\x07", "a\nb", "\u202eevil", "\udc80", "{x}", "{{ 6 * 7 }}", "{% if", "x" * 100_000]),
)
NESTED = st.recursive(
    HOSTILE, lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text() | st.integers(), inner, max_size=9)
)
PLACES = st.builds(
    Place,
    topic=st.none() | st.text(),
    partition=st.none() | st.integers(),
    broker=st.none() | st.integers() | st.text(),
    log_dir=st.none() | st.text(),
    file=st.none() | st.text(),
    byte_start=st.none() | st.integers(),
    byte_end=st.none() | st.integers(),
    offset_start=st.none() | st.integers(),
    offset_end=st.none() | st.integers(),
)


NAMES_IN_PHRASES = ("latest_epoch", "leaders", "line", "not_whole", "ranges_not_compared", "starts")
"""Keys that phrases read from the evidence, besides those in templates."""
ALL_NAMES = sorted({*EVIDENCE_NAMES, *NAMES_IN_PHRASES, *(name for kind in KINDS for name in full_evidence(kind))})


@given(st.sampled_from(KINDS), PLACES, st.dictionaries(st.sampled_from(ALL_NAMES), NESTED), st.sampled_from(Severity))
def test_any_evidence_gives_one_sentence(kind: str, place: Place, evidence: dict[str, Any], severity: Severity) -> None:
    row = Finding(kind, severity, CATALOGUE[kind].confidence, place, evidence)
    text = wording.message(row)
    assert text.isprintable()
    assert text.endswith(".")
    assert len(text) < 10_000
    advice = wording.advice(row)
    assert advice is None or (advice.isprintable() and advice)


@pytest.mark.parametrize("text", ["{{ 6 * 7 }}", "{{ reason }}", "{% if reason %}", "{{ '' }}", "{# #}"])
def test_evidence_is_never_used_as_a_template(text: str) -> None:
    text_shown = wording.message(finding("FILE_UNKNOWN", Place(topic=text, partition=0), {"names": [text]}))
    assert text_shown == f"{text}-0: the directory holds a file of no known kind: {text}."


def test_payload_bytes_are_never_shown() -> None:
    names = {*ALL_NAMES, "payload", "key"}
    evidences = (dict.fromkeys(names, b"secret-payload"), {name: [b"secret-payload", {"key": b"secret-payload"}] for name in names})
    rows = [finding(kind, PLACE, evidence) for kind in KINDS for evidence in evidences]
    assert [row.kind for row in rows if "secret" in wording.message(row) + str(wording.advice(row))] == []


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        ("crc-mismatch", "did you mean BATCH_CRC_MISMATCH?"),
        ("../../errors", "`kafka-forensics explain` lists the kinds"),
        ("\x1b" * 10_000, "`kafka-forensics explain` lists the kinds"),
    ],
)
def test_kinds_in_any_spelling_and_hints_for_unknown_kinds(kind: str, hint: str) -> None:
    assert wording.explain_page(" unclean-loss ") == wording.explain_page("UNCLEAN_LOSS")
    with pytest.raises(UsageError, match="there is no finding kind") as caught:
        wording.explain_page(kind)
    assert caught.value.hint == hint
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("file", ["replication-offset-checkpoint", "audit-0/leader-epoch-checkpoint"])
def test_advice_to_move_a_file_names_the_cost(file: str) -> None:
    evidence = {"reason": "version", "starts": False, "on_start": "directory_offline"}
    row = finding("CHECKPOINT_MALFORMED", Place("audit", 0, 3, "/b3", file), evidence)
    assert "a broker without another log directory does not start" in wording.message(row)
    text = wording.advice(row) or ""
    assert "move this file (never delete it) out of its log directory: without it Kafka " in text
    bare = finding("CHECKPOINT_MALFORMED", row.place, {"reason": "version"})
    assert "start" not in wording.message(bare) + (wording.advice(bare) or "")


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(400, "0 s"), (60_000, "1 min"), (75_000, "1 min 15 s"), (7_265_000, "2 h 1 min"), (180_000_000, "2 d 2 h"), (-1, "unknown")],
)
def test_durations_have_their_two_largest_units(milliseconds: int, text: str) -> None:
    assert wording.duration(milliseconds) == text


@pytest.mark.parametrize(
    ("start", "end", "noun", "text"),
    [
        *((5, 6, "offset", "offset 5"), (5, 10, "offset", "offsets 5 to 9"), (5, None, "byte", "byte 5"), (5, 10, "", "5 to 9")),
        *((5, 6, "", "5"), (5, 5, "", "none"), (5, 4, "byte", "no bytes"), (-1, 5, "offset", ""), (None, 5, "offset", "")),
    ],
)
def test_ranges_name_both_ends(start: int | None, end: int | None, noun: str, text: str) -> None:
    assert wording.offset_range(start, end, noun) == text
