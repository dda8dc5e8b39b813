"""A server for your own engine: `build(Settings(), engine)` returns an ASGI application. docs/library/engines.md has one."""

try:
    from interlock.serving.build import build
    from interlock.serving.engines.engine import Engine, EngineOutput, Turn
    from interlock.serving.http.server import ServerThread
    from interlock.serving.requests.api_errors import ApiError, EngineError, PromptError
    from interlock.serving.requests.input_items import text_of
    from interlock.serving.settings import ModelFacts, Settings, SettingsError
    from interlock.serving.store import open_store
    from interlock.serving.tools.hosting import LocalTool, ToolRunner, ToolServers, ToolSession
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"interlock.serve needs {error.name}: pip install 'interlock[serve]' (in a checkout, '.[serve]')", name=error.name
    ) from error

__all__ = [
    "ApiError",
    "Engine",
    "EngineError",
    "EngineOutput",
    "LocalTool",
    "ModelFacts",
    "PromptError",
    "ServerThread",
    "Settings",
    "SettingsError",
    "ToolRunner",
    "ToolServers",
    "ToolSession",
    "Turn",
    "build",
    "open_store",
    "text_of",
]
