"""Eight trees scanned by Spark's workers give the JSON of one process here."""

import pytest
from pyspark.sql import SparkSession

from kafka_forensics.spark import scan
from tests.equivalence.conftest import Made
from tests.equivalence.documents import text
from tests.equivalence.trees import SECTIONS_OF

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("name", SECTIONS_OF)
def test_spark(spark: SparkSession, made: Made, name: str) -> None:
    tree = made(name, every=False)
    assert text(scan(spark, [str(tree.root)]), tree.root) == text(tree.answer, tree.root)
