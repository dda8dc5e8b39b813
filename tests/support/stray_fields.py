"""The fields of an event that neither the installed `openai` package nor `interlock.events` knows."""

from msgspec import convert
from openai import BaseModel

from interlock.events.conversion import to_openai
from interlock.events.json import as_json
from interlock.events.stream import EVENTS


def stray_fields(body):
    """Return the paths of an event's unknown fields, such as `item.content[0].text` (rule R14 in docs/evidence/rules.md).

    `INTENDED` in tests/events/test_types_match_sdk.py has the fields that only `interlock.events` knows.

    Raises:
        UnknownEventError: The package has no event of that name.
        pydantic.ValidationError: The event does not validate (strict mode).
    """
    known = as_json(convert(body, EVENTS[body["type"]]))
    return list(_strays(to_openai(body), to_openai(known), ""))


def _strays(value, known, path):
    """Yield the paths of the unknown fields in a validated value; `known` is the value without fields that we do not know."""
    if isinstance(value, BaseModel):
        yield from (f"{path}{name}" for name in value.model_extra or {} if name not in (known.model_extra or {}))
        for name in type(value).model_fields:
            yield from _strays(getattr(value, name), getattr(known, name), f"{path}{name}.")
    elif isinstance(value, list):
        for place, (entry, other) in enumerate(zip(value, known, strict=True)):
            yield from _strays(entry, other, f"{path.removesuffix('.')}[{place}].")
