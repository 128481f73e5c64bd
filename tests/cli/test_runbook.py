"""A runbook's commands are run, on hosts that are directories here; its recommendation is held to what each way loses."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_forensics.cli.main import outcome
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.questions.plan import PlanOptions, make_plans
from kafka_forensics.writers.files import write_quorum_state
from tests.support.bundles import bundle_of
from tests.support.controller_log import ControllerLog, topic
from tests.support.plan_runs import SAMPLES, put_audit
from tests.support.salvaged import batches_of, put_copy

SSH = '#!/bin/sh\nhost=$1; shift\necho "$host: $*" >> "$HOSTS_LOG"\nexec bash -c "$*"\n'
SAID = '#!/bin/sh\necho "$0 $*" >> "$HOSTS_LOG"\n'
TOPIC_ID = "EbZFS3wKSOSOZCc3KwMkgg"
TOPICS = SAID + "printf 'Topic: audit\\tPartition: 0\\tLeader: %s\\tReplicas: 1\\n' 1 2 3\n"
"""Every broker leads: what is waited for is seen at once."""


@pytest.fixture(name="copies")
def copies_of_audit(tmp_path: Path) -> Path:
    return put_audit(tmp_path / "logs")


def made(copies: Path, *more: str) -> str:
    """The runbook of these copies."""
    file = copies.parent / "runbook.md"
    assert outcome(["plan", str(copies), "--topic", "audit", "--quiet", "--runbook", str(file), *more]) == 0
    return file.read_text()


def block(text: str, heading: str, number: int = 0) -> str:
    """A block of commands below a heading."""
    part = text.partition(f"## {heading}")[2]
    blocks: list[str] = re.findall(r"^```sh\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)
    return blocks[number]


def placed(copies: Path) -> list[str]:
    """Where the log directories are, of hosts that `ssh` below makes of this machine."""
    return [word for broker in (1, 2, 3) for word in ("--at", f"{broker}=host-{broker}:{copies / f'broker-{broker}'}")]


def run(folder: Path, *blocks: str) -> subprocess.CompletedProcess[str]:
    """What bash makes of blocks, with an `ssh` that stays here and Kafka's tools that only note what was asked of them."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    for name, text in (("ssh", SSH), ("kafka-topics.sh", TOPICS), ("kafka-leader-election.sh", SAID), ("service", SAID)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    script = "set -u\n" + "\n".join(blocks)
    environment = {**os.environ, "PATH": path, "HOSTS_LOG": str(folder / "hosts.log")}
    return subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def filled(text: str, folder: Path) -> str:
    """The variables, with what the user fills in."""
    (folder / "safe").mkdir(exist_ok=True)
    own = f"SAFE={shlex.quote(str(folder / 'safe'))}\nSTART='service kafka start'\nSTOP='service kafka stop'\nSUDO=\n"
    return block(text, "What the commands below need") + own


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_copies_are_made_and_the_way_back_leads_back(copies: Path, tmp_path: Path) -> None:
    text, before = made(copies, *placed(copies)), tree(copies)
    done = run(tmp_path, filled(text, tmp_path), block(text, "1. Stop and copy"))
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(path.name for path in (tmp_path / "safe").iterdir()) == [f"broker-{broker}.tar" for broker in (1, 2, 3)]
    assert (tmp_path / "hosts.log").read_text().splitlines()[:2] == [
        "host-1: service kafka stop ",
        f"{tmp_path}/programs/service kafka stop",
    ]
    for broker in (1, 3):
        shutil.rmtree(copies / f"broker-{broker}" / "audit-0")
    done = run(tmp_path, filled(text, tmp_path), block(text, "5. The way back"))
    assert (done.returncode, done.stderr) == (0, "")
    assert {name: data for name, data in tree(copies).items() if ".failed/" not in name} == before


