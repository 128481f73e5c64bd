"""By which rule the keys of a topic came into its partitions."""
