"""Makes incidents on real brokers and replaces their archives in `tests/golden/incidents`: `python -m lab.incidents [NAME…]`.

`python -m lab.incidents --start NAME DIR` starts nothing: it unpacks the log directories of an incident into DIR, writes settings
and Kafka's scripts beside them, and prints the commands that start the nodes.
"""

import argparse
import signal
from pathlib import Path

from lab.errors import LabError
from lab.incidents import INCIDENTS, make, prepare
from lab.make_samples import on_terminate


def main() -> None:
    """Make the incidents on the command line (default: all) and print the sizes of their archives, or unpack one."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m lab.incidents", description=__doc__, formatter_class=formatter)
    parser.add_argument("name", nargs="*", help=f"{', '.join(INCIDENTS)} (default: all)")
    parser.add_argument("--start", nargs=2, metavar=("NAME", "DIR"), help="prepare a start of the nodes in DIR")
    arguments = parser.parse_args()
    if unknown := {*arguments.name, *(arguments.start or [])[:1]} - set(INCIDENTS):
        parser.error(f"no such incident: {', '.join(sorted(unknown))}")
    if arguments.start:
        name, directory = arguments.start
        try:
            print(prepare(name, Path(directory)))
        except LabError as error:
            parser.error(str(error))
        return
    signal.signal(signal.SIGTERM, on_terminate)
    for name in arguments.name or INCIDENTS:
        print(f"{name}: {make(name).stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    main()
