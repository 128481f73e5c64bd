"""Mutants of the scan as Spark's job."""

from tests.mutants.mutant import mutants_of

MUTANTS = [
    *mutants_of(
        "spark/keys",
        "engine/test_spark_job",
        (
            "return context is not None and context.attemptNumber() + 1 < attempts",
            "return context is not None and context.attemptNumber() + 1 >= attempts",
        ),
        ("return 1 if retries is None else int(retries[1])", "return 1 if retries is not None else int(retries[1])"),
    ),
    *mutants_of(
        "spark/job",
        "engine/test_spark_job",
        ("if answer.answer is not None:", "if answer.answer is None:"),
        (
            "tasks = max(1, min(len(others), max(-(-len(others) // sizes.slices_a_task), works)))",
            "tasks = max(1, min(len(others), min(-(-len(others) // sizes.slices_a_task), works)))",
            "how many tasks judge changes no answer, only the time it takes",
        ),
        (
            "return compacted and len(plans) > 1 and sum(plan.bytes for plan in plans) >= sizes.keys_apart_bytes",
            "return compacted and len(plans) > 1 or sum(plan.bytes for plan in plans) >= sizes.keys_apart_bytes",
        ),
        (
            'return listed.repartitionByRange(max(len(works), 1), "work")',
            'return listed.repartitionByRange(min(len(works), 1), "work")',
            "how many tasks fold changes no answer, only the time it takes",
        ),
        ('if ordered.column("slice").to_pylist() != list(numbers):', 'if ordered.column("slice").to_pylist() == list(numbers):'),
        ("if len(held) >= _ROWS_AT_ONCE or size >= _BYTES_AT_ONCE:", "if len(held) < _ROWS_AT_ONCE or size >= _BYTES_AT_ONCE:"),
        ("if reason is None:", "if reason is not None:"),
        (
            "if (missing := re.search(r\"No module named '([\\w.]+)'\", text)) is not None:",
            "if (missing := re.search(r\"No module named '([\\w.]+)'\", text)) is None:",
        ),
        (
            'if (program := re.search(r\'Cannot run program "([^"\\n]+)"\', text)) is not None:',
            'if (program := re.search(r\'Cannot run program "([^"\\n]+)"\', text)) is None:',
        ),
        (
            'problems = [] if version == __version__ else [f"{_OTHER_VERSION} {__version__}, and this is {version}"]',
            'problems = [] if version != __version__ else [f"{_OTHER_VERSION} {__version__}, and this is {version}"]',
        ),
        ("if known is None:", "if known is not None:"),
    ),
]
