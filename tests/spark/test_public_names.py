"""What the package offers stays what it is, whatever is imported."""

import pkgutil
from types import FunctionType

from kafka_forensics import spark


def test_no_module_takes_the_name_of_a_function() -> None:
    modules = {module.name for module in pkgutil.iter_modules(spark.__path__)}
    assert modules.isdisjoint(spark.__all__)
    assert all(isinstance(getattr(spark, name), FunctionType) for name in spark.__all__)
