"""A plan as a runbook: two ways side by side, then every step with its commands, what it should show, and the way back.

Commands are for bash. Names and paths stand in variables at the top, each filled as far as it is known.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from kafka_forensics.cli.outputs import plan_words
from kafka_forensics.cli.outputs.rows import markdown, markdown_lines
from kafka_forensics.cli.outputs.words import name
from kafka_forensics.cli.streams import printable
from kafka_forensics.model.amounts import plural
from kafka_forensics.questions.places import BrokerPlace
from kafka_forensics.questions.plan import Planned, Plans
from kafka_forensics.replication.planner import Broker, Candidate
from kafka_forensics.version import __version__

PARTITIONS_SHOWN: Final = 50
"""Partitions whose steps are told one by one."""
_SERVER: Final = "HOST:PORT"
_HEADS: Final = ("partition", "leader", "A: elect", "A loses", "B: keep", "B puts back", "better")
_LETTERS: Final = 24
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9]")


@dataclass(frozen=True, slots=True)
class Ways:
    """The two ways for one partition, and which is better: `A`, `B`, `either` (nothing is lost), or `nobody` (can lead)."""

    planned: Planned
    rolled_back: Candidate | None
    """A: the election that loses least."""
    kept: Candidate | None
    """B: who leads now, or would by an ordinary start; None: nobody does, or it cannot be told."""

    @property
    def better(self) -> str:
        """By loss first, then by risk: what is produced again comes later, at other offsets, and some readers read it twice; what a
        forced election cuts is gone."""
        best, kept = self.rolled_back, self.kept
        if best is None:
            return "nobody"
        if not best.losses and (kept is None or not kept.losses):
            return "either"
        return "A" if kept is None or (not best.losses and best.broker != kept.broker) else "B"


def ways_of(planned: Planned) -> Ways:
    """The two ways for a partition."""
    control = planned.given.control
    leader = None if control is None else control.leader
    nodes = planned.given.nodes
    kept = next(
        (candidate for candidate in planned.plan.candidates if nodes.get(candidate.broker, candidate.broker) == leader), None
    )
    if kept is None and len(planned.plan.ordinary) == 1:
        kept = planned.candidate(planned.plan.ordinary[0])
    return Ways(planned, planned.recommended, kept)


def runbook(plans: Plans, bootstrap: str | None) -> Iterator[str]:
    """The runbook of plans, as Markdown in pieces."""
    ways = [ways_of(planned) for planned in plans.planned]
    yield from _head(ways)
    yield from _two_ways(ways)
    yield from _variables(plans.places, bootstrap)
    yield from _copies(plans, ways)
    yield from _way_a(ways)
    yield from _way_b(ways)
    yield from _seen(plans, ways)
    yield from _back(plans.places)


def _head(ways: Sequence[Ways]) -> Iterator[str]:
    yield f"# Runbook\n\nMade by kafka-forensics {__version__} from copies. "
    yield "It is of their moment: if brokers ran since, copy and plan again.\n\n"
    yield "**Delete nothing. Start no broker before step 1 is done.** A follower that starts may cut what nobody else has.\n"
    if not ways:
        yield "\nNo partition is here of which an election would lose anything: start the brokers in any order.\n"


def _two_ways(ways: Sequence[Ways]) -> Iterator[str]:
    """What each way loses, side by side, and which is better."""
    if not ways:
        return
    yield "\n## The two ways\n\n"
    yield (
        "- **A, roll back**: elect the replica that holds most. Offsets and order stay; what others took since is cut, and only the"
        " copies bring it back.\n"
        "- **B, keep the leader and put back**: who leads goes on; what it lacks is taken from the copies and produced again."
        " Nothing is lost for good, but those records come later and at other offsets, and who has read them already may read them"
        " twice.\n\n"
    )
    yield from markdown_lines(_HEADS, (dict(zip(_HEADS, _row(way), strict=True)) for way in ways[:PARTITIONS_SHOWN]))
    if len(ways) > PARTITIONS_SHOWN:
        yield f"\n{plural(len(ways) - PARTITIONS_SHOWN, 'more partition')}: `kafka-forensics plan` lists them.\n"
    for better, words in _RECOMMENDED.items():
        count = sum(way.better == better for way in ways)
        if count:
            yield f"\n**{plural(count, 'partition')}: {words}**\n"


_RECOMMENDED: Final = {
    "A": "take A. It loses least, and nothing that is committed has to be produced again, or nobody leads and somebody must.",
    "B": "take B. A would cut records that the leader took since; B loses none of either side.",
    "either": "nothing is lost. Start the brokers.",
    "nobody": "nobody can lead on these copies. Read what the plan of the partition says before anything is done.",
}


def _row(way: Ways) -> list[str]:
    plan = way.planned.plan
    control = way.planned.given.control
    leader = "not known" if control is None or control.leader is None else "none" if control.leader < 0 else str(control.leader)
    best, kept = way.rolled_back, way.kept
    return [
        name(plan.topic, plan.partition),
        leader,
        "nobody can" if best is None else f"{best.broker} ({plan_words.election(way.planned, best)})",
        "" if best is None else _cost(way.planned, best),
        "not known" if kept is None else str(kept.broker),
        "" if kept is None else _cost(way.planned, kept),
        way.better,
    ]


def _cost(planned: Planned, candidate: Candidate) -> str:
    """`45 to 60 records`, nothing for none; the least is proven committed, and kept by no copy."""
    if not candidate.losses:
        return "nothing"
    most = plan_words.counted_in_words(planned, candidate.losses, candidate.at_most)
    return most if candidate.at_least == candidate.at_most else f"{candidate.at_least} to {most}"


# Commands: what stands in variables, and how a command is run on a broker's host.


def _sh(*lines: str) -> str:
    return "\n```sh\n" + "".join(f"{line}\n" for line in lines) + "```\n"


def _of(broker: Broker) -> str:
    """A broker's name in names of variables, and of files."""
    if isinstance(broker, int):
        return str(broker)
    return f"{_UNSAFE.sub('_', broker)[-_LETTERS:]}_{crc32(broker.encode('utf-8', 'surrogateescape')):08x}"


