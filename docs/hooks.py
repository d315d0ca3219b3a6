"""The site's share of the repository: files outside docs/ that a page links to become pages below `project/`."""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PREFIX = "project/"
LINK = re.compile(r"(?<=\]\()([^)#\s]+)|(?<=src=\")([^\"]+)")
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LANGUAGES = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".css": "css", ".js": "js", ".txt": "text", "": "text"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add every file that a page links to, and those that these link to."""
    waiting = [uri for uri in files.src_uris if uri.endswith(".md")]
    waiting += re.findall(rf"{PREFIX}[\w/.-]+", str(config.nav))
    while waiting:
        uri = waiting.pop()
        page = files.get_file_from_path(uri)
        if page is None:
            page = repository_file(uri, config)
            if page is None:  # the strict build says what is missing
                continue
            files.append(page)
        if uri.endswith(".md"):
            waiting += [to for to in targets(page.content_string, uri) if files.get_file_from_path(to) is None]
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point the links of a page at the pages of these files."""
    uri, parts = page.file.src_uri, FENCE.split(markdown)
    if page.parent is None:  # no section, so no menu beside the text
        page.meta["hide"] = ["navigation"]
    parts[::2] = [LINK.sub(lambda found: moved(found[0], uri), part) for part in parts[::2]]
    return "".join(parts)


def targets(markdown: str, uri: str) -> set[str]:
    """List the pages that stand for the files which a page links to."""
    linked = {moved(found[0], uri) for part in FENCE.split(markdown)[::2] for found in LINK.finditer(part)}
    places = {posixpath.normpath(posixpath.join(posixpath.dirname(uri), link)) for link in linked if ":" not in link}
    return {place for place in places if place.startswith(PREFIX)}


def moved(link: str, uri: str) -> str:
    """Rewrite a link of a page, as it holds in the repository, as it holds in the site."""
    home = uri.removeprefix(PREFIX) if uri.startswith(PREFIX) else f"docs/{uri}"
    place = posixpath.normpath(posixpath.join(posixpath.dirname(home), link))
    if ":" in link or place.startswith("..") or not (ROOT / place).exists():
        return link
    new = place.removeprefix("docs/") if place.startswith("docs/") else PREFIX + page_of(place)
    return posixpath.relpath(new, posixpath.dirname(uri) or ".")


def page_of(place: str) -> str:
    """Name the page of a file or folder of the repository; what is no text is itself."""
    path = ROOT / place
    if path.is_dir():
        return f"{place}/README.md" if (path / "README.md").exists() else f"{place}/index.md"
    return f"{place}.md" if path.suffix in {*LANGUAGES, ".ipynb"} else place


def repository_file(uri: str, config: MkDocsConfig) -> File | None:
    """Make the page that stands for a file or folder of the repository; None if it is not there."""
    place = uri.removeprefix(PREFIX)
    path = ROOT / place
    if path.is_file():
        return File.generated(config, uri, abs_src_path=str(path))
    path = path.parent if path.name == "index.md" else path.with_suffix("")
    if not path.exists():
        return None
    if path.is_dir():
        names = sorted(p.name for p in path.iterdir() if p.name[0] not in "._" and p.name not in ("runs", "README.md"))
        text = "\n".join(f"- [{name}]({name})" for name in names)
    elif path.suffix == ".ipynb":
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        sources = [("".join(cell["source"]), cell["cell_type"] == "code") for cell in cells]
        text = "\n\n".join(f"```python\n{source}\n```" if code else source for source, code in sources)
    else:
        text = f"````{LANGUAGES[path.suffix]}\n{path.read_text(encoding='utf-8').rstrip()}\n````"
    title = path.relative_to(ROOT).as_posix()
    heading = "" if text.startswith("# ") else f"# {title}\n\n"
    return File.generated(config, uri, content=f"---\ntitle: {title}\n---\n\n{heading}{text}\n")
