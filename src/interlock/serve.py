"""A server for your own engine: `build(Settings(), engine)` returns an ASGI application. docs/library/engines.md has one."""

try:
    from interlock.parsers.hosted_tools import HostedTool
    from interlock.serving.build import build
    from interlock.serving.engines.engine import Engine, EngineOutput, Generation, Turn
    from interlock.serving.http.app import Application
    from interlock.serving.http.server import ServerThread
    from interlock.serving.requests.api_errors import ApiError, EngineError, PromptError, ToolError, ToolFailedError
    from interlock.serving.requests.chat_request import read_chat
    from interlock.serving.requests.create import ResponseRequest, read_request, read_translated
    from interlock.serving.requests.input_items import text_of
    from interlock.serving.requests.messages_request import read_messages
    from interlock.serving.settings import ModelFacts, Settings, SettingsError
    from interlock.serving.store import open_store
    from interlock.serving.store.response_store import ResponseStore
    from interlock.serving.tools.address import AddressPolicy
    from interlock.serving.tools.hosting import LocalFunction, LocalTool, ToolRunner, Tools, ToolServers, ToolSession
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"interlock.serve needs {error.name}: pip install 'interlock[serve]' (in a checkout, '.[serve]')", name=error.name
    ) from error

__all__ = [
    "AddressPolicy",
    "ApiError",
    "Application",
    "Engine",
    "EngineError",
    "EngineOutput",
    "Generation",
    "HostedTool",
    "LocalFunction",
    "LocalTool",
    "ModelFacts",
    "PromptError",
    "ResponseRequest",
    "ResponseStore",
    "ServerThread",
    "Settings",
    "SettingsError",
    "ToolError",
    "ToolFailedError",
    "ToolRunner",
    "ToolServers",
    "ToolSession",
    "Tools",
    "Turn",
    "build",
    "open_store",
    "read_chat",
    "read_messages",
    "read_request",
    "read_translated",
    "text_of",
]
