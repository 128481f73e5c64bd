"""Plans in every format: a table of candidates with the recommendation, rows, one JSON document, an object a partition."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Final

from kafka_forensics.cli.outputs import plan_words
from kafka_forensics.cli.outputs.plan_steps import named, preamble, steps_of
from kafka_forensics.cli.outputs.rows import drawn, markdown, markdown_lines, plain_table, table_lines, tsv_lines
from kafka_forensics.cli.outputs.steps import markdown_of, minutes_to_start, partitions_words, text_of
from kafka_forensics.cli.outputs.words import name
from kafka_forensics.cli.streams import Destination
from kafka_forensics.export import json_document
from kafka_forensics.export.json_document import json_line
from kafka_forensics.model.amounts import plural
from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.findings import Severity
from kafka_forensics.model.json_objects import Columns, Json, attribute, attributes, json_text, object_of
from kafka_forensics.model.results import SCHEMA_VERSION, ScanResult
from kafka_forensics.questions.plan import Planned, Plans
from kafka_forensics.replication.planner import Broker, Candidate, FollowerPlan, Loss, Witness, costs_of
from kafka_forensics.wording import offset_range

# Plans of several partitions as a list: where an election would lose something, and what no copy here can tell.


_UNSAID: Final = {
    "no_controller_log": "No controller's log is here to say for {}",
    "controller_log_damaged": "The controller's log here is too damaged to say for {}",
    "controller_log_silent": "The controller's log here does not say for {}",
    "voters_behind": "The voters' copies of the controller's log end before they could say for {}",
}


def overview(plans: Plans, width: int) -> Iterator[str]:
    """A line for equal partitions where an election would lose something, followers would cut otherwise than by their batches, or
    nobody can lead; then whose copies are not here."""
    heads = ("partition", "elect", "election", "lost", "committed", "worst", "worst lost", "worst committed")
    alike: defaultdict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    for planned in plans.planned:
        alike[planned.plan.topic, *_row(planned)].append((planned.plan.topic, planned.plan.partition))
    rows = [[partitions_words(partitions), *row] for (_, *row), partitions in alike.items()]
    yield from table_lines(heads, (*heads[3:5], *heads[6:]), rows, width)
    for line in unseen_lines(plans):
        yield from plan_words.wrapped(line, width)


def _row(planned: Planned) -> list[str]:
    best, worst = planned.recommended, max(planned.plan.candidates, key=_costs, default=None)
    called = plan_words.labels(planned)
    committed, _, lost = costs_of(planned.plan.at_stake)
    at_worst = ["", str(lost), str(committed)] if worst is None else [called[worst.broker], *map(str, reversed(_costs(worst)))]
    if planned.salvage is not None:
        committed, _, lost = costs_of(planned.salvage.losses)
        return ["salvage", "", str(lost), str(committed), *at_worst]
    if best is None and _is_unread(planned):
        return ["", "not read", "?", "?", "", "?", "?"]
    if best is None:
        return ["", "nobody can", str(lost), str(committed), *at_worst]
    if planned.plan.contested_by is not None:
        return ["", "not known", "?", "?", *at_worst]
    return [called[best.broker], plan_words.election(planned, best), str(best.at_most), str(best.committed), *at_worst]


def _is_unread(planned: Planned) -> bool:
    """Whether nothing is known of what the copies hold."""
    return bool(planned.not_read) and not planned.plan.candidates and not planned.plan.at_stake


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
    if plans.quorum is not None and plans.quorum.given and plans.quorum.not_given:
        count, voters = len(plans.quorum.given), len(plans.quorum.voters)
        majority = "" if plans.quorum.has_majority else ", which is no majority"
        text = f"Of the {voters} voters of the controllers' log {count} {'was' if count == 1 else 'were'} given{majority}"
        yield f"{text}: what {plan_words.brokers(plans.quorum.not_given)} may add or delete is not known."
    for kind, count in plans.assignment_unknown.items():
        yield f"{_UNSAID[kind].format(plural(count, 'partition'))} whether there are further replicas, which may hold more."


def _scan_found(plans: Plans) -> str:
    """What the scan says all the same, of log directories that hold no partition any more."""
    findings = () if plans.result is None else plans.result.findings
    kinds = Counter(finding.kind for finding in findings if finding.severity is not Severity.INFO)
    listed = ", ".join(f"{kind} ({count})" if count > 1 else kind for kind, count in kinds.most_common())
    return f"; a scan of the same paths tells of {listed}" if listed else ""


def summary_line(plans: Plans) -> str:
    """What is said on stderr at the end."""
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
    """The clauses of the last line: what is at stake, else that nothing is; and what else is to be known."""
    alone = plans.partitions == 1
    if plans.without_copy:
        yield _without_copy(plans)
    at_stake = list(_at_stake(plans.planned, alone=alone))
    salvaged = sum(planned.salvage is not None for planned in plans.planned)
    if salvaged:
        at_stake.append("a salvage loses less than any election" + ("" if alone else f" of {salvaged}"))
    yield from at_stake or [_nothing_lost(plans)]
    odd = sum(any(follower.disagrees for follower in _followers(planned)) for planned in plans.planned)
    if odd:
        yield "checkpoints and batches disagree where to cut" + ("" if alone else f" in {odd}")
    forced = sum(planned.must_be_forced and not planned.plan.matters for planned in plans.planned)
    if forced:
        yield "nobody leads until an election is forced" + ("" if alone else f" in {forced}")
    lacking = sum(bool(planned.without_topic_id) for planned in plans.planned)
    if lacking:
        yield "a log without a topic id would not be served" + ("" if alone else f" in {lacking}")
    if not alone and plans.planned:
        yield "with --topic and --partition, one is shown in full"


def _without_copy(plans: Plans) -> str:
    return f"no copy is here of {plural(len(plans.without_copy), 'partition')} ({named(plans.without_copy)})"


def _at_stake(every: list[Planned], *, alone: bool) -> Iterator[str]:
    costly = sum(any(candidate.losses for candidate in planned.plan.candidates) for planned in every)
    strays = sum(planned.plan.strays is not None for planned in every)
    unread = sum(map(_is_unread, every))
    leaderless = sum(not planned.plan.candidates for planned in every) - strays - unread
    if unread:
        yield "no log could be read" + ("" if alone else f" of {unread}")
    if costly:
        yield "an election could lose records" + ("" if alone else f" of {costly}")
    gone = sum(bool(planned.held_by_no_copy) for planned in every)
    if gone:
        yield "committed offsets" + ("" if alone else f" of {gone}") + " are on no copy here"
    matter = [planned.plan for planned in every if planned.plan.matters]
    deleting = sum(any(candidate.remote.deleted for candidate in plan.candidates) for plan in matter)
    if deleting:
        yield "a leader would delete remote segments" + ("" if alone else f" of {deleting}")
    for count, why in ((strays, "the controller's log does not know"), (leaderless, "nobody can lead")):
        if count:
            which, they = "it" if alone else str(count), "it holds" if count == 1 else "they hold"
            yield f"{why} {which}, so that all {they} is at stake"


def _nothing_lost(plans: Plans) -> str:
    no_election = "no election" + (" of a broker that would start" if plans.refused else "")
    in_part = (
        " that the copies here hold" if plans.absent or plans.assignment_unknown or plans.not_read or plans.without_copy else ""
    )
    if any(missing.kind == "unknown_bytes" for planned in plans.planned for missing in planned.plan.missing):
        in_part = " that could be read of the copies here"
    return f"{no_election} would lose anything{in_part}"


def _followers(planned: Planned) -> Iterator[FollowerPlan]:
    return (follower for candidate in planned.plan.candidates for follower in candidate.followers)


COLUMNS: Final = (
    *("topic", "partition", "truncate_by", "leader", "election", "is_recommended", "at_least", "at_most", "at_most_is_bound"),
    *("committed", "records", "bytes", "losses", "truncation_offsets", "checkpoints_disagree"),
)
"""Of a row a candidate, in tsv and Markdown; offsets unless named otherwise."""
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
_WITNESS: Final = attributes("kind broker name end_offset said_end_offset=said")
_LOSSES_SHOWN: Final = 12
"""Losses of one candidate that a table lists."""
_HEADS: Final = ("leader", "election", "cuts", "lost offsets", "held by", "records", "bytes", "committed")
_RIGHT: Final = frozenset({"records", "bytes", "committed"})


def write_plans(plans: Plans, format_name: str, to: Destination, *, elect: str | None) -> None:
    """Write plans in one of the formats of `options.FORMATS`; `elect` is the one leader asked for."""
    match format_name:
        case "table":
            to.stream.writelines(_pages(plans, to, elect))
        case "tsv":
            to.stream.writelines(tsv_lines(COLUMNS, _rows(plans, elect)))
        case "json":
            to.stream.writelines(_document(plans, elect))
        case "jsonl":
            to.stream.writelines(_lines(plans, elect))
        case "markdown":
            to.stream.writelines(_report(plans, elect))
        case _:
            raise AssertionError(format_name)


def shown_of(planned: Planned, elect: str | None) -> list[Candidate]:
    """The candidates asked for."""
    return [candidate for candidate in planned.plan.candidates if elect is None or str(candidate.broker) == elect]


def _pages(plans: Plans, to: Destination, elect: str | None) -> Iterator[str]:
    """The table of a single partition, or of several a line each; then the steps."""
    if plans.partitions != 1:
        yield from overview(plans, to.width)
    for planned in plans.planned if plans.partitions == 1 else ():
        shown = shown_of(planned, elect)
        yield from plan_words.wrapped(plan_words.title(planned), to.width)
        if shown:
            yield from _candidates(planned, shown, to)
        for line in plan_words.notes(planned, shown, every_follower=elect is not None):
            yield from plan_words.wrapped(line, to.width)
        yield "\n"
        yield from plan_words.wrapped(" ".join(_advice(planned, elect, plans)), to.width)
    yield from text_of(preamble(plans), steps_of(plans, elect), to.width)


def _advice(planned: Planned, elect: str | None, plans: Plans | None = None) -> list[str]:
    """What is recommended, and what it costs; with `plans`, whether it waits for the controllers."""
    chosen = planned.chosen(elect)
    words = list(plan_words.nobody(planned)) if chosen is None else [plan_words.verdict(planned, chosen)]
    waits = plans is not None and plans.controller_findings
    return [*words, "Nothing may start before step 1 is done: it is about the controllers."] if waits else words


def _candidates(planned: Planned, shown: Sequence[Candidate], to: Destination) -> Iterator[str]:
    """A row a candidate, a line in it for each loss and each cut."""
    from rich.text import Text

    table = plain_table()
    for head in _HEADS:
        table.add_column(Text(head), overflow="fold", justify="right" if head in _RIGHT else "left")
    for candidate in shown:
        for line in zip_longest(*_cells(planned, candidate), fillvalue=""):
            table.add_row(*map(Text, line))
    return drawn(table, to)


def _cells(planned: Planned, candidate: Candidate) -> list[list[str]]:
    """Lines of each cell of a candidate's row."""
    called = plan_words.labels(planned)
    cutting = [
        f"{called[follower_plan.broker]} {'anew ' if follower_plan.begins_anew else ''}at {follower_plan.truncation_offset}"
        for follower_plan in candidate.followers
        if follower_plan.begins_anew or follower_plan.truncation_offset not in (None, follower_plan.log_end_offset)
    ]
    mark = " *" if _is_recommended(planned, candidate) else ""
    losses = [(loss, planned.amount(loss)) for loss in candidate.losses[:_LOSSES_SHOWN]]
    more = [f"{len(candidate.losses) - len(losses)} more"] if len(candidate.losses) > len(losses) else []
    return [
        [called[candidate.broker] + mark],
        [plan_words.election(planned, candidate)],
        cutting,
        [*(offset_range(loss.start, loss.end) for loss, _ in losses), *more] or [plan_words.nothing_lost(planned, candidate)],
        [", ".join(called[broker] for broker in loss.held_by) or "remote storage" for loss, _ in losses],
        ["?" if amount.records is None else str(amount.records) for _, amount in losses],
        ["?" if amount.bytes is None else str(amount.bytes) for _, amount in losses],
        [str(loss.committed) for loss, _ in losses],
    ]


