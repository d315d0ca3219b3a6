"""Run what README and docs show and compare: every `$ command` in its console blocks, and its Python blocks.

python -m tests.readme [PAGE...]  exit 1 and a difference where a page is not true any more; all pages if none is named

The commands of a page run in order in one empty folder that holds a copy of configs/ and examples/. A block with a
title (```python title="task.py") is written to that file there, before the commands below it. A line `...` stands for
lines left out. Seconds, speeds, digests and rounding errors (1e-10 and less) may differ; losses may differ a little, as
they do between processors. Which head of a layer takes a role is chance: in a row that begins with a head's address the
words must come, for any head of its layer, each of them once; its figures are that head's and may differ. A picture
that the page says is drawn by a command is drawn again, and its text compared.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from xml.etree import ElementTree

from tests.environment import plain

Result = tuple[str, str | None]  # what was run, and what is not true any more
ROOT = Path(__file__).parents[1]
WIDTH = 80
WORKERS = 2  # pages at a time
SKIPPED = ("make ", "pip ", "git ", "python3 -m venv", "source ")  # set-up, which whoever runs this has done
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")
HEAD = re.compile(r"\bL(\d+)\.H\d+")
STEP = re.compile(r'^```(?:console|\w+ title="([\w./]+)")\n(.*?)^```', re.MULTILINE | re.DOTALL)
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
DRAWN = re.compile(r"drawn by\s+`(mhsa [^`]* -o (\S+\.svg))`")


def commands(block: str) -> list[tuple[str, list[str]]]:
    """Split a console block into its commands, each with the lines shown below it."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found:
            found[-1][1].append(line)
    return found


def masked(line: str) -> str:
    """Blank what changes from run to run: seconds, speed, digests, times of day, the dots of a curve, and strips."""
    line = re.sub(r"[0-9a-f]{64}|(?<=sha256\": \")\.\.\.", "<digest>", line)
    line = re.sub(r"\b\d(\.\d+)?e-[123]\d\b", "<rounding>", line)
    line = re.sub(r"\d+\.\d+ s\b|(?<=time: about )[\d.]+ (s|min|h)\b", "<seconds>", line)
    line = re.sub(r"[\d.,]+ [KMGT]iB free", "<free>", line)
    line = re.sub(r'"seconds": \d+\.\d+', '"seconds": <seconds>', line)
    line = re.sub(r"(?<=%)\s+\d+\.\d(?=\s+\d{4}-|$)", "<seconds>", line)  # the last column of `mhsa runs`
    line = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "<time>", line)
    line = re.sub(r"[⠀-⣿╌●]+", "", line)
    line = re.sub(r"(?<=│)[?▁▂▃▄▅▆▇█-]+|[▁▂▃▄▅▆▇█]+", "", line)  # a head's strip
    line = re.sub(r"·", "0", line)  # a weight of a map that rounds to nothing
    return re.sub(r"\s+", " ", line).strip()


def role(line: str) -> str | None:
    """Reduce a row that begins with a head's address to its layer and its words; None for any other line."""
    line = masked(line)
    if not HEAD.match(line):
        return None
    words = re.sub(rf"(?<!offset ){NUMBER.pattern}|–", "", HEAD.sub(r"a head of layer \1", line))
    return re.sub(r"\s+", " ", HEAD.match(line)[1] + words)


def in_order_of_roles(lines: Sequence[str]) -> list[str]:
    """Sort rows of heads that follow one another by their roles: which head took which is chance."""
    found: list[str] = []
    for is_head, group in itertools.groupby(lines, lambda line: role(line) is not None):
        rows = list(group)
        found += sorted(rows, key=lambda line: role(line) or "") if is_head else rows
    return found


def close(a: str, b: str) -> bool:
    """Tell whether two numbers agree: a fifth of each other, or as close as rounding puts them."""
    x, y = float(a), float(b)
    return abs(x - y) <= max(0.2 * max(abs(x), abs(y)), 0.02 if "." in a else 1)


def alike(shown: str, real: str) -> bool:
    """Tell whether a line of a page is the line that came."""
    if role(shown) is not None:
        return role(shown) == role(real)
    shown, real = (HEAD.sub("<head>", masked(line)) for line in (shown, real))
    if NUMBER.sub("#", shown) != NUMBER.sub("#", real):
        return False
    return all(close(a, b) for a, b in zip(NUMBER.findall(shown), NUMBER.findall(real), strict=True))


