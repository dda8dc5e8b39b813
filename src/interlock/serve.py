"""What an application needs to serve its own engine: `create_app(engine)` is an ASGI application. docs/engines.md builds one."""

try:
    from interlock.serving.engines.engine import Engine, EngineOutput, ModelFacts, Turn
    from interlock.serving.http.app import AppSettings, create_app
    from interlock.serving.http.server import ServerThread
    from interlock.serving.requests.api_errors import ApiError, EngineError, PromptError
    from interlock.serving.requests.input_items import text_of
    from interlock.serving.store import open_store
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"interlock.serve needs {error.name}: pip install 'interlock[serve]' (in a checkout, '.[serve]')", name=error.name
    ) from error

__all__ = [
    "ApiError",
    "AppSettings",
    "Engine",
    "EngineError",
    "EngineOutput",
    "ModelFacts",
    "PromptError",
    "ServerThread",
    "Turn",
    "create_app",
    "open_store",
    "text_of",
]
