"""Prose about replicas of one partition against each other."""

from typing import Final

PROSE: Final = """
REPLICA_DIFFERS: replica that differs from the others
    [the copy on {minority:brokers} differs from {majority:brokers}|replicas differ][ at {offsets}][{epoch_in_doubt:if}, where
    their headers name different leader epochs and one is damaged| within one leader epoch]<held>[;
    {ranges_not_compared:further range} of offsets in between differ and were not read]
REPLICA_LAGS: replica that is behind
    this replica ends [{behind:offset}|some offsets] before the longest[, whose log end is {leader_end}], and agrees with it so
    far[; if it led, {committed:offset} that are committed would be lost, and no controller's log says whether it may]
    > [Keep the longer copy (on {held_by:brokers}) until this one has caught up.|Keep every copy as it is: the longer ones, on
    {in_conflict:brokers}, conflict with each other.|Keep the longer copy until this one has caught up.]
BATCHES_REENCODED: same records in other batches
    [{brokers:brokers}|the replicas] hold equal records in differently encoded batches[ at {offsets}][;
    {ranges_not_compared:further range} of offsets in between differ and were not read]
SAME_EPOCH_DIVERGENCE: different records of one leader epoch
    the replicas hold different records of one leader epoch[ at offset {record_offset}| in the batch at offset {offset}][
    ({versions})], which no election can explain[;
    {ranges_not_compared:further range} of offsets in between differ and were not read]
    > <weigh>
FORK_ABOVE_HW: logs that part above the high watermark
    the logs part at [offset {offset}|one offset][ ({versions})], [and whether that was committed cannot be told, because no high
    watermark is known for {watermark_unknown:brokers}|and only the version on {committed_on:brokers} was committed|above every
    known high watermark][; by the leader-epoch-checkpoint Kafka does not cut there, and {kept_on:brokers} would keep other records
    than the leader for good|; Kafka cuts at {cut}][, which is harmless if {harmless_if}][;
    {ranges_not_compared:further range} of offsets in between differ and were not read]
    > [Copy the log directories of {kept_on:brokers} elsewhere before any broker of this partition starts. See how they can be made
    to copy the leader's log whole with {plan} See what differs with {compare}|Kafka settles this by cutting one side; if acks=1 was
    in use, copy that log directory first and see its records with {compare}]
FORK_BELOW_HW: logs that part below the high watermark
    the logs part at [offset {offset}|one offset][ ({versions})], below what was committed, and differ in [{offsets}|committed
    offsets][; the version at risk is on {held_by:brokers}|{held_by:none}; which version was acknowledged is unknown][; of these,
    {not_whole}][; {ranges_not_compared:further range} of offsets in between differ and were not read]
    > <weigh>
UNCLEAN_LOSS: committed records that a new leader lacks
    [{offsets}|some offsets], once committed, can be had [only from {held_by:brokers}|no more from the present leader][ and would
    be cut off at offset {cut} when that copy follows {successor}][ ({versions})][; by the {kept_by} Kafka does not cut there, and
    that copy would keep other records than the leader for good][; of these, {not_whole}][; other records are committed at {rivals}]
    > <weigh>
COMMITTED_LOST_EVERYWHERE: committed records that no copy holds
    no given copy holds [{offsets}|some offsets], once committed[ (high watermark {high_watermark})][ according to {witness}][; its
    directory is gone on {directories_missing_on:brokers}][; {never_known:if}the controller's log, which is here from its beginning,
    never knew the topic: brokers that start with such a log delete its directories][, which is harmless if {harmless_if}]
    > Look for further copies: other replicas, other log directories, backups, files ending in .deleted. Then scan them together.
TOPIC_ID_MISMATCH: different topics of one name
    the copies are of different topics with the same name[ ({topic_ids:list})][; by the controller's log
    {present_topic_id}, on {present_on:brokers}, is the present one (of the others, {other_ids:list})|; by the controller's log
    {present_topic_id} is the present one (of the others, {other_ids:list})]; only those of one id were compared
    > [The directory on {misplaced_on:brokers} lies under another topic's name: put it right before that broker starts, and keep all
    copies till then.|The present topic's copies are those with id {present_topic_id} ({present_on:brokers}); the others may be the
    last of theirs, so keep them and scan them by themselves.|The present topic has id {present_topic_id}, and none of these copies
    has it: look for its copies, and keep these.|Find out which topic id the cluster has now, and scan the copies of each topic by
    themselves.]
CLUSTER_ID_MISMATCH: copies of different clusters
    the copies come from different clusters[ ({cluster_ids:list})]; only those of one cluster were compared
    > Scan each cluster's copies by themselves.
NODE_ID_CLASH: two brokers with one id
    log directories that are not one broker's claim the same node id[ ({node_id})][: {log_dirs:list}]
    > Name them apart with NAME=PATH, or leave one out if it is an older copy of the other.
NODE_ID_MISMATCH: a broker given under another's number
    [{log_dirs:list}|a log directory] was given as broker [{named}|of another number], and meta.properties says that it is node
    [{node_ids:list}|another]; all that is said of broker [{named}|that number] is about this directory
    > Leave the name out, or give the number in meta.properties: else what is advised for broker [{named}|that number] would be done
    on another machine. A name that is no number, such as old=PATH, claims nothing.
REPLICA_MISSING: replica whose directory is gone
    [replication-offset-checkpoint of this copy gives the partition {high_watermark} committed offsets|the controller's log gives
    this broker a replica], but its directory is not there[; {never_known:if}the controller's log, which is here from its beginning,
    never knew the topic: brokers that start with such a log delete its directories][, which is harmless if {harmless_if}]
    > Look for the directory on the broker itself; if it is gone there too, keep every other replica as it is.
REPLICA_NOT_GIVEN: replicas of a broker that was not given
    [{other_log_dirs:if}not every log directory of this broker was given|no log directory of this broker was given], though the
    controller's log assigns it [{replicas:replica}|replicas][
    (among them {examples:list})][, {in_isr} of them in the ISR][ and {led} led by it]
    > Get its log directories, too, and if it is down before it starts again; then scan all together.
PARTIAL_COPY: log directory copied in part
    [{partitions:partition}|some partitions] of this broker are not in this copy[ (among them {examples:list})][, which holds
    {there} of it], so that nothing is concluded from what is not there
    > If the log directory was copied whole, say --whole: then what is not there is gone.
LOG_DIR_WIPED: log directory that holds its identity alone
    this log directory holds meta.properties and nothing else[, though the controller's log gives it {replicas:replica}|, and may
    have held replicas of {may_have_held:partition}][ ({among}{examples:list})][, which is harmless if {harmless_if}]
    > Do not start this broker before the other replicas are copied elsewhere: it would begin with empty logs. If the directory was
    copied in part, say --partial.
ALL_LOGS_EMPTY: no record anywhere
    [every log of {partitions:partition}|every log] here ends at offset 0, in leader epochs up to [{leader_epoch}|unknown][; among
    them {internal_topics:list}, which brokers create when clients come]: either nothing was ever written, or all of it was cut off
    without a trace, as when the only replica in sync starts with empty disks
    > If there were records, keep these copies and look for older ones: backups, and disks that were replaced.
LOG_HEAD_MISSING: first records of a log that are gone
    this log begins at offset [{log_start_offset}|unknown], and [{offsets}|some offsets] before it are on {held_by:brokers}; neither
    retention nor DeleteRecords explains it[ (retention.ms {retention_ms}, retention.bytes {retention_bytes})][; when this replica
    leads, readers lose them and followers delete theirs][, which is harmless if {harmless_if}]
    > [{others}Copy those of the other brokers, too, before any of them starts. |Copy the log directories of all brokers elsewhere
    before any of them starts. ]Weigh what each election would cost with {plan} <repair>
"""
