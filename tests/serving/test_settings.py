"""Settings come from options, variables and a file, and an error names where the wrong value was set."""

import ast
import re
from functools import wraps
from pathlib import Path

import pytest

import interlock
from interlock.fsm.table import DeclarationError
from interlock.parsers import Chunk, Tagged
from interlock.parsers.hosted_tools import HOSTED_TOOLS
from interlock.serving.build import build
from interlock.serving.engines.embedded import EmbeddedEngine
from interlock.serving.engines.engine import Engine, EngineOutput
from interlock.serving.settings import Settings, SettingsError, Times, flag, options, read_settings, variable
from interlock.serving.store import open_store
from interlock.serving.tools.hosting import ToolServers


def read(tmp_path, text="", given=None, **environment):
    file = tmp_path / "interlock.toml"
    file.write_text(text)
    return read_settings({"config": str(file), **(given or {})}, environment=environment)


def test_options_override_variables_which_override_the_file(tmp_path) -> None:
    text = "[serve]\nmax_streams = 1\nrate = 2\nworkers = 1\n"
    settings = read(tmp_path, text, {"max_streams": "3"}, INTERLOCK_MAX_STREAMS="2", INTERLOCK_RATE="2.5")
    assert (settings.max_streams, settings.rate, settings.workers) == (3, 2.5, 1)
    places = [settings.place(name) for name in ("max_streams", "rate", "workers", "host")]
    assert places == ["--max-streams", "INTERLOCK_RATE", f"{tmp_path}/interlock.toml: serve.workers", "host"]


def test_each_source_has_its_own_syntax_for_lists(tmp_path) -> None:
    hosts = ("a.example", "*.b.example")
    assert read(tmp_path, '[serve]\nallowed_host = ["a.example", "*.b.example"]\n').allowed_host == hosts
    assert read(tmp_path, given={"allowed_host": ["a.example", "*.b.example"]}).allowed_host == hosts
    for text in ("a.example,*.b.example", "a.example *.b.example", " a.example, *.b.example,"):
        assert read(tmp_path, INTERLOCK_ALLOWED_HOST=text).allowed_host == hosts
    assert read(tmp_path, INTERLOCK_API_KEY="one, key").api_key == ("one, key",)


def test_an_empty_variable_is_ignored_except_the_api_key(tmp_path) -> None:
    empty = {variable(name): "" for name in options() if name != "api_key"}
    assert read(tmp_path, **empty) == read(tmp_path)
    assert read(tmp_path, INTERLOCK_API_KEY="").api_key == ("",)


def test_the_port_variable_may_be_a_kubernetes_service_address(tmp_path) -> None:
    assert read(tmp_path, INTERLOCK_PORT="tcp://10.0.0.1:8000").port == 8000


@pytest.mark.parametrize(("text", "flag"), [("1", True), ("true", True), ("TRUE", True), ("0", False), ("false", False)])
def test_a_variable_can_be_a_flag(tmp_path, text, flag) -> None:
    assert read(tmp_path, INTERLOCK_VIEW=text).view is flag


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"given": {"port": "70000"}}, "--port: Expected `int` <= 65535"),
        ({"given": {"script": 5}}, "--script: Expected `str`, got `int`"),
        ({"INTERLOCK_VIEW": "yes"}, "INTERLOCK_VIEW: Expected `bool`, got 'yes'"),
        (
            {"INTERLOCK_LOG_LEVEL": "loud"},
            "INTERLOCK_LOG_LEVEL: Invalid enum value 'loud'; choose one of debug, info, warning, error",
        ),
        ({"given": {"upstream_timeout": "1,2,3"}}, "--upstream-timeout: Expected `array` of length <= 2"),
        ({"text": "[serve]\nport = -1\n"}, "{}: serve.port: Expected `int` >= 0"),
        ({"text": '[serve]\napi_key = "secret"\n'}, "{}: serve.api_key: Expected `array`, got `str`"),
        ({"text": "[serve]\nkeys = 1\n"}, "{}: serve.keys: unknown option; choose one of allow_mcp_host, "),
        ({"text": "[[upstream]]\nurl = 1\n"}, "{}: upstream[0].url: Expected `str`, got `int`"),
        ({"text": '[[upstream]]\nurl = ""\napi = "v1"\n'}, "{}: upstream[0].api: Invalid enum value 'v1'; choose one of chat, "),
        (
            {"given": {"cors_origin": ["page.test"]}},
            "--cors-origin: 'page.test' is no origin, such as https://app.example.com, or *",
        ),
        (
            {"INTERLOCK_CORS_ORIGIN": "*,app://x,https://page.test:8443/"},
            "INTERLOCK_CORS_ORIGIN: 'https://page.test:8443/' is no origin, such as https://app.example.com, or *",
        ),
        ({"text": "[server]\n"}, "{}: Object contains unknown field `server`; choose one of upstream, serve"),
        ({"text": "upstream = 1\n"}, "{}: upstream: Expected `array`, got `int`"),
        ({"given": {"workers": "2"}}, "--workers: each process would have a store of its own in memory; add --store sqlite:PATH"),
        (
            {"given": {"api_key_file": "a", "api_key": ["b"]}},
            "--api-key-file: the file has all keys and their tenants; leave out --api-key",
        ),
    ],
)
def test_an_error_names_the_place_of_the_value(tmp_path, source, message) -> None:
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, **source)
    assert str(caught.value).startswith(message.format(tmp_path / "interlock.toml"))


