"""Plans as text and as a page of steps: the first screen, the table of candidates or of partitions, the steps."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Final

from kafka_forensics.cli.outputs import plan_words
from kafka_forensics.cli.outputs.console_page import FirstScreen, first_screen_text
from kafka_forensics.cli.outputs.plan_steps import FILES, PlanArguments, named, plan_again_command, preamble, steps_of
from kafka_forensics.cli.outputs.plan_words import holders_on_disk
from kafka_forensics.cli.outputs.rows import markdown, markdown_lines, plain_table, rich_lines, table_lines
from kafka_forensics.cli.outputs.steps import PLAN, OperatorStep, partitions_words, steps_markdown, steps_text
from kafka_forensics.cli.outputs.words import name
from kafka_forensics.cli.streams import PLAIN_WIDTH, Destination, command_lines, wrapped
from kafka_forensics.model.amounts import plural
from kafka_forensics.model.constants import WITNESS_TOPICS
from kafka_forensics.model.findings import Severity, TopicPartition
from kafka_forensics.model.offset_ranges import counted
from kafka_forensics.model.results import worst
from kafka_forensics.model.safe_text import printable
from kafka_forensics.questions.plan import Planned, Plans
from kafka_forensics.replication.planner import Broker, Candidate, Loss, costs_of
from kafka_forensics.wording import offset_range

_NO_ASSIGNMENT: Final = {
    "no_controller_log": "No given controllers' log shows for {}",
    "controller_log_damaged": "The given controllers' log is too damaged to show for {}",
    "controller_log_silent": "The given controllers' log does not show for {}",
    "voters_behind": "The voters' copies of the controllers' log end too early to show for {}",
}
_COULD_LOSE: Final = "an election could lose records{of}"
_WOULD_DELETE: Final = "a leader would delete remote segments{of}"
_ALL_AT_STAKE: Final = "{which}: all that {they} is at stake"
_DISAGREE: Final = "checkpoints and batches disagree where to cut{in_}"
_FORCED: Final = "no replica leads until you force an election{in_}"


def _first_screen(plans: Plans, arguments: PlanArguments, steps: Sequence[OperatorStep]) -> FirstScreen:
    elect = arguments.elect
    candidates = [candidate for planned in plans.planned for candidate in planned.plan.candidates]
    lost = list(_losses(plans, elect))
    lines = []
    of_clients = [(planned, loss) for planned, loss in lost if planned.plan.topic not in WITNESS_TOPICS]
    on_disk = [(planned, loss) for planned, loss in of_clients if holders_on_disk(planned, loss)]
    by_step = next((number for number, step in enumerate(steps, 1) if step.kind == "recover"), None)
    if any(candidate.losses for candidate in candidates):
        recovered = (
            f"; step {by_step} recovers up to {_extent(on_disk).removesuffix(' records')}"
            if by_step is not None and on_disk
            else ""
        )
        lines.append(("cost", _cost_of_steps(lost) + recovered))
    if missing := sum(counted(planned.held_by_no_copy) for planned in plans.planned):
        lines.append(("missing", f"no given copy holds {plural(missing, 'committed offset')}"))
    if any(step.kind == "stop" for step in steps):
        lines.append(("stopped", "keep every broker stopped until its step below starts it"))
    command = None
    if steps and any(planned.matters for planned in plans.planned):
        leader = [] if elect is None else ["--elect", elect]
        files = ["--files", FILES] if arguments.files is None and any(step.file for step in steps) else []
        written = "the plan and its files" if files else "the plan, which verify reads"
        lines.append(("next", f"follow the steps; this writes {written}:"))
        command = plan_again_command(plans, arguments, *leader, "--output", PLAN, *files)
    found = _scan_found(plans) if plans.partitions and not plans.planned else ""
    return FirstScreen(_verdict(plans), summary_line(plans) + found, lines, command)


def _verdict(plans: Plans) -> str:
    """One of VERDICTS: by what the worst elections lose, by what a scan found, `unknown` if copies are missing or not read."""
    candidates = [candidate for planned in plans.planned for candidate in planned.plan.candidates]
    verdicts = ["clean", "clean" if plans.result is None else plans.result.verdict]
    if plans.absent or plans.not_read or plans.refused or plans.assignment_unknown or plans.without_copy or not plans.partitions:
        verdicts.append("unknown")
    if any(planned.matters for planned in plans.planned):
        verdicts.append("warning")
    if any(candidate.losses for candidate in candidates):
        verdicts.append("critical" if any(candidate.committed for candidate in candidates) else "error")
    if plans.controller_findings or plans.only_remote or not all(planned.plan.candidates for planned in plans.planned):
        verdicts.append("critical")
    return worst(*verdicts)


def _losses(plans: Plans, elect: str | None) -> Iterator[tuple[Planned, Loss]]:
    """What the steps lose: by the salvage, the chosen leader, or everything where no replica can lead."""
    for planned in plans.planned:
        chosen = planned.chosen(elect)
        if elect is None and planned.salvage is not None:
            losses = planned.salvage.losses
        else:
            losses = planned.plan.at_stake if chosen is None else chosen.losses
        yield from ((planned, loss) for loss in losses)


def _cost_of_steps(losses: Sequence[tuple[Planned, Loss]]) -> str:
    """What following the steps loses."""
    committed, _, lost = costs_of([loss for _, loss in losses])
    proven = "all" if committed == lost else str(committed)
    return f"{_extent(losses)}, {proven} proven committed" if lost else "nothing, if you follow the steps"


def _extent(losses: Sequence[tuple[Planned, Loss]]) -> str:
    """`70 records`, or offsets where some records are not counted."""
    offsets = sum(loss.end - loss.start for _, loss in losses)
    records = [planned.amount(loss).records for planned, loss in losses]
    known = [number for number in records if number is not None]
    if len(known) < len(records):
        return plural(offsets, "offset")
    return plural(sum(known), "record")


def _overview(plans: Plans, width: int, by: str) -> Iterator[str]:
    """The table of several plans, a line for all partitions with the same leader and election, or for each if `by`
    is "partition"; then which copies are not here."""
    heads = ("partition", "elect", "election", "lost offsets", "committed", "offsets at worst")
    rows: defaultdict[object, list[list[str]]] = defaultdict(list)
    partitions: defaultdict[object, list[TopicPartition]] = defaultdict(list)
    for planned in plans.planned:
        cells, key = _overview_cells(planned), (planned.plan.topic, planned.plan.partition)
        group = key if by == "partition" else (*cells[:2], "?" in cells)
        rows[group].append(cells)
        partitions[group].append(key)
    table = [[partitions_words(partitions[group]), *_row_of(rows[group])] for group in rows]
    lost, committed = heads.index("lost offsets"), heads.index("committed")
    all_committed = all(row[lost] == row[committed] for row in table)
    for row in table:
        row[committed] = "" if all_committed else row[committed]
        row[lost:] = ["" if cell == "0" else cell for cell in row[lost:]]
    yield from table_lines(heads, heads[3:], table, width)
    for line in unseen_lines(plans):
        yield from wrapped(line, width)


_FIRST_NUMBER: Final = 2
"""Index of the first number in `_overview_cells`."""


def _row_of(rows: list[list[str]]) -> list[str]:
    """One row for several: the sums of numbers of offsets, `?` if one is unknown; other cells are equal."""
    return [
        column[0] if number < _FIRST_NUMBER else "?" if "?" in column else str(sum(map(int, column)))
        for number, column in enumerate(zip(*rows, strict=True))
    ]


def _overview_cells(planned: Planned) -> list[str]:
    """Leader, election, lost offsets, committed ones of them, and what the worst election loses."""
    best = planned.recommended
    labels = plan_words.labels(planned)
    committed, _, lost = costs_of(planned.plan.at_stake)
    at_worst = str(max((candidate.at_most for candidate in planned.plan.candidates), default=lost))
    if planned.salvage is not None:
        committed, _, lost = costs_of(planned.salvage.losses)
        return ["salvage", "", str(lost), str(committed), at_worst]
    if best is None and _is_unread(planned):
        return ["", "not read", "?", "?", "?"]
    if best is None:
        return ["", "impossible", str(lost), str(committed), at_worst]
    if planned.plan.contested_by is not None:
        return ["", "not known", "?", "?", at_worst]
    return [labels[best.broker], plan_words.election(planned, best), str(best.at_most), str(best.committed), at_worst]


def _is_unread(planned: Planned) -> bool:
    """Whether no log of the partition could be read."""
    return bool(planned.not_read) and not planned.plan.candidates and not planned.plan.at_stake


def unseen_lines(plans: Plans) -> Iterator[str]:
    """Why the plans may miss losses: copies or voters not given, logs not read, brokers that would not start, replicas that no
    controller's log can rule out."""
    absent: defaultdict[int, list[Broker]] = defaultdict(list)
    for broker, count in sorted(plans.absent.items(), key=str):
        absent[count].append(broker)
    for count, brokers in sorted(absent.items(), reverse=True):
        they = "it holds" if len(brokers) == 1 else "they hold"
        text = f"No copy of {plan_words.brokers(brokers)} was given for {plural(count, 'partition')}"
        yield f"{text}: this plan does not count records that only {they}."
    for broker, count in sorted(plans.not_read.items(), key=str):
        logs = f"the log{'' if count == 1 else 's'} of {plural(count, 'partition')}"
        where = f"{logs[:1].upper()}{logs[1:]} on {plan_words.brokers([broker])}"
        yield f"{where} could not be read: this plan does not count records that only it holds."
    for broker, count in sorted(plans.refused.items(), key=str):
        copies = f"{'copy' if count == 1 else 'copies'} of {plural(count, 'partition')}"
        who = plan_words.capital(plan_words.brokers([broker]))
        yield f"{who} would not start with its {copies}: this plan does not show what it does after a repair."
    if plans.quorum is not None and plans.quorum.given_voters and plans.quorum.not_given:
        count, voters = len(plans.quorum.given_voters), len(plans.quorum.voters)
        majority = "" if plans.quorum.has_majority else ", not a majority"
        text = f"Of the {voters} voters of the controllers' log {count} {'was' if count == 1 else 'were'} given{majority}"
        yield f"{text}: what {plan_words.brokers(plans.quorum.not_given)} may add or delete is unknown."
    for kind, count in plans.assignment_unknown.items():
        yield f"{_NO_ASSIGNMENT[kind].format(plural(count, 'partition'))} whether there are further replicas, which may hold more."


