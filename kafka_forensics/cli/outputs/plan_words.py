"""A plan in words: what each election costs, what followers do, whom to elect. All of it safe to print."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.cli.outputs.words import name
from kafka_forensics.cli.streams import printable
from kafka_forensics.model.amounts import plural
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.offset_ranges import Ranges, clipped, counted, holds, normalised, without
from kafka_forensics.questions.plan import Planned
from kafka_forensics.replication.planner import (
    NO_END,
    Broker,
    Candidate,
    FollowerPlan,
    Loss,
    Missing,
    Plan,
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
    "last-known-leader": "led last",
    "unclean": "UNCLEAN",
    "unknown": "not known",
}
REGIMES: Final = {
    "epochs": "followers truncate by leader epochs (Kafka 0.11 and later{})",
    "high-watermark": "followers truncate to their high watermarks (before Kafka 0.11{})",
}
_MISSING: Final = {
    "no_controller_log": "no controller's log is here to say who is in sync, and whether there are further replicas",
    "controller_log_damaged": "a controller's log is here, but too damaged to say who is in sync, and what replicas there are",
    "controller_log_silent": "the controller's log here does not say of this partition who is in sync, and what replicas there are",
    "copy_absent": "the copy of {} is not here, and may hold more",
    "controller_log_older": "the controller's log here is older than the records at stake: who is in sync now, it does not say",
    "voters_behind": "the voters' copies of the controller's log end before what others hold of this partition: who is in sync "
    "when they start is not known",
    "not_copied": "cannot tell: {} is not in this copy, and may hold more",
    "replica_absent": "{} has no directory of this partition in the log directory given: it would start with an empty log",
    "dead_copy_absent": "{} will not come back, and no copy of it is here: what only it held is lost unseen",
    "copy_not_read": "nothing of the log of {} could be read: what it holds, and what its election would cost, is not known",
    "copy_unnamed": "the copy {name} does not say whose it is (no node.id in a meta.properties){taken}",
    "no_high_watermark": "{} has no checkpointed high watermark: more of its records may be committed than is proven",
    "no_epoch_checkpoint": "{} has no leader-epoch-checkpoint that can be used{epochs}",
    "log_not_read": "the log of {} could not be read {unread}: what stands there counts as not held",
    "unknown_bytes": "behind the last batch of {} lie bytes that may hold records, and nothing tells their offsets",
    "does_not_start": "{} would not start on this copy, {reason}; it cannot lead",
    "not_live": "{} will not come back: it cannot lead, and what only it holds counts as lost",
    "topic_undecided": "nothing says which topic of this name is the present one; planned is one of which most copies are here",
    "other_topic": "the copy of {} is of another topic of this name, or of another cluster, and is left out",
    "no_topic_id": "the log of {} has no topic id (partition.metadata): planned is as if it had one; without it the broker "
    "sets the log aside as it starts (Kafka 3.7.1 and later), or does not start (3.7.0)",
}
STRAYS: Final = {
    "deleted": "Do not start a broker: the controller's log here does not know this topic, and brokers before Kafka 3.7 delete "
    "what it does not know within a minute. Look for a newer copy of __cluster_metadata and plan again with it.",
    "set_aside": "Do not start a broker: the controller's log here does not know this topic, and brokers rename what it does "
    "not know to -stray and serve it no more. Look for a newer copy of __cluster_metadata and plan again with it.",
}
"""What comes of a topic that the controllers do not know."""
CONTRADICTIONS_SHOWN: Final = 5


def ranges_words(ranges: Ranges) -> str:
    """The first few of a set of offsets."""
    shown = ", ".join(offset_range(*offsets) for offsets in ranges[:3])
    return shown + (f" and {len(ranges) - 3} more ranges" if len(ranges) > 3 else "")


def offsets_words(ranges: Ranges) -> str:
    """The first few of a set of offsets, called that: `offset 5`, `offsets 0 to 2, 7 and 3 more ranges`."""
    single = len(ranges) == 1 and ranges[0][1] - ranges[0][0] == 1
    return f"{'offset' if single else 'offsets'} {ranges_words(ranges)}"


def labels(planned: Planned) -> dict[Broker, str]:
    """Brokers as tables call them: a copy that is named by its path by as much of the end of it as tells it apart."""
    names = [replica.broker for replica in planned.given.replicas]
    parts = {broker: str(broker).rstrip("/").split("/") for broker in names}
    shortest = {}
    for broker in names:
        ends = range(1, len(parts[broker]) + 1)
        alone = (end for end in ends if sum(part[-end:] == parts[broker][-end:] for part in parts.values()) == 1)
        end = next(alone, len(parts[broker]))
        shortest[broker] = printable("/".join(parts[broker][-end:]))
    return shortest


def brokers(names: Sequence[Broker]) -> str:
    """`broker 1`, `brokers 1 and 2`, `brokers 1, 2 and 3`."""
    shown = [printable(str(broker)) for broker in names]
    if len(shown) == 1:
        return shown[0] if shown[0].startswith("broker") else f"broker {shown[0]}"
    return "brokers " + ", ".join(shown[:-1]) + f" and {shown[-1]}"


def capital(words: str) -> str:
    """`words` as the beginning of a sentence; names within them stay as they are."""
    return words[:1].upper() + words[1:]


def witness_words(witness: Witness) -> str:
    """Who says that something was committed."""
    whose = printable(str(witness.broker))
    if witness.said is not None:
        whose += f", whose log ends at {witness.end_offset}"
    offset = witness.end_offset if witness.said is None else witness.said
    match witness.kind:
        case "group_offset":
            return f"offset {offset} committed by group {printable(witness.name or '')}"
        case "transaction_marker":
            return f"transaction marker {offset - 1} of {printable(witness.name or '')} on broker {whose}"
        case "remote_segment":
            return f"remote segment {printable(witness.name or '')} copied by broker {whose}"
        case _:
            return f"high watermark {offset} of broker {whose}"


def election(planned: Planned, candidate: Candidate) -> str:
    """How an election is called, with the reason where a member of the ELR must be forced."""
    given = planned.given
    crashed = any(replica.crashed for replica in given.replicas if replica.broker == candidate.broker)
    elr = () if given.control is None or given.control.elr is None else given.control.elr
    forced = candidate.election == "unclean" and crashed and given.node(candidate.broker) in elr
    return ELECTIONS[candidate.election] + (" (not stopped cleanly)" if forced else "")


def title(planned: Planned) -> str:
    """The partition, how its followers truncate, and what the controller last said."""
    plan, control = planned.plan, planned.given.control
    by = truncates_by(planned.given.replicas)
    reason = ", as was asked for" if by != plan.truncate_by else "" if by == "epochs" else ": the logs know no leader epochs"
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
    """What one loss is: `70 records at offsets 300 to 369, on broker 2 alone, all proven committed (…)`."""
    amount = planned.amount(loss)
    many = "" if amount.records is None else plural(amount.records, "record") + " at "
    alone = " alone" if len(loss.held_by) == 1 else ""
    damaged = [broker for broker in loss.held_by if holds(damaged_by(planned, broker), loss.start)]
    if damaged:
        alone += ", damaged there" if len(damaged) == len(loss.held_by) else f" (damaged on {brokers(damaged)})"
    where = f"on {brokers(loss.held_by)}" if loss.held_by else "in remote storage, of no log here"
    if loss.held_by and not holders_on_disk(planned, loss):
        where = f"in remote storage, of the log of {brokers(loss.held_by)}"
    text = f"{many}{offsets_words(((loss.start, loss.end),))}, {where}{alone}"
    if loss.committed and loss.witness is not None:
        part = "all" if loss.committed_end == loss.end else f"those at {offset_range(loss.start, loss.committed_end)}"
        text += f", {part} proven committed ({witness_words(loss.witness)})"
    if loss.kept_by:
        how = "damaged as it is" if set(loss.kept_by) <= set(damaged) else "where no reader sees it"
        text += f"; {brokers(loss.kept_by)} {'keeps' if len(loss.kept_by) == 1 else 'keep'} it {how}"
    return text


def holders_on_disk(planned: Planned, loss: Loss) -> list[Broker]:
    """Those of its holders who have some of a loss on a disk; nobody has where it is in remote storage alone."""
    replicas = [replica for broker in loss.held_by if (replica := planned.replica(broker)) is not None]
    return [replica.broker for replica in replicas if replica.local_log_start_offset is None or loss.end > replica.copied_from]


def begins_remotely(planned: Planned, loss: Loss) -> bool:
    """Whether nobody has the first offset of a loss on a disk."""
    return not holders_on_disk(planned, loss._replace(end=loss.start + 1))


def damaged_by(planned: Planned, broker: Broker) -> Ranges:
    """Offsets of a replica's batches that are damaged, from its log start on."""
    replica = planned.replica(broker)
    return () if replica is None else clipped(replica.damaged, replica.log_start_offset, NO_END)


