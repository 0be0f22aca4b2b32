"""Every block of code in the documentation runs.

The Python blocks of one page run in their order and share their names, in a folder of
their own. A block whose first line is a comment with a file's name (``# train.py``) is that
file. The ``lifecycle`` commands of the page's shell blocks run in the same folder
afterwards. ``<!-- needs: torch -->`` right before a block leaves it out where torch is missing.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
FILES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SHELLS = {"console", "sh", "shell", "bash"}

FENCE = re.compile(
    r"^(?:<!-- needs: (?P<needs>[\w, .]+) -->\n+)?"
    r"^(?P<indent> *)```(?P<language>\w+)\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
FILE_NAME = re.compile(r"# (?P<name>[\w/]+\.\w+)\n")


class Block(NamedTuple):
    """One fenced block."""

    language: str
    code: str
    line: int
    needs: tuple[str, ...]

    @property
    def missing(self) -> list[str]:
        """What it needs and is not installed."""
        return [name for name in self.needs if importlib.util.find_spec(name) is None]


def blocks(file: Path) -> Iterator[Block]:
    """Find the blocks of a Markdown file."""
    text = file.read_text(encoding="utf-8")
    for match in FENCE.finditer(text):
        indent = match["indent"]
        code = re.sub(f"^{indent}", "", match["code"], flags=re.MULTILINE)
        needs = tuple(name.strip() for name in (match["needs"] or "").split(",") if name.strip())
        yield Block(match["language"], code, text.count("\n", 0, match.start("code")), needs)


def commands(block: Block) -> Iterator[list[str]]:
    """Find the ``lifecycle`` commands of a shell block, apart from what they print."""
    for line in block.code.replace("\\\n", " ").splitlines():
        prompt = line.startswith("$ ")
        if block.language == "console" and not prompt:
            continue
        words = shlex.split(line.removeprefix("$ "), comments=True)
        if words[:1] == ["lifecycle"]:
            yield ["-m", *words]
        elif words[:1] == ["python"]:
            yield words[1:]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_blocks_run(file: Path, tmp_path: Path) -> None:
    """The Python blocks of a page run as one program, then its commands; warnings are errors."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    program: list[str] = []
    shells: list[Block] = []
    missing: set[str] = set()
    for block in blocks(file):
        name = FILE_NAME.match(block.code)
        if block.missing:
            missing.update(block.missing)
        elif block.language in SHELLS:
            shells.append(block)
        elif block.language == "python" and name:
            (tmp_path / name["name"]).write_text(block.code, encoding="utf-8")
        elif block.language == "python":
            # At the lines it has on the page, so that a traceback leads there.
            program += [""] * (block.line - len(program)) + block.code.splitlines()
    if program:
        script = tmp_path / f"{file.stem}_blocks.py"
        script.write_text("\n".join(program), encoding="utf-8")
        run([script.name], tmp_path)
    for command in (command for block in shells for command in commands(block)):
        run(command, tmp_path)
    if missing:
        pytest.skip(f"blocks that need {', '.join(sorted(missing))} were left out")


def run(command: list[str], folder: Path) -> None:
    """Run Python as the reader would, with the Python that runs the tests."""
    done = subprocess.run(
        [sys.executable, "-W", "error", *command],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{shlex.join(command)} failed:\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_links_lead_somewhere(file: Path) -> None:
    """Each relative link of a page names a file that is there."""
    for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", file.read_text("utf-8")):
        assert (file.parent / target).exists(), f"{file.name} links to {target}"
