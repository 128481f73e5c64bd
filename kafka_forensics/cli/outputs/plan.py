"""Plans in every format: for a person a table of candidates, the recommendation and the steps."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Final

from kafka_forensics.cli.outputs import plan_words
from kafka_forensics.cli.outputs.plan_steps import named, preamble, steps_of
from kafka_forensics.cli.outputs.rows import markdown, markdown_lines, plain_table, rich_lines, table_lines, tsv_lines
from kafka_forensics.cli.outputs.steps import minutes_to_start, partitions_words, steps_markdown, steps_text
from kafka_forensics.cli.outputs.words import name
from kafka_forensics.cli.streams import Destination
from kafka_forensics.export import json_document
from kafka_forensics.export.json_document import json_line, json_list
from kafka_forensics.model.amounts import plural
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.findings import Severity
from kafka_forensics.model.json_objects import Columns, Json, attribute, attributes, json_text, object_of
from kafka_forensics.model.results import SCHEMA_VERSION, ScanResult
from kafka_forensics.questions.plan import Planned, Plans
from kafka_forensics.replication.planner import Broker, Candidate, Loss, Witness, costs_of
from kafka_forensics.wording import offset_range

_NO_ASSIGNMENT: Final = {
    "no_controller_log": "No controller's log is here to say for {}",
    "controller_log_damaged": "The controller's log here is too damaged to say for {}",
    "controller_log_silent": "The controller's log here does not say for {}",
    "voters_behind": "The voters' copies of the controller's log end before they could say for {}",
}
_COULD_LOSE: Final = "an election could lose records{of}"
_WOULD_DELETE: Final = "a leader would delete remote segments{of}"
_ALL_AT_STAKE: Final = "{which}, so that all {they} is at stake"
_DISAGREE: Final = "checkpoints and batches disagree where to cut{in_}"
_FORCED: Final = "nobody leads until an election is forced{in_}"


def _overview(plans: Plans, width: int) -> Iterator[str]:
    """The table of several plans, a line for partitions of a topic with equal results; then which copies are not here."""
    heads = ("partition", "elect", "election", "lost", "committed", "worst", "worst lost", "worst committed")
    by_result: defaultdict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    for planned in plans.planned:
        by_result[planned.plan.topic, *_overview_cells(planned)].append((planned.plan.topic, planned.plan.partition))
    rows = [[partitions_words(partitions), *cells] for (_, *cells), partitions in by_result.items()]
    yield from table_lines(heads, (*heads[3:5], *heads[6:]), rows, width)
    for line in unseen_lines(plans):
        yield from plan_words.wrapped(line, width)


def _overview_cells(planned: Planned) -> list[str]:
    best, worst = planned.recommended, max(planned.plan.candidates, key=_costs, default=None)
    labels = plan_words.labels(planned)
    committed, _, lost = costs_of(planned.plan.at_stake)
    at_worst = ["", str(lost), str(committed)] if worst is None else [labels[worst.broker], *map(str, reversed(_costs(worst)))]
    if planned.salvage is not None:
        committed, _, lost = costs_of(planned.salvage.losses)
        return ["salvage", "", str(lost), str(committed), *at_worst]
    if best is None and _is_unread(planned):
        return ["", "not read", "?", "?", "", "?", "?"]
    if best is None:
        return ["", "nobody can", str(lost), str(committed), *at_worst]
    if planned.plan.contested_by is not None:
        return ["", "not known", "?", "?", *at_worst]
    return [labels[best.broker], plan_words.election(planned, best), str(best.at_most), str(best.committed), *at_worst]


def _is_unread(planned: Planned) -> bool:
    """Whether no log of the partition could be read."""
    return bool(planned.not_read) and not planned.plan.candidates and not planned.plan.at_stake


def _costs(candidate: Candidate) -> tuple[int, int]:
    return candidate.committed, candidate.at_most


def unseen_lines(plans: Plans) -> Iterator[str]:
    """Why the plans may miss losses: copies or voters not given, logs not read, brokers that would not start, replicas that no
    controller's log can rule out."""
    absent: defaultdict[int, list[Broker]] = defaultdict(list)
    for broker, count in sorted(plans.absent.items(), key=str):
        absent[count].append(broker)
    for count, brokers in sorted(absent.items(), reverse=True):
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
    if plans.quorum is not None and plans.quorum.given and plans.quorum.not_given:
        count, voters = len(plans.quorum.given), len(plans.quorum.voters)
        majority = "" if plans.quorum.has_majority else ", which is no majority"
        text = f"Of the {voters} voters of the controllers' log {count} {'was' if count == 1 else 'were'} given{majority}"
        yield f"{text}: what {plan_words.brokers(plans.quorum.not_given)} may add or delete is not known."
    for kind, count in plans.assignment_unknown.items():
        yield f"{_NO_ASSIGNMENT[kind].format(plural(count, 'partition'))} whether there are further replicas, which may hold more."


