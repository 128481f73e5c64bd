"""Mutants of Kafka's rules, and the planner that stands on them."""

from tests.mutants.mutant import mutants_of

MUTANTS = [
    *mutants_of(
        "replication/epochs",
        "replication/test_epoch_rules replication/planner/test_planner",
        ("if leader_epoch < entries[0].leader_epoch:", "if leader_epoch <= entries[0].leader_epoch:"),
        (
            "return max((entry.leader_epoch for entry in entries if entry.start_offset <= offset), default=None)",
            "return min((entry.leader_epoch for entry in entries if entry.start_offset <= offset), default=None)",
        ),
        (
            "while cache and (cache[-1].leader_epoch >= entry.leader_epoch or cache[-1].start_offset >= entry.start_offset):",
            "while cache and (cache[-1].leader_epoch < entry.leader_epoch or cache[-1].start_offset >= entry.start_offset):",
        ),
        (
            "known = [entry for entry in follower if entry.start_offset < end]",
            "known = [entry for entry in follower if entry.start_offset >= end]",
        ),
        ("while known and known[-1].start_offset >= end:", "while known or known[-1].start_offset >= end:"),
        (
            "if known and known[-1].leader_epoch == answer.leader_epoch:",
            "if known and known[-1].leader_epoch != answer.leader_epoch:",
        ),
        ("watermark = max(high_watermark or 0, follower_start)", "watermark = min(high_watermark or 0, follower_start)"),
    ),
    *mutants_of(
        "replication/epochs",
        "replication/test_truncation_rules",
        (
            "kept = tuple(entry for entry in self.epochs if entry.start_offset < end)",
            "kept = tuple(entry for entry in self.epochs if entry.start_offset <= end)",
        ),
        ("if not follower.epochs:", "if follower.epochs:"),
        (
            "cut, answer = min(follower.high_watermark, follower.log_end_offset), UNDEFINED",
            "cut, answer = max(follower.high_watermark, follower.log_end_offset), UNDEFINED",
        ),
        (
            "return answer.leader_epoch < last_fetched_epoch or answer.end_offset < fetch_offset",
            "return answer.leader_epoch < last_fetched_epoch or answer.end_offset <= fetch_offset",
        ),
        ("return min(answer.end_offset, end), True", "return max(answer.end_offset, end), True"),
        ("if not known or epoch_asked < known[0].leader_epoch:", "if not known or epoch_asked >= known[0].leader_epoch:"),
    ),
    *mutants_of(
        "replication/elections",
        "replication/test_isr_rules",
        ("if fetch_offset >= leader_end:", "if fetch_offset < leader_end:"),
        (
            "return follower.log_end_offset == leader_end or now_ms - follower.last_caught_up_ms <= replica_lag_time_max_ms",
            "return follower.log_end_offset != leader_end or now_ms - follower.last_caught_up_ms <= replica_lag_time_max_ms",
        ),
    ),
    *mutants_of(
        "replication/acks",
        "replication/test_acks_rules",
        (
            "return ProduceResponse.NOT_ENOUGH_REPLICAS if acks == ALL and state.under_min_isr else ProduceResponse.WAITING",
            "return ProduceResponse.NOT_ENOUGH_REPLICAS if acks != ALL and state.under_min_isr else ProduceResponse.WAITING",
        ),
        (
            "needed = min(state.min_insync_replicas, len(state.follower_ends) + 1)",
            "needed = min(state.min_insync_replicas, len(state.follower_ends))",
        ),
    ),
    *mutants_of(
        "replication/elections",
        "replication/test_election_rules",
        (
            "if preferred and given.assignment and _is_electable(given, given.assignment[0]):",
            "if preferred and given.assignment or _is_electable(given, given.assignment[0]):",
        ),
        ("if len(members) >= min_insync_replicas:", "if len(members) < min_insync_replicas:"),
        (
            "return replica in given.alive and replica in (given.isr or given.elr)",
            "return replica in given.alive or replica in (given.isr or given.elr)",
        ),
        (
            'kind = "stays" if leader == given.leader else "clean" if given.isr else "elr"',
            'kind = "stays" if leader != given.leader else "clean" if given.isr else "elr"',
        ),
    ),
    *mutants_of(
        "replication/watermarks",
        "replication/test_watermark_rules",
        (
            "return len(self.isr) < min(self.min_insync_replicas, len(self.follower_ends) + 1)",
            "return len(self.isr) >= min(self.min_insync_replicas, len(self.follower_ends) + 1)",
        ),
        (
            "return replace(state, high_watermark=max(state.high_watermark, lowest))",
            "return replace(state, high_watermark=min(state.high_watermark, lowest))",
        ),
    ),
    *mutants_of(
        "replication/acks",
        "replication/test_sequence_rules",
        ("if epoch is not None and batch.producer_epoch < epoch:", "if epoch is not None or batch.producer_epoch < epoch:"),
        ("if not of_epoch:", "if of_epoch:"),
        (
            "return SequenceVerdict.APPEND if epoch is None or batch.base_sequence == 0 else SequenceVerdict.OUT_OF_ORDER",
            "return SequenceVerdict.APPEND if epoch is not None or batch.base_sequence == 0 else SequenceVerdict.OUT_OF_ORDER",
        ),
        (
            "follows = batch.base_sequence == (of_epoch[-1].last_sequence + 1) & MAX_SEQUENCE",
            "follows = batch.base_sequence == (of_epoch[-1].last_sequence) & MAX_SEQUENCE",
        ),
    ),
    *mutants_of(
        "replication/offset_ranges",
        "replication/planner/test_planner_properties replication/planner/test_planner",
        ("if start <= low and high <= end:", "if start <= low or high <= end:"),
        (
            "return tuple((max(low, start), min(high, end)) for low, high in ranges[first:behind] if start < end)",
            "return tuple((min(low, start), min(high, end)) for low, high in ranges[first:behind] if start < end)",
        ),
        (
            '    """Whether an offset is in a set."""\n    if len(ranges) == 1:',
            '    """Whether an offset is in a set."""\n    if len(ranges) != 1:',
        ),
        ("return ranges[0][0] <= offset < ranges[0][1]", "return ranges[0][0] > offset < ranges[0][1]"),
        ("return behind > 0 and offset < ranges[behind - 1][1]", "return behind <= 0 and offset < ranges[behind - 1][1]"),
    ),
    *mutants_of(
        "replication/recovery",
        "replication/test_recovery_rules",
        ("if segment_facts.stop.check == OFFSET_REGRESSION:", "if segment_facts.stop.check != OFFSET_REGRESSION:"),
        (
            "if first <= fault.base_offset < bound and fault.check == PRODUCER_STATE:",
            "if first <= fault.base_offset < bound or fault.check == PRODUCER_STATE:",
        ),
        (
            "if floor is not None and segment_facts.base_offset < floor:",
            "if floor is not None and segment_facts.base_offset <= floor:",
        ),
    ),
    *mutants_of(
        "replication/planner/planner",
        "replication/planner/test_plan_cuts replication/planner/test_planner replication/planner/test_planner_properties",
        (
            "below = max(replica.log_start_offset, new.log_start_offset)",
            "below = min(replica.log_start_offset, new.log_start_offset)",
        ),
        (
            "latest = max((entry.leader_epoch for entry in entries), default=-1)",
            "latest = min((entry.leader_epoch for entry in entries), default=-1)",
        ),
        (
            "if control is None or control.isr is None or not isinstance(node, int):",
            "if control is not None or control.isr is None or not isinstance(node, int):",
        ),
        (
            "self._tiered = given.control is not None and given.control.tiered",
            "self._tiered = given.control is None and given.control.tiered",
        ),
        (
            "disagrees = not self._given.compacted and max(by_file, below) != max(by_batches, below)",
            "disagrees = not self._given.compacted and max(by_file, below) != min(by_batches, below)",
        ),
        ("removes = new.log_start_offset and not self._tiered", "removes = new.log_start_offset and self._tiered"),
        ("if not differing and held == sound:", "if not differing and held != sound:"),
        (
            "if number not in members and self._on_disk[number][0][0] < start:",
            "if number not in members or self._on_disk[number][0][0] < start:",
        ),
        (
            "proofs.extend([(min(witness.end_offset, agreed), witness) for witness in self._witnesses[number]])",
            "proofs.extend([(max(witness.end_offset, agreed), witness) for witness in self._witnesses[number]])",
        ),
        (
            "proven = min(end, max([reach for reach, _ in proofs], default=start))",
            "proven = max(end, max([reach for reach, _ in proofs], default=start))",
        ),
    ),
    *mutants_of(
        "replication/planner/plan_steps",
        "replication/planner/test_plan_steps",
        (
            "absent = [missing.broker for missing in plan.missing if missing.kind in unseen and missing.broker is not None]",
            "absent = [missing.broker for missing in plan.missing if missing.kind not in unseen and missing.broker is not None]",
        ),
        (
            "return tuple(replica.broker for replica in given.replicas if replica.broker in holders and replica.is_live)",
            "return tuple(replica.broker for replica in given.replicas if replica.broker in holders or replica.is_live)",
        ),
        (
            "if replica.is_live and nodes[replica.broker] != nodes[leader]:",
            "if replica.is_live or nodes[replica.broker] != nodes[leader]:",
        ),
    ),
    *mutants_of(
        "replication/recovery",
        "replication/test_directory_names",
        (
            "number = int(digits) if digits.isdecimal() and len(digits) <= 32 else None",
            "number = int(digits) if digits.isdecimal() and len(digits) > 32 else None",
        ),
        (
            "return bool(topic and dash) and number is not None and number <= _MAX_PARTITION",
            "return bool(topic and dash) or number is not None and number <= _MAX_PARTITION",
        ),
    ),
]
