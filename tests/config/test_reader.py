from __future__ import annotations

import os
import resource
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mhsa_cli.config.load import load_config, parse
from mhsa_cli.config.problems import ConfigError
from mhsa_cli.config.reader import MAX_BYTES
from mhsa_cli.config.schema import Config
from tests.refusals import codes, faults

Load = Callable[..., Config]
Complain = Callable[..., str]


def refused(path: Path | str) -> tuple[str, str]:
    """Load a file that is refused as a whole, and give the code and the name."""
    with pytest.raises(ConfigError) as caught:
        load_config(str(path))
    (fault,) = caught.value.problems
    return fault.code, fault.file


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
    ("text", "code", "line", "col"),
    [
        ("- 1\n- 2", "sections", 1, 1),
        ("hello", "sections", 1, 1),
        ("3", "sections", 1, 1),
        ("train:\n  lr:1e-3", "section", 2, 3),
        ("lr:1e-3", "sections", 1, 1),
        ("lr:1e-3\nseed: 3", "syntax", 1, 3),
        ("train: {}\n---\nmodel: {}", "documents", 2, 1),
    ],
)
def test_other_top_levels_are_refused_at_their_place(text: str, code: str, line: int, col: int) -> None:
    (fault,) = faults(text)
    assert (fault.code, fault.line, fault.col) == (code, line, col)
    assert ("lr:" in text) == (fault.hint == "a space is needed after the colon")


def test_a_key_given_twice_names_both_lines(complain: Complain) -> None:
    assert complain("train:\n  lr: 0.1\n  seed: 3\n  lr: 0.2\n") == (
        "c.yaml:4:3: found the key `lr` a second time; the first is on line 2\n"
        "      lr: 0.2\n      ^^\n  keep one of them"
    )


@pytest.mark.parametrize(
    ("text", "code", "col"),
    [
        ("x: !!int foo", "tag", 4),
        ("x: !!bool foo", "tag", 4),
        ("x: !!timestamp foo", "tag", 4),
        ("x: !!python/object:os.system {}", "tag", 4),
        ("x: !ENV ${HOME}", "tag", 4),
        ("x: &a 3", "anchor", 4),
        ("x: *a", "alias", 4),
        ("a: &a [*a]", "alias", 8),
        ("<<: {lr: 3}", "merge", 1),
        ("%YAML 1.1\n---\n{}", "directive", 1),
        ("[n_heads]: 4", "key", 1),
        ("? {a: 1}\n: 2", "key", 3),
        ("'': 3", "key", 1),
        ("x: ${max_seq_len}", "interpolation", 4),
        ("x: {y: ${max_seq_len}}", "interpolation", 8),
        ("x: '${y}'", "interpolation", 4),
        ("x: {_target_: a.b}", "interpolation", 5),
        ("x: {_component_: a.b}", "interpolation", 5),
        ("x: 'open", "syntax", 9),
        ("x: a: b", "syntax", 5),
        ("x: @a", "syntax", 4),
        ("x: a\x00b", "character", 5),
        ("x: \x1b[31m", "character", 4),
        ("a: 1\n\ufeffb: 2", "character", 1),
    ],
)
def test_yaml_features_that_a_config_refuses(text: str, code: str, col: int) -> None:
    found = [fault for fault in faults(text) if fault.code == code]
    assert [fault.col for fault in found] == [col]
    assert not any("\x1b" in str(fault) for fault in found)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("x: 'open", "is a quote or bracket left open?"),
        ("x: a: b", "is there a second `: ` on this line, or is the indentation off? Quote text that holds `: `"),
        ("x: @a", "quote text that begins with this character"),
        ("x: [1 2\ny: 3", "is a bracket left open, or a comma missing?"),
        ("x:\n  y: 1\n z: 2", "is the indentation of this line the same as of its neighbours?"),
        ("x: 1\ny\nz: 2", "is the colon missing, or the space after it? Wanted `key: value`"),
        ('x: 1\n"y"\nz: 2', "is the colon missing, or the space after it? Wanted `key: value`"),
        ('x: "\n\\q"', None),
        ("x: [", None),
        ("x: 1\n%", None),
    ],
)
def test_a_syntax_error_names_its_usual_cause(text: str, hint: str | None) -> None:
    assert [fault.hint for fault in faults(text)] == [hint]


