"""What stands in every exported program: its head, and the functions that its lines call."""

from __future__ import annotations

from typing import Final

HEAD: Final = '''\
"""Schedule of {graph!r} for {device}: {commands} commands on {streams} streams, {makespan} ns.

cann-env: device={device} {settings}
"""

{numpy}import cann_env.acl as acl  # on a device: import acl
{names}{order}
BY_TIME = True  # False: the host waits for events alone, as it has to on a device


def works(code):
    if code != 0:
        raise RuntimeError(f"{{code}}: {{acl.get_recent_err_msg()}}")


def value(result):
    works(result[-1])
    return result[0]
'''

HELPERS: Final = {
    "until(": '''
def until(time_ns, event=None):
    """The host waits for an instant, or for the event that is met then."""
    works(acl.wait_until(time_ns) if BY_TIME or event is None else acl.rt.synchronize_event(event))
''',
    "wait(": """
def wait(stream, *events):
    for event in events:
        works(acl.rt.stream_wait_event(stream, event))
""",
    "reuse(": '''
def reuse(stream, *events):
    """Memory is used again: its last users come first."""
    for event in events:
        works(acl.reuse_memory(stream, event))  # on a device: acl.rt.stream_wait_event
''',
    "record(": """
def record(event, stream):
    works(acl.rt.record_event(event, stream))
""",
    "launch(": """
def launch(kernel, blocks, args, stream):
    works(acl.rt.launch_kernel(kernel, blocks, args, None, stream))
""",
    "fused(": '''
def fused(launches, stream):
    """Kernels as one submission."""
    command = value(acl.create_command())
    for kernel, blocks, args in launches:
        works(acl.set_command_args(command, kernel, blocks, args))
    works(acl.submit_command(command, stream))
    works(acl.destroy_command(command))
''',
    "copy(": """
def copy(target, source, size, kind, stream):
    works(acl.rt.memcpy_async(target, size, source, size, kind, stream))
""",
    "give_back(": '''
def give_back(memory, stream, *users):
    """Memory goes back to its pool once its last users are done."""
    for event in users:
        works(acl.rt.stream_wait_event(stream, event))
    works(acl.rt.mem_pool_free_async(memory, stream))
''',
    "    view(": '''
def view(address, size):
    """Bytes of the host's memory."""
    return acl.util.ptr_to_numpy(address, (size,), "uint8")
''',
    "bring(": '''
def bring(memory, size, place, stream):
    """Move managed memory to the device, (1, 0), or to the host, (0, 0)."""
    works(acl.rt.mem_managed_prefetch_async(memory, size, place, 0, stream))
''',
}
