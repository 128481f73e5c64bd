"""Sentences about a plan: what each election costs, what followers do, whom to elect. All of it is safe to print."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.cli.outputs.words import name
from kafka_forensics.model.amounts import plural
from kafka_forensics.model.constants import WITNESS_TOPICS
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.offset_ranges import Ranges, clipped, counted, holds, normalised, offset_ranges, without
from kafka_forensics.model.safe_text import printable, unquoted
from kafka_forensics.questions.plan import Planned
from kafka_forensics.replication.planner import (
    NO_END,
    Broker,
    Candidate,
    FollowerPlan,
    Loss,
    Missing,
    Plan,
    PlanReplica,
    Witness,
    costs_of,
    truncates_by,
)
from kafka_forensics.replication.small_files import ABSENT
from kafka_forensics.wording import message, offset_range, on_start, repair_advice

ELECTIONS: Final = {
    "leads": "leads now",
    "clean": "clean",
    "elr": "clean (ELR)",
    "last_known_leader": "led last",
    "unclean": "UNCLEAN",
    "unknown": "not known",
}
REGIMES: Final = {
    "epochs": "followers truncate by leader epochs (Kafka 0.11 and later{})",
    "high_watermark": "followers truncate to their high watermarks (before Kafka 0.11{})",
}
_MISSING: Final = {
    "no_controller_log": "no given controllers' log shows who is in sync, and whether there are more replicas",
    "controller_log_damaged": "the given controllers' log is too damaged to show who is in sync, and which replicas exist",
    "controller_log_silent": "the given controllers' log does not show who is in sync for this partition, and which replicas exist",
    "copy_absent": "no copy of {} was given; it may hold more",
    "controller_log_older": "the given controllers' log is older than the records at stake: it does not show who is in sync now",
    "voters_behind": "the voters' copies of the controllers' log end before other copies of this partition: who is in sync "
    "when they start is unknown",
    "not_copied": "{} is not in this copy and may hold more",
    "replica_absent": "{} has no directory of this partition in the log directory given: it would start with an empty log",
    "dead_copy_absent": "{} will not return, and no copy of it was given: records that only it held are lost, and not counted here",
    "copy_not_read": "the log of {} could not be read: its records, and the cost of its election, are unknown",
    "copy_unnamed": "the copy {name} has no node.id in a meta.properties, so its broker is unknown{taken}",
    "no_high_watermark": "{} has no checkpointed high watermark: more of its records may be committed than is proven",
    "no_epoch_checkpoint": "{} has no usable leader-epoch-checkpoint{epochs}",
    "log_not_read": "the log of {} could not be read {unread}: records there count as not held",
    "unknown_bytes": "after the last batch of {} there are bytes that may hold records, at unknown offsets",
    "does_not_start": "{} would not start on this copy, {reason}; it cannot lead",
    "not_live": "{} will not return: it cannot lead, and records that only it holds count as lost",
    "topic_undecided": "several topics have this name, and no file shows which one exists now; the plan is for the one "
    "with most copies",
    "other_topic": "the copy of {} belongs to another topic of this name, or to another cluster; the plan leaves it out",
    "no_topic_id": "the log of {} has no topic id (partition.metadata); the plan assumes that it has one. Without it the broker "
    "sets the log aside when it starts (Kafka 3.7.1 and later), or does not start (3.7.0)",
}
STRAYS: Final = {
    "deleted": "Do not start a broker: the given controllers' log does not have this topic, and brokers before Kafka 3.7 delete "
    "unknown topics within a minute. Look for a newer copy of __cluster_metadata and plan again with it.",
    "set_aside": "Do not start a broker: the given controllers' log does not have this topic, and brokers rename directories of "
    "unknown topics to -stray and stop serving them. Look for a newer copy of __cluster_metadata and plan again with it.",
}
"""What brokers do with a topic that the controllers do not know."""
_CONTRADICTIONS_SHOWN: Final = 5


def labels(planned: Planned) -> dict[Broker, str]:
    """Broker → its name in tables: of a copy's path the shortest end that no other copy has."""
    paths = {replica.broker: str(replica.broker).rstrip("/").split("/") for replica in planned.planner_input.replicas}
    shortest = {}
    for broker, path in paths.items():
        unique = (end for end in range(1, len(path)) if sum(other[-end:] == path[-end:] for other in paths.values()) == 1)
        shortest[broker] = unquoted("/".join(path[-next(unique, len(path)) :]))
    return shortest


