"""Steps and states of the model in words: replicas are A, B, C, …; `r0@2` is the first record written, in epoch 2."""

from kafka_forensics.simulation.model import Replica, State, Step, leader_of


def name_of(replica: int) -> str:
    """A replica's letter."""
    return chr(ord("A") + replica)


def told(step: Step, after: State) -> str:
    """One sentence on a step and what came of it."""
    who = name_of(step.replica)
    other = "" if step.other is None else name_of(step.other)
    match step.action:
        case "elect":
            return f"controller elects {who} in epoch {step.number}, ISR {isr_of(after.isr)}"
        case "remove":
            leader = after.requests[-1].leader
            lead = "no leader" if leader is None else f"leader {name_of(leader)}"
            return f"controller removes {who}: epoch {step.number}, {lead}, ISR {isr_of(after.isr)}"
        case "lead":
            return f"{who} hears that it leads in epoch {step.number}"
        case "follow":
            return f"{who} hears that {other} leads in epoch {step.number}, and keeps {log_of(after.replicas[step.replica])}"
        case "write":
            return f"{who} writes r{step.number}@{after.replicas[step.replica].log[-1].leader_epoch}"
        case "fetch":
            return f"{who} fetches r{step.number} from {other}"
        case "truncate":
            return f"{who} cuts its log at offset {step.number}, to match {other}"
        case "raise":
            return f"{who} raises its high watermark to {step.number}"
        case "shrink":
            return f"{who} puts {other} out of the ISR, now {isr_of(after.isr)}"
        case "expand":
            return f"{who} takes {other} into the ISR, now {isr_of(after.isr)}"
        case _:
            raise AssertionError(step.action)


def replica_in_words(state: State, replica: int) -> str:
    """What a replica is and has: role and epoch, log, high watermark."""
    own, leader = state.replicas[replica], leader_of(state, replica)
    if leader is None:
        role = "idle"
    else:
        role = f"leads e{own.leader_epoch}" if leader == replica else f"follows {name_of(leader)} e{own.leader_epoch}"
    return f"{role}, {log_of(own)}, hw {own.high_watermark}"


def log_of(replica: Replica) -> str:
    """A log: its records in order."""
    return f"[{' '.join(f'r{record.number}@{record.leader_epoch}' for record in replica.log)}]"


def isr_of(isr: frozenset[int]) -> str:
    """A set of replicas."""
    return "{" + ", ".join(map(name_of, sorted(isr))) + "}"
