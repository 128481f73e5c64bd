"""The steps of a plan for all partitions at once, each with the command that it needs. All of it is safe to print."""

import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.cli.outputs.plan_words import STRAYS, begins_remotely, brokers, capital, holders_on_disk, refusal, repair_words
from kafka_forensics.cli.outputs.steps import (
    DESCRIBE,
    OF_ALL_BROKERS,
    PLAN,
    OperatorStep,
    TopicPartition,
    controllers_first,
    controllers_step,
    election_command,
    election_json,
    leader_lines,
    minutes_to_start,
    of_topics,
    partitions_words,
    produce_command,
    reset_command,
    reset_csv,
)
from kafka_forensics.cli.outputs.words import name, state_options
from kafka_forensics.evidence.inputs import broker_order
from kafka_forensics.evidence.options import listed
from kafka_forensics.model.amounts import first_few, plural
from kafka_forensics.model.constants import REMOTE_LOG_METADATA_TOPIC, WITNESS_TOPICS
from kafka_forensics.model.json_objects import rfc3339
from kafka_forensics.model.safe_text import unquoted
from kafka_forensics.questions.group_resets import group_resets
from kafka_forensics.questions.plan import Planned, Plans
from kafka_forensics.replication.planner import ASSIGNMENT_UNKNOWN, Broker, Candidate, ElectionNeeds, StartOrder, StartRound
from kafka_forensics.replication.small_files import ABSENT
from kafka_forensics.wording import rerun_command

_SETTING: Final = "unclean.leader.election.enable"
FILES: Final = "steps"
"""The directory of the files that commands of the steps read, unless the user names another."""
LOST: Final = "lost"
"""The directory of recovered records."""
_PARTITIONS_COMPARED: Final = 8
"""Partitions whose leaders a person compares with a list."""
_TOPICS_NAMED: Final = 5
"""Topics that a command to look at them names."""


def preamble(plans: Plans, steps: Iterable[OperatorStep]) -> str:
    """The paragraph above the steps, which applies to all of them; empty if they only end transactions."""
    if all(step.kind in ("look_again", "end_transactions", "transactions_ended") for step in steps):
        return ""
    return (
        f"If a step fails for {minutes_to_start(plans.bytes_to_recover.values())} minutes, stop all brokers, copy and plan again."
    )


class _ElectionSteps(NamedTuple):
    """A partition, the candidate that should become its leader, and what that needs."""

    planned: Planned
    candidate: Candidate
    needs: ElectionNeeds

    @property
    def partition(self) -> TopicPartition:
        return self.planned.plan.topic, self.planned.plan.partition


class PlanArguments(NamedTuple):
    """What the user requested of a plan's steps."""

    elect: str | None = None
    """The leader; None: the recommended one."""
    selection: tuple[str, ...] = ()
    """The options that select partitions."""
    dead: tuple[str, ...] = ()
    """Options that name dead brokers."""
    rule: tuple[str, ...] = ()
    """The option that sets how followers truncate."""
    files: str | None = None
    """The directory of the files that commands of the steps read; None: none was written."""


RECOMMENDED: Final = PlanArguments()


def plan_again_command(plans: Plans, arguments: PlanArguments, *options: str) -> str:
    """The command that makes the same plan again."""
    return rerun_command(
        "plan",
        plans.rerun_arguments,
        *arguments.selection,
        *arguments.dead,
        *arguments.rule,
        *options,
    )


def steps_of(plans: Plans, arguments: PlanArguments = RECOMMENDED) -> list[OperatorStep]:
    """What to do, in this order; empty where no broker can lead any partition. Steps end where a new plan is needed."""
    elect = arguments.elect
    if plans.only_remote:
        return [_salvage_remote_logs(plans), *_open_transactions(plans, arguments)]
    chosen = [(planned, planned.chosen(elect)) for planned in plans.planned]
    elections = [_ElectionSteps(planned, leader, planned.needs(leader)) for planned, leader in chosen if leader is not None]
    again = [*_plan_again(plans, elections), *(_find_watermarks(elections) if elect is None else ())]
    steps = [*_find_copies(plans), *again]
    if not again:
        ordered = list(_election_steps(plans, elections, arguments))
        starts = any(step.kind == "start" for step in ordered) and any(planned.matters for planned in plans.planned)
        recover = list(_recover(plans, elections, arguments)) if starts else []
        steps += [*_before_starts(plans, elections), *recover, *ordered]
        if starts:
            steps += [*_reset_groups(plans, arguments), *_check_result(arguments, recovered=bool(recover))]
    transactions = list(_open_transactions(plans, arguments))
    if not steps and any(step.kind == "end_transactions" for step in transactions) and _any_start_is_safe(plans):
        steps.append(OperatorStep("start", "Start the controllers, then the brokers in any order: no election loses a record."))
    return list(dict.fromkeys([*steps, *transactions]))


