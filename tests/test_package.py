"""The house itself: sizes of rooms, direction of imports, optional dependencies, pages, pins, the wheel."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from pages import blocks

import cann_env
from cann_env.device import load_device
from cann_env.scenario import load_scenario

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SOURCES = sorted(path for room in ("agents", "cann_env") for path in (ROOT / room).rglob("*.py"))

# Where each optional dependency may be imported, as a prefix of the path (or several); everything else does
# without it.
HOMES: dict[str, str | tuple[str, ...]] = {
    "anywidget": "cann_env/render/timeline/widget",
    "matplotlib": "cann_env/render/",
    "onnx": "cann_env/workloads/onnx_model",
    "ortools": "cann_env/solvers/cpsat",
    "PIL": "cann_env/render/",
    "rich": ("agents/", "cann_env/cli"),
    "sb3_contrib": "agents/",
    "stable_baselines3": "agents/",
    "traitlets": "cann_env/render/timeline/widget",
    "typer": "cann_env/cli",
}
TORCH_HOMES = ("agents/", "cann_env/workloads/from_torch")


def imports(source: str) -> set[str]:
    """Dotted names of all modules a source imports, wherever the import stands."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return names


def strangers(path: str, source: str) -> set[str]:
    """Optional dependencies that a file imports although they live elsewhere."""
    tops = {name.partition(".")[0] for name in imports(source)}
    found = {top for top in tops & HOMES.keys() if not path.startswith(HOMES[top])}
    if "torch" in tops and not path.startswith(TORCH_HOMES):
        found.add("torch")
    return found


def run(*command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and keep what it prints."""
    return subprocess.run(
        command, cwd=cwd, env={"PATH": "", **environment}, capture_output=True, text=True, check=False
    )


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    return run(sys.executable, "-c", code, "--no-cache", cwd=folder)


def test_no_room_is_larger_than_400_lines() -> None:
    lines = {str(path.relative_to(ROOT)): len(path.read_bytes().splitlines()) for path in SOURCES}
    assert len(lines) > 20
    assert {path: n for path, n in lines.items() if n > 400} == {}


def test_optional_dependencies_have_one_room_each() -> None:
    found = {path: strangers(path.relative_to(ROOT).as_posix(), path.read_text("utf-8")) for path in SOURCES}
    assert {path: names for path, names in found.items() if names} == {}


def test_planted_imports_of_optional_dependencies_are_found() -> None:
    planted = "def f():\n    import torch.nn\n    from matplotlib import figure\n"
    assert strangers("cann_env/envs/env.py", planted) == {"torch", "matplotlib"}
    assert strangers("cann_env/render/gantt.py", planted) == {"torch"}
    assert strangers("agents/train.py", "import rich, torch, stable_baselines3") == set()
    assert strangers("cann_env/envs/env.py", "import rich") == {"rich"}


def test_engine_imports_only_numpy_and_numba() -> None:
    files = (ROOT / "cann_env/engine").rglob("*.py")
    used = set().union(*(imports(path.read_text("utf-8")) for path in files))
    assert {"numpy", "numba"} <= used
    allowed = {"numpy", "numba", *sys.stdlib_module_names}
    outside = {name for name in used if name.partition(".")[0] not in allowed}
    assert {name for name in outside if not name.startswith(("cann_env.engine", "cann_env.units"))} == set()


@pytest.mark.slow
def test_imports_run_downwards() -> None:
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "line", "broken"),
    [
        ("cann_env/units.py", "from cann_env.envs import env", "Imports run downwards only"),
        ("cann_env/graph.py", "from cann_env.device import spec", "Imports run downwards only"),
        ("cann_env/newroom.py", "", "Imports run downwards only"),
        ("cann_env/envs/env.py", "import agents", "The package does not know the agents"),
        ("cann_env/engine/layout.py", "import gymnasium", "The engine imports only numpy and numba"),
        ("cann_env/validate/__init__.py", "from cann_env import program", "The judge shares no line"),
        ("cann_env/envs/env.py", "import torch", "The package imports neither torch nor stable_baselines3"),
    ],
)
def test_planted_upward_import_is_caught(tmp_path: Path, path: str, line: str, broken: str) -> None:
    shutil.copytree(ROOT / "cann_env", tmp_path / "cann_env", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / path).open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")
    result = lint_imports(tmp_path)
    assert result.returncode == 1, result.stdout + result.stderr
    assert re.search(rf"^{broken}.* BROKEN$", result.stdout, flags=re.MULTILINE), result.stdout


@pytest.mark.slow
def test_package_imports_without_its_extras(tmp_path: Path) -> None:
    """Only the four core dependencies are needed to import the package and to find its environments."""
    blocked = sorted({*HOMES, "torch"})
    code = f"""
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Blocker())
import gymnasium
import cann_env
print(gymnasium.spec("cann/Pipeline-v0").id)
"""
    result = run(sys.executable, "-W", "error", "-c", code, cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert (result.returncode, result.stdout) == (0, "cann/Pipeline-v0\n"), result.stderr


def fenced(page: str, language: str) -> list[str]:
    """The fenced blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_make_commands_of_the_pages_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    verbs = set(" ".join(re.findall(r"\bmake ((?:[a-z-]+ ?)+)", "\n".join(fenced(text, "[a-z]*")))).split())
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), flags=re.MULTILINE))
    assert "test" in verbs
    assert verbs <= targets


def test_ci_runs_the_test_command_of_the_readme() -> None:
    assert "make test" in (ROOT / "README.md").read_text("utf-8")
    assert re.search(r"^make test\b", (ROOT / ".ci/run").read_text("utf-8"), flags=re.MULTILINE)
    assert (ROOT / ".ci/run").stat().st_mode & 0o111