def test_a_refusal_names_the_finding_and_the_way_out(complain: Complain) -> None:
    assert complain("train: {lr: &a 3}") == (
        "c.yaml:1:13: found the anchor `&a`: anchors are not supported\n"
        "    train: {lr: &a 3}\n                ^^^^\n  remove it"
    )


def test_brackets_in_a_key_are_shown_verbatim(complain: Complain) -> None:
    assert "`[n_heads]`" in complain("'[n_heads]': 4")
    assert "    [n_heads]: 4" in complain("[n_heads]: 4")


def test_an_alias_bomb_is_refused_where_it_starts() -> None:
    bomb = "a0: &a0 [lol, lol]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert set(codes(bomb)) == {"anchor", "alias"}
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


@pytest.mark.parametrize("text", ["a: " + "[" * 9000, "{" * 9000, "? " * 9000, "- " * 9000, "a: " + "{a: " * 9000])
def test_depth_is_refused_without_a_traceback(text: str) -> None:
    assert codes(text) in (["size"], ["key"])


def test_sixteen_levels_are_read_and_seventeen_are_not() -> None:
    def nested(levels: int) -> str:
        return "zz: " + "[" * levels + "]" * levels

    assert [codes(nested(levels)) for levels in (16, 17)] == [["unknown-key"], ["size"]]


def test_size_is_refused() -> None:
    assert codes("#" * (MAX_BYTES + 1)) == codes("".join(f"k{i}: 1\n" for i in range(1003))) == ["size"]


def test_endless_number_is_refused() -> None:
    assert codes("train: {seed: " + "9" * 5000 + "}") == ["number"]


@pytest.mark.parametrize("data", [b"a: caf\xe9", b"\xef\xbb\xbfa: caf\xe9"])
def test_bytes_that_are_not_utf8_are_pointed_at(data: bytes, complain: Complain) -> None:
    assert complain(data).startswith(
        "c.yaml:1:7: found the byte 0xe9, which is not UTF-8\n    a: caf\\xe9\n          ^^^^"
    )


def test_utf16_is_named() -> None:
    assert codes("lr: 1".encode("utf-16")) == ["encoding"]


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
    assert faults(text, name=name)[0].code == "not-yaml"
    assert kind in complain(text, name=name)


def test_json_is_yaml(load: Load) -> None:
    assert load('{"train": {"lr": 1e-3, "betas": [0.8, 0.99]}}', name="c.json").train.betas == (0.8, 0.99)


def test_a_folder_a_missing_file_and_a_bad_name_are_config_errors(tmp_path: Path) -> None:
    for path in (tmp_path, "", tmp_path / "no.yaml", "a\0b"):
        assert refused(path) == ("no-file", str(path) or "''")


@pytest.mark.skipif(sys.platform == "win32", reason="no pipes in the file system")
def test_a_pipe_a_socket_and_a_device_are_refused_at_once(tmp_path: Path) -> None:
    pipe, sock = tmp_path / "p.yaml", tmp_path / "s"
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(sock))
        for path in (pipe, sock, Path("/dev/zero")):
            assert refused(path) == ("no-file", str(path))


def test_a_huge_file_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    with path.open("wb") as file:
        file.truncate(2**31)
    assert refused(path) == ("size", str(path))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_a_config_error(tmp_path: Path) -> None:
    path = tmp_path / "secret.yaml"
    path.write_text("train: {}")
    path.chmod(0)
    assert refused(path) == ("unreadable", str(path))


def test_brackets_in_a_path_are_printed_verbatim(tmp_path: Path) -> None:
    folder = tmp_path / "[red]x"
    folder.mkdir()
    (folder / "[x].yaml").write_text("lr: 3")
    with pytest.raises(ConfigError, match=r"\[red\]x/\[x\]\.yaml:1:1: unknown key `lr`"):
        load_config(str(folder / "[x].yaml"))


def test_yaml_with_one_line_of_another_kind_is_still_called_yaml() -> None:
    assert codes("train:\n  seed: 3\n  lr = 3\n") == ["syntax"]