def _any_start_is_safe(plans: Plans) -> bool:
    """Whether the brokers are stopped and may start in any order, by copies of all replicas."""
    unknown = (
        plans.absent
        or plans.assignment_unknown
        or plans.not_read
        or plans.without_copy
        or plans.refused
        or plans.others
        or plans.unformatted
    )
    return not (plans.live or plans.planned or unknown)


def _election_steps(plans: Plans, elections: Sequence[_ElectionSteps], arguments: PlanArguments) -> Iterable[OperatorStep]:
    """How to have these leaders elected; or a salvage, where that loses less or no order of starts has them elected."""
    elect = arguments.elect
    if elect is None and any(planned.salvage is not None for planned in plans.planned):
        return _salvage(plans, [planned for planned in plans.planned if planned.salvage is not None])
    if not elections:
        return ()
    if plans.live and all(election.candidate.election == "leads" for election in elections):
        return _keep_running(elections)
    order = plans.start_order(elect)
    if order.impossible:
        return _salvage(plans, [election.planned for election in elections if election.partition in order.impossible])
    return _start_in_order(plans, elections, order, arguments) if order.rounds else _start_in_any_order(plans, elections)


def _recover(plans: Plans, elections: Sequence[_ElectionSteps], arguments: PlanArguments) -> Iterator[OperatorStep]:
    """Write the records that these elections lose, if a copy holds some: before brokers start and truncate their logs."""
    recovered = [election for election in elections if _is_recoverable(election)]
    if recovered:
        options = (*arguments.selection, *arguments.dead, "--plan", PLAN, "--output", LOST)
        no_store = not plans.has_store and any(map(_gives_up_remote_segments, recovered))
        store = ", with the remote store as one more PATH" if no_store else ""
        partitions = tuple(election.partition for election in recovered)
        text = f"Write the records that the steps lose to files{store}:"
        yield OperatorStep("recover", text, rerun_command("recover", plans.rerun_arguments, *options), (), partitions)


def _check_result(arguments: PlanArguments, *, recovered: bool) -> Iterator[OperatorStep]:
    """Produce the recovered records again, and check that all steps had the planned result."""
    command = f"kafka-forensics verify PATH... --live --against {PLAN}"
    command += f" --elected {shlex.quote(arguments.elect)}" if arguments.elect else ""
    if recovered:
        command += f" --recovered {LOST}"
        yield OperatorStep(
            "produce",
            "Produce the records again at the ends of the logs (docs/recover.md):",
            f"{produce_command(LOST)} --send",
        )
    yield OperatorStep("verify", "When all replicas are in sync, copy their logs, check, and start clients:", command)


def _is_recoverable(election: _ElectionSteps) -> bool:
    """Whether `recover` writes records that the election loses."""
    is_internal = election.partition[0] in WITNESS_TOPICS
    return not is_internal and (bool(_holders(election)) or _gives_up_remote_segments(election))


def _reset_groups(plans: Plans, arguments: PlanArguments) -> Iterator[OperatorStep]:
    """Set committed offsets that do not fit the elected logs: the groups would skip records, or read some again."""
    offsets = group_resets(plans, arguments.elect)
    if offsets:
        groups, file = list(offsets), "offsets.csv"
        who, they = (unquoted(groups[0]), "it") if len(groups) == 1 else (f"{len(groups)} groups", "they")
        count = plural(sum(map(len, offsets.values())), "offset")
        text = f"With {who} stopped, set {count} to what {they} read of the elected logs:"
        command = reset_command(offsets, f"{arguments.files or FILES}/{file}")
        partitions = tuple(dict.fromkeys(partition for of_group in offsets.values() for partition in of_group))
        written = (file, reset_csv(offsets)) if "--from-file" in command else None
        yield OperatorStep("reset_offsets", text, command, (), partitions, written)


