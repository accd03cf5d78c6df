"""The grammar of configuration files, its bounds, and that only ConfigError ever comes out."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sweeps import sweep

from thoroughness import some
from tradewind.errors import ConfigError
from tradewind.server.config import grammar
from tradewind.server.config.grammar import parse_file
from tradewind.server.config.tree import (
    ConfigNode,
    digest,
    parse_size_text,
)


def plain(value: Any) -> Any:
    if isinstance(value, ConfigNode):
        return plain(value.value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def tree_of(text: str, environ: Mapping[str, str]) -> dict[str, ConfigNode]:
    """The tree of a file with this text."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("test.conf").write_bytes(text.encode())
        return parse_file("test.conf", environ)


def parse(text: str, **environ: str) -> Any:
    return plain(tree_of(text, environ))


def error_of(text: str, **environ: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse(text, **environ)
    return caught.value


@pytest.mark.parametrize(
    "text",
    ["a: 1\nb: 2", "a = 1; b = 2", "a 1, b 2", "{a: 1, b: 2}", '{"a": 1, "b": 2}', "a\n1\nb:2}"],
)
def test_all_separators_and_terminators_mean_the_same(text: str) -> None:
    assert parse(text) == {"a": 1, "b": 2}


@sweep(
    ("word", "value"),
    [
        ("12", 12),
        ("-1", -1),
        ("1k", 1000),
        ("1kb", 1024),
        ("1Ki", 1024),
        ("1KiB", 1024),
        ("3m", 3_000_000),
        ("3MB", 3 * 2**20),
        ("2g", 2 * 10**9),
        ("2gib", 2 * 2**30),
        ("1tb", 2**40),
        ("1pb", 2**50),
        ("1e", 10**18),
        ("1.5", 1.5),
        ("-0.25", -0.25),
        ("yes", True),
        ("ON", True),
        ("off", False),
        ("truth", "truth"),
        ("10s", "10s"),
        ("4222a", "4222a"),
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1:4222", "127.0.0.1:4222"),
        ("2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("a:b=c", "a:b=c"),
        ('a"b', 'a"b'),
        ("a#b", "a#b"),
        (r"a\tb", "a\tb"),
        ("$2a$11$abc", "$2a$11$abc"),
        ("'$HOME'", "$HOME"),
        ("'a\\n'", "a\\n"),
        (r'"a\x41\n\r\t\"\\"', 'aA\n\r\t"\\'),
        (r'"\xe2\x82\xac"', "€"),
        ('"two\nlines"', "two\nlines"),
        ("(\nfirst )\n  second\n)\n", "\nfirst )\n  second\n"),
        ("[]", []),
        ("[1, 'a', [true]]", [1, "a", [True]]),
        ("[1\n2\n# three\n3,\n]", [1, 2, 3]),
        ("{}", {}),
        ("{ b: {c: [ {d: 1} {} ] } }".replace("} {}", "}\n{}"), {"b": {"c": [{"d": 1}, {}]}}),
    ],
)
def test_value(word: str, value: object) -> None:
    assert parse(f"key: {word}") == {"key": value}
    assert type(parse(f"key: {word}")["key"]) is type(value)


def test_comments_are_skipped_wherever_an_item_may_stand() -> None:
    text = "# one\n{ // two\na: 1 # three\n# four\nb: [ // five\n 2 # six\n] }// seven"
    assert parse(text) == {"a": 1, "b": [2]}


def test_a_value_may_begin_on_the_next_line_only_inside_a_block() -> None:
    assert parse("a: { b:\n1 }") == {"a": {"b": 1}}
    assert "has no value" in error_of("a:\n1").text


def test_the_last_of_a_repeated_key_wins() -> None:
    assert parse("a: 1\na: 2") == {"a": 2}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a", 1, "has no value"),
        ("a: 1\nb:", 2, "has no value"),
        ("a: 1 2", 1, "quote values that contain spaces"),
        ("a: 1\n: 2", 2, "expected a key"),
        ("a: 'x", 1, "missing '"),
        ('a: 1\n\nb: "x\n', 3, 'missing "'),
        ("a: (x", 1, "missing a line with only ')'"),
        ("a: {\nb: 1", 1, "missing '}'"),
        ("a: 1\n{ b: 2", 2, "missing '}'"),
        ("a: [1", 1, "missing ']'"),
        ("a: [1 2]", 1, "expected ',' or ']'"),
        ("a: [1,,2]", 1, "unexpected ','"),
        ("a: {b: 1,, c: 2}", 1, "unexpected ','"),
        ("a: 1\n}}", 2, "unexpected '}'"),
        ("block{a: 1}", 1, "put a space"),
        (r'a: "\q"', 1, "unknown escape"),
        (r'a: "\xZZ"', 1, "two hexadecimal digits"),
        (r'a: "\xff"', 1, "UTF-8"),
        ("a: it's", 1, "quote all of it"),
        ("a: -x", 1, "quote it"),
        ("a: .5", 1, "quote it"),
        ("a: 1.", 1, "quote it"),
        ("a: 2026-01-02", 1, "quote it"),
        ("a: 2026-13-02T00:00:00Z", 1, "no such date"),
        ("a: 99999999999999999999", 1, "64 bits"),
        ("a: 9e\nb: 10e", 2, "64 bits"),
        ("a: $NOPE", 1, "'$NOPE' is not defined"),
        ("a: $b, b: 1", 1, "not defined"),
        ("include", 1, "name of a file"),
        ("include missing.conf", 1, "cannot read"),
    ],
)
def test_mistake_is_named_with_its_line(text: str, line: int, words: str) -> None:
    error = error_of(text)
    assert (error.path, error.line) == ("test.conf", line)
    assert words in error.text