def brokers(names: Sequence[Broker]) -> str:
    """`broker 1`, `brokers 1 and 2`, `brokers 1, 2 and 3`."""
    shown = [unquoted(str(broker)) for broker in names]
    if len(shown) == 1:
        return shown[0] if shown[0].startswith("broker") else f"broker {shown[0]}"
    return "brokers " + ", ".join(shown[:-1]) + f" and {shown[-1]}"


def capital(words: str) -> str:
    """`words` with a capital first letter."""
    return words[:1].upper() + words[1:]


def witness_words(witness: Witness) -> str:
    """What proves that records were committed."""
    whose = unquoted(str(witness.broker))
    if witness.claimed_end_offset is not None:
        whose += f", whose log ends at {witness.end_offset}"
    offset = witness.end_offset if witness.claimed_end_offset is None else witness.claimed_end_offset
    match witness.kind:
        case "group_offset":
            return f"offset {offset} committed by group {unquoted(witness.name or '')}"
        case "transaction_marker":
            return f"transaction marker {offset - 1} of {unquoted(witness.name or '')} on broker {whose}"
        case "remote_segment":
            return f"remote segment {unquoted(witness.name or '')} copied by broker {whose}"
        case _:
            return f"high watermark {offset} of broker {whose}"


def election(planned: Planned, candidate: Candidate) -> str:
    """The kind of an election, with the reason where a member of the ELR must be forced."""
    given = planned.planner_input
    elr = () if given.control is None or given.control.elr is None else given.control.elr
    crashed = _replica(planned, candidate.broker).crashed
    forced = candidate.election == "unclean" and crashed and given.node(candidate.broker) in elr
    return ELECTIONS[candidate.election] + (" (not stopped cleanly)" if forced else "")


def title(planned: Planned) -> str:
    """The partition, how its followers truncate, and the last state that a controller's log has."""
    plan, control = planned.plan, planned.planner_input.control
    by = truncates_by(planned.planner_input.replicas)
    reason = ", as requested" if by != plan.truncate_by else "" if by == "epochs" else ": the logs have no leader epochs"
    text = f"{name(plan.topic, plan.partition)}: {REGIMES[plan.truncate_by].format(reason)}"
    if control is not None and control.isr is not None:
        leader = "none" if control.leader in (None, -1) else str(control.leader)
        text += f"; leader {leader} in epoch {control.leader_epoch}, ISR {_ids(control.isr)}"
        text += f", ELR {_ids(control.elr)}" if control.elr else ""
        text += "" if control.assignment is None else f", replicas {_ids(control.assignment)}"
    return text


def _ids(ids: Iterable[int]) -> str:
    return ", ".join(map(str, ids)) or "empty"


def loss_words(planned: Planned, loss: Loss) -> str:
    """One loss: `70 records at offsets 300 to 369, on broker 2 alone, all proven committed (…)`."""
    amount = planned.amount(loss)
    records = "" if amount.records is None else plural(amount.records, "record") + " at "
    suffix = " alone" if len(loss.held_by) == 1 else ""
    damaged = [broker for broker in loss.held_by if holds(damaged_offsets_of(planned, broker), loss.start)]
    if damaged:
        suffix += ", damaged there" if len(damaged) == len(loss.held_by) else f" (damaged on {brokers(damaged)})"
    where = f"on {brokers(loss.held_by)}" if loss.held_by else "in remote storage, in no given log"
    if loss.held_by and not holders_on_disk(planned, loss):
        where = f"in remote storage, of the log of {brokers(loss.held_by)}"
    text = f"{records}{offset_range(loss.start, loss.end, 'offset')}, {where}{suffix}"
    if loss.committed and loss.witness is not None:
        part = "all" if loss.committed_end == loss.end else f"those at {offset_range(loss.start, loss.committed_end)}"
        text += f", {part} proven committed ({witness_words(loss.witness)})"
    if loss.kept_by:
        how = "damaged as it is" if set(loss.kept_by) <= set(damaged) else "where no reader sees it"
        text += f"; {brokers(loss.kept_by)} {'keeps' if len(loss.kept_by) == 1 else 'keep'} it {how}"
    return text


def holders_on_disk(planned: Planned, loss: Loss) -> list[Broker]:
    """Brokers that have some offsets of a loss on disk, not only in remote storage."""
    replicas = [replica for broker in loss.held_by if (replica := planned.replica(broker)) is not None]
    return [replica.broker for replica in replicas if replica.local_log_start_offset is None or loss.end > replica.copied_from]


