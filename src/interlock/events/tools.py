"""Tools, tool choices and text formats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias, Union

from msgspec import UNSET, Struct, defstruct, field

from interlock.events.parts import SECRET, SECRET_USER, Json, Maybe, Nullable, Number

Callers: TypeAlias = list[Literal["direct", "programmatic"]]
"""The allowed callers of a tool: the model, or a program that it writes."""
Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Size: TypeAlias = Literal["low", "medium", "high"]


class Tool(Struct, tag_field="type", kw_only=True):
    """A tool that a request gives to the model."""


class FunctionTool(Tool, tag="function", kw_only=True):
    """A function of the client. In a response, `parameters` and `strict` are null if the request omits them."""

    name: str
    description: Nullable[str] = UNSET
    parameters: Nullable[dict[str, Json]] = None
    strict: Nullable[bool] = None
    output_schema: Nullable[dict[str, Json]] = UNSET
    allowed_callers: Nullable[Callers] = UNSET
    defer_loading: Maybe[bool] = UNSET
    is_async: Maybe[bool] = field(default=UNSET, name="async")


class TextFormat(Struct, tag="text", kw_only=True):
    """Any text."""


class JsonObjectFormat(Struct, tag="json_object", kw_only=True):
    """Any JSON object."""


class JsonSchemaFormat(Struct, tag="json_schema", kw_only=True):
    """JSON that matches a schema."""

    name: str
    description: Nullable[str] = UNSET
    schema: dict[str, Json]
    strict: Nullable[bool] = UNSET


class GrammarFormat(Struct, tag="grammar", kw_only=True):
    """Text that matches a grammar."""

    definition: str
    syntax: Literal["lark", "regex"]


AnyFormat: TypeAlias = TextFormat | JsonObjectFormat | JsonSchemaFormat
"""The format of an answer."""


class CustomTool(Tool, tag="custom", kw_only=True):
    """A tool of the client that takes text."""

    name: str
    description: Maybe[str] = UNSET
    format: Maybe[TextFormat | GrammarFormat] = UNSET
    allowed_callers: Nullable[Callers] = UNSET
    defer_loading: Maybe[bool] = UNSET
    is_async: Maybe[bool] = field(default=UNSET, name="async")


class Namespace(Tool, tag="namespace", kw_only=True):
    """A group of tools."""

    name: str
    description: str = ""
    tools: list[FunctionTool | CustomTool] = []


# File search.


class Filter(Struct, tag_field="type", kw_only=True):
    """A filter for a file search."""


class Comparison(Filter, kw_only=True):
    """Compares a file attribute with a value."""

    key: str
    value: str | Number | bool | list[str | Number]


class And(Filter, tag="and", kw_only=True):
    """All of the filters match."""

    filters: list[AnyFilter]


class Or(Filter, tag="or", kw_only=True):
    """At least one of the filters matches."""

    filters: list[AnyFilter]


_COMPARISONS: Final = [
    defstruct(tag, (), bases=(Comparison,), tag=tag) for tag in ("eq", "ne", "gt", "gte", "lt", "lte", "in", "nin")
]


class HybridSearch(Struct, kw_only=True):
    """Weights of embedding and text matches."""

    embedding_weight: Number
    text_weight: Number


class RankingOptions(Struct, kw_only=True):
    """How search results are ranked."""

    hybrid_search: Maybe[HybridSearch] = UNSET
    ranker: Maybe[Literal["auto", "default-2024-11-15"]] = UNSET
    score_threshold: Maybe[Number] = UNSET


class FileSearchTool(Tool, tag="file_search", kw_only=True):
    """The file search tool."""

    vector_store_ids: list[str]
    filters: Nullable[AnyFilter] = UNSET
    max_num_results: Maybe[int] = UNSET
    ranking_options: Maybe[RankingOptions] = UNSET


# Web search.


class Domains(Struct, kw_only=True):
    """The domains that a web search may read."""

    allowed_domains: Nullable[list[str]] = UNSET


class UserLocation(Struct, kw_only=True):
    """The approximate location of the user."""

    type: Maybe[Literal["approximate"]] = "approximate"
    city: Nullable[str] = UNSET
    country: Nullable[str] = UNSET
    region: Nullable[str] = UNSET
    timezone: Nullable[str] = UNSET


class WebSearchTool(Tool, tag="web_search", kw_only=True):
    """The web search tool."""

    external_web_access: Nullable[bool] = UNSET
    filters: Nullable[Domains] = UNSET
    search_context_size: Maybe[Size] = UNSET
    user_location: Nullable[UserLocation] = UNSET


class WebSearchTool20250826(WebSearchTool, tag="web_search_2025_08_26", kw_only=True):
    """The dated version of `web_search`."""


class WebSearchPreviewTool(Tool, tag="web_search_preview", kw_only=True):
    """The older web search tool."""

    search_content_types: Maybe[list[Literal["text", "image"]]] = UNSET
    search_context_size: Maybe[Size] = UNSET
    user_location: Nullable[UserLocation] = UNSET


class WebSearchPreviewTool20250311(WebSearchPreviewTool, tag="web_search_preview_2025_03_11", kw_only=True):
    """The dated version of `web_search_preview`."""


# MCP servers.


class McpToolFilter(Struct, kw_only=True):
    """A selection of an MCP server's tools."""

    read_only: Maybe[bool] = UNSET
    tool_names: Maybe[list[str]] = UNSET


