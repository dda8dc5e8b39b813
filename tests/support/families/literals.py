"""The cases of literals: a text in a notation, its JSON, and the text where reading ends, with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from attrs import evolve, frozen
from table_mutations import changes

from interlock.fsm.table import DeclarationError, Edge, Table
from interlock.parsers.families.literals import (
    ELEMENTS,
    FUNCTION_GEMMA,
    GEMMA,
    LITERALS,
    PYTHON,
    LiteralPart,
    LiteralReader,
    LiteralStep,
    Notation,
)
from interlock.parsers.families.parameter_values import Schema

STOP: Final = "<end>"
"""The marker that ends the literals of the cases."""
_M: Final = ELEMENTS.namespace


@frozen
class LiteralCase:
    """A literal, its JSON, the text where reading ends, and why: it is `ended`, `broken`, at a `marker`, or incomplete.

    `stray` is the text between its elements, for a message after the call.
    """

    notation: Notation
    text: str
    json: str
    rest: str = ""
    stop: str = "ended"
    schema: Mapping[str, object] = {}
    stray: str = ""

    def holds(self, table: Table[LiteralPart, LiteralStep] = LITERALS) -> bool:
        """Return whether a table reads it correctly, at once and letter by letter."""
        return all(self._read(table, size) == (self.json, self.rest, self.stop, self.stray) for size in (len(self.text), 1))

    def _read(self, table: Table[LiteralPart, LiteralStep], size: int) -> tuple[str, str, str, str]:
        reader = LiteralReader(self.notation, frozenset({STOP}), Schema(self.schema, self.schema), table.states[table.initial])
        out, text, stop = "", "", ""
        for start in range(0, len(self.text), size):
            text += self.text[start : start + size]
            json_text, at, stop = reader.read(text, 0, final=start + size >= len(self.text))
            out, text = out + json_text, text[at:]
            if stop:
                text += self.text[start + size :]
                break
        out += reader.end() if stop == "marker" else reader.spill()
        return out, text, stop, "".join(reader.stray)


def _objects(**properties: object) -> Mapping[str, object]:
    return {"type": "object", "properties": properties}


_LIST: Final = {"type": "array", "items": {"type": "integer"}}

CASES: Final[Sequence[LiteralCase]] = [
    # Python
    LiteralCase(PYTHON, "() x", "{}", " x"),
    LiteralCase(PYTHON, "( )", "{}"),
    LiteralCase(PYTHON, "(a=1,)", '{"a":1}'),
    LiteralCase(PYTHON, "( a = 1 , b = 'x' )", '{"a":1,"b":"x"}'),
    LiteralCase(PYTHON, "(\t\ta\t=\u30001,\r\n b=2)", '{"a":1,"b":2}'),
    LiteralCase(PYTHON, "(a=True,b=false,c=None,d=null)", '{"a":true,"b":false,"c":null,"d":null}'),
    LiteralCase(PYTHON, "(a=-1,b=- 2,c=+3,d=07,e=1_000,f=0x1F)", '{"a":-1,"b":-2,"c":3,"d":7,"e":1000,"f":31}'),
    LiteralCase(
        PYTHON, "(a=1.50,b=.5,c=2.,d=1e3,e=1e999,f=1.2.3)", '{"a":1.5,"b":0.5,"c":2.0,"d":1000.0,"e":"1e999","f":"1.2.3"}'
    ),
    LiteralCase(PYTHON, "(a=foo bar)", '{"a":"foo bar"}'),
    LiteralCase(PYTHON, "(a=[],b={},c=())", '{"a":[],"b":{},"c":[]}'),
    LiteralCase(PYTHON, "(a=[ 1 , 'x' , [2] , {'k':3} ,],b=(1,2))", '{"a":[1,"x",[2],{"k":3}],"b":[1,2]}'),
    LiteralCase(PYTHON, "(a={ 'k' : 1 , \"l\":[2] ,},b={1:2, x:3})", '{"a":{"k":1,"l":[2]},"b":{"1":2,"x":3}}'),
    LiteralCase(
        PYTHON, "(a='x\"y',b=\"it's\",c='''a'b\n\"''',d=\"\"\"e\"\"\")", '{"a":"x\\"y","b":"it\'s","c":"a\'b\\n\\"","d":"e"}'
    ),
    LiteralCase(PYTHON, r"(a='\n\t\\\'\x41\u00e9\U0001F600\101\N{DASH}\d')", '{"a":"\\n\\t\\\\\'Aé😀A\\\\N{DASH}\\\\d"}'),
    LiteralCase(PYTHON, r"(a='\N{EM DASH}\ud83d\ude00\ud83d\x4')", '{"a":"—😀\ufffd\\\\x4"}'),
    LiteralCase(PYTHON, "(a='x\\\ny\\\r\nz')", '{"a":"xyz"}'),
    LiteralCase(PYTHON, r"(a=r'\d',b=R'\'',c=f'{x}',d=u'\n',e='\n')", '{"a":"\\\\d","b":"\\\\\'","c":"{x}","d":"\\n","e":"\\n"}'),
    LiteralCase(PYTHON, r"(a={'\x41\'':1})", '{"a":{"A\'":1}}'),
    LiteralCase(PYTHON, "(key=1,other={'long key':2,ab:3})", '{"key":1,"other":{"long key":2,"ab":3}}'),
    LiteralCase(PYTHON, r"(a='\n<end>',b=r'<end>',c=['<end>'])", '{"a":"\\n<end>","b":"<end>","c":["<end>"]}'),
    LiteralCase(PYTHON, "(a='x\n\\n<end>'", '{"a":"x\\n\\n', "<end>'", "marker"),
    LiteralCase(PYTHON, "(a='x\ny<end>'", '{"a":"x\\ny', "<end>'", "marker"),
    LiteralCase(PYTHON, "(a='x\n', b", '{"a":"x\\n", b', "", ""),
    LiteralCase(PYTHON, "(a=['x', }", '{"a":["x", ', "}", "broken"),
    LiteralCase(PYTHON, "(a=['x', 1, <end>", '{"a":["x",1, ', "<end>", "marker"),
    LiteralCase(PYTHON, "(a=[ ],b=[[],[1,]],c= [1])", '{"a":[],"b":[[],[1]],"c":[1]}'),
    LiteralCase(PYTHON, "(a='x', =", '{"a":"x", ', "=", "broken"),
    LiteralCase(PYTHON, "(a='x\ny')", '{"a":"x\\ny"}'),
    LiteralCase(PYTHON, "(a='x\n<end>'", '{"a":"x\\n', "<end>'", "marker"),
    LiteralCase(PYTHON, "(a='x\ny\\nz\n<')", '{"a":"x\\ny\\nz\\n<"}'),
    LiteralCase(PYTHON, "(a='<end>')", '{"a":"<end>"}'),
    *(
        LiteralCase(PYTHON, f"(a=[1,{{'k':'v'}}{text}<end>", f'{{"a":[1,{{"k":"v"}}{text}', "<end>", "marker")
        for text in ("", " ", ", ")
    ),
    *(LiteralCase(PYTHON, f"({text}<end>", f"{{{text}", "<end>", "marker") for text in ("", " ", "a", "a ")),
    *(LiteralCase(PYTHON, f"(a={text}<end>", f'{{"a":{text}', "<end>", "marker") for text in ("", " ", "1", "1 ")),
    LiteralCase(PYTHON, "(a={'k<end>", '{"a":{\'k<end>', "", ""),
    LiteralCase(PYTHON, "(a={'k'<end>", "{\"a\":{'k'", "<end>", "marker"),
    LiteralCase(PYTHON, "(a=[<end>", '{"a":[', "<end>", "marker"),
    *(
        LiteralCase(PYTHON, f"(a=1, {text}", f'{{"a":1, {pending}', text.removeprefix(pending), "broken")
        for text, pending in (
            *(("=", ""), ("1,", "1"), ("b,", "b"), ("b)", "b"), ("b c", "b "), ("b:1", "b"), ("]", ""), ("}", ""), ("[", "")),
            *(("b[", "b"), ("b'", "b"), ("b 'c'", "b "), ("b [", "b "), ("'b' c", "'b' "), ("b (", "b ")),
        )
    ),
    *(
        LiteralCase(PYTHON, f"(a={text}", f'{{"a":{json_text}', text.removeprefix(pending), "broken")
        for text, json_text, pending in (
            *((")", "", ""), (",", "", ""), (" ]", " ", " "), ("1]", "1", "1"), ("1}", "1", "1"), ("x(1)", "x", "x")),
            *(("x'", "x", "x"), ("x [", "x ", "x "), ("'x' 'y'", '"x" ', "'x' "), ("'x'y", '"x"', "'x'"), ("'x'[", '"x"', "'x'")),
            *(("[1}", "[1", "[1"), ("[,", "[", "["), ("[}", "[", "["), ("[ 1 2}", "[ 1 2", "[ 1 2"), ("[1)", "[1", "[1")),
            *(
                ("{'a\nb'", "{'a", "{'a"),
                ("{'a'}", "{'a'", "{'a'"),
                ("{'a',", "{'a'", "{'a'"),
                ("{a=", "{a", "{a"),
                ("{'a'=", "{'a'", "{'a'"),
            ),
            *(("{k:}", '{"k":', "{k:"), ("{'k': }", '{"k": ', "{'k': "), ("{'k'b", "{'k'", "{'k'"), ("{'k':}", '{"k":', "{'k':")),
            *(("['x':", '["x"', "['x'"), ("[[1]}", "[[1]", "[[1]"), ("[1] x", "[1] ", "[1] ")),
        )
    ),
    LiteralCase(PYTHON, "(a=1", '{"a":1', "", ""),
    LiteralCase(PYTHON, "(a='x", '{"a":"x', "", ""),
    LiteralCase(PYTHON, "(a='x\\", '{"a":"x', "\\", ""),
    LiteralCase(PYTHON, "(a='x<e", '{"a":"x<e', "", ""),
    LiteralCase(PYTHON, "(a=1<e", '{"a":1', "<e", ""),
    # Gemma
    LiteralCase(GEMMA, '{s:<|"|>Ro"me\n<|"|>,n:5,b:true} x', '{"s":"Ro\\"me\\n","n":5,"b":true}', " x"),
    LiteralCase(
        GEMMA,
        '{t:12:30,u:New York ,o:{a:[1,<|"|>x<|"|>],<|"|>b c<|"|>:{}}}',
        '{"t":"12:30","u":"New York","o":{"a":[1,"x"],"b c":{}}}',
    ),
    LiteralCase(GEMMA, "{s:5,n:5,b:x}", '{"s":"5","n":5,"b":"x"}', schema=_objects(s={"type": "string"}, b={"type": "integer"})),
    LiteralCase(
        GEMMA, "{l:[5,6],m:[5]}", '{"l":["5","6"],"m":[5]}', schema=_objects(l={"type": "array", "items": {"type": "string"}})
    ),
    LiteralCase(GEMMA, '{s:<|"|>a\\n<end>b<|"', '{"s":"a\\\\n<end>b', '<|"', ""),
    LiteralCase(GEMMA, "{}<end>", "{}", "<end>"),
    LiteralCase(GEMMA, '(s:<|"|>a)<|"|>,n:(5)) x', '{"s":"a)","n":"(5"}', ") x"),
    LiteralCase(
        GEMMA,
        """{s:"has } and, \\"q\\"",t:'a, {b}',u:`c'd`,v:it's,"w":1}""",
        """{"s":"has } and, \\"q\\"","t":"a, {b}","u":"c'd","v":"it's","w":1}""",
    ),
    LiteralCase(GEMMA, '{s:"a\nb"}', '{"s":"a\\nb"}'),
    LiteralCase(GEMMA, '{s:"a\n<end>', '{"s":"a\\n', "<end>", "marker"),
    LiteralCase(GEMMA, '{a b :1, <|"|> c <|"|>:2,\td\te:3}', '{"a b":1," c ":2,"d\\te":3}'),
    LiteralCase(
        GEMMA,
        '{s:<|"|>a<|"|> n:1 , o:{p:[1] q:2}}',
        '{"s":"a","n":"1","o":{"p":[1],"q":2}}',
        schema=_objects(n={"type": "string"}),
    ),
    LiteralCase(GEMMA, "{l:[1] key 2:3}", '{"l":[1],"key 2":3}'),
    LiteralCase(GEMMA, '{s:<|"|>a<|"|> n}', '{"s":"a"n', "}", "broken"),
    LiteralCase(GEMMA, "{l:[[1] 2", '{"l":[[1] ', "2", "broken"),
    LiteralCase(GEMMA, '{s:a/b.png<|"|>,n:1}', '{"s":"a/b.png","n":1}'),
    LiteralCase(GEMMA, '{o:{l:[1,<|"|>a<|"|><end>', '{"o":{"l":[1,"a"]}}', "<end>", "marker"),
    LiteralCase(GEMMA, "{o:{n:5<end>", '{"o":{"n":5}}', "<end>", "marker"),
    LiteralCase(GEMMA, "{o:{n<end>", '{"o":{n', "<end>", "marker"),
    LiteralCase(GEMMA, "{o:{n:<end>", '{"o":{"n":', "<end>", "marker"),
    LiteralCase(FUNCTION_GEMMA, "{s:<escape>a<b<escape>,n:5}", '{"s":"a<b","n":5}'),
    # elements
    LiteralCase(ELEMENTS, f">\n{_M}<s> a\n<b {_M}</s>\n{_M}<n>5{_M}</n><end>", '{"s":" a\\n<b ","n":"5"}', "<end>", "marker"),
    LiteralCase(
        ELEMENTS,
        f">{_M}<n> 12{_M}</n>{_M}<e> {_M}</e>{_M}<l>{_M}</l>{_M}<o>\n{_M}</o>{_M}<b>5 {_M}</c>{_M}</b><end>",
        f'{{"n":12,"e":" ","l":[],"o":{{}},"b":"5 {_M}</c>"}}',
        "<end>",
        "marker",
        _objects(n={"type": "integer"}, l=_LIST, o={"type": "object"}),
    ),
    LiteralCase(
        ELEMENTS,
        f">{_M}<l>\n{_M}<x>1{_M}</x> {_M}<y>2{_M}</y>\n{_M}</l>{_M}<o>{_M}<item>3{_M}</item>{_M}</o><end>",
        '{"l":[1,2],"o":{"item":3}}',
        "<end>",
        "marker",
        _objects(l=_LIST, o={"type": "object"}),
    ),
    LiteralCase(
        ELEMENTS,
        f">{_M}<a>{_M}<item>{_M}<k>v{_M}</k>{_M}</item>{_M}<item>w{_M}</item>{_M}</a>{_M}<b>{_M}<c>{_M}</c>{_M}</b><end>",
        '{"a":[{"k":"v"},"w"],"b":{"c":""}}',
        "<end>",
        "marker",
    ),
    LiteralCase(
        ELEMENTS,
        f">{_M}<l>{_M}<l>{_M}<i>1{_M}</i>{_M}</l>{_M}</l><end>",
        '{"l":[[1]]}',
        "<end>",
        "marker",
        _objects(l={"type": "array", "items": _LIST}),
    ),
    LiteralCase(ELEMENTS, f">{_M}<a>{_M}<b>1{_M}</b><end>", '{"a":{"b":1', "<end>", "marker"),
    LiteralCase(ELEMENTS, f">{_M}<a> <end>", '{"a": ', "<end>", "marker"),
    LiteralCase(ELEMENTS, f">{_M}<a><end>", '{"a":', "<end>", "marker"),
    LiteralCase(ELEMENTS, f">{_M}<a>5<end>", '{"a":"5<end>', "", ""),
    LiteralCase(ELEMENTS, f">{_M}<n>5<end>", '{"n":5<end>', "", "", _objects(n={"type": "integer"})),
    LiteralCase(
        ELEMENTS,
        f">{_M}<n>12{_M}<a>{_M}</n><end>",
        f'{{"n":"12{_M}<a>"}}',
        "<end>",
        "marker",
        _objects(n={"type": "integer"}),
    ),
    LiteralCase(ELEMENTS, "x>", "", "x>", "broken"),
    LiteralCase(ELEMENTS, f">\n x{_M}<a>1{_M}</a> y <end>", '{"a":"1"}', "<end>", "marker", stray="\n x y "),
    LiteralCase(ELEMENTS, f">{_M}</a>", "{", f"{_M}</a>", "broken"),
    LiteralCase(ELEMENTS, f">{_M}<a> {_M}</b>", '{"a": ', f"{_M}</b>", "broken"),
    LiteralCase(ELEMENTS, f">{_M}<a>{_M}<b>{_M}</b>x y {_M}</a><end>", '{"a":{"b":""}}', "<end>", "marker", stray="x y "),
    LiteralCase(ELEMENTS, f">x {_M}</a>", "{", f"{_M}</a>", "broken", stray="x "),
    LiteralCase(ELEMENTS, f">{_M}<d>{_M}<e>3{_M}</e>y{_M}</d> {_M}<a>z", '{"d":{"e":3},"a":"z', "", "", stray="y"),
    LiteralCase(ELEMENTS, f">xy  {_M}<a>z", '{"a":"z', "", "", stray="xy  "),
    LiteralCase(
        ELEMENTS,
        f">{_M}<n>1{_M}</n> {_M}<a>{_M}</a> {_M}<b>{_M}<c>2{_M}</c>{_M}</b> {_M}<d>{_M}<e>3{_M}</e>y{_M}</d>z\n<end>",
        '{"n":1,"a":"","b":{"c":2},"d":{"e":3}}',
        "<end>",
        "marker",
        _objects(n={"type": "integer"}),
        stray="yz\n",
    ),
    LiteralCase(ELEMENTS, f">{_M}<", "{", f"{_M}<", ""),
    LiteralCase(ELEMENTS, f">{_M}<a>x{_M}</", '{"a":"x', f"{_M}</", ""),
]


