"""Plans in every format: a table of candidates with the recommendation, rows, one JSON document, an object a partition."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, Final

from kafka_forensics.cli.outputs import plan_words
from kafka_forensics.cli.outputs.rows import markdown, markdown_lines, table_lines, tsv_lines
from kafka_forensics.cli.outputs.words import name, plural
from kafka_forensics.cli.streams import Destination, printable
from kafka_forensics.evidence.context import ReplicaContext
from kafka_forensics.export import json_document
from kafka_forensics.export.json_document import Shape, json_text
from kafka_forensics.model.findings import Severity
from kafka_forensics.model.results import ScanResult
from kafka_forensics.questions.plan import Planned, Plans
from kafka_forensics.replication.planner import Broker, Candidate, FollowerPlan, Loss, PlanReplica, StartOrder, costs_of
from kafka_forensics.wording import offset_range

# Plans of several partitions as a list: where an election would lose something, and what no copy here can tell.


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
        yield from plan_words.wrapped(line, width)


def _row(planned: Planned) -> list[str]:
    best, worst = planned.recommended, max(planned.plan.candidates, key=_costs, default=None)
    partition = name(planned.plan.topic, planned.plan.partition)
    if best is None or worst is None:
        committed, _, lost = costs_of(planned.plan.at_stake)
        told = [str(lost), str(committed)]
        return [partition, "", "nobody can", *told, "", *told]
    called = plan_words.labels(planned)
    costs = [[called[candidate.broker], str(candidate.at_most), str(candidate.committed)] for candidate in (best, worst)]
    same = [
        candidate.broker
        for candidate in planned.plan.candidates
        if candidate.broker in planned.plan.alike and candidate.election == best.election
    ]
    either = " or ".join(called[broker] for broker in (best.broker, *same))
    return [partition, either, plan_words.election(planned, best), *costs[0][1:], *costs[1]]


def order_lines(plans: Plans) -> Iterator[str]:
    """In which order to start the brokers, which start for all their partitions at once; nothing where it makes no difference."""
    order = plans.start_order
    if order is None or len(order.brokers) < 2:
        return
    listed = ", then ".join(plan_words.brokers([broker]) for broker in order.brokers)
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
        text = f"The {verb} of {plan_words.brokers(brokers)} {whose} not here for {plural(count, 'partition')}"
        yield f"{text}: what only {they} would be lost unseen."
    for broker, count in sorted(plans.not_read.items(), key=str):
        logs = f"the log{'' if count == 1 else 's'} of {plural(count, 'partition')}"
        yield f"Of {plan_words.brokers([broker])} {logs} could not be read: what only it holds would be lost unseen."
    for broker, count in sorted(plans.refused.items(), key=str):
        copies = f"{'copy' if count == 1 else 'copies'} of {plural(count, 'partition')}"
        who = plan_words.capital(plan_words.brokers([broker]))
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


Json = dict[str, Any]

COLUMNS: Final = (
    "topic",
    "partition",
    "truncate_by",
    "leader",
    "election",
    "is_recommended",
    "at_least",
    "at_most",
    "at_most_is_bound",
    "committed",
    "records",
    "bytes",
    "losses",
    "truncation_offsets",
    "checkpoints_disagree",
)
"""Of a row a candidate, in tsv and Markdown; offsets unless named otherwise."""
_LOSSES_SHOWN: Final = 12
"""Losses of one candidate that a table lists."""
_HEADS: Final = ("leader", "election", "cuts", "lost offsets", "held by", "records", "bytes", "committed")
_RIGHT: Final = frozenset({"records", "bytes", "committed"})


def write_plans(plans: Plans, format_name: str, to: Destination, shape: Shape, *, elect: str | None) -> None:
    """Write plans in one of the formats of `options.FORMATS`; `elect` is the one leader asked for."""
    match format_name:
        case "table":
            to.stream.writelines(_pages(plans, to, elect))
        case "tsv":
            to.stream.writelines(tsv_lines(COLUMNS, _rows(plans, elect)))
        case "json":
            to.stream.writelines(_document(plans, shape, elect))
        case "jsonl":
            to.stream.writelines(_lines(plans, shape, elect))
        case "markdown":
            to.stream.writelines(_report(plans, elect))
        case _:
            raise AssertionError(format_name)


def shown_of(planned: Planned, elect: str | None) -> list[Candidate]:
    """The candidates asked for."""
    return [candidate for candidate in planned.plan.candidates if elect is None or str(candidate.broker) == elect]


def _chosen(planned: Planned, elect: str | None) -> Candidate | None:
    """Whose steps are told: the one asked for, else the recommended one."""
    return planned.recommended if elect is None else next(iter(shown_of(planned, elect)), None)


def _pages(plans: Plans, to: Destination, elect: str | None) -> Iterator[str]:
    """The table and the steps of a single partition; of several a line each."""
    if plans.partitions != 1:
        yield from overview(plans, to.width)
        return
    for planned in plans.planned:
        shown = shown_of(planned, elect)
        yield from plan_words.wrapped(plan_words.title(planned), to.width)
        if shown:
            yield from _candidates(planned, shown, to)
        for line in plan_words.notes(planned, shown, every_follower=elect is not None):
            yield from plan_words.wrapped(line, to.width)
        chosen = _chosen(planned, elect)
        if chosen is None:
            for line in (*plan_words.nobody(planned), *plan_words.unstartable(planned)):
                yield from plan_words.wrapped(line, to.width)
            return
        yield "\n"
        yield from plan_words.wrapped(plan_words.verdict(planned, chosen), to.width)
        yield from _steps(planned, chosen, to.width)


def _steps(planned: Planned, chosen: Candidate, width: int) -> Iterator[str]:
    for number, line in enumerate(plan_words.step_lines(planned, chosen), 1):
        yield from plan_words.wrapped(f"{number}. {line}", width, "   ")
    yield "\n"
    for line in plan_words.commands(planned, chosen):
        yield f"  {printable(line)}\n"


def _candidates(planned: Planned, shown: Sequence[Candidate], to: Destination) -> Iterator[str]:
    """A row a candidate, a line in it for each loss and each cut."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False, padding=(0, 2, 0, 0))
    for head in _HEADS:
        table.add_column(Text(head), overflow="fold", justify="right" if head in _RIGHT else "left")
    for candidate in shown:
        for line in zip_longest(*_cells(planned, candidate), fillvalue=""):
            table.add_row(*map(Text, line))
    console = to.console()
    with console.capture() as page:
        console.print(table)
    yield from (line.rstrip() + "\n" for line in page.get().splitlines())


