"""Prose about what a start on these copies would do, and about what files on their way out still hold."""

from typing import Final

PROSE: Final = """
INTERRUPTED_SWAP: unfinished replacement of segments
    [{under_way:if}the broker was cleaning or splitting segments when it was copied, into {leftovers:list}|cleaning or splitting
    was interrupted and left {leftovers:list}; the broker's next start deletes {files_deleted:file} and renames
    {files_renamed:file}|cleaning or splitting was interrupted; the broker's next start finishes or undoes it][, which would cost
    {offsets}]<held>
    > [{under_way:if}|Copy the directory elsewhere before the broker starts: its start renames and removes files here.]
RECOVERY_WOULD_TRUNCATE: log that a start would cut
    a broker that starts on this copy loses [{offsets}|the end of its log][ ({reason})][, {batches_recovered:good batch} behind
    the first bad byte among them][; its log then ends at offset {log_end_foretold}]<held>
    > Copy this log directory elsewhere before the broker starts: a start cuts {file}[ and removes {segments_deleted:list}]. <look>
LEFTOVER_HOLDS_DATA: file on its way out that still holds data
    [{files:list}|a file] [{is_stray:if}is served by no broker|will be removed by Kafka], with [{batches:good batch}|data] where the
    live log lacks [{offsets}|offsets][{expired:if}, which retention took][; it would fill {fills:list}][; no copy
    given reaches to them, which is harmless if {harmless_if}]
    > Copy [{files:list}|it] elsewhere before this broker starts: Kafka removes such files within a minute of it.
"""