def test_a_wrong_value_in_a_file_is_an_error_for_commands_that_do_not_read_it(tmp_path) -> None:
    path = tmp_path / "interlock.toml"
    path.write_text('[serve]\nmax_streams = "many"\n')
    with pytest.raises(SettingsError) as caught:
        read_settings({"config": str(path)}, names={"config"}, environment={})
    assert str(caught.value) == f"{path}: serve.max_streams: Expected `int | null`, got 'many'"


def test_an_unreadable_file_is_an_error_of_its_option() -> None:
    with pytest.raises(SettingsError, match=r"^INTERLOCK_CONFIG: /no/such: No such file or directory$"):
        read_settings(environment={"INTERLOCK_CONFIG": "/no/such"})


def test_the_constructor_raises_the_same_errors() -> None:
    with pytest.raises(SettingsError, match=r"^api_key: Expected `array`, got `str`$"):
        Settings(api_key="secret")
    with pytest.raises(SettingsError, match=r"^port: Expected `int` <= 65535$"):
        Settings(port=65536)


def test_settings_show_no_secrets() -> None:
    settings = Settings(api_key=["secret"], store="postgresql://u:secret@host/db", port=1, script="a", times=Times(tick=1))
    shown = "Settings(port=1, api_key=…, script=PosixPath('a'), store=…, times=Times("
    assert repr(settings).startswith(shown)
    assert "secret" not in repr(settings)
    assert settings.script == Path("a")


def test_the_errors_context_names_the_setting_unless_the_error_does() -> None:
    settings = Settings(store="sqlite:x", places={"store": "--store"})
    with pytest.raises(SettingsError, match=r"^--store: no$"), settings.errors("store"):
        raise ValueError("no")
    with pytest.raises(SettingsError, match=r"^other: yes$"), settings.errors("store"):
        raise SettingsError("other", "yes")


@pytest.mark.parametrize("models", ["mine", [1], ["a", None]])
def test_models_that_are_not_a_list_of_names_are_refused(models) -> None:
    with pytest.raises(DeclarationError, match="the models of EmbeddedEngine are a list of names, not"):
        build(Settings(), EmbeddedEngine(models))


