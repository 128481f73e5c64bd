"""Facts as Arrow datasets, for `export`, Spark and notebooks."""