def _cells(planned: Planned, candidate: Candidate) -> list[list[str]]:
    """Lines of each cell of a candidate's row."""
    called = plan_words.labels(planned)
    cutting = [
        f"{called[follower_plan.broker]} {'anew ' if follower_plan.begins_anew else ''}at {follower_plan.truncation_offset}"
        for follower_plan in candidate.followers
        if follower_plan.begins_anew or follower_plan.truncation_offset not in (None, follower_plan.log_end_offset)
    ]
    mark = " *" if candidate.broker == planned.plan.recommended else ""
    losses = [(loss, planned.amount(loss)) for loss in candidate.losses[:_LOSSES_SHOWN]]
    more = [f"{len(candidate.losses) - len(losses)} more"] if len(candidate.losses) > len(losses) else []
    return [
        [called[candidate.broker] + mark],
        [plan_words.election(planned, candidate)],
        cutting,
        [*(offset_range(loss.start, loss.end) for loss, _ in losses), *more] or ["none"],
        [", ".join(called[broker] for broker in loss.held_by) for loss, _ in losses],
        ["?" if amount.records is None else str(amount.records) for _, amount in losses],
        ["?" if amount.bytes is None else str(amount.bytes) for _, amount in losses],
        [str(loss.committed) for loss, _ in losses],
    ]


