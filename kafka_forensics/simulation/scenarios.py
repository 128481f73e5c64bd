"""All scenarios by name, and how one is played."""

from typing import Final

from kafka_forensics.errors import UsageError
from kafka_forensics.simulation.cluster import Cluster, Truncating
from kafka_forensics.simulation.history import History
from kafka_forensics.simulation.scenario import Scenario
from kafka_forensics.simulation.scenarios_replication import REPLICATION
from kafka_forensics.simulation.scenarios_transactions import TRANSACTIONS
from kafka_forensics.simulation.transactions import Coordinator

SCENARIOS: Final[dict[str, Scenario]] = {scenario.name: scenario for scenario in (*REPLICATION, *TRANSACTIONS)}
"""In the order in which they are listed."""


def play(name: str, protocol: Truncating | None = None) -> History:
    """Play a scenario, under another protocol than its own if one is given. Raises UsageError where it has no meaning there."""
    scenario = SCENARIOS[name]
    chosen = protocol or scenario.protocols[0]
    if chosen not in scenario.protocols:
        raise UsageError(f"{name} is not played under {chosen}", hint=f"choose from {', '.join(scenario.protocols)}")
    coordinator = None if scenario.coordinator is None else Coordinator(**scenario.coordinator)
    history = History(Cluster(scenario.brokers, chosen, **scenario.settings), coordinator)
    scenario.play(history)
    return history
