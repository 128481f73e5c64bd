"""Makes the tables of `docs/soundness.md`, a row per kind: `python -m lab.soundness_page`.

The rows are from the files in `analysis/kinds`; their last column is from the stored answers of the fault gallery. The table below
a heading has the kinds with that section, in the catalogue's order. The text around the tables stays.
"""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, Final

from kafka_forensics.analysis.kinds import CATALOGUE
from kafka_forensics.model.findings import Severity
from kafka_forensics.wording import kind_text
from tests.gallery.answers import ANSWERS, CASES, is_silent

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "soundness.md"
BESIDE_THE_GALLERY: Final = {
    "RECORD_MALFORMED": "`parsers/log/test_records.py`: `test_damage_of_a_malformed_record_has_its_index`",
    "BUDGET_EXCEEDED": "`parsers/log/test_segment_damage.py`: `test_reading_stops_after_many_damaged_ranges`",
    "PRODUCER_SEQ_REGRESSION": "`analysis/producers/test_producers_rules.py`: `test_defects_have_findings`, "
    "`test_legal_logs_have_no_finding`",
    "PRODUCER_EPOCH_REGRESSION": "`analysis/producers/test_producers_rules.py`: `test_defects_have_findings`, "
    "`test_legal_logs_have_no_finding`",
    "NODE_ID_MISMATCH": "`cli/test_input_paths.py`: `test_a_copy_with_the_number_of_another_broker_is_reported`",
    "PARTIAL_COPY": "`evidence/test_without_logs.py`: `test_without_any_logs_everything_is_unknown`, "
    "`test_one_partition_without_its_log_is_not_a_copy_without_logs`",
    "LOG_DIR_WIPED": "`cli/test_empty_log_directory.py`: "
    "`test_scan_counts_the_replicas_that_the_controllers_assign_to_the_disk`, "
    "`test_a_second_log_directory_of_a_broker_may_be_empty`",
    "ALL_LOGS_EMPTY": "`scanning/judging/test_scenes.py`: `test_the_answer_to_a_scene_is_the_golden_one`",
    "COMMITTED_TRUNCATED_SINCE": "`questions/changes/test_changes.py`: "
    "`test_committed_records_that_no_broker_holds_are_critical`, `test_truncation_above_the_high_watermark_is_no_finding`",
    "KEYS_LOST_SINCE": "`questions/changes/test_changes_compacted.py`: `test_removal_of_a_keys_latest_record_is_a_finding`, "
    "`test_legitimate_cleaning_is_explained`",
}
"""Kind that no case of the gallery gives → the tests that give it, then those of harmless look-alikes."""
_TABLE: Final = re.compile(r"(?<=^## )(.+)(\n\n\| kind .+\n\|(?:---\|)+\n)(?:\|.+\n)*", re.MULTILINE)
_MOST_FAULTS: Final = 4
_UNNUMBERED_VARIANTS: Final = "[Variants](faults.md#variants)"
"""They have no section in docs/faults.md."""


@cache
def _names_with(kind: str) -> list[str]:
    """The cases whose scan gives a finding of the kind; of kinds above info, only those that must not be silent."""
    answers: dict[str, dict[str, Any]] = json.loads(ANSWERS.read_text())
    shows_all = CATALOGUE[kind].severity is Severity.INFO
    names = [name for name, answer in answers.items() if kind in {row[0] for row in answer.get("findings", [])}]
    return [name for name in names if shows_all or not is_silent(CASES[name])]


def _fault(name: str) -> str:
    """The fault of a case as docs/faults.md names it: its number, or the section of those without one."""
    section, fault = name.partition(":")[0], CASES[name].fault
    anchor = re.sub("[^a-z ]", "", section.lower()).replace(" ", "-")
    return fault if fault != "-" else f"[{section}](faults.md#{anchor})"


def shown_by(kind: str) -> str:
    """The last column: faults, those with a number first, or the tests of a kind that the gallery does not give."""
    found = sorted({_fault(name) for name in _names_with(kind)} - {_UNNUMBERED_VARIANTS})
    if not found:
        return BESIDE_THE_GALLERY[kind]
    harmless = {_fault(name) for name in CASES if is_silent(CASES[name])}
    rest = len(found) - _MOST_FAULTS
    return ", ".join(f"*{fault}*" if fault in harmless else fault for fault in found[:_MOST_FAULTS]) + (
        f" and {rest} more" if rest > 0 else ""
    )


def page(text: str) -> str:
    """The page with up-to-date tables. Raises ValueError for a section without a table, KeyError for a table without kinds and for
    a kind without a test."""
    rows: dict[str, str] = {}
    for kind in CATALOGUE:
        words = kind_text(kind)
        row = f"| `{kind}` | {words.proves} | {words.cannot_see} | {words.looks_like_it} | {shown_by(kind)} |\n"
        rows[words.section] = rows.get(words.section, "") + row
    updated = _TABLE.sub(lambda table: f"{table[1]}{table[2]}{rows.pop(table[1])}", text)
    if rows:
        raise ValueError(f"no heading with a table: {', '.join(rows)}")
    return updated


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