def test_every_setting_is_read() -> None:
    """A field without a reader is an option without an effect. A reader is an attribute of a name that ends in `settings`."""
    trees = [ast.parse(path.read_text()) for path in (Path(interlock.__file__).parent / "serving").rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    read = {node.attr for node in nodes if ast.unparse(node.value).endswith("settings")}
    assert {*Settings.__struct_fields__} - read == {"config", "required"}  # `read_settings` and the plugin read these earlier


def test_the_pages_list_every_option() -> None:
    guides = Path(__file__).parents[2] / "docs" / "guides"
    serving, plugin = ((guides / name).read_text("utf-8").splitlines() for name in ("serving.md", "vllm.md"))
    for name, option in options().items():
        page, shown = (serving, flag(name)) if option.has_flag else (plugin, variable(name))
        rows = [row for row in page if row.startswith(f"| `{shown}` |")]
        assert [row.endswith(f"| {option.help} |") for row in rows] == [True], f"{shown}: run `make docs`"


class Plain(Engine):
    """An engine with only the required members."""

    models = ("plain",)
    format = "text"

    async def generate(self, _turn):
        yield EngineOutput(Chunk(text="Hi"), "stop")


async def coroutine(*_):
    """Stand in for a `generate` that lacks `yield`."""


def generator(*_):
    """Stand in for a `generate` that lacks `async`."""
    yield


@pytest.mark.parametrize(
    ("base", "members", "message"),
    [
        (Engine, {"model": ["plain"], "format": "text"}, "E has no 'models'; rename 'model'"),
        (Engine, {"models": ["plain"], "formats": "text"}, "E has no 'format'; rename 'formats'"),
        (Engine, {"models": ["plain"]}, "E has no 'format'"),
        (Plain, {"models": "plain"}, "the models of E are a list of names, not 'plain'"),
        (Plain, {"models": 7}, "the models of E are a list of names, not 7"),
        (Plain, {"models": [""]}, "the models of E are a list of names, not ['']"),
        (Plain, {"format": "txt"}, "the format of E: unknown format 'txt': give 'chat', 'harmony', 'responses', 'text'"),
        (
            Plain,
            {"format": ["text"]},
            "the format of E: unknown format \"['text']\": give 'chat', 'harmony', 'responses', 'text'",
        ),
        (Plain, {"format": "hermes"}, "the format of E: 'hermes' is a family, not a format: did you mean Tagged('hermes')?"),
        (Plain, {"format": Tagged("qwen3_codr")}, "the format of E: unknown tool parser 'qwen3_codr'"),
        (Plain, {"count": lambda *_: 7}, "'count' of E is declared with 'async def'"),
        (Plain, {"admit": None}, "'admit' of E is declared with 'async def'"),
        (Plain, {"admit": Plain.close}, "'admit' of E takes self, turn"),
        (Plain, {"generate": generator}, "'generate' of E is an asynchronous generator: it yields its outputs"),
        (Plain, {"generate": coroutine}, "'generate' of E is an asynchronous generator: it yields its outputs"),
    ],
)
def test_an_invalid_engine_class_is_refused_with_an_explanation(base, members, message) -> None:
    with pytest.raises(DeclarationError) as refused:
        build(Settings(), type("E", (base,), {"generate": Plain.generate, **members})())
    explanation, *_families = re.split(", or Tagged|: choose one of ", str(refused.value))
    assert explanation == message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((Settings(), Plain), "build needs an instance of Engine, not the class Plain"),
        ((Plain(), Settings()), "build needs an instance of Engine, not one of Settings"),
    ],
)
def test_an_argument_of_build_that_is_no_engine_is_refused(arguments, message) -> None:
    with pytest.raises(DeclarationError) as refused:
        build(*arguments)
    assert str(refused.value) == message


def test_a_method_of_an_engine_may_be_decorated() -> None:
    @wraps(Plain.count)
    def counted(engine, turn):
        return Plain.count(engine, turn)

    build(Settings(), type("E", (Plain,), {"count": counted})())


def test_a_valid_engine_class_is_built() -> None:
    assert [*build(Settings(), Plain()).api.service.engine.models] == ["plain"]


def test_an_unknown_hosted_tool_is_refused():
    message = f"'dice' is no hosted tool, which is one of {', '.join(HOSTED_TOOLS)}; give other tools as functions"
    with pytest.raises(DeclarationError, match=message):
        build(Settings(), EmbeddedEngine(), tools=ToolServers({"dice": "http://127.0.0.1/mcp"}))


COMMAND = "only `interlock serve` uses it; leave it out"
PLUGIN = "only the vLLM plugin uses it; leave it out"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        *[({name: value}, COMMAND) for name, value in {"port": 9000, "model": ("m",), "upstream": "http://a", "rate": 5}.items()],
        ({"required": True}, PLUGIN),
    ],
    ids=str,
)
def test_an_application_refuses_settings_that_it_does_not_use(settings, reason) -> None:
    with pytest.raises(SettingsError) as refused:
        build(Settings(**settings), EmbeddedEngine())
    (name,) = settings
    assert str(refused.value) == f"{name}: {reason}"


def test_a_store_replaces_that_of_the_settings_and_is_no_url() -> None:
    with pytest.raises(SettingsError) as refused:
        build(Settings(max_stored=5), EmbeddedEngine(), store=open_store())
    assert str(refused.value) == "max_stored: build got 'store', which replaces it; leave it out"
    with pytest.raises(DeclarationError) as declared:
        build(Settings(), EmbeddedEngine(), store="sqlite:x.db")
    assert str(declared.value) == "build got the URL of a store: give it open_store(URL)"