def damage_lines(planned: Planned) -> Iterator[str]:
    """A sentence for each replica that holds damaged batches."""
    for replica in planned.given.replicas:
        ranges = damaged_by(planned, replica.broker)
        if ranges:
            yield (
                f"Damaged: {brokers([replica.broker])} holds {offsets_words(ranges)} in batches whose bytes are not what was "
                "written. They count as held and as at risk: what can be saved of them is in that copy, unless another has them."
            )


def bounds(planned: Planned, candidate: Candidate) -> str:
    """The loss with its bounds, a sentence."""
    plan = planned.plan
    more = "" if plan.at_most_is_bound else " of the copies that are here"
    least = counted_in_words(planned, candidate.losses, candidate.at_least)
    return f"Lost are at least {least} (proven committed, and on no copy that stays), at most {candidate.at_most}{more}."


def counted_in_words(planned: Planned, losses: Sequence[Loss], offsets: int) -> str:
    """An amount of what is lost, each version counted: records, or offsets where these are not all records, or are not known."""
    dense = planned.total(losses).records == costs_of(losses)[2]
    if dense and losses:
        return plural(offsets, "record")
    several = counted(normalised((loss.start, loss.end) for loss in losses)) < costs_of(losses)[2]
    return plural(offsets, "offset") + (", each version of them counted" if several else "")


