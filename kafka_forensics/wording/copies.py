"""Prose about the copies themselves: their moments, names and odd entries."""

from typing import Final

PROSE: Final = """
INCONSISTENT_CUT: files copied at different moments
    this replica's files are of different moments[ ({reason})| ({what} {value}, {limit_name} {limit})], so its end is not judged
    > For a firm answer copy the directory again while the broker is stopped, or from one storage snapshot.
EVIDENCE_CHANGED: file that changed while it was read
    {file} changed while it was read[ (before: {before:list}; after: {after:list})], so what was found in it is not sure
    > Copy the directory to where nothing writes and scan the copy, or use --live.
NON_REGULAR_SKIPPED: entry that is no regular file
    {file} is no regular file[ ({entry_kind})] and was not opened
SPARSE_FILE: file with holes
    {file} occupies [only {allocated_bytes:byte} of its {size_in_bytes:byte}|less than its size]; the holes read as zeros
DIR_NAME_ILLEGAL: illegal directory name
    Kafka gives no partition directory [the name "{name:list}"|such a name]
    > [{refused:if}A broker refuses to start on it. ]Find out who made it.
FILE_UNKNOWN: file of no known kind
    the directory holds [{count:file}|a file] of no known kind[: {names:list}]
"""
