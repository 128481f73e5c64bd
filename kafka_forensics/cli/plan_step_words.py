"""The way to a planned election in words: what to do in which order, and Kafka's own commands for it. All of it safe to print."""

import json
import shlex
from collections.abc import Iterator
from typing import Final

from kafka_forensics.cli.output_words import name, plural
from kafka_forensics.cli.plan_words import brokers, capital, damaged_by, offsets_words, refusal
from kafka_forensics.cli.safe_text import printable
from kafka_forensics.questions.plan import Planned
from kafka_forensics.replication.offset_ranges import clipped
from kafka_forensics.replication.planner import NO_END, UNSAID, Broker, Candidate, Steps
from kafka_forensics.replication.recovery import NEEDED_FILES

_SERVER: Final = "HOST:PORT"


def step_lines(planned: Planned, candidate: Candidate) -> Iterator[str]:
    """What to do, a step a sentence, without numbers."""
    if planned.others:
        yield (
            f"Plan without --topic and --partition first: brokers start for {plural(planned.others, 'further partition')} in these "
            "log directories, too, and what is best for this one may cost another records."
        )
    yield from _steps_of_one(planned, candidate)


def _steps_of_one(planned: Planned, candidate: Candidate) -> Iterator[str]:
    """The steps as if it were the only partition."""
    todo = planned.steps(candidate)
    yield from unstartable(planned, movable=True, until="anything below is done")
    yield from _unread(planned)
    if any(missing.kind == "topic_undecided" for missing in planned.plan.missing):
        yield "Find out by the controller's log which topic id is the present one, and plan again before anything below is done."
    if any(missing.kind == "voters_behind" for missing in planned.plan.missing):
        yield "Look for a newer copy of a voter's __cluster_metadata-0, and plan again with it, before any controller starts."
    if todo.any_order:
        yield from _any_order(planned, candidate)
        return
    if todo.copy_first:
        yield (
            f"Stop {brokers(todo.copy_first)} and copy the log directories there, whole, to where nothing touches them: what "
            "would be lost is in no other place. If they ran since the copies planned on were made, plan again on the new ones."
        )
    yield from _left(planned, candidate)
    if todo.plan_again_with:
        yield (
            f"Copy the log directories of {brokers(todo.plan_again_with)} as well and plan again before anything below is done: "
            "what is there may be in no other place."
        )
    if todo.keep_stopped:
        yield _kept_down(todo)
    yield from (_moved_out(planned, todo, broker) for broker in todo.set_aside)
    yield f"Start {brokers([todo.leader])}, if it is not running." + _by_itself(planned, candidate) + _rotten(planned, candidate)
    if todo.unclean:
        yield _forced(planned, candidate)
    yield from unstartable(planned, movable=False)
    others = todo.start_order[1:]
    if others:
        wait = "" if candidate.election == "leads" else f" when {brokers([todo.leader])} is seen to lead"
        listed = ", ".join(printable(str(one)) for one in others)
        yield f"Start {brokers(others)}{wait}." if len(others) == 1 else f"Start the others{wait}, in this order: {listed}."


def _any_order(planned: Planned, candidate: Candidate) -> Iterator[str]:
    """That nobody need be stopped or forced, as far as all that could be elected was seen."""
    unsaid = any(missing.kind in UNSAID for missing in planned.plan.missing)
    if unsaid:
        yield "Make sure that no other broker has a replica: no controller's log here says so, and it may hold more."
    whoever = "whoever of them" if unsaid else "whoever"
    trimmed = any(follower_plan.below_leaders_start for one in planned.plan.candidates for follower_plan in one.followers)
    but = " but what lies below the log start of who is" if trimmed else ""
    yield f"Start the brokers in any order: {whoever} is elected, nothing is lost{but}." + _without_force(planned, candidate)


def _without_force(planned: Planned, candidate: Candidate) -> str:
    """How another than the recommended one comes to lead where nobody need be forced."""
    if candidate.broker == planned.plan.recommended:
        return ""
    return f" {capital(brokers([candidate.broker]))} can be made the leader without force once it is in the ISR."


def _unread(planned: Planned) -> Iterator[str]:
    """What must be read before anything else is done."""
    unread = [
        missing.broker
        for missing in planned.plan.missing
        if missing.kind in ("log_not_read", "copy_not_read") and missing.broker is not None
    ]
    if unread:
        yield f"See to it that the log of {brokers(unread)} can be read whole, and plan again before anything below is done."


def _left(planned: Planned, candidate: Candidate) -> Iterator[str]:
    """What of the losses only copies here hold, of brokers that will not come back."""
    holders = {broker for loss in candidate.losses for broker in loss.held_by}
    dead = [replica.broker for replica in planned.given.replicas if replica.broker in holders and not replica.is_live]
    if dead:
        copy = "copy" if len(dead) == 1 else "copies"
        yield f"Keep the {copy} of {brokers(dead)} given here: of what would be lost, no more than that is left."