def follower_sentence(planned: Planned, candidate: Candidate, follower_plan: FollowerPlan) -> str:
    """What a replica does under a leader."""
    who, end = f"If {brokers([candidate.broker])} leads, {brokers([follower_plan.broker])}", follower_plan.log_end_offset
    if follower_plan.truncation_offset is None:
        reason = refusal(planned, follower_plan.broker)
        return f"{who} does nothing: it " + ("is not there." if reason is None else f"would not start, {reason}.")
    leader = next(replica for replica in planned.given.replicas if replica.broker == candidate.broker)
    cut = follower_plan.truncation_offset
    text = "keeps its log" if cut == end else f"cuts its log from {end} to {cut}"
    if follower_plan.begins_anew:
        start = "log start" if leader.local_log_start_offset is None else "local log start"
        text = f"begins its log anew, for what it would keep of it ends below the leader's {start},"
    if follower_plan.halts:
        text = (
            f"halts with unclean elections off, for its log ends at {end}, beyond the leader's {leader.log_end_offset} "
            f'("log truncation is not allowed"); with them on it {text}'
        )
    kept = f", with its own records at {ranges_words(follower_plan.kept)} in it for good," if follower_plan.kept else ""
    if kept and not without(follower_plan.kept, damaged_by(planned, candidate.broker)):
        kept = f", with its records at {ranges_words(follower_plan.kept)} in it, which are damaged in the leader's,"
    text += f"{kept} and copies the leader from {follower_plan.truncation_offset} on"
    if follower_plan.disagrees:
        text += f" (by the checkpoints that brokers load; by the epochs in the batches it would cut at {follower_plan.by_batches})"
    if follower_plan.below_leaders_start:
        text += f"; it deletes {plural(follower_plan.below_leaders_start, 'offset')} below the leader's log start"
    return f"{who} {text}."


def nothing_lost(planned: Planned, candidate: Candidate) -> str:
    """`none`, or `none from 100 on` where followers delete what was deleted already from the leader's log."""
    if not any(follower.below_leaders_start for follower in candidate.followers):
        return "none"
    start = next(replica.log_start_offset for replica in planned.given.replicas if replica.broker == candidate.broker)
    return f"none from {start} on"


def _deleted_already(candidates: Sequence[Candidate]) -> str:
    """What followers delete because the leader's log starts later than theirs; nothing where all logs start alike."""
    deleted = {
        candidate.broker: max((follower.below_leaders_start for follower in candidate.followers), default=0)
        for candidate in candidates
    }
    costs = [f"{plural(count, 'offset')} if {brokers([broker])} leads" for broker, count in deleted.items() if count]
    return f", but for what was deleted already from the leader's log ({', '.join(costs)})" if costs else ""


