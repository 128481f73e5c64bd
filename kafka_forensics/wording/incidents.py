"""Prose about known incidents that the evidence resembles."""

from typing import Final

PROSE: Final = """
INCIDENT_SIGNATURE: signature of a known incident
    [matches {issue} ({summary})|resembles a known incident that has no issue number ({summary})|resembles a known incident][:
    {fits:list}][; what speaks against it: {does_not_fit:list}][; not known
    from these files: {unknown:list}]
    > [Affected: {affected_versions}][; fixed in {fixed_in:list}|{fixed_in:none}; no release is known to fix it]. Find out which
    version ran at that time; the other findings of this partition say what it cost[. `kafka-forensics explain
    {incident}` says more].
"""
