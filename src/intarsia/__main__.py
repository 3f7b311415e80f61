"""`python -m intarsia`: the command line."""

import sys

from intarsia.cli import main

sys.exit(main())
