"""Findings, incidents and changes as text. The text of each kind is in `analysis/kinds/KIND.md`."""

from kafka_forensics.model.offset_ranges import offset_range
from kafka_forensics.wording.changes import CHANGE_HEADS, change_cells, change_text
from kafka_forensics.wording.findings import advice, explain_page, is_background, message, rerun_command, severity_order, title
from kafka_forensics.wording.incidents import (
    incident_advice,
    incident_command,
    incident_loss,
    incident_message,
    incident_precaution,
    incident_time,
    incident_title,
)
from kafka_forensics.wording.kind_text import kind_text
from kafka_forensics.wording.overview import Overview, overview_of
from kafka_forensics.wording.values import (
    COST_OF_START_WITHOUT,
    damaged_bytes,
    duration,
    named_brokers,
    on_start,
    repair_advice,
)
