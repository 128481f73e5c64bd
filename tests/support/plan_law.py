"""The law that binds a scan and a plan: where an ordinary start would lose committed records, the scan says at least `error`."""

from collections.abc import Iterator

from kafka_forensics.model.findings import Severity
from kafka_forensics.questions.plan import Plans


def broken_laws(plans: Plans) -> Iterator[str]:
    """Partitions of which the plan foretells a loss by an ordinary start, and the scan it was made from no error."""
    assert plans.result is not None
    worst: dict[tuple[str, int], int] = {}
    for finding in plans.result.findings:
        if finding.place.topic is not None and finding.place.partition is not None:
            key = (finding.place.topic, finding.place.partition)
            worst[key] = max(worst.get(key, 0), finding.severity.rank)
    for planned in plans.planned:
        plan = planned.plan
        if plan.ordinary_loss and worst.get((plan.topic, plan.partition), 0) < Severity.ERROR.rank:
            yield f"{plan.topic}-{plan.partition}: an ordinary start loses {plan.ordinary_loss} under one of {plan.ordinary}"