def begins_remotely(planned: Planned, loss: Loss) -> bool:
    """Whether the first offset of a loss exists only in remote storage."""
    return not holders_on_disk(planned, loss._replace(end=loss.start + 1))


def damaged_offsets_of(planned: Planned, broker: Broker) -> Ranges:
    """Offsets of a replica's damaged batches, from its log start on."""
    replica = planned.replica(broker)
    return () if replica is None else clipped(replica.damaged, replica.log_start_offset, NO_END)


def _damage_lines(planned: Planned) -> Iterator[str]:
    for replica in planned.planner_input.replicas:
        ranges = damaged_offsets_of(planned, replica.broker)
        if ranges:
            yield (
                f"Damaged: {brokers([replica.broker])} holds {offset_ranges(ranges)} in batches with a wrong checksum. "
                "They count as held and at risk: unless another copy has them, only this copy can give them back."
            )


def _replica(planned: Planned, broker: Broker) -> PlanReplica:
    """The replica of a broker that has one."""
    return next(replica for replica in planned.planner_input.replicas if replica.broker == broker)


def _bounds(planned: Planned, candidate: Candidate) -> str:
    """A sentence with the bounds of the loss."""
    plan = planned.plan
    more = "" if plan.at_most_is_bound else " in the given copies"
    least = counted_in_words(planned, candidate.losses, candidate.at_least)
    return f"It loses at least {least} (proven committed, and on no copy that stays), at most {candidate.at_most}{more}."


def counted_in_words(planned: Planned, losses: Sequence[Loss], offsets: int) -> str:
    """A number of records, or of offsets unless all are known to be records; different records at one offset all count."""
    total = costs_of(losses)[2]
    if losses and planned.total(losses).records == total:
        return plural(offsets, "record")
    several = counted(normalised((loss.start, loss.end) for loss in losses)) < total
    return plural(offsets, "offset") + (", each version of them counted" if several else "")


def _follower_sentence(planned: Planned, candidate: Candidate, follower_plan: FollowerPlan) -> str:
    """What a replica does under a leader."""
    who, end = f"If {brokers([candidate.broker])} leads, {brokers([follower_plan.broker])}", follower_plan.log_end_offset
    if follower_plan.truncation_offset is None:
        reason = refusal(planned, follower_plan.broker)
        return f"{who} does nothing: it " + ("is not there." if reason is None else f"would not start, {reason}.")
    leader = _replica(planned, candidate.broker)
    cut = follower_plan.truncation_offset
    text = "keeps its log" if cut == end else f"cuts its log from {end} to {cut}"
    if follower_plan.restarts_empty:
        start = "log start" if leader.local_log_start_offset is None else "local log start"
        text = f"starts with an empty log, because the part that it would keep ends below the leader's {start},"
    if follower_plan.halts:
        text = (
            f"halts if unclean elections are off, because its log ends at {end}, beyond the leader's {leader.log_end_offset} "
            f'("log truncation is not allowed"); if they are on, it {text}'
        )
    kept = f", keeps its different records at {offset_ranges(follower_plan.kept, '')} permanently," if follower_plan.kept else ""
    if kept and not without(follower_plan.kept, damaged_offsets_of(planned, candidate.broker)):
        kept = f", keeps its records at {offset_ranges(follower_plan.kept, '')}, which are damaged in the leader's log,"
    text += f"{kept} and copies the leader from {follower_plan.truncation_offset} on"
    if follower_plan.disagrees:
        text += f" (by the checkpoints that brokers load; by the epochs in the batches it would cut at {follower_plan.by_batches})"
    if follower_plan.below_leaders_start:
        text += f"; it deletes {plural(follower_plan.below_leaders_start, 'offset')} below the leader's log start"
    return f"{who} {text}."


def nothing_lost(planned: Planned, candidate: Candidate) -> str:
    """`none`, or `none from 100 on` where followers delete offsets below the leader's log start."""
    if not any(follower.below_leaders_start for follower in candidate.followers):
        return "none"
    return f"none from {_replica(planned, candidate.broker).log_start_offset} on"


def _deleted_already(candidates: Sequence[Candidate]) -> str:
    """A clause for offsets that followers delete because the leader's log starts later than theirs; empty without any."""
    deleted = ((leader.broker, max((plan.below_leaders_start for plan in leader.followers), default=0)) for leader in candidates)
    costs = [f"{plural(count, 'offset')} if {brokers([broker])} leads" for broker, count in deleted if count]
    return f", except offsets that the leader's log has already deleted ({', '.join(costs)})" if costs else ""


