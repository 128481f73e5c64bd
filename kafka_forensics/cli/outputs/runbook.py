"""A plan as a runbook: two ways side by side, then every step with its commands, what it should show, and the way back.

Commands are for bash. Names and paths stand in variables at the top, each filled as far as it is known.
"""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from kafka_forensics.cli.outputs import plan_words
from kafka_forensics.cli.outputs.plan import unseen_lines
from kafka_forensics.cli.outputs.rows import markdown, markdown_lines
from kafka_forensics.cli.outputs.runbook_commands import (
    OF_BROKERS,
    ON,
    asking_topic_id,
    copying,
    host,
    log_dir_variables,
    name_of,
    one_by_one,
    partition_metadata,
    place_variables,
    shell,
    tars,
    told,
    way_back,
)
from kafka_forensics.cli.outputs.runbook_gone import WITH_RECORDS, GoneCopies, GoneCopy, named
from kafka_forensics.cli.outputs.words import name
from kafka_forensics.cli.streams import printable
from kafka_forensics.model.amounts import plural
from kafka_forensics.questions.places import BrokerPlace
from kafka_forensics.questions.plan import Planned, Plans, is_of_dead
from kafka_forensics.questions.ways import Ways, ways_of
from kafka_forensics.replication.planner import Broker, Candidate, StartOrder, Steps, Wish, start_order
from kafka_forensics.version import __version__

PARTITIONS_SHOWN: Final = 50
"""Partitions whose steps are told one by one."""
_SERVER: Final = "HOST:PORT"
_HEADS: Final = ("partition", "leader", "A: elect", "A loses", "B: keep", "B puts back", "better")


@dataclass(frozen=True)
class Book:
    """All that the sections of one runbook are made of."""

    plans: Plans
    ways: list[Ways]
    """Of the partitions whose steps are told."""
    bootstrap: str | None
    asked: tuple[str, ...]
    """Options to be given when it is planned again."""

    @cached_property
    def gone(self) -> GoneCopies:
        """The copies of brokers that will not come back."""
        return GoneCopies([place for place in self.plans.places if place.broker in self.plans.gone], self.places)

    @cached_property
    def places(self) -> list[BrokerPlace]:
        """Where brokers keep their log directories, of all that come back: those of whom no copy is here, too."""
        known = {place.broker for place in self.plans.places}
        dead = self.plans.dead
        named = {broker for way in self.ways if way.chosen is not None for broker in _brokers(way.planned.steps(way.chosen))}
        absent = [broker for broker in sorted(named - known, key=str) if not is_of_dead(dead, broker)]
        missing = [BrokerPlace(broker, None, [("no copy of it is here", None)]) for broker in absent]
        return [*(place for place in self.plans.places if place.broker not in self.plans.gone), *missing]

    @cached_property
    def order(self) -> StartOrder | None:
        """In which order brokers are started so that every partition has the leader of its better way, if it can be."""
        wishes = [_wish(way) for way in self.ways if way.chosen is not None]
        return start_order(wishes, [place.broker for place in self.places])

    def leader(self, way: Ways) -> Broker | None:
        """Who comes to lead a partition in that order."""
        chosen = None if way.chosen is None else way.chosen.broker
        against = () if self.order is None else self.order.against
        plan = way.planned.plan
        for conflict in against:
            if (conflict.wish.topic, conflict.wish.partition) == (plan.topic, plan.partition):
                return conflict.leader
        return chosen

    def copies(self, where: str, gone: Sequence[GoneCopy] = ()) -> str:
        """All copies of a directory, with some of brokers that will not come back, as a shell takes them: those of brokers with
        names are named."""
        packed = [(place.broker, copy) for place in self.places for _, copy in tars(place, where)]
        own = [named(broker, copy) for broker, copy in packed]
        if all(isinstance(broker, int) for broker in (*(place.broker for place in self.places), *self.gone.brokers)):
            own, gone = [f'"${{{where}:?}}"/*.tar'], [copy for copy in gone if copy not in self.gone.directories]
        return " ".join([*own, *(copy.named for copy in gone)])

    def lacking(self, way: Ways, candidate: Candidate) -> list[GoneCopy]:
        """The bundles that alone have something of what an election loses."""
        return self.gone.lacking(candidate.losses, way.planned.given.replicas)

    @cached_property
    def undecided(self) -> list[str]:
        """Partitions of which nothing can be decided."""
        return [_name(way.planned) for way in self.ways if way.better in ("unsure", "nobody")]

    @cached_property
    def put_back(self) -> list[tuple[Ways, Candidate]]:
        """The elections of which the steps say how to put back what they lose."""
        if len(self.ways) > 1:
            led = [(way, way.planned.candidate(self.leader(way))) for way in self.ways if not self.undecided]
            return [(way, candidate) for way, candidate in led if candidate is not None and candidate.losses]
        rolled_back = [(way, way.rolled_back) for way in self.ways if way.is_a_told]
        kept = [(way, way.kept) for way in self.ways if way.is_b_told]
        return [(way, candidate) for way, candidate in (*rolled_back, *kept) if candidate is not None and candidate.losses]


