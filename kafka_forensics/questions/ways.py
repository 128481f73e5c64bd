"""Two ways out of a loss: to roll back to the copy that holds most, or to keep the leader and produce again what it lacks."""

from dataclasses import dataclass

from kafka_forensics.questions.plan import Planned
from kafka_forensics.replication.planner import Candidate


@dataclass(frozen=True, slots=True)
class Ways:
    """The two ways for one partition, and which is better: `A`, `B`, `keep` (both are the same, and it loses something), `either`
    (nothing is lost), `unsure` (not all that there is was seen, or nobody says who leads), or `nobody` (can lead)."""

    planned: Planned
    rolled_back: Candidate | None
    """A: the election that loses least."""
    kept: Candidate | None
    """B: who leads now, or would by an ordinary start; None: nobody does, or it cannot be told."""

    @property
    def better(self) -> str:
        """By loss first, then by risk: what is produced again comes later, at other offsets, and some readers read it twice; what a
        forced election cuts is gone."""
        best, kept = self.rolled_back, self.kept
        if best is None:
            return "nobody"
        if not best.losses and (kept is None or not kept.losses):
            return "either" if self.planned.plan.at_most_is_bound else "unsure"
        if kept is None:
            return "unsure" if best.election == "unknown" else "A"
        if best.broker == kept.broker:
            return "keep"
        return "B" if best.losses else "A"

    @property
    def chosen(self) -> Candidate | None:
        """The election of the better way."""
        return self.kept if self.is_b_told else self.rolled_back

    @property
    def is_a_told(self) -> bool:
        """Whether the steps of A are worth telling: it is better, or somebody may decide for it."""
        is_a_choice = self.better == "unsure" and self.rolled_back is not None and bool(self.rolled_back.losses)
        return self.better in ("A", "B") or is_a_choice

    @property
    def is_b_told(self) -> bool:
        """Whether those of B are."""
        return self.better in ("B", "keep")


def ways_of(planned: Planned) -> Ways:
    """The two ways for a partition."""
    kept, ordinary_leaders = planned.leading, planned.plan.ordinary
    if kept is None and len(ordinary_leaders) == 1:
        ordinary = planned.candidate(ordinary_leaders[0])
        kept = None if ordinary is None or ordinary.election == "unknown" else ordinary
    return Ways(planned, planned.recommended, kept)