def _ordinary_start_lines(planned: Planned) -> Iterator[str]:
    """What an ordinary start of all brokers would lose of the offsets proven committed; nothing where that is not known."""
    plan = planned.plan
    if not plan.ordinary_loss or not plan.ordinary:
        return
    losing = [candidate for candidate in plan.candidates if candidate.broker in plan.ordinary and candidate.committed]
    costs = ", ".join(f"{plural(leader.committed, 'committed offset')} under {brokers([leader.broker])}" for leader in losing)
    if any(candidate.election == "unknown" for candidate in losing):
        yield f"If all brokers are simply started (no file shows who is in sync), one of these may lead: it would lose {costs}."
    elif len(losing) == len(plan.ordinary) == 1:
        yield f"If all brokers are simply started, {brokers([losing[0].broker])} will be elected: that loses {costs}."
    else:
        yield f"If all brokers are simply started, {brokers(plan.ordinary)} may be elected: that would lose {costs}."


def notes_below_table(planned: Planned, shown: Sequence[Candidate], *, every_follower: bool) -> Iterator[str]:
    """Sentences below the table: earlier losses, unusual cuts of followers, damage, missing witnesses, contradictions."""
    for lost in planned.plan.already_lost:
        absent = f" and nothing at {offset_range(lost.replaced_end, lost.end)}" if lost.replaced_end < lost.end else ""
        other = f"other records at {offset_range(lost.start, lost.replaced_end)}" if lost.replaced_end > lost.start else "none"
        offsets = offset_range(lost.start, lost.end, "offset")
        yield (
            f"Already happened: {brokers(lost.brokers)} has lost {offsets}, which were committed "
            f"({witness_words(lost.witness)}), when it truncated to its high watermark or was elected without them: it holds "
            f"{other}{absent}. {capital(brokers(lost.held_by))} {'holds' if len(lost.held_by) == 1 else 'hold'} these records."
        )
    yield from _lost_in_remote_storage(planned)
    for candidate in shown:
        for follower in candidate.followers:
            is_unusual = (
                follower.halts or follower.kept or follower.disagrees or follower.below_leaders_start or follower.restarts_empty
            )
            if every_follower or is_unusual:
                yield _follower_sentence(planned, candidate, follower)
        if candidate.recovery_cut:
            cut = plural(candidate.recovery_cut, "offset")
            yield f"If {brokers([candidate.broker])} leads, recovery has cut {cut} from the end of its log."
        yield from _remote_sentences(candidate)
    yield from _ordinary_start_lines(planned)
    yield from _damage_lines(planned)
    unlisted_directories = ("same_broker", "topic_unknown")
    yield from (_missing_sentence(planned, missing) for missing in planned.plan.missing if missing.kind not in unlisted_directories)
    yield from _node_id_clashes(planned)
    kinds = kinds_with(Trait.CONTRADICTS_WITNESS)
    contradictions = [finding for finding in planned.findings if finding.kind in kinds and not _is_repaired_by_recovery(finding)]
    for finding in contradictions[:_CONTRADICTIONS_SHOWN]:
        yield f"Contradiction: {finding.kind}: {printable(message(finding))}"
    if len(contradictions) > _CONTRADICTIONS_SHOWN:
        yield f"Contradiction: {len(contradictions) - _CONTRADICTIONS_SHOWN} more; scan the same paths to see them."


def _lost_in_remote_storage(planned: Planned) -> Iterator[str]:
    """Losses in remote storage that a scan finds and that are not among the losses of any election."""
    lost_by_elections = normalised((loss.start, loss.end) for candidate in planned.plan.candidates for loss in candidate.losses)
    for finding in planned.findings:
        start, end = finding.place.offset_start or 0, finding.place.offset_end or 0
        if (
            finding.kind == "UNCLEAN_LOSS"
            and finding.evidence.get("in_remote_storage")
            and without(((start, end),), lost_by_elections)
        ):
            yield f"Already happened: {printable(message(finding))}"


def _remote_sentences(candidate: Candidate) -> Iterator[str]:
    """What a leader does with remote segments."""
    who, fate = f"If {brokers([candidate.broker])} leads", candidate.remote
    if fate.unreferenced:
        stays = "stays" if fate.unreferenced == 1 else "stay"
        segments = plural(fate.unreferenced, "remote segment")
        yield f"{who}, {segments} that its log does not have {stays} in the remote store, and no reader gets them."
    if fate.expired:
        yield f"{who}, it deletes {plural(fate.expired, 'remote segment')} below its log start."
    if fate.forgotten:
        yield f"{who}, it deletes {plural(fate.forgotten, 'remote segment')}, because it has no epoch as old as theirs."


