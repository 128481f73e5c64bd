"""All mutants, by what they change."""

from typing import Final

from tests.mutants import folds, kernels, replication, rules, spark_job
from tests.mutants.mutant import Mutant

AREAS: Final[dict[str, list[Mutant]]] = {
    "replication": replication.MUTANTS,
    "rules": rules.MUTANTS,
    "folds": folds.MUTANTS,
    "kernels": kernels.MUTANTS,
    "spark_job": spark_job.MUTANTS,
}
