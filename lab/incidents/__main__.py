"""Makes incidents on real brokers and replaces their archives in `tests/golden/incidents`: `python -m lab.incidents [NAME…]`."""

import argparse
import signal

from lab.incidents import INCIDENTS, make
from lab.make_samples import on_terminate


def main() -> None:
    """Make the incidents on the command line (default: all), and print the sizes of their archives."""
    parser = argparse.ArgumentParser(prog="python -m lab.incidents", description=__doc__)
    parser.add_argument("name", nargs="*", help=f"{', '.join(INCIDENTS)} (default: all)")
    arguments = parser.parse_args()
    if unknown := set(arguments.name) - set(INCIDENTS):
        parser.error(f"no such incident: {', '.join(sorted(unknown))}")
    signal.signal(signal.SIGTERM, on_terminate)
    for name in arguments.name or INCIDENTS:
        print(f"{name}: {make(name).stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    main()