def _kept_down(todo: Steps) -> str:
    """Who stays down, of whom those that were copied are stopped already."""
    running = [one for one in todo.keep_stopped if one not in todo.copy_first]
    verb = "stays" if len(todo.keep_stopped) == 1 else "stay"
    until = f"{verb} down until {brokers([todo.leader])} leads."
    if len(running) == len(todo.keep_stopped):
        return f"Stop {brokers(running)}; {'it' if len(running) == 1 else 'they'} {until}"
    all_of_them = brokers(todo.keep_stopped)
    return f"Stop {brokers(running)}; {all_of_them} {until}" if running else f"{capital(all_of_them)} {until}"


def _moved_out(planned: Planned, todo: Steps, broker: Broker) -> str:
    """How a follower comes to copy the leader anew."""
    verb = "Move" if broker in (*todo.keep_stopped, *todo.copy_first) else f"Stop {brokers([broker])} and move"
    when = ", once it is copied," if broker in todo.copy_first else " (never delete it),"
    return (
        f"{verb} the directory {name(planned.plan.topic, planned.plan.partition)} of {brokers([broker])} out of its log "
        f"directory{when} so that it copies the leader anew and nothing stays different, damaged or missing."
    )


def unstartable(planned: Planned, *, movable: bool | None = None, until: str = "it starts") -> Iterator[str]:
    """What to do about each broker that would not start on its copy, a sentence each; `movable`: only about those of which a file
    has to be moved out of the way, or about the others; `until`: before what."""
    for replica in planned.given.replicas:
        if replica.is_live and replica.refused_at is not None and movable in (None, replica.refused_at in NEEDED_FILES):
            lead = (
                f"{capital(brokers([replica.broker]))} would not start as it is, {refusal(planned, replica.broker)}: copy its log "
            )
            yield lead + (
                f"directories, move that file out of them (never delete it), copy again and plan again before {until}."
                if replica.refused_at in NEEDED_FILES
                else "directories; `kafka-forensics scan` tells what is wrong there."
            )


def _by_itself(planned: Planned, candidate: Candidate) -> str:
    control = planned.given.control
    crashed = any(replica.crashed for replica in planned.given.replicas if replica.broker == candidate.broker)
    if candidate.election == "clean" and crashed and control is not None and len(control.isr or ()) > 1:
        return (
            " The controller elects it by itself, cleanly, if it is still in the ISR then: it was not stopped cleanly. If it does "
            "not lead, plan again with a new copy of the controller's log before anyone else starts."
        )
    if candidate.election in ("clean", "elr"):
        return " The controller elects it by itself, cleanly."
    if candidate.election == "last-known-leader":
        return " The controller elects it by itself, for it led last and nobody is left in the ISR and the ELR."
    if candidate.election == "unclean" and control is not None and control.unclean_enabled:
        return " The topic allows unclean elections, so the controller elects it by itself when no other replica is alive."
    return ""


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


def _forced(planned: Planned, candidate: Candidate) -> str:
    known = candidate.election == "unclean"
    reason = "It is not in sync" if known else "If the partition has no leader then, it was not in sync"
    if planned.plan.truncate_by == "high-watermark":
        return f"{reason}: allow unclean elections for the topic until it leads, and forbid them again."
    return f"{reason}: have it elected uncleanly (with Kafka before 2.4: allow unclean elections for the topic until it leads)."


def commands(planned: Planned, candidate: Candidate) -> list[str]:
    """Command lines of Kafka's own tools that go with the steps; HOST:PORT stands for a broker, or for ZooKeeper."""
    topic, todo = shlex.quote(planned.plan.topic), planned.steps(candidate)
    if planned.plan.truncate_by == "high-watermark":
        alter = f"kafka-configs.sh --zookeeper {_SERVER} --alter --entity-type topics --entity-name {topic}"
        forced = [f"{alter} --add-config unclean.leader.election.enable=true"]
        done = [f"{alter} --delete-config unclean.leader.election.enable"]
        look = [f"kafka-topics.sh --zookeeper {_SERVER} --describe --topic {topic}"]
        return [*look, *forced, *look, *done] if todo.unclean else look
    look = [f"kafka-topics.sh --bootstrap-server {_SERVER} --describe --topic {topic}"]
    if not todo.unclean:
        return look
    wanted = shlex.quote(election_json(planned))
    elect = f"kafka-leader-election.sh --bootstrap-server {_SERVER} --election-type unclean --path-to-json-file election.json"
    return [*look, f"printf '%s\\n' {wanted} > election.json", elect, *look]


def election_json(planned: Planned) -> str:
    """The file that `kafka-leader-election.sh` reads."""
    return json.dumps({"partitions": [{"topic": planned.plan.topic, "partition": planned.plan.partition}]})


def steps_object(todo: Steps) -> dict[str, object]:
    """The steps as JSON has them."""
    return {
        "leader": todo.leader,
        "copy_first": list(todo.copy_first),
        "keep_stopped": list(todo.keep_stopped),
        "plan_again_with": list(todo.plan_again_with),
        "set_aside": list(todo.set_aside),
        "unclean": todo.unclean,
        "start_order": list(todo.start_order),
        "do_not_start": list(todo.do_not_start),
        "any_order": todo.any_order,
    }
