"""Mutants of folds: how what lies in a log is added up."""

from tests.mutants.mutant import mutants_of

MUTANTS = [
    *mutants_of(
        "analysis/producers/producers",
        "analysis/producers/test_producers_rules analysis/test_bounds",
        ("known = producer >= 0 and int(self._table.rows[producer, rules.FIRST_OFFSET]) <= row[4]", "known = producer >= 0"),
        (
            "if together - int(returning.sum()) <= bounds.MAX_PRODUCERS:",
            "if together - int(returning.sum()) > bounds.MAX_PRODUCERS:",
        ),
        ("if used[rules.HEADS_USED] == len(self._heads):", "if used[rules.HEADS_USED] != len(self._heads):"),
        (
            "if (used[rules.BLOCKS_USED] + 1) * rules.WINDOW > len(self._windows):",
            "if (used[rules.BLOCKS_USED] + 1) * rules.WINDOW <= len(self._windows):",
        ),
        ("if context.compacted and kind in _BY_COMPACTION:", "if context.compacted or kind in _BY_COMPACTION:"),
        (
            "known = producer >= 0 and int(self._table.rows[producer, rules.FIRST_OFFSET]) <= row[4]",
            "known = producer >= 0 and int(self._table.rows[producer, rules.FIRST_OFFSET]) > row[4]",
        ),
        ("if kind == rules.EPOCH_REGRESSION:", "if kind != rules.EPOCH_REGRESSION:"),
    ),
    *mutants_of(
        "analysis/producers/rules",
        "analysis/producers/test_producers_rules analysis/producers/test_producers_laws",
        (
            "same = windows[row, FIRST_SEQUENCE] == first and windows[row, LAST_SEQUENCE] == last",
            "same = windows[row, FIRST_SEQUENCE] == first or windows[row, LAST_SEQUENCE] == last",
        ),
        ("kept = min(count, WINDOW)", "kept = max(count, WINDOW)"),
        (
            "if duplicate < 0 and epoch == previous_epoch and ((first - previous_last) & MAX_SEQUENCE) == 1:",
            "if duplicate < 0 and epoch == previous_epoch or ((first - previous_last) & MAX_SEQUENCE) == 1:",
        ),
        ("expected = (int(now[LAST_SEQUENCE]) + 1) & MAX_SEQUENCE", "expected = (int(now[LAST_SEQUENCE])) & MAX_SEQUENCE"),
        ("blocks = (used[BLOCKS_USED] + 1) * WINDOW > windows", "blocks = (used[BLOCKS_USED]) * WINDOW > windows"),
        (
            "if (int(attributes[row]) & CONTROL_MASK) != 0 or first > MAX_SEQUENCE or delta < 0 or delta > MAX_SEQUENCE:",
            "if (int(attributes[row]) & CONTROL_MASK) != 0 or first <= MAX_SEQUENCE or delta < 0 or delta > MAX_SEQUENCE:",
        ),
        ("if producer < 0 or producers[producer, 0] != producer_id:", "if producer >= 0 or producers[producer, 0] != producer_id:"),
        (
            "if (judged & _KIND_MASK) == DUPLICATE or ((judged & _KIND_MASK) != LEGAL and count >= sure):",
            "if (judged & _KIND_MASK) == DUPLICATE or ((judged & _KIND_MASK) != LEGAL and count < sure):",
        ),
        ("if plain == _PLAIN:", "if plain != _PLAIN:"),
    ),
    *mutants_of(
        "analysis/producers/runs",
        "analysis/producers/test_producers_runs analysis/producers/test_producers_rules",
        ("breaks = lost | (base[rows] - 1 != before)", "breaks = lost | (base[rows] - 1 == before)"),
        (
            "    def _begin(self, start_offset: int, position: int) -> None:\n        if self.start_offset < 0:",
            "    def _begin(self, start_offset: int, position: int) -> None:\n        if self.start_offset >= 0:",
        ),
        (
            "elif self._damaged_behind or right._damaged_before or right.start_offset - 1 != self.last_offset:",
            "elif self._damaged_behind or right._damaged_before or right.start_offset - 1 == self.last_offset:",
        ),
        (
            "if any(earlier < place and (later is None or place <= later) for place in places):",
            "if any(earlier < place and (later is not None or place <= later) for place in places):",
        ),
    ),
    *mutants_of(
        "analysis/segments/continuity",
        "analysis/segments/test_continuity analysis/segments/test_continuity_counts",
        ("if placed.base.size == 0:", "if placed.base.size != 0:"),
        (
            "for row in range(int(sound[-1]) + 1 if sound.size else 0, good.size):",
            "for row in range(int(sound[-1]) if sound.size else 0, good.size):",
        ),
        ("elif right.bad_tail is not None:", "elif right.bad_tail is None:"),
        (
            "return run.start_offset < 0 or run.end_offset - 1 - run.segment > MAX_RELATIVE_OFFSET",
            "return run.start_offset >= 0 or run.end_offset - 1 - run.segment > MAX_RELATIVE_OFFSET",
        ),
    ),
    *mutants_of(
        "analysis/epochs",
        "analysis/epochs/test_epochs",
        (
            "beside = self.runs[index + 1] if previous is None else previous",
            "beside = self.runs[index + 1] if previous is not None else previous",
        ),
        (
            "rises_again = len(behind) > 1 and behind[0].batches == 1 and behind[1].leader_epoch >= epoch",
            "rises_again = len(behind) > 1 and behind[0].batches == 1 and behind[1].leader_epoch < epoch",
        ),
        (
            "inside = _from(log_start, [entry for entry in checkpoint if entry.start_offset < log_end])",
            "inside = _from(log_start, [entry for entry in checkpoint if entry.start_offset <= log_end])",
        ),
        (
            "ghosts = [entry for entry in inside if entry.leader_epoch not in epochs and entry.start_offset > log_start]",
            "ghosts = [entry for entry in inside if entry.leader_epoch not in epochs or entry.start_offset > log_start]",
        ),
    ),
    *mutants_of(
        "analysis/segments/framing",
        "analysis/segments/test_framing",
        (
            'if damage.kind in _HIDING and "stored_crc" not in damage.detail and self._segment not in self.hiding:',
            'if damage.kind in _HIDING or "stored_crc" not in damage.detail and self._segment not in self.hiding:',
        ),
        (
            "plain = (columns[BatchColumn.ATTRIBUTES] & COMPRESSION_MASK) == 0",
            "plain = (columns[BatchColumn.ATTRIBUTES] & COMPRESSION_MASK) != 0",
        ),
        (
            "self.broker_timestamp = max(self.broker_timestamp, right.broker_timestamp)",
            "self.broker_timestamp = min(self.broker_timestamp, right.broker_timestamp)",
        ),
    ),
    *mutants_of(
        "analysis/segments/indexes",
        "analysis/segments/test_indexes",
        ("ascending = bool(np.all(values[1:] >= values[:-1]))", "ascending = bool(np.all(values[1:] < values[:-1]))"),
        ("if columns.shape[1] == 0:", "if columns.shape[1] != 0:"),
        ("int(at.max(initial=-1)),", "int(at.min(initial=-1)),"),
        ("beyond = np.flatnonzero(offsets > self.last_offset)", "beyond = np.flatnonzero(offsets <= self.last_offset)"),
    ),
    *mutants_of(
        "analysis/segments/framing",
        "analysis/segments/test_overview",
        (
            "producers=bool((columns[_PRODUCER_ID] >= 0).any())",
            "producers=bool((columns[_PRODUCER_ID] > 0).any())",
        ),
    ),
    *mutants_of(
        "replication/offset_ranges",
        "analysis/test_spans",
        ("elif start < end:", "elif start <= end:"),
        ("while number < len(covers) and covers[number][1] <= start:", "while number < len(covers) or covers[number][1] <= start:"),
        (
            "while ahead < len(covers) and covers[ahead][0] < end:",
            "while ahead < len(covers) and covers[ahead][0] <= end:",
            "equivalent: what is covered from the end of a span on takes nothing of it",
        ),
    ),
    *mutants_of(
        "analysis/bounds",
        "analysis/test_sample",
        ("if len(self._first) < KEPT_AT_EACH_END:", "if len(self._first) <= KEPT_AT_EACH_END:"),
    ),
    *mutants_of(
        "analysis/replica",
        "analysis/replica/test_digests analysis/replicas/test_diff",
        (
            "first, end = min(first, self.first_block), max(end, self.first_block + len(self.sums))",
            "first, end = max(first, self.first_block), max(end, self.first_block + len(self.sums))",
        ),
        ("if end - first <= MAX_BLOCKS:", "if end - first > MAX_BLOCKS:"),
        (
            "low, high = max(first, digests.first_block), min(last + 1, digests.first_block + len(digests.sums))",
            "low, high = max(first, digests.first_block), max(last + 1, digests.first_block + len(digests.sums))",
        ),
    ),
    *mutants_of(
        "analysis/transactions/transactions",
        "analysis/test_bounds",
        ("if together <= bounds.MAX_PRODUCERS:", "if together > bounds.MAX_PRODUCERS:"),
        (
            "closed = at < len(self._known) and int(self._known[at]) == producer_id",
            "closed = at >= len(self._known) and int(self._known[at]) == producer_id",
        ),
        (
            "return self.forgot or closed or self._table.find(producer_id) >= 0",
            "return self.forgot or closed or self._table.find(producer_id) < 0",
        ),
        (
            "rows = np.concatenate((self._ended.rows, leads[leads[:, 8] >= 0]))",
            "rows = np.concatenate((self._ended.rows, leads[leads[:, 8] < 0]))",
        ),
    ),
    *mutants_of(
        "analysis/transactions/transactions",
        "analysis/transactions/test_transactions_rules analysis/transactions/test_transactions_laws",
        ("while done < len(theirs):", "while done <= len(theirs):"),
        (
            "committed = int(used[rules.COMMITTED]) + int((kinds == rules.COMMIT).sum())",
            "committed = int(used[rules.COMMITTED]) + int((kinds != rules.COMMIT).sum())",
        ),
        (
            "return int(min(unstable.min(initial=limit), blocks[:, rules.FIRST_OFFSET].min(initial=limit)))",
            "return int(min(unstable.max(initial=limit), blocks[:, rules.FIRST_OFFSET].min(initial=limit)))",
        ),
        (
            "answer: NDArray[np.int64] = np.where(table[:, rules.MARKED : rules.MARKED + 1] == 0, lead, current)",
            "answer: NDArray[np.int64] = np.where(table[:, rules.MARKED : rules.MARKED] == 0, lead, current)",
        ),
    ),
]
