"""What wheel and sdist must hold, as `.ci/release` has built them. Plain Python: nothing is installed beside it.

python -m tests.release FOLDER      exit 1 and what is wrong with the files in FOLDER
"""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LARGEST = 3_000_000  # bytes


def packed() -> set[str]:
    """List what the wheel must hold: code, page, typing marker, and configs below the package."""
    package = (p for p in (ROOT / "mhsa_cli").rglob("*") if p.is_file() and p.suffix in {".py", ".css", ".js"})
    configs = (p for p in (ROOT / "configs").rglob("*.*") if p.is_file() and p.suffix != ".pyc")
    names = {p.relative_to(ROOT).as_posix() for p in package}
    return {*names, "mhsa_cli/py.typed", *(f"mhsa_cli/{p.relative_to(ROOT).as_posix()}" for p in configs)}


def check_wheel(wheel: Path) -> None:
    """Check a wheel: all that the package needs, nothing else, and the license."""
    inside = set(zipfile.ZipFile(wheel).namelist())
    metadata = {name for name in inside if ".dist-info/" in name}
    wanted = packed()
    assert wanted == inside - metadata, f"the wheel differs in {sorted(wanted ^ (inside - metadata))}"
    assert any(name.endswith("licenses/LICENSE") for name in metadata)


def check_sdist(sdist: Path) -> None:
    """Check an sdist: no tests, no links, and the files that tell what it is."""
    with tarfile.open(sdist) as archive:
        files = archive.getmembers()
    assert not [f.name for f in files if "/tests/" in f.name or f.issym()], "the sdist holds tests or links"
    names = {f.name.partition("/")[2] for f in files}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "constraints.txt"} <= names


def main() -> None:
    """Check the wheel and the sdist of a folder, and print their sizes."""
    [wheel], [sdist] = Path(sys.argv[1]).glob("*.whl"), Path(sys.argv[1]).glob("*.tar.gz")
    check_wheel(wheel)
    check_sdist(sdist)
    for file in (wheel, sdist):
        assert file.stat().st_size < LARGEST, file
        print(f"{file}  {file.stat().st_size / 1000:,.0f} kB")


if __name__ == "__main__":
    main()