def _scan_found(plans: Plans) -> str:
    """A clause with the kinds that the scan found, for log directories without partitions."""
    findings = () if plans.result is None else plans.result.findings
    kinds = Counter(finding.kind for finding in findings if finding.severity is not Severity.INFO)
    listed = ", ".join(f"{kind} ({count})" if count > 1 else kind for kind, count in kinds.most_common())
    return f"; a scan of the same paths tells of {listed}" if listed else ""


def summary_line(plans: Plans) -> str:
    """The last line on stderr."""
    if not plans.partitions and plans.without_copy:
        return f"nothing to plan: {_without_copy(plans)}{_scan_found(plans)}"
    if not plans.partitions and plans.by_raft:
        why = "the leader of __cluster_metadata is elected by the controllers among themselves"
        return f"nothing to plan: {why}{_scan_found(plans)}"
    if not plans.partitions:
        return f"nothing to plan: no partition was found, or none is asked for{_scan_found(plans)}"
    first = "; controllers must not start before step 1 is done" if plans.controller_findings else ""
    return f"{plural(plans.partitions, 'partition')}: {'; '.join(_summary(plans))}{first}"


def _summary(plans: Plans) -> Iterator[str]:
    """The clauses of the last line: what is at stake, or that nothing is; and what else matters."""
    all_planned = plans.planned
    if plans.without_copy:
        yield _without_copy(plans)
    strays = sum(planned.plan.strays is not None for planned in all_planned)
    unread = sum(map(_is_unread, all_planned))
    matter = [planned.plan for planned in all_planned if planned.plan.matters]
    at_stake = [
        (unread, "no log could be read{of}"),
        (sum(any(candidate.losses for candidate in planned.plan.candidates) for planned in all_planned), _COULD_LOSE),
        (sum(bool(planned.held_by_no_copy) for planned in all_planned), "committed offsets{of} are on no copy here"),
        (sum(any(candidate.remote.deleted for candidate in plan.candidates) for plan in matter), _WOULD_DELETE),
        (strays, f"the controller's log does not know {_ALL_AT_STAKE}"),
        (sum(not planned.plan.candidates for planned in all_planned) - strays - unread, f"nobody can lead {_ALL_AT_STAKE}"),
        (sum(planned.salvage is not None for planned in all_planned), "a salvage loses less than any election{of}"),
    ]
    single = plans.partitions == 1
    if plans.only_remote:
        yield f"start no broker: a leader without the directory deletes the remote segments of {named(list(plans.only_remote))}"
    yield from list(_clauses(at_stake, single=single)) or ([] if plans.only_remote else [_nothing_lost(plans)])
    followers = ([follower for candidate in planned.plan.candidates for follower in candidate.followers] for planned in all_planned)
    others = [
        (sum(any(follower.disagrees for follower in of_plan) for of_plan in followers), _DISAGREE),
        (sum(planned.must_be_forced and not planned.plan.matters for planned in all_planned), _FORCED),
        (sum(bool(planned.without_topic_id) for planned in all_planned), "a log without a topic id would not be served{in_}"),
    ]
    yield from _clauses(others, single=single)
    if not single and all_planned:
        yield "with --topic and --partition, one is shown in full"


def _clauses(counted: Iterable[tuple[int, str]], *, single: bool) -> Iterator[str]:
    """Each text whose count of partitions is not 0, with that count unless there is a `single` partition."""
    for count, text in counted:
        if count:
            numbers = (
                {"of": "", "in_": "", "which": "it"} if single else {"of": f" of {count}", "in_": f" in {count}", "which": count}
            )
            yield text.format(**numbers, they="it holds" if count == 1 else "they hold")


def _without_copy(plans: Plans) -> str:
    return f"no copy is here of {plural(len(plans.without_copy), 'partition')} ({named(plans.without_copy)})"


def _nothing_lost(plans: Plans) -> str:
    no_election = "no election" + (" of a broker that would start" if plans.refused else "")
    in_part = (
        " that the copies here hold" if plans.absent or plans.assignment_unknown or plans.not_read or plans.without_copy else ""
    )
    if any(missing.kind == "unknown_bytes" for planned in plans.planned for missing in planned.plan.missing):
        in_part = " that could be read of the copies here"
    return f"{no_election} would lose anything{in_part}"


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
    " checkpoint_disagrees=disagrees halts_unless_unclean=halts lost kept_different=kept below_leaders_start begins_anew"
)
_REMOTE_FATE: Final = attributes("remote_segments_unreferenced=unreferenced remote_segments_deleted=deleted")
_SIZE: Final = attributes("records bytes")
_WITNESS: Final = attributes("kind broker name end_offset said_end_offset=said")
_LOSSES_SHOWN: Final = 12
"""Losses of one candidate that a table lists."""
_HEADS: Final = ("leader", "election", "cuts", "lost offsets", "held by", "records", "bytes", "committed")
_RIGHT: Final = frozenset({"records", "bytes", "committed"})


