"""The rules of a stream, the consequences of breaking them, the departures that break no client, and findings.

A finding without a deviation is an error. The deviations include departures of OpenAI's service from its own documentation. The
tests in `tests/clients` play a stream with each deviation that clients can meet to every client. docs/evidence/rules.md contains
these sentences, and `interlock check --explain` prints them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, TypeVar

from attrs import field, fields, frozen
from msgspec import convert

R = TypeVar("R", "Rule", "Deviation")

Category: TypeAlias = Literal["order", "content"]
"""What a rule is about: the order of events, or their content."""
Severity: TypeAlias = Literal["error", "deviation", "not_judged"]
"""How serious a finding is.

`error`: the published contract or a known client breaks. `deviation`: breaks a rule, but every tested client copes,
unless its row names one, because a well-known service sends it.
`not_judged`: an unknown event or kind of item, which is checked only against the rules for all events.
"""


@frozen
class Rule:
    """A rule of a stream.

    Args:
        number: `R` and a number, such as `R4` or `R4a`; `M` and a number for Messages; `C` and a number for Chat Completions.
        name: One or two words.
        category: What it is about.
        says: The text of the rule.
        breaks: The consequence of breaking it; empty for a rule that one stream cannot show.
    """

    number: str
    name: str
    category: Category
    says: str
    breaks: str = ""


_RULES: Final = """
R1 | opening | order
| A stream begins with `response.created` and `response.in_progress`, each exactly once; a background response may have
  `response.queued` between them.
| Clients build the response object from `response.created`; the `openai` package raises without it.

R2 | numbering | order
| The `sequence_number` of the first event is 0, and that of each later event is one higher. Only the event itself has this
  field.
| A client that resumes a response after the last number that it received misses events or repeats them.

R3 | ending | order
| The stream ends with exactly one terminal event, whose name matches the response's status (`cancelled` ends with
  `response.incomplete`). Over HTTP, `data: [DONE]` follows and the body ends.
| A client waits forever, or cannot tell a complete answer from a lost connection.

R4 | failure | order
| If the response fails after its first event, the open items end first; then `response.failed` gives the reason in
  `error.code` and `error.message`.
| An open item seems to run forever, and a client cannot handle a failure without a reason.

R4a | silence | order
| After `response.created` and before the terminal event, `keepalive` may come between any two events. It has a `type` and a
  `sequence_number` alone, which R2 counts, and belongs to no item. It is never stored, so a stream of stored events, which a
  client can resume, has server-sent comments instead. In the dialect of Open Responses, every stream has comments instead.
| A client has no response yet that the event could keep alive.

R5 | framing | content
| Each event is one server-sent event: an `event` line with the same type as the body, one `data` line, line feeds only, and
  no `id`. The media type is `text/event-stream`.
| Clients lose every event that they cannot decode as a server-sent event or as JSON.

R6 | index | order
| The `output_index` of the first item is 0, and each item that is added later has the next number.
| Clients keep items in a list by this index, so they lose items or mix them up; the `openai` package raises.

R7 | bracket | order
| An item has exactly one `response.output_item.added` and one `response.output_item.done` event, with the same id, `call_id`,
  `name` and index. All its other events come between these two. Each id and each `call_id` belongs to one item (an output has
  that of its call), an id begins with the prefix of its kind, such as `msg_`, and the response keeps its own.
| A client attributes events with another id to the wrong item, or raises.

R8 | parts | order
| Parts are counted from 0. Each part is added, receives its text, and is done before the next one begins.
| Clients append text to the wrong part; the `openai` package raises if no part has the `content_index` of a delta.

R9 | text | content
| The deltas of a text, joined, equal the text in its `done` event, in the part, in the item and in the terminal response,
  character for character.
| A client that shows deltas and a client that shows the final text show different answers.

R10 | lifecycle | order
| The events of an item follow the lifecycle of its kind, and only one item is written at a time.
| The client's own state of the item becomes wrong: a call never starts, or a text never ends.

R11 | truth | order
| If the server runs a tool, the event for its start comes when the tool starts, the event for its completion only after it
  has succeeded, and the item contains the result or the failure.
| A client shows that a tool ran when it did not, or finds no result where one was announced.

R12 | cut | order
| An item whose text is cut off is `incomplete` and is the last item, and the response is not `completed`. An `incomplete`
  response gives the reason in `incomplete_details`, or null if the model left a call unfinished.
| A client mistakes half an answer, or half of a call's arguments, for the whole.

R13 | final | content
| The terminal response contains all items in order, exactly as their `done` events had them, and the token usage, which is
  null only if nobody counted the tokens.
| Clients store the terminal response, so the next request lacks any content that is missing there.