def _rows(plans: Plans, elect: str | None) -> Iterator[Json]:
    for planned in plans.planned:
        named = attributes("topic partition truncate_by")
        for candidate in shown_of(planned, elect):
            yield {
                **object_of(named, planned.plan),
                "leader": candidate.broker,
                **_cost(planned, candidate),
                "losses": [[loss.start, loss.end, loss.held_by] for loss in candidate.losses],
                "truncation_offsets": {str(follower.broker): follower.truncation_offset for follower in candidate.followers},
                "checkpoints_disagree": any(follower.disagrees for follower in candidate.followers),
            }
        if not planned.plan.candidates:
            yield {
                **object_of(named, planned.plan),
                "leader": None,
                "election": "nobody",
                "is_recommended": False,
                **_amounts(planned, planned.plan.at_stake),
                "losses": [[loss.start, loss.end, loss.held_by] for loss in planned.plan.at_stake],
                "truncation_offsets": {},
                "checkpoints_disagree": False,
            }


def _partition_object(planned: Planned, elect: str | None) -> Json:
    """One partition's plan."""
    plan, control = planned.plan, planned.given.control
    return {
        **object_of(attributes("topic partition truncate_by"), plan),
        "controller": None if control is None else object_of(_CONTROLLER, control),
        "replicas": _replica_objects(planned),
        "recommended": plan.recommended if planned.recommends_one_leader else None,
        "salvage": _salvage_object(planned),
        **object_of(attributes("loses_alike=alike chosen_by contested_by"), plan),
        "candidates": [_candidate_object(planned, candidate) for candidate in shown_of(planned, elect)],
        "advice": _advice(planned, elect),
        "already_lost": [object_of(_ALREADY_LOST, lost) for lost in plan.already_lost],
        "at_stake": [_loss_object(planned, loss) for loss in plan.at_stake],
        "damaged": [
            {"broker": replica.broker, "offsets": damaged}
            for replica in planned.given.replicas
            if (damaged := plan_words.damaged_by(planned, replica.broker))
        ],
        "missing_witnesses": [{"kind": missing.kind, "broker": missing.broker} for missing in plan.missing],
        "findings": sorted({finding.kind for finding in planned.findings}),
        **object_of(attributes("ordinary_leaders=ordinary ordinary_loss"), plan),
    }


