"""The way to a planned election in words: what to do in which order, and Kafka's own commands for it. All of it safe to print."""

import json
import shlex
from collections.abc import Iterator
from typing import Final

from kafka_forensics.cli.output_words import name
from kafka_forensics.cli.plan_words import MOVABLE, brokers, damaged_by, ranges_words, refusal
from kafka_forensics.cli.safe_text import printable
from kafka_forensics.engine.planning import Planned
from kafka_forensics.replication.offset_ranges import clipped
from kafka_forensics.replication.plan_steps import Steps
from kafka_forensics.replication.plans import NO_END, Candidate

_SERVER: Final = "HOST:PORT"


def step_lines(planned: Planned, candidate: Candidate) -> Iterator[str]:
    """What to do, a step a sentence, without numbers."""
    todo = planned.steps(candidate)
    if todo.any_order:
        yield "Start the brokers in any order: whoever is elected, nothing is lost."
        yield from unstartable(planned)
        return
    if todo.copy_first:
        yield (
            f"Stop {brokers(todo.copy_first)} and copy the log directories there, whole, to where nothing touches them: what "
            "would be lost is in no other place. If they ran since the copies planned on were made, plan again on the new ones."
        )
    if todo.plan_again_with:
        yield (
            f"Copy the log directories of {brokers(todo.plan_again_with)} as well and plan again before anything below is done: "
            "what is there may be in no other place."
        )
    if todo.keep_stopped:
        stay = "it stays" if len(todo.keep_stopped) == 1 else "they stay"
        yield f"Stop {brokers(todo.keep_stopped)}; {stay} down until {brokers([todo.leader])} leads."
    for broker in todo.set_aside:
        yield (
            f"Move the directory {name(planned.plan.topic, planned.plan.partition)} of {brokers([broker])} out of its log "
            "directory, once it is copied, so that it copies the leader anew and keeps nothing different or damaged."
        )
    yield f"Start {brokers([todo.leader])}, if it is not running." + _by_itself(planned, candidate) + _rotten(planned, candidate)
    if todo.unclean:
        yield _forced(planned, candidate)
    yield from unstartable(planned)
    others = todo.start_order[1:]
    if others:
        wait = "" if candidate.election == "leads" else f" when {brokers([todo.leader])} is seen to lead"
        yield f"Start the others{wait}, in this order: {', '.join(printable(str(one)) for one in others)}."


def unstartable(planned: Planned) -> Iterator[str]:
    """What to do about each broker that would not start on its copy, a sentence each."""
    for one in planned.given.replicas:
        if one.is_live and one.refused_at is not None:
            lead = f"{brokers([one.broker]).capitalize()} would not start as it is, {refusal(planned, one.broker)}: copy its log "
            yield lead + (
                "directories, move that file out of them (never delete it), copy again and plan again before it starts."
                if one.refused_at in MOVABLE
                else "directories; `kafka-forensics scan` tells what is wrong there."
            )


def _by_itself(planned: Planned, candidate: Candidate) -> str:
    control = planned.given.control
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
    end = next(one.log_end_offset for one in planned.given.replicas if one.broker == candidate.broker)
    served, cut = clipped(ranges, 0, end), clipped(ranges, end, NO_END)
    text = ""
    if served:
        text += (
            f" Its own copy is damaged at offsets {ranges_words(served)}: it serves those bytes as they are, so consumers stop "
            "there with an error, and followers that have to copy them get no further."
        )
    if cut:
        text += f" Its own copy is damaged at offsets {ranges_words(cut)}: as it starts, recovery cuts its log at {end}."
    return text


def _forced(planned: Planned, candidate: Candidate) -> str:
    known = candidate.election == "unclean"
    reason = "It is not in sync" if known else "If the partition has no leader then, it was not in sync"
    if planned.plan.truncate_by == "high-watermark":
        return f"{reason}: allow unclean elections for the topic until it leads, and forbid them again."
    return f"{reason}: have it elected uncleanly (Kafka 2.4 and later)."


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