R14 | fields | content
| Every event, item and part has the required fields of its type, no field that belongs to another level (such as
  `output_index` in an item), and no null where the API omits the field.
| Typed clients raise on a missing field or a wrong type, or read a wrong value.

R15 | logprobs | content
| The events `response.output_text.delta` and `.done` have `logprobs`: an empty list, unless the request asks for log
  probabilities. Then the tokens in the list, joined, are the text.
| A client that asks for log probabilities attributes them to the wrong tokens.

R16 | chunking | content
| Items and texts do not depend on how the model's tokens are divided into chunks.

R17 | totality | content
| Any sequence of tokens becomes a legal stream, which contains no control token, and all text that the model wrote, except
  what R18 and R20 leave out.

R18 | blank items | content
| A call without arguments is an item, whose arguments are `{}` if the model wrote none, a blank or `null`. Reasoning whose
  content is encrypted or withheld is an item. A message or reasoning of only white space is left out: leading white space
  waits until other text follows.
| No client breaks; the rule is for the streams that Interlock writes.

R19 | streamed equals whole | content
| A response that is not streamed equals the response that the terminal event of its stream would contain.
  `interlock check --whole` compares the two.

R20 | families | content
| Some models write calls and reasoning as text between markers. The items and the markers together contain exactly what the
  model wrote, except blank text (R18), what may be framing where a call is cut and, if the request forbids parallel calls, all
  calls of a turn after the first. Until the name of a call is complete, its marker may still turn out to be text.
"""


def read_rows(text: str, kind: type[R]) -> dict[str, R]:
    """Return the objects in a text, by their first field.

    A bar separates the fields of an object. A line that begins with a bar or a space continues the object of the line before.
    """
    rows = ([" ".join(cell.split()) for cell in row.split("|")] for row in re.split(r"\n+(?![| ])", text.strip()))
    return {row[0]: convert(dict(zip((each.name for each in fields(kind)), row, strict=False)), kind) for row in rows}


RULES: Final[Mapping[str, Rule]] = read_rows(_RULES, Rule)
"""Every rule by its number."""


@frozen
class Deviation:
    """A departure from a rule that is not an error.

    Args:
        name: The name in findings.
        rule: The broken rule.
        senders: The services that send it; a dash if none is known.
        what: The departure.
        why: Why it is not an error.
        severity: `deviation`, or `not_judged` for unknown events and items.
        subjects: The kinds of items, or the events, of which alone it is a deviation, separated by commas; empty for any.
    """

    name: str
    rule: str
    senders: str
    what: str
    why: str
    severity: Severity = "deviation"
    subjects: str = ""

    def covers(self, subject: str) -> bool:
        """Return whether a subject is one of `subjects`."""
        return subject in self.subjects.split(", ")


_DEVIATIONS: Final = """
resumed | R1 | services that resume a stream
| the stream begins in the middle, with the number 2 or a higher one
| a resumed stream begins in the middle; `--from N` declares this

unnumbered | R2 | older services
| no event has a `sequence_number`
| only clients that resume a response read the numbers

no-done-marker | R3 | every service tested
| `data: [DONE]` does not follow the terminal event
| clients stop at the terminal event; Open Responses requires the marker, so it is an error in that dialect

another-stream | R3 | recorded files
| another response begins after the terminal event
| recorders write several streams into one file; each is judged by itself

error-is-last | R3 | services whose generation fails (recorded)
| an `error` event ends the stream, and no terminal event follows
| clients raise at the `error` event and stop reading

late-rate-limits | R3 | OpenAI
| `response.rate_limits.updated` comes after the terminal event
| the answer is complete, and OpenAI's own service sends the event there; openai-node and LiteLLM fail on it
| deviation | response.rate_limits.updated

no-event-line | R5 | —
| messages have no `event:` line
| clients read the type from the data; only a browser's `EventSource` needs the line

framing | R5 | —
| lines end with CR LF, messages have ids or several lines of data, or a file lacks its last empty line
| decoders of server-sent events read it; only recorders drop the last line

bare-lines | R5 | recorded files
| a file has one JSON object per line instead of server-sent events
| recorders keep only the data; the framing is then not judged

foreign-id | R7 | services other than OpenAI
| an id lacks the prefix that OpenAI uses for its kind
| clients compare ids and never parse them

unread-at-added | R7 | OpenAI
| a `tool_search_call` has different call ids in `added` and `done`
| clients read it from `done`
| deviation | tool_search_call.call_id

never-done | R7 | OpenAI
| an `mcp_list_tools` item has no `done` event after its `completed` or `failed` event
| clients read the tools from the terminal response, or not at all