class McpApprovalFilter(Struct, kw_only=True):
    """Which tools need approval and which do not."""

    always: Maybe[McpToolFilter] = UNSET
    never: Maybe[McpToolFilter] = UNSET


class McpServer(Tool, tag="mcp", kw_only=True):
    """An MCP server whose tools the API server calls."""

    server_label: str
    server_url: Annotated[Maybe[str], SECRET_USER] = UNSET
    server_description: Maybe[str] = UNSET
    connector_id: Maybe[str] = UNSET
    tunnel_id: Maybe[str] = UNSET
    allowed_tools: Nullable[list[str] | McpToolFilter] = UNSET
    require_approval: Nullable[McpApprovalFilter | Literal["always", "never"]] = UNSET
    authorization: Annotated[Maybe[str], SECRET] = UNSET
    headers: Annotated[Nullable[dict[str, str]], SECRET] = UNSET
    allowed_callers: Nullable[Callers] = UNSET
    defer_loading: Maybe[bool] = UNSET


# Containers and environments.


class DomainSecret(Struct, kw_only=True):
    """A secret for requests to a domain."""

    domain: str
    name: str
    value: str


class NoNetwork(Struct, tag="disabled", kw_only=True):
    """No network."""


class Allowlist(Struct, tag="allowlist", kw_only=True):
    """Only the listed domains."""

    allowed_domains: list[str]
    domain_secrets: Annotated[Maybe[list[DomainSecret]], SECRET] = UNSET


class NewContainer(Struct, tag="auto", kw_only=True):
    """A new container for code."""

    file_ids: Maybe[list[str]] = UNSET
    memory_limit: Nullable[Literal["1g", "4g", "16g", "64g"]] = UNSET
    network_policy: Maybe[NoNetwork | Allowlist] = UNSET


class SkillSource(Struct, tag_field="type", tag="base64", kw_only=True):
    """The files of a skill."""

    media_type: Literal["application/zip"]
    data: str


class SkillReference(Struct, tag_field="type", tag="skill_reference", kw_only=True):
    """A skill that is stored on the server."""

    skill_id: str
    version: Maybe[str] = UNSET


class InlineSkill(Struct, tag_field="type", tag="inline", kw_only=True):
    """A skill in the request."""

    name: str
    description: str
    source: SkillSource


class ShellContainer(NewContainer, tag="container_auto", kw_only=True):
    """A new container for a shell."""

    skills: Maybe[list[SkillReference | InlineSkill]] = UNSET


class ContainerReference(Struct, tag="container_reference", kw_only=True):
    """An existing container."""

    container_id: str


class Skill(Struct, kw_only=True):
    """A skill in the client's environment."""

    name: str
    description: str
    path: str


class LocalEnvironment(Struct, tag="local", kw_only=True):
    """The client's machine."""

    skills: Maybe[list[Skill]] = UNSET


class CodeInterpreterTool(Tool, tag="code_interpreter", kw_only=True):
    """A Python interpreter."""

    container: str | NewContainer = field(default_factory=NewContainer)
    allowed_callers: Nullable[Callers] = UNSET


class ShellTool(Tool, tag="shell", kw_only=True):
    """A shell."""

    environment: Nullable[ShellContainer | LocalEnvironment | ContainerReference] = UNSET
    allowed_callers: Nullable[Callers] = UNSET


class LocalShellTool(Tool, tag="local_shell", kw_only=True):
    """The client's shell."""


class ApplyPatchTool(Tool, tag="apply_patch", kw_only=True):
    """Patches to the client's files."""

    allowed_callers: Nullable[Callers] = UNSET


