"""Run what the README shows and compare: every `$ command` in its console blocks, and its Python blocks.

python -m tests.readme            exit 1 and a difference where the README is not true any more

Commands run in order in one empty folder that holds a copy of configs/. A line `...` in the README stands for lines
left out. Seconds, speeds and digests may differ; losses may differ a little, as they do between processors.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.environment import plain

ROOT = Path(__file__).parents[1]
SKIPPED = ("make ", "pip ", "git ", "python3 -m venv", "source ")  # set-up, which whoever runs this has done
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def blocks(text: str, language: str) -> list[str]:
    """List the fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


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
    line = re.sub(r"\d+\.\d+ s\b", "<seconds>", line)
    line = re.sub(r'"seconds": \d+\.\d+', '"seconds": <seconds>', line)
    line = re.sub(r"(?<=%)\s+\d+\.\d$", "<seconds>", line)  # the last column of `mhsa runs`
    line = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "<time>", line)
    line = re.sub(r"[⠀-⣿╌●]+", "", line)
    line = re.sub(r"(?<=│)[?▁▂▃▄▅▆▇█-]+|[▁▂▃▄▅▆▇█]+", "", line)  # a head's strip
    return re.sub(r"\s+", " ", line).strip()


def close(a: str, b: str) -> bool:
    """Tell whether two numbers agree: a fifth of each other, or as close as rounding puts them."""
    x, y = float(a), float(b)
    return abs(x - y) <= max(0.2 * max(abs(x), abs(y)), 0.02 if "." in a else 1)


def alike(shown: str, real: str) -> bool:
    """Tell whether a line of the README is the line that came."""
    shown, real = masked(shown), masked(real)
    if NUMBER.sub("#", shown) != NUMBER.sub("#", real):
        return False
    return all(close(a, b) for a, b in zip(NUMBER.findall(shown), NUMBER.findall(real), strict=True))


def missing(shown: list[str], real: list[str]) -> str | None:
    """Find the first shown line that did not come in its place; `...` leaves lines out."""
    place, jump = 0, True
    for line in shown:
        if line.strip() == "...":
            jump = True
            continue
        while jump and place < len(real) and not alike(line, real[place]):
            place += 1
        if place >= len(real) or not alike(line, real[place]):
            return f"README: {line}\nreal:   {real[place] if place < len(real) else '(nothing more)'}"
        place, jump = place + 1, False
    return None


def check_console(text: str, folder: Path) -> list[str]:
    """Run every command; returns what is not true any more."""
    wrong = []
    environment = plain() | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "80"}
    for block in blocks(text, "console"):
        for command, shown in commands(block):
            if command.startswith(SKIPPED):
                continue
            done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, env=environment)
            errors = any(line.startswith("error: ") for line in shown)
            real = (done.stderr if errors else done.stdout).splitlines()
            fault = missing(shown, real)
            wrong_block = any(line.startswith("wrong: ") for line in shown)  # `mhsa check` says so on stdout
            if (done.returncode != 0) != (errors or wrong_block):
                fault = f"exit code {done.returncode}\n{done.stderr}"
            print(f"{'ok   ' if fault is None else 'WRONG'} $ {command}")
            if fault is not None:
                wrong.append(f"$ {command}\n{fault}")
    return wrong


def check_python(text: str, folder: Path) -> list[str]:
    """Run every Python block; its own asserts tell."""
    wrong = []
    for block in blocks(text, "python"):
        done = subprocess.run([sys.executable, "-c", block], cwd=folder, capture_output=True, text=True)
        print(f"{'ok   ' if done.returncode == 0 else 'WRONG'} python: {block.splitlines()[0]}")
        if done.returncode:
            wrong.append(done.stderr)
    return wrong


def main() -> None:
    """Check the README and the pages in docs."""
    wrong = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            shutil.copytree(ROOT / "configs", folder / "configs")
            shutil.copytree(ROOT / "docs", folder / "docs")
            shutil.copy(ROOT / "README.md", folder)
            text = page.read_text(encoding="utf-8")
            wrong += check_console(text, folder) + check_python(text, folder)
    if wrong:
        sys.exit("\n\n".join(["", *wrong]))


if __name__ == "__main__":
    main()