def _scan_found(plans: Plans) -> str:
    """A clause with the kinds that the scan found, where no plan shows them."""
    findings = () if plans.result is None else plans.result.findings
    kinds = Counter(finding.kind for finding in findings if finding.severity is not Severity.INFO)
    listed = ", ".join(f"{kind} ({count})" if count > 1 else kind for kind, count in kinds.most_common())
    return f"; a scan of the same paths finds {listed}" if listed else ""


def summary_line(plans: Plans) -> str:
    """The last line on stderr."""
    if not plans.partitions and plans.without_copy:
        return f"nothing to plan: {_without_copy(plans)}{_scan_found(plans)}"
    if not plans.partitions and plans.by_raft:
        why = "the leader of __cluster_metadata is elected by the controllers among themselves"
        return f"nothing to plan: {why}{_scan_found(plans)}"
    if not plans.partitions:
        return f"nothing to plan: no partition was found or selected{_scan_found(plans)}"
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
        (sum(bool(planned.held_by_no_copy) for planned in all_planned), "committed offsets{of} are in no given copy"),
        (sum(any(candidate.remote.deleted for candidate in plan.candidates) for plan in matter), _WOULD_DELETE),
        (strays, f"the controllers' log does not have {_ALL_AT_STAKE}"),
        (sum(not planned.plan.candidates for planned in all_planned) - strays - unread, f"no replica can lead {_ALL_AT_STAKE}"),
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