def test_the_plan_on_its_copies_is_the_same_and_can_be_verified(copies: Path, tmp_path: Path) -> None:
    text = made(copies, *placed(copies))
    commands = filled(text, tmp_path), block(text, "1. Stop and copy"), block(text, "1. Stop and copy", 1)
    assert run(tmp_path, *commands).returncode == 0
    again = tmp_path / "again.md"
    tars = sorted(map(str, (tmp_path / "safe").glob("*.tar")))
    assert outcome(["plan", *tars, "--quiet", "--runbook", str(again)]) == 0
    ways = "## The two ways", "## What the commands below need"
    assert again.read_text().partition(ways[0])[2].partition(ways[1])[0] == text.partition(ways[0])[2].partition(ways[1])[0]
    seen = f"AFTER={tmp_path}/safe\n" + block(text, "4. See that it has come true", 1)
    recover = block(text, "3. Way B: keep the leader", 1).splitlines()[0]
    done = run(tmp_path, filled(text, tmp_path), recover, seen)
    assert done.returncode == 1  # broker 2 has not followed yet
    assert "each once: 0 of them are there" in done.stdout
    assert "it holds other records from offset 300 on" in done.stdout


def test_steps_of_both_ways_run_in_order(copies: Path, tmp_path: Path) -> None:
    text = made(copies, *placed(copies), "--bootstrap-server", "kafka:9092")
    commands = filled(text, tmp_path), block(text, "2. Way A: roll back"), block(text, "3. Way B: keep the leader")
    done = run(tmp_path, *commands)
    assert (done.returncode, done.stderr) == (0, "")
    said = [line for line in (tmp_path / "hosts.log").read_text().splitlines() if not line.startswith("host-")]
    asked = [line.rpartition("/")[2] for line in said]
    force = "kafka-leader-election.sh --bootstrap-server kafka:9092 --election-type unclean --path-to-json-file election.json"
    assert asked.index(force) > asked.index("service kafka start")
    assert asked.index(force) < len(asked) - 1 - asked[::-1].index(
        "kafka-topics.sh --bootstrap-server kafka:9092 --describe --topic audit"
    )
    starts = [line[:6] for line in (tmp_path / "hosts.log").read_text().splitlines() if line.endswith("kafka start ")]
    assert starts == ["host-2", "host-3", "host-1", "host-1", "host-3", "host-2"]


def test_what_is_not_filled_in_stops_a_command(copies: Path, tmp_path: Path) -> None:
    text = made(copies)
    before = tree(copies)
    for heading in ("1. Stop and copy", "2. Way A: roll back", "5. The way back"):
        done = run(tmp_path, block(text, "What the commands below need"), block(text, heading))
        assert done.returncode != 0
        assert re.search("(SAFE|LOGS_|HOST_|BOOTSTRAP)", done.stderr)
    assert not (tmp_path / "hosts.log").exists()
    assert tree(copies) == before


def test_missing_topic_ids_are_written_by_commands(copies: Path, tmp_path: Path) -> None:
    given = [copies / f"broker-{broker}" for broker in (1, 2, 3)]
    (given[1] / "audit-0" / "partition.metadata").unlink()
    text = made(copies, *placed(copies))
    assert f"topic_id: {TOPIC_ID}" in text.replace("\\_", "_")
    writing = block(text, "1. Stop and copy", 2)
    (tmp_path / "hosts.log").touch()
    done = run(tmp_path, filled(text, tmp_path), writing)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", f"version: 0\ntopic_id: {TOPIC_ID}\n")
    files = [(log_dir / "audit-0" / "partition.metadata").read_bytes().rstrip() for log_dir in given]
    assert len({*files}) == 1
    assert all(line.startswith("host-2: ") for line in (tmp_path / "hosts.log").read_text().splitlines())
    assert run(tmp_path, filled(text, tmp_path), writing).returncode != 0, "a file that is there is left alone"
    assert "no topic id" not in made(copies)


