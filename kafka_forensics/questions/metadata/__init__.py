"""`metadata`: every change of every partition by the controller's log."""

from kafka_forensics.questions.metadata.events import ControllerEvents, EventRow, controller_events

__all__ = ["ControllerEvents", "EventRow", "controller_events"]
