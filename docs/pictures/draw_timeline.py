"""Draws the picture of the interactive timeline: ``python docs/pictures/draw_timeline.py [FOLDER]``.

The schedule of the scenario ``serving`` by the reference, its critical path, and one command selected.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "benchmarks"))

from chromium import chromium, missing  # noqa: E402

from cann_env.program import compile_graph  # noqa: E402
from cann_env.render.timeline import write_html  # noqa: E402
from cann_env.scenario import load_scenario  # noqa: E402
from cann_env.schedulers import run_scheduler  # noqa: E402

_SHOWN = """
const page = document.getElementById("cann-env-timeline").timeline;
page.select(page.sides[0].index.get(arguments[0]), {reveal: false});
page.draw();
"""


def draw(folder: Path) -> Path:
    """Write ``timeline.png`` into a folder."""
    scenario = load_scenario("serving")
    program = compile_graph(scenario.graph(), scenario.device, scenario.options)
    schedule = run_scheduler(program, "reference")
    target = folder / "timeline.png"
    with tempfile.TemporaryDirectory() as scratch, chromium(1500, 900) as driver:
        driver.get(write_html(Path(scratch) / "t.html", schedule, labels=("reference", "")).as_uri())
        driver.execute_script(_SHOWN, "r2/m1/project")
        driver.find_element("xpath", "//button[text()='Critical path']").click()
        driver.execute_script("document.getElementById('cann-env-timeline').timeline.draw()")
        driver.save_screenshot(str(target))
    return target


if __name__ == "__main__":
    if missing():
        sys.exit(f"the picture needs a browser: {missing()}")
    print(draw(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE))