def _entries(epochs: Iterable[EpochEntry] | None) -> list[tuple[int, int]] | None:
    return None if epochs is None else [(entry.leader_epoch, entry.start_offset) for entry in epochs]


def _replica_objects(planned: Planned) -> list[Json]:
    """The replicas, those planned with and then those of which nothing could be read."""
    read = [object_of(_REPLICA, replica) for replica in planned.given.replicas]
    return [*read, *(object_of(_UNREAD, context) for context in planned.not_read)]


def _cost(planned: Planned, candidate: Candidate) -> Json:
    """What an election is, and what it costs, in every data format."""
    recommended = _is_recommended(planned, candidate)
    return {"election": candidate.election, "is_recommended": recommended, **_amounts(planned, candidate.losses)}


def _is_recommended(planned: Planned, candidate: Candidate) -> bool:
    return candidate.broker == planned.plan.recommended and planned.recommends_one_leader


def _salvage_object(planned: Planned) -> Json | None:
    """The salvage that is recommended, if one is."""
    if planned.salvage is None:
        return None
    committed, _, at_most = costs_of(planned.salvage.losses)
    return {"committed": committed, "at_most": at_most, "options": planned.salvage.options}


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
        **object_of(_REMOTE_FATE, candidate.remote),
        "losses": [_loss_object(planned, loss) for loss in candidate.losses],
        "followers": [object_of(_FOLLOWER, follower) for follower in candidate.followers],
    }


