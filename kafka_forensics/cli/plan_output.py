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
from kafka_forensics.export.json_values import json_text
from kafka_forensics.export.schema_versions import Shape
from kafka_forensics.model.results import ScanResult
from kafka_forensics.questions.plan import Planned, Plans
from kafka_forensics.replication.planner import Candidate, Loss, PlanReplica, StartOrder, costs_of
from kafka_forensics.wording.offset_words import offset_range

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
    return [one for one in planned.plan.candidates if elect is None or str(one.broker) == elect]


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
    for one in shown:
        for line in zip_longest(*_cells(planned, one), fillvalue=""):
            table.add_row(*map(Text, line))
    console = to.console()
    with console.capture() as page:
        console.print(table)
    yield from (line.rstrip() + "\n" for line in page.get().splitlines())


def _cells(planned: Planned, one: Candidate) -> list[list[str]]:
    """Lines of each cell of a candidate's row."""
    called = words.labels(planned)
    cutting = [each for each in one.followers if each.begins_anew or each.truncation_offset not in (None, each.log_end_offset)]
    mark = " *" if one.broker == planned.plan.recommended else ""
    losses = [(each, planned.amount(each)) for each in one.losses[:_LOSSES_SHOWN]]
    more = [f"{len(one.losses) - len(losses)} more"] if len(one.losses) > len(losses) else []
    return [
        [called[one.broker] + mark],
        [words.election(planned, one)],
        [f"{called[each.broker]} {'anew ' if each.begins_anew else ''}at {each.truncation_offset}" for each in cutting],
        [*(offset_range(each.start, each.end) for each, _ in losses), *more] or ["none"],
        [", ".join(called[broker] for broker in each.held_by) for each, _ in losses],
        ["?" if amount.records is None else str(amount.records) for _, amount in losses],
        ["?" if amount.bytes is None else str(amount.bytes) for _, amount in losses],
        [str(each.committed) for each, _ in losses],
    ]


def _rows(plans: Plans, elect: str | None) -> Iterator[Json]:
    for planned in plans.planned:
        for one in shown_of(planned, elect):
            yield {
                "topic": planned.plan.topic,
                "partition": planned.plan.partition,
                "truncate_by": planned.plan.truncate_by,
                "leader": one.broker,
                **_cost(planned, one),
                "losses": [[each.start, each.end, list(each.held_by)] for each in one.losses],
                "truncation_offsets": {str(each.broker): each.truncation_offset for each in one.followers},
                "checkpoints_disagree": any(each.disagrees for each in one.followers),
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
                "losses": [[each.start, each.end, list(each.held_by)] for each in planned.plan.at_stake],
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
        "candidates": [_candidate_object(planned, one) for one in shown_of(planned, elect)],
        "steps": None if chosen is None else way.steps_object(planned.steps(chosen)),
        "advice": [*words.nobody(planned), *way.unstartable(planned)]
        if chosen is None
        else [words.verdict(planned, chosen), *way.step_lines(planned, chosen)],
        "commands": [] if chosen is None else way.commands(planned, chosen),
        "already_lost": [
            {
                "brokers": list(one.brokers),
                "offset_start": one.start,
                "offset_end": one.end,
                "replaced_end_offset": one.replaced_end,
                "held_by": list(one.held_by),
                "witness": _witness_object(one),
            }
            for one in plan.already_lost
        ],
        "at_stake": [_loss_object(planned, each) for each in plan.at_stake],
        "damaged": [
            {"broker": one.broker, "offsets": [list(pair) for pair in words.damaged_by(planned, one.broker)]}
            for one in planned.given.replicas
            if words.damaged_by(planned, one.broker)
        ],
        "missing_witnesses": [{"kind": one.kind, "broker": one.broker} for one in plan.missing],
        "findings": sorted({one.kind for one in planned.findings}),
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


def _replica_object(one: PlanReplica) -> Json:
    checkpoint = one.checkpoint
    return {
        "broker": one.broker,
        "log_start_offset": one.log_start_offset,
        "log_end_offset": one.log_end_offset if one.end_is_known else None,
        "high_watermark": one.high_watermark,
        "leader_epochs": [[entry.leader_epoch, entry.start_offset] for entry in one.epochs],
        "checkpoint_epochs": None if checkpoint is None else [[entry.leader_epoch, entry.start_offset] for entry in checkpoint],
        "is_live": one.is_live,
        "starts": one.starts,
        "is_absent": one.is_absent,
        "read": "whole" if one.end_is_known and not one.unread else "part",
    }


def _cost(planned: Planned, one: Candidate) -> Json:
    """What an election is, and what it costs, in every data format."""
    return {
        "election": one.election,
        "is_recommended": one.broker == planned.plan.recommended,
        **_amounts(planned, one.losses),
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


def _candidate_object(planned: Planned, one: Candidate) -> Json:
    return {
        "broker": one.broker,
        **_cost(planned, one),
        "own_recovery_drops": one.own_cut,
        "losses": [_loss_object(planned, each) for each in one.losses],
        "followers": [
            {
                "broker": each.broker,
                "log_end_offset": each.log_end_offset,
                "truncation_offset": each.truncation_offset,
                "truncation_offset_by_checkpoint": each.by_checkpoint,
                "truncation_offset_by_batches": each.by_batches,
                "checkpoint_disagrees": each.disagrees,
                "halts_unless_unclean": each.halts,
                "lost": [list(pair) for pair in each.lost],
                "kept_different": [list(pair) for pair in each.kept],
                "below_leaders_start": each.below_leaders_start,
                "begins_anew": each.begins_anew,
            }
            for each in one.followers
        ],
    }


def _loss_object(planned: Planned, one: Loss) -> Json:
    amount = planned.amount(one)
    return {
        "offset_start": one.start,
        "offset_end": one.end,
        "committed_end_offset": one.committed_end if one.committed else None,
        "witness": _witness_object(one),
        "records": amount.records,
        "bytes": amount.bytes,
        "held_by": list(one.held_by),
        "kept_by": list(one.kept_by),
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
        lines = [[", ".join(part) for part in _cells(planned, one)] for one in shown]
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
