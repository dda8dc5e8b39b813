"""No example of Hypothesis fails because the machine is slow; in CI, its own profile says the same."""

import os
from contextlib import suppress

with suppress(ModuleNotFoundError):  # the environment of a GPU may lack it
    from hypothesis import settings

    if "CI" not in os.environ:
        settings.register_profile("unhurried", deadline=None)
        settings.load_profile("unhurried")
