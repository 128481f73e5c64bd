"""Findings, incidents and changes as text. The text of each kind is in `analysis/kinds/KIND.md`."""

from kafka_forensics.wording.changes import CHANGE_HEADS, change_cells, change_words
from kafka_forensics.wording.findings import advice, asked_command, explain_page, gravity, is_background, message, title
from kafka_forensics.wording.incidents import cost, incident_advice, incident_command, incident_message, incident_title, when
from kafka_forensics.wording.prose import prose
from kafka_forensics.wording.values import WITHOUT, damaged_bytes, duration, mending, offset_range, on_start, span, spelled_out