text-at-once | R9 | OpenAI
| an MCP call's arguments come in their `done` event without a delta
| clients read these arguments from `done`, but other texts from deltas
| deviation | mcp_call

begins-whole | R9 | —
| an item is added with its complete text, and no delta follows
| clients read the item from `added` or `done`

part-at-added | R9 | Vercel
| an item is added with an empty part, which `content_part.added` adds again
| clients write the text into the part by its index; openai-node fails on it

logprobs-elsewhere | R9 | OpenAI
| the log probabilities of a part differ between `content_part.done` and `output_item.done`, or only one has them
| no client reads both

status-at-added | R10 | OpenAI (`shell_call_output`), xAI
| an item is added with its final status
| clients wait for `done` anyway

status-behind | R10 | OpenAI: image generation (`generating`), calls of programs (`in_progress`)
| the status in an item's `done` event says that the item still runs
| clients treat `done` as the end

status-of-tool | R10 | hosted tools
| a tool's last event says `completed`, but the item has another status
| clients show the item's status

no-middle | R10 | xAI (searches), a recording of the AI SDK (custom tool)
| a search has no event between `added` and `done`, or a custom tool call has no event that ends its input
| clients read the item from `done`
| deviation | web_search_call, file_search_call, custom_tool_call

late-done | R10 | xAI, OpenRouter
| an item is done after the next one has begun
| clients identify items by index or id

result-at-added | R11 | —
| a hosted call is added with its result
| clients read the result from `done`

encrypted-content | R13 | OpenAI
| `encrypted_content` or `fingerprint` differs between `done` and the terminal response
| each is a valid encryption of the same content

null-or-absent | R13 | —
| a field is null in `done` and absent in the terminal response, or the reverse
| clients treat null and absent alike

other-in-final | R13 | —
| log probabilities, or an outdated status, differ in the terminal response
| no client reads both

failed-without-output | R13 | —
| a failed or cancelled response lists none of its items
| clients already have the items

without-output | R13 | Codex's backend
| any other response lists none of its items
| Codex reads the items from their `done` events; openai-node, the Agents SDK for JavaScript and LiteLLM lose them

usage | R13 | older services
| `usage` is missing in a response that did not complete, lacks a details object, or does not add up
| clients only display it

vendor-field | R14 | GitHub Copilot (`copilot_usage`), Azure (`content_filters`)
| an event, item or part has a field that the API does not have
| clients ignore unknown fields

null | R14 | LM Studio
| a field that the API omits is null
| the types of the `openai` package allow null wherever a field may be absent

field-of-newer | R14 | older services
| a response lacks `parallel_tool_calls`, `tool_choice` or `tools`, or its usage lacks a details object
| clients read these fields only where they are present

nested-error | R14 | OpenAI
| the fields of an `error` event are nested, as in Open Responses
| the `openai` package raises for both forms

no-logprobs | R15 | older services, xAI (`output_text.done`)
| text deltas, or their `done` events, have no `logprobs`
| clients treat that as an empty list

tokens-differ | R15 | —
| the tokens of the log probabilities do not make up the text
| clients show text and tokens separately

blank | R18 | OpenAI (an empty message after an image)
| a message or reasoning is blank, or begins with a delta of only white space
| clients show nothing; the rule is for the streams that Interlock writes

unknown-event | R14 | —
| the API has no event of that name, or no item of the API has the event, as with `response.audio.delta`
| its meaning is unknown; its number is judged, and that it does not follow the `done` of its item
| not_judged

unknown-item | R14 | —
| the API has no item, part or action of that type
| its meaning is unknown; its `added`, `done`, index and ids are judged
| not_judged

content-at-start | M1 | Anthropic (in a container that is used again)
| `message_start` has a message with content
| SDKs begin with what the message has

no-reason-at-start | M1 | Ollama
| `message_start` has a message without `stop_reason`
| clients read an absent reason as null

unknown-block | M3 | —
| the API has no block of that type
| its meaning is unknown; its index is judged, and that it stops before the next block
| not_judged

unsigned | M4 | Ollama, Vercel's gateway
| a block of thinking has no signature
| clients show it and send it back; only Anthropic's own service refuses it

late-ping | M9 | OpenCode
| `ping` comes after `message_stop`
| clients have stopped reading

marker | M9 | gateways
| the stream has `data: [DONE]`
| SDKs ignore events without a name

unknown-message-event | M12 | —
| the API has no event of that name
| SDKs skip it, and its meaning is unknown
| not_judged

bare-messages-lines | M12 | recorded files
| a file has one JSON object per line instead of server-sent events
| recorders keep only the data; the names of frames are then not judged

no-role | C1 | Cloudflare, LiteLLM, GPUStack, Azure
| the first chunk of a choice has no role, nor has any other
| clients assume the assistant