@frozen
class LiteralMutation:
    """The table of literals with one edge changed."""

    edge: Edge[LiteralPart, LiteralStep]
    change: str
    edges: Sequence[Edge[LiteralPart, LiteralStep]]

    def __str__(self) -> str:
        return f"{self.edge.source}/{self.edge.trigger}: {self.change}"

    def fate(self) -> str:
        """Return whether its declaration is `refused`, a case has `caught` it, or it has `survived`."""
        try:
            table = Table(LITERALS.name, LITERALS.initial, self.edges, LITERALS.final, LiteralPart)
        except DeclarationError:
            return "refused"
        return "survived" if all(_holds(case, table) for case in CASES) else "caught"


def _holds(case: LiteralCase, table: Table[LiteralPart, LiteralStep]) -> bool:
    try:
        return case.holds(table)
    except Exception:  # noqa: BLE001 - whatever it is, it shows the change
        return False


def mutations() -> Iterator[LiteralMutation]:
    """Yield every change of the table; the rows of a state that break a literal change together."""
    for name in LITERALS.states.keys() - LITERALS.final:
        edges = [edge for edge in LITERALS.edges if edge.source == name]
        breaking = [edge for edge in edges if edge.dest == "broken"]
        for changed in (breaking, *([edge] for edge in edges if edge not in breaking)):
            others = [edge for edge in LITERALS.edges if edge not in changed]
            for change, to in changes(LITERALS, changed[0]):
                rows = [evolve(edge, trigger=each.trigger) for edge in to for each in changed] if "on " not in change else to
                yield LiteralMutation(changed[0], change, (*others, *rows))


ALIKE: Final[Mapping[str, frozenset[str]]] = {
    "Nothing is pending once it is written or dropped.": frozenset(
        {
            *(
                f"{state}/{part}: double SPILL"
                for state, part in (
                    *(("start", "list"), ("item", "elements"), ("value", "elements")),
                    *(
                        (state, "object")
                        for state in ("member", "key", "quoted key", "keyed", "word", "after", "aside", "element")
                    ),
                )
            ),
            "aside/object: drop SPILL",
            "after/next key: double DROP",
        }
    ),
    "Nothing is pending at the start.": frozenset({"start/list: drop SPILL"}),
    "Where no sign ends a literal, `LiteralReader.end` closes all that is open.": frozenset(
        f"aside/end: {change}" for change in ("drop CLOSE", *(f"go to {other}" for other in LITERALS.states if other != "end"))
    ),
    "In a string, every part has a row.": frozenset(
        f"{state}/object: {change}"
        for state in ("string", "torn_string")
        for change in ("drop SPILL", "double SPILL", *(f"go to {other}" for other in LITERALS.states if other != "broken"))
    ),
}
"""Equivalent changes of the table, by the reason."""
