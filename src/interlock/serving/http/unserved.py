"""The errors for routes that are not served: what is served instead, and how to get what other APIs have."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from time import monotonic
from typing import Final

from attrs import define, field
from starlette.routing import BaseRoute, Route

from interlock.serving.requests.api_errors import ApiError

logger = logging.getLogger(__name__)

PERIOD: Final = 60.0
"""The seconds between two log lines about routes that are not served."""
MAX_QUOTED: Final = 200
"""The most characters of a path or an origin that an error or a log line shows."""

MODEL_SERVER: Final = "send these requests to the model server itself"
ADVICE: Final[Mapping[str, str]] = {
    r"/v1(/v1)+(/.*)?": "the path has /v1 twice: remove it from the base URL of the client",
    r"/(responses|conversations|messages|chat/completions|models)(/.*)?": "add /v1 to the base URL of the client",
    r"/v1/.+/": "remove the slash at the end of the path",
    r"/v1/completions": "the model continues a text only in /v1/responses, /v1/chat/completions or /v1/messages",
    r"/v1/(embeddings|rerank|score|pooling|classify|moderations)(/.*)?": f"models that write no text: {MODEL_SERVER}",
    r"/(v1|v2)/rerank": f"models that write no text: {MODEL_SERVER}",
    r"/v1/(images|audio|videos)/.*": f"pictures, sound and films: {MODEL_SERVER}",
    r"/v1/(assistants|threads)(/.*)?": "the Assistants API has ended: use /v1/responses with /v1/conversations",
    r"/v1/realtime(/.*)?": "sound in real time is not served; /v1/responses takes WebSockets for text",
    r"/v1/(files|uploads|vector_stores|containers)(/.*)?": "files are not stored: put them into the input, as input_file",
    r"/v1/(messages/batches|batches)(/.*)?": "there are no batches: send each request, with background: true for a later answer",
    r"/v1/(fine_tuning|evals|graders|organization)(/.*)?": "this is a service of OpenAI for its own models",
    r"/api/(chat|generate|tags|show|version|embed|embeddings)": "this is Ollama's API: use /v1/chat/completions and /v1/models",
    r"/openai/deployments/.*": "this is the API of Azure: use the OpenAI client with the base URL …/v1",
    r"/v1beta/.*": "this is Gemini's API: use the client of another API",
    r"/interlock(/.*)?": "start the server with --view for the viewer of streams",
}
"""What to do instead of requests whose paths match; the first match counts."""


def unserved(method: str, path: str, routes: Iterable[BaseRoute]) -> ApiError:
    """Return the error for a request that no route serves, and log it."""
    target = f"{method} {path[:MAX_QUOTED]}"
    LOG.add(target)
    advice = next((f" Advice: {text}." for pattern, text in ADVICE.items() if re.fullmatch(pattern, path)), "")
    served = [route.path for route in routes if isinstance(route, Route) and "{" not in route.path]
    return ApiError(
        HTTPStatus.NOT_FOUND, f"Invalid URL ({target}).{advice} This server serves {', '.join(dict.fromkeys(served))}."
    )


@define
class UnservedLog:
    """Logs requests that no route serves, one line in `PERIOD` at most; the line counts those since the last one."""

    _due_at: float = field(default=0.0, init=False)
    _silent: int = field(default=0, init=False)

    def add(self, target: str) -> None:
        """Log a request, or count it."""
        now = monotonic()
        if now < self._due_at:
            self._silent += 1
            return
        others = f", nor {self._silent} earlier requests" if self._silent else ""
        self._due_at, self._silent = now + PERIOD, 0
        logger.warning("no route serves %s%s", target, others)


LOG: Final = UnservedLog()
"""The log of this process."""
