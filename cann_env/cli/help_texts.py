"""The examples that stand in the help of each verb. Every one of them runs, in the order of its verb."""

from __future__ import annotations

from typing import Final

from cann_env.cli.verbs import examples

ABOUT: Final = (
    "Simulate how an Ascend NPU runs commands on streams, and compare ways to schedule them.\n\n"
    "The exit code is 0 if all is well, 1 if something was found (a schedule that breaks a rule, a program "
    "with hazards), 2 if the command cannot be used as it was given."
)

START: Final = examples(
    "what ships, and how much there is to win in each",
    "cann-env scenarios",
    "one scheduler on one scenario: figures, a timeline, a picture",
    "cann-env run pipeline",
    "schedulers side by side",
    "cann-env compare pipeline",
    "why it takes as long as it does, and what to try",
    "cann-env explain pipeline --scheduler single_stream",
    "a scenario of one's own",
    "cann-env new scenario mine",
)

RUN: Final = examples(
    "the reference scheduler; writes pipeline-reference.json and pipeline-reference.png",
    "cann-env run pipeline",
    "search among 500 schedules, write nothing",
    "cann-env run serving --scheduler search:500 --no-files",
    "a model of the onnx package on another device",
    "cann-env run squeezenet --device ascend910b2 --batch 4 --no-files",
    "commands called one by one, at most six in flight, as JSON",
    "cann-env run serving --submission eager --set run_ahead=6 --json",
    "what a profiler would have written, and a picture",
    "cann-env run pipeline --no-files --trace run_ascend_pt --gantt run.svg",
)

COMPARE: Final = examples(
    "a short list of schedulers, on a scenario as it ships and on another device",
    "cann-env compare pipeline --device ascend310b4",
    "named schedulers, means over two instances",
    "cann-env compare serving --schedulers cann_autotune,nimble,reference --instances 2",
    "prefetchers, where memory is short",
    "cann-env compare oversubscribed --schedulers eager+on_demand_lru,eager+aggressive",
    "a suite of cases, with one row for each case and scheduler in a file",
    "cann-env compare --suite smoke --schedulers per_engine,reference --csv rows.csv",
)

TIMELINE: Final = examples(
    "a page to open in a browser: zoom, ask, select",
    "cann-env timeline pipeline -o pipeline.html",
    "two schedulers on one time axis",
    "cann-env timeline serving --scheduler reference --against nimble -o serving.html",
)

EXPLAIN: Final = examples(
    "what holds one stream up",
    "cann-env explain pipeline --scheduler single_stream",
    "a host that calls command by command; at most four changes are simulated",
    "cann-env explain serving --submission eager --trials 4",
    "a run that was saved",
    "cann-env run pipeline --no-files --trace run.json",
    "cann-env explain run.json --trials 0",
    "for a program to read",
    "cann-env explain pipeline --trials 0 --json",
)

REPLAY: Final = examples(
    "a folder as a profiler writes it, here of a simulated run",
    "cann-env run pipeline --no-files --trace run_ascend_pt",
    "as recorded, side by side with the simulator",
    "cann-env replay run_ascend_pt --no-files",
    "lengths of kernels from the cost model, as JSON",
    "cann-env replay run_ascend_pt --durations modelled --json",
)

OPTIMISE: Final = examples(
    "a folder as a profiler writes it, here of a simulated run",
    "cann-env run pipeline --scheduler single_stream --no-files --trace run_ascend_pt",
    "a better schedule of it, and whether its gain can be promised",
    "cann-env optimise run_ascend_pt --schedulers per_engine,reference --plan plan.json",
)

EXPORT: Final = examples(
    "a schedule as a program against the runtime's Python binding",
    "cann-env export pipeline --form acl -o plan.py",
    "the same for PyTorch, to the terminal",
    "cann-env export serving --scheduler nimble --form torch_npu",
)

CHECK: Final = examples(
    "a program to check, here one that was exported",
    "cann-env export pipeline -o plan.py",
    "races, misused events, leaks and deadlocks: none in this one",
    "cann-env check plan.py",
    "on another device, as JSON",
    "cann-env check plan.py --device ascend910b2 --json",
)

NEW: Final = examples(
    "a scenario of one's own, which runs as it stands",
    "cann-env new scenario mine --kind cnn",
    "cann-env run mine.toml --no-files",
    "a device of one's own, started from another one",
    "cann-env new device chip --like ascend310p3",
    "cann-env compare mine.toml --device chip.toml --schedulers reference",
)

NEW_SCENARIO: Final = examples(
    "random layers of kernels on the 910B2",
    "cann-env new scenario mine",
    "requests for several models",
    "cann-env new scenario requests --kind serving --device ascend310p3",
    "cann-env run requests.toml --no-files",
)

NEW_DEVICE: Final = examples(
    "start from the nearest chip there is",
    "cann-env new device chip --like ascend310p3",
    "cann-env run pipeline --device chip.toml --no-files",
)

DEVICES: Final = examples(
    "a table", "cann-env devices", "all of it, for a program", "cann-env devices --json"
)

SCENARIOS: Final = examples(
    "a table", "cann-env scenarios", "of other instances, for a program", "cann-env scenarios --seed 1 --json"
)
