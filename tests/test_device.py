"""The shipped device files, and the loader: what it reads, and every fault it names."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cann_env.device import device_names, load_device
from cann_env.device.cost import cores_of_class
from cann_env.device.keys import KEYS
from cann_env.device.spec import CLASSES, LINKS, POOLS
from cann_env.paths import config_folder
from cann_env.units import InputError

if TYPE_CHECKING:
    from pathlib import Path

SHIPPED = (
    "ascend310b1",
    "ascend310b4",
    "ascend310p1",
    "ascend310p3",
    "ascend910_93",
    "ascend910a",
    "ascend910b1",
    "ascend910b2",
    "ascend910b3",
    "ascend910b4",
)
CALIBRATED = {"ascend910a", "ascend910b1", "ascend910b2", "ascend910b4"}


# --- shipped files ---


def test_ten_devices_are_shipped() -> None:
    assert device_names() == SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_device_loads_whole_and_every_value_has_a_source(name: str) -> None:
    device = load_device(name)
    assert device.name == name
    assert set(device.pools) == set(POOLS)
    assert set(device.classes) == set(CLASSES)
    assert set(device.links) == set(LINKS)
    needed = {path for path, key in KEYS.items() if not key.optional}
    assert needed <= set(device.sources) <= set(KEYS)
    for path, source in device.sources.items():
        assert source.kind in {"measured", "documented", "assumed"}, path
        assert source.note, path
    for work_class, spec in device.classes.items():
        for pool in spec.demand:
            assert f"classes.{work_class}.demand.{pool}" in device.sources
        for dtype in spec.flops_per_cycle:
            assert f"classes.{work_class}.flops_per_cycle.{dtype}" in device.sources
    assert pickle.loads(pickle.dumps(device)) == device


@pytest.mark.parametrize("name", SHIPPED)
def test_every_class_can_run_on_every_shipped_device(name: str) -> None:
    device = load_device(name)
    assert all(cores_of_class(device, work_class) >= 1 for work_class in CLASSES)


@pytest.mark.parametrize("name", SHIPPED)
def test_only_a_recorded_chip_is_calibrated_or_has_measured_values(name: str) -> None:
    device = load_device(name)
    measured = {path for path, source in device.sources.items() if source.kind == "measured"}
    assert device.calibrated == (name in CALIBRATED) == bool(measured)


@pytest.mark.parametrize("name", SHIPPED)
def test_no_profiler_gap_leaks_into_dispatch(name: str) -> None:
    """Some recorded runs show 88 us between queued kernels: the profiler reading counters."""
    dispatch = load_device(name).dispatch
    assert max(dispatch.gap_ns, dispatch.record_ns, dispatch.wait_ns) <= 200
    assert dispatch.mix_switch_ns <= 4000
    assert dispatch.wake_ns <= 25_000


def test_dies_and_die_link() -> None:
    pair = load_device("ascend910_93")
    assert pair.dies == 2
    assert pair.links["die"].bandwidth_bytes_per_s == 224 * 10**9
    assert pair.links["die"].latency_ns == 200
    for name in set(SHIPPED) - {"ascend910_93"}:
        device = load_device(name)
        assert device.dies == 1
        assert "links.die.bandwidth" not in device.sources


def test_what_a_block_takes() -> None:
    """Vector work needs no vector core where the unit sits inside the AI core (910A has none)."""
    demand = {
        name: load_device(name).classes
        for name in ("ascend910a", "ascend910b2", "ascend310b1", "ascend310p3")
    }
    assert demand["ascend910a"]["vector"].demand == {"aic": 1}
    assert demand["ascend910a"]["mix"].demand == {"aic": 1}
    assert demand["ascend910b2"]["mix"].demand == {"aic": 1, "aiv": 2}
    assert demand["ascend310b1"]["mix"].demand == {"aic": 1, "aiv": 1}
    assert demand["ascend310p3"]["vector"].demand == {"aiv": 1}
    assert cores_of_class(load_device("ascend910b2"), "mix") == 24
    assert cores_of_class(load_device("ascend910b2"), "vector") == 48


def test_limits_of_the_small_chip() -> None:
    limits = load_device("ascend310b4").limits
    assert (limits.max_streams, limits.max_concurrent_streams) == (512, 8)
    classes = load_device("ascend310b4").classes
    active = [classes[name].max_active for name in ("cube", "vector", "mix", "sdma", "h2d", "aicpu")]
    assert active == [1, 1, 1, 6, 8, 4]


@pytest.mark.parametrize(
    ("name", "teraflops"),
    [
        ("ascend910b1", 363.7),
        ("ascend910b2", 353.9),
        ("ascend910b3", 294.9),
        ("ascend910b4", 270.3),
        ("ascend310p3", 69.5),
        ("ascend310b1", 10.0),
        ("ascend310b4", 4.1),
        ("ascend910a", 262.1),
    ],
)
def test_peaks_agree_with_the_data_sheets(name: str, teraflops: float) -> None:
    device = load_device(name)
    peak = device.pools["aic"] * device.classes["cube"].flops_per_cycle["float16"] * device.clock_hz / 1e12
    assert peak == pytest.approx(teraflops, abs=0.06)


def test_names_do_not_mind_case_and_an_unknown_one_lists_the_known() -> None:
    assert load_device("Ascend910B2") == load_device("ascend910b2")
    with pytest.raises(
        InputError, match=r"device 'ascend910b9' is not known.*ascend310b1, .*ascend910b4.*\.toml"
    ):
        load_device("ascend910b9")


# --- a user's file ---


def _value(value: object, unit: str, source: str = "assumed", note: str = "a guess") -> str:
    return f'{{ value = {value}, unit = "{unit}", source = "{source}", note = "{note}" }}'


def _write(folder: Path, text: str, name: str = "mine.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_overrides_a_few_keys_of_what_it_extends(tmp_path: Path) -> None:
    base = load_device("ascend910b2")
    path = _write(
        tmp_path,
        f'extends = "Ascend910B2"\ntitle = "Half"\n'
        f"[pools]\naiv = {_value(24, 'cores', 'measured', 'my board')}\n"
        f"[memory]\nmalloc = {_value(0.5, 'ms')}\n",
    )
    device = load_device(path)
    assert device.pools == {**base.pools, "aiv": 24}
    assert device.memory == replace(base.memory, malloc_ns=500_000)
    assert (device.name, device.title, device.calibrated) == ("mine", "Half", True)
    changed = {"pools.aiv", "memory.malloc"}
    assert {path for path, source in device.sources.items() if source != base.sources[path]} == changed
    assert device.sources["pools.aiv"].kind == "measured"
    assert device.classes == base.classes
    assert load_device(str(path)) == device


def test_a_file_extends_a_file_beside_it_and_a_demand_of_zero_leaves_a_pool_alone(tmp_path: Path) -> None:
    _write(tmp_path, f'extends = "ascend910b2"\n[pools]\naiv = {_value(0, "cores")}\n', "base.toml")
    vector = f"demand.aiv = {_value(0, 'cores')}\ndemand.aic = {_value(1, 'cores')}\n"
    mix = f"demand.aiv = {_value(0, 'cores')}\n"
    path = _write(tmp_path, f'extends = "base.toml"\n[classes.vector]\n{vector}[classes.mix]\n{mix}')
    device = load_device(path)
    assert device.classes["vector"].demand == {"aic": 1}
    assert device.classes["mix"].demand == {"aic": 1}


def test_a_complete_file_needs_no_base(tmp_path: Path) -> None:
    text = (config_folder("devices") / "ascend910a.toml").read_text(encoding="utf-8")
    assert replace(load_device(_write(tmp_path, text)), name="ascend910a") == load_device("ascend910a")


FAULTS = {
    "unknown key": (
        f"[memory]\nmaloc = {_value(1, 'us')}",
        r"memory\.maloc: is not a key.*; did you mean 'malloc'\? the known keys here are hbm, .*malloc",
    ),
    "unknown table": ("[memroy]\n", r"memroy: is not a key.*pools, classes, links, memory"),
    "unknown class": (
        f"[classes.tensor]\nmax_active = {_value(1, 'streams')}",
        r"classes\.tensor: is not a key.*cube",
    ),
    "unknown dtype": (
        f"[classes.cube.flops_per_cycle]\nfloat61 = {_value(1, 'flop/cycle')}",
        r"classes\.cube\.flops_per_cycle\.float61: .*float16, bfloat16",
    ),
    "unknown pool": (
        f"[classes.vector.demand]\ngpu = {_value(1, 'cores')}",
        r"classes\.vector\.demand\.gpu: .*known pools here are aic, aiv, aicpu",
    ),
    "engine with arithmetic": (
        f"[classes.h2d]\ncompute_efficiency = {_value(1, 'fraction')}",
        r"classes\.h2d\.compute_efficiency: is not a key.*demand, max_active",
    ),
    "more cores than the pool has": (
        f"[pools]\naiv = {_value(1, 'cores')}",
        r"classes\.mix\.demand\.aiv: has value 2, but pool 'aiv' has 1 \(pools\.aiv\); write at most that",
    ),
    "wrong unit": (
        f"[host]\nsync = {_value(1, 'GB')}",
        r"host\.sync: has unit 'GB'; write one of ns, us, ms, s",
    ),
    "wrong count": (
        f"[pools]\naic = {_value(1, 'streams')}",
        r"pools\.aic: has unit 'streams'; write one of cores",
    ),
    "unit not text": (
        '[pools]\naic = { value = 1, unit = ["cores"], source = "assumed", note = "x" }',
        r"pools\.aic: has unit \['cores'\]; write one of cores",
    ),
    "zero": ("clock = " + _value(0, "MHz"), r"clock: has value 0; write a number greater than zero"),
    "negative": (
        f"[pools]\naic = {_value(-1, 'cores')}",
        r"pools\.aic: has value -1; write a number zero or more",
    ),
    "not a number": (
        f"[pools]\naic = {_value(chr(34) + '24' + chr(34), 'cores')}",
        r"pools\.aic: has value '24'",
    ),
    "truth for a number": (
        f"[pools]\naic = {_value('true', 'cores')}",
        r"pools\.aic: has value True; write a number",
    ),
    "nan": (
        f"[links.hbm]\nefficiency = {_value('nan', 'fraction')}",
        r"links\.hbm\.efficiency: has value NaN",
    ),
    "fraction over one": (
        f"[links.hbm]\nefficiency = {_value(1.2, 'fraction')}",
        r"links\.hbm\.efficiency: has value 1\.2; write a number in \(0, 1\]",
    ),
    "fraction zero": (
        f"[classes.cube]\ncompute_efficiency = {_value(0, 'fraction')}",
        r"classes\.cube\.compute_efficiency: has value 0; write a number in \(0, 1\]",
    ),
    "half a core": (
        f"[pools]\naic = {_value(1.5, 'cores')}",
        r"pools\.aic: has value 1\.5 cores; write a whole number",
    ),
    "half a nanosecond": (
        f"[dispatch]\ngap = {_value(0.0205, 'us')}",
        r"dispatch\.gap: has value 0\.0205 us; write a whole number of ns",
    ),
    "out of the world": (
        f"[memory]\nhbm = {_value('1e9', 'GiB')}",
        r"memory\.hbm: .*1E\+9 GiB; .*is the unit right",
    ),
    "no such exponent": (
        f"[memory]\nhbm = {_value('1e999999', 'GiB')}",
        r"memory\.hbm: .*1E\+999999 GiB; .*is the unit right",
    ),
    "no number at all": (
        f"[memory]\nhbm = {_value('1e99999999999999999999', 'GiB')}",
        r"memory\.hbm: has value NaN",
    ),
    "number for a truth": (
        f"[memory]\nhost_shares_dram = {_value(1, 'bool')}",
        r"memory\.host_shares_dram: has value 1; write true or false",
    ),
    "unknown source": (
        f"[pools]\naic = {_value(24, 'cores', 'guessed')}",
        r"pools\.aic: has source 'guessed'; write one of measured, documented, assumed",
    ),
    "empty note": (
        f"[pools]\naic = {_value(24, 'cores', note=' ')}",
        r"pools\.aic: has note ' '; say in a few words",
    ),
    "bare value": ("[pools]\naic = 24", r"pools\.aic: is 24; write \{ value = \.\.\., unit = \"cores\""),
    "note left out": (
        '[pools]\naic = { value = 24, unit = "cores", source = "assumed" }',
        r"pools\.aic: is a table with value, unit, source; write \{ value",
    ),
    "value for a table": ("pools = 3", r"pools: is 3; it is a table of keys"),
    "more active than created": (
        f"[limits]\nmax_streams = {_value(100, 'streams')}",
        r"limits\.max_concurrent_streams: is 128, more than the 100 of max_streams",
    ),
    "second die without a link": (
        "dies = " + _value(2, "dies"),
        r"links\.die\.bandwidth: is missing; write \{ value",
    ),
    "calibrated in words": ('calibrated = "yes"', r"calibrated: is 'yes'; write true"),
    "title": ("title = 3", r"title: is 3; write what the device is sold as"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named_by_file_key_and_cure(fault: str, tmp_path: Path) -> None:
    text, message = FAULTS[fault]
    path = _write(tmp_path, f'extends = "ascend910b2"\n{text}\n')
    with pytest.raises(InputError, match=r"mine\.toml: " + message):
        load_device(path)


@pytest.mark.parametrize("key", [path for path, key in KEYS.items() if not key.optional])
def test_a_missing_key_is_named(key: str, tmp_path: Path) -> None:
    """Drop one line of a complete file; the loader says which one."""
    lines = (config_folder("devices") / "ascend910a.toml").read_text(encoding="utf-8").splitlines()
    table, kept, dropped = "", [], 0
    for line in lines:
        if line.startswith("["):
            table = line.strip("[]") + "."
        if f"{table}{line.partition(' = ')[0]}" == key:
            dropped += 1
        else:
            kept.append(line)
    assert dropped == 1
    with pytest.raises(InputError, match=rf"mine\.toml: {key}: is missing; write "):
        load_device(_write(tmp_path, "\n".join(kept)))


@pytest.mark.parametrize(
    ("group", "words"), [("demand", "name a pool"), ("flops_per_cycle", "at least one dtype")]
)
def test_an_empty_group_is_named(group: str, words: str, tmp_path: Path) -> None:
    lines = (config_folder("devices") / "ascend310b1.toml").read_text(encoding="utf-8").splitlines()
    start = lines.index("[classes.cube]")
    end = lines.index("[classes.vector]")
    kept = lines[:start] + [line for line in lines[start:end] if not line.startswith(group)] + lines[end:]
    with pytest.raises(InputError, match=rf"mine\.toml: classes\.cube\.{group}: is missing; .*{words}"):
        load_device(_write(tmp_path, "\n".join(kept)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title = 'x'\nclock = = 3\n", r"mine\.toml: is not valid TOML: .*line 2, column 9"),
        ("title = 'x'\npools = {", r"mine\.toml: is not valid TOML: .*line 2, column 10"),
    ],
)
def test_broken_toml_is_named_by_line_and_column(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        load_device(_write(tmp_path, text))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.toml: cannot be read as a device file: No such file"):
        load_device(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b"title = '\xe9'")
    with pytest.raises(InputError, match=r"latin\.toml: is not UTF-8 text: byte 9"):
        load_device(tmp_path / "latin.toml")
    for name, other in (("a.toml", "b.toml"), ("b.toml", "a.toml")):
        _write(tmp_path, f'extends = "{other}"\n', name)
    with pytest.raises(InputError, match=r"a\.toml: extends: .*circle"):
        load_device(tmp_path / "a.toml")
    with pytest.raises(InputError, match=r"mine\.toml: extends: is 3; write a device name"):
        load_device(_write(tmp_path, "extends = 3\n"))
    with pytest.raises(InputError, match="device 'ascend910z' is not known"):
        load_device(_write(tmp_path, 'extends = "ascend910z"\n'))


def test_an_unknown_kind_of_configuration_says_where_it_looked() -> None:
    with pytest.raises(
        FileNotFoundError, match=r"no folder of shipped 'devises' files: looked for .*configs.devises"
    ):
        config_folder("devises")
