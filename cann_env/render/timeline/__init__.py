"""An interactive timeline of a schedule: as a widget in a notebook, as an HTML file, from a small server."""

from cann_env.render.timeline.document import document
from cann_env.render.timeline.html import write_html
from cann_env.render.timeline.server import TimelineServer
from cann_env.render.timeline.shown import Timeline
from cann_env.render.timeline.whatif import Edited, WhatIf

__all__ = ["Edited", "Timeline", "TimelineServer", "WhatIf", "document", "write_html"]
