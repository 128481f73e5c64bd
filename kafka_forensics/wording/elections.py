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
    this replica counts as in sync[ (ISR {isr:list})] but lacks [{offsets}|some offsets], once committed[ according to {witness}];
    electing it would be clean and would lose them[, which is harmless if {harmless_if}]<held>
    > <weigh>
LRS_RISK: last electable replica that is too short
    no other replica than this one may be elected[ (ISR {isr:list})], and it lacks [{offsets}|some offsets], once committed[
    according to {witness}]; once it leads, the others cut them off[, which is harmless if {harmless_if}]<held>
    > <weigh>
LRS_LOSS: committed records cut by a last replica
    [{offsets}|some offsets], once committed, can be had [only from {held_by:brokers}|no more from the present leader], since
    [broker {new_leader}|a replica] came back without them and was elected as the last of the ISR[ at {election_ms:time}][; other
    records are committed at {rivals}]
    > <weigh>
RISKY_CONFIG: settings that allow a loss
    records of [{topics:list}|some topics] can be lost by [{risks:list}|their settings][, as {explains:list} may show]
    > Where these records matter, raise min.insync.replicas above 1 and leave unclean elections off.
"""