# Images, computers, and tools that call or find others.


class ImageMask(Struct, kw_only=True):
    """The area of an image to edit."""

    file_id: Maybe[str] = UNSET
    image_url: Maybe[str] = UNSET


class SvgReasoning(Struct, kw_only=True):
    """The reasoning effort for SVG output."""

    effort: Nullable[Effort] = UNSET


class SvgOptions(Struct, kw_only=True):
    """Options for SVG output."""

    model: Maybe[str] = UNSET
    reasoning: Nullable[SvgReasoning] = UNSET


class ImageGenerationTool(Tool, tag="image_generation", kw_only=True):
    """Image generation."""

    model: Maybe[str] = UNSET
    action: Maybe[Literal["generate", "edit", "auto"]] = UNSET
    background: Maybe[Literal["transparent", "opaque", "auto"]] = UNSET
    complexity: Nullable[Size] = UNSET
    frame_count: Nullable[int] = UNSET
    frame_duration_ms: Nullable[int] = UNSET
    input_fidelity: Nullable[Literal["high", "low"]] = UNSET
    input_image_mask: Maybe[ImageMask] = UNSET
    moderation: Maybe[Literal["auto", "low"]] = UNSET
    output_compression: Maybe[int] = UNSET
    output_format: Maybe[Literal["png", "webp", "jpeg", "gif", "svg"]] = UNSET
    partial_images: Maybe[int] = UNSET
    quality: Maybe[Literal["low", "medium", "high", "xhigh", "max", "auto"]] = UNSET
    size: Maybe[str] = UNSET
    svg: Nullable[SvgOptions] = UNSET


class ComputerTool(Tool, tag="computer", kw_only=True):
    """A computer that the model uses."""


class ComputerUsePreviewTool(Tool, tag="computer_use_preview", kw_only=True):
    """The older computer tool."""

    display_height: int
    display_width: int
    environment: Literal["windows", "mac", "linux", "ubuntu", "browser"]


class ToolSearchTool(Tool, tag="tool_search", kw_only=True):
    """A search for deferred tools."""

    description: Nullable[str] = UNSET
    execution: Maybe[Literal["server", "client"]] = UNSET
    parameters: Nullable[Json] = UNSET


class ProgramTool(Tool, tag="programmatic_tool_calling", kw_only=True):
    """Programs that the model writes to call tools."""


AnyTool: TypeAlias = (
    FunctionTool
    | CustomTool
    | Namespace
    | FileSearchTool
    | WebSearchTool
    | WebSearchTool20250826
    | WebSearchPreviewTool
    | WebSearchPreviewTool20250311
    | McpServer
    | CodeInterpreterTool
    | ShellTool
    | LocalShellTool
    | ApplyPatchTool
    | ImageGenerationTool
    | ComputerTool
    | ComputerUsePreviewTool
    | ToolSearchTool
    | ProgramTool
)

# Tool choices.


class Choice(Struct, tag_field="type", kw_only=True):
    """A tool choice other than `none`, `auto` and `required`."""


class FunctionChoice(Choice, tag="function", kw_only=True):
    """Force a function."""

    name: str


class CustomChoice(Choice, tag="custom", kw_only=True):
    """Force a custom tool."""

    name: str


class McpChoice(Choice, tag="mcp", kw_only=True):
    """Force a tool of an MCP server."""

    server_label: str
    name: Nullable[str] = UNSET


class AllowedTools(Choice, tag="allowed_tools", kw_only=True):
    """Limit the model to some tools, with or without forcing a call."""

    mode: Literal["auto", "required"]
    tools: list[dict[str, Json]]


_PLAIN_CHOICES: Final = [
    defstruct(tag, (), bases=(Choice,), tag=tag)
    for tag in (
        *("file_search", "web_search_preview", "web_search_preview_2025_03_11", "computer", "computer_use"),
        *("computer_use_preview", "image_generation", "code_interpreter", "apply_patch", "shell", "programmatic_tool_calling"),
    )
]
"""The choices that name a tool by its type alone."""

if TYPE_CHECKING:
    AnyFilter: TypeAlias = Filter
    AnyChoice: TypeAlias = Choice
else:
    AnyFilter = Union[(*_COMPARISONS, And, Or)]
    AnyChoice = Union[(FunctionChoice, CustomChoice, McpChoice, AllowedTools, *_PLAIN_CHOICES)]
ToolChoice: TypeAlias = Literal["none", "auto", "required"] | AnyChoice
