"""Mutants of the rules by which findings are made."""

from tests.mutants.mutant import mutants_of

MUTANTS = [
    *mutants_of(
        "analysis/replicas/forks",
        "analysis/replicas/test_forks analysis/replicas/test_forks_kept "
        "analysis/replicas/test_forks_losers analysis/replicas/test_forks_retention",
        ("min(end, _agree_from(replicas, conflicts, end))", "max(end, _agree_from(replicas, conflicts, end))"),
        (
            'ends = [row["from_checkpoint"] or 0 for row in cuts if row["from_batches"] <= gone]',
            'ends = [row["from_checkpoint"] or 0 for row in cuts if row["from_batches"] > gone]',
        ),
        ("if len(ends) == len(leaders) and min(ends) > gone:", "if len(ends) == len(leaders) or min(ends) > gone:"),
        (
            'if loss.kind != "UNCLEAN_LOSS" or place.offset_start is None or place.offset_end is None:',
            'if loss.kind == "UNCLEAN_LOSS" or place.offset_start is None or place.offset_end is None:',
        ),
    ),
    *mutants_of(
        "analysis/replicas/forks",
        "analysis/replicas/test_forks analysis/replicas/test_forks_kept analysis/replicas/test_forks_losers",
        (
            "if not mine or not theirs or theirs[-1].leader_epoch <= mine[-1].leader_epoch:",
            "if not mine or not theirs or theirs[-1].leader_epoch > mine[-1].leader_epoch:",
        ),
        (
            "return None if cut_under(follower, leader) is None else truncation_when_leading(follower, leader)",
            "return None if cut_under(follower, leader) is not None else truncation_when_leading(follower, leader)",
        ),
        (
            "walked_from = max((base for base in context.segment_base_offsets if base <= point), default=0)",
            "walked_from = min((base for base in context.segment_base_offsets if base <= point), default=0)",
        ),
    ),
    *mutants_of(
        "analysis/replicas/diff",
        "analysis/replicas/test_diff analysis/replicas/test_agreement",
        (
            "del self[next(index for index in range(len(self) - 1, -1, -1) if self[index].kind == difference.kind)]",
            "del self[next(index for index in range(len(self) - 1, -1, -1) if self[index].kind != difference.kind)]",
        ),
        ("while position < high and not differing.full:", "while position >= high and not differing.full:"),
        (
            "while i < ours.shape[1] and j < theirs.shape[1] and not differing.full:",
            "while i < ours.shape[1] and j <= theirs.shape[1] and not differing.full:",
        ),
        (
            "if overlap and bounds[1] <= max(offset, 0) < bounds[2]:",
            "if overlap and bounds[1] <= max(offset, 0) <= bounds[2]:",
            "equivalent: no batch that a reader gives begins at the end of what it was asked for",
        ),
        ("if kind is not None:", "if kind is None:"),
        (
            'irregularity in replica.course.irregularities if irregularity.kind == "OFFSET_DISCONTINUITY"]',
            'irregularity in replica.course.irregularities if irregularity.kind != "OFFSET_DISCONTINUITY"]',
        ),
        (
            "return any((run.segment, run.position) == place for run in wrong if place not in known)",
            "return any((run.segment, run.position) != place for run in wrong if place not in known)",
        ),
    ),
    *mutants_of(
        "analysis/replicas/comparison",
        "analysis/replicas/test_agreement analysis/replicas/test_holders "
        "analysis/replicas/test_forks_losers analysis/replicas/test_forks_retention",
        ("    if not ranges:\n        return\n    result", "    if ranges + 1:\n        return\n    result"),
        (
            "if len({replica.log_end_offset for replica in replicas}) > 1:",
            "if len({replica.log_end_offset for replica in replicas}) <= 1:",
        ),
        (
            'if difference.kind == "header" and difference.epochs[0] != difference.epochs[1]:',
            'if difference.kind != "header" and difference.epochs[0] != difference.epochs[1]:',
        ),
        (
            'if below and gap.kind == "OFFSET_GAP" and not covering and len(replicas) > 1 and all_read:',
            'if below or gap.kind == "OFFSET_GAP" and not covering and len(replicas) > 1 and all_read:',
        ),
    ),
    *mutants_of(
        "analysis/replicas/verdicts",
        "analysis/replicas/test_verdicts faults/test_faults_segments",
        ("return not _torn(replica, before) and not cut", "return not cut"),
        ("end_offset and beyond and not _torn(replica, segment):", "end_offset and beyond:"),
        (
            'irregularity in replica.course.irregularities if irregularity.kind != "OFFSET_GAP"}',
            'irregularity in replica.course.irregularities if irregularity.kind == "OFFSET_GAP"}',
        ),
        (
            "lost = [damaged for kind in _BYTES_LOST for segment, damaged in damage.get(kind, ()) if segment == bad.segment]",
            "lost = [damaged for kind in _BYTES_LOST for segment, damaged in damage.get(kind, ()) if segment != bad.segment]",
        ),
    ),
    *mutants_of(
        "analysis/replicas/verdicts",
        "faults/test_faults_batches",
        (
            "if stretch in displaced and not _alone_in(replica, run, stretch):",
            "if stretch in displaced or not _alone_in(replica, run, stretch):",
        ),
    ),
    *mutants_of(
        "analysis/replicas/verdicts",
        "faults/test_faults_look_alikes",
        (
            'if reason == "entry_missing" and context.live and checkpoint == lineage[: len(checkpoint)]:',
            'if reason == "entry_missing" or context.live and checkpoint == lineage[: len(checkpoint)]:',
        ),
        (
            "if (batch.segment, batch.position) == stretch or not 0 < number < len(runs) - 1:",
            "if (batch.segment, batch.position) == stretch or not 0 < number >= len(runs) - 1:",
        ),
    ),
    *mutants_of(
        "analysis/transactions/rules",
        "analysis/transactions/test_transactions_rules analysis/transactions/test_transactions_laws",
        ("if marker[MARKER_TYPE] == CONTROL_COMMIT:", "if marker[MARKER_TYPE] != CONTROL_COMMIT:"),
        (
            "if producers[producer, SEEN] != 0 and producers[producer, LAST_EPOCH] > data[EPOCH] and behind:",
            "if producers[producer, SEEN] != 0 and producers[producer, LAST_EPOCH] <= data[EPOCH] and behind:",
        ),
        (
            "if producer_ids[row] < 0 or crcs[row] != computed[row] or not 0 <= bases[row] <= lasts[row]:",
            "if producer_ids[row] < 0 or crcs[row] != computed[row] or not 0 < bases[row] <= lasts[row]:",
        ),
        (
            "take_marker(producers, producer, theirs[row, MARKER : MARKER + MARKER_SIZE + 1], endings, used)",
            "take_marker(producers, producer, theirs[row, MARKER : MARKER + MARKER_SIZE], endings, used)",
        ),
    ),
    *mutants_of(
        "analysis/transactions/index_check",
        "analysis/transactions/test_transactions_index analysis/test_bounds",
        ("if left is not None and index is not None:", "if left is None and index is not None:"),
        (
            "cleaned = self.context.compacted and (checkpoint is None or offset < checkpoint)",
            "cleaned = self.context.compacted and (checkpoint is None or offset >= checkpoint)",
        ),
        ("if not log.is_whole_at(entry.first_offset):", "if log.is_whole_at(entry.first_offset):"),
        (
            "return log.runs.broken_between(log.runs.first_place if ending.first_offset < 0 else ending.begins, ending.ends)",
            "return log.runs.broken_between(log.runs.first_place if ending.first_offset >= 0 else ending.begins, ending.ends)",
        ),
    ),
    *mutants_of(
        "analysis/epochs",
        "analysis/epochs/test_epoch_ends",
        ("if ends[0] != ends[1]:", "if ends[0] == ends[1]:"),
    ),
    *mutants_of(
        "analysis/epochs",
        "analysis/epochs/test_epoch_starts",
        (
            "if not epoch_entries or epoch_entries[-1].leader_epoch < entry.leader_epoch:",
            "if not epoch_entries or epoch_entries[-1].leader_epoch <= entry.leader_epoch:",
        ),
        (
            "return left.leader_epoch < right.leader_epoch and left.start_offset <= right.start_offset",
            "return left.leader_epoch <= right.leader_epoch and left.start_offset <= right.start_offset",
        ),
    ),
    *mutants_of(
        "analysis/placement",
        "analysis/placement/test_key_placement",
        ("if not samples.shape[1]:", "if samples.shape[1]:"),
        ("keyed = samples[KeySampleColumn.KEY_LENGTH] > 0", "keyed = samples[KeySampleColumn.KEY_LENGTH] <= 0"),
        ("if self._columns > 2 * MOST_KEPT:", "if self._columns <= 2 * MOST_KEPT:"),
    ),
    *mutants_of(
        "analysis/replicas/readers",
        "analysis/replicas/test_readers",
        ("if control is not None and control.leader == NO_LEADER:", "if control is not None and control.leader != NO_LEADER:"),
        ("if end >= leader.log_end_offset:", "if end > leader.log_end_offset:"),
        (
            "return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else None",
            "return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= 10 else None",
        ),
    ),
    *mutants_of(
        "analysis/replica",
        "analysis/replica/test_recovery_walk",
        (
            "inside = plain and self._segment <= int(last[0]) and int(last[-1]) - self._segment <= MAX_RELATIVE_OFFSET",
            "inside = plain and self._segment <= int(last[0]) and int(last[-1]) - self._segment > MAX_RELATIVE_OFFSET",
        ),
        (
            "if relative.size and (int(relative.max()) > MAX_RELATIVE_OFFSET or int(relative.min()) < 0):",
            "if relative.size and (int(relative.max()) > MAX_RELATIVE_OFFSET or int(relative.max()) < 0):",
        ),
        (
            "if isinstance(declared, int) and declared < _SMALLEST_LENGTH:",
            "if isinstance(declared, int) or declared < _SMALLEST_LENGTH:",
        ),
    ),
    *mutants_of(
        "engine/task_values",
        "engine/test_slices",
        ("Incomplete(source.name, problem)", "Incomplete(problem, source.name)"),
    ),
]
