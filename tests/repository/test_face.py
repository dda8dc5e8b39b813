"""The public API: exported names exist and have docstrings, and a driver needs only a request."""

import ast
import importlib
import inspect
import re
import sys
from itertools import chain
from pathlib import Path

import attrs
import pytest

import interlock
from interlock import EndTurn, EventWriter, Finish, Open, Start, StreamEvent, Usage, driver_for, random_id
from interlock.events.json import as_json
from interlock.testing import assert_legal

FACES = [
    "interlock",
    "interlock.events",
    "interlock.fsm",
    "interlock.judges",
    "interlock.parsers",
    "interlock.serve",
    "interlock.testing",
]


def test_the_changelog_promises_the_names_of_every_public_package() -> None:
    promise = (Path(__file__).parents[2] / "CHANGELOG.md").read_text("utf-8").partition("## Versions")[2]
    assert [face for face in FACES if f"`{face}`" not in promise] == []


@pytest.mark.parametrize("face", FACES)
def test_every_exported_name_exists_and_is_listed_once(face) -> None:
    module = importlib.import_module(face)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert len(set(module.__all__)) == len(module.__all__)


@pytest.mark.parametrize("face", ["interlock", "interlock.fsm", "interlock.parsers", "interlock.testing"])
def test_type_checkers_see_the_lazily_imported_names(face) -> None:
    module = importlib.import_module(face)
    tree = ast.parse(Path(module.__file__).read_text())
    imports = [(node.module, alias.name) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names]
    visible = [_names_in(home) if name == "*" else [name] for home, name in imports]
    assert {*module.__all__} - {"__version__"} <= {*chain(*visible)}


def _names_in(home):
    """Return the names that `import *` imports."""
    module = importlib.import_module(home)
    return getattr(module, "__all__", dir(module))


@pytest.mark.parametrize("face", ["interlock", "interlock.fsm", "interlock.parsers", "interlock.testing"])
def test_an_unexported_name_raises_the_usual_attribute_error(face) -> None:
    with pytest.raises(AttributeError, match=re.escape(f"module '{face}' has no attribute 'import_modules'")):
        importlib.import_module(face).import_modules  # noqa: B018 - what is tested is the access


@pytest.mark.parametrize("face", ["interlock", "interlock.fsm", "interlock.parsers", "interlock.testing"])
def test_a_name_that_is_imported_late_is_searched_once(face) -> None:
    module = importlib.import_module(face)
    names = {*module.__all__}
    found = {name: getattr(module, name) for name in names}
    assert {name: vars(module)[name] for name in names} == found


def test_dir_lists_the_exported_names() -> None:
    assert dir(interlock) == sorted(interlock.__all__)


@pytest.mark.parametrize("face", FACES)
def test_every_exported_class_and_function_has_a_docstring(face) -> None:
    module = importlib.import_module(face)
    exported = [getattr(module, name) for name in module.__all__]
    assert [each for each in exported if (inspect.isclass(each) or inspect.isfunction(each)) and not inspect.getdoc(each)] == []


@pytest.mark.parametrize("face", FACES)
def test_the_constructor_of_an_exported_class_has_no_private_state(face) -> None:
    module = importlib.import_module(face)
    classes = [each for name in module.__all__ if attrs.has(each := getattr(module, name))]
    private = [(each, field.alias) for each in classes for field in attrs.fields(each) if field.init and field.name[0] == "_"]
    assert [f"{each.__name__}: {alias}" for each, alias in private if f"\n        {alias}: " not in str(each.__doc__)] == []


def test_the_import_error_of_serve_names_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "interlock.serving.build", None)
    monkeypatch.delitem(sys.modules, "interlock.serve", raising=False)
    with pytest.raises(
        ModuleNotFoundError, match=r"^interlock\.serve needs interlock\.serving\.build: pip install 'interlock\[serve\]'"
    ):
        importlib.import_module("interlock.serve")


def test_the_import_error_of_the_mock_names_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "interlock.serving.build", None)
    monkeypatch.delitem(sys.modules, "interlock.testing.mock", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"^the mock of interlock\.testing needs interlock\.serving\.build: pip "):
        importlib.import_module("interlock.testing.mock")


def test_driver_for_refuses_a_value_that_is_not_a_mapping() -> None:
    with pytest.raises(TypeError, match=r"^driver_for takes the body of a request, such as \{'model': 'my-model'\}, not 'hi'$"):
        driver_for("hi")


def test_the_repr_of_a_driver_has_its_state() -> None:
    driver = driver_for({}, response_id="resp_1")
    driver.feed([Start(), Open("function_call", {"name": "f"}), "{"])
    assert repr(driver) == "<ResponseDriver resp_1 in 'in_progress', function_call in 'in_progress', 4 events>"


def test_driver_for_returns_a_driver_with_random_ids_and_the_current_time() -> None:
    driver, other = driver_for({"model": "m", "temperature": 0.5}), driver_for({})
    frames = [
        *driver.feed([Start(), "Hello", Open("function_call", {"name": "now"})]),
        *driver.feed([EndTurn("stop", Usage(input_tokens=1, output_tokens=2)), Finish()]),
    ]
    assert_legal([*frames, interlock.DONE_FRAME], strict=True)
    assert driver.response["temperature"] == 0.5
    assert driver.response["id"] != other.response["id"]
    assert re.fullmatch(r"resp_[0-9a-f]{32}", driver.response["id"])
    assert driver.response["created_at"] > 1_700_000_000


def test_driver_for_accepts_a_writer_and_an_id() -> None:
    random = random_id("resp")
    driver = driver_for({}, writer=EventWriter(), response_id=random)
    (created, _) = driver.feed([Start()])
    assert isinstance(created, StreamEvent)
    assert as_json(created)["response"]["id"] == random
