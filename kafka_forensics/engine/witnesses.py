"""Reading the witnesses: logs whose records tell of other partitions. They are read whatever the scan was limited to."""

from collections.abc import Iterable

from kafka_forensics.analysis.witnesses import Witnesses
from kafka_forensics.engine.controller import read_controller
from kafka_forensics.engine.inputs import Inputs
from kafka_forensics.engine.transaction_log import read_transaction_log
from kafka_forensics.model.constants import TRANSACTION_STATE_TOPIC


def read_witnesses(inputs: Inputs) -> Witnesses:
    """Read every witness there is among the inputs, from `inputs.internal`."""
    witnesses = Witnesses()
    controller = read_controller(inputs)
    if controller is not None:
        witnesses.controller = controller.history
        witnesses.findings += controller.findings
    known = [partition for topic, partition in _partitions(witnesses) if topic == TRANSACTION_STATE_TOPIC]
    witnesses.transaction_log, found = read_transaction_log(inputs, max(known, default=-1) + 1)
    witnesses.findings += found
    return witnesses


def _partitions(witnesses: Witnesses) -> Iterable[tuple[str, int]]:
    """Every (topic, partition) the controller knows of."""
    return () if witnesses.controller is None else witnesses.controller.partitions
