"""`python -m reports`: everything that can be done with the records of a run, without measuring.

The exit status is the run's outcome: 0 accepted, 1 rejected, 3 incomplete, 6 conditional; 4 is a wrong command.
"""

from __future__ import annotations

import sys

from reports.commands import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
