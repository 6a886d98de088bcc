"""`python -m jobs.download`."""

import sys

from jobs.download import main

sys.exit(main())