def unwrapped(lines: Sequence[str]) -> list[str]:
    """Join the lines of a paragraph, which other figures may break elsewhere; rows of a table have double spaces."""
    found: list[str] = []
    last = ""
    for line in lines:
        word = (line.split() or [""])[0]
        prose = last and word not in ("", "...") and "  " not in last.strip() + line.strip()
        if prose and len(last) + 1 + len(word) > WIDTH:
            found[-1] += f" {line.strip()}"
        else:
            found.append(line)
        last = line
    return found


def missing(shown: Sequence[str], real: Sequence[str]) -> str | None:
    """Find the first shown line that did not come in its place; `...` leaves lines out."""
    shown, real = (in_order_of_roles(unwrapped(lines)) for lines in (shown, real))
    place, jump = 0, True
    for line in shown:
        if line.strip() == "...":
            jump = True
            continue
        while jump and place < len(real) and not alike(line, real[place]):
            place += 1
        if place >= len(real) or not alike(line, real[place]):
            return f"shown: {line}\nreal:  {real[place] if place < len(real) else '(nothing more)'}"
        place, jump = place + 1, False
    return None


def environment() -> dict[str, str]:
    """Give commands an 80 column page to print on and this Python's `mhsa`."""
    return plain() | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "COLUMNS": str(WIDTH)}


def check_console(text: str, folder: Path) -> Iterator[Result]:
    """Write every titled file and run every command, in order."""
    for title, block in STEP.findall(text):
        if title:
            (folder / title).write_text(block, encoding="utf-8")
            continue
        for command, shown in commands(block):
            if command.startswith(SKIPPED):
                continue
            done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, env=environment())
            errors = any(line.startswith("error: ") for line in shown)
            real = (done.stderr if errors else done.stdout).splitlines()
            fault = missing(shown, real)
            wrong_block = any(line.startswith("wrong: ") for line in shown)  # `mhsa check` says so on stdout
            if (done.returncode != 0) != (errors or wrong_block):
                fault = f"exit code {done.returncode}\n{done.stderr}"
            yield f"$ {command}", fault


def check_python(text: str, folder: Path) -> Iterator[Result]:
    """Run every Python block; its own asserts tell."""
    for block in PYTHON.findall(text):
        done = subprocess.run([sys.executable, "-c", block], cwd=folder, capture_output=True, text=True)
        yield f"python: {block.splitlines()[0]}", done.stderr if done.returncode else None


def written(picture: Path) -> list[str]:
    """Read the text of an SVG picture, a line for each height at which something is written."""
    rows: dict[str, list[str]] = {}
    for text in ElementTree.parse(picture).iterfind(".//{*}text"):
        rows.setdefault(text.attrib.get("y") or text.attrib["transform"], []).append(text.text or "")
    return [" ".join(words) for words in rows.values()]


def check_pictures(page: Path, folder: Path) -> Iterator[Result]:
    """Draw every picture again by the command that the page names, and compare what is written in it.

    A picture lies in images/ beside its page, or in docs/images.
    """
    for command, name in DRAWN.findall(page.read_text(encoding="utf-8")):
        beside = page.parent / "images" / name
        picture = beside if beside.exists() else ROOT / "docs/images" / name
        subprocess.run(command, shell=True, cwd=folder, capture_output=True, env=environment(), check=True)
        yield f"{picture.relative_to(ROOT).as_posix()}: {command}", missing(written(picture), written(folder / name))


def check_page(page: Path) -> tuple[list[str], list[str]]:
    """Check a page in a folder of its own; returns a line for each command, and what is not true any more."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name in ("configs", "examples"):
            shutil.copytree(ROOT / name, folder / name)
        for file in ("README.md", "LICENSE"):
            shutil.copy(ROOT / file, folder)
        text, name = page.read_text(encoding="utf-8"), page.relative_to(ROOT).as_posix()
        said, wrong = [name], []
        for what, fault in (*check_console(text, folder), *check_pictures(page, folder), *check_python(text, folder)):
            said.append(f"{'ok   ' if fault is None else 'WRONG'} {what}")
            if fault is not None:
                wrong.append(f"{name}: {what}\n{fault}")
    return said, wrong


def main() -> None:
    """Check the pages that are named, or README and the pages in docs, two at a time."""
    pages = [ROOT / name for name in sys.argv[1:]] or [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    pages.sort(key=lambda page: -page.read_text(encoding="utf-8").count("\n$ "))
    with ThreadPoolExecutor(WORKERS) as workers:
        done = [workers.submit(check_page, page) for page in pages]
        for one in as_completed(done):
            print("\n".join(one.result()[0]), flush=True)
    if wrong := [fault for one in done for fault in one.result()[1]]:
        sys.exit("\n\n".join(["", *wrong]))


if __name__ == "__main__":
    main()