@pytest.mark.parametrize(
    "text",
    ["password: $ecret-text", "token: $ecret-text", "password: ecret-text x", "pass: 'ecret-text"],
)
def test_a_mistyped_password_is_not_repeated(text: str) -> None:
    assert "ecret-text" not in str(error_of(text))


def test_a_password_from_the_environment_is_not_repeated() -> None:
    assert "s3cret" not in str(error_of("password: $PASS", PASS="s3cret x"))


# -- variables


def test_variables_are_found_from_the_inside_out() -> None:
    text = "x: 1\nouter: { x: 2, inner: { y: $x }, x: 3 }\nz: $x"
    assert parse(text) == {"x": 1, "outer": {"x": 3, "inner": {"y": 2}}, "z": 1}


def test_a_variable_may_be_a_block_or_a_list() -> None:
    assert parse("x: {a: [1]}\ny: $x\nz: [$x, $x]")["z"] == [{"a": [1]}, {"a": [1]}]


def test_variables_are_case_sensitive() -> None:
    assert "not defined" in error_of("Name: 1\na: $name").text


def test_a_used_variable_is_marked_and_others_are_not() -> None:
    root = tree_of("x: 1\ny: 2\nz: $x", {})
    assert (root["x"].used, root["y"].used, root["z"].used) == (True, False, False)


@pytest.mark.parametrize(
    ("value", "result"),
    [("5", 5), ("'5'", "5"), ("1kb", 1024), ("[a, b]", ["a", "b"]), ("", ""), ("$OTHER", True)],
)
def test_the_environment_is_read_as_configuration(value: str, result: object) -> None:
    assert parse("a: $NAME", NAME=value, OTHER="yes") == {"a": result}


def test_the_file_comes_before_the_environment() -> None:
    assert parse("x: 1\na: $x", x="2")["a"] == 1


def test_environment_variables_that_refer_to_each_other_are_refused() -> None:
    assert "refers to itself" in error_of("a: $X", X="$Y", Y="$X").text
    chain = {f"V{index}": f"$V{index + 1}" for index in range(100)}
    assert "refers to itself" in error_of("a: $V0", **chain).text


# -- includes


