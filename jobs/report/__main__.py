"""`python -m jobs.report`."""

import sys

from jobs.report.command import main

sys.exit(main())
