"""Prose about what the controller's log says of elections, of the ISR and of settings."""

from typing import Final

PROSE: Final = """
UNCLEAN_ELECTION: election of a leader from outside the ISR
    an unclean election[ at {election_ms:time}] made [broker {new_leader}|a broker outside the ISR] the leader[ in epoch
    {leader_epoch}][{same_leader:if}; it had led last|, after broker {old_leader}][; it cost
    {offsets}|{agree_again:if}; the copies agree again, so that what it cost is on none of them|{damage_hides:if}; what it cost
    cannot be told, because a copy from before it is damaged|{old_leader_not_given:if}; no log
    directory of broker {old_leader}, the leader before, was given, so that what it cost cannot be
    told|{old_leader_not_compared:if}, whose copy is not among those compared]
    > [{old_leader_not_given:if}Get the log directory of broker {old_leader} before that broker starts: once it follows the new
    leader, what it alone holds is cut off.]
ISR_MEMBER_MISSING_COMMITTED: replica in sync that lacks committed records
    [{absent:if}no directory of this replica is there, and it|this replica] counts as in sync[ (ISR {isr:list})] but lacks
    [{offsets}|some offsets], once committed[ according to {witness}]; electing it would be clean and would lose them[, which is
    harmless if {harmless_if}]<held>
    > [This broker starts last, once one of {held_by:brokers} leads the partition. ]<weigh>
LRS_RISK: last electable replica that is too short
    no other replica than this one may be elected[ (ISR {isr:list})], and [{absent:if}no directory of it is there: it lacks|it
    lacks] [{offsets}|some offsets][, once committed according to {witness}]; once it leads, the others cut them off[, which is
    harmless if {harmless_if}]<held>
    > [This broker starts last, once one of {held_by:brokers} leads the partition. ]<weigh>
EMPTY_REPLICA_MAY_LEAD: empty replica that may be elected
    [{wiped:if}the log directory of this broker is empty|{absent:if}no directory of this replica is there|this replica is empty],
    and other replicas hold [{offsets}|some offsets], once committed[ according to {witness}]; no file says who is in sync: if this
    broker is elected, the others cut them off[, which is harmless if {harmless_if}]<held>
    > Start a broker that holds these records first, and this one last. <weigh>
TOPIC_UNKNOWN_TO_CONTROLLER: partition that the controllers do not know
    copies on {brokers:brokers} hold this partition, and the controller's log[ (up to {controller_end_ms:time})] does not know
    [topic id {topic_id}|the topic]; when these brokers start, they [{sets_aside:if}rename its directories to -stray and serve them
    no more|{may_delete:if}delete its directories within a minute, as brokers before 3.7 do|delete its directories within a minute
    (3.3.2, 3.6.2), or rename them to -stray and serve them no more (3.9.1 to 4.3.0)][, which is harmless if {harmless_if}]
    > Look for a newer copy of __cluster_metadata, on every controller and broker, before any broker starts, and keep these copies.
CONTROLLER_LOG_OLD: controllers' log that lags behind its observers
    the voters' copies of the controller's log end at offset {voters_end}, and those of {held_by:brokers} go on to
    {observers_end}: no voter fetches from an observer, so that what is written there is cut off when the voters start[ (voters
    {voters:list})][, which is harmless if {harmless_if}]
    > Look for a newer copy of a voter's __cluster_metadata-0 before any controller starts, and copy those of {held_by:brokers}
    elsewhere first.
LRS_LOSS: committed records cut by a last replica
    [{offsets}|some offsets], once committed, can be had [only from {held_by:brokers}|no more from the present leader], since
    [broker {new_leader}|a replica] came back without them and was elected as the last of the ISR[ at {election_ms:time}][; other
    records are committed at {rivals}]
    > <weigh>
RISKY_CONFIG: settings that allow a loss
    records of [{topics:list}|some topics] can be lost by [{risks:list}|their settings][, as {explains:list} may show]
    > Where these records matter, raise min.insync.replicas above 1 and leave unclean elections off.
"""
