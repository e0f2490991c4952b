"""The page of a timeline: self-contained, safe; the server that answers edits; the widget; the verb."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from episodes import Host
from toys import toy_chain, vector

from cann_env.graph import CommandGraph
from cann_env.render.timeline import Timeline, TimelineServer, document, write_html
from cann_env.render.timeline.assets import script
from cann_env.render.timeline.html import page
from cann_env.render.trace import write_trace
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cann_env.schedule import Schedule

NASTY = "</script><script>alert(1)</script><!-- & \" ' \u2028 ä 算子"


def chain() -> Schedule:
    return Host(toy_chain(2)).issue("a").issue("b").schedule()


def held(text: str) -> dict[str, Any]:
    """The document in a page, as a browser takes it out."""
    (found,) = re.findall(
        r'<script type="application/json" id="cann-env-document">(.*?)</script>', text, flags=re.DOTALL
    )
    return json.loads(found)


def test_the_page_holds_the_document_and_loads_nothing(tmp_path: Path) -> None:
    path = write_html(tmp_path / "t.html", chain(), labels=("mine", ""))
    text = path.read_text("utf-8")
    assert held(text) == json.loads(json.dumps(document(chain(), labels=("mine", ""))))
    assert not re.findall(r"""https?://|\bsrc=|@import|url\(|\bimport\(""", text)
    assert re.findall(r'<link [^>]*href="([^"]*)"', text) == ["data:,"]
    assert "default-src 'none'" in text and "connect-src 'none'" in text
    assert [each.name for each in tmp_path.iterdir()] == ["t.html"]
    assert path.read_bytes() == write_html(tmp_path / "u.html", chain(), labels=("mine", "")).read_bytes()


def test_names_cannot_end_the_script_or_become_markup() -> None:
    graph = CommandGraph(NASTY, (vector(NASTY), vector("b")))
    schedule = Host(graph).issue(NASTY, 0).issue("b", 1).schedule()
    text = page(document(schedule, labels=(NASTY, "")))
    assert held(text)["schedules"][0]["commands"]["name"][0] == NASTY
    assert text.count("<script") == text.count("</script>") == 2
    assert "<!-- &" not in text


def test_the_script_is_one_module_without_imports() -> None:
    text = script()
    assert not re.findall(r"^\s*import\b", text, flags=re.MULTILINE)
    assert re.findall(r"^export .*", text, flags=re.MULTILINE) == ["export default { render };"]
    names = re.findall(r"^(?:async )?(?:function|class|const) (\w+)", text, flags=re.MULTILINE)
    assert len(names) == len(set(names)) > 40
    assert "innerHTML" not in text


def test_a_page_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone.t.html.* cannot be written"):
        write_html(tmp_path / "gone" / "t.html", chain())
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="cannot be written"):
        write_html(tmp_path / "folder", chain())
    assert [each.name for each in tmp_path.iterdir()] == ["folder"]


# --- the server -------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[TimelineServer]:
    host = Host(CommandGraph("two", (vector("a"), vector("b")))).issue("a", 0)
    with TimelineServer(host.issue("b", 0).schedule()) as serving:
        thread = threading.Thread(target=serving.serve_forever, daemon=True)
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


