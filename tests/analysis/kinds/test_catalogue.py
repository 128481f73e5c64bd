"""Rows of the catalogue: traits, and the sets of kinds that have them."""

from kafka_forensics.analysis.kinds import CATALOGUE, Trait, kinds_with
from kafka_forensics.model.batches import LOG_DAMAGE
from kafka_forensics.model.incidents import Cause


def test_every_trait_is_used_and_no_kind_repeats_one() -> None:
    assert [trait for trait in Trait if not kinds_with(trait)] == []
    assert [kind for kind, row in CATALOGUE.items() if len(set(row.traits)) < len(row.traits)] == []


def test_no_two_traits_have_the_same_kinds() -> None:
    assert len({kinds_with(trait) for trait in Trait}) == len(Trait)


def test_kinds_with_one_of_several_traits() -> None:
    gaps, starts = kinds_with(Trait.LACKS_OFFSETS), kinds_with(Trait.LACKS_LOG_START)
    assert gaps == {"OFFSET_GAP", "SEGMENT_MISSING"}
    assert kinds_with(Trait.LACKS_OFFSETS, Trait.LACKS_LOG_START) == gaps | starts == gaps | {"LOG_HEAD_MISSING"}
    assert kinds_with() == frozenset()


def test_every_cause_is_used() -> None:
    assert {row.cause for row in CATALOGUE.values()} == set(Cause)


def test_damage_of_parsers_is_in_the_catalogue() -> None:
    """Parsers cannot import the catalogue, and name the kinds of damage themselves."""
    assert CATALOGUE.keys() >= LOG_DAMAGE
    assert kinds_with(Trait.IS_TAIL, Trait.HIDES_OFFSETS, Trait.RECORDS_IN_DOUBT) <= LOG_DAMAGE