def _open_transactions(plans: Plans, arguments: PlanArguments) -> Iterator[OperatorStep]:
    """What to do on the running cluster about open transactions that no coordinator lists."""
    if plans.result is None:
        return
    hanging: defaultdict[str, dict[TopicPartition, None]] = defaultdict(dict)
    for finding in plans.result.findings:
        evidence, place = finding.evidence, finding.place
        if finding.kind not in kinds_with(Trait.OPEN_TRANSACTION) or place.topic is None or place.partition is None:
            continue
        if plans.live and evidence.get("look_again_at") is not None:
            whose = f"producer {evidence['producer_id']} in {name(place.topic, place.partition)}"
            what = f"the transaction of {whose} from offset {evidence['first_offset']} on"
            text = f"If {what} is still open at {rfc3339(evidence['look_again_at'])}, plan again on a new copy."
            yield OperatorStep("look_again", text, None, (), ((place.topic, place.partition),))
        if evidence.get("find_hanging") is not None:
            hanging[finding.kind][place.topic, place.partition] = None
    for kind, partitions in hanging.items():
        text = (
            f"On the running cluster, confirm that transactions in {partitions_words(list(partitions))} hang, and abort them if "
            "that is safe. This command prints how:"
        )
        command = rerun_command("transactions", plans.rerun_arguments, *arguments.selection, *state_options({kind}))
        yield OperatorStep("end_transactions", text, command, (), tuple(partitions))
        command = rerun_command("transactions", None, *arguments.selection, *state_options({kind}), "--live")
        yield OperatorStep("transactions_ended", "Copy the logs again. This lists none of them:", command, (), tuple(partitions))


def _salvage(plans: Plans, salvaged: Sequence[Planned]) -> Iterator[OperatorStep]:
    """Build log directories from all copies with `kafka-forensics salvage`."""
    partitions = tuple((planned.plan.topic, planned.plan.partition) for planned in salvaged)
    live = {replica.broker for planned in plans.planned for replica in planned.planner_input.replicas if replica.is_live}
    live_brokers = tuple(sorted(live, key=broker_order))
    yield OperatorStep(
        "stop", f"Stop {brokers(live_brokers)}, if running. If a broker ran since it was copied, plan again.", None, live_brokers
    )
    command = rerun_command("salvage", plans.rerun_arguments, *plans.salvage_options, "--output", "DIR")
    why = "A salvage loses less of {} than any election"
    if not any(planned.salvage for planned in salvaged):
        why = "No order of starts elects the best leaders of {}: another broker in sync is elected first"
    text = f"{why.format(partitions_words(partitions))}. Write log directories to a new DIR, and follow the steps that it prints. "
    text += "Then copy again, and plan what is left:"
    yield OperatorStep("salvage", text, command, (), partitions)


def _salvage_remote_logs(plans: Plans) -> OperatorStep:
    """Build the directories of partitions whose remote segments brokers would delete if they started without these."""
    lost, started = tuple(plans.only_remote), _distinct(broker for names in plans.only_remote.values() for broker in names)
    where = "with the remote store" if plans.has_store else "with the remote store as one more PATH"
    text = (
        f"Start no broker: {named(lost)} has no copy, and a leader that starts without the directory deletes its remote "
        f"segments. Stop {brokers(started)}, if running. Look for further copies; without any, a salvage {where} writes the "
        "directories. Follow the steps that it prints:"
    )
    command = rerun_command("salvage", plans.rerun_arguments, *plans.salvage_options, "--output", "DIR")
    return OperatorStep("salvage", text, command, started, lost)


def _find_copies(plans: Plans) -> Iterator[OperatorStep]:
    """Look for copies of partitions that have none here, and plan all partitions."""
    if plans.without_copy:
        text = (
            f"{named(plans.without_copy)} has no copy, and brokers start without its records. First look for more copies:"
            " other brokers, other log directories, backups. Plan again with them; go on only if there are none."
        )
        if any(topic == REMOTE_LOG_METADATA_TOPIC for topic, _ in plans.without_copy):
            text += (
                f" Without {REMOTE_LOG_METADATA_TOPIC} brokers know no remote segment that it lists; a salvage with the remote "
                "store builds it."
            )
        yield OperatorStep("copy", text, None, (), tuple(plans.without_copy))
    if plans.others:
        more = plural(plans.others, "further partition")
        text = f"Plan without --topic and --partition first: brokers start for {more} in these log directories, too."
        yield OperatorStep("plan_all", text)


