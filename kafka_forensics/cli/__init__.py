"""The command line: parse options, call an engine, hand rows to an output. typer and rich live here and nowhere else."""
