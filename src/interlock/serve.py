"""What an application needs to serve its own engine: `create_app(engine)` is an ASGI application. docs/engines.md builds one."""

from interlock.serving.engines.engine import AdmittingEngine, Engine, EngineOutput, ModelFacts, Turn
from interlock.serving.http.app import AppSettings, create_app
from interlock.serving.http.server import ServerThread
from interlock.serving.requests.api_errors import ApiError, EngineError, PromptError
from interlock.serving.requests.input_items import text_of
from interlock.serving.store import open_store

__all__ = [
    "AdmittingEngine",
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
