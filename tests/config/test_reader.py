from __future__ import annotations

import os
import resource
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mhsa_cli.config.load import Config, ConfigError, load_config, parse
from mhsa_cli.config.reader import MAX_BYTES

Load = Callable[..., Config]
Complain = Callable[..., str]


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "\n\n", "train:\nmodel:\ntask:\n"])
def test_an_empty_config_is_all_defaults(text: str, load: Load) -> None:
    assert load(text) == Config()


def test_byte_order_mark_and_windows_line_ends_change_nothing() -> None:
    plain = b"train:\n  lr: 1e-3\n  seed: 7\n"
    assert parse(b"\xef\xbb\xbf" + plain.replace(b"\n", b"\r\n"), "a") == parse(plain, "b")


def test_line_numbers_count_windows_lines_once(complain: Complain) -> None:
    assert complain("task:\r\n  seq_len: 7\r\ntrain:\r\n  lr: abc\r\n").startswith("c.yaml:4:7: `train.lr`")


def test_tab_indentation_is_named(complain: Complain) -> None:
    assert complain("model:\n\td_model: 8") == (
        "c.yaml:2:1: found a tab, YAML wants spaces here\n    \\td_model: 8\n    ^^\n  replace the tab by spaces"
    )
    assert "c.yaml:1:6: found a tab" in complain("lr: 1\t# why")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("- 1\n- 2", "found a list"),
        ("hello", "found the text `hello`"),
        ("3", "found the text `3`"),
        ("train:\n  lr:1e-3", "wanted a mapping of its keys\n      lr:1e-3\n      ^^^^^^^\n  a space is needed"),
        ("lr:1e-3", "a space is needed after the colon"),
        ("lr:1e-3\nseed: 3", "c.yaml:1:3: is not valid YAML here"),
        ("train: {}\n---\nmodel: {}", "c.yaml:2:1: found a second document"),
    ],
)
def test_other_top_levels_say_what_was_found(text: str, found: str, complain: Complain) -> None:
    assert found in complain(text)


def test_a_key_given_twice_names_both_lines(complain: Complain) -> None:
    assert complain("train:\n  lr: 0.1\n  seed: 3\n  lr: 0.2\n") == (
        "c.yaml:4:3: found the key `lr` a second time; it stands on line 2 already\n"
        "      lr: 0.2\n      ^^\n  keep one of them"
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x: !!int foo", "found the tag `!!int`"),
        ("x: !!bool foo", "found the tag `!!bool`"),
        ("x: !!timestamp foo", "found the tag `!!timestamp`"),
        ("x: !!python/object:os.system {}", "found the tag `!!python/object:os.system`"),
        ("x: !ENV ${HOME}", "found the tag `!ENV`"),
        ("x: &a 3", "found the anchor `&a`"),
        ("x: *a", "found the alias `*a`"),
        ("a: &a [*a]", "found the alias `*a`"),
        ("<<: {lr: 3}", "found the merge key `<<`"),
        ("%YAML 1.1\n---\n{}", "found a `%` directive"),
        ("[n_heads]: 4", "found a list, mapping or alias as a key"),
        ("? {a: 1}\n: 2", "found a list, mapping or alias as a key"),
        ("'': 3", "found an empty key"),
        ("x: ${max_seq_len}", "interpolation is not supported"),
        ("x: {y: ${max_seq_len}}", "interpolation is not supported"),
        ("x: '${y}'", "interpolation is not supported"),
        ("x: {_target_: a.b}", "object creation are not supported"),
        ("x: {_component_: a.b}", "object creation are not supported"),
        ("x: 'open", "is a quote or bracket left open?"),
        ("x: a: b", "is there a second `: ` on this line"),
        ("x: @a", "quote text that begins with this character"),
        ("x: a\x00b", "found the invisible character U+0000"),
        ("x: \x1b[31m", "found the invisible character U+001B"),
        ("a: 1\n\ufeffb: 2", "found the invisible character U+FEFF"),
    ],
)
def test_what_yaml_allows_and_a_config_does_not(text: str, found: str, complain: Complain) -> None:
    message = complain(text)
    assert found in message
    assert "\x1b" not in message


def test_brackets_in_a_key_are_shown_verbatim(complain: Complain) -> None:
    assert "unknown key `[n_heads]`" in complain("'[n_heads]': 4")
    assert "    [n_heads]: 4" in complain("[n_heads]: 4")


def test_an_alias_bomb_is_refused_where_it_starts(complain: Complain) -> None:
    bomb = "a0: &a0 [lol, lol]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "aliases are not supported" in complain(bomb)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