def _rows(plans: Plans, elect: str | None) -> Iterator[Json]:
    for planned in plans.planned:
        for candidate in shown_of(planned, elect):
            yield {
                "topic": planned.plan.topic,
                "partition": planned.plan.partition,
                "truncate_by": planned.plan.truncate_by,
                "leader": candidate.broker,
                **_cost(planned, candidate),
                "losses": [[loss.start, loss.end, list(loss.held_by)] for loss in candidate.losses],
                "truncation_offsets": {
                    str(follower_plan.broker): follower_plan.truncation_offset for follower_plan in candidate.followers
                },
                "checkpoints_disagree": any(follower_plan.disagrees for follower_plan in candidate.followers),
            }
        if not planned.plan.candidates:
            yield {
                "topic": planned.plan.topic,
                "partition": planned.plan.partition,
                "truncate_by": planned.plan.truncate_by,
                "leader": None,
                "election": "nobody",
                "is_recommended": False,
                **_amounts(planned, planned.plan.at_stake),
                "losses": [[loss.start, loss.end, list(loss.held_by)] for loss in planned.plan.at_stake],
                "truncation_offsets": {},
                "checkpoints_disagree": False,
            }


def plan_object(planned: Planned, elect: str | None) -> Json:
    """One partition's plan."""
    plan, control = planned.plan, planned.given.control
    chosen = _chosen(planned, elect)
    return {
        "topic": plan.topic,
        "partition": plan.partition,
        "truncate_by": plan.truncate_by,
        "controller": None
        if control is None
        else {
            "leader": control.leader,
            "last_leader": control.last_leader,
            "leader_epoch": control.leader_epoch,
            "isr": _listed(control.isr),
            "elr": _listed(control.elr),
            "replica_assignment": _listed(control.assignment),
            "unclean_leader_election_enable": control.unclean_enabled,
        },
        "replicas": _replica_objects(planned),
        "recommended": plan.recommended,
        "loses_alike": list(plan.alike),
        "chosen_by": list(plan.chosen_by),
        "candidates": [_candidate_object(planned, candidate) for candidate in shown_of(planned, elect)],
        "steps": None if chosen is None else plan_words.steps_object(planned.steps(chosen)),
        "advice": [*plan_words.nobody(planned), *plan_words.unstartable(planned)]
        if chosen is None
        else [plan_words.verdict(planned, chosen), *plan_words.step_lines(planned, chosen)],
        "commands": [] if chosen is None else plan_words.commands(planned, chosen),
        "already_lost": [
            {
                "brokers": list(lost.brokers),
                "offset_start": lost.start,
                "offset_end": lost.end,
                "replaced_end_offset": lost.replaced_end,
                "held_by": list(lost.held_by),
                "witness": _witness_object(lost),
            }
            for lost in plan.already_lost
        ],
        "at_stake": [_loss_object(planned, loss) for loss in plan.at_stake],
        "damaged": [
            {"broker": replica.broker, "offsets": [list(pair) for pair in plan_words.damaged_by(planned, replica.broker)]}
            for replica in planned.given.replicas
            if plan_words.damaged_by(planned, replica.broker)
        ],
        "missing_witnesses": [{"kind": missing.kind, "broker": missing.broker} for missing in plan.missing],
        "findings": sorted({finding.kind for finding in planned.findings}),
    }


def _listed(ids: tuple[int, ...] | None) -> list[int] | None:
    return None if ids is None else list(ids)


def _replica_objects(planned: Planned) -> list[Json]:
    """The replicas, those planned with and then those of which nothing could be read."""
    return [*map(_replica_object, planned.given.replicas), *map(_unread_object, planned.not_read)]