def _clauses(counted: Iterable[tuple[int, str]], *, single: bool) -> Iterator[str]:
    """Each text whose count of partitions is not 0, with that count unless there is a `single` partition."""
    for count, text in counted:
        if count:
            numbers = (
                {"of": "", "in_": "", "which": "it"} if single else {"of": f" of {count}", "in_": f" in {count}", "which": count}
            )
            yield text.format(**numbers, they="it holds" if count == 1 else "they hold")


def _without_copy(plans: Plans) -> str:
    return f"{plural(len(plans.without_copy), 'partition')} without a copy ({named(plans.without_copy)})"


def _nothing_lost(plans: Plans) -> str:
    no_election = "no election" + (" of a broker that would start" if plans.refused else "")
    in_part = (
        " that the copies here hold" if plans.absent or plans.assignment_unknown or plans.not_read or plans.without_copy else ""
    )
    if any(missing.kind == "unknown_bytes" for planned in plans.planned for missing in planned.plan.missing):
        in_part = " that could be read of the copies here"
    return f"{no_election} would lose anything{in_part}"


_LOSSES_SHOWN: Final = 12
"""Losses of one candidate that a table lists."""
_HEADS: Final = ("leader", "election", "cuts", "lost offsets", "held by", "records", "bytes", "committed")
_RIGHT: Final = frozenset({"records", "bytes", "committed"})


