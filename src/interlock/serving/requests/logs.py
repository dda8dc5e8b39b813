"""Log lines: what each says of its request, as text or JSON. No line has the content of a request or a key."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from interlock.events.json import as_text, dumps
from interlock.serving.requests.api_errors import MAX_NAME

LogFormat: TypeAlias = Literal["text", "json"]

FIELDS: Final = "interlock_fields"
"""The attribute of a log record that has the figures of a line, which only JSON has one by one."""

CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""Matches the characters that could end a line, or garble a terminal."""


CONTEXT: Final = ("request_id", "tenant", "response_id", "model", "upstream", "reason", "param")
"""What the log lines of a task say of its request."""

_context: Final[ContextVar[Mapping[str, str]]] = ContextVar("interlock_log_context", default=MappingProxyType({}))


def log_with(**fields: str) -> None:
    """Set some of `CONTEXT` for the log lines of the current task, and of tasks that it creates later."""
    _context.set({**_context.get(), **fields})


def log_model(body: Mapping[str, object]) -> None:
    """Set the model that the body of a request names for the log lines of the current task, as `log_with` does."""
    if name := as_text(body.get("model")):
        log_with(model=name[:MAX_NAME])


def current_request_id() -> str | None:
    """Return the id of the request that the current task serves, if any."""
    return _context.get().get("request_id")


def begin_logs(request_id: str) -> None:
    """Begin the log lines of a request in the current task."""
    _context.set({"request_id": request_id})


class TextFormatter(logging.Formatter):
    """Formats a record as a line of text; a traceback follows on further lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the time, level, logger, context and message, without control characters, and the traceback."""
        context = "".join(f" {name}={value}" for name, value in _known(record).items())
        line = f"{_time(record)} {record.levelname} {record.name}{context}: {record.getMessage()}"
        line = CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", line)
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the time, level, logger, message, context, figures and traceback."""
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_known(record),
            **getattr(record, FIELDS, {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return dumps(line).decode()


def _known(record: logging.LogRecord) -> Mapping[str, str]:
    """Return the context of a line, except what its own fields repeat."""
    context, fields = _context.get(), getattr(record, FIELDS, {})
    return {name: context[name] for name in CONTEXT if name in context and name not in fields}


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def log_to_stderr(level: str, log_format: LogFormat = "text") -> None:
    """Log messages of this level and above to standard error; of other packages, at most those of the level `info`.

    Their debug messages contain what clients send. A process that logs already goes on as it does.
    """
    if logging.getLogger().handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    lowest = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(level=max(lowest, logging.INFO), handlers=[handler])
    logging.getLogger("interlock").setLevel(lowest)


def announce(logger: logging.Logger, lines: Sequence[str], log_format: LogFormat) -> None:
    """Write lines to standard error, whatever the level of the log; they are one log line if those are JSON."""
    if log_format == "json":
        logger.handle(logger.makeRecord(logger.name, logging.INFO, "", 0, "%s", ("; ".join(lines),), None))
    else:
        print("\n  ".join(lines) + "\n", end="", file=sys.stderr, flush=True)  # noqa: T201 - a command prints, in one write
