"""`plan`: elections planned on copied directories, and what each would cost."""

from kafka_forensics.questions.plan.planning import CONTRADICTING, Planned, PlanOptions, Plans, make_plans

__all__ = ["CONTRADICTING", "PlanOptions", "Planned", "Plans", "make_plans"]