def _loss_object(planned: Planned, loss: Loss) -> Json:
    amount = planned.amount(loss)
    return {
        "offset_start": loss.start,
        "offset_end": loss.end,
        "committed_end_offset": loss.committed_end if loss.committed else None,
        "witness": _witness_object(loss.witness),
        "records": amount.records,
        "bytes": amount.bytes,
        **object_of(attributes("held_by kept_by"), loss),
    }


def _witness_object(witness: Witness | None) -> Json | None:
    return None if witness is None else object_of(_WITNESS, witness)


def _tool(plans: Plans, elect: str | None) -> Json:
    result, minutes = plans.result, minutes_to_start(plans.bytes_to_recover.values())
    assert isinstance(result, ScanResult)
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": json_document.tool(result.engine),
        "cluster_ids": sorted({broker.cluster_id for broker in result.brokers if broker.cluster_id is not None}),
        "partitions_planned": plans.partitions,
        "copies_absent": _by_broker(plans.absent),
        "do_not_start": _by_broker(plans.refused),
        "copies_not_read": _by_broker(plans.not_read),
        "controller_unsaid": [{"kind": kind, "partitions": count} for kind, count in sorted(plans.assignment_unknown.items())],
        "steps": [step.document(minutes) for step in steps_of(plans, elect)],
    }


