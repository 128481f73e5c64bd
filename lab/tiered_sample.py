"""Makes the sample `tiered`: a tiered topic whose remote store lost one object, as by a lifecycle rule of a bucket."""

from pathlib import Path
from typing import Final

from lab.errors import LabError
from lab.files import copy_tree
from lab.salvage_states import Acknowledged, go_on
from lab.tiered import METADATA_TOPIC_SETTINGS, PARTLY, STORE, TieredCluster
from lab.workload import SMALL_SEGMENTS

TOPIC: Final = "measurements"
RECORDS: Final = 400
LOST_SEGMENT: Final = 2
"""Number of the segment whose log is deleted from the store."""


def make_tiered(work: Path) -> tuple[int, int]:
    """Make the tree `tiered` below `work`, in half a minute; return the offsets of the deleted object. Raises LabError."""
    with TieredCluster(work / "tiered-cluster", brokers=3, settings=METADATA_TOPIC_SETTINGS) as cluster:
        cluster.create_topic(TOPIC, settings={**SMALL_SEGMENTS, **PARTLY})
        go_on(cluster, TOPIC, Acknowledged(), 0, RECORDS)
        cluster.await_quiet()
        starts = cluster.local_starts()
        if min(starts[broker, f"{TOPIC}-0"] for broker in cluster.brokers) == 0:
            raise LabError("no local segment was deleted")
        cluster.stop()
        cluster.copy(work / "tiered", [*cluster.controllers, *cluster.brokers])
        copy_tree(cluster.store, work / "tiered" / STORE)
    logs = sorted((work / "tiered" / STORE).rglob("*.log"))
    logs[LOST_SEGMENT].unlink()
    start, end = (int(logs[number].name[:20]) for number in (LOST_SEGMENT, LOST_SEGMENT + 1))
    print(f"tiered: copied, offsets {start} to {end - 1} deleted from the store", flush=True)
    return start, end
