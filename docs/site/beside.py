"""What the site shows beside the pages in docs/: notes of results, examples, pages of the root.

Links are written as they are right in the repository, where all of these lie elsewhere.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
BESIDE = (
    *("CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "examples/*.py"),
    *("results/**/README.md", "results/**/*.png", "results/*.py"),
)
LINK = re.compile(
    r"\[(?P<text>[^\]\[]*(?:\[[^\]]*\])?[^\]\[]*)\]\((?P<path>[^)\s#:]+)(?P<rest>(?:#[^)\s]*)?)\)"
)


def on_files(files: Files, config: Any) -> Files:
    """Add what lies beside docs/, at the place it has in the repository."""
    for pattern in BESIDE:
        for path in sorted(ROOT.glob(pattern)):
            place = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, place, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turn links between places of the repository into links between places of the site."""
    here = page.file.src_uri
    own = (ROOT / "docs" / here).exists()
    folder = posixpath.dirname(f"docs/{here}" if own else here)

    def moved(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, found["path"]))
        if target.startswith(("src/", "tests/")):
            # The site has no source code: the reference stands for it.
            return found["text"]
        target = target.removeprefix("docs/")
        path = posixpath.relpath(target, posixpath.dirname(here) or ".")
        return f"[{found['text']}]({path}{found['rest']})"

    return LINK.sub(moved, markdown)