role-again | C1 | OpenRouter, Groq, Ollama, Together, Databricks, Perplexity and many others
| other chunks of a choice have the role, too
| clients overwrite the role with the same one

no-reason-key | C2 | xAI, GitHub Copilot, Cerebras, Hugging Face, z.ai and others
| a choice has no `finish_reason`, or an empty one, instead of null
| clients read an absent reason as null

other-reason | C2 | Together (`eos`)
| the finish reason is not one of the API's
| clients end the answer at any reason

after-reason | C2 | OpenRouter, LiteLLM, Avian, Doubleword
| a chunk of a choice that adds nothing follows the finish reason, and may repeat it
| clients overwrite the reason with the same one

text-at-finish | C2 | vLLM, OpenRouter, DeepSeek, Mistral, Ollama and many others
| the chunk with the finish reason has a delta too
| clients read the delta of a chunk before its finish reason

reason-of-named | C3 | LiteLLM in front of Anthropic
| the finish reason is `tool_calls`, although the request names the function
| clients run the calls of a choice, whatever its reason

call-fields-again | C4 | Baidu, Bedrock, watsonx
| more of a call's arguments comes with its id, an empty id, its type or its name
| clients append only the arguments, and compare the id with that of the open call

null-arguments | C4 | vLLM, Writer
| the arguments of a call are null where it begins
| clients read null as an empty text

usage-beside-choice | C5 | OpenRouter, Mistral, DeepSeek, Azure, Kimi and many others
| the usage is beside a choice, or inside it
| clients read the usage of any chunk

usage-again | C5 | OpenAI, Groq, Databricks, Perplexity
| several chunks have the usage
| clients take the last one

chunk-fields | C6 | Azure, GitHub Copilot, GitHub Models, z.ai, AI21, Snowflake
| a chunk has no `id`, `created`, `model` or `object`, or an empty one
| clients take these fields from another chunk, or do not read them

differs-without-choices | C6 | Azure
| the id, the time or the model of a chunk without choices differs
| clients read these fields from a chunk with choices

time-passes | C6 | Ollama, llama.cpp
| each chunk has the time at which it was sent
| clients take the first one or the last one

other-object | C6 | Perplexity (`chat.completion.done`)
| the `object` of a chunk is not `chat.completion.chunk`
| clients do not read it

no-delta | C6 | Azure (results of its filter)
| a choice has no delta, and no text either
| clients read an absent delta as an empty one

one-reasoning | C7 | vLLM, OpenRouter, Groq, Ollama (`reasoning`), DeepSeek, llama.cpp, z.ai (`reasoning_content`)
| reasoning is in one of its two fields
| the API has neither, and each service has clients that read its own

no-marker | C8 | recorded files
| `data: [DONE]` does not follow the finish reason, or an error
| clients stop at the end of the body; recorders drop the marker

after-marker | C8 | OpenCode
| a chunk without choices follows `data: [DONE]`
| clients have stopped reading

bare-chat-lines | C8 | recorded files
| a file has one JSON object per line instead of server-sent events
| recorders keep only the data
"""

DEVIATIONS: Final[Mapping[str, Deviation]] = read_rows(_DEVIATIONS, Deviation)
"""Every deviation by its name."""


@frozen
class Finding:
    """A broken rule, and where a stream breaks it.

    Args:
        rule: Its number.
        message: What is wrong.
        deviation: A name in `DEVIATIONS`; empty for an error.
        event: The number of the event, from 0; the number of all events for a finding at the end of the stream.
        sequence_number: The event's own number, if it has one; None if the framing is wrong.
        item: The id of the item, if the finding is about one.
        kind: The kind of the item, if it is known.
        state: The state of the item, or else of the response, before the event; empty if the framing is wrong.
        received: The name of the event in the stream; empty if it has none, or the finding is about the stream as a whole.
        expected: The wire names of the events that would have been legal, if the event itself is wrong.
        line: The line where the event begins, from 1; None if the finding is about the stream as a whole, or no bytes were read.
    """

    rule: str
    message: str
    deviation: str = ""
    event: int = 0
    sequence_number: int | None = field(default=None, kw_only=True)
    item: str | None = field(default=None, kw_only=True)
    kind: str | None = field(default=None, kw_only=True)
    state: str = field(default="", kw_only=True)
    received: str = field(default="", kw_only=True)
    expected: tuple[str, ...] = field(default=(), kw_only=True)
    line: int | None = field(default=None, kw_only=True)

    @property
    def severity(self) -> Severity:
        """How serious it is."""
        return DEVIATIONS[self.deviation].severity if self.deviation else "error"
