"""`python -m reports`: everything that can be done with the records of a run, without measuring.

The exit status is the run's outcome: 0 accepted, 1 rejected, 3 incomplete, 6 conditional; 4 is a wrong command.
"""

from __future__ import annotations

import sys
import traceback

from reports.commands import INCOMPLETE, main


def guarded() -> int:
    """The command's status; INCOMPLETE where it crashes, as Python's own 1 would say that a cluster is rejected."""
    try:
        return main(sys.argv[1:])
    except Exception:  # noqa: BLE001 - the process ends here, with its traceback
        traceback.print_exc()
        return INCOMPLETE


if __name__ == "__main__":
    sys.exit(guarded())
