"""Examples of Hypothesis are the same in every run and none is too slow; garbage collections skip the collected tests."""

import gc
from contextlib import suppress

import pytest
from corpus_streams import make_corpus

# Failing assertions of shared modules show their values too. The `conftest.py` of a folder may import them next.
pytest.register_assert_rewrite("families", "fuzzing", "live", "recovery", "soak", "store_fleet")

with suppress(ModuleNotFoundError):  # the environment of a GPU may lack it
    from hypothesis import settings

    settings.register_profile("same", deadline=None, derandomize=True)  # the campaigns of the Makefile try others
    settings.load_profile("same")


def pytest_configure(config):
    """Write the corpus, once for all workers."""
    if not hasattr(config, "workerinput"):
        make_corpus.main()


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