def write_plans(plans: Plans, format_name: str, to: Destination, *, elect: str | None) -> None:
    """Write plans in one of the formats of `options.FORMATS`; `elect` is the leader of option --elect."""
    answer = {
        "table": _table(plans, to, elect),
        "tsv": tsv_lines(COLUMNS, _rows(plans, elect)),
        "json": _document(plans, elect),
        "jsonl": _json_lines(plans, elect),
        "markdown": _markdown(plans, elect),
    }
    to.stream.writelines(answer[format_name])


def _candidates(planned: Planned, elect: str | None) -> list[Candidate]:
    return [candidate for candidate in planned.plan.candidates if elect is None or str(candidate.broker) == elect]


def _table(plans: Plans, to: Destination, elect: str | None) -> Iterator[str]:
    """The candidates of a single partition, or the overview of several; then the steps."""
    if plans.partitions != 1:
        yield from _overview(plans, to.width)
    for planned in plans.planned if plans.partitions == 1 else ():
        shown = _candidates(planned, elect)
        yield from plan_words.wrapped(plan_words.title(planned), to.width)
        if shown:
            yield from _candidate_table(planned, shown, to)
        for line in plan_words.notes_below_table(planned, shown, every_follower=elect is not None):
            yield from plan_words.wrapped(line, to.width)
        yield "\n"
        yield from plan_words.wrapped(" ".join(_advice(planned, elect, plans)), to.width)
    yield from steps_text(preamble(plans), steps_of(plans, elect), to.width)


def _advice(planned: Planned, elect: str | None, plans: Plans | None = None) -> list[str]:
    """The recommendation and its cost; with `plans`, also whether the controllers must be repaired first."""
    chosen = planned.chosen(elect)
    sentences = list(plan_words.no_leader_sentences(planned)) if chosen is None else [plan_words.recommendation(planned, chosen)]
    if plans is not None and plans.controller_findings:
        sentences.append("Nothing may start before step 1 is done: it is about the controllers.")
    if plans is not None and plans.only_remote:
        sentences.append("No broker may start before step 1 is done: it is about remote segments.")
    return sentences


def _candidate_table(planned: Planned, shown: Sequence[Candidate], to: Destination) -> Iterator[str]:
    """A row for each candidate, with a line for each loss and each cut."""
    from rich.text import Text

    table = plain_table()
    for head in _HEADS:
        table.add_column(Text(head), overflow="fold", justify="right" if head in _RIGHT else "left")
    for candidate in shown:
        for line in zip_longest(*_cells(planned, candidate), fillvalue=""):
            table.add_row(*map(Text, line))
    return rich_lines(table, to)


def _cells(planned: Planned, candidate: Candidate) -> list[list[str]]:
    """The lines of each cell of a candidate's row."""
    labels = plan_words.labels(planned)
    cuts = [
        f"{labels[follower.broker]} {'anew ' if follower.begins_anew else ''}at {follower.truncation_offset}"
        for follower in candidate.followers
        if follower.begins_anew or follower.truncation_offset not in (None, follower.log_end_offset)
    ]
    mark = " *" if _is_recommended(planned, candidate) else ""
    losses = [(loss, planned.amount(loss)) for loss in candidate.losses[:_LOSSES_SHOWN]]
    more = [f"{len(candidate.losses) - len(losses)} more"] if len(candidate.losses) > len(losses) else []
    return [
        [labels[candidate.broker] + mark],
        [plan_words.election(planned, candidate)],
        cuts,
        [*(offset_range(loss.start, loss.end) for loss, _ in losses), *more] or [plan_words.nothing_lost(planned, candidate)],
        [", ".join(labels[broker] for broker in loss.held_by) or "remote storage" for loss, _ in losses],
        ["?" if amount.records is None else str(amount.records) for _, amount in losses],
        ["?" if amount.bytes is None else str(amount.bytes) for _, amount in losses],
        [str(loss.committed) for loss, _ in losses],
    ]