def named(partitions: Sequence[TopicPartition]) -> str:
    """The first four of these partitions, and how many more there are."""
    return first_few([name(*partition) for partition in partitions], 4)


def _plan_again(plans: Plans, elections: Sequence[_ElectionSteps]) -> Iterator[OperatorStep]:
    """What must be found or repaired first; each step ends with another plan."""
    yield from controllers_first(plans.controller_findings)
    if plans.without_logs:
        text = f"Copy the log directories of {brokers(plans.without_logs)} again, with their .log files, and plan again."
        yield OperatorStep("copy", text, None, plans.without_logs)
    for broker, finding in plans.files_to_repair:
        if finding.evidence.get("reason") != ABSENT:
            yield OperatorStep("repair", repair_words(broker, finding), None, (broker,))
    missing = [missing for election in elections for missing in election.planned.plan.missing]
    not_read = [gap.broker for gap in missing if gap.kind in ("log_not_read", "copy_not_read")]
    if unread := _distinct(broker for broker in not_read if broker is not None and broker not in plans.without_logs):
        yield OperatorStep("read", f"Make the logs of {brokers(unread)} readable, and plan again.", None, unread)
    for strays in sorted({planned.plan.strays for planned in plans.planned if planned.plan.strays is not None}):
        yield OperatorStep("copy", STRAYS[strays])
    kinds = {gap.kind for gap in missing}
    if "topic_undecided" in kinds:
        yield OperatorStep("find_topic", "Find in the controllers' log which topic id exists now, and plan again.")
    if "voters_behind" in kinds:
        yield OperatorStep(
            "copy", "Look for a newer copy of a voter's __cluster_metadata-0, and plan again before any controller starts."
        )
    lacking = [broker for election in elections for broker in election.needs.plan_again_with]
    if absent := _distinct(broker for broker in lacking if broker not in plans.without_logs):
        given = f"{absent[0]}=DIR" if len(absent) == 1 and isinstance(absent[0], int) else "N=DIR"
        text = (
            f"Copy the log directories of {brokers(absent)} as well, and plan again: they may hold what no other copy holds. "
            f"An empty one, of a new disk, is given as {given}."
        )
        yield OperatorStep("copy", text, None, absent)


def _find_watermarks(elections: Sequence[_ElectionSteps]) -> Iterator[OperatorStep]:
    """Find the high watermark of replicas without one, where it decides who should lead."""
    contested: defaultdict[tuple[Broker, ...], list[TopicPartition]] = defaultdict(list)
    for election in elections:
        plan = election.planned.plan
        if plan.contested_by is not None and plan.recommended is not None:
            contested[plan.recommended, plan.contested_by, *plan.without_high_watermark].append(election.partition)
    for (recommended, other, *silent), partitions in contested.items():
        text = (
            f"Whether {brokers([recommended])} or {brokers([other])} should lead {partitions_words(partitions)} depends on what "
            f"{brokers(silent)} had committed, and no high watermark shows it. Look for an older replication-offset-checkpoint of "
            "that log directory. If it names a high watermark of them, make a second copy of the log directory, add only the "
            "lines that are missing to that file there (it begins with a line 0, then the number of lines that follow), and plan "
            "again with the second copy. "
            "Without one, decide: plan each with --elect N."
        )
        yield OperatorStep("find_watermark", text, None, tuple(silent), tuple(partitions))


def _before_starts(plans: Plans, elections: Sequence[_ElectionSteps]) -> Iterator[OperatorStep]:
    """What to repair and look for before any broker starts."""
    for broker, finding in plans.files_to_repair:
        yield OperatorStep("repair", repair_words(broker, finding), None, (broker,))
    if any(missing.kind in ASSIGNMENT_UNKNOWN for election in elections for missing in election.planned.plan.missing):
        yield OperatorStep(
            "check_replicas",
            "Check that no other broker has a replica: no given controllers' log shows it, and another replica may hold more.",
        )
    if lost := tuple(election.partition for election in elections if election.planned.held_by_no_copy):
        text = (
            f"{'' if plans.live else 'Start no broker yet. '}Committed offsets of {partitions_words(lost)} are in no given copy. "
            "Look for more copies (other log directories, backups, names ending in .deleted), and plan again with them. "
            "If you find none, go on."
        )
        yield OperatorStep("copy", text, None, (), lost)


