"""Tests that loop over their cases, for tables whose cases take longer to collect than to run."""

from functools import update_wrapper
from inspect import signature


def for_each(names, values, ids=None):
    """Run a test for each value, as `pytest.mark.parametrize` does, but as one test.

    All cases run, whichever fail; the error of a case has a note that names it. They share the fixtures of the test.
    """
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
    cases = [_case(names, value, ids(value) if callable(ids) else ids and [*ids][place]) for place, value in enumerate(values)]
    assert cases

    def decorate(test):
        def run(**fixtures):
            failures = []
            for name, arguments in cases:
                try:
                    test(**arguments, **fixtures)
                except Exception as error:  # noqa: BLE001 - as pytest does
                    error.add_note(f"the case: {name}")
                    failures.append(error)
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(cases)} cases fail", failures)

        parameters = signature(test).parameters.values()
        update_wrapper(run, test).__signature__ = signature(test).replace(
            parameters=[one for one in parameters if one.name not in names]
        )
        del run.__wrapped__
        return run

    return decorate


def _case(names, value, name):
    """Return the name of a case and its arguments; a value of `pytest.param` may have a name, but no marks."""
    if hasattr(value, "marks"):
        assert not value.marks
        name, value = value.id or name, value.values if len(names) > 1 else value.values[0]
    arguments = dict(zip(names, value if len(names) > 1 else [value], strict=True))
    return name or repr(value)[:200], arguments