def _is_repaired_by_recovery(finding: Finding) -> bool:
    """Whether recovery restores all entries of the missing leader-epoch-checkpoint that a finding is about from the batches."""
    epochs = finding.evidence.get("epochs_after_start")
    return bool(epochs) and epochs == finding.evidence.get("batches")


def _missing_sentence(planned: Planned, missing: Missing) -> str:
    """A missing witness."""
    replica = planned.replica(missing.broker)
    values = {
        "name": unquoted(str(missing.broker)),
        "reason": refusal(planned, missing.broker) if missing.kind == "does_not_start" else None,
        "taken": _presumed_broker(planned, missing.broker) if missing.kind == "copy_unnamed" else None,
        "unread": "" if replica is None else _unread_offsets(replica),
        "epochs": "" if replica is None else _epochs_loaded(replica),
    }
    text = _MISSING[missing.kind].format("" if missing.broker is None else brokers([missing.broker]), **values)
    return f"Missing: {text}."


def _epochs_loaded(replica: PlanReplica) -> str:
    """Which leader epochs a broker without a usable checkpoint loads as it starts."""
    if not (replica.starts and replica.is_live):
        return ""
    if replica.epochs_without_checkpoint:
        return ": " + ("its recovery rebuilds" if replica.crashed else "it takes") + " its epochs from the batches"
    return ": it starts without leader epochs"


def _node_id_clashes(planned: Planned) -> Iterator[str]:
    """A sentence for each broker with several copies: it can start on only one of them."""
    copies: dict[Broker, list[Broker]] = {}
    for missing in planned.plan.missing:
        if missing.kind == "same_broker" and missing.broker is not None:
            copies.setdefault(planned.planner_input.node(missing.broker), []).append(missing.broker)
    for node, clashing in copies.items():
        listed = " and ".join(unquoted(str(broker)) for broker in clashing)
        yield (
            f"Several copies of one broker (NODE_ID_CLASH): {listed} all belong to {brokers([node])}, which can start on only one "
            "of them. Plan again without the others: here each copy counts as a separate broker."
        )


def _unread_offsets(replica: PlanReplica) -> str:
    inside = f"at {offset_ranges(replica.unread)}" if replica.unread else ""
    return " and ".join(filter(None, (inside, "" if replica.end_is_known else "to its end")))


def _presumed_broker(planned: Planned, broker: Broker | None) -> str:
    """Whose copy an unnamed one may be, and how to name it."""
    given = planned.planner_input
    if broker in given.guessed:
        node = given.nodes[broker]
        return f"; the plan assumes broker {node}, which has no other copy here: if that is right, give it as {node}=PATH"
    absent = ", ".join(map(str, given.absent))
    return ": give it as ID=PATH" + (f", with ID one of {absent}" if absent else "")


def refusal(planned: Planned, broker: Broker | None) -> str | None:
    """Why a broker would not start on its copy; None if it would start."""
    replica = planned.replica(broker)
    return None if replica is None or replica.refused_at is None else f"because its start fails at {unquoted(replica.refused_at)}"


def no_leader_sentences(planned: Planned) -> Iterator[str]:
    """The recommendation where no replica can lead."""
    if planned.salvage is not None:
        yield _salvage_sentence(planned)
    yield (
        "No replica can lead with these copies." if planned.plan.strays is None else "The controllers' log does not have its topic."
    )
    if planned.plan.at_stake:
        committed, _, total = costs_of(planned.plan.at_stake)
        amount = counted_in_words(planned, planned.plan.at_stake, total)
        yield f"All their records are at stake: {amount}, {committed} of them proven committed."


def _salvage_sentence(planned: Planned) -> str:
    """The recommendation of a salvage where that loses less than any election."""
    losses = () if planned.salvage is None else planned.salvage.losses
    committed, _, lost = costs_of(losses)
    costs = f"{plural(lost, 'offset')}, {committed} of them proven committed" if losses else "nothing"
    return f"Recommended: salvage, which joins what the copies hold and loses {costs}."