def ordinary_lines(planned: Planned) -> Iterator[str]:
    """What an ordinary start of all brokers would lose of what is proven committed; nothing where that cannot be told."""
    plan = planned.plan
    if not plan.ordinary_loss or not plan.ordinary:
        return
    losing = [candidate for candidate in plan.candidates if candidate.broker in plan.ordinary and candidate.committed]
    costs = ", ".join(f"{plural(one.committed, 'committed offset')} under {brokers([one.broker])}" for one in losing)
    if any(candidate.election == "unknown" for candidate in losing):
        yield f"If all brokers are simply started (who is in sync is on no disk), one of these may lead: it would lose {costs}."
    elif len(losing) == len(plan.ordinary) == 1:
        yield f"If all brokers are simply started, {brokers([losing[0].broker])} will be elected: that loses {costs}."
    else:
        yield f"If all brokers are simply started, {brokers(plan.ordinary)} may be elected: that would lose {costs}."


def notes(planned: Planned, shown: Sequence[Candidate], *, every_follower: bool) -> Iterator[str]:
    """What the table cannot say: what happened before, what followers do that is not plain, which witnesses are missing."""
    for lost in planned.plan.already_lost:
        absent = f" and nothing at {offset_range(lost.replaced_end, lost.end)}" if lost.replaced_end < lost.end else ""
        other = f"other records at {offset_range(lost.start, lost.replaced_end)}" if lost.replaced_end > lost.start else "none"
        yield (
            f"Already happened: {brokers(lost.brokers)} has lost {offsets_words(((lost.start, lost.end),))}, which were committed "
            f"({witness_words(lost.witness)}), by a cut to its own high watermark or by an election while it lacked them: it holds "
            f"{other}{absent}. {capital(brokers(lost.held_by))} {'holds' if len(lost.held_by) == 1 else 'hold'} what was there."
        )
    yield from _lost_in_remote_storage(planned)
    for candidate in shown:
        for follower in candidate.followers:
            plain = not (follower.halts or follower.kept or follower.disagrees)
            if every_follower or not plain or follower.below_leaders_start or follower.begins_anew:
                yield follower_sentence(planned, candidate, follower)
        if candidate.own_cut:
            own = plural(candidate.own_cut, "offset")
            yield f"If {brokers([candidate.broker])} leads, it has lost {own} from the end of its log by recovery as it started."
        yield from _remote_sentences(candidate)
    yield from ordinary_lines(planned)
    yield from damage_lines(planned)
    separate = ("same_broker", "topic_unknown")
    yield from (missing_words(planned, missing) for missing in planned.plan.missing if missing.kind not in separate)
    yield from _clashes(planned)
    contradictions = [
        finding for finding in planned.findings if finding.kind in kinds_with(Trait.CONTRADICTS_WITNESS) and not _recovered(finding)
    ]
    for finding in contradictions[:CONTRADICTIONS_SHOWN]:
        yield f"Contradiction: {finding.kind}: {printable(message(finding))}"
    if len(contradictions) > CONTRADICTIONS_SHOWN:
        yield f"Contradiction: {len(contradictions) - CONTRADICTIONS_SHOWN} more, which a scan of the same paths tells."


def _lost_in_remote_storage(planned: Planned) -> Iterator[str]:
    """Losses that a scan finds and no election here can bring back."""
    told = normalised((loss.start, loss.end) for candidate in planned.plan.candidates for loss in candidate.losses)
    for finding in planned.findings:
        start, end = finding.place.offset_start or 0, finding.place.offset_end or 0
        if finding.kind == "UNCLEAN_LOSS" and finding.evidence.get("in_remote_storage") and without(((start, end),), told):
            yield f"Already happened: {printable(message(finding))}"


def _remote_sentences(candidate: Candidate) -> Iterator[str]:
    """What becomes of remote segments under a leader."""
    who, fate = f"If {brokers([candidate.broker])} leads", candidate.remote
    if fate.unreferenced:
        stays = "stays" if fate.unreferenced == 1 else "stay"
        segments = plural(fate.unreferenced, "remote segment")
        yield f"{who}, {segments} that its log does not have {stays} in the remote store, unread."
    if fate.expired:
        yield f"{who}, it deletes {plural(fate.expired, 'remote segment')} below its log start."
    if fate.forgotten:
        yield f"{who}, it deletes {plural(fate.forgotten, 'remote segment')}, for it knows no epoch as old as theirs."