def test_a_topic_id_that_no_copy_tells_is_asked_for_and_filled_in(copies: Path, tmp_path: Path) -> None:
    for broker in (1, 2, 3):
        (copies / f"broker-{broker}" / "audit-0" / "partition.metadata").unlink()
        shutil.rmtree(copies / f"broker-{broker}" / "__cluster_metadata-0")
    text = made(copies, *placed(copies), "--bootstrap-server", "kafka:9092")
    asking, writing = block(text, "1. Stop and copy", 0), block(text, "1. Stop and copy", 4)
    assert asking == 'kafka-topics.sh --bootstrap-server "${BOOTSTRAP:?}" --describe --topic audit\n'
    placeholder = block(text, "1. Stop and copy", 1)
    assert "$STOP" in block(text, "1. Stop and copy", 2), "brokers are asked while they are up"
    assert placeholder.startswith("TOPIC_ID_audit_")
    done = run(tmp_path, filled(text, tmp_path), placeholder, writing)
    assert done.returncode != 0, "it must be filled in"
    assert "TOPIC_ID_audit_" in done.stderr
    assert not [*copies.rglob("partition.metadata")]
    done = run(tmp_path, filled(text, tmp_path), f"{placeholder.partition('=')[0]}={TOPIC_ID}", writing)
    assert done.returncode == 0, done.stderr
    files = {path.read_text() for path in copies.rglob("partition.metadata")}
    assert (len([*copies.rglob("partition.metadata")]), files) == (3, {f"version: 0\ntopic_id: {TOPIC_ID}\n"})


def test_brokers_that_will_not_come_back_are_named_to_both_commands(copies: Path) -> None:
    text = made(copies, "--dead", "3")
    assert " --dead 3 --output " in block(text, "1. Stop and copy", 2)
    assert '--keep 1 --output "${SAFE:?}"/recovered-audit-0 --dead 3\n' in block(text, "3. Way B: keep the leader", 1)


def test_copies_of_brokers_that_will_not_come_back_are_put_beside_the_others(copies: Path, tmp_path: Path) -> None:
    """What only a dead broker held is in no log directory that can be copied any more."""
    text = made(copies, *placed(copies), "--dead", "3")
    assert "\nCOPY_3=  # a directory with the copy of broker 3" in text
    commands = filled(text, tmp_path), block(text, "1. Stop and copy"), block(text, "1. Stop and copy", 1)
    assert "COPY_3: parameter null or not set" in run(tmp_path, *commands).stderr
    kept = shutil.copytree(copies / "broker-3", tmp_path / "a copy of 3")
    shutil.rmtree(copies / "broker-3")
    own = f"COPY_3={shlex.quote(str(kept))}\n"
    safe = tmp_path / "safe"
    for tar in safe.glob("*"):
        tar.unlink()
    recover = block(text, "3. Way B: keep the leader", 1).splitlines()[0]
    done = run(tmp_path, filled(text, tmp_path) + own, *commands[1:])
    assert (done.returncode, sorted(path.name for path in safe.glob("*.tar"))) == (0, [f"broker-{n}.tar" for n in (1, 2, 3)])
    done = run(tmp_path, filled(text, tmp_path), recover)
    assert (done.returncode, done.stdout.splitlines()[1].split("\t")[7:9]) == (1, ["70", "70"]), "planned, and recovered"


def bundled(copies: Path, broker: int) -> Path:
    """The log directory of a broker, taken away but for its bundle."""
    kept = shutil.copytree(copies / f"broker-{broker}", copies.parent / f"a copy of {broker}")
    shutil.rmtree(copies / f"broker-{broker}")
    bundle_of(kept, copies / f"the bundle of {broker}.kfb")
    return kept