def _unread_object(context: ReplicaContext) -> Json:
    nothing = dict.fromkeys(("log_start_offset", "log_end_offset"))
    checkpoint = context.epoch_checkpoint
    return {
        "broker": context.broker,
        **nothing,
        "high_watermark": context.high_watermark,
        "leader_epochs": None,
        "checkpoint_epochs": None if checkpoint is None else [[entry.leader_epoch, entry.start_offset] for entry in checkpoint],
        "is_live": None,
        "starts": None,
        "is_absent": False,
        "read": "none",
    }


def _replica_object(replica: PlanReplica) -> Json:
    checkpoint = replica.checkpoint
    return {
        "broker": replica.broker,
        "log_start_offset": replica.log_start_offset,
        "log_end_offset": replica.log_end_offset if replica.end_is_known else None,
        "high_watermark": replica.high_watermark,
        "leader_epochs": [[entry.leader_epoch, entry.start_offset] for entry in replica.epochs],
        "checkpoint_epochs": None if checkpoint is None else [[entry.leader_epoch, entry.start_offset] for entry in checkpoint],
        "is_live": replica.is_live,
        "starts": replica.starts,
        "is_absent": replica.is_absent,
        "read": "whole" if replica.end_is_known and not replica.unread else "part",
    }


def _cost(planned: Planned, candidate: Candidate) -> Json:
    """What an election is, and what it costs, in every data format."""
    return {
        "election": candidate.election,
        "is_recommended": candidate.broker == planned.plan.recommended,
        **_amounts(planned, candidate.losses),
    }


def _amounts(planned: Planned, losses: Sequence[Loss]) -> Json:
    """What is lost in all."""
    committed, at_least, at_most = costs_of(losses)
    total = planned.total(losses)
    return {
        "at_least": at_least,
        "at_most": at_most,
        "at_most_is_bound": planned.plan.at_most_is_bound,
        "committed": committed,
        "records": total.records,
        "bytes": total.bytes,
    }


def _candidate_object(planned: Planned, candidate: Candidate) -> Json:
    return {
        "broker": candidate.broker,
        **_cost(planned, candidate),
        "own_recovery_drops": candidate.own_cut,
        "losses": [_loss_object(planned, loss) for loss in candidate.losses],
        "followers": [
            {
                "broker": follower_plan.broker,
                "log_end_offset": follower_plan.log_end_offset,
                "truncation_offset": follower_plan.truncation_offset,
                "truncation_offset_by_checkpoint": follower_plan.by_checkpoint,
                "truncation_offset_by_batches": follower_plan.by_batches,
                "checkpoint_disagrees": follower_plan.disagrees,
                "halts_unless_unclean": follower_plan.halts,
                "lost": [list(pair) for pair in follower_plan.lost],
                "kept_different": [list(pair) for pair in follower_plan.kept],
                "below_leaders_start": follower_plan.below_leaders_start,
                "begins_anew": follower_plan.begins_anew,
            }
            for follower_plan in candidate.followers
        ],
    }


def _loss_object(planned: Planned, loss: Loss) -> Json:
    amount = planned.amount(loss)
    return {
        "offset_start": loss.start,
        "offset_end": loss.end,
        "committed_end_offset": loss.committed_end if loss.committed else None,
        "witness": _witness_object(loss),
        "records": amount.records,
        "bytes": amount.bytes,
        "held_by": list(loss.held_by),
        "kept_by": list(loss.kept_by),
    }


def _witness_object(one: Any) -> Json | None:
    witness = one.witness
    if witness is None:
        return None
    return {
        "kind": witness.kind,
        "broker": witness.broker,
        "name": witness.name,
        "end_offset": witness.end_offset,
        "said_end_offset": witness.said,
    }