def _recovered(finding: Finding) -> bool:
    """Whether a finding is of a missing file of epochs, all of which a recovery takes from the batches."""
    known = finding.evidence.get("epochs_after_start")
    return bool(known) and known == finding.evidence.get("batches")


def missing_words(planned: Planned, missing: Missing) -> str:
    """A witness that is not there, as a sentence."""
    reason = refusal(planned, missing.broker) if missing.kind == "does_not_start" else None
    taken = _taken_for(planned, missing.broker) if missing.kind == "copy_unnamed" else None
    epochs, unread = _epochs_known(planned, missing.broker), _unread(planned, missing.broker)
    who, called = "" if missing.broker is None else brokers([missing.broker]), printable(str(missing.broker))
    text = _MISSING[missing.kind].format(who, name=called, reason=reason, taken=taken, unread=unread, epochs=epochs)
    return f"Missing: {text}."


def _epochs_known(planned: Planned, broker: Broker | None) -> str:
    """What a broker without a checkpoint of its epochs knows of them."""
    replica = planned.replica(broker)
    if replica is None or not (replica.starts and replica.is_live):
        return ""
    if replica.epochs_without_checkpoint:
        return ": " + ("its recovery takes epochs" if replica.crashed else "its epochs are taken") + " from the batches"
    return ": it loads none, and knows no leader epochs as it starts"


def _clashes(planned: Planned) -> Iterator[str]:
    """Copies of one broker, which can start on one of them alone."""
    copies: dict[Broker, list[Broker]] = {}
    for missing in planned.plan.missing:
        if missing.kind == "same_broker" and missing.broker is not None:
            copies.setdefault(planned.given.node(missing.broker), []).append(missing.broker)
    for node, names in copies.items():
        listed = " and ".join(printable(str(broker)) for broker in names)
        yield (
            f"Several copies of one broker (NODE_ID_CLASH): {listed} are all of {brokers([node])}, which can start on one of them "
            "alone. Plan again without the others: what they hold counts here as if a broker of its own held it."
        )


def _unread(planned: Planned, broker: Broker | None) -> str:
    """What of a log could not be read."""
    replica = planned.replica(broker)
    inside = "" if replica is None or not replica.unread else f"at {offsets_words(replica.unread)}"
    behind = "" if replica is None or replica.end_is_known else "to its end"
    return " and ".join(part for part in (inside, behind) if part)


def _taken_for(planned: Planned, broker: Broker | None) -> str:
    """Whose an unnamed copy may be, and how to say so."""
    given = planned.given
    if broker in given.guessed:
        node = given.nodes[broker]
        return f"; it is taken for that of broker {node}, of which no other is here: if so, give it as {node}=PATH"
    left = [str(node) for node in given.absent]
    return ": if it is a replica's, give it as ID=PATH" + (f", with ID one of {', '.join(left)}" if left else "")


def refusal(planned: Planned, broker: Broker | None) -> str | None:
    """Why a broker would not start on its copy; None if it would."""
    replica = planned.replica(broker)
    return None if replica is None or replica.refused_at is None else f"for {printable(replica.refused_at)} there ends its start"


def nobody(planned: Planned) -> Iterator[str]:
    """What is said where no replica can lead."""
    if planned.salvage is not None:
        yield salvage_words(planned)
    yield "No replica can lead on these copies." if planned.plan.strays is None else "The controller's log does not know its topic."
    if planned.plan.at_stake:
        committed, _, held = costs_of(planned.plan.at_stake)
        amount = counted_in_words(planned, planned.plan.at_stake, held)
        yield f"At stake is all that they hold: {amount}, {committed} of them proven committed."


def salvage_words(planned: Planned) -> str:
    """That a salvage loses less than any election."""
    losses = () if planned.salvage is None else planned.salvage.losses
    committed, _, lost = costs_of(losses)
    costs = f"{plural(lost, 'offset')}, {committed} of them proven committed" if losses else "nothing"
    return f"Recommended: salvage, which joins what the copies hold and loses {costs}."