def test_a_bundle_stands_for_a_broker_that_will_not_come_back_where_no_records_are_wanted(copies: Path, tmp_path: Path) -> None:
    bundled(copies, 3)
    text = made(copies, *placed(copies), "--dead", "3")
    variables = block(text, "What the commands below need")
    assert "\nBUNDLE_3=  # the bundle of broker 3, which will not come back: " in variables
    assert "COPY_" not in text
    own = f"BUNDLE_3={shlex.quote(str(copies / 'the bundle of 3.kfb'))}\n"
    steps = [block(text, "1. Stop and copy", number) for number in range(3)]
    assert "BUNDLE_3: parameter null or not set" in run(tmp_path, filled(text, tmp_path), *steps[:2]).stderr
    shutil.rmtree(tmp_path / "safe")
    done = run(tmp_path, filled(text, tmp_path) + own, *steps)
    assert (done.returncode, sorted(path.name for path in (tmp_path / "safe").iterdir())) == (
        0,
        ["broker-1.tar", "broker-2.tar", "broker-3.kfb", "plan.json", "runbook.md"],
    )
    assert "| audit-0 | 1 | 2 (UNCLEAN) | 45 records | 1 | 70 records | B |" in (tmp_path / "safe" / "runbook.md").read_text()
    recover = block(text, "3. Way B: keep the leader", 1).splitlines()[0]
    assert run(tmp_path, filled(text, tmp_path), recover).returncode == 1, "recovered, from the log of broker 2"


@pytest.mark.parametrize("name", ["", "old"])
def test_a_log_directory_is_wanted_where_a_bundle_alone_tells_of_records(name: str, copies: Path, tmp_path: Path) -> None:
    """Broker 2 alone held what its election would have kept; a bundle tells it, and has none of it."""
    kept = bundled(copies, 2)
    bundle = (copies / "the bundle of 2.kfb").rename(tmp_path / "2.kfb")
    given = [str(copies / "broker-1"), str(copies / "broker-3"), f"{name}={bundle}" if name else str(bundle)]
    file = tmp_path / "runbook.md"
    at = [word for broker in (1, 3) for word in ("--at", f"{broker}=host-{broker}:{copies / f'broker-{broker}'}")]
    assert outcome(["plan", *given, "--topic", "audit", "--quiet", "--runbook", str(file), "--dead", "2", *at]) == 0
    text = file.read_text()
    named = re.findall("^(BUNDLE|COPY)_([^=]*)=  # (.*)$", block(text, "What the commands below need"), re.MULTILINE)
    assert [what for what, _, _ in named] == ["BUNDLE", "COPY"]
    assert named[1][2].startswith(
        f"a directory with the log directory of broker {name or 2}, if it can still be had, for the records"
    )
    own = f"BUNDLE_{named[0][1]}={shlex.quote(str(bundle))}\n"
    steps = [block(text, "1. Stop and copy", number) for number in range(2)]
    way = [block(text, "3. Way B: keep the leader", number) for number in range(1, 4)]
    assert not any("COPY_" in step for step in steps), "before step 3 nobody needs it"
    assert "The copies of step 1 have them" not in text
    assert "is told by the bundles that were read here. Put them beside these" in text
    done = run(tmp_path, filled(text, tmp_path) + own, *steps)
    assert (done.returncode, done.stderr) == (0, "")
    assert "COPY_" in run(tmp_path, filled(text, tmp_path) + own, way[0]).stderr
    done = run(tmp_path, filled(text, tmp_path) + own, way[1])
    assert (done.returncode, done.stdout.splitlines()[1].split("\t")[7:9]) == (3, ["70", "0"]), "planned, and not collected"
    shutil.rmtree(tmp_path / "safe" / "recovered-audit-0")
    done = run(tmp_path, filled(text, tmp_path) + own + f"COPY_{named[1][1]}={shlex.quote(str(kept))}\n", way[0])
    assert (done.returncode, done.stdout.splitlines()[1].split("\t")[7:9]) == (1, ["70", "70"]), "planned, and recovered"
    assert "produce_back" in way[2].lower()