def _by_broker(counts: Mapping[Broker, int]) -> list[Json]:
    """Numbers of partitions by broker."""
    return [{"broker": broker, "partitions": count} for broker, count in sorted(counts.items(), key=str)]


def _document(plans: Plans, elect: str | None) -> Iterator[str]:
    """The JSON document in pieces, a line a partition."""
    assert plans.result is not None
    head = json_text(_tool(plans, elect))
    yield f'{head[:-1]},\n "partitions": ['
    for number, planned in enumerate(plans.planned):
        yield ("," if number else "") + f"\n  {json_text(_partition_object(planned, elect))}"
    gaps = ", ".join(map(json_text, map(json_document.incomplete_object, plans.result.incomplete)))
    yield f'],\n "incomplete": [{gaps}]}}\n'


def _lines(plans: Plans, elect: str | None) -> Iterator[str]:
    """An object with its `type` a line: partitions, what could not be read, the summary."""
    assert plans.result is not None
    for planned in plans.planned:
        yield json_line("partition", _partition_object(planned, elect))
    for gap in plans.result.incomplete:
        yield json_line("incomplete", json_document.incomplete_object(gap))
    yield json_line("summary", _tool(plans, elect))


def _report(plans: Plans, elect: str | None) -> Iterator[str]:
    """The steps as Markdown; then a section a partition, candidates and notes."""
    yield "# kafka-forensics: plan\n"
    yield from markdown_of(preamble(plans), steps_of(plans, elect))
    if plans.partitions != 1:
        yield from (f"\n{markdown(line)}\n" for line in unseen_lines(plans))
    for planned in plans.planned:
        shown = shown_of(planned, elect)
        yield f"\n## {markdown(name(planned.plan.topic, planned.plan.partition))}\n\n{markdown(plan_words.title(planned))}.\n\n"
        lines = [[", ".join(part) for part in _cells(planned, candidate)] for candidate in shown]
        yield from markdown_lines(_HEADS, (dict(zip(_HEADS, line, strict=True)) for line in lines))
        for note in plan_words.notes(planned, shown, every_follower=elect is not None):
            yield f"\n{markdown(note)}\n"
        yield f"\n**{markdown(' '.join(_advice(planned, elect, plans)))}**\n"
