"""Draw the picture of ``docs/acl.md``: the program of that page whose timeline it prints.

``python docs/pictures/draw_acl.py [folder]``, by default the folder of this file.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path

import cann_env.acl as acl

HERE = Path(__file__).resolve().parent
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def draw(folder: Path) -> Path:
    """Run the page up to the block that prints a timeline, and draw what ran."""
    names: dict[str, object] = {}
    for source in BLOCK.findall((HERE.parent / "acl.md").read_text("utf-8")):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(source, "acl.md", "exec"), names)
        if "acl.timeline()" in source:
            break
    return acl.save_picture(folder / "acl_pipeline.png")


if __name__ == "__main__":
    print(draw(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE))