@pytest.mark.parametrize("name", ["3", "old"])
@pytest.mark.parametrize("says", [True, False])
def test_a_dead_broker_is_known_by_name_and_by_node_id(name: str, says: bool, copies: Path, tmp_path: Path) -> None:
    """Of a copy that was given a name its `meta.properties` says whose it is, or else that no other replica has no copy."""
    if not says:
        (copies / "broker-3" / "meta.properties").unlink()
    file, given = tmp_path / "runbook.md", [str(copies / "broker-1"), str(copies / "broker-2"), f"old={copies / 'broker-3'}"]
    assert outcome(["plan", *given, "--topic", "audit", "--quiet", "--runbook", str(file), "--dead", name]) == 0
    text = file.read_text()
    variables = block(text, "What the commands below need")
    assert "HOST_3=" not in variables
    assert "HOST_old" not in variables
    assert re.search("^COPY_old_[0-9a-f]{8}=  # a directory with the copy of broker old,", variables, re.MULTILINE)
    assert " --dead 3\n" in block(text, "3. Way B: keep the leader", 1)


def test_dead_brokers_are_nowhere_to_be_started_where_nothing_is_lost(tmp_path: Path) -> None:
    file = tmp_path / "runbook.md"
    assert outcome(["plan", str(SAMPLES / "healthy"), "--quiet", "--runbook", str(file), "--dead", "1"]) == 0
    variables = block(file.read_text(), "What the commands below need")
    assert re.findall("^(HOST|COPY)_([0-9])=", variables, re.MULTILINE) == [("HOST", "2"), ("HOST", "3"), ("COPY", "1")]


def test_the_leader_is_kept_where_it_took_records_since(copies: Path) -> None:
    text = made(copies)
    assert "| audit-0 | 1 | 2 (UNCLEAN) | 45 records | 1 | 70 records | B |" in text
    assert "**1 partition: take B." in text
    assert "kafka-forensics recover" in block(text, "3. Way B: keep the leader", 1)
    assert "--topic audit --partition 0 --keep 1 " in block(text, "3. Way B: keep the leader", 1)


def test_a_way_is_taken_that_loses_nothing(copies: Path) -> None:
    """Broker 1, the leader, has nothing that broker 2 has not: rolling back to 2 costs nothing."""
    shutil.rmtree(copies / "broker-1" / "audit-0")
    shutil.copytree(copies / "broker-3" / "audit-0", copies / "broker-1" / "audit-0")
    text = made(copies)
    assert re.search(r"\| audit-0 \| 1 \| 2 \(UNCLEAN\) \| nothing \| 1 \| 70 records \| A \|", text)
    assert "**1 partition: take A." in text
    assert "No partition needs it." in text.partition("## 3. Way B")[2]


def test_where_nothing_is_lost_nothing_is_to_be_done(tmp_path: Path) -> None:
    file = tmp_path / "runbook.md"
    assert outcome(["plan", str(SAMPLES / "healthy"), "--quiet", "--runbook", str(file)]) == 0
    text = file.read_text()
    assert "start the brokers in any order" in text
    assert "The two ways" not in text


def test_what_is_not_seen_is_said_and_nobody_is_told_to_start(copies: Path) -> None:
    """The copy of the old leader, which alone holds what is lost, is not here."""
    shutil.rmtree(copies / "broker-2")
    text = made(copies)
    said = text.partition("## What these copies do not tell")[2].partition("##")[0]
    assert "the copy of broker 2 is not here, and may hold more" in said
    assert "nothing is lost" not in text
    assert "in any order" not in text
    assert "\nHOST_2=" in text or "take B" not in text


def test_brokers_with_names_keep_them(copies: Path, tmp_path: Path) -> None:
    file = tmp_path / "runbook.md"
    named = [f"{name}={copies / f'broker-{number}'}" for number, name in ((1, "one"), (2, "two"), (3, "three"))]
    for number in (1, 2, 3):
        (copies / f"broker-{number}" / "meta.properties").unlink()
    assert outcome(["plan", *named, "--topic", "audit", "--quiet", "--runbook", str(file)]) == 0
    text = file.read_text()
    assert re.search(r'kafka-forensics plan one="\$\{SAFE:\?\}/broker-one_[0-9a-f]{8}\.tar" ', text)