def _rows(plans: Plans, elect: str | None) -> Iterator[Json]:
    for planned in plans.planned:
        candidates = _candidates(planned, elect) if planned.plan.candidates else [None]
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
    plan, control = planned.plan, planned.given.control
    return {
        **object_of(_PLAN, plan),
        "controller": None if control is None else object_of(_CONTROLLER, control),
        "replicas": [
            *(object_of(_REPLICA, replica) for replica in planned.given.replicas),
            *(object_of(_UNREAD, context) for context in planned.not_read),
        ],
        "recommended": plan.recommended if planned.recommends_one_leader else None,
        "salvage": _salvage_object(planned),
        **object_of(attributes("loses_alike=alike chosen_by contested_by"), plan),
        "candidates": [_candidate_object(planned, candidate) for candidate in _candidates(planned, elect)],
        "advice": _advice(planned, elect),
        "already_lost": [object_of(_ALREADY_LOST, lost) for lost in plan.already_lost],
        "at_stake": [_loss_object(planned, loss) for loss in plan.at_stake],
        "damaged": [
            {"broker": replica.broker, "offsets": damaged}
            for replica in planned.given.replicas
            if (damaged := plan_words.damaged_offsets_of(planned, replica.broker))
        ],
        "missing_witnesses": [{"kind": missing.kind, "broker": missing.broker} for missing in plan.missing],
        "findings": sorted({finding.kind for finding in planned.findings}),
        **object_of(attributes("ordinary_leaders=ordinary ordinary_loss"), plan),
    }


def _entries(epochs: Iterable[EpochEntry] | None) -> list[tuple[int, int]] | None:
    return None if epochs is None else [(entry.leader_epoch, entry.start_offset) for entry in epochs]


def _cost(planned: Planned, candidate: Candidate | None) -> Json:
    """The kind of an election and its cost in TSV and JSON; None: where nobody can lead, all is lost."""
    losses = planned.plan.at_stake if candidate is None else candidate.losses
    committed, at_least, at_most = costs_of(losses)
    return {
        "election": "nobody" if candidate is None else candidate.election,
        "is_recommended": candidate is not None and _is_recommended(planned, candidate),
        "at_least": at_least,
        "at_most": at_most,
        "at_most_is_bound": planned.plan.at_most_is_bound,
        "committed": committed,
        **object_of(_SIZE, planned.total(losses)),
    }


def _is_recommended(planned: Planned, candidate: Candidate) -> bool:
    return candidate.broker == planned.plan.recommended and planned.recommends_one_leader


def _salvage_object(planned: Planned) -> Json | None:
    if planned.salvage is None:
        return None
    committed, _, at_most = costs_of(planned.salvage.losses)
    return {"committed": committed, "at_most": at_most, "options": planned.salvage.options}


def _candidate_object(planned: Planned, candidate: Candidate) -> Json:
    return {
        "broker": candidate.broker,
        **_cost(planned, candidate),
        "own_recovery_drops": candidate.own_cut,
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


def _summary_object(plans: Plans, elect: str | None) -> Json:
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
        "controller_unsaid": [{"kind": kind, "partitions": count} for kind, count in sorted(plans.assignment_unknown.items())],
        "steps": [step.document(minutes) for step in steps_of(plans, elect)],
    }


def _by_broker(counts: Mapping[Broker, int]) -> list[Json]:
    """Numbers of partitions by broker."""
    return [{"broker": broker, "partitions": count} for broker, count in sorted(counts.items(), key=str)]


def _document(plans: Plans, elect: str | None) -> Iterator[str]:
    """The JSON document in pieces, a line for each partition."""
    assert plans.result is not None
    yield f"{json_text(_summary_object(plans, elect))[:-1]},\n"
    yield from json_list(' "partitions"', (_partition_object(planned, elect) for planned in plans.planned))
    gaps = ", ".join(map(json_text, map(json_document.incomplete_object, plans.result.incomplete)))
    yield f' "incomplete": [{gaps}]}}\n'


def _json_lines(plans: Plans, elect: str | None) -> Iterator[str]:
    """An object with its `type` on each line: partitions, what could not be read, the summary."""
    assert plans.result is not None
    for planned in plans.planned:
        yield json_line("partition", _partition_object(planned, elect))
    for unread in plans.result.incomplete:
        yield json_line("incomplete", json_document.incomplete_object(unread))
    yield json_line("summary", _summary_object(plans, elect))


def _markdown(plans: Plans, elect: str | None) -> Iterator[str]:
    """The steps; then a section for each partition with its candidates and notes."""
    yield "# kafka-forensics: plan\n"
    yield from steps_markdown(preamble(plans), steps_of(plans, elect))
    if plans.partitions != 1:
        yield from (f"\n{markdown(line)}\n" for line in unseen_lines(plans))
    for planned in plans.planned:
        shown = _candidates(planned, elect)
        yield f"\n## {markdown(name(planned.plan.topic, planned.plan.partition))}\n\n{markdown(plan_words.title(planned))}.\n\n"
        yield from markdown_lines(_HEADS, (map(", ".join, _cells(planned, candidate)) for candidate in shown))
        for note in plan_words.notes_below_table(planned, shown, every_follower=elect is not None):
            yield f"\n{markdown(note)}\n"
        yield f"\n**{markdown(' '.join(_advice(planned, elect, plans)))}**\n"