def _keep_running(elections: Sequence[_ElectionSteps]) -> Iterator[OperatorStep]:
    """Steps for running brokers where the right ones lead already."""
    yield OperatorStep("leads", "Let the brokers run: the right ones lead.", DESCRIBE)
    for broker in _distinct(broker for election in elections for broker in election.needs.set_aside):
        yield OperatorStep("stop", f"Stop {brokers([broker])}.", None, (broker,))
        yield from _prepare_log_dirs(elections, broker)
        yield OperatorStep("start", f"Start {brokers([broker])}.", None, (broker,))


def _start_in_any_order(plans: Plans, elections: Sequence[_ElectionSteps]) -> Iterator[OperatorStep]:
    """Steps where every election loses nothing."""
    assignment_unknown = any(
        missing.kind in ASSIGNMENT_UNKNOWN for election in elections for missing in election.planned.plan.missing
    )
    yield from _prepare_log_dirs(elections, None)
    yield from _format_log_dirs(plans)
    candidates = [candidate for election in elections for candidate in election.planned.plan.candidates]
    trimmed = any(follower.below_leaders_start for candidate in candidates for follower in candidate.followers)
    except_start = " except what the leader's log has already deleted" if trimmed else ""
    elected = "whichever of them" if assignment_unknown else "whichever"
    is_partial = plans.without_copy or any(election.planned.held_by_no_copy for election in elections)
    nothing = "nothing that the copies hold" if is_partial else "nothing"
    text = f"Start the brokers in any order: {elected} is elected, {nothing} is lost{except_start}."
    if len(elections) == 1 and elections[0].candidate.broker != elections[0].planned.plan.recommended:
        text += f" {capital(brokers([elections[0].candidate.broker]))} can be made the leader without force once it is in the ISR."
    yield OperatorStep("start", text, None, _distinct(broker for election in elections for broker in election.needs.started))
    yield from _repair_refused_logs(plans)


def _start_in_order(
    plans: Plans, elections: Sequence[_ElectionSteps], starts: StartOrder, arguments: PlanArguments
) -> Iterator[OperatorStep]:
    """Stop, copy, then start one broker after the other and have it elected."""
    started = _distinct(broker for election in elections for broker in election.needs.started)
    copied = _distinct(broker for election in elections for broker in _holders(election).intersection(election.needs.copy_first))
    text = f"Stop clients and {brokers(started)}"
    if copied:
        whose = "their log directories" if copied == started else f"the log directories of {brokers(copied)}"
        text += f"; keep copies of {whose}: only they hold what is given up"
    if given_up := [election.partition for election in elections if _gives_up_remote_segments(election)]:
        text += (
            f". Copy the remote segments of {partitions_words(given_up)}, which this plan gives up, from the remote store to "
            "another place first"
        )
    yield OperatorStep("stop", f"{text}. If one ran since it was copied, plan again.", None, started)
    if dead := _distinct(broker for election in elections for broker in _dead_holders(election)):
        copies = "copy" if len(dead) == 1 else "copies"
        yield OperatorStep("keep", f"Keep the given {copies} of {brokers(dead)}: no other copy holds the lost records.", None, dead)
    yield from _format_log_dirs(plans)
    controls = [election.planned.planner_input.control for election in elections]
    is_known = None not in controls
    both = [broker for broker in started if broker in plans.combined]
    controllers = controllers_step(both, "the controllers" if is_known else "the controllers or ZooKeeper")
    unclean = list(_unclean(elections, starts, is_known=is_known))
    if unclean[0].kind == "check_unclean":
        yield from (*unclean, controllers)
    elif both:
        yield from (controllers, *unclean)
    else:
        yield replace(unclean[0], text="Let the controllers run, and forbid unclean elections for now:")
        yield from unclean[1:]
    for number, start in enumerate(starts.rounds):
        yield from _prepare_log_dirs(elections, start.broker)
        alone = any(start.broker in later.stopped for later in starts.rounds[number:])
        yield from _start(start, number + 1, arguments.files or FILES, alone=alone)
    for broker in starts.others:
        yield from _prepare_log_dirs(elections, broker)
    yield from _repair_refused_logs(plans)
    if starts.others:
        order = ", then ".join(brokers([broker]) for broker in starts.others)
        yield OperatorStep("start", f"Start {order}.", None, starts.others)
    if starts.forbid_unclean and is_known:
        default = next(control.unclean_by_default for control in controls if control is not None)
        before = f"--delete-config {_SETTING}" if default is None else f"--add-config {_SETTING}={str(default).lower()}"
        yield OperatorStep("restore_unclean", "Restore that setting of all brokers:", f"{OF_ALL_BROKERS} {before}")
        if topics := _topics_allowing_unclean(elections, by_topic=True):
            command = of_topics(topics, f"--add-config {_SETTING}=true")
            yield OperatorStep("restore_unclean", f"Allow them again for {listed(map(unquoted, topics))}:", command)


