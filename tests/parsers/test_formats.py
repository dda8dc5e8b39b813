"""The format names its parser, and a wrong format is answered with the right one."""

import pytest

from interlock.parsers import parser_for


@pytest.mark.parametrize(
    ("format_", "message"),
    [
        ("hermes", r"^'hermes' is a family, not a format: did you mean Tagged\('hermes'\)\?$"),
        ("deepseek_v3", r"did you mean Tagged\('deepseek_v3'\)\?$"),
        ("qwen3", r"^'qwen3' is a family's reasoning, not a format: did you mean Tagged\(reasoning_parser='qwen3'\)\?$"),
        (
            "chatml",
            r"^unknown format 'chatml': give 'chat', 'harmony', 'responses', 'text', or Tagged\(FAMILY\) with one of ",
        ),
        (None, r"^unknown format 'None'"),
    ],
)
def test_an_unknown_format_is_answered_with_what_could_be_meant(format_, message) -> None:
    with pytest.raises(ValueError, match=message):
        parser_for(format_, {})
