"""How many random cases the hypothesis tests run: few and always the same, or many and new ones."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# The same cases in every run, so that a red build means a change and not bad luck.
settings.register_profile(
    "default", derandomize=True, database=None, deadline=None, max_examples=300
)
settings.register_profile(
    "thorough",
    deadline=None,
    max_examples=6000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("thorough" if os.environ.get("TRADEWIND_THOROUGH") == "1" else "default")