def test_links_of_the_pages_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    found = re.compile(r"\]\(([^)#:]+)[^):]*\)")
    links = [(page, link) for page in pages for link in found.findall(page.read_text("utf-8"))]
    assert links
    assert [(page.name, link) for page, link in links if not (page.parent / link).exists()] == []


@pytest.mark.slow
def test_python_of_the_readme_runs(tmp_path: Path) -> None:
    code = "\n".join(fenced((ROOT / "README.md").read_text("utf-8"), "python"))
    assert "gymnasium.make" in code
    result = run(sys.executable, "-W", "error", "-c", code, cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert result.returncode == 0, result.stderr
    assert result.stdout


def tables_of_the_page() -> list[str]:
    """The blocks of TOML on the page about files: a scenario, and lines of a device."""
    found = blocks((ROOT / "docs" / "files.md").read_text("utf-8"))
    return [block.text for block in found if block.language == "toml"]


def test_scenario_of_the_page_is_one(tmp_path: Path) -> None:
    (scenario, _) = tables_of_the_page()
    (tmp_path / "mine.toml").write_text(scenario, encoding="utf-8")
    loaded = load_scenario(tmp_path / "mine.toml")
    assert loaded.name == "mine"
    assert len({command.request for command in loaded.graph().commands}) == 8


def test_device_lines_of_the_page_are_ones(tmp_path: Path) -> None:
    """The shown entries replace those of a shipped file, which stays a device file."""
    (_, lines) = tables_of_the_page()
    shipped = (ROOT / "configs/devices/ascend310p3.toml").read_text("utf-8")
    for line in lines.splitlines()[1:]:
        key = line.partition(" ")[0]
        shipped, replaced = re.subn(rf"^{key} = .*$", line, shipped, flags=re.MULTILINE)
        assert replaced == 1, key
    (tmp_path / "chip.toml").write_text(shipped, encoding="utf-8")
    assert load_device(tmp_path / "chip.toml").memory.l2_bytes == 16 * 2**20


@pytest.mark.parametrize("page", ["README.md", "CHANGELOG.md"])
def test_pages_name_the_registered_environments(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    assert set(re.findall(r"\bcann/\w+-v\d+", text)) == set(cann_env.ENVIRONMENTS)


def test_version_is_the_same_everywhere() -> None:
    assert PROJECT["project"]["version"] == cann_env.__version__
    assert f"\n## [{PROJECT['project']['version']}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_pins_are_exact_and_within_the_declared_ranges() -> None:
    requirements = pytest.importorskip("packaging.requirements")
    utils = pytest.importorskip("packaging.utils")
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    pins = {utils.canonicalize_name(name): version for name, version in pins.items()}
    assert not [name for name, version in pins.items() if "+" in version]
    extras = PROJECT["project"]["optional-dependencies"]
    declared = [*PROJECT["project"]["dependencies"], *(line for lines in extras.values() for line in lines)]
    for requirement in map(requirements.Requirement, declared):
        if requirement.name != PROJECT["project"]["name"]:
            pin = pins[utils.canonicalize_name(requirement.name)]
            assert requirement.specifier.contains(pin), f"{requirement} against {pin}"


@pytest.mark.slow
def test_wheel_brings_the_configs_and_leaves_the_agents(tmp_path: Path) -> None:
    """The wheel alone, unpacked far from the checkout, knows every device and scenario."""
    pytest.importorskip("hatchling")
    built = run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path), cwd=ROOT)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path / "site")
    configs = {path.relative_to(ROOT).as_posix() for path in (ROOT / "configs").rglob("*.toml")}
    assert configs
    assert {f"cann_env/{path}" for path in configs} <= names
    assert not [name for name in names if name.startswith(("agents", "tests", "configs"))]
    page = {path.relative_to(ROOT).as_posix() for path in (ROOT / "cann_env").rglob("*.js")}
    assert page
    assert page <= names
    code = "from cann_env.device import load_device; print(load_device('ascend910b2').name)"
    loaded = run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(tmp_path / "site"))
    assert (loaded.returncode, loaded.stdout) == (0, "ascend910b2\n"), loaded.stderr


KINDS_OF_CHANGE = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def wrong_headings(changelog: str) -> list[str]:
    """Headings that a changelog of the kept form does not have."""
    version = re.compile(r"## \[(Unreleased|\d+\.\d+\.\d+)\]( - \d{4}-\d{2}-\d{2})?")
    headings = re.findall(r"^##.*$", changelog, flags=re.MULTILINE)
    kinds = {f"### {kind}" for kind in KINDS_OF_CHANGE}
    return [line for line in headings if not version.fullmatch(line) and line not in kinds]


def test_the_changelog_keeps_its_form() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert "## [Unreleased]" in text
    assert wrong_headings(text) == []
    assert wrong_headings("## [1.2]\n### Improved\n## [1.2.3] - 2026-01-02\n") == ["## [1.2]", "### Improved"]


def test_forms_for_reports_can_be_read() -> None:
    """Each names what it is for, and asks for something that has to be answered."""
    yaml = pytest.importorskip("yaml")
    forms = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    for path in forms:
        form = yaml.safe_load(path.read_text("utf-8"))
        if path.name != "config.yml":
            assert form["name"], path.name
            assert any(part.get("validations", {}).get("required") for part in form["body"]), path.name
    assert len(forms) == 4
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["version"] == cann_env.__version__
    assert citation["license"] == PROJECT["project"]["license"]
