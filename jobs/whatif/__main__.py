"""`python -m jobs.whatif`."""

import sys

from jobs.whatif import main

sys.exit(main())