@pytest.mark.parametrize("text", ["a: " + "[" * 9000, "{" * 9000, "? " * 9000, "- " * 9000, "a: " + "{a: " * 9000])
def test_depth_is_refused_without_a_traceback(text: str, complain: Complain) -> None:
    assert "deeper than 16" in complain(text) or "as a key" in complain(text)


def test_sixteen_levels_are_read_and_seventeen_are_not(complain: Complain) -> None:
    def nested(levels: int) -> str:
        return "zz: " + "[" * levels + "]" * levels

    assert "unknown key `zz`" in complain(nested(16))
    assert "deeper than 16" in complain(nested(17))


def test_size_is_refused(complain: Complain) -> None:
    assert "larger than 256 kB" in complain("#" * (MAX_BYTES + 1))
    assert "more than 1,000 values" in complain("".join(f"k{i}: 1\n" for i in range(1003)))


def test_endless_number_is_refused(complain: Complain) -> None:
    assert "a whole number of 5,000 digits" in complain("train: {seed: " + "9" * 5000 + "}")


@pytest.mark.parametrize("data", [b"a: caf\xe9", b"\xef\xbb\xbfa: caf\xe9"])
def test_bytes_that_are_not_utf8_are_pointed_at(data: bytes, complain: Complain) -> None:
    assert complain(data).startswith(
        "c.yaml:1:7: found the byte 0xe9, which is not UTF-8\n    a: caf\\xe9\n          ^^^^"
    )


def test_utf16_is_named(complain: Complain) -> None:
    assert "UTF-16" in complain("lr: 1".encode("utf-16"))


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("train_shakespeare_char.py", "n_layer = 6\nblock_size = 256 # context\n", "this is Python;"),
        ("debug_model.toml", "[model]\nname = 'x'\n", "this is TOML;"),
        ("copied.yaml", "# a char model\nout_dir = 'out'\nn_layer = 6\n", "this is Python or TOML;"),
        ("copied.yaml", "[training]\nsteps = 10\n", "this is TOML;"),
        ("copied.yaml", "import os\nlr = 3\n", "this is Python;"),
    ],
)
def test_python_and_toml_are_called_by_their_names(name: str, text: str, kind: str, complain: Complain) -> None:
    message = complain(text, name=name)
    assert "YAML expected" in message
    assert kind in message


def test_json_is_yaml(load: Load) -> None:
    assert load('{"train": {"lr": 1e-3, "betas": [0.8, 0.99]}}', name="c.json").train.betas == (0.8, 0.99)


def test_a_folder_a_missing_file_and_a_bad_name_are_config_errors(tmp_path: Path) -> None:
    for path, found in [
        (tmp_path, "found a directory"),
        ("", "'': the name is empty"),
        (tmp_path / "no.yaml", "there is no such file"),
        ("a\0b", r"a\\x00b: the name"),
    ]:
        with pytest.raises(ConfigError, match=found):
            load_config(str(path))


@pytest.mark.skipif(sys.platform == "win32", reason="no pipes in the file system")
def test_a_pipe_a_socket_and_a_device_are_refused_at_once(tmp_path: Path) -> None:
    pipe, sock = tmp_path / "p.yaml", tmp_path / "s"
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(sock))
        for path, found in [(pipe, "found a pipe"), (sock, "found a socket"), (Path("/dev/zero"), "found a device")]:
            with pytest.raises(ConfigError, match=found):
                load_config(str(path))


def test_a_huge_file_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    with path.open("wb") as file:
        file.truncate(2**31)
    with pytest.raises(ConfigError, match="larger than 256 kB"):
        load_config(str(path))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_a_config_error(tmp_path: Path) -> None:
    path = tmp_path / "secret.yaml"
    path.write_text("train: {}")
    path.chmod(0)
    with pytest.raises(ConfigError, match="cannot be read: Permission denied"):
        load_config(str(path))


def test_brackets_in_a_path_are_printed_verbatim(tmp_path: Path) -> None:
    folder = tmp_path / "[red]x"
    folder.mkdir()
    (folder / "[x].yaml").write_text("lr: 3")
    with pytest.raises(ConfigError, match=r"\[red\]x/\[x\]\.yaml:1:1: unknown key `lr`"):
        load_config(str(folder / "[x].yaml"))


def test_yaml_with_one_line_of_another_kind_is_still_called_yaml(complain: Complain) -> None:
    assert "is not valid YAML" in complain("train:\n  seed: 3\n  lr = 3\n")
