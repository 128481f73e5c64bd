"""`python -m kafka_forensics`: the same as the console script."""

from kafka_forensics.cli.main import run

if __name__ == "__main__":
    run()
