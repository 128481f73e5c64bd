"""Plans elections from small values: the candidates, what each election loses, what it requires, and the order of starts."""

from kafka_forensics.model.findings import Broker
from kafka_forensics.replication.planner.election_needs import ElectionNeeds, election_needs
from kafka_forensics.replication.planner.planner import (
    loaded_epochs,
    losses_without,
    plan_partition,
    recovered_epochs,
    truncates_by,
)
from kafka_forensics.replication.planner.plans import (
    ASSIGNMENT_UNKNOWN,
    MAY_HIDE_RECORDS,
    NO_CONTROLLER_LOG,
    NO_END,
    WITHOUT_UPPER_BOUND,
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
from kafka_forensics.replication.planner.start_order import LeaderRequest, StartOrder, StartRound, leader_request, order_of_starts
