"""Brokers whose power fails: they end at once, and a disk keeps of a log what was flushed, as its recovery point says."""

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
"""Who stands alone in the ISR in the end, and leads."""
MEMBER: Final = 3
"""Who loses what all others in the ISR keep."""
STEP: Final = 20
"""Records that are written at a time to each of the topics."""
TOPICS: Final = ("member", "known", "standing")


def lose_unflushed(cluster: Cluster, broker: int, topic: str) -> bytes:
    """Cut the log of partition 0 on a broker that is down at its recovery point, above which it promises nothing; the lost bytes.

    Raises LabError unless that are the last `STEP` records.
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
    """All brokers end in the same moment, all in the ISR, and one loses what it had not flushed. Copy `dark`.

    Then it gets that back: who leads when all return is chance, and if it were that one, it would cost the others their records.
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
    """The last of the ISR loses what it had not flushed and leads again, once with and once without ELR.

    Copies `last` before and `known` after it leads with ELR, `standing` without.
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
    """All hold what was committed; all but one are stopped, and that one's power fails."""
    cluster = story.cluster
    story.write(topic, STEP)
    story.settle(topic)
    cluster.stop(*(broker for broker in cluster.brokers if broker != LAST))
    cluster.await_isr(topic, [LAST])
    cluster.kill(LAST)
    lose_unflushed(cluster, LAST, topic)


def lead_again(story: Story, topic: str) -> None:
    """It comes back alone, takes other records, and is stopped."""
    cluster = story.cluster
    cluster.start(LAST)
    wait_until(f"{topic} is led", lambda: cluster.leader_and_isr(topic)[0] == LAST, timeout_seconds=30)
    end = story.write(topic, STEP // 2, kind="instead", acks="1")
    cluster.await_high_watermark(LAST, topic, end)
    cluster.stop(LAST)


def without_elr(cluster: Cluster) -> None:
    """As by default before Kafka 4.1: the last of an ISR stays in it when it comes back after a crash (KIP-966 is off)."""
    done = run_tool(FEATURES, ["--bootstrap-server", cluster.bootstrap, "downgrade", "--feature", f"{ELR}=0"])
    if done.exit_code != 0:
        raise LabError(f"{ELR} stays on: {(done.stdout + done.stderr)[-500:].decode(errors='replace')}")


def _start_all(story: Story) -> None:
    cluster = story.cluster
    cluster.start(*cluster.brokers)
    wait_until("all replicas in sync", lambda: fully_replicated(cluster), timeout_seconds=60)
    story.settle(*TOPICS)
