"""Facts → bytes: bundles, small files, and batches for salvage, tests, simulations and benchmarks."""
