"""Plans in every format: for a person a table of candidates, the recommendation and the steps."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kafka_forensics.cli.outputs import plan_words
from kafka_forensics.cli.outputs.plan_steps import PlanArguments, steps_of
from kafka_forensics.cli.outputs.plan_text import advice_sentences, candidates_of, is_recommended, page, text_lines
from kafka_forensics.cli.outputs.rows import tsv_lines
from kafka_forensics.cli.outputs.steps import minutes_to_start
from kafka_forensics.cli.streams import Destination
from kafka_forensics.export import json_document
from kafka_forensics.export.json_document import json_line, json_list
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.json_objects import Columns, Json, attribute, attributes, json_text, object_of, times
from kafka_forensics.model.results import SCHEMA_VERSION, ScanResult
from kafka_forensics.questions.plan import Planned, Plans
from kafka_forensics.replication.planner import Broker, Candidate, Loss, Witness, costs_of

COLUMNS: Final = (
    *("topic", "partition", "truncate_by", "leader", "election", "is_recommended", "at_least", "at_most", "at_most_is_bound"),
    *("committed", "records", "bytes", "losses", "truncation_offsets", "checkpoints_disagree"),
)
"""Columns in TSV, a row for each candidate; numbers are offsets unless named otherwise."""
_PLAN: Final = attributes("topic partition truncate_by")
_CONTROLLER: Final = attributes(
    "leader last_leader leader_epoch isr elr replica_assignment=assignment unclean_leader_election_enable=unclean_enabled"
)
_ALREADY_LOST: Final[Columns] = {
    **attributes("brokers offset_start=start offset_end=end replaced_end_offset=replaced_end held_by"),
    "witness": lambda lost: _witness_object(lost.witness),
}
_REPLICA: Final[Columns] = {
    **attributes("broker log_start_offset"),
    "local_log_start_offset": attribute("copied_from"),
    "log_end_offset": lambda replica: replica.log_end_offset if replica.end_is_known else None,
    "high_watermark": attribute("high_watermark"),
    "leader_epochs": lambda replica: _entries(replica.epochs),
    "checkpoint_epochs": lambda replica: _entries(replica.checkpoint),
    **attributes("is_live starts is_absent"),
    "read": lambda replica: "whole" if replica.end_is_known and not replica.unread else "part",
}
_UNREAD: Final[Columns] = {
    **dict.fromkeys(_REPLICA, lambda _: None),
    **attributes("broker high_watermark"),
    "checkpoint_epochs": lambda context: _entries(context.epoch_checkpoint),
    "is_absent": lambda _: False,
    "read": lambda _: "none",
}
_FOLLOWER: Final = attributes(
    "broker log_end_offset truncation_offset truncation_offset_by_checkpoint=by_checkpoint truncation_offset_by_batches=by_batches"
    " checkpoint_disagrees=disagrees halts_unless_unclean=halts lost kept_different=kept below_leaders_start"
    " restarts_empty"
)
_REMOTE_FATE: Final = attributes("remote_segments_unreferenced=unreferenced remote_segments_deleted=deleted")
_SIZE: Final = attributes("records bytes")
_WITNESS: Final = attributes("kind broker name end_offset claimed_end_offset")


def write_plans(plans: Plans, format_name: str, to: Destination, arguments: PlanArguments, *, by: str = "incident") -> None:
    """Write plans in one of the formats of `options.PLAN_FORMATS`; `by` is the option --by of text."""
    elect = arguments.elect
    answer = {
        "text": text_lines(plans, to, arguments, by),
        "tsv": tsv_lines(COLUMNS, _rows(plans, elect)),
        "json": _document(plans, arguments),
        "jsonl": _json_lines(plans, arguments),
        "markdown": page(plans, arguments),
    }
    to.stream.writelines(answer[format_name])


def _rows(plans: Plans, elect: str | None) -> Iterator[Json]:
    for planned in plans.planned:
        candidates = candidates_of(planned, elect) if planned.plan.candidates else [None]
        for candidate in candidates:
            followers = () if candidate is None else candidate.followers
            losses = planned.plan.at_stake if candidate is None else candidate.losses
            yield {
                **object_of(_PLAN, planned.plan),
                "leader": None if candidate is None else candidate.broker,
                **_cost(planned, candidate),
                "losses": [[loss.start, loss.end, loss.held_by] for loss in losses],
                "truncation_offsets": {str(follower.broker): follower.truncation_offset for follower in followers},
                "checkpoints_disagree": any(follower.disagrees for follower in followers),
            }


def _partition_object(planned: Planned, elect: str | None) -> Json:
    plan, control = planned.plan, planned.planner_input.control
    return {
        **object_of(_PLAN, plan),
        "controller": None if control is None else object_of(_CONTROLLER, control),
        "replicas": [
            *(object_of(_REPLICA, replica) for replica in planned.planner_input.replicas),
            *(object_of(_UNREAD, context) for context in planned.not_read),
        ],
        "recommended": plan.recommended if planned.recommends_one_leader else None,
        "salvage": _salvage_object(planned),
        **object_of(attributes("equally_good chosen_by contested_by"), plan),
        "candidates": [_candidate_object(planned, candidate) for candidate in candidates_of(planned, elect)],
        "advice": advice_sentences(planned, elect),
        "already_lost": [object_of(_ALREADY_LOST, lost) for lost in plan.already_lost],
        "at_stake": [_loss_object(planned, loss) for loss in plan.at_stake],
        **object_of({**attributes("held_by_no_copy"), **times("newest_commit")}, planned),
        "damaged": [
            {"broker": replica.broker, "offsets": damaged}
            for replica in planned.planner_input.replicas
            if (damaged := plan_words.damaged_offsets_of(planned, replica.broker))
        ],
        "missing_witnesses": [{"kind": missing.kind, "broker": missing.broker} for missing in plan.missing],
        "findings": sorted({finding.kind for finding in planned.findings}),
        **object_of(attributes("ordinary_leaders=ordinary ordinary_loss"), plan),
    }


def _entries(epochs: Iterable[EpochEntry] | None) -> list[tuple[int, int]] | None:
    return None if epochs is None else [(entry.leader_epoch, entry.start_offset) for entry in epochs]


def _cost(planned: Planned, candidate: Candidate | None) -> Json:
    """The kind of an election and its cost in TSV and JSON; None: where no replica can lead, all is lost."""
    losses = planned.plan.at_stake if candidate is None else candidate.losses
    committed, at_least, at_most = costs_of(losses)
    return {
        "election": "no_replica" if candidate is None else candidate.election,
        "is_recommended": candidate is not None and is_recommended(planned, candidate),
        "at_least": at_least,
        "at_most": at_most,
        "at_most_is_bound": planned.plan.at_most_is_bound,
        "committed": committed,
        **object_of(_SIZE, planned.total(losses)),
    }


def _salvage_object(planned: Planned) -> Json | None:
    if planned.salvage is None:
        return None
    committed, _, at_most = costs_of(planned.salvage.losses)
    return {"committed": committed, "at_most": at_most, "options": planned.salvage.options}


def _candidate_object(planned: Planned, candidate: Candidate) -> Json:
    return {
        "broker": candidate.broker,
        **_cost(planned, candidate),
        "recovery_cut": candidate.recovery_cut,
        **object_of(_REMOTE_FATE, candidate.remote),
        "losses": [_loss_object(planned, loss) for loss in candidate.losses],
        "followers": [object_of(_FOLLOWER, follower) for follower in candidate.followers],
    }


def _loss_object(planned: Planned, loss: Loss) -> Json:
    return {
        "offset_start": loss.start,
        "offset_end": loss.end,
        "committed_end_offset": loss.committed_end if loss.committed else None,
        "witness": _witness_object(loss.witness),
        **object_of(_SIZE, planned.amount(loss)),
        **object_of(attributes("held_by kept_by"), loss),
    }


def _witness_object(witness: Witness | None) -> Json | None:
    return None if witness is None else object_of(_WITNESS, witness)


def _summary_object(plans: Plans, arguments: PlanArguments) -> Json:
    result, minutes = plans.result, minutes_to_start(plans.bytes_to_recover.values())
    assert isinstance(result, ScanResult)
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": json_document.tool(result.engine),
        "cluster_ids": sorted({broker.cluster_id for broker in result.brokers if broker.cluster_id is not None}),
        "partitions_planned": plans.partitions,
        "copies_absent": _by_broker(plans.absent),
        "do_not_start": _by_broker(plans.not_to_start),
        "copies_not_read": _by_broker(plans.not_read),
        "assignment_unknown": [{"kind": kind, "partitions": count} for kind, count in sorted(plans.assignment_unknown.items())],
        "steps": [step.document(minutes) for step in steps_of(plans, arguments)],
    }


def _by_broker(counts: Mapping[Broker, int]) -> list[Json]:
    """Numbers of partitions by broker."""
    return [{"broker": broker, "partitions": count} for broker, count in sorted(counts.items(), key=str)]


def _document(plans: Plans, arguments: PlanArguments) -> Iterator[str]:
    """The JSON document in pieces, a line for each partition."""
    assert plans.result is not None
    yield f"{json_text(_summary_object(plans, arguments))[:-1]},\n"
    yield from json_list(' "partitions"', (_partition_object(planned, arguments.elect) for planned in plans.planned))
    gaps = ", ".join(map(json_text, map(json_document.incomplete_object, plans.result.incomplete)))
    yield f' "incomplete": [{gaps}]}}\n'


def _json_lines(plans: Plans, arguments: PlanArguments) -> Iterator[str]:
    """An object with its `type` on each line: partitions, what could not be read, the summary."""
    assert plans.result is not None
    for planned in plans.planned:
        yield json_line("partition", _partition_object(planned, arguments.elect))
    for unread in plans.result.incomplete:
        yield json_line("incomplete", json_document.incomplete_object(unread))
    yield json_line("summary", _summary_object(plans, arguments))
