"""README and docs name what exists: every form of attention, every command, and files that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import mhsa_cli
from mhsa_cli.commands.app import COMMANDS
from mhsa_cli.config import custom_attention
from mhsa_cli.config.fields import options
from mhsa_cli.config.load import load_config
from mhsa_cli.config.schema import ModelConfig
from mhsa_cli.core.model.attention import KINDS, LONG
from mhsa_cli.core.model.positions import POSITIONS
from mhsa_cli.core.model.transformer import NORMS
from mhsa_cli.core.tasks import build_task
from mhsa_cli.core.training.analytic.gradient import SHORT
from mhsa_cli.core.training.lockstep import build_model
from mhsa_cli.core.training.stack import Stack
from tests.readme import alike, check_console, missing

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FORMS = (ROOT / "docs/reference/attention.md").read_text(encoding="utf-8")
HOW_TO = sorted((ROOT / "docs/how-to").glob("*.md"))


def row(key: str) -> list[str]:
    """Read the values that a column of the table of forms names for a key."""
    found = re.search(rf"^\| `model\.{key}`.*\|$", FORMS, re.MULTILINE)
    assert found, f"no row for model.{key}"
    return re.findall(r"`([^`]+)`", found[0].strip("|").split("|")[1])


def test_the_table_of_forms_is_the_tables_of_the_code() -> None:
    assert row("positions") == list(POSITIONS)
    assert row("attention") == list(KINDS)
    assert row("norm") == list(NORMS)


def has_written_gradient(*settings: str) -> bool:
    """Ask the engine which road a step takes."""
    config = load_config(None, ["model.d_mlp=20", "model.n_heads=4", *settings])
    model = build_model(config, build_task(config.task))
    return Stack([model], [0], config.train, torch.device("cpu")).analytic is not None


@pytest.mark.parametrize("key", ["positions", "attention", "norm", "mlp", "n_kv_heads", "window", "causal"])
def test_every_value_of_the_table_has_a_gradient_by_hand(key: str) -> None:
    values = {"n_kv_heads": ["1", "2", "4"], "window": ["1", "3", "null"]}.get(key) or row(key)
    assert all(has_written_gradient(f"model.{key}={value}") for value in values)


def test_the_page_names_what_has_no_gradient_by_hand() -> None:
    assert not has_written_gradient("train.dtype=bfloat16")
    assert not has_written_gradient("task.name=copy", "model.encoder_layers=1")
    assert f"rows have more than {SHORT} tokens; rows of {LONG} tokens" in FORMS


def test_the_configs_options_are_the_tables_of_the_code() -> None:
    fields = ModelConfig.model_fields
    assert list(options(fields["positions"])) == list(POSITIONS)
    assert list(custom_attention.KINDS) == list(KINDS)
    assert list(options(fields["norm"])) == list(NORMS)
    assert list(options(fields["mlp"])) == row("mlp")


FENCE = re.compile(r"^(`{3,}).*?^\1$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)|\b(?:src|href)=\"([^\"]+)\"|^\[[^\]]+\]: (\S+)", re.MULTILINE)
INSTALLED = Path(mhsa_cli.__file__).parents[1]  # the package may lie elsewhere
PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "examples").rglob("*.md"),
    ROOT / "runs/README.md",
]
PAGES += [INSTALLED / "mhsa_cli/check/README.md"]


def links(text: str) -> list[str]:
    """List the targets of a page's links, those in code left out."""
    prose = re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))
    return [next(filter(None, found)) for found in LINK.findall(prose)]


def anchors(text: str) -> set[str]:
    """List the anchors of a page's headings, as a repository's page and our site make them of their words."""
    words = [re.sub(r"\]\([^)]*\)", "", line) for line in re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.MULTILINE)]
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in words}


@pytest.mark.parametrize(
    "page", PAGES, ids=lambda page: str(page.relative_to(ROOT if ROOT in page.parents else INSTALLED))
)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in links(page.read_text(encoding="utf-8")):
        place, _, anchor = target.partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        file = (page.parent / place).resolve() if place else page
        if not file.exists() and ROOT in file.parents:
            file = INSTALLED / file.relative_to(ROOT)
        assert file.exists(), target
        assert not anchor or anchor in anchors(file.read_text(encoding="utf-8")), target


def test_links_in_code_are_none_and_anchors_are_those_of_the_headings() -> None:
    text = "# A `b_c`: d / e\n\n[x](y.md#z) `[](no)`\n\n```sh\n# no\n[no](no)\n```\n\n## [F](g.md) h\n"
    assert links(text) == ["y.md#z", "g.md"]
    assert anchors(text) == {"a-b_c-d--e", "f-h"}


def test_every_command_is_in_a_how_to_page() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in HOW_TO)
    for name in COMMANDS:
        assert f"mhsa {name}" in text, name


def test_the_readme_names_both_commands_of_the_set_up() -> None:
    assert "make demo" in README and "make test" in README


SHOWN = [
    "head  looks at   weight",
    "...",
    "L0.H1 previous token 0.7 +11.1",
    "...",
    "L1.H2 induction 1.0 +0.0",
    "loss 0.30",
]


def test_heads_may_swap_roles_within_a_layer_but_no_role_may_be_missing() -> None:
    first, second, others = "L0.H3 previous token 0.64 +9.2", "L1.H0 induction 0.93 +2.1", ["L0.H1 itself 0.6 +0.1"]
    real = ["head  looks at   weight", *others, first, second, "loss 0.31"]
    assert missing(SHOWN, real) is None
    swapped = [real[0], "L0.H0 induction 0.93 +2.1", "L1.H3 previous token 0.64 +9.2", real[-1]]
    for wrong in (real[:-1], [*real[:2], *real[3:]], swapped, [*real[:-1], "loss 0.45"]):
        assert missing(SHOWN, wrong) is not None
    assert missing(["L0.H0 offset 6 0.9", "L0.H1 offset 5 0.8"], ["L0.H0 offset 5 0.7", "L0.H1 offset 6 0.9"]) is None
    assert missing(["L0.H0 offset 6 0.9", "L0.H1 offset 6 0.8"], ["L0.H0 offset 5 0.7", "L0.H1 offset 6 0.9"])


def test_rounding_errors_may_differ_and_other_figures_may_not() -> None:
    assert alike("right: 22 laws; equal to 3.55e-15", "right: 22 laws; equal to 8.9e-16")
    assert not alike("right: 22 laws; equal to 3.55e-15", "right: 12 laws; equal to 3.55e-15")
    assert not alike("equal to 3.55e-15", "equal to 3.55e-05")


def test_a_titled_block_is_a_file_for_the_commands_below_it(tmp_path: Path) -> None:
    page = '```python title="a.txt"\none\n```\n```console\n$ cat a.txt\n{}\n```\n```yaml title="a.txt"\ntwo\n```\n'
    assert list(check_console(page.format("one"), tmp_path)) == [("$ cat a.txt", None)]
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "two\n"
    assert [fault is None for _, fault in check_console(page.format("two"), tmp_path)] == [False]