def verdict(planned: Planned, candidate: Candidate) -> str:
    """The first sentence of a recommendation, or of the election asked for."""
    best = candidate.broker == planned.plan.recommended
    who = brokers([candidate.broker])
    some = " of those that would start" if any(replica.is_live and not replica.starts for replica in planned.given.replicas) else ""
    if best and planned.salvage is not None:
        return f"{salvage_words(planned)} The best election loses {plural(candidate.at_most, 'offset')}."
    instead = "salvage" if planned.salvage is not None else printable(str(planned.plan.recommended))
    lead = f"Recommended{some}: {who}" if best else f"Asked for: {who} (recommended is {instead})"
    if planned.plan.contested_by is not None:
        lead = f"Whom to elect is not known; by the high watermarks here: {who}" if best else f"Asked for: {who}"
    rotten = _rotten(planned, candidate)
    if not candidate.losses:
        alike = sorted(planned.plan.alike, key=str) if best else []
        whoever = f", nor if {brokers(alike)} led" if alike else ""
        if planned.needs(candidate).any_order:
            any_order = "" if planned.held_by_no_copy else ": any order will do"
            whoever = f", whoever leads{_deleted_already(planned.plan.candidates)}{any_order}"
        else:
            whoever = _deleted_already([candidate]) + whoever
        unknown = any(missing.kind == "unknown_bytes" for missing in planned.plan.missing)
        subject = "Nothing that could be read of the copies" if unknown else "Nothing that the copies hold"
        segments = plural(candidate.remote.deleted, "remote segment")
        deletes = f" As the leader it deletes {segments}." if candidate.remote.deleted and planned.plan.matters else ""
        gone = planned.held_by_no_copy
        nowhere = f" Committed and on no copy here: {offsets_words(gone)}." if gone else ""
        return f"{lead}. {subject} would be lost{whoever}.{nowhere}{deletes}{rotten}"
    costs = "; ".join(loss_words(planned, loss) for loss in candidate.losses[:4])
    rest = f"; and {len(candidate.losses) - 4} more ranges" if len(candidate.losses) > 4 else ""
    least = _least(planned, candidate) if best else ""
    back = " `kafka-forensics recover` takes them from these copies, to be produced again."
    back = "" if not any(holders_on_disk(planned, loss) for loss in candidate.losses) else back
    return f"{lead}{least}: {costs}{rest}. {bounds(planned, candidate)}{back}" + (_doubt(planned.plan) if best else "") + rotten


def _least(planned: Planned, candidate: Candidate) -> str:
    """Why it is the recommended one."""
    alike, candidates = planned.plan.alike, planned.plan.candidates
    if len(candidates) == 1:
        return ", the only one that can lead"
    if len(alike) == len(candidates) - 1:
        return ", though every election loses as much"
    is_fewest = candidate.at_most == min(other.at_most for other in candidates)
    least = ", which loses least" + ("" if is_fewest else " of what is proven committed")
    return least + (f", as {brokers(sorted(alike, key=str))} would" if alike else "")


def _doubt(plan: Plan) -> str:
    """What speaks against a recommendation: proof that may only be missing."""
    if plan.contested_by is None:
        return ""
    silent = brokers(plan.without_high_watermark)
    return f" None says what {silent} committed: if that was all, electing {brokers([plan.contested_by])} would lose less of it."


def wrapped(text: str, width: int, indent: str = "") -> Iterator[str]:
    """A text in lines of at most `width` cells, with words left whole."""
    lines = textwrap.wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    yield from (line + "\n" for line in lines)


def _rotten(planned: Planned, candidate: Candidate) -> str:
    """What becomes of damage in the leader's own log."""
    ranges = damaged_by(planned, candidate.broker)
    end = next(replica.log_end_offset for replica in planned.given.replicas if replica.broker == candidate.broker)
    served, cut = clipped(ranges, 0, end), clipped(ranges, end, NO_END)
    text = ""
    if served:
        text += (
            f" Its own copy is damaged at {offsets_words(served)}: it serves those bytes as they are, so consumers stop "
            "there with an error, and followers that have to copy them get no further."
        )
    if cut:
        text += f" Its own copy is damaged at {offsets_words(cut)}: as it starts, recovery cuts its log at {end}."
    return text


def mend_words(broker: Broker, finding: Finding) -> str:
    """What to do about a small file over which a broker does not start, or does not serve its logs."""
    file = printable(str(finding.place.file))
    what = f"{on_start(finding)}. Copy its log directories elsewhere, then {repair_advice(finding)}."
    if finding.evidence.get("reason") == ABSENT:
        return f"Before {brokers([broker])} starts, look for its {file}, which is not in this copy: {printable(what)}"
    return f"Before {brokers([broker])} starts, mend its {file}, which cannot be read: {printable(what)} Copy again and plan again."
