"""``acl.media``: the memory and the descriptions of image processing; the processing itself is refused.

What decodes, encodes, crops and resizes images has no model here. Programs that only take memory from it, or
prepare descriptions, run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from cann_env.acl.api import call, getter, site
from cann_env.acl.calls.mdl_types import thing
from cann_env.acl.calls.refused import refused
from cann_env.acl.calls.rt_memory import check_size, free, pages, take

if TYPE_CHECKING:
    from collections.abc import Callable

    from cann_env.acl.state.simulator import Simulator

_DESCRIPTIONS: Final = {
    "dvpp_{}_pic_desc": "data size format width height width_stride height_stride ret_code",
    "dvpp_{}_stream_desc": "data size format timestamp ret_code eos",
    "dvpp_{}_channel_desc": "mode param channel_id",
    "dvpp_{}_roi_config": "left right top bottom",
    "dvpp_{}_resize_config": "interpolation",
    "dvpp_{}_jpege_config": "level",
    "vdec_{}_channel_desc": "channel_id thread_id callback entype out_pic_format out_pic_width "
    "out_pic_height ref_frame_num out_mode bit_depth param",
    "venc_{}_channel_desc": "channel_id thread_id callback entype pic_format pic_width pic_height "
    "key_frame_interval param",
    "venc_{}_frame_config": "force_i_frame eos",
    "vdec_{}_frame_config": "",
}
"""Objects that only hold numbers: the names of their calls, and of what they hold."""


@dataclass(slots=True, eq=False)
class Description:
    """An object that holds numbers by name."""

    kind: str
    values: dict[str, Any] = field(default_factory=dict)


@call(1, cost="malloc_ns", failed=0)
def dvpp_malloc(run: Simulator, size: int) -> int:
    """Memory of the current device for image processing: ordinary memory."""
    return take(run, check_size(size), pages(size, 0), site()).address


@call(1, cost="malloc_ns", failed=0)
def dvpp_malloc_with_cfg(run: Simulator, size: int, policy: int, cfg: object = None) -> int:
    """The same; the configuration has no effect."""
    del cfg
    return take(run, check_size(size), pages(size, policy), site()).address


dvpp_free = free


@call()
def dvpp_create_channel(run: Simulator, channel_desc: int) -> None:
    """A channel of image processing; nothing comes out of it."""
    thing(run, channel_desc, Description, "description")


@call()
def dvpp_destroy_channel(run: Simulator, channel_desc: int) -> None:
    """End a channel."""
    thing(run, channel_desc, Description, "description")


@getter()
def dvpp_create_roi_config(run: Simulator, left: int, right: int, top: int, bottom: int) -> int:
    """A region of an image."""
    handle = run.new_handle()
    values = {"left": left, "right": right, "top": top, "bottom": bottom}
    run.things[handle] = Description("roi_config", values)
    return handle


_EMPTY, _FORGET = "An empty description.", "Forget a description."
_SET, _GET = "Set what it holds.", "What it holds; 0 if nothing was set."


def _maker(kind: str) -> Callable[..., Any]:
    def create(run: Simulator) -> int:
        handle = run.new_handle()
        run.things[handle] = Description(kind)
        return handle

    made: Callable[..., Any] = getter()(_named(create, kind.format("create"), _EMPTY))
    return made


def _ender(kind: str) -> Callable[..., Any]:
    def destroy(run: Simulator, desc: int) -> None:
        thing(run, desc, Description, "description")
        run.bury(desc, "description", site())
        del run.things[desc]

    made: Callable[..., Any] = call(initialised=False)(_named(destroy, kind.format("destroy"), _FORGET))
    return made


def _setter(kind: str, name: str) -> Callable[..., Any]:
    def put(run: Simulator, desc: int, value: Any) -> None:
        thing(run, desc, Description, "description").values[name] = value

    made: Callable[..., Any] = call(initialised=False)(_named(put, f"{kind.format('set')}_{name}", _SET))
    return made


def _getter(kind: str, name: str) -> Callable[..., Any]:
    def look(run: Simulator, desc: int) -> Any:
        return thing(run, desc, Description, "description").values.get(name, 0)

    made: Callable[..., Any] = getter()(_named(look, f"{kind.format('get')}_{name}", _GET))
    return made


def _named(function: Callable[..., Any], name: str, doc: str) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def _calls() -> dict[str, Callable[..., Any]]:
    made: dict[str, Callable[..., Any]] = {}
    for kind, names in _DESCRIPTIONS.items():
        made[kind.format("create")] = _maker(kind)
        made[kind.format("destroy")] = _ender(kind)
        for name in names.split():
            made[f"{kind.format('set')}_{name}"] = _setter(kind, name)
            made[f"{kind.format('get')}_{name}"] = _getter(kind, name)
    return made


for _name, _made in _calls().items():
    globals().setdefault(_name, _made)


def __getattr__(name: str) -> Any:
    return refused("acl.media", name, "decode, encode, crop and resize images on the host")
