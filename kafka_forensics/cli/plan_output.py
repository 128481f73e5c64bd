"""Plans in every format: a table of candidates with the recommendation, rows, one JSON document, an object a partition."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, Final

from kafka_forensics.cli import plan_step_words as way
from kafka_forensics.cli import plan_words as words
from kafka_forensics.cli.output_words import name
from kafka_forensics.cli.plan_list import order_lines, overview, unseen_lines
from kafka_forensics.cli.rows import markdown, markdown_lines, tsv_lines
from kafka_forensics.cli.safe_text import printable
from kafka_forensics.cli.streams import Destination
from kafka_forensics.evidence.context import ReplicaContext
from kafka_forensics.export import json_document
from kafka_forensics.export.json_document import Shape, json_text
from kafka_forensics.model.results import ScanResult
from kafka_forensics.questions.plan import Planned, Plans
from kafka_forensics.replication.planner import Candidate, Loss, PlanReplica, StartOrder, costs_of
from kafka_forensics.wording import offset_range

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
        yield from words.wrapped(words.title(planned), to.width)
        if shown:
            yield from _candidates(planned, shown, to)
        for line in words.notes(planned, shown, every_follower=elect is not None):
            yield from words.wrapped(line, to.width)
        chosen = _chosen(planned, elect)
        if chosen is None:
            for line in (*words.nobody(planned), *way.unstartable(planned)):
                yield from words.wrapped(line, to.width)
            return
        yield "\n"
        yield from words.wrapped(words.verdict(planned, chosen), to.width)
        yield from _steps(planned, chosen, to.width)


def _steps(planned: Planned, chosen: Candidate, width: int) -> Iterator[str]:
    for number, line in enumerate(way.step_lines(planned, chosen), 1):
        yield from words.wrapped(f"{number}. {line}", width, "   ")
    yield "\n"
    for line in way.commands(planned, chosen):
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
    called = words.labels(planned)
    cutting = [
        follower_plan
        for follower_plan in candidate.followers
        if follower_plan.begins_anew or follower_plan.truncation_offset not in (None, follower_plan.log_end_offset)
    ]
    mark = " *" if candidate.broker == planned.plan.recommended else ""
    losses = [(loss, planned.amount(loss)) for loss in candidate.losses[:_LOSSES_SHOWN]]
    more = [f"{len(candidate.losses) - len(losses)} more"] if len(candidate.losses) > len(losses) else []
    return [
        [called[candidate.broker] + mark],
        [words.election(planned, candidate)],
        [
            f"{called[follower_plan.broker]} {'anew ' if follower_plan.begins_anew else ''}at {follower_plan.truncation_offset}"
            for follower_plan in cutting
        ],
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
        "steps": None if chosen is None else way.steps_object(planned.steps(chosen)),
        "advice": [*words.nobody(planned), *way.unstartable(planned)]
        if chosen is None
        else [words.verdict(planned, chosen), *way.step_lines(planned, chosen)],
        "commands": [] if chosen is None else way.commands(planned, chosen),
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
            {"broker": replica.broker, "offsets": [list(pair) for pair in words.damaged_by(planned, replica.broker)]}
            for replica in planned.given.replicas
            if words.damaged_by(planned, replica.broker)
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
        yield f"\n## {markdown(name(planned.plan.topic, planned.plan.partition))}\n\n{markdown(words.title(planned))}.\n\n"
        lines = [[", ".join(part) for part in _cells(planned, candidate)] for candidate in shown]
        yield from markdown_lines(_HEADS, (dict(zip(_HEADS, line, strict=True)) for line in lines))
        for note in words.notes(planned, shown, every_follower=elect is not None):
            yield f"\n{markdown(note)}\n"
        chosen = _chosen(planned, elect)
        if chosen is None:
            yield from (f"\n{markdown(line)}\n" for line in (*words.nobody(planned), *way.unstartable(planned)))
        else:
            yield f"\n**{markdown(words.verdict(planned, chosen))}**\n\n"
            yield from (f"1. {markdown(line)}\n" for line in way.step_lines(planned, chosen))
            yield "\n```\n"
            yield from (f"{printable(line)}\n" for line in way.commands(planned, chosen))
            yield "```\n"