def _dirs(place: BrokerPlace) -> list[str]:
    """Variables of a broker's log directories."""
    return [f"LOGS_{_of(place.broker)}" + ("" if number == 1 else f"_{number}") for number in range(1, len(place.log_dirs) + 1)]


def _variables(places: Iterable[BrokerPlace], bootstrap: str | None) -> Iterator[str]:
    yield "\n## What the commands below need\n\nFill in what is empty, in the bash in which you run the rest.\n"
    lines = [
        f"BOOTSTRAP={_told(bootstrap)}  # a broker that runs, HOST:PORT",
        "SAFE=  # a directory with room for all copies, on no broker's disk",
        "START='sudo systemctl start kafka'  # how a broker is started",
        "STOP='sudo systemctl stop kafka'  # and stopped",
    ]
    for place in places:
        lines.append(f"HOST_{_of(place.broker)}={_told(place.host)}  # broker {printable(str(place.broker))}")
        lines += [
            f"{variable}={_told(path)}  # {printable(source)}"
            for variable, (source, path) in zip(_dirs(place), place.log_dirs, strict=True)
        ]
    yield _sh(*lines, 'on() { host=$1; shift; ssh "$host" "$(printf \'%q \' "$@")"; }  # runs a command there')


def _told(value: str | None) -> str:
    """A value as a shell takes it, nothing if it is not known or cannot be shown."""
    return shlex.quote(value) if value is not None and value == printable(value) else ""


def _host(broker: Broker) -> str:
    return f'"${{HOST_{_of(broker)}:?}}"'


# The steps.


def _tars(place: BrokerPlace) -> Iterator[tuple[str, str]]:
    """Of each log directory of a broker its variable, and its copy, as a shell takes them."""
    for number, variable in enumerate(_dirs(place), 1):
        copy = f"broker-{_of(place.broker)}.tar" if number == 1 else f"broker-{_of(place.broker)}-{number}.tar"
        yield f"${{{variable}:?}}", f'"${{SAFE:?}}/{copy}"'