def ask(server: TimelineServer, path: str, body: object = None, **headers: str) -> tuple[int, bytes]:
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(server.url + path, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_the_server_shows_the_page_and_answers_edits(server: TimelineServer) -> None:
    status, text = ask(server, "")
    assert status == 200
    assert f'data-word="{server.word}"'.encode() in text
    edit = {"op": "move", "command": 1, "stream": 1, "at_ns": None}
    status, reply = ask(server, "edit", edit, **{"X-Timeline": server.word})
    assert (status, json.loads(reply)["change_ns"]) == (200, -111)
    assert len(held(ask(server, "")[1].decode())["schedules"]) == 2


def test_the_server_answers_nobody_else(server: TimelineServer) -> None:
    edit = {"op": "reset"}
    assert server.server_address[0] == "127.0.0.1"
    assert ask(server, "edit", edit)[0] == 403
    assert ask(server, "edit", edit, **{"X-Timeline": "guess"})[0] == 403
    assert ask(server, "", Host="evil.example")[0] == 403
    assert ask(server, "edit", edit, Host="evil.example", **{"X-Timeline": server.word})[0] == 403
    assert ask(server, "etc/passwd")[0] == 404
    assert ask(server, "edit", b"x" * 20_000, **{"X-Timeline": server.word})[0] == 400
    assert "error" in json.loads(ask(server, "edit", b"{", **{"X-Timeline": server.word})[1])


def test_a_port_that_is_taken_is_an_error(server: TimelineServer) -> None:
    with pytest.raises(InputError, match="nothing can listen on port"):
        TimelineServer(chain(), port=server.server_address[1])


# --- in Python and on the command line --------------------------------------------------------------------


def test_the_widget_answers_messages() -> None:
    pytest.importorskip("anywidget")
    host = Host(CommandGraph("two", (vector("a"), vector("b")))).issue("a", 0)
    timeline = Timeline(host.issue("b", 0).schedule(), height=300)
    shown = timeline.show()
    assert json.loads(shown.document)["schedules"][0]["makespan_ns"] == 221
    assert (shown.editable, shown.height) == (True, 300)
    sent: list[dict[str, Any]] = []
    shown.send = sent.append
    request = {"op": "move", "command": 1, "stream": 1, "at_ns": None}
    shown._handle_custom_msg({"number": 7, "request": request}, [])
    assert (sent[0]["number"], sent[0]["reply"]["change_ns"]) == (7, -111)
    assert timeline.schedule.makespan_ns == 110
    bundle = timeline._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in (bundle[0] if isinstance(bundle, tuple) else bundle)


def test_edits_are_saved_beside_what_they_changed(tmp_path: Path) -> None:
    host = Host(CommandGraph("two", (vector("a"), vector("b")))).issue("a", 0)
    timeline = Timeline(host.issue("b", 0).schedule())
    timeline.what_if.move("b", 1)
    shown = held(timeline.save(tmp_path / "t.html").read_text("utf-8"))["schedules"]
    assert [side["makespan_ns"] for side in shown] == [110, 221]


@pytest.mark.slow
def test_without_anywidget_the_error_names_the_extra(tmp_path: Path) -> None:
    code = """
import sys
sys.modules["anywidget"] = None
from cann_env.program import compile_graph
from cann_env.render.timeline import Timeline
from cann_env.scenario import load_scenario
from cann_env.schedulers import run_scheduler
s = load_scenario("pipeline")
timeline = Timeline(run_scheduler(compile_graph(s.graph(), s.device, s.options), "per_engine"))
print(timeline.save("t.html"))
try:
    timeline.show()
except ValueError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("t.html\n"), done.stderr
    assert 'pip install "cann-env[notebook]"' in done.stdout


def cli(*words: str, cwd: Path) -> Any:
    runner = pytest.importorskip("typer.testing").CliRunner()
    from cann_env.cli.app import app

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(cwd)
        return runner.invoke(app, ["timeline", *words])


def test_the_verb_writes_a_page_of_two_schedulers(tmp_path: Path) -> None:
    done = cli(
        "pipeline", "--scheduler", "per_engine", "--against", "single_stream", "-o", "t.html", cwd=tmp_path
    )
    assert done.exit_code == 0, done.output
    first, second = held((tmp_path / "t.html").read_text("utf-8"))["schedules"]
    assert (first["label"], second["label"]) == ("per_engine", "single_stream")
    assert first["makespan_ns"] < second["makespan_ns"]


def test_the_verb_reads_a_schedule_that_was_saved(tmp_path: Path) -> None:
    schedule = chain()
    write_trace(schedule, tmp_path / "run.json")
    done = cli("run.json", "-o", "t.html", cwd=tmp_path)
    assert done.exit_code == 0, done.output
    (side,) = held((tmp_path / "t.html").read_text("utf-8"))["schedules"]
    assert (side["label"], side["makespan_ns"]) == ("run", schedule.makespan_ns)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["run.json", "--scheduler", "heft"], "--scheduler does not apply"),
        (["run.json", "--against", "heft"], "is a schedule that is there already"),
        (["pipeline", "--port", "80"], "is for --serve"),
        (["pipeline", "--serve", "--json"], "exclude each other"),
        (["pipeline", "-o", "gone/t.html"], "its folder does not exist"),
        (["pipeline", "--scheduler", "nobody"], "nobody"),
        ([], "takes one INPUT"),
    ],
)
def test_the_verb_refuses_what_makes_no_sense(tmp_path: Path, words: list[str], reason: str) -> None:
    write_trace(chain(), tmp_path / "run.json")
    done = cli(*words, cwd=tmp_path)
    assert done.exit_code == 2
    assert reason in " ".join(done.output.split())
    assert [each.name for each in tmp_path.iterdir()] == ["run.json"]