def _unclean(elections: Sequence[_ElectionSteps], starts: StartOrder, *, is_known: bool) -> Iterator[OperatorStep]:
    """Check or forbid unclean elections, which make whichever broker starts first the leader."""
    if not starts.forbid_unclean:
        topics = _topics_allowing_unclean(elections)
        hint = "; no line means no" if is_known else "; settings that only a controllers' log shows may allow them, too"
        hint = f": the controllers' log allows them for {listed(map(unquoted, topics))}" if topics else hint
        text = f"Check whether unclean elections are allowed{hint}. "
        text += "If they are, the broker that starts first is elected: keep this order."
        yield OperatorStep("check_unclean", text, f"grep -H {_SETTING} server.properties")
        return
    if is_known:
        text = "Forbid unclean elections for now: they could elect other leaders."
        yield OperatorStep("forbid_unclean", text, f"{OF_ALL_BROKERS} --add-config {_SETTING}=false")
        if topics := _topics_allowing_unclean(elections, by_topic=True):
            command = of_topics(topics, f"--add-config {_SETTING}=false")
            yield OperatorStep("forbid_unclean", f"Also for {listed(map(unquoted, topics))}:", command)
    else:
        text = "If unclean elections are allowed, no order of starts suits all partitions. "
        text += "A topic's or dynamic setting overrides server.properties: remove any that allows them. "
        text += f"Set {_SETTING}=false in server.properties of every node before it starts:"
        yield OperatorStep("check_unclean", text, f"grep -H {_SETTING} server.properties")


def _format_log_dirs(plans: Plans) -> Iterator[OperatorStep]:
    """Format empty log directories of KRaft nodes, which do not start on them."""
    for broker in plans.unformatted:
        clusters = {summary.cluster_id for summary in plans.result.brokers if summary.cluster_id} if plans.result else set()
        cluster_id = shlex.quote(clusters.pop()) if len(clusters) == 1 else "CLUSTER_ID"
        text = (
            f"Format the empty log directory of {brokers([broker])}, on that node. When it starts, it copies its replicas from the "
            "leaders:"
        )
        yield OperatorStep(
            "format", text, f"kafka-storage.sh format --cluster-id {cluster_id} --config server.properties", (broker,)
        )


def _start(start: StartRound, number: int, directory: str, *, alone: bool) -> Iterator[OperatorStep]:
    """Start one broker, the first if `number` is 1, and have it elected for all partitions that it must lead."""
    who, partitions = brokers([start.broker]), start.leads
    topics = sorted({topic for topic, _ in partitions})
    if start.stopped:
        text = f"Stop {brokers(start.stopped)}: {who} must be elected while no other broker runs."
        yield OperatorStep("stop", text, None, start.stopped)
    yield OperatorStep("start", f"Start {who}, and no other yet.", None, (start.broker,), partitions)
    if start.forced:
        text = f"If needed, elect it for {partitions_words(start.forced)}, until it leads:"
        file = f"election-{number}.json"
        written = (file, election_json(start.forced)) if len(start.forced) > 1 else None
        command = election_command(start.forced, f"{directory}/{file}")
        yield OperatorStep("elect", text, command, (start.broker,), start.forced, written)
    text, command = f"Check that {who} leads {partitions_words(partitions)}", DESCRIBE
    if len(topics) <= _TOPICS_NAMED:
        command += f" --topic {shlex.quote('|'.join(topics))}"
    if len(partitions) <= _PARTITIONS_COMPARED or alone or isinstance(start.broker, str):
        isr = f", with only {start.broker} in ISR, and an empty ELR" if alone else ""
        yield OperatorStep("leads", f"{text}{isr}:", command, (start.broker,), partitions)
        return
    file = f"leaders-{number}.txt"
    command += f" | grep -cFf {shlex.quote(f'{directory}/{file}')}"
    written = file, leader_lines(partitions, start.broker)
    yield OperatorStep("leads", f"{text}. This prints {len(partitions)}:", command, (start.broker,), partitions, written)