def write(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def test_includes_are_relative_to_the_including_file(tmp_path: Path) -> None:
    write(tmp_path / "sub" / "two.conf", "include '../three.conf'\nb: $c")
    write(tmp_path / "three.conf", "c: 3")
    main = write(tmp_path / "one.conf", "a: 1\ninclude sub/two.conf; d: $b")
    root = parse_file(main, {})
    assert plain(root) == {"a": 1, "b": 3, "c": 3, "d": 3}
    assert root["c"].path.endswith("three.conf")


def test_include_inside_a_block_and_with_an_absolute_path(tmp_path: Path) -> None:
    other = write(tmp_path / "other.conf", "{ user: a }")
    main = write(tmp_path / "main.conf", f'block {{ include "{other}", x: 1 }}')
    assert plain(parse_file(main, {})) == {"block": {"user": "a", "x": 1}}


def test_an_included_file_does_not_see_the_variables_around_it(tmp_path: Path) -> None:
    write(tmp_path / "other.conf", "b: $a")
    main = write(tmp_path / "main.conf", "a: 1\ninclude other.conf")
    with pytest.raises(ConfigError, match=r"other\.conf:1: .*not defined"):
        parse_file(main, {})


def test_a_file_that_includes_itself_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "b.conf", "include a.conf")
    main = write(tmp_path / "a.conf", "x: 1\ninclude b.conf")
    with pytest.raises(ConfigError, match=r"b\.conf:1: .*includes itself"):
        parse_file(main, {})


def test_include_depth_and_count_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in range(grammar.INCLUDE_DEPTH_MAX + 1):
        write(tmp_path / f"{index}.conf", f"include '{index + 1}.conf'")
    with pytest.raises(ConfigError, match="too many includes"):
        parse_file(str(tmp_path / "0.conf"), {})
    monkeypatch.setattr(grammar, "INCLUDE_COUNT_MAX", 5)
    write(tmp_path / "leaf.conf", "a: 1")
    main = write(tmp_path / "main.conf", "include leaf.conf\n" * 10)
    with pytest.raises(ConfigError, match="too many includes"):
        parse_file(main, {})


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"a: 1\nb: \xff", r"x\.conf:2: byte 0xff"), (b" " * 101, "larger than 100 bytes")],
)
def test_a_file_that_is_not_text_or_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, words: str
) -> None:
    monkeypatch.setattr(grammar, "BYTES_MAX", 100)
    path = tmp_path / "x.conf"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        parse_file(str(path), {})


def test_a_folder_or_a_missing_file_is_refused(tmp_path: Path) -> None:
    for name in (str(tmp_path), str(tmp_path / "none"), "a\0b"):
        with pytest.raises(ConfigError, match="cannot read"):
            parse_file(name, {})


# -- bounds


@pytest.mark.parametrize("opening", ["[", "{a:", "[{a: "])
def test_nesting_is_bounded(opening: str) -> None:
    assert "nested more than" in error_of("a: " + opening * 100_000).text


def test_variables_cannot_multiply_the_size_of_a_file() -> None:
    doublings = "".join(f"a{index + 1}: [$a{index}, $a{index}]\n" for index in range(60))
    assert "more than" in error_of("a0: x\n" + doublings).text


def test_variables_cannot_nest_deeper_than_blocks_may() -> None:
    steps = "".join(f"a{index + 1}: [$a{index}]\n" for index in range(grammar.NESTING_MAX + 5))
    assert "levels" in error_of("a0: x\n" + steps).text


@pytest.mark.slow
def test_a_large_file_is_parsed_in_linear_time() -> None:
    text = "key: { " + "\n".join(f"a{index}: [1, 'b', {{c: d}}]" for index in range(20_000)) + "}"
    assert len(parse(text)["key"]) == 20_000


# -- properties

KEYS = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.$/-]{0,8}", fullmatch=True).filter(
    lambda key: key.lower() != "include"
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SCALARS = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.integers(-(10**9), 10**9).map(lambda number: number / 8)
    | TEXTS
)
TREES = st.dictionaries(
    KEYS,
    st.recursive(
        SCALARS,
        lambda child: st.lists(child, max_size=4) | st.dictionaries(KEYS, child, max_size=4),
        max_leaves=12,
    ),
    max_size=5,
)


