"""Facts → bytes, through `parsers.spec`: for tests, simulations, benches and salvage."""
