"""The timeline in headless Chromium: it draws, zooms, says facts, draws arrows, compares, and edits."""

from __future__ import annotations

import importlib
import json
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from toys import toy_squeeze, vector

from cann_env.graph import CommandGraph
from cann_env.program import compile_graph
from cann_env.render.timeline import TimelineServer, document, write_html
from cann_env.render.timeline.assets import script
from cann_env.scenario import load_scenario
from cann_env.schedulers import run_scheduler

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cann_env.schedule import Schedule

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
browser = importlib.import_module("chromium")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(browser.missing()), reason=browser.missing() or "there is a browser"),
]

PAGE = "document.getElementById('cann-env-timeline').timeline"


class Page:
    """A page in the browser, and a pointer on it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, url: str) -> Page:
        self.driver.get(url)
        self.wait(f"return {PAGE} && {PAGE}.width > 0")
        return self

    def js(self, code: str, *given: Any) -> Any:
        return self.driver.execute_script(f"const t = {PAGE}; {code}", *given)

    def wait(self, code: str, seconds: int = 60) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, seconds).until(lambda driver: driver.execute_script(code))

    def draw(self) -> None:
        self.js("t.draw()")

    def pixels(self) -> int:
        """How many colours the board shows, up to 64."""
        self.draw()
        return self.js(
            "const { width, height } = t.backCanvas, s = new Set();"
            "const d = t.back.getImageData(0, 0, width, height).data;"
            "for (let i = 0; i < d.length && s.size < 64; i += 4)"
            "  s.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]);"
            "return s.size"
        )

    def middle_of(self, name: str) -> tuple[float, float]:
        """Where the bar of a command is on the board."""
        box = self.js(
            "const s = t.sides[0], b = t.boxOf(s, s.index.get(arguments[0]));"
            "return [b.x, b.y, b.width, b.height]",
            name,
        )
        return box[0] + box[2] / 2, box[1] + box[3] / 2

    def pointer(self) -> Any:
        from selenium.webdriver import ActionChains

        return ActionChains(self.driver, duration=30)

    def go(self, chain: Any, x: float, y: float) -> Any:
        canvas = self.driver.find_element("css selector", ".front")
        size = canvas.size
        return chain.move_to_element_with_offset(
            canvas, round(x - size["width"] / 2), round(y - size["height"] / 2)
        )

    def text(self, selector: str) -> str:
        return self.driver.find_element("css selector", selector).text


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browser.chromium(1400, 900) as driver:
        yield Page(driver)
        errors = [line for line in driver.get_log("browser") if line["level"] == "SEVERE"]
        assert errors == []


def schedule_of(graph: CommandGraph, scheduler: str = "single_stream") -> Schedule:
    from toys import toy_device

    return run_scheduler(compile_graph(graph, toy_device()), scheduler)


@pytest.fixture(scope="module")
def scenario() -> tuple[Schedule, Schedule]:
    found = load_scenario("serving")
    program = compile_graph(found.graph(), found.device, found.options)
    return run_scheduler(program, "per_engine"), run_scheduler(program, "single_stream")


@pytest.fixture
def shown(page: Page, scenario: tuple[Schedule, Schedule], tmp_path: Path) -> Page:
    return page.open(write_html(tmp_path / "t.html", scenario[0]).as_uri())


def test_something_is_drawn(shown: Page) -> None:
    assert shown.pixels() > 10
    assert shown.js("return t.drawn") > 100
    assert len(shown.driver.get_screenshot_as_png()) > 20_000


def test_the_pointer_brings_all_facts(shown: Page, scenario: tuple[Schedule, Schedule]) -> None:
    command = max(scenario[0].commands, key=lambda run: run.finish_ns - run.start_ns).command
    name = scenario[0].graph.commands[command].name
    shown.go(shown.pointer(), *shown.middle_of(name)).perform()
    shown.wait("return !document.querySelector('.tip').hidden")
    tip = shown.text(".tip")
    assert tip.startswith(name)
    for word in ("kind", "stream", "engine", "block", "submitted", "eligible", "start", "finish", "duration"):
        assert word in tip
    for word in ("waited for", "bytes", "after"):
        assert word in tip


def test_wheel_keys_and_buttons_zoom(shown: Page) -> None:
    from selenium.webdriver.common.action_chains import ScrollOrigin

    def wide() -> float:
        shown.draw()
        return shown.js("return t.view.to - t.view.from")

    first = wide()
    canvas = shown.driver.find_element("css selector", ".front")
    shown.pointer().scroll_from_origin(ScrollOrigin.from_element(canvas), 0, -300).perform()
    second = wide()
    assert second < first * 0.8
    shown.driver.find_element("css selector", "[aria-label='Zoom in']").click()
    third = wide()
    assert third < second
    canvas.send_keys("-")
    assert wide() > third
    canvas.send_keys("0")
    assert wide() == pytest.approx(first)


def test_dragging_moves_along(shown: Page) -> None:
    shown.js("t.zoom(0.25)")
    before = shown.js("return t.view.from")
    empty = shown.js("return [t.width - 60, t.bodyEnd - t.scroll - 6]")
    chain = shown.go(shown.pointer(), *empty).click_and_hold()
    shown.go(chain, empty[0] - 200, empty[1]).release().perform()
    assert shown.js("return t.view.from") > before


def test_selecting_draws_arrows_and_opens_the_panel(shown: Page, scenario: tuple[Schedule, Schedule]) -> None:
    graph = scenario[0].graph
    c = next(i for i, before in enumerate(graph.predecessors) if before and graph.successors[i])
    x, y = shown.middle_of(graph.commands[c].name)
    shown.go(shown.pointer(), x, y).click().perform()
    shown.draw()
    found = shown.js("return t.selected")
    assert found >= 0
    shown.js("t.select(arguments[0])", c)
    shown.draw()
    assert shown.js("return t.arrows") == len(graph.predecessors[c]) + len(graph.successors[c])
    assert graph.commands[c].name in shown.text("aside h2")
    shown.driver.find_element("css selector", ".front").send_keys("n")
    assert shown.js("return t.selected") in graph.successors[c]
    shown.driver.find_element("css selector", ".front").send_keys("p")
    shown.js("t.select(-1)")
    shown.draw()
    assert shown.js("return t.arrows") == 0


def test_two_views_and_the_critical_path(shown: Page) -> None:
    lanes = shown.js("return t.sides[0].lanes.streams.length")
    shown.driver.find_element("xpath", "//button[text()='Engines']").click()
    shown.draw()
    assert shown.driver.find_element("id", "cann-env-timeline").get_attribute("data-view") == "engines"
    assert shown.js("return t.sides[0].lanes.engines.length") != lanes
    assert shown.pixels() > 10
    shown.driver.find_element("xpath", "//button[text()='Critical path']").click()
    assert "Critical path:" in shown.text(".said")


def test_search_finds_and_steps(shown: Page, scenario: tuple[Schedule, Schedule]) -> None:
    wanted = "conv"
    names = [c.name for c in scenario[0].graph.commands if wanted in c.name.lower()]
    box = shown.driver.find_element("css selector", "input[type=search]")
    box.send_keys(wanted)
    found = shown.js("return t.found.list.map((c) => t.sides[0].commands.name[c])")
    assert set(names) <= set(found)
    box.send_keys("\n")
    assert shown.js("return t.selected") == shown.js("return t.found.list[0]")


def test_two_schedules_share_one_axis(
    page: Page, scenario: tuple[Schedule, Schedule], tmp_path: Path
) -> None:
    page.open(write_html(tmp_path / "t.html", *scenario, labels=("one", "other")).as_uri())
    assert page.js("return t.sides.length") == 2
    ends = [schedule.makespan_ns for schedule in scenario]
    assert page.js("return t.end") == max(ends)
    assert page.js("return t.headings.length") == 2
    assert "A \u2212 B" in page.text(".figures")
    page.js("t.select(5)")
    page.draw()
    assert page.js("return t.same(1, 5)") == 5


def test_nasty_names_are_harmless(page: Page, tmp_path: Path) -> None:
    name = '</script><img src=x onerror="window.hurt = 1"><script>window.hurt = 1</script>'
    graph = CommandGraph(name, (vector(name),))
    page.open(write_html(tmp_path / "t.html", schedule_of(graph), labels=(name, "")).as_uri())
    page.js("t.select(0)")
    assert page.text("aside h2") == name
    assert page.js("return window.hurt ?? null") is None


def test_a_file_says_how_to_ask_what_if(shown: Page) -> None:
    shown.driver.find_element("xpath", "//button[text()='What if']").click()
    assert "--serve" in shown.text(".said")


@pytest.fixture
def served(page: Page) -> Iterator[Page]:
    """Two kernels of 110 ns on one stream, from a server that answers edits."""
    graph = CommandGraph("two", (vector("a"), vector("b")))
    with TimelineServer(schedule_of(graph)) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        page.open(server.url)
        page.driver.find_element("xpath", "//button[text()='What if']").click()
        yield page
        server.shutdown()
        thread.join()


def settled(page: Page, makespan_ns: int) -> None:
    page.wait(f"const t = {PAGE}; return !t.busy && t.sides[0].data.makespan_ns === {makespan_ns}")


def test_dragging_a_command_to_another_stream_plays_the_schedule_again(served: Page) -> None:
    assert served.js("return t.sides[0].data.makespan_ns") == 221
    x, y = served.middle_of("b")
    chain = served.go(served.pointer(), x, y).click_and_hold()
    chain = served.go(chain, x, y + 12)
    served.go(chain, x, y + 26).release().perform()
    settled(served, 110)
    assert served.js("return t.sides.map((side) => side.data.makespan_ns)") == [110, 221]
    assert "\u2212111 ns" in served.text(".said")
    served.driver.find_element("xpath", "//button[text()='Undo']").click()
    settled(served, 221)
    assert served.js("return t.sides.length") == 1
    served.driver.find_element("xpath", "//button[text()='Redo']").click()
    settled(served, 110)
    served.driver.find_element("xpath", "//button[text()='Reset']").click()
    settled(served, 221)


def test_an_edit_by_keys_that_is_not_possible_is_refused(served: Page) -> None:
    from selenium.webdriver.common.keys import Keys

    served.js("t.select(0)")
    canvas = served.driver.find_element("css selector", ".front")
    canvas.send_keys(Keys.ALT, Keys.ARROW_UP)
    served.wait("return document.querySelector('.said').classList.contains('wrong')")
    assert "there are streams 0 to" in served.text(".said")
    canvas.send_keys(Keys.ALT, Keys.ARROW_DOWN)
    settled(served, 110)


_WIDGET = """
const [code, held, done] = arguments;
const heard = [];
const model = {
  get: (name) => ({ document: held, editable: true, height: 320 })[name],
  on: (name, hear) => { if (name === "msg:custom") heard.push(hear); },
  off: (name, hear) => heard.splice(heard.indexOf(hear), 1),
  send: (message) => setTimeout(() => heard.forEach((hear) => hear(
    { number: message.number, reply: { error: `no ${message.request.op} here` } })), 10),
};
const url = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
import(url).then(async (module) => {
  const el = document.body.appendChild(document.createElement("div"));
  const end = module.default.render({ model, el });
  const shown = el.firstChild.timeline;
  shown.resize();
  await shown.edit({ op: "undo" });
  const said = el.querySelector(".said").textContent;
  end();
  done([shown.width > 0, shown.height > 0, shown.drawn, said, heard.length]);
}, (error) => done(String(error)));
"""


def test_the_widget_renders_and_asks_the_kernel(page: Page, tmp_path: Path) -> None:
    """What anywidget does: the script is a module, its default export draws into an element of a notebook."""
    (tmp_path / "notebook.html").write_text("<!doctype html><body></body>", encoding="utf-8")
    page.driver.get((tmp_path / "notebook.html").as_uri())
    held = json.dumps(document(schedule_of(CommandGraph("two", (vector("a"), vector("b"))))))
    found = page.driver.execute_async_script(_WIDGET, script(), held)
    wide, tall, drawn, said, listening = found
    assert wide and tall
    assert drawn >= 2
    assert said == "no undo here"
    assert listening == 0


def test_a_prefetch_can_be_dragged(page: Page) -> None:
    schedule = schedule_of(toy_squeeze(3), "eager+aggressive")
    assert any(call.call == "prefetch" for call in schedule.host)
    with TimelineServer(schedule) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        page.open(server.url)
        page.driver.find_element("xpath", "//button[text()='What if']").click()
        box = page.js(
            "const lane = t.sides[0].lanes.streams.find((l) => l.what === 'moves');"
            "const i = [...lane.row].findIndex((r) => t.sides[0].data.moves.which[r] !== null);"
            "const b = t.barBox(lane, i); return [b.x + b.width / 2, b.y + b.height / 2]"
        )
        chain = page.go(page.pointer(), *box).click_and_hold()
        chain = page.go(chain, box[0] + 20, box[1])
        page.go(chain, box[0] + 90, box[1]).release().perform()
        page.wait(
            "return !document.querySelector('.said').hidden && "
            "document.getElementById('cann-env-timeline').dataset.busy === ''"
        )
        said = page.text(".said")
        assert "prefetch of" in said
        server.shutdown()
        thread.join()


def test_the_benchmark_prints_its_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("rich")
    module = importlib.import_module("timeline")
    monkeypatch.setattr(sys, "argv", ["timeline", "--commands", "30", "60", "--frames", "4", "--json"])
    module.main()
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert len(rows) == 2 * len(module.VIEWS) * len(module.PARTS)
    assert all(0 < row["median_ms"] <= row["p95_ms"] and row["bars"] > 0 for row in rows)
    assert {row["ratio"] for row in rows[:6]} == {1.0}