def _copies(plans: Plans, ways: Sequence[Ways]) -> Iterator[str]:
    """Step 1: nothing that any way would lose may be in one place only."""
    yield "\n## 1. Stop and copy\n\n"
    holders = {
        broker
        for way in ways
        for candidate in (way.rolled_back, way.kept)
        if candidate is not None
        for broker in way.planned.steps(candidate).copy_first
    }
    first = [place for place in plans.places if place.broker in holders]
    if first:
        yield f"What would be lost is on {plan_words.brokers([place.broker for place in first])}: begin there.\n"
    else:
        yield "Nothing that only one broker holds would be lost. Copy all the same.\n"
    lines = []
    for place in (*first, *(place for place in plans.places if place.broker not in holders)):
        lines.append(f"on {_host(place.broker)} $STOP")
        lines += [f'on {_host(place.broker)} tar -C "{variable}" -cf - . > {copy}' for variable, copy in _tars(place)]
    yield _sh(*lines)
    yield "\nCopy the controllers' log directories as well, if they run on hosts of their own. Then plan again on these copies:\n"
    yield _sh(
        'kafka-forensics scan "${SAFE:?}"/*.tar',
        'kafka-forensics plan "${SAFE:?}"/*.tar --format json --output "${SAFE:?}/plan.json"',
    )
    yield "\nIt should show the same partitions, with the same losses as above. If not, make a new runbook of these copies.\n"


def _steps(way: Ways, candidate: Candidate) -> Iterator[str]:
    """The steps to one election, their commands, and what is seen once they are done."""
    planned = way.planned
    todo = planned.steps(candidate)
    which = markdown(_name(planned))
    yield from (f"1. {markdown(line)}\n" for line in plan_words.step_lines(planned, candidate))
    lines = [f"on {_host(broker)} $STOP" for broker in todo.keep_stopped]
    for broker in todo.set_aside:
        lines += _set_aside(planned, broker)
    lines.append(f"on {_host(todo.leader)} $START")
    lines += [line.replace(_SERVER, '"${BOOTSTRAP:?}"') for line in plan_words.commands(planned, candidate)]
    lines += [f"on {_host(broker)} $START" for broker in todo.start_order[1:]]
    yield _sh(*map(printable, lines))
    shown = [f"`kafka-topics.sh --describe` has `Leader: {printable(str(candidate.broker))}` for {which}"]
    shown += [
        f"`server.log` of broker {markdown(str(follower.broker))} says that {which} is truncated to {follower.truncation_offset}"
        for follower in candidate.followers
        if follower.truncation_offset is not None and follower.truncation_offset < follower.log_end_offset
    ]
    yield f"\nIt should show: {'; '.join(shown)}; at last `Isr:` has every replica.\n"


def _name(planned: Planned) -> str:
    return name(planned.plan.topic, planned.plan.partition)


def _set_aside(planned: Planned, broker: Broker) -> list[str]:
    """Commands that move a partition's directory out of the log directory that holds it."""
    directory = shlex.quote(f"{planned.plan.topic}-{planned.plan.partition}")
    logs = f"${{LOGS_{_of(broker)}:?}}"
    return [
        f'on {_host(broker)} mkdir -p "{logs}.aside"',
        f'on {_host(broker)} mv "{logs}"/{directory} "{logs}.aside/"  # of several log directories, the one that holds it',
    ]


def _way_a(ways: Sequence[Ways]) -> Iterator[str]:
    chosen = [way for way in ways if way.better == "A"]
    others = [way for way in ways if way.better == "B" and way.kept is not None and way.rolled_back != way.kept]
    yield "\n## 2. Way A: roll back\n"
    if not chosen and not others:
        yield "\nNo partition needs it.\n"
    for note, group in (("", chosen), ("Only if you decide against B. ", others)):
        for way in group[:PARTITIONS_SHOWN]:
            assert way.rolled_back is not None
            yield f"\n### A for {markdown(_name(way.planned))}\n\n"
            yield f"{note}{markdown(plan_words.verdict(way.planned, way.rolled_back))}\n\n"
            yield from _steps(way, way.rolled_back)
            if way.rolled_back.losses:
                yield "\nWhat this election loses is in the copies of step 1, and can be put back as in B.\n"


