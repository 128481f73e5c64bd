"""In which order findings are told: the gravest first."""

from kafka_forensics.model.findings import Finding, Severity


def is_background(finding: Finding) -> bool:
    """Whether a finding of info is told in words all the same: an incident it looks like, an unclean election of another leader,
    which cost what only the one before had."""
    costly = finding.kind == "UNCLEAN_ELECTION" and "same_leader" not in finding.evidence
    return costly or finding.kind == "INCIDENT_SIGNATURE"


def gravity(finding: Finding) -> tuple[int, bool, int]:
    """Sort key, the gravest first: the worst, then what is told though it is of info, then what costs the most offsets."""
    place = finding.place
    lost = 0
    if finding.severity is Severity.CRITICAL and place.offset_start is not None and place.offset_end is not None:
        lost = place.offset_end - place.offset_start
    return -finding.severity.rank, not is_background(finding), -lost