def _tool(plans: Plans, shape: Shape) -> Json:
    result = plans.result
    assert isinstance(result, ScanResult)
    return {
        "schema_version": shape.version,
        "tool": json_document.tool(result),
        "partitions_planned": plans.partitions,
        "copies_absent": [{"broker": broker, "partitions": count} for broker, count in sorted(plans.absent.items(), key=str)],
        "do_not_start": [{"broker": broker, "partitions": count} for broker, count in sorted(plans.refused.items(), key=str)],
        **shape.not_read([{"broker": broker, "partitions": count} for broker, count in sorted(plans.not_read.items(), key=str)]),
        "controller_unsaid": shape.unsaid(plans.unsaid.items()),
        **shape.start_order(_order_object(plans.start_order)),
    }


def _order_object(order: StartOrder | None) -> Json | None:
    if order is None:
        return None
    against = [
        {
            "topic": one.wish.topic,
            "partition": one.wish.partition,
            "recommended": one.wish.leader,
            "leader": one.leader,
            "committed": one.more[0],
            "at_most": one.more[1],
        }
        for one in order.against
    ]
    return {"brokers": list(order.brokers), "against": against}


def _partition_object(planned: Planned, elect: str | None, shape: Shape) -> Json:
    """A plan in a shape of the schema."""
    told = plan_object(planned, elect)
    missing = [*shape.missing(told["missing_witnesses"])]
    told |= {"replicas": [*shape.replicas(told["replicas"])], "missing_witnesses": missing}
    told |= {"chosen_by": [*shape.reasons(told["chosen_by"])]}
    return told | shape.ordinary(planned.plan.ordinary, planned.plan.ordinary_loss)


def _document(plans: Plans, shape: Shape, elect: str | None) -> Iterator[str]:
    """The JSON document in pieces, a line a partition."""
    assert plans.result is not None
    head = json_text(_tool(plans, shape))
    yield f'{head[:-1]},\n "partitions": ['
    for number, planned in enumerate(plans.planned):
        yield ("," if number else "") + f"\n  {json_text(_partition_object(planned, elect, shape))}"
    gaps = ", ".join(map(json_text, shape.gaps(map(json_document.incomplete_object, plans.result.incomplete))))
    yield f'],\n "incomplete": [{gaps}]}}\n'


def _lines(plans: Plans, shape: Shape, elect: str | None) -> Iterator[str]:
    """An object with its `type` a line: partitions, what could not be read, the summary."""
    assert plans.result is not None
    for planned in plans.planned:
        yield json_text({"type": "partition", **_partition_object(planned, elect, shape)}) + "\n"
    for gap in shape.gaps(map(json_document.incomplete_object, plans.result.incomplete)):
        yield json_text({"type": "incomplete", **gap}) + "\n"
    yield json_text({"type": "summary", **_tool(plans, shape)}) + "\n"


def _report(plans: Plans, elect: str | None) -> Iterator[str]:
    """A section a partition as Markdown: candidates, notes, what to do."""
    yield "# kafka-forensics: plan\n"
    if plans.partitions != 1:
        yield from (f"\n{markdown(line)}\n" for line in (*order_lines(plans), *unseen_lines(plans)))
    for planned in plans.planned:
        shown = shown_of(planned, elect)
        yield f"\n## {markdown(name(planned.plan.topic, planned.plan.partition))}\n\n{markdown(plan_words.title(planned))}.\n\n"
        lines = [[", ".join(part) for part in _cells(planned, candidate)] for candidate in shown]
        yield from markdown_lines(_HEADS, (dict(zip(_HEADS, line, strict=True)) for line in lines))
        for note in plan_words.notes(planned, shown, every_follower=elect is not None):
            yield f"\n{markdown(note)}\n"
        chosen = _chosen(planned, elect)
        if chosen is None:
            yield from (f"\n{markdown(line)}\n" for line in (*plan_words.nobody(planned), *plan_words.unstartable(planned)))
        else:
            yield f"\n**{markdown(plan_words.verdict(planned, chosen))}**\n\n"
            yield from (f"1. {markdown(line)}\n" for line in plan_words.step_lines(planned, chosen))
            yield "\n```\n"
            yield from (f"{printable(line)}\n" for line in plan_words.commands(planned, chosen))
            yield "```\n"
