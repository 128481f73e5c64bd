"""Eight trees scanned by Spark's workers give the JSON of one local process."""

import pytest
from pyspark.sql import SparkSession

from kafka_forensics.spark import scan
from tests.equivalence.conftest import MakeTree
from tests.equivalence.documents import text
from tests.equivalence.trees import SECTIONS_OF

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("name", SECTIONS_OF)
def test_spark_gives_the_same(spark: SparkSession, make_tree: MakeTree, name: str) -> None:
    tree = make_tree(name, every=False)
    assert text(scan(spark, [str(tree.root)]), tree.root) == text(tree.result, tree.root)