def test_several_partitions_have_one_order(copies: Path, tmp_path: Path) -> None:
    """`audit` and a copy of it under another name, whose leader the controllers do not know."""
    for broker in copies.iterdir():
        shutil.copytree(broker / "audit-0", broker / "audit-1")
        for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
            if (broker / name).exists():
                lines = (broker / name).read_text().splitlines()
                rows = [*lines[2:], *(row.replace("audit 0", "audit 1") for row in lines[2:] if row.startswith("audit 0"))]
                (broker / name).write_text("\n".join([lines[0], str(len(rows)), *rows]) + "\n")
        shutil.rmtree(broker / "__cluster_metadata-0")
    text = made(copies)
    assert "## 2. Start the brokers" in text
    assert "Way A" not in text
    assert "nothing can be decided here. Start no broker before it is" in text
    assert "$START" not in text.partition("## 2. Start the brokers")[2].partition("## 3.")[0]


def test_bundles_tell_hosts_and_paths(copies: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bundles"
    folder.mkdir()
    for broker in sorted(copies.iterdir()):
        bundle_of(broker, folder / f"{broker.name}.kfb")
    (planned,) = {tuple(place.log_dirs[0][1] for place in make_plans([str(folder)], ScanOptions("audit"), PlanOptions()).places)}
    assert planned == tuple(str(copies / f"broker-{broker}") for broker in (1, 2, 3))
    file = tmp_path / "runbook.md"
    assert outcome(["plan", str(folder), "--topic", "audit", "--quiet", "--runbook", str(file)]) == 0
    host = os.uname().nodename
    assert f"\nHOST_2={shlex.quote(host)}  # broker 2\nLOGS_2={copies}/broker-2 " in file.read_text()


HOSTILE = "x$(touch ran)`touch ran`';touch ran;'\n```\n# "


def test_hostile_names_run_nothing(copies: Path, tmp_path: Path) -> None:
    hostile = tmp_path / HOSTILE.replace("/", "")
    shutil.copytree(copies, hostile)
    for broker in (1, 2, 3):
        (hostile / f"broker-{broker}" / "meta.properties").unlink()
        (hostile / f"broker-{broker}").rename(hostile / f"{broker}{HOSTILE}")
    text = made(hostile)
    assert len(re.findall("^```", text, re.MULTILINE)) % 2 == 0
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 4
    run(tmp_path, filled(text, tmp_path), "HOST_1=a", *blocks)
    assert not list(tmp_path.rglob("ran"))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--at", "2=host:/x"], "go with --runbook"),
        (["--runbook", "r.md", "--at", "2"], "says of no broker"),
        (["--runbook", "r.md", "--at", "2=host:x"], "says of no broker"),
        (["--runbook", "r.md", "--at", "7=host:/x"], "no copy here is of broker 7"),
        (["--runbook", "r.md", "--at", "2=h:/x", "--at", "2=h:/y"], "more log directories are told than copies are here"),
        (["--runbook", "r.md", "--elect", "2"], "leave out one of them"),
        (["--runbook", "logs/broker-1/r.md"], "inside"),
        (["--runbook", "r.md", "--output", "r.md"], "name one file"),
    ],
)
def test_what_makes_no_sense_is_refused(
    more: list[str], said: str, copies: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(copies.parent)
    assert outcome(["plan", str(copies), "--quiet", *more]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


# The runbook of a salvage.


@pytest.fixture(name="salvaged")
def salvage_of_the_copies(copies: Path, tmp_path: Path) -> str:
    """What is to be done with a salvage of `audit`, that of broker 2."""
    file, output = tmp_path / "salvage.md", tmp_path / "salvaged"
    asked = ["--topic", "audit", "--prefer-broker", "2", "--output", str(output), "--runbook", str(file), *placed(copies)]
    assert outcome(["salvage", str(copies), *asked, "--quiet"]) == 0
    return file.read_text()


@pytest.mark.parametrize("filled_in", [TOPIC_ID, ""])
def test_a_topic_id_that_a_broker_tells_goes_where_salvaged_logs_go(filled_in: str, copies: Path, tmp_path: Path) -> None:
    for broker in (1, 2, 3):
        (copies / f"broker-{broker}" / "audit-0" / "partition.metadata").unlink()
        shutil.rmtree(copies / f"broker-{broker}" / "__cluster_metadata-0")
    file, output = tmp_path / "salvage.md", tmp_path / "salvaged"
    asked = ["--topic", "audit", "--prefer-broker", "2", "--output", str(output), "--runbook", str(file), *placed(copies)]
    assert outcome(["salvage", str(copies), *asked, "--quiet"]) == 0
    text = file.read_text()
    _, asking, variable = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[:3]
    assert asking == 'kafka-topics.sh --bootstrap-server "${BOOTSTRAP:?}" --describe --topic audit\n'
    parts = [block(text, "2. Put it in place", number) for number in range(3)]
    done = run(tmp_path, filled(text, tmp_path), f"{variable.partition('=')[0]}={filled_in}", *parts)
    written = [path.read_text() for path in copies.glob("*/audit-0/partition.metadata")]
    assert written == [f"version: 0\ntopic_id: {filled_in}\n"] * (3 if filled_in else 0)
    assert bool(filled_in) == (done.returncode == 0) == ("TOPIC_ID_audit_" not in done.stderr)
    assert filled_in or not list(copies.glob("*.aside")), "nothing is done before all is filled in"


def test_what_was_salvaged_is_put_in_place_on_every_broker(salvaged: str, copies: Path, tmp_path: Path) -> None:
    before = tree(copies)
    (tmp_path / "after").mkdir()
    parts = [block(salvaged, "2. Put it in place", number) for number in range(3)]
    variables = filled(salvaged, tmp_path) + f"AFTER={tmp_path / 'after'}\n"
    steps = block(salvaged, "1. Stop and copy"), *parts, block(salvaged, "3. Start the brokers")
    done = run(tmp_path, variables, *steps, block(salvaged, "4. See that it has come true"))
    assert (done.returncode, done.stderr) == (0, "")
    for broker in (1, 2, 3):
        log_dir = copies / f"broker-{broker}"
        assert tree(log_dir / "audit-0") == tree(tmp_path / "salvaged" / "audit-0")
        assert not (log_dir / ".kafka_cleanshutdown").exists()
        for name, given in (("recovery-point-offset-checkpoint", []), ("replication-offset-checkpoint", ["audit 0 370"])):
            version, count, *rows = (log_dir / name).read_text().splitlines()
            assert (version, int(count)) == ("0", len(rows))
            old = before[f"broker-{broker}/{name}"].decode().splitlines()[2:]
            assert rows == [*(row for row in old if not row.startswith("audit 0 ")), *given]
    seen = run(tmp_path, variables, block(salvaged, "4. See that it has come true", 1))
    assert seen.returncode == 0, seen.stdout + seen.stderr
    done = run(tmp_path, variables, block(salvaged, "5. The way back"))
    assert (done.returncode, done.stderr) == (0, "")
    now = {name: data for name, data in tree(copies).items() if ".failed/" not in name and ".aside/" not in name}
    assert now == before


@pytest.mark.parametrize("name", ["log-start-offset-checkpoint", "missing"])
def test_a_log_start_is_written_into_the_file_of_log_starts(name: str, salvaged: str, copies: Path, tmp_path: Path) -> None:
    """Else deleted records come back: a broker begins a log at its first segment, wherever DeleteRecords had put its start."""
    file = copies / "broker-1" / name
    old = file.read_text().splitlines()[2:] if file.exists() else []
    step = f'checkpoint "$HOST_1" {file} audit 0'
    for offset, rows in (("37", [*old, "audit 0 37"]), ("41", [*old, "audit 0 41"]), ("", old)):
        done = run(tmp_path, filled(salvaged, tmp_path), f"{step} {offset}\n")
        assert (done.returncode, done.stderr) == (0, "")
        assert file.read_text().splitlines() == ["0", str(len(rows)), *rows]


def test_what_stays_behind_is_told_before_anything_is_done(salvaged: str) -> None:
    assert "- audit-0: 300 to 344 on broker 1\n" in salvaged.partition("## What the commands below need")[0]


@pytest.mark.parametrize(
    ("more", "said"),
    [(["--at", "2=h:/x"], "--at goes with --runbook"), (["--runbook", "out/r.md"], "which is made anew")],
)
def test_a_runbook_of_a_salvage_is_no_part_of_it(
    more: list[str], said: str, copies: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(copies.parent)
    (copies.parent / "out").mkdir()
    assert outcome(["salvage", str(copies), "--output", "out", "--quiet", *more]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


# A salvage with the controllers' log.


@pytest.fixture(name="controllers")
def copies_of_controllers(tmp_path: Path) -> Path:
    """Two of three voters, and a broker without a vote that has a topic."""
    folder = tmp_path / "quorum"
    log = ControllerLog().lead([1, 2, 3])
    for number in range(4):
        log.append(topic(f"t{number}"))
    put_copy(folder, 9, {0: b"".join(batches_of(4))}, high_watermark=8, epochs=[(0, 0)])
    next((folder / "broker-9").glob("*-0")).joinpath("partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}\n")
    for node in (2, 3, 9):
        directory = log.put(folder / f"broker-{node}", node)
        (directory / "quorum-state").write_bytes(write_quorum_state(1, 0, [1, 2, 3]))
    return folder


def test_the_controllers_log_is_put_on_every_node_and_voters_start_first(controllers: Path, tmp_path: Path) -> None:
    file, output = tmp_path / "salvage.md", tmp_path / "salvaged"
    at = [word for node in (2, 3, 9) for word in ("--at", f"{node}=host-{node}:{controllers / f'broker-{node}'}")]
    assert outcome(["salvage", str(controllers), "--output", str(output), "--runbook", str(file), *at, "--quiet"]) == 0
    text, before = file.read_text(), tree(controllers)
    first = text.partition("## 1. Stop and copy")[2].partition("## 2.")[0]
    assert "**Every voter (1, 2, 3) must be stopped" in first
    assert "No copy of 1 was given: stop it, too" in first
    (tmp_path / "after").mkdir()
    variables = filled(text, tmp_path) + f"AFTER={tmp_path / 'after'}\n"
    parts = [block(text, "2. Put it in place", number) for number in range(3)]
    done = run(tmp_path, variables, block(text, "1. Stop and copy"), *parts, block(text, "3. Start the brokers"))
    assert (done.returncode, done.stderr) == (0, "")
    for node in (2, 3, 9):
        assert tree(controllers / f"broker-{node}" / "__cluster_metadata-0") == tree(output / "__cluster_metadata-0")
        for path in (controllers / f"broker-{node}").glob("*-checkpoint"):
            assert "__cluster_metadata" not in path.read_text()
    starts = [line[:6] for line in (tmp_path / "hosts.log").read_text().splitlines() if line.endswith("kafka start ")]
    assert starts == ["host-2", "host-3", "host-9"]
    seen = block(text, "4. See that it has come true"), block(text, "4. See that it has come true", 1)
    done = run(tmp_path, variables, *seen)
    assert done.returncode == 0, done.stdout + done.stderr
    done = run(tmp_path, variables, block(text, "5. The way back"))
    assert (done.returncode, done.stderr) == (0, "")
    assert {name: data for name, data in tree(controllers).items() if ".failed/" not in name and ".aside/" not in name} == before


def test_without_the_controllers_log_nothing_is_said_of_voters(salvaged: str) -> None:
    assert "voter" not in salvaged.lower()
