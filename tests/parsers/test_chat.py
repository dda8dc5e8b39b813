from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recovery.notation import Item, answer, call, items, mcp, preamble, python, reasoning, run, search

from interlock.fsm.deltas import Close, EndTurn, Open, Refusal, Text, Usage
from interlock.parsers import ChatParser, Chunk, Routing

ROUTING = Routing.from_request(
    {
        "tools": [
            {"type": "function", "name": "f"},
            {"type": "custom", "name": "patch"},
            {"type": "namespace", "name": "crm", "tools": [{"type": "function", "name": "get"}]},
            {"type": "mcp", "server_label": "files"},
        ]
    }
)


def tool(index, arguments="", name=None, call_id=None):
    return {"tool_calls": [{"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}]}


def read(*deltas, reason="stop", **settings):
    return items(run(ChatParser(ROUTING, **settings), [Chunk([1], delta=delta) for delta in deltas], reason))


def test_reasoning_content_and_a_call_are_three_items():
    assert read({"reasoning": "a"}, {"reasoning": "b"}, {"content": "c"}, tool(0, "{}", "f", "call_1")) == [
        reasoning("ab"),
        answer("c"),
        Item("function_call", "{}", {"name": "f", "call_id": "call_1"}),
    ]


@pytest.mark.parametrize("kind", [[], {}, 7, None])
def test_a_content_part_with_an_invalid_type_is_text(kind):
    assert read({"content": [{"type": kind, "text": "a"}]}) == [answer("a")]


def test_several_fields_in_one_delta_are_taken_in_order():
    delta = {"reasoning": "a", "content": "b", **tool(0, "{}", "f")}
    assert read(delta) == [reasoning("a"), answer("b"), call("f", "{}")]


def test_objects_may_have_the_old_field_reasoning_content():
    function = SimpleNamespace(name="f", arguments="{}")
    deltas = [
        SimpleNamespace(reasoning_content="a", content=None, tool_calls=[]),
        SimpleNamespace(content=None, tool_calls=[SimpleNamespace(index=0, id=None, function=function)]),
    ]
    assert read(*deltas) == [reasoning("a"), call("f", "{}")]


def as_vllm_delta(delta):
    """A delta as an object that has every field."""
    calls = [SimpleNamespace(**{**call, "function": SimpleNamespace(**call["function"])}) for call in delta.get("tool_calls", ())]
    return SimpleNamespace(reasoning=delta.get("reasoning"), content=delta.get("content"), tool_calls=calls)


def test_deltas_may_be_mappings_or_objects():
    fragments = [{"reasoning": "a"}, {"reasoning": "b"}, {"content": "c"}, {"content": "d"}]
    fragments += [tool(0, "{", "f"), tool(0, '"a":'), tool(0, "1}"), tool(1, "{", "g"), tool(1, "}")]
    deltas = [
        run(ChatParser(ROUTING), [Chunk([1], delta=shape(fragment)) for fragment in fragments], "stop")
        for shape in (dict, as_vllm_delta)
    ]
    assert deltas[0] == deltas[1]
    assert deltas[1][-1] == EndTurn("stop", Usage(output_tokens=9, reasoning_tokens=2))
    assert items(deltas[1]) == [reasoning("ab"), answer("cd"), call("f", '{"a":1}'), call("g", "{}")]


def test_a_call_streams_its_arguments():
    parser = ChatParser(ROUTING)
    assert parser.feed(Chunk(delta=tool(0, "", "f"))) == [Open("function_call", {"name": "f"})]
    assert parser.feed(Chunk(delta=tool(0, '{"a"'))) == ['{"a"']
    assert parser.feed(Chunk(delta=tool(0, ":1}"))) == [":1}"]
    assert parser.feed(Chunk(delta=tool(1, "", "g"))) == [Close(), Open("function_call", {"name": "g"})]


def test_a_fragment_with_the_id_of_an_open_call_belongs_to_it_at_any_index():
    first = tool(0, '{"a"', "f", "call_1")
    complete = [Item("function_call", '{"a": 1}', {"name": "f", "call_id": "call_1"})]
    assert read(first, tool(1, ": 1}", None, "call_1")) == complete
    assert read(first, tool(1, ": 1", "f", "call_1"), tool(1, "}", None, "call_1")) == complete
    other = Item("function_call", "{}", {"name": "g", "call_id": "call_1"})
    assert read(tool(0, "{}", "f", "call_1"), tool(1, "{}", "g", "call_1"))[1] == other


def test_interleaved_calls_become_one_item_each():
    assert read(
        tool(0, '{"a"', "f"),
        tool(1, '{"b"', "g"),
        {"content": "c"},
        tool(0, ":1"),
        tool(1, ":2}"),
        tool(0, "}"),
        {"content": "d"},
    ) == [call("f", '{"a":1}'), call("g", '{"b":2}'), answer("cd")]


def test_incomplete_calls_are_written_at_the_end():
    assert read(tool(0, '{"a}', "f"), tool(1, "", "g"), tool(2, '{"c', "h"), reason="length") == [
        call("f", '{"a}'),
        call("g", ""),
        call("h", '{"c', ""),
    ]


@pytest.mark.parametrize(
    ("name", "arguments", "left"),
    [
        ("f", '{"s": "a', call("f", '{"s": "a', "")),
        ("f", "no JSON", call("f", "no JSON")),
        ("f", "", call("f", "")),
        ("patch", '{"input": "a', Item("custom_tool_call", "a", {"name": "patch"}, "")),
        ("", '{"s": ', preamble('{"s": ')),
    ],
)
def test_a_turn_that_stops_inside_arguments_is_cut(name, arguments, left):
    deltas = run(ChatParser(ROUTING), [Chunk([1], delta=tool(0, "{}", "g")), Chunk([1], delta=tool(1, arguments, name))])
    assert items(deltas) == [call("g", "{}"), left]
    assert deltas[-1] == EndTurn("stop" if left.ending else "cut", Usage(output_tokens=2))


@pytest.mark.parametrize(("reason", "ending"), [("stop", "stop"), ("tool_calls", "stop"), ("length", "length"), ("cut", "error")])
def test_a_call_that_breaks_off_before_another_fails_the_turn_only_if_the_turn_is_cut(reason, ending):
    parser = ChatParser(ROUTING)
    deltas = run(parser, [Chunk([1], delta=tool(0, '{"s":"B', "f")), Chunk([1], delta=tool(1, "{}", "g"))], reason)
    assert items(deltas)[0] == call("f", '{"s":"B')
    assert deltas[-1] == EndTurn(ending, Usage(output_tokens=2))
    assert parser.recoveries == ({} if reason == "length" else {("chat", "cut_call"): 1})


@pytest.mark.parametrize("arguments", ['{"s": "B",}', "{s: 5}", '{"s": nulx', '{"s": 5} {'])
def test_broken_arguments_are_those_of_a_complete_call_wherever_they_are(arguments):
    broken, whole = tool(0, arguments, "f"), tool(1, "{}", "g")
    assert read(broken, whole) == [call("f", arguments), call("g", "{}")]
    assert read(broken) == [call("f", arguments)]


def test_a_call_may_have_its_arguments_and_id_before_its_name():
    assert read(tool(0, '{"a"'), tool(0, "", None, "call_1"), tool(0, ":1}", "f"), tool(0, "", "f", "call_1")) == [
        Item("function_call", '{"a":1}', {"name": "f", "call_id": "call_1"})
    ]


def test_a_call_without_a_name_is_a_message():
    assert read(tool(0, '{"a":1}'), {"content": "b"}) == [preamble('{"a":1}'), answer("b")]


def test_arguments_after_a_call_was_closed_are_a_message():
    assert read(tool(0, "{}", "f"), {"content": "b"}, tool(0, " "), tool(0, "more")) == [
        call("f", "{}"),
        answer("b"),
        preamble("more"),
    ]


def test_another_id_on_the_same_index_is_another_call():
    assert [item.fields["call_id"] for item in read(tool(0, "{}", "f", "call_1"), tool(0, "{}", "f", "call_2"))] == [
        "call_1",
        "call_2",
    ]


def test_names_distinguish_calls_without_an_index():
    assert read(tool(None, "{", "f"), tool(None, "}"), tool(None, "{}", "g")) == [call("f", "{}"), call("g", "{}")]


def test_arguments_may_be_an_object():
    assert read(tool(0, {"a": 1}, "f")) == [call("f", '{"a":1}')]


def test_white_space_is_kept_only_inside_a_message():
    assert read({"reasoning": "a"}, {"content": "\n\n"}, tool(0, "{", "f"), {"content": "\n"}, tool(0, "}")) == [
        reasoning("a"),
        call("f", "{}"),
    ]
    assert read({"reasoning": "a"}, {"content": "\n\n"}, {"content": "b\n"}, {"content": "\n"}, {"content": "c"}) == [
        reasoning("a"),
        answer("\n\nb\n\nc"),
    ]


def test_white_space_between_two_pieces_of_reasoning_is_dropped():
    assert read({"reasoning": "a"}, {"content": "\n"}, {"reasoning": "b"}, {"content": "c"}) == [reasoning("ab"), answer("c")]


def test_excluded_reasoning_is_counted():
    parser = ChatParser(ROUTING, include_reasoning=False)
    deltas = run(parser, [Chunk([1, 2], delta={"reasoning": "a"}), Chunk([3], delta={"content": "b"})], "length")
    assert deltas == [
        Open("message", {"phase": "final_answer"}),
        "b",
        EndTurn("length", Usage(output_tokens=3, reasoning_tokens=2)),
    ]
    for reason in ("stop", "length"):
        assert read({"content": "a"}, {"reasoning": "b"}, include_reasoning=False, reason=reason) == [answer("a")]


def test_a_given_counter_counts_the_reasoning_tokens_of_the_whole_turn():
    parser = ChatParser(ROUTING, count=lambda ids: len([token for token in ids if token < 5]))
    chunks = [Chunk([1, 2], delta={"reasoning": "a"}), Chunk([3, 9]), Chunk([8], delta={"content": "b"})]
    assert run(parser, chunks)[-1] == EndTurn("stop", Usage(output_tokens=5, reasoning_tokens=3))
    assert run(parser, chunks[2:])[-1] == EndTurn("stop", Usage(output_tokens=1))


def test_the_tokens_of_a_chunk_are_divided_between_reasoning_and_content():
    parser = ChatParser(ROUTING)
    deltas = run(parser, [Chunk([1, 2, 3, 4], delta={"reasoning": "aa", "content": "b", **tool(0, "c", "f")})])
    assert deltas[-1] == EndTurn("stop", Usage(output_tokens=4, reasoning_tokens=2))


def test_function_names_select_namespaces_and_hosted_tools():
    assert read(
        tool(0, "{}", "crm__get", "call_1"),
        tool(1, '{"input": "a\\nb"}', "patch"),
        tool(2, '{"code": "1+1"}', "python", "call_2"),
        tool(3, '{"query": "Rome"}', "browser.search"),
        tool(4, "{}", "mcp.files.list", "call_3"),
        tool(5, "{", "browser.open"),
    ) == [
        Item("function_call", "{}", {"name": "get", "namespace": "crm", "call_id": "call_1"}),
        Item("custom_tool_call", "a\nb", {"name": "patch"}),
        python("1+1"),
        search({"type": "search", "query": "Rome"}),
        mcp("files", "list", "{}"),
        search({"type": "search", "query": "{"}, "Reject"),
    ]


def test_text_deltas_have_the_log_probabilities_of_their_tokens():
    def entry(token):
        return {"token": token, "logprob": -1.0}

    parser = ChatParser(ROUTING)
    tokens = ["Hm", "</think>", "\n\n", "It", " is", "<tool_call>"]
    deltas = [{"reasoning": "Hm"}, None, {"content": "\n\n"}, {"content": "It"}, {"content": " is"}, tool(0, "{}", "f")]
    chunks = [Chunk([1], logprobs=[entry(token)], delta=delta) for token, delta in zip(tokens, deltas, strict=True)]
    assert run(parser, chunks)[:6] == [
        Open("reasoning"),
        "Hm",
        Close(),
        Open("message", {"phase": "final_answer"}),
        Text("\n\nIt", [entry("\n\n"), entry("It")]),
        Text(" is", [entry(" is")]),
    ]


@pytest.mark.parametrize(
    "delta",
    [None, {}, {"role": "assistant"}, {"content": 3, "tool_calls": "x"}, {"tool_calls": [None, {"index": 0}, {"function": 7}]}],
)
def test_deltas_without_content_are_ignored(delta):
    assert read(delta) == []


@pytest.mark.parametrize("delta", [7, {"choices": [{"delta": {"content": "a"}}]}, SimpleNamespace(text="a")])
def test_a_value_without_any_field_of_a_delta_is_an_error(delta):
    with pytest.raises(ValueError, match="a chunk of the format 'chat' needs a delta with one of content, role"):
        read(delta)


def test_a_refusal_is_a_message_of_its_own():
    deltas = run(ChatParser(ROUTING), [Chunk([1], delta={"refusal": text}) for text in (" ", "I ", "cannot.")])
    assert deltas == [
        Open("message", {"phase": "final_answer"}),
        Refusal(" I "),
        Refusal("cannot."),
        Close(),
        EndTurn("stop", Usage(output_tokens=3)),
    ]


def test_reasoning_may_be_a_part_of_the_content():
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    parts = [thinking, {"type": "thinking", "thinking": "c"}, {"type": "text", "text": "d"}]
    assert read({"content": parts}, {"content": []}) == [reasoning("abc"), answer("d")]
    assert read({"content": parts[1:], "reasoning": "b"}) == [reasoning("bc"), answer("d")]


def test_an_object_may_have_fields_that_vllm_lacks():
    fields = {"reasoning": None, "content": None, "tool_calls": None}
    assert read(SimpleNamespace(**fields, reasoning_content="a"), SimpleNamespace(**fields, role="assistant")) == [reasoning("a")]


@pytest.mark.parametrize("shape", [dict, lambda fields: SimpleNamespace(**fields)])
def test_a_delta_may_have_all_fields_at_once(shape):
    old = {"name": "g", "arguments": "{}"}
    fields = {"reasoning": "a", "content": "b", "refusal": "c", "function_call": old, **tool(1, "{}", "f")}
    deltas = run(ChatParser(ROUTING), [Chunk([1], delta=shape(fields))])
    texts = [delta.text if isinstance(delta, Refusal) else delta for delta in deltas]
    assert items(texts) == [reasoning("a"), answer("b"), answer("c"), call("f", "{}"), call("g", "{}")]


def test_the_beginning_of_a_server_label_is_not_a_complete_name():
    assert read(tool(0, "", "fil"), tool(0, "", "es__list"), tool(0, "{}")) == [mcp("files", "list", "{}")]


@pytest.mark.parametrize("reason", ["tool_calls", "function_call"])
def test_the_old_field_function_call_is_a_call(reason):
    deltas = [{"function_call": {"name": "f", "arguments": ""}}, {"function_call": {"arguments": "{}"}}]
    assert read(*deltas, reason=reason) == [call("f", "{}")]


@pytest.mark.parametrize(
    "fragments",
    [
        (tool(0, "", "get", "call_1"), tool(0, "", "_weather"), tool(0, "{}")),
        (tool(None, "", "get", "call_1"), tool(None, "", "_weather"), tool(None, "{}")),
        (tool(0, "", "get", "call_1"), tool(0, "", "get"), tool(0, "", "_weather", "call_1"), tool(0, "{}", "get_weather")),
        (tool(0, "", "get_weather", "call_1"), tool(0, "{", "get_weather", "call_1"), tool(0, "}", "get_weather", "call_1")),
    ],
)
def test_a_name_may_be_split_or_repeated(fragments):
    routing = Routing.from_request({"tools": [{"type": "function", "name": name} for name in ("get", "get_weather")]})
    assert items(run(ChatParser(routing), [Chunk([1], delta=fragment) for fragment in fragments])) == [
        Item("function_call", "{}", {"name": "get_weather", "call_id": "call_1"})
    ]


def test_the_name_of_a_hosted_tool_may_be_split():
    parser = ChatParser(Routing.from_request({"tools": [{"type": "code_interpreter"}]}))
    fragments = [tool(0, "", "py", "call_1"), tool(0, "", "thon"), tool(0, '{"code":"1"}')]
    assert items(run(parser, [Chunk(delta=fragment) for fragment in fragments])) == [Item("code_interpreter_call", "1", {})]


def test_a_prefix_of_a_longer_name_is_a_name_when_its_call_ends():
    routing = Routing.from_request({"tools": [{"type": "function", "name": name} for name in ("get", "get_weather")]})
    parser = ChatParser(routing)
    deltas = [parser.feed(Chunk(delta=tool(index, "", "get"))) for index in (0, 1)]
    assert deltas == [[], [Open("function_call", {"name": "get"})]]
    assert items([*deltas[1], *parser.end("stop", Usage())]) == [call("get", ""), call("get", "")]


def test_complete_calls_may_all_have_the_index_0():
    assert read(tool(0, "{}", "f"), tool(0, '{"a":1}', "f"), tool(0, "{}", "g")) == [
        call("f", "{}"),
        call("f", '{"a":1}'),
        call("g", "{}"),
    ]


def test_fragments_without_an_index_belong_to_the_call_with_their_id():
    fragments = [tool(None, "{", "f", "call_1"), tool(None, "}", "f", "call_1"), tool(None, "{}", "g", "call_2")]
    assert [(item.fields["call_id"], item.text) for item in read(*fragments)] == [("call_1", "{}"), ("call_2", "{}")]


DELTA = st.one_of(
    st.tuples(st.sampled_from(["reasoning", "content"]), st.sampled_from(["a", "b ", "\n", " ", ""])).map(
        lambda pair: dict([pair])
    ),
    st.builds(
        tool,
        st.sampled_from([0, 1, 2, None]),
        st.sampled_from(["", "{", "}", '"x":1', "{}", " "]),
        st.sampled_from([None, "f", "g", "patch", "browser.search", ""]),
        st.sampled_from([None, "call_1", "call_2"]),
    ),
)


@given(st.lists(DELTA, max_size=12), st.sampled_from(["stop", "length"]))
def test_random_deltas_give_well_bracketed_items_with_all_text(deltas, reason):
    plain = Routing()
    seen = run(ChatParser(plain), [Chunk([1], delta=delta) for delta in deltas], reason)
    text = "".join(
        [str(delta.get("reasoning", "")) + str(delta.get("content", "")) for delta in deltas]
        + [each["function"]["arguments"] for delta in deltas for each in delta.get("tool_calls", [])]
    )
    written = "".join([item.text for item in items(seen)] + [delta.text for delta in seen if isinstance(delta, Open)])
    assert sorted("".join(text.split())) == sorted("".join(written.split()))


@pytest.mark.parametrize("then", [tool(0, "{}", "f"), None])
def test_text_that_ends_inside_a_token_waits_until_its_item_ends(then):
    def scored(token, delta):
        return Chunk([1], logprobs=[{"token": token, "bytes": list(token.encode()), "logprob": -1.0}], delta=delta)

    deltas = run(ChatParser(ROUTING), [scored("ab", {"content": "a"}), scored("cd<", {"content": "bcd"}), Chunk([], delta=then)])
    part = {"token": "cd", "bytes": list(b"cd"), "logprob": -1.0, "top_logprobs": []}
    assert deltas[:4] == [
        Open("message", {"phase": "final_answer"}),
        Text("ab", [{"token": "ab", "bytes": list(b"ab"), "logprob": -1.0}]),
        Text("cd", [part]),
        Close(),
    ]