def _way_b(ways: Sequence[Ways]) -> Iterator[str]:
    yield "\n## 3. Way B: keep the leader, put back what it lacks\n"
    chosen = [way for way in ways if way.better == "B"]
    if not chosen:
        yield "\nNo partition needs it.\n"
    for way in chosen[:PARTITIONS_SHOWN]:
        kept = way.kept
        assert kept is not None
        losses = "; ".join(plan_words.loss_words(way.planned, loss) for loss in kept.losses[:_LOSSES_SHOWN])
        more = f"; and {plural(len(kept.losses) - _LOSSES_SHOWN, 'more range')}" if len(kept.losses) > _LOSSES_SHOWN else ""
        yield f"\n### B for {markdown(_name(way.planned))}\n\n"
        yield f"Broker {markdown(str(kept.broker))} leads. It lacks: {markdown(losses)}{more}. The copies of step 1 have them.\n\n"
        yield from _steps(way, kept)
        yield "\nThen take the records out of the copies, and look at them before anything is produced:\n"
        keep = f"--keep {shlex.quote(str(kept.broker))} --output {_recovered(way)}"
        recover = printable(f'kafka-forensics recover "${{SAFE:?}}"/*.tar {_selection(way)} {keep}')
        send = f'python produce_back.py {printable(_recovered(way))} --bootstrap-servers "${{BOOTSTRAP:?}}"'
        yield _sh(recover, f"{send}  # a dry run", f"{send} --send")
        yield "\n`produce_back.py` is among the examples in the sources; it needs confluent-kafka, and sends nothing twice.\n"


_LOSSES_SHOWN: Final = 4


def _recovered(way: Ways) -> str:
    """Where lost records are written."""
    return f'"${{SAFE:?}}"/recovered-{shlex.quote(f"{way.planned.plan.topic}-{way.planned.plan.partition}")}'


def _selection(way: Ways) -> str:
    return f"--topic {shlex.quote(way.planned.plan.topic)} --partition {way.planned.plan.partition}"


def _seen(plans: Plans, ways: Sequence[Ways]) -> Iterator[str]:
    yield "\n## 4. See that it has come true\n\n"
    yield "Wait until every partition has all its replicas in `Isr:`. Copy all log directories once more, to another place, and:\n"
    lines = []
    for way in ways[:PARTITIONS_SHOWN]:
        chosen = way.kept if way.better == "B" else way.rolled_back
        if chosen is not None:
            elected = f"--elected {shlex.quote(str(chosen.broker))}"
            elected += f" --recovered {_recovered(way)}" if way.better == "B" else ""
            lines.append(
                f'kafka-forensics verify "${{AFTER:?}}"/*.tar --against "${{SAFE:?}}/plan.json" {_selection(way)} {elected}'
            )
    yield _sh("AFTER=  # the newer copies", *map(printable, lines))
    yield "\nIt should show `kept` for every promise, and end with status 0.\n"
    if plans.result is not None and plans.result.incomplete:
        count = plural(len(plans.result.incomplete), "input")
        yield f"\n{count} could not be read when this was planned: of what is there nothing is promised.\n"


def _back(places: Iterable[BrokerPlace]) -> Iterator[str]:
    yield "\n## 5. The way back\n\n"
    yield (
        "At any time: stop all brokers, move what they made aside, and put the copies of step 1 in its place, as the user who owns"
        " the files. Where a log directory is a disk's mount point, move what is in it instead. Then all is as it was.\n"
    )
    lines = []
    for place in places:
        lines.append(f"on {_host(place.broker)} $STOP")
        for variable, copy in _tars(place):
            lines += [
                f'on {_host(place.broker)} mv "{variable}" "{variable}.failed"',
                f'on {_host(place.broker)} mkdir "{variable}"',
                f'on {_host(place.broker)} tar -C "{variable}" -xpf - < {copy}',
            ]
    yield _sh(*lines)
    yield "\nThen begin again, with a new plan on the copies.\n"