def _brokers(todo: Steps) -> set[Broker]:
    return {todo.leader, *todo.copy_first, *todo.keep_stopped, *todo.set_aside, *todo.start_order, *todo.plan_again_with}


def _wish(way: Ways) -> Wish:
    """What a partition wants of the order: that the leader of its better way leads."""
    plan, chosen = way.planned.plan, way.chosen
    assert chosen is not None
    costs = {candidate.broker: (candidate.committed, max(candidate.at_most, 1)) for candidate in plan.candidates}
    electable = (chosen.broker, *way.planned.steps(chosen).keep_stopped)
    return Wish(plan.topic, plan.partition, chosen.broker, electable, costs | {chosen.broker: (0, 0)})


def runbook(plans: Plans, bootstrap: str | None, asked: Sequence[str] = ()) -> Iterator[str]:
    """The runbook of plans, as Markdown in pieces; `asked` are options that are given when it is planned again."""
    every = [ways_of(planned) for planned in plans.planned]
    book = Book(plans, every[:PARTITIONS_SHOWN], bootstrap, tuple(asked))
    yield from _head(plans, every)
    yield from _two_ways(every)
    yield from _variables(book)
    yield from _copies(book)
    if len(book.ways) > 1:
        yield from _for_all(book)
    else:
        yield from _way_a(book)
        yield from _way_b(book)
    yield from _seen(book)
    yield from way_back(book.places)


def _head(plans: Plans, ways: Sequence[Ways]) -> Iterator[str]:
    yield f"# Runbook\n\nMade by kafka-forensics {__version__} from copies. "
    yield "It is of their moment: if brokers ran since, copy and plan again.\n\n"
    yield "**Delete nothing. Start no broker before step 1 is done.** A follower that starts may cut what nobody else has.\n"
    unseen = [*unseen_lines(plans), *(line for way in ways for line in _doubts(way))]
    if unseen:
        yield "\n## What these copies do not tell\n\n"
        yield from (f"- {markdown(line)}\n" for line in unseen[:_DOUBTS_SHOWN])
        if len(unseen) > _DOUBTS_SHOWN:
            yield f"- {len(unseen) - _DOUBTS_SHOWN} more: `kafka-forensics plan` of each partition tells them.\n"
        yield "\nSee to that first if you can, and make a new runbook: what is not seen may be lost unseen.\n"
    if not ways:
        start = "" if unseen else ": start the brokers in any order"
        yield f"\nNo partition is here of which an election would lose anything that these copies hold{start}.\n"


_DOUBTS_SHOWN: Final = 60


def _doubts(way: Ways) -> Iterator[str]:
    """What of a partition was not seen, contradicts itself or is damaged."""
    for line in plan_words.notes(way.planned, (), every_follower=False):
        if line.startswith(("Missing:", "Contradiction:", "Damaged:", "Several copies")):
            yield f"{_name(way.planned)}: {line}"


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
        more = plural(len(ways) - PARTITIONS_SHOWN, "more partition")
        yield f"\n{more} are not told of below: `kafka-forensics plan` lists them; make runbooks of them with `--topic`.\n"
    for better, words in _RECOMMENDED.items():
        count = sum(way.better == better for way in ways)
        if count:
            yield f"\n**{plural(count, 'partition')}: {words}**\n"


