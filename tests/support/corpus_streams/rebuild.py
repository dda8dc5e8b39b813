"""Rebuild streams from skeletons of what real services sent: the same events and fields, with words of our own.

A skeleton keeps the names of events and fields, types, and the values of `type`, `status`, `role`, `phase` and indices; texts,
ids and numbers are gone (`"<text>"`), and runs of equal events are folded (`times`). Run it in
tests/support with the folder of the skeletons: `python -m corpus_streams.rebuild FOLDER`. It writes
`tests/corpus/responses.json`, which is kept; nothing of the code under test has a hand in it.
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).parents[2] / "corpus"
BLANKS = {"<text>": "words of our own", "<empty text>": "", "<number>": 1, "<bool>": False}
"""What stands in a skeleton for what was not kept, and what is put there."""
RUN = 5
"""How many events of a run are rebuilt at most."""
WORDS = ("The ", "signal ", "shows ", "clear", ", ", "the ", "points ", "are ", "set", ". ", "Go ", "é", "!")
PREFIXES = {
    "message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc", "mcp_call": "mcp",
    "mcp_list_tools": "mcpl", "mcp_approval_request": "mcpr", "code_interpreter_call": "ci", "web_search_call": "ws",
    "file_search_call": "fs", "image_generation_call": "ig", "apply_patch_call": "apc", "local_shell_call": "lsh",
    "shell_call": "sh", "shell_call_output": "sho", "tool_search_call": "tsc", "tool_search_output": "tso",
    "program": "prg", "program_output": "pro", "compaction": "cmp",
}  # fmt: skip
FOREIGN = ("xai", "deepseek")
ROTATING = "id-rotation"
NULLS = frozenset(
    {
        *("error", "incomplete_details", "instructions", "max_output_tokens", "max_tool_calls", "previous_response_id"),
        *("prompt_cache_key", "prompt_cache_retention", "safety_identifier", "user", "conversation", "moderation"),
        *("billing", "debug_output"),
    }
)
VALUES: dict[str, Any] = {
    "background": False, "completed_at": None, "created_at": 1_700_000_000, "frequency_penalty": 0.0, "metadata": {},
    "model": "a-model", "object": "response", "parallel_tool_calls": True, "presence_penalty": 0.0,
    "reasoning": {"effort": None, "summary": None}, "service_tier": "default", "store": True, "temperature": 1.0,
    "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [], "top_logprobs": 0, "top_p": 1.0,
    "truncation": "disabled",
    "tool_usage": {
        "image_gen": {
            "input_tokens": 0, "input_tokens_details": {"image_tokens": 0, "text_tokens": 0},
            "output_tokens": 0, "output_tokens_details": {"image_tokens": 0, "text_tokens": 0}, "total_tokens": 0,
        },
        "web_search": {"num_requests": 0},
    },
}  # fmt: skip
CHOICES = {"background": "opaque", "output_format": "png", "quality": "high", "size": "1024x1024"}
"""Fields of an image whose text is one of a few."""
USAGE = {
    "input_tokens": 11,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 3},
    "total_tokens": 18,
}
OWN_TEXT = {
    "function_call_arguments": ("arguments",),
    "mcp_call_arguments": ("arguments",),
    "custom_tool_call_input": ("input",),
    "code_interpreter_call_code": ("code",),
    "apply_patch_call_operation_diff": ("operation", "diff"),
}
"""Where an item shows the text of events of a name."""


class Rebuilding:
    """One file: the words it chooses, and what it has said of the stream at hand."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.words = itertools.cycle(WORDS)
        self.count = itertools.count(1)
        self.responses = 0
        self.begin()

    def begin(self) -> None:
        """Begin a stream."""
        self.responses += 1
        self.number = 0
        self.items: dict[int, dict[str, Any]] = {}
        self.about: dict[int, dict[str, Any]] = {}

    def word(self) -> str:
        """Choose a piece of text."""
        return next(self.words)

    def event(self, skeleton: dict[str, Any]) -> list[dict[str, Any]]:
        """Rebuild an event, or the run of events that it stands for."""
        name = skeleton["event"]
        if (name == "response.created" and self.items | self.about) or (name == "response.created" and self.number):
            self.begin()
        times = min(skeleton.get("times", 1), RUN)
        return [self.one(name, {k: v for k, v in skeleton.items() if k not in {"event", "times"}}) for _ in range(times)]

    def one(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        """Rebuild one event."""
        new = {"type": name, **{k: v for k, v in body.items() if k not in {"item", "response"}}}
        if "sequence_number" in body:
            new["sequence_number"] = self.number
        self.number += 1
        if "response" in body:
            new["response"] = self.response(name, body["response"])
        elif "item" in body:
            new["item"] = self.item(name, body["output_index"], body["item"])
        elif "output_index" in body:
            self.of_item(name, new)
        return self.filled(new)

    def response(self, name: str, skeleton: dict[str, Any]) -> dict[str, Any]:
        """Rebuild a response object."""
        ended = name in {"response.completed", "response.incomplete", "response.failed"}
        response = {field: None if field in NULLS else VALUES.get(field, "x") for field in skeleton["fields"]}
        response |= {"id": f"resp_{self.responses}{self.rotation()}", "status": skeleton["status"], "output": []}
        if "usage" in response:
            response["usage"] = USAGE if skeleton["status"] == "completed" else None
        if skeleton["status"] == "failed":
            response["error"] = {"code": "insufficient_quota", "message": "The quota is used up."}
        if ended and skeleton["output"]:
            shapes = {json.dumps([one.get("type"), one.get("status")]): one for one in skeleton["output"]}
            for item in self.items.values():
                shape = shapes.get(json.dumps([item["type"], item.get("status")]))
                response["output"].append(self.final_item(item, shape or item))
        return response

    def final_item(self, item: dict[str, Any], shape: dict[str, Any]) -> dict[str, Any]:
        """Show an item once more in the terminal response: with its fields there, and its own encryption and id."""
        copy = {field: item.get(field, shape[field]) for field in shape}
        if copy.get("encrypted_content"):
            copy["encrypted_content"] += "-again"
        if self.rotation():
            copy["id"] = f"{item['id']}-end"
        return copy

    def rotation(self) -> str:
        """Give what makes every id another, for the service that rotates them."""
        return f"-{next(self.count)}" if ROTATING in self.name else ""

    def identity(self, kind: str, index: int) -> str:
        """Make the id of an item."""
        prefix = "" if self.name.startswith(FOREIGN) else f"{PREFIXES.get(kind, kind)}_"
        return f"{prefix}{self.responses}{index}ab"

    def item(self, name: str, index: int, skeleton: dict[str, Any]) -> dict[str, Any]:
        """Rebuild an item as `added` or `done` show it."""
        if name.endswith(".added"):
            self.about[index] = {
                "id": self.identity(skeleton["type"], index),
                "call_id": None if skeleton.get("call_id", "") is None else f"call_{self.responses}{index}",
                "name": "look_up", "server_label": "docs", "container_id": "cntr_1", "fingerprint": "f1",
                "approval_request_id": skeleton.get("approval_request_id") and "mcpr_1", "namespace": "signals",
                "code": "print(1)" if skeleton["type"] == "program" else None,
                "encrypted_content": f"encrypted-{index}",
                "parts": {}, "text": "",
            }  # fmt: skip
        about = self.about[index]
        new = dict(skeleton)
        for field in ("id", "call_id", "name", "server_label", "container_id", "fingerprint", "namespace", "approval_request_id"):
            if field in new and (new[field] is not None):
                new[field] = about[field]
        new["id"] += self.rotation()
        if new.get("encrypted_content"):
            new["encrypted_content"] = about["encrypted_content"] + self.rotation()
        if name.endswith(".done"):
            self.finish(new, about)
            new = self.filled(new)
            self.items[index] = new
        return new

    def finish(self, item: dict[str, Any], about: dict[str, Any]) -> None:
        """Put the texts of an item into it."""
        for name in ("content", "summary"):
            if item.get(name):
                item[name] = [about["parts"][key] for key in sorted(about["parts"]) if key[0] == name]
        for way in about.get("ways", ()):
            holder = item
            for step in way[:-1]:
                holder[step] = dict(holder[step])
                holder = holder[step]
            holder[way[-1]] = about["text"]
        if "commands" in about:
            item["action"] = {**item["action"], "commands": about["commands"]}
        if item["type"] == "program":
            item["code"] = "print(1)"
        if item["type"] == "mcp_approval_request":
            item["arguments"] = "{}"

    def of_item(self, name: str, new: dict[str, Any]) -> None:
        """Rebuild what an event says of its item."""
        about = self.about[new["output_index"]]
        if "item_id" in new:
            new["item_id"] = about["id"] + self.rotation()
        subject, _, verb = name.removeprefix("response.").rpartition(".")
        if subject == "shell_call_command":
            self.of_command(verb, new, about)
            return
        if subject in OWN_TEXT:
            about.setdefault("ways", []).append(OWN_TEXT[subject])
            field = OWN_TEXT[subject][-1]
            if verb == "delta":
                new["delta"] = self.word()
                about["text"] += new["delta"]
            else:
                about["text"] = about["text"] or '{"city": "Ulm"}'
                new[field] = about["text"]
            return
        if "content_index" in new or "summary_index" in new:
            self.of_part(subject, verb, new, about)

    def of_command(self, verb: str, new: dict[str, Any], about: dict[str, Any]) -> None:
        """Rebuild what an event says of a command of a shell call."""
        commands = about.setdefault("commands", [])
        if verb == "added":
            commands.append("")
        elif verb == "delta":
            new["delta"] = self.word()
            commands[-1] += new["delta"]
        else:
            new["command"] = commands[-1]

    def of_part(self, subject: str, verb: str, new: dict[str, Any], about: dict[str, Any]) -> None:
        """Rebuild what an event says of a part."""
        key = ("content", new["content_index"]) if "content_index" in new else ("summary", new["summary_index"])
        part = about["parts"].get(key)
        if subject in {"content_part", "reasoning_summary_part"}:
            if verb == "added":
                about["parts"][key] = self.filled(new["part"])
            else:
                fields = {field: part.get(field, value) for field, value in new["part"].items()}
                about["parts"][key] = self.filled(fields)
                unlisted = {"logprobs": []} if new["part"].get("logprobs") == [] else {}
                new["part"] = about["parts"][key] | unlisted
        elif verb == "delta":
            new["delta"] = self.word()
            if new.get("logprobs"):
                new["logprobs"] = [logprob(new["delta"])]
                part["logprobs"] = [*part["logprobs"], *new["logprobs"]]
            part["text"] += new["delta"]
        elif verb == "done":
            new["text"] = part["text"]
            if new.get("logprobs"):
                new["logprobs"] = part["logprobs"]
        else:
            new["annotation_index"] = len(part["annotations"])
            new["annotation"] = {**self.filled(new["annotation"])}
            part["annotations"] = [*part["annotations"], new["annotation"]]

    def filled(self, value: Any) -> Any:
        """Put words and numbers where the skeleton has none."""
        match value:
            case str():
                return BLANKS.get(value, value)
            case dict():
                return {
                    name: CHOICES[name] if inner == "<text>" and name in CHOICES else self.filled(inner)
                    for name, inner in value.items()
                }
            case list():
                return [self.filled(inner) for inner in value]
            case _:
                return value


def logprob(token: str) -> dict[str, Any]:
    """Give the log probability of a token."""
    return {"token": token, "logprob": -0.25, "bytes": list(token.encode()), "top_logprobs": []}


def rebuilt(path: Path) -> str:
    """Write the stream, or the streams one after another, of a skeleton as a member of an object."""
    rebuilding = Rebuilding(path.stem)
    bodies = [body for line in path.read_text().splitlines() for body in rebuilding.event(json.loads(line))]
    lines = ",\n".join(f"  {json.dumps(body, ensure_ascii=False)}" for body in bodies)
    return f"{json.dumps(path.stem)}: [\n{lines}\n]"


def main() -> None:
    """Write every stream."""
    streams = ",\n".join(rebuilt(path) for path in sorted(Path(sys.argv[1]).glob("*.jsonl")))
    (CORPUS / "responses.json").write_text(f"{{\n{streams}\n}}\n", "utf-8")


if __name__ == "__main__":
    main()