def _prepare_log_dirs(elections: Sequence[_ElectionSteps], broker: Broker | None) -> Iterator[OperatorStep]:
    """What to do in a broker's log directories before it starts; None: what to do in those of all brokers."""
    lacking: defaultdict[tuple[Broker, str], list[TopicPartition]] = defaultdict(list)
    for election in elections:
        for lacking_broker, topic_id in election.planned.without_topic_id.items():
            if broker in (None, lacking_broker):
                shown_id = topic_id or "ID, with the id that kafka-topics.sh --describe shows"
                lacking[lacking_broker, shown_id].append(election.partition)
    for (lacking_broker, topic_id), partitions in lacking.items():
        text = (
            f"Before {brokers([lacking_broker])} starts, write a file partition.metadata into its {_directories(partitions)}, "
            f"with the lines version: 0 and topic_id: {unquoted(topic_id)}. Without it the broker does not serve the log."
        )
        yield OperatorStep("write_topic_id", text, None, (lacking_broker,), tuple(partitions))
    aside = tuple(election.partition for election in elections if broker in election.needs.set_aside)
    if broker is not None and aside:
        text = (
            f"Move the {_directories(aside)} of {brokers([broker])} out of its log directory (never delete it). The broker "
            "then copies the whole log from the leader."
        )
        yield OperatorStep("move_aside", text, None, (broker,), aside)


def _directories(partitions: Sequence[TopicPartition]) -> str:
    return f"directory {name(*partitions[0])}" if len(partitions) == 1 else f"directories of {partitions_words(partitions)}"


def _repair_refused_logs(plans: Plans) -> Iterator[OperatorStep]:
    """Repair logs on which brokers would not start."""
    for planned in plans.planned:
        for replica in planned.planner_input.replicas:
            if replica.is_live and (reason := refusal(planned, replica.broker)) is not None:
                who = capital(brokers([replica.broker]))
                text = f"{who} would not start with this copy, {reason}: copy its log directories, and scan them to see more."
                yield OperatorStep("repair", text, None, (replica.broker,))


def _holders(election: _ElectionSteps) -> set[Broker]:
    """Brokers that have some of the lost offsets on disk."""
    return {broker for loss in election.candidate.losses for broker in holders_on_disk(election.planned, loss)}


def _gives_up_remote_segments(election: _ElectionSteps) -> bool:
    """Whether the leader would delete remote segments, or not serve what they hold."""
    lost = any(begins_remotely(election.planned, loss) for loss in election.candidate.losses)
    return lost or election.candidate.remote.deleted > 0


def _dead_holders(election: _ElectionSteps) -> Iterator[Broker]:
    """Brokers that have some of the lost offsets on disk and will not come back."""
    holders = _holders(election)
    return (
        replica.broker for replica in election.planned.planner_input.replicas if replica.broker in holders and not replica.is_live
    )


def _topics_allowing_unclean(elections: Sequence[_ElectionSteps], *, by_topic: bool = False) -> list[str]:
    """Topics for which the controllers' log allows unclean elections, with `by_topic` by a setting of the topic itself."""
    controls = [(election.partition[0], election.planned.planner_input.control) for election in elections]
    known = [(topic, control) for topic, control in controls if control is not None]
    return sorted({topic for topic, control in known if (control.unclean_by_topic if by_topic else control.unclean_enabled)})


def _distinct(repeated: Iterable[Broker]) -> tuple[Broker, ...]:
    return tuple(sorted(set(repeated), key=broker_order))
