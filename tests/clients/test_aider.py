"""aider as it comes, without a terminal: it edits a file with the text of a message, over Chat Completions and over Messages."""

import pytest
from clients import hosts
from clients.running import ROOT, run

from interlock.parsers.families.reference_encoders import WrittenItem

AIDER = str(ROOT / ".venv-aider" / "bin" / "aider")
QUIET = ["--yes-always", "--no-git", "--no-check-update", "--no-show-model-warnings", "--analytics-disable", "--no-pretty"]
EDIT = """The greeting is mended.

notes.txt
```
<<<<<<< SEARCH
helo
=======
hello
>>>>>>> REPLACE
```
"""
VARIABLES = {
    "openai": lambda url: {"OPENAI_API_BASE": f"{url}/v1", "OPENAI_API_KEY": "none"},
    "anthropic": lambda url: {"ANTHROPIC_API_BASE": url, "ANTHROPIC_API_KEY": "none"},
}
"""The environment variables for each of aider's providers."""


@pytest.mark.parametrize("provider", VARIABLES)
def test_aider_edits_a_file(tmp_path, provider):
    notes = tmp_path / "notes.txt"
    notes.write_text("helo\n")
    turn = [WrittenItem("reasoning", "A letter is missing."), WrittenItem("message", EDIT)]
    with hosts.standalone([turn]) as played:
        command = [AIDER, *QUIET, "--model", f"{provider}/tiny", "--edit-format", "diff", "--message", "Mend it.", "notes.txt"]
        ran = run(command, tmp_path, HOME=str(tmp_path), LITELLM_LOCAL_MODEL_COST_MAP="True", **VARIABLES[provider](played.url))
        prompts = played.prompts()
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert notes.read_text() == "hello\n", ran.stdout + ran.stderr
    assert "A letter is missing." in ran.stdout
    assert "Applied edit to notes.txt" in ran.stdout
    assert ["Mend it." in prompt and "helo" in prompt for prompt in prompts] == [True]
