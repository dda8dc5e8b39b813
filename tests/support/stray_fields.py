"""The fields of an event that the installed `openai` package does not know."""

from openai import BaseModel

from interlock.events.conversion import to_openai

IN_OTHER_RELEASES = frozenset(
    {
        ("response.function_call_arguments.done", "name"),  # required by 2.25, unknown to 3.51
        ("input_tokens_details", "cache_write_tokens"),  # required by 3.51, unknown to 2.25
        ("custom_tool_call", "status"),  # sent by the API, typed by no release
        ("logprobs", "bytes"),  # sent by the API, typed by no release in the events about text
        ("top_logprobs", "bytes"),
        # Required of a response by the Open Responses specification.
        ("response", "background"),
        ("response", "completed_at"),
        ("response", "frequency_penalty"),
        ("response", "max_tool_calls"),
        ("response", "metadata"),
        ("response", "presence_penalty"),
        ("response", "store"),
        # Of newer releases.
        ("mcp_list_tools", "error"),
        ("image_generation_call", "error"),
        ("response.image_generation_call.partial_image", "background"),
        ("response.image_generation_call.partial_image", "output_format"),
        ("response.image_generation_call.partial_image", "quality"),
        ("response.image_generation_call.partial_image", "size"),
        ("response.reasoning_summary_part.done", "status"),
    }
)
"""Valid fields that the installed package may lack, as pairs of an object and a field name.

The object is named by its `type`, or else by the field that contains it.
"""


def stray_fields(body):
    """Return the paths of an event's unknown fields, such as `item.content[0].text` (rule R14 in docs/evidence/rules.md).

    Raises:
        UnknownEventError: The package has no event of that name.
        pydantic.ValidationError: The event does not validate (strict mode).
    """
    return list(_strays(to_openai(body), "", ""))


def _strays(value, path, held_by):
    """Yield the paths of the unknown fields in a validated value."""
    if isinstance(value, BaseModel):
        kind = str(getattr(value, "type", held_by))
        for name in value.model_extra or {}:
            if (kind, name) not in IN_OTHER_RELEASES:
                yield f"{path}{name}"
        for name in type(value).model_fields:
            yield from _strays(getattr(value, name), f"{path}{name}.", name)
    elif isinstance(value, list):
        for place, entry in enumerate(value):
            yield from _strays(entry, f"{path.removesuffix('.')}[{place}].", held_by)
