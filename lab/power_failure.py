"""Power failures of brokers: a broker is killed, and its log is truncated to its recovery point, up to which Kafka flushed it."""

from typing import Final

from lab.cluster import Cluster
from lab.errors import LabError
from lab.fault_base import read_log
from lab.jvm import run_tool, wait_until
from lab.story import Story
from lab.unclean_election import fully_replicated

FEATURES: Final = "org.apache.kafka.tools.FeatureCommand"
ELR: Final = "eligible.leader.replicas.version"
LAST: Final = 1
"""The broker that is the last in the ISR, and leads."""
MEMBER: Final = 3
"""The broker that loses records that the rest of the ISR keeps."""
STEP: Final = 20
"""Records per write to each topic."""
TOPICS: Final = ("member", "known", "standing")


def lose_unflushed(cluster: Cluster, broker: int, topic: str) -> bytes:
    """Truncate the log of partition 0 on a stopped broker to its recovery point; return the lost bytes.

    Raises LabError unless they are the last `STEP` records.
    """
    flushed = cluster.checkpointed(broker, "recovery-point-offset-checkpoint")[topic, 0]
    log = read_log(cluster.log_dir(broker) / f"{topic}-0")
    if (flushed + STEP, [0]) != (log.next_offset, log.segments):
        raise LabError(f"broker {broker} flushed {topic} up to {flushed} of {log.next_offset}, segments {log.segments}")
    first = next(batch for batch in log.batches if batch.base_offset == flushed)
    path = cluster.log_dir(broker) / f"{topic}-0" / f"{0:020d}.log"
    lost = path.read_bytes()[first.position :]
    with path.open("r+b") as file:
        file.truncate(first.position)
    return lost


def fail_all_at_once(story: Story) -> None:
    """Copy `dark`: all brokers, all in the ISR, fail at the same moment, and one loses what it had not flushed.

    The lost bytes are then restored: the leader after the restart is random, and if it were this broker, the others would lose
    records.
    """
    cluster = story.cluster
    _start_all(story)
    story.write("member", STEP)
    story.settle("member")
    cluster.freeze(*cluster.brokers)
    cluster.kill(*cluster.brokers)
    lost = lose_unflushed(cluster, MEMBER, "member")
    story.copy("dark")
    with (cluster.log_dir(MEMBER) / "member-0" / f"{0:020d}.log").open("ab") as file:
        file.write(lost)


def fail_the_last(story: Story) -> None:
    """Make the last member of the ISR lose what it had not flushed and lead again, once with and once without ELR.

    Copies: with ELR `last` before and `known` after it leads, without ELR `standing`.
    """
    cluster = story.cluster
    _start_all(story)
    leave_alone(story, "known")
    story.copy("last")
    lead_again(story, "known")
    story.copy("known")
    _start_all(story)
    without_elr(cluster)
    leave_alone(story, "standing")
    lead_again(story, "standing")
    story.copy("standing")


def leave_alone(story: Story, topic: str) -> None:
    """Commit records on all brokers, stop all but one, and let the power of that broker fail."""
    cluster = story.cluster
    story.write(topic, STEP)
    story.settle(topic)
    cluster.stop(*(broker for broker in cluster.brokers if broker != LAST))
    cluster.await_isr(topic, [LAST])
    cluster.kill(LAST)
    lose_unflushed(cluster, LAST, topic)


def lead_again(story: Story, topic: str) -> None:
    """Start the last member of the ISR alone, write other records to it, and stop it."""
    cluster = story.cluster
    cluster.start(LAST)
    wait_until(f"{topic} is led", lambda: cluster.leader_and_isr(topic)[0] == LAST, timeout_seconds=30)
    end = story.write(topic, STEP // 2, kind="instead", acks="1")
    cluster.await_high_watermark(LAST, topic, end)
    cluster.stop(LAST)


def without_elr(cluster: Cluster) -> None:
    """Switch ELR (KIP-966) off, as by default before Kafka 4.1: the last member of an ISR stays in it after a crash."""
    done = run_tool(FEATURES, ["--bootstrap-server", cluster.bootstrap, "downgrade", "--feature", f"{ELR}=0"])
    if done.exit_code != 0:
        raise LabError(f"{ELR} stays on: {(done.stdout + done.stderr)[-500:].decode(errors='replace')}")


def _start_all(story: Story) -> None:
    cluster = story.cluster
    cluster.start(*cluster.brokers)
    wait_until("all replicas in sync", lambda: fully_replicated(cluster), timeout_seconds=60)
    story.settle(*TOPICS)