def text_lines(plans: Plans, to: Destination, arguments: PlanArguments, by: str) -> Iterator[str]:
    """The first screen; the candidates of a single partition, or the overview of several; then the steps."""
    elect = arguments.elect
    steps = steps_of(plans, arguments)
    yield first_screen_text(_first_screen(plans, arguments, steps), to)
    if plans.planned:
        yield "\n"
    if plans.partitions != 1:
        yield from _overview(plans, to.width, by)
    for planned in plans.planned if plans.partitions == 1 else ():
        shown = candidates_of(planned, elect)
        yield from wrapped(plan_words.title(planned), to.width)
        if shown:
            yield from _candidate_table(planned, shown, to)
        for line in plan_words.notes_below_table(planned, shown, every_follower=elect is not None):
            yield from wrapped(line, to.width)
        yield "\n"
        yield from wrapped(" ".join(advice_sentences(planned, elect, plans)), to.width)
    yield from steps_text(preamble(plans, steps), steps, to.width)


def candidates_of(planned: Planned, elect: str | None) -> list[Candidate]:
    """The candidates that are shown: the one of --elect, or all."""
    return [candidate for candidate in planned.plan.candidates if elect is None or str(candidate.broker) == elect]


def is_recommended(planned: Planned, candidate: Candidate) -> bool:
    """Whether the plan recommends this election, and no salvage."""
    return candidate.broker == planned.plan.recommended and planned.recommends_one_leader


def advice_sentences(planned: Planned, elect: str | None, plans: Plans | None = None) -> list[str]:
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
        f"{labels[follower.broker]} {'empty from' if follower.restarts_empty else 'at'} {follower.truncation_offset}"
        for follower in candidate.followers
        if follower.restarts_empty or follower.truncation_offset not in (None, follower.log_end_offset)
    ]
    mark = " *" if is_recommended(planned, candidate) else ""
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


def page(plans: Plans, arguments: PlanArguments) -> Iterator[str]:
    """The steps; then a section for each partition with its candidates and notes."""
    elect, steps = arguments.elect, steps_of(plans, arguments)
    yield "# kafka-forensics: plan\n"
    if (command := _first_screen(plans, arguments, steps).command) is not None:
        lines = "\n".join(command_lines(printable(command), PLAIN_WIDTH))
        yield f"\nBefore step 1, write the plan and the files that the steps read:\n\n```sh\n{lines}\n```\n"
    yield from steps_markdown(preamble(plans, steps), steps)
    if plans.partitions != 1:
        yield from (f"\n{markdown(line)}\n" for line in unseen_lines(plans))
    for planned in plans.planned:
        shown = candidates_of(planned, elect)
        yield f"\n## {markdown(name(planned.plan.topic, planned.plan.partition))}\n\n{markdown(plan_words.title(planned))}.\n\n"
        yield from markdown_lines(_HEADS, (map(", ".join, _cells(planned, candidate)) for candidate in shown))
        for note in plan_words.notes_below_table(planned, shown, every_follower=elect is not None):
            yield f"\n{markdown(note)}\n"
        yield f"\n**{markdown(' '.join(advice_sentences(planned, elect, plans)))}**\n"
