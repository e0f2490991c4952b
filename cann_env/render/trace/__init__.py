"""A schedule as a trace that Perfetto, ``chrome://tracing`` and MindStudio Insight open."""

from cann_env.render.trace.chrome import chrome_trace
from cann_env.render.trace.events import Process
from cann_env.render.trace.mindstudio import mindstudio_trace
from cann_env.render.trace.write import FOLDER_ENDING, TraceForm, write_trace

__all__ = ["FOLDER_ENDING", "Process", "TraceForm", "chrome_trace", "mindstudio_trace", "write_trace"]
