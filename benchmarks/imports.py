"""What `import lifecycle` costs beside importing blinker and the standard library it uses.

    python benchmarks/imports.py

Each measurement is a new interpreter; the two kinds alternate, so that whatever else the
machine does meets both alike.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile

ROUNDS = 40
TARGET = 1.5

FIND = """
import json, sys
before = set(sys.modules)
import lifecycle
new = set(sys.modules) - before
print(json.dumps(sorted(m for m in new if m.partition(".")[0] not in ("lifecycle", "eventbus"))))
"""

TIME = """
import sys, time
begin = time.perf_counter()
{imports}
print(time.perf_counter() - begin)
"""


def python(code: str, cache: str) -> str:
    """Run code in a new interpreter, with compiled modules in a cache, and return its output."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout


def main() -> None:
    """Measure, and say whether the target is met."""
    with tempfile.TemporaryDirectory() as cache:
        beneath = json.loads(python(FIND, cache))
        floor = "\n".join(f"import {module}" for module in beneath)
        times: dict[str, list[float]] = {floor: [], "import lifecycle": []}
        for _ in range(ROUNDS):
            for imports, found in times.items():
                found.append(float(python(TIME.format(imports=imports), cache)) * 1000)
    base, ours = (statistics.median(found) for found in times.values())
    print(f"blinker and {len(beneath) - 1} other modules  {base:6.1f} ms")
    print(f"import lifecycle                {ours:6.1f} ms   {ours / base:.2f}x, target {TARGET}x")


if __name__ == "__main__":
    main()
