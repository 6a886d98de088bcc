"""`python -m jobs.peek`."""

import sys

from jobs.peek import main

sys.exit(main())