_RECOMMENDED: Final = {
    "A": "take A. Nobody leads, or A loses nothing, so that nothing that is committed has to be produced again.",
    "B": "take B. A would cut records that the leader took since; B puts back what the copies of the other side hold.",
    "keep": "keep the leader, which loses least as well, and put back what it lacks (way B).",
    "unsure": "do nothing yet. Who leads, or what other copies hold, is not seen here: see above, and make a new runbook.",
    "either": "nothing is lost. Start the brokers, once step 1 is done.",
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


# The steps.


def _variables(book: Book) -> Iterator[str]:
    places, ways, bootstrap = book.places, book.ways, book.bootstrap
    yield "\n## What the commands below need\n\nFill in what is empty, in the bash in which you run the rest.\n"
    lines = [
        f"BOOTSTRAP={told(bootstrap)}  # HOST:PORT of a broker that is up when it is asked; of several, with commas",
        "SAFE=  # a directory with room for all copies, on no broker's disk",
        "AFTER=  # another one, for the copies of step 4",
        *OF_BROKERS,
    ]
    if any(way.better in ("B", "keep") or (way.better == "A" and way.rolled_back and way.rolled_back.losses) for way in ways):
        lines.append("PRODUCE_BACK=examples/produce_back.py  # or share/kafka-forensics/ where pip put it; needs confluent-kafka")
    if any(way.planned.plan.truncate_by == "high-watermark" for way in ways):
        lines.append("ZOOKEEPER=  # HOST:PORT")
    lines += place_variables(places)
    for copy in book.gone.all:
        who = f"{plan_words.brokers(copy.brokers)}, which will not come back: {copy.source}"
        said = f"the bundle of {who}" if copy.is_bundle else f"a directory with the copy of {who}, unpacked"
        lines.append(f"{copy.variable}=  # {printable(said)}")
    lacking = [bundle for way, candidate in book.put_back for bundle in book.lacking(way, candidate)]
    for copy in book.gone.instead_of(lacking):
        said = f"a directory with the log directory of {plan_words.brokers(copy.brokers)}, if it can still be had, for the records"
        lines.append(f"{copy.variable}=  # {printable(f'{said} that its bundle has not: {copy.source}')}")
    functions = [ON, "# leads TOPIC PARTITION BROKER: waits until it does", _LEADS]
    yield shell(*lines, *functions)


_LEADS: Final = (
    'leads() { until kafka-topics.sh --bootstrap-server "${BOOTSTRAP:?}" --describe --topic "$1" |'
    ' grep -E "Partition: $2[[:space:]]+Leader: $3[[:space:]]"; do sleep 5; done; }'
)


def _copies(book: Book) -> Iterator[str]:
    """Step 1: nothing that any way would lose may be in one place only."""
    ways, places = book.ways, book.places
    yield "\n## 1. Stop and copy\n\n"
    holders = {
        broker
        for way in ways
        for candidate in (way.rolled_back, way.kept)
        if candidate is not None
        for broker in way.planned.steps(candidate).copy_first
    }
    first = [place for place in places if place.broker in holders]
    yield from _asking_ids(book)
    if first:
        yield f"What would be lost is on {plan_words.brokers([place.broker for place in first])}: begin there.\n"
    else:
        yield "Nothing that only one broker holds would be lost. Copy all the same.\n"
    rest = [place for place in places if place.broker not in holders]
    yield one_by_one(*copying((*first, *rest), "SAFE", stop=True))
    if book.gone.all:
        these = plan_words.brokers(book.gone.brokers)
        told_by = ["in the copies"] * bool(book.gone.directories) + ["told by the bundles"] * bool(book.gone.bundles)
        where = f"is {' or '.join(told_by)} that were read here"
        yield f"\nWhat only {these} held, which will not come back, {where}. Put them beside these:\n"
        yield one_by_one(*(copy.command for copy in book.gone.all))
    yield "\nCopy the controllers' log directories as well, if they run on hosts of their own. Then plan again on these copies:\n"
    asked = "".join(f" {word}" for word in book.asked)
    outputs = '--output "${SAFE:?}/plan.json" --runbook "${SAFE:?}/runbook.md"'
    copies = book.copies("SAFE", book.gone.all)
    scan = f"kafka-forensics scan {copies} --fail-on none"
    yield shell(printable(scan), printable(f"kafka-forensics plan {copies}{asked} {outputs}"))
    yield "\nIt should show the same partitions, with the same losses as above. Go on by the new runbook.\n"
    yield from _topic_ids(book)


def _asking_ids(book: Book) -> Iterator[str]:
    """How ids of topics that no copy tells are asked for, as long as a broker is up."""
    told_ids = [(way.planned.plan.topic, topic_id) for way in book.ways for topic_id, _ in way.planned.without_topic_id.values()]
    unknown = dict.fromkeys(topic for topic, topic_id in told_ids if topic_id is None)
    if unknown:
        yield "No copy here tells some topic ids, which step 1 writes at its end. Ask a broker while one is up, and fill in what it"
        yield " shows:\n"
        for topic in unknown:
            yield from (shell(printable(line)) for line in asking_topic_id(topic))
        yield "\n"


def _topic_ids(book: Book) -> Iterator[str]:
    """What is to be written before brokers start that would not serve a log without its topic's id, with the commands."""
    lines = [line for way in book.ways for line in plan_words.topic_id_lines(way.planned)]
    if not lines:
        return
    yield "\nThese logs have no topic id. Do this before any of these brokers starts, copy once more, and scan again:\n\n"
    yield from (f"{number}. {markdown(line)}\n" for number, line in enumerate(lines, 1))
    yield shell(*(printable(line) for way in book.ways for line in _writing_ids(book, way.planned)))
    yield "\nIt should show the two lines of each file. One that is there already is left as it is.\n"


def _writing_ids(book: Book, planned: Planned) -> Iterator[str]:
    """Commands that write the missing files of one partition; each belongs to whom its directory belongs to."""
    topic = planned.plan.topic
    directory = shlex.quote(f"{topic}-{planned.plan.partition}")
    for broker, (topic_id, log_dir) in planned.without_topic_id.items():
        variables = {
            source: variable
            for place in book.places
            if place.broker == broker
            for variable, (source, _) in zip(log_dir_variables(place), place.log_dirs, strict=True)
        }
        variable = variables.get(str(log_dir), f"LOGS_{name_of(broker)}")
        logs = f'"${{{variable}:?}}"/{directory}'
        lines = partition_metadata(topic, topic_id)
        on = f"on {host(broker)} $SUDO"
        writes = f"{on} tee {logs}/partition.metadata <<< {lines} && {on} chown --reference={logs} {logs}/partition.metadata"
        yield f"{on} test ! -e {logs}/partition.metadata && {writes}"


def _steps(way: Ways, candidate: Candidate) -> Iterator[str]:
    """The steps to one election, their commands, and what is seen once they are done."""
    planned = way.planned
    todo = planned.steps(candidate)
    which = markdown(_name(planned))
    numbered = enumerate(plan_words.step_lines(planned, candidate), 1)
    yield from (f"{number}. {markdown(line)}\n" for number, line in numbered)
    lines = [f"on {host(broker)} $STOP" for broker in todo.keep_stopped]
    for broker in todo.set_aside:
        lines += _set_aside(planned, broker)
    lines.append(f"on {host(todo.leader)} $START")
    lines += _elected(planned, candidate)
    leader = planned.given.node(candidate.broker)
    lines += _waiting(planned, candidate)
    lines += [f"on {host(broker)} $START" for broker in todo.start_order[1:]]
    yield one_by_one(*map(printable, lines))
    shown = [f"`kafka-topics.sh --describe` has `Leader: {printable(str(leader))}` for {which} before any other broker starts"]
    shown += [
        f"`server.log` of broker {markdown(str(follower.broker))} says that {which} is truncated to {follower.truncation_offset}"
        for follower in candidate.followers
        if follower.truncation_offset is not None and follower.truncation_offset < follower.log_end_offset
    ]
    yield f"\nIt should show: {'; '.join(shown)}; at last `Isr:` has every replica.\n"


def _waiting(planned: Planned, candidate: Candidate) -> Iterator[str]:
    """A command that waits until the leader leads, where a broker can be asked."""
    leader = planned.given.node(candidate.broker)
    if isinstance(leader, int) and planned.plan.truncate_by == "epochs":
        yield f"leads {shlex.quote(planned.plan.topic)} {planned.plan.partition} {leader}"


def _elected(planned: Planned, candidate: Candidate) -> Iterator[str]:
    """Kafka's own commands for the election, which are tried until a broker answers."""
    for line in plan_words.commands(planned, candidate):
        if line.startswith("kafka-leader-election.sh"):
            yield "until " + line.replace(_SERVER, '"${BOOTSTRAP:?}"') + "; do sleep 5; done"
        elif not line.startswith("kafka-topics.sh"):
            yield line.replace(f"--zookeeper {_SERVER}", '--zookeeper "${ZOOKEEPER:?}"')


def _name(planned: Planned) -> str:
    return name(planned.plan.topic, planned.plan.partition)


def _set_aside(planned: Planned, broker: Broker) -> list[str]:
    """Commands that move a partition's directory out of the log directory that holds it."""
    directory = shlex.quote(f"{planned.plan.topic}-{planned.plan.partition}")
    logs = f"${{LOGS_{name_of(broker)}:?}}"
    return [
        f'on {host(broker)} $SUDO mkdir -p "{logs}.aside"',
        f'on {host(broker)} $SUDO mv "{logs}"/{directory} "{logs}.aside/"  # of several log directories, the one that holds it',
    ]


def _for_all(book: Book) -> Iterator[str]:
    """Steps of several partitions: a broker starts for all of them at once, so that there is one order."""
    yield "\n## 2. Start the brokers\n\n"
    yield "A broker starts for all its partitions at once. Way B, like A where it is better, has these leaders:\n\n"
    for way in book.ways:
        leader = book.leader(way)
        if way.chosen is not None and leader is not None:
            yield f"- {markdown(_name(way.planned))}: broker {markdown(str(leader))} ({way.better})"
            yield ".\n" if leader == way.chosen.broker else f", and not {markdown(str(way.chosen.broker))}: no order serves all.\n"
    if book.undecided:
        names = markdown(", ".join(book.undecided[:_NAMED])) + (" and others" if len(book.undecided) > _NAMED else "")
        yield f"\nOf {names} nothing can be decided here. Start no broker before it is: read the plan of each, and see above.\n"
        return
    yield one_by_one(*_starting(book))
    yield "\nEach `leads` waits until that broker leads. At last `kafka-topics.sh --describe` has every replica in `Isr:`.\n"
    yield "\n## 3. Put back what the leaders lack\n"
    if not book.put_back:
        yield "\nNothing is lacking.\n"
    for way, candidate in book.put_back:
        yield f"\n### {markdown(_name(way.planned))}\n"
        yield from _put_back(book, way, candidate)


_NAMED: Final = 8


def _starting(book: Book) -> Iterator[str]:
    """Commands that set aside what must not be there, and start the brokers in their order, each once those before it lead."""
    led = [(way, candidate) for way in book.ways if (candidate := way.planned.candidate(book.leader(way))) is not None]
    for way, candidate in led:
        for broker in way.planned.steps(candidate).set_aside:
            yield from map(printable, _set_aside(way.planned, broker))
    first = () if book.order is None else book.order.brokers
    refused = {broker for way, candidate in led for broker in way.planned.steps(candidate).do_not_start}
    places = [place.broker for place in book.places]
    for broker in (*first, *(broker for broker in places if broker not in first)):
        if broker not in refused:
            yield f"on {host(broker)} $START"
        for way, candidate in led:
            if candidate.broker == broker:
                yield from map(printable, (*_elected(way.planned, candidate), *_waiting(way.planned, candidate)))


def _way_a(book: Book) -> Iterator[str]:
    chosen = [way for way in book.ways if way.better == "A"]
    others = [way for way in book.ways if way.is_a_told and way.better != "A"]
    yield "\n## 2. Way A: roll back\n"
    if not chosen and not others:
        yield "\nNo partition needs it.\n"
    for note, group in (("", chosen), ("Only if you decide for it. ", others)):
        for way in group:
            assert way.rolled_back is not None
            yield f"\n### A for {markdown(_name(way.planned))}\n\n"
            yield f"{note}{markdown(plan_words.verdict(way.planned, way.rolled_back))}\n\n"
            yield from _steps(way, way.rolled_back)
            if way.rolled_back.losses:
                yield from _put_back(book, way, way.rolled_back)


def _way_b(book: Book) -> Iterator[str]:
    yield "\n## 3. Way B: keep the leader, put back what it lacks\n"
    chosen = [way for way in book.ways if way.is_b_told]
    if not chosen:
        yield "\nNo partition needs it.\n"
    for way in chosen:
        kept = way.kept
        assert kept is not None
        losses = "; ".join(plan_words.loss_words(way.planned, loss) for loss in kept.losses[:_LOSSES_SHOWN])
        more = f"; and {plural(len(kept.losses) - _LOSSES_SHOWN, 'more range')}" if len(kept.losses) > _LOSSES_SHOWN else ""
        yield f"\n### B for {markdown(_name(way.planned))}\n\n"
        have = "" if book.lacking(way, kept) else " The copies of step 1 have them."
        verb = "leads" if kept.election == "leads" else "is to lead, as it did or as an ordinary start has it"
        yield f"Broker {markdown(str(kept.broker))} {verb}. It lacks: {markdown(losses)}{more}.{have}\n\n"
        yield from _steps(way, kept)
        yield from _put_back(book, way, kept)


_LOSSES_SHOWN: Final = 4


def _put_back(book: Book, way: Ways, candidate: Candidate) -> Iterator[str]:
    """How the records that an election loses are produced again."""
    yield "\nThen take the records that it lacks out of the copies, and look at them before anything is produced:\n"
    folder = printable(_recovered(way))
    dead = "".join(f" --dead {shlex.quote(str(broker))}" for broker in sorted(way.planned.given.dead, key=str))
    asked = f"{_selection(way)} --keep {shlex.quote(str(candidate.broker))} --output {_recovered(way)}{dead}"
    lacking = book.lacking(way, candidate)
    if lacking:
        yield from _with_records(book, lacking, asked)
    yield shell(printable(f"kafka-forensics recover {book.copies('SAFE', book.gone.all)} {asked}"))
    yield "\nIt ends with status 1: records are written. A dry run, and then for real; run again, it leaves out what is done:\n"
    send = f'python "${{PRODUCE_BACK:?}}" {folder} --bootstrap-servers "${{BOOTSTRAP:?}}"'
    yield one_by_one(send, f"{send} --send")


def _with_records(book: Book, lacking: Sequence[GoneCopy], asked: str) -> Iterator[str]:
    """How the records are taken of which here is only a bundle; the command without them follows."""
    these = plan_words.brokers(list(dict.fromkeys(broker for bundle in lacking for broker in bundle.brokers)))
    yield f"\nSome of them only {these} held, of which a bundle was read: it tells what was lost, and has no records."
    yield " Those are in the log directory. If that can still be had, from its disk or from a backup:\n"
    directories, lines = book.gone.instead_of(lacking), [f'mkdir -p "${{SAFE:?}}/{WITH_RECORDS}"']
    for copy in directories:
        lines += [f"{{ test -e {copy.copy} || {copy.command}; }}", f"tar -tf {copy.copy} > /dev/null"]
    others = [copy for copy in book.gone.all if copy not in lacking]
    yield one_by_one(*lines, printable(f"kafka-forensics recover {book.copies('SAFE', [*others, *directories])} {asked}"))
    yield "\nElse with the bundle. Unless it was made with these records (`collect --with-records`), they are counted as not"
    yield " collected, and the status is 3:\n"


def _recovered(way: Ways) -> str:
    """Where lost records are written."""
    return f'"${{SAFE:?}}"/recovered-{shlex.quote(f"{way.planned.plan.topic}-{way.planned.plan.partition}")}'


def _selection(way: Ways) -> str:
    return f"--topic {shlex.quote(way.planned.plan.topic)} --partition {way.planned.plan.partition}"


def _seen(book: Book) -> Iterator[str]:
    yield "\n## 4. See that it has come true\n\n"
    yield "Wait until every partition has all its replicas in `Isr:`. Copy all log directories once more, brokers may run:\n"
    yield one_by_one(*copying(book.places, "AFTER", stop=False))
    lines = []
    for way in book.ways:
        candidate = way.planned.candidate(book.leader(way))
        if candidate is not None:
            asked = f"{_selection(way)} --elected {shlex.quote(str(candidate.broker))}"
            back = f" --recovered {_recovered(way)}" if candidate.losses else ""
            against = f'--against "${{SAFE:?}}/plan.json" {asked}{back}'
            lines.append(printable(f"kafka-forensics verify --live {book.copies('AFTER')} {against}"))
    if lines:
        yield "\nOf the controllers' log directories, too. Then:\n"
        yield shell(*lines)
        yield "\nIt should show `kept` for every promise, and end with 0. Leave out `--recovered` where nothing was put back.\n"
    if book.plans.result is not None and book.plans.result.incomplete:
        count = plural(len(book.plans.result.incomplete), "input")
        yield f"\n{count} could not be read when this was planned: of what is there nothing is promised.\n"