def escape(text: str) -> str:
    return "".join(
        f"\\x{ord(character):02x}" if ord(character) < 32 else character
        for character in text.replace("\\", "\\\\").replace('"', '\\"')
    )


def render(value: Any, choose: Any) -> str:
    """A tree as configuration text, in a style that `choose` picks."""
    if isinstance(value, bool):
        return choose(["true", "yes", "ON"] if value else ["false", "no", "Off"])
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        single = f"'{value}'" if "'" not in value else None
        return choose([f'"{escape(value)}"'] + ([single] if single else []))
    if isinstance(value, list):
        end = choose([", ", "\n", " # c\n", ",\n\t"])
        return "[ " + "".join(f"{render(item, choose)}{end}" for item in value) + "]"
    return "{ " + render_items(value, choose) + " }"


def render_items(tree: dict[str, Any], choose: Any) -> str:
    return "".join(
        choose([key, f'"{key}"', f"'{key}'"])
        + choose([": ", " = ", " ", ":", "=", "\n"])
        + render(value, choose)
        + choose(["\n", ", ", ";", " // c\n", "\r\n"])
        for key, value in tree.items()
    )


@pytest.mark.slow
@given(TREES, st.integers(0, 2**32))
def test_any_tree_survives_writing_and_parsing(tree: dict[str, Any], seed: int) -> None:
    text = render_items(tree, Random(seed).choice)
    assert parse(text) == tree
    assert parse("{ " + text + " }") == tree


@pytest.mark.slow
@given(TREES)
def test_json_is_configuration(tree: dict[str, Any]) -> None:
    # JSON escapes that the grammar does not have (\u0001, \b) are left out, as nats-server does.
    text = json.dumps(tree, ensure_ascii=False)
    if "\\u" not in text and "\\b" not in text and "\\f" not in text and "e" not in text.lower():
        assert parse(text) == tree


VALID = (
    "# c\ninclude_me: 1\nport: 4222, host = 'a' ; x { y: [1, 'b' \"c\\x41\"\n{z: $port}] }\n"
    "t (\nblock\n)\nu: $HOME\nd: 2026-01-02T03:04:05Z // c\n{ 'q' 1.5 }\n"
)


def test_every_prefix_of_a_valid_file_parses_or_is_refused() -> None:
    valid = VALID.replace("'b' \"c", "'b', \"c")
    assert parse(valid, HOME="x")["u"] == "x"
    lines = []
    for length in range(len(valid)):
        try:
            parse(valid[:length], HOME="x")
        except ConfigError as error:
            lines.append(error.line)
    assert 1 <= min(lines) <= max(lines) <= valid.count("\n") + 1


@given(st.text(max_size=60))
@settings(max_examples=some(100, 300))
def test_arbitrary_text_parses_or_is_refused(text: str) -> None:
    with contextlib.suppress(ConfigError):
        parse(text)


@given(st.text(alphabet="a1 \n\t:={}[](),;'\"\\$x#/.-kT\0", max_size=40))
@settings(max_examples=some(150, 500))
def test_arbitrary_punctuation_parses_or_is_refused(text: str) -> None:
    with contextlib.suppress(ConfigError):
        parse(text, a="1", x="$a")


@given(st.binary(max_size=60))
def test_arbitrary_bytes_parse_or_are_refused(content: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        with contextlib.suppress(ConfigError):
            parse_file(file.name, {})


# -- durations, sizes, digest


@pytest.mark.parametrize(
    ("text", "size"),
    [("10G", 10 * 2**30), ("1K", 1024), ("-1M", -(2**20)), ("", 0), ("10", None), ("1X", None)],
)
def test_quoted_size(text: str, size: int | None) -> None:
    assert parse_size_text(text) == size


def test_digest_is_over_values_and_not_over_their_spelling() -> None:
    spellings = ["port: -1", "{ 'port' = -1 } # c", "port\n-1"]
    digests = {digest(tree_of(text, {})) for text in spellings}
    # As `nats-server -t` prints it for the first of them.
    assert digests == {"sha256:7ea4cc5c6864139d814ce940a40ee6546b7ac5285eec3c390a4ce11e34dc1102"}
