"""Words of profilers for what a task is: its kind, the core it runs on, the way it copies."""

from __future__ import annotations

from dataclasses import dataclass

from cann_env.commands import CopyKind, KernelClass
from cann_env.profiles.fields import bare
from cann_env.profiles.recording import TaskKind


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a word says of a task.

    Attributes:
        kind: See :class:`~cann_env.profiles.recording.TaskKind`.
        kernel_class: KERNEL: the core; None if the word leaves it open.
        copy: COPY: its direction; None if the word leaves it open.
    """

    kind: TaskKind
    kernel_class: KernelClass | None = None
    copy: CopyKind | None = None


_CUBE = Meaning(TaskKind.KERNEL, KernelClass.CUBE)
_VECTOR = Meaning(TaskKind.KERNEL, KernelClass.VECTOR)
_MIX = Meaning(TaskKind.KERNEL, KernelClass.MIX)
_AICPU = Meaning(TaskKind.KERNEL, KernelClass.AICPU)
_KERNEL = Meaning(TaskKind.KERNEL)
_COPY = Meaning(TaskKind.COPY)
_D2D = Meaning(TaskKind.COPY, copy=CopyKind.D2D)
_COLLECTIVE = Meaning(TaskKind.COLLECTIVE)
_RECORD = Meaning(TaskKind.RECORD)
_WAIT = Meaning(TaskKind.WAIT)
_RESET = Meaning(TaskKind.RESET)
_PEER_WAIT = Meaning(TaskKind.PEER_WAIT)
_CALLBACK = Meaning(TaskKind.CALLBACK)
_OTHER = Meaning(TaskKind.OTHER)

# The core words of operator tables, the task words of the runtime, and the queue entries (SQE) of the task
# scheduler, in capitals without blanks. AI_CORE is a cube kernel where cube and vector cores are apart.
_MEANINGS: dict[str, Meaning] = {
    "AI_CORE": _CUBE,
    "AICORE": _CUBE,
    "AIC": _CUBE,
    "AI_CUBE_CORE": _CUBE,
    "KERNEL_AICORE": _CUBE,
    "KERNEL_AIC": _CUBE,
    "AICORE_SQE": _CUBE,
    "AIC_SQE": _CUBE,
    "AI_VECTOR_CORE": _VECTOR,
    "VECTOR_CORE": _VECTOR,
    "AIV": _VECTOR,
    "KERNEL_AIVEC": _VECTOR,
    "KERNEL_AIVECTOR": _VECTOR,
    "KERNEL_AIV": _VECTOR,
    "AIV_SQE": _VECTOR,
    "MIX": _MIX,
    "MIX_AIC": _MIX,
    "MIX_AIV": _MIX,
    "KERNEL_MIX": _MIX,
    "KERNEL_MIX_AIC": _MIX,
    "KERNEL_MIX_AIV": _MIX,
    "MIX_AICORE": _MIX,
    "AI_CPU": _AICPU,
    "AICPU": _AICPU,
    "AICPU_KERNEL": _AICPU,
    "KERNEL_AICPU": _AICPU,
    "KERNEL_AI_CPU": _AICPU,
    "AICPU_D_SQE": _AICPU,
    "AICPU_H_SQE": _AICPU,
    "AICPU_SQE": _AICPU,
    "AICPU_TASK": _AICPU,
    "DVPP": _KERNEL,
    "DSA": _KERNEL,
    "DSA_SQE": _KERNEL,
    "STARS_DSA": _KERNEL,
    "DSA_RANDOM_NORMAL": _KERNEL,
    "FFTS_PLUS": _KERNEL,
    "FFTS_PLUS_SQE": _KERNEL,
    "FUSION": _KERNEL,
    "MEMCPY": _COPY,
    "MEMCPY_ASYNC": _COPY,
    "MEMCPY_ASYNC_SQE": _COPY,
    "ASYNC_MEMCPY": _COPY,
    "MEMCPY_ASYNC_D2H": Meaning(TaskKind.COPY, copy=CopyKind.D2H),
    "MEMCPY_ASYNC_H2D": Meaning(TaskKind.COPY, copy=CopyKind.H2D),
    "PCIE_DMA": _COPY,
    "PCIE_DMA_SQE": _COPY,
    "SDMA": _D2D,
    "SDMA_SQE": _D2D,
    "MEMCPY_ASYNC_D2D": _D2D,
    "MEMSET_ASYNC": _D2D,
    "HCCL": _COLLECTIVE,
    "COMMUNICATION": _COLLECTIVE,
    "COMMUNICATE": _COLLECTIVE,
    "HCCL_AI_CPU": _COLLECTIVE,
    "CCU": _COLLECTIVE,
    "CCU_SQE": _COLLECTIVE,
    "REDUCE_ASYNC": _COLLECTIVE,
    "REDUCE_ASYNC_V2": _COLLECTIVE,
    "INLINE_REDUCE": _COLLECTIVE,
    "SDMA_REDUCE": _COLLECTIVE,
    "EVENT_RECORD": _RECORD,
    "EVENT_RECORD_SQE": _RECORD,
    "CAPTURE_RECORD": _RECORD,
    "EVENT_WAIT": _WAIT,
    "EVENT_WAIT_SQE": _WAIT,
    "STREAM_WAIT_EVENT": _WAIT,
    "CAPTURE_WAIT": _WAIT,
    "EVENT_RESET": _RESET,
    "STREAM_EVENT_RESET": _RESET,
    "NOTIFY_WAIT": _PEER_WAIT,
    "NOTIFY_WAIT_SQE": _PEER_WAIT,
    "NOTIFY_RECORD": _OTHER,
    "NOTIFY_RECORD_SQE": _OTHER,
    "REMOTE_EVENT_WAIT": _PEER_WAIT,
    "HOST_FUNC": _CALLBACK,
    "CALLBACK_LAUNCH": _CALLBACK,
    "PLACE_HOLDER": _OTHER,
    "PLACE_HOLDER_SQE": _OTHER,
    "IPC_WAIT": _PEER_WAIT,
    "IPC_EVENT_WAIT": _PEER_WAIT,
    "MEM_WAIT_VALUE": _PEER_WAIT,
    "DAVID_EVENT_RECORD": _RECORD,
    "DAVID_EVENT_WAIT": _WAIT,
    "DAVID_EVENT_RESET": _RESET,
    "RDMA": _COLLECTIVE,
    "RDMA_SEND": _COLLECTIVE,
    "RDMA_DB_SEND": _COLLECTIVE,
    "ROCCE_SQE": _COLLECTIVE,
    "UBDMA": _COLLECTIVE,
    "UBDMA_SQE": _COLLECTIVE,
    "UB_DB_SEND": _COLLECTIVE,
    "DIRECT_SEND": _COLLECTIVE,
    "CCU_LAUNCH": _COLLECTIVE,
    "HOST_CPU": _CALLBACK,
    "HOST_CPU_SQE": _CALLBACK,
    "HOSTFUNC_CALLBACK": _CALLBACK,
    "FUSION_KERNEL": _KERNEL,
    "KERNEL_FUSION": _KERNEL,
    "KERNEL_SIMT": _VECTOR,
    "MULTIPLE_TASK": _KERNEL,
    "VPC_SQE": _KERNEL,
    "JPEGE_SQE": _KERNEL,
    "JPEGD_SQE": _KERNEL,
}

# Marks, switches and upkeep of the runtime: they occupy their stream and move nothing that is known.
_UPKEEP = """
    ACTIVE_AICPU_STREAM ADC_PROF AICPU_LOADINFO ALLOC_DSA_ADDR BARRIER CDQM_SQE CMO CMO_TASK
    CREATE_L2_ADDR CREATE_STREAM C_CORE_SQE DATADUMP_LOADINFO DATA_CONTEXT DATA_DUMP DEBUG_REGISTER
    DEBUG_REGISTER_FOR_STREAM DEBUG_UNREGISTER DEBUG_UNREGISTER_FOR_STREAM DEVICE_RINGBUFFER_CONTROL
    FLIP_TASK FUSIONDUMP_ADDR_SET FUSION_ISSUE GET_DEVICE_MSG GET_STARS_VERSION INVALID
    INVALIDATE_DATA_CONTEXT IPC_EVENT_RECORD IPC_INT_NOTICE IPC_RECORD LABEL_GOTO LABEL_SET
    LABEL_SWITCH LABEL_SWITCH_BY_INDEX LOAD_CONTEXT MAINTENANCE MEM_WRITE_VALUE MODEL_END_GRAPH
    MODEL_EXECUTE MODEL_EXIT MODEL_EXIT_GRAPH MODEL_MAINTAINCE MODEL_MAINTENANCE MODEL_TASK_UPDATE
    MODEL_TO_AICPU NOP NPU_CLEAR_FLOAT_STATUS NPU_GET_FLOAT_STATUS ONLINE_PROF_DISABLE
    ONLINE_PROF_ENABLE OVERFLOW_SWITCH_SET OVERFLOW_SWTICH_SET PCTRACE_ENABLE PC_TRACE
    PROFILER_DYNAMIC_DISABLE PROFILER_DYNAMIC_ENABLE PROFILER_TRACE PROFILER_TRACE_EX
    PROFILING_DISABLE PROFILING_ENABLE RDMA_PI_VALUE_MODIFY RESERVE SET_STREAM_MODE STARS_COMMON
    STREAM_ACTIVE STREAM_LABEL_GOTO STREAM_LABEL_SWITCH_BY_INDEX STREAM_SWITCH STREAM_SWITCH_N
    STREAM_TAG_SET TASK_SQE_UPDATE TASK_TIMEOUT_SET TIMEOUT_SET TOF_SQE UNKNOWN UPDATE_ADDRESS
    VQ6_SQE WRITEBACK_DATA_CONTEXT WRITEVALUETASK WRITE_BACK WRITE_VALUE WRITE_VALUE_SQE
"""
_MEANINGS.update(dict.fromkeys(_UPKEEP.split(), _OTHER))


def meaning(word: str) -> Meaning | None:
    """What a word for a task or a core says; None for one that is not known."""
    return _MEANINGS.get(bare(word).upper().replace(" ", "_").replace("-", "_"))


def kernel_class(word: str) -> KernelClass | None:
    """The core that a word names; None if it names none of the device's kernel cores."""
    found = meaning(word)
    return found.kernel_class if found else None