def recommendation(planned: Planned, candidate: Candidate) -> str:
    """The recommendation, or the cost of the election that --elect names."""
    best = candidate.broker == planned.plan.recommended
    who = brokers([candidate.broker])
    some = (
        " of those that would start"
        if any(replica.is_live and not replica.starts for replica in planned.planner_input.replicas)
        else ""
    )
    if best and planned.salvage is not None:
        return f"{_salvage_sentence(planned)} The best election loses {plural(candidate.at_most, 'offset')}."
    instead = "salvage" if planned.salvage is not None else unquoted(str(planned.plan.recommended))
    lead = f"Recommended{some}: {who}" if best else f"Requested: {who} (recommended: {instead})"
    if planned.plan.contested_by is not None:
        lead = f"The best leader is unknown; by these high watermarks: {who}" if best else f"Requested: {who}"
    damage = _damage_of_leader(planned, candidate)
    if not candidate.losses:
        equally_good = sorted(planned.plan.equally_good, key=str) if best else []
        others = f"; {brokers(equally_good)} would lose nothing either" if equally_good else ""
        if planned.needs(candidate).any_order:
            any_order = "" if planned.held_by_no_copy else ": any order of starts is safe"
            others = f", whichever broker leads{_deleted_already(planned.plan.candidates)}{any_order}"
        else:
            others = _deleted_already([candidate]) + others
        unknown = any(missing.kind == "unknown_bytes" for missing in planned.plan.missing)
        subject = "Nothing that could be read of the copies" if unknown else "Nothing that the copies hold"
        segments = plural(candidate.remote.deleted, "remote segment")
        deletes = f" As the leader it deletes {segments}." if candidate.remote.deleted and planned.plan.matters else ""
        lost = planned.held_by_no_copy
        held_by_no_copy = f" Committed, but in no given copy: {offset_ranges(lost)}." if lost else ""
        return f"{lead}. {subject} would be lost{others}.{held_by_no_copy}{deletes}{damage}"
    costs = "; ".join(loss_words(planned, loss) for loss in candidate.losses[:4])
    rest = f"; and {len(candidate.losses) - 4} more ranges" if len(candidate.losses) > 4 else ""
    reason = _reason_for_best(planned, candidate) if best else ""
    is_recoverable = planned.plan.topic not in WITNESS_TOPICS and any(holders_on_disk(planned, loss) for loss in candidate.losses)
    recover = " `recover` writes these records to a file, for you to produce them again." if is_recoverable else ""
    doubt = _doubt(planned.plan) if best else ""
    return f"{lead}{reason}: {costs}{rest}. {_bounds(planned, candidate)}{recover}{doubt}{damage}"


def _reason_for_best(planned: Planned, candidate: Candidate) -> str:
    """Why an election is recommended."""
    equally_good, candidates = planned.plan.equally_good, planned.plan.candidates
    if len(candidates) == 1:
        return ", the only one that can lead"
    if len(equally_good) == len(candidates) - 1:
        return ", but every election loses as much"
    is_fewest = candidate.at_most == min(other.at_most for other in candidates)
    least = ", which loses least" + ("" if is_fewest else " of what is proven committed")
    return least + (f", as {brokers(sorted(equally_good, key=str))} would" if equally_good else "")


def _doubt(plan: Plan) -> str:
    """A caveat where a replica's missing high watermark might change the recommendation."""
    if plan.contested_by is None:
        return ""
    silent = brokers(plan.without_high_watermark)
    less = f"electing {brokers([plan.contested_by])} would lose less"
    return f" No high watermark shows what {silent} committed: if it committed everything, {less}."


def _damage_of_leader(planned: Planned, candidate: Candidate) -> str:
    """What happens to damaged batches in the leader's log."""
    ranges, end = damaged_offsets_of(planned, candidate.broker), _replica(planned, candidate.broker).log_end_offset
    served, cut = clipped(ranges, 0, end), clipped(ranges, end, NO_END)
    text = ""
    if served:
        text += (
            f" Its copy is damaged at {offset_ranges(served)}: it serves these bytes unchanged, consumers stop there "
            "with an error, and followers cannot copy past them."
        )
    if cut:
        text += f" Its copy is damaged at {offset_ranges(cut)}: when it starts, recovery cuts its log at {end}."
    return text


def repair_words(broker: Broker, finding: Finding) -> str:
    """How to repair a small file that keeps a broker from starting or from serving its logs."""
    file = unquoted(str(finding.place.file))
    what = f"{on_start(finding)}. Copy its log directories elsewhere, then {repair_advice(finding)}."
    if finding.evidence.get("reason") == ABSENT:
        return f"Before {brokers([broker])} starts, look for its {file}, which is not in this copy: {printable(what)}"
    return (
        f"Before {brokers([broker])} starts, repair its {file}, which cannot be read: {printable(what)} Copy again and plan again."
    )
