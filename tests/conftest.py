"""No example of Hypothesis fails because the machine is slow, and garbage collections skip the collected tests."""

import gc
import os
from contextlib import suppress

import pytest

with suppress(ModuleNotFoundError):  # the environment of a GPU may lack it
    from hypothesis import settings

    if "CI" not in os.environ:  # there, Hypothesis has a profile of its own, also without a deadline
        settings.register_profile("unhurried", deadline=None)
        settings.load_profile("unhurried")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect the tests without garbage collections, and exempt everything they made from later ones: it stays to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="module", autouse=True)
def _exempt_what_the_tests_before_left():
    """Exempt it from garbage collections too: some tests collect after each step."""
    gc.collect()
    gc.freeze()
