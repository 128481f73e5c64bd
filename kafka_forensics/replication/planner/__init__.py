"""Elections planned on small values: who could lead, what it would cost, in which order to start, and the steps."""

from kafka_forensics.replication.planner.order import StartOrder, start_order, wish_of
from kafka_forensics.replication.planner.plan_steps import Steps, steps
from kafka_forensics.replication.planner.planner import loaded_epochs, plan_partition, recovered_epochs, truncates_by
from kafka_forensics.replication.planner.plans import (
    NO_END,
    NO_WORD,
    UNSAID,
    Broker,
    Candidate,
    FollowerPlan,
    Loss,
    Missing,
    Plan,
    PlanControl,
    PlanPartition,
    PlanReplica,
    Strays,
    TruncateBy,
    Witness,
    costs_of,
)

__all__ = [
    "NO_END",
    "NO_WORD",
    "UNSAID",
    "Broker",
    "Candidate",
    "FollowerPlan",
    "Loss",
    "Missing",
    "Plan",
    "PlanControl",
    "PlanPartition",
    "PlanReplica",
    "StartOrder",
    "Steps",
    "Strays",
    "TruncateBy",
    "Witness",
    "costs_of",
    "loaded_epochs",
    "plan_partition",
    "recovered_epochs",
    "start_order",
    "steps",
    "truncates_by",
    "wish_of",
]
