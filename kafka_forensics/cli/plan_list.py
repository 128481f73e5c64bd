"""Plans of several partitions as a list: where an election would lose something, and what no copy here can tell."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final

from kafka_forensics.cli import plan_words as words
from kafka_forensics.cli.output_words import name, plural
from kafka_forensics.cli.plain_table import table_lines
from kafka_forensics.model.findings import Severity
from kafka_forensics.questions.plan import Planned, Plans
from kafka_forensics.replication.planner import Broker, Candidate, FollowerPlan, costs_of

_AGAINST_SHOWN: Final = 4
"""Partitions named that an order is against."""
_UNSAID: Final = {
    "no_controller_log": "No controller's log is here to say for {}",
    "controller_log_damaged": "The controller's log here is too damaged to say for {}",
    "controller_log_silent": "The controller's log here does not say for {}",
    "voters_behind": "The voters' copies of the controller's log end before they could say for {}",
}


def overview(plans: Plans, width: int) -> Iterator[str]:
    """A line a partition where an election would lose something, followers would cut otherwise than by their batches, or nobody can
    lead; then whose copies are not here."""
    heads = ("partition", "elect", "election", "lost", "committed", "worst", "worst lost", "worst committed")
    yield from table_lines(heads, (*heads[3:5], *heads[6:]), [_row(planned) for planned in plans.planned], width)
    for line in (*order_lines(plans), *unseen_lines(plans)):
        yield from words.wrapped(line, width)


def _row(planned: Planned) -> list[str]:
    best, worst = planned.recommended, max(planned.plan.candidates, key=_costs, default=None)
    partition = name(planned.plan.topic, planned.plan.partition)
    if best is None or worst is None:
        committed, _, lost = costs_of(planned.plan.at_stake)
        told = [str(lost), str(committed)]
        return [partition, "", "nobody can", *told, "", *told]
    called = words.labels(planned)
    costs = [[called[candidate.broker], str(candidate.at_most), str(candidate.committed)] for candidate in (best, worst)]
    same = [
        candidate.broker
        for candidate in planned.plan.candidates
        if candidate.broker in planned.plan.alike and candidate.election == best.election
    ]
    either = " or ".join(called[broker] for broker in (best.broker, *same))
    return [partition, either, words.election(planned, best), *costs[0][1:], *costs[1]]


def order_lines(plans: Plans) -> Iterator[str]:
    """In which order to start the brokers, which start for all their partitions at once; nothing where it makes no difference."""
    order = plans.start_order
    if order is None or len(order.brokers) < 2:
        return
    listed = ", then ".join(words.brokers([broker]) for broker in order.brokers)
    lead = "A broker starts for all its partitions at once"
    each = "each when those before it lead what they can"
    if not order.against:
        yield f"{lead}. Start {listed}, {each}: so every partition comes to lose as little as it can."
    else:
        against = ", ".join(
            f"{name(one.wish.topic, one.wish.partition)} ({one.wish.leader} is better, {one.leader} leads)"
            for one in order.against[:_AGAINST_SHOWN]
        )
        rest = len(order.against) - _AGAINST_SHOWN
        committed, lost = (sum(one.more[at] for one in order.against) for at in (0, 1))
        yield (
            f"{lead}, and no order serves all of these. Least is lost if you start {listed}, {each}. "
            f"{plural(len(order.against), 'partition')} would then lose {plural(lost, 'offset')} more than in the best order for "
            f"{'it' if len(order.against) == 1 else 'each'}, {committed} of them proven committed: {against}"
            + (f" and {plural(rest, 'other')}." if rest > 0 else ".")
        )
    yield "Copy what would be lost before any broker starts; who has to be kept down or forced is in the plan of each partition."


def _costs(candidate: Candidate) -> tuple[int, int]:
    return candidate.committed, candidate.at_most


def unseen_lines(plans: Plans) -> Iterator[str]:
    """Whose copies are not here, a sentence for brokers that lack as many; who would not start; where no controller says whether
    there are more replicas."""
    lacking: defaultdict[int, list[Broker]] = defaultdict(list)
    for broker, count in sorted(plans.absent.items(), key=str):
        lacking[count].append(broker)
    for count, brokers in sorted(lacking.items(), reverse=True):
        verb, whose = ("copy", "is") if len(brokers) == 1 else ("copies", "are")
        they = "it holds" if len(brokers) == 1 else "they hold"
        text = f"The {verb} of {words.brokers(brokers)} {whose} not here for {plural(count, 'partition')}"
        yield f"{text}: what only {they} would be lost unseen."
    for broker, count in sorted(plans.not_read.items(), key=str):
        logs = f"the log{'' if count == 1 else 's'} of {plural(count, 'partition')}"
        yield f"Of {words.brokers([broker])} {logs} could not be read: what only it holds would be lost unseen."
    for broker, count in sorted(plans.refused.items(), key=str):
        copies = f"{'copy' if count == 1 else 'copies'} of {plural(count, 'partition')}"
        who = words.capital(words.brokers([broker]))
        yield f"{who} would not start on its {copies}: what it would do, once that is mended, is not planned."
    for kind, count in plans.unsaid.items():
        yield f"{_UNSAID[kind].format(plural(count, 'partition'))} whether there are further replicas, which may hold more."


def _scan_found(plans: Plans) -> str:
    """What the scan says all the same, of log directories that hold no partition any more."""
    findings = () if plans.result is None else plans.result.findings
    kinds = Counter(finding.kind for finding in findings if finding.severity is not Severity.INFO)
    listed = ", ".join(f"{kind} ({count})" if count > 1 else kind for kind, count in kinds.most_common())
    return f"; `kafka-forensics scan` tells of {listed}" if listed else ""


def summary_line(plans: Plans) -> str:
    """What is said on stderr at the end."""
    if not plans.partitions and plans.by_raft:
        why = "the leader of __cluster_metadata is elected by the controllers among themselves"
        return f"nothing to plan: {why}{_scan_found(plans)}"
    if not plans.partitions:
        return f"nothing to plan: no partition was found, or none is asked for{_scan_found(plans)}"
    return f"{plural(plans.partitions, 'partition')}: {'; '.join(_summary(plans))}"


def _summary(plans: Plans) -> Iterator[str]:
    """The clauses of the last line: what is at stake, else that nothing is; and what else is to be known."""
    alone = plans.partitions == 1
    at_stake = list(_at_stake(plans.planned, alone=alone))
    yield from at_stake or [_nothing_lost(plans)]
    odd = sum(any(follower.disagrees for follower in _followers(planned)) for planned in plans.planned)
    if odd:
        yield "checkpoints and batches disagree where to cut" + ("" if alone else f" in {odd}")
    if not alone and plans.planned:
        yield "with --topic and --partition, one is shown in full"


def _at_stake(every: list[Planned], *, alone: bool) -> Iterator[str]:
    costly = sum(any(candidate.losses for candidate in planned.plan.candidates) for planned in every)
    strays = sum(planned.plan.strays is not None for planned in every)
    leaderless = sum(not planned.plan.candidates for planned in every) - strays
    if costly:
        yield "an election could lose records" + ("" if alone else f" of {costly}")
    for count, why in ((strays, "the controller's log does not know"), (leaderless, "nobody can lead")):
        if count:
            which, they = "it" if alone else str(count), "it holds" if count == 1 else "they hold"
            yield f"{why} {which}, so that all {they} is at stake"


def _nothing_lost(plans: Plans) -> str:
    no_election = "no election" + (" of a broker that would start" if plans.refused else "")
    in_part = " that the copies here hold" if plans.absent or plans.unsaid or plans.not_read else ""
    if any(missing.kind == "unknown_bytes" for planned in plans.planned for missing in planned.plan.missing):
        in_part = " that could be read of the copies here"
    return f"{no_election} would lose anything{in_part}"


def _followers(planned: Planned) -> Iterator[FollowerPlan]:
    return (follower for candidate in planned.plan.candidates for follower in candidate.followers)
