"""`python -m tradewind.cli` runs the executable `tradewind`."""

from __future__ import annotations

import sys

from tradewind.cli.cli_main import main

sys.exit(main())
