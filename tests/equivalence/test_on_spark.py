"""Eight trees, and a sample with a remote store, scanned by Spark's workers give the JSON of one local process."""

import pytest
from pyspark.sql import SparkSession

import kafka_forensics as kf
from kafka_forensics.spark import scan
from tests.equivalence.conftest import MakeTree
from tests.equivalence.documents import text
from tests.equivalence.trees import SECTIONS_OF
from tests.support.places import SAMPLES

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("name", SECTIONS_OF)
def test_spark_gives_the_same(spark: SparkSession, make_tree: MakeTree, name: str) -> None:
    tree = make_tree(name, every=False)
    assert text(scan(spark, [str(tree.root)]), tree.root) == text(tree.result, tree.root)


def test_spark_gives_the_same_about_a_remote_store(spark: SparkSession) -> None:
    tree = SAMPLES / "tiered"
    result = kf.scan(str(tree))
    assert "REMOTE_SEGMENT_UNREADABLE" in {finding.kind for finding in result.findings}
    assert text(scan(spark, [str(tree)]), tree) == text(result, tree)
