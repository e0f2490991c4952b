"""A plan as stream labels for CANN's graph engine, which places nodes itself unless it is told where.

The engine puts nodes of one label on one stream: a node carries it in the attribute ``_user_stream_label``,
with ``_user_stream_priority`` beside it, both words; torchair's ``npu_stream_switch`` sets them. Where a
graph comes from a model file, a pass that is registered with ``CustomAllocateStreamPassFn`` names streams
instead.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from cann_env.acl.plans.plan import plan_of

if TYPE_CHECKING:
    from cann_env.acl.plans.plan import Plan
    from cann_env.schedule import Schedule

LABEL: Final = "_user_stream_label"
PRIORITY: Final = "_user_stream_priority"

_PASS: Final = """\
// Schedule of {graph} for {device}: {commands} commands on {streams} streams.
// Built as a library and laid where CANN looks for custom passes, it says which node runs on which stream.

#include <cstdint>
#include <map>
#include <string>

#include <register/register_custom_pass.h>

namespace {{
// Name of the node, number of its stream.
const std::map<std::string, int> kStreams = {{
{rows}
}};

ge::Status AssignStreams(const ge::ConstGraphPtr &graph, ge::StreamPassContext &context) {{
  std::map<int, int64_t> ids;
  for (const auto &node : graph->GetDirectNode()) {{
    ge::AscendString name;
    if (node.GetName(name) != ge::GRAPH_SUCCESS) {{
      return ge::FAILED;
    }}
    const auto found = kStreams.find(name.GetString());
    if (found == kStreams.end()) {{
      continue;  // the engine places what the schedule does not know
    }}
    const auto made = ids.emplace(found->second, -1);
    if (made.second) {{
      made.first->second = context.AllocateNextStreamId();
    }}
    if (context.SetStreamId(node, made.first->second) != ge::GRAPH_SUCCESS) {{
      return ge::FAILED;
    }}
  }}
  return ge::SUCCESS;
}}
}}  // namespace

REGISTER_CUSTOM_PASS("ScheduledStreams")
    .CustomAllocateStreamPassFn(AssignStreams)
    .Stage(ge::CustomPassStage::kAfterAssignLogicStream);
"""


def stream_labels(schedule: Schedule) -> str:
    """Labels of streams, as JSON.

    ``nodes`` has one entry a command, in the order of submission: its ``name``, its ``kind``, the
    ``attributes`` to set on the node, and ``control``: nodes from which it needs a control edge so that the
    engine keeps the schedule's order, the one before it on its stream first.

    Raises:
        InputError: The schedule's durations were drawn at random.
    """
    plan = plan_of(schedule)
    commands, priorities = plan.graph.commands, schedule.options.stream_priorities
    last: dict[int, int] = {}
    nodes: list[dict[str, Any]] = []
    for taken in plan.steps:
        if taken.call != "issue":
            continue
        c, stream = taken.target, taken.stream
        before = [*([last[stream]] if stream in last else []), *_awaited(plan, c)]
        nodes.append(
            {
                "name": commands[c].name,
                "kind": commands[c].kind.value,
                "attributes": {
                    LABEL: f"s{stream}",
                    PRIORITY: str(priorities[stream] if priorities else 0),
                },
                "control": [commands[u].name for u in dict.fromkeys(before)],
            }
        )
        last[stream] = c
    table = {
        "graph": plan.graph.name,
        "device": schedule.device.name,
        "makespan_ns": schedule.makespan_ns,
        "streams": [
            {"label": f"s{stream}", "priority": priorities[stream] if priorities else 0}
            for stream in range(plan.streams)
        ],
        "nodes": nodes,
    }
    return json.dumps(table, indent=1) + "\n"


def stream_pass(schedule: Schedule) -> str:
    """C++ source of a pass of the graph engine that gives each node its stream.

    Raises:
        InputError: The schedule's durations were drawn at random.
    """
    plan = plan_of(schedule)
    runs = sorted(schedule.commands, key=lambda run: run.command)
    rows = [f"    {{{json.dumps(plan.graph.commands[run.command].name)}, {run.stream}}}," for run in runs]
    return _PASS.format(
        graph=json.dumps(plan.graph.name), device=schedule.device.name, commands=len(runs),
        streams=len({run.stream for run in runs}), rows="\n".join(rows),
    )  # fmt: skip


def _awaited(plan: Plan, c: int) -> tuple[int, ...]:
    return (*plan.waits.get(c, ()), *plan.reuse.get(c, ()))
