"""Every record of the engine, with its unit: the one vocabulary that all kernels share.

The engine works on two flat int64 arrays. The *program image* ``p`` holds a compiled graph and is never
written; the *state image* ``s`` is all that changes, so a snapshot is one copy and a batch one more axis.
Each image starts with a header, which holds counts, constants and the offset of each table. A row is
addressed as ``table_offset + index * WIDTH``, a field as ``row + FIELD``. Sizes live in the header, never in
types, so one compilation serves every graph and device.

Units: ``_ns`` nanoseconds, ``bytes`` bytes, ``q20`` multiples of 2**-20 byte (so that a bandwidth shared by
many keeps its fractions), ``q20/ns`` for rates. Absent indices are -1.

Prefixes: ``P_`` header of the program, ``S_`` header of the state; then one per table: ``PC_``/``SC_``
command, ``PK_`` kernel, ``PO_`` operand, ``PB_``/``SB_`` buffer, ``PW_``/``SW_`` class of work,
``PP_``/``SP_`` pool, ``PL_``/``SL_`` link, ``PS_``/``SS_`` stream, ``PD_``/``SD_`` die, ``PV_`` user of a
buffer, ``PM_`` demand of a command, ``PQ_`` rest of the serial order, ``PU_`` late release, ``PR_``/``SR_``
request. Classes and pools have a row a kind in the program, one a kind and
die in the state; links one a kind and die in both, the kinds of a die together.
"""

from __future__ import annotations

Q20 = 1 << 20
FAR = 1 << 62  # later than any time that occurs

# Program header: counts, options, constants of the device, offsets of the tables.
(
    P_COMMANDS,  # commands in the graph (n)
    P_EDGES,  # dependency edges
    P_BUFFERS,  # buffers
    P_DIES,
    P_CLASSES,  # kinds of class: those of the device, then those of kernels with a demand of their own
    P_POOLS,  # kinds of pool, of which each die has one
    P_LINKS,  # rows of the link table: LINK_KINDS a die
    P_REQUESTS,
    P_LATE,  # commands released after time zero
    P_STREAMS,  # S
    P_WINDOW,  # K, slots of the ready window
    P_SLOTS,  # P, slots of the prefetch window in the action space: the sum of the next three
    P_PREFETCHES,  # slots from the host into HBM
    P_LIFTS,  # slots from HBM into L2
    P_OFFLOADS,  # slots from HBM to the host
    P_LANES,  # prefetches of one kind that move at once on a die
    P_FREE_MASK,  # 1 if a prefetch may evict what is needed sooner
    P_LRU,  # 1 if what was used longest ago makes room, 0 if what is needed last
    P_CHOICES,  # streams an action names: S, or 1 where the stream is implied
    P_IMPLIED,  # 1 if the window holds what can start now and the stream is the lowest idle one
    P_RUN_AHEAD,  # most commands issued and not finished
    P_QUEUE_DEPTH,
    P_MAX_EVENTS,
    P_MAX_ACTIVE,  # streams whose head may be active at once
    P_AMPLE,  # 1 if each die holds all there is at once: memory never keeps anything from being issued
    P_ALIKE,  # 1 if all streams are of one die and priority
    P_HBM_BYTES,  # of a die
    P_L2_BYTES,  # of a die, 0 without L2
    P_LIFT_BYTES,  # most bytes that one prefetch lifts into L2
    P_LIFT_RATE,  # q20/ns of one such prefetch
    P_CLOCKS,  # streams that places remember, S; 0 if the host sees when memory is free again
    P_CAN_PREFETCH,  # 1 if the device can prefetch managed memory
    P_LATENCY,  # 1 if the objective is the sum of request latencies
    P_GAP_NS,
    P_MIX_SWITCH_NS,
    P_RECORD_NS,
    P_WAIT_NS,
    P_WAKE_NS,
    P_HOST_EVENT_NS,  # host time of one record and one wait
    P_HOST_PREFETCH_NS,
    P_HOST_SYNC_NS,
    P_FAULT_RATE,  # q20/ns of a migration on demand
    P_LINK_LATENCY_NS,  # fixed part of a migration from the host
    P_OFFLOAD_LATENCY_NS,  # the same to the host
    P_LIFT_LATENCY_NS,  # the same from HBM into L2
    P_STEP_BUDGET,
    P_GROUP_CAPACITY,
    P_BOUND_NS,  # lower bound at time zero, at least 1
    P_NORM_NS,  # what rewards are divided by
    P_WORST_NS,  # no finished episode is longer
    P_HOST_NS,  # host time of all submissions together
    P_AT_COMMAND,
    P_AT_KERNEL,
    P_AT_PRED,  # edges grouped by consumer: the producer
    P_AT_SUCC,  # edges grouped by producer: the consumer
    P_AT_OPERAND,
    P_AT_BUFFER,
    P_AT_USER,  # for each buffer its users by rank
    P_AT_DIE,
    P_AT_CLASS,
    P_AT_POOL,
    P_AT_LINK,
    P_AT_STREAM,
    P_AT_LATE,
    P_AT_RANKED,  # commands by rank
    P_AT_SERIAL,  # commands in a serial order whose memory peak fits
    P_AT_DEMAND,  # for each command and die what it asks of the memory
    P_AT_REST,  # for each die and place in that order what the rest of it needs
    P_STATE_WORDS,  # length of a state image without trace
    P_AT_REQUEST,
    P_AT_FEATURE,  # FEATURE_WORDS a command, two float32 each: what never changes of its observation
    P_STATE_COMMAND,
    P_STATE_BUFFER,
    P_STATE_CLASS,
    P_STATE_POOL,
    P_STATE_LINK,
    P_STATE_STREAM,
    P_STATE_REQUEST,
    P_STATE_GROUP,
    P_STATE_FLIGHT,
    P_STATE_READY,
    P_STATE_PENDING,
    P_STATE_ELIGIBLE,
    P_STATE_LISTS,  # of the dies, one after another
    P_STATE_DIE,
    P_STATE_LIFTABLE,  # by rank of the next user, the most urgent last
    P_STATE_WANTED,  # by rank of the next user
    P_STATE_WINDOW,  # K commands, -1 where empty
    P_STATE_MASK,  # one byte an action, 1 if legal
    P_STATE_SHOWN,  # K words: what the mask of a slot is, all 0, the open streams (1) or else (-1)
    P_STATE_OPEN,  # one word a stream, 1 if an action may name it
    P_STATE_PREFETCH,  # P buffers, -1 where empty
    P_STATE_EDGE,  # one word an edge, by consumer: 1 if an event wait was submitted for it
    P_STATE_CLOCK,  # n rows of S: last position in each stream that a command is ordered after, -1 none
    P_STATE_STREAM_CLOCK,  # S rows of S: the same for the next command of a stream
    P_STATE_USED,  # S words of scratch: last position in each stream that used a buffer
    P_HEADER,
) = range(97)

# Program: one row a command.
(
    PC_KERNEL,  # first row in the kernel table
    PC_PRED,
    PC_PREDS,
    PC_MIN_NS,  # optimistic duration
    PC_TAIL_NS,  # optimistic time from its start to the end of the graph
    PC_RELEASE_NS,
    PC_OPERAND,
    PC_OPERANDS,
    PC_SUCC,
    PC_SUCCS,
    PC_HOST_NS,  # host time of its submission without events
    PC_OUTPUT_BYTES,  # device buffers it is the first to write
    PC_MANAGED_BYTES,  # managed buffers it touches
    PC_TRAFFIC_BYTES,  # sizes of what it reads and of what it writes, in kernels; 0 for all else
    PC_BLOCKING,  # 1 if it blocks the host until it is finished
    PC_FIRST_MIX,  # 1 if its first kernel is a mix kernel, 2 if it may fall back into or out of that
    PC_KERNELS,  # kernels, at least 1
    PC_SERIAL,  # place in the serial order
    PC_RANK,  # place in the order by descending tail, ties by index
    PC_REQUEST,
) = range(20)
PC_WIDTH = 24  # whole lines of 64 bytes, the first with what is looked at most

# Program: one row a kernel, copy, callback or collective; the second figures are for the fallback class.
(
    PK_CLASS,
    PK_FALLBACK,
    PK_BLOCKS,
    PK_BATCH,  # 1 if all blocks start together
    PK_LAUNCH_NS,
    PK_COMPUTE_NS,  # one block
    PK_BYTES,  # q20, one block
    PK_RATE,  # q20/ns, cap of one block
    PK_L2_RATE,  # the same for what is found in L2
    PK_LAUNCH_2_NS,
    PK_COMPUTE_2_NS,
    PK_BYTES_2,
    PK_RATE_2,
    PK_L2_RATE_2,
    PK_FLOW,  # bit set of the kinds of link its bytes cross
    PK_HBM_WEIGHT,  # times its bytes load the HBM link
    PK_LEAST_BYTES,  # q20, one block: what cannot be found in L2
    PK_MIN_NS,  # optimistic duration
    PK_AREA_NS,  # time one block holds its cores at the least; 0 if it has a fallback
    PK_WIDTH,
) = range(20)
PK_VARIANT = PK_LAUNCH_2_NS - PK_LAUNCH_NS  # from a field of the first set to the second

(PO_BUFFER, PO_MODE, PO_WIDTH) = range(3)
READ, WRITE, ALLOCATE = 1, 2, 4  # bits of PO_MODE

(
    PB_BYTES,
    PB_TAKEN,  # bytes of the address space, for device buffers
    PB_CHARGE,  # bytes of HBM it reserves: 0 inside a pool that was taken beforehand
    PB_MANAGED,
    PB_LEVEL,  # where it lies at first
    PB_PAGEABLE,
    PB_DIE,
    PB_WRITER,  # command that takes a place for it, -1 if none does
    PB_USER,
    PB_USERS,
    PB_WIDTH,
) = range(11)
NOWHERE, ON_HOST, IN_HBM = range(3)  # PB_LEVEL
(PV_COMMAND, PV_MODE, PV_WIDTH) = range(3)
(
    PD_FIXED_BYTES,  # reserved for ever: device buffers that are there from the start, a pool
    PD_BASE,  # where the part of the address space begins that is handed out
    PD_SPACE_BYTES,  # its size
    PD_OUTPUT_BYTES,  # bytes charged to HBM by all device buffers together
    PD_TAKEN_BYTES,  # bytes of the address space that all device buffers take
    PD_PLACED,  # device buffers that are placed in it
    PD_MANAGED_PEAK,  # most managed bytes that one command touches
    PD_WIDTH,
) = range(8)
# Pairs of a pool and what a block holds of it, the scarcest first; the device's class it belongs to.
(PW_POOL, PW_DEMAND, PW_POOL_2, PW_DEMAND_2, PW_MAX_ACTIVE, PW_MIX, PW_NAMED) = range(7)
(PW_POOL_3, PW_DEMAND_3, PW_POOL_4, PW_DEMAND_4, PW_WIDTH) = range(7, 12)
(PP_CAPACITY, PP_AREA_NS, PP_WIDTH) = range(3)  # area: unstarted core time of the whole graph
(PL_RATE, PL_BYTES, PL_FLOW, PL_WIDTH) = range(4)  # q20/ns; q20 of the whole graph; links crossed with it
(PS_PRIORITY, PS_DIE, PS_WIDTH) = range(3)
(PM_MANAGED, PM_CHARGE, PM_TAKEN, PM_WIDTH) = range(4)  # bytes of managed operands; HBM, places of outputs
# From a place of the serial order on: HBM at the most demanding command; what holes must have beyond the
# largest size each for all places to be found; that largest size.
(PQ_BYTES, PQ_ROOM, PQ_LARGEST, PQ_WIDTH) = range(4)
(PR_COMMANDS, PR_RELEASE_NS, PR_BEST_NS, PR_WIDTH) = range(4)  # best: latency of the request alone
(PU_COMMAND, PU_RELEASE_NS, PU_REST_NS, PU_WIDTH) = range(4)  # rest: max of release + tail from here on

LINK_HBM, LINK_H2D, LINK_D2H, LINK_DIE, LINK_L2, LINK_KINDS = range(6)
POOL_H2D, POOL_D2H, POOL_SDMA = 3, 4, 5
LOOK_AHEAD = 8  # ranks that are looked at for each slot of prefetches into L2
FEATURE_WORDS = 10
CORE_CLASSES = 4  # classes below are those of kernels

# State header.
(
    S_NOW_NS,  # device clock
    S_HOST_NS,  # when the host is free again; never before the device clock
    S_DONE,  # commands finished
    S_ISSUED,
    S_FLIGHT,  # entries of the in-flight list
    S_READY,  # entries of the ready list
    S_PENDING,  # entries of the list of started kernels with blocks left to start
    S_ELIGIBLE,  # entries of the list of eligible streams
    S_GROUPS,
    S_WAITING,  # buffers and outputs that wait for space, a channel or their turn
    S_WANTED,  # entries of the list of absent buffers that are needed
    S_CURSOR,  # all commands of lower rank have started
    S_LIFTABLE,  # entries of the list of buffers that could be lifted into L2
    S_SERIAL,  # all commands before this place in the serial order are issued
    S_FILLED,  # slots of the ready window from the first to the last filled one
    S_OPEN,  # streams that an action may name
    S_RELEASED,  # late releases that have happened
    S_ACTIVE,  # streams whose head is active
    S_EVENTS,  # event ids held
    S_HBM_PEAK,  # most bytes reserved on one die
    S_HOST_LEFT_NS,  # submission time of the commands not yet issued
    S_DIRTY,  # 1 if the set of moving groups has changed
    S_STIRRED,  # 1 if something has happened that may let something start
    S_NEXT_NS,  # earliest change of stage of a group, once all is settled
    S_TIMER_NS,  # earliest timer of a stream
    S_CLAIMS,  # entries of the lists of those that wait for space
    S_WAKES,  # completions, arrivals and releases so far: what a wait waits for
    S_STATUS,
    S_STEPS,
    S_INVALID,
    S_BOUND_NS,
    S_FIRST_BOUND_NS,  # B of time zero
    S_KNOWN_NS,  # earliest end of all paths through what is released
    S_SCALE_NS,  # what an agent's times are divided by
    S_OBJECTIVE_NS,  # value whose increase is the negative reward
    S_STALL_EVENT_NS,
    S_STALL_FAULT_NS,
    S_STALL_SLOT_NS,
    S_STALL_CORES_NS,
    S_STALL_DMA_NS,
    S_STALL_HOST_NS,
    S_AT_ACTION,  # decisions taken so far
    S_AT_TRACE,
    S_TRACE_CAPACITY,  # rows; 0 while nothing is recorded
    S_TRACE_ROWS,  # rows wanted so far (may pass the capacity)
    S_HEADER,
) = range(46)

RUNNING, FINISHED, OUT_OF_MEMORY, OUT_OF_STEPS = range(4)  # S_STATUS
BEGIN = -2  # in place of an action: go on to the first decision

# State: one row a command.
(
    SC_PHASE,
    SC_STREAM,
    SC_UNDONE,  # predecessors not yet finished
    SC_ESTIMATE_NS,  # optimistic finish, while it is in flight
    SC_FINISH_NS,
    SC_COMING_BYTES,  # of operands it reads that still wait for the link from the host
    SC_SLOT,  # class whose slot it holds, -1 none
    SC_NOISE,  # factor on its realised durations, in 2**-20
    SC_UNISSUED,  # predecessors not yet issued
    SC_POSITION,  # in its stream
    SC_NEXT,  # next command of its stream
    SC_SEQ,  # order of submission
    SC_WAITS,  # event waits submitted for it
    SC_RECORDS,  # event records submitted behind it before it finished
    SC_ISSUE_NS,
    SC_ELIGIBLE_NS,  # since when only resources are missing
    SC_START_NS,
    SC_KERNEL,  # kernel that runs or comes next, counted within the command
    SC_VARIANT,  # 0 preferred class, 1 fallback
    SC_BEGIN_NS,  # end of the launch part of the current kernel
    SC_KERNEL_NS,  # start of the current kernel
    SC_PENDING,  # blocks not yet started
    SC_RUNNING,  # blocks running
    SC_CLAIMED,  # 1 once its managed operands are pinned
    SC_OWED,  # dies on which its outputs still wait for space
    SC_REUSE_NS,  # when the last event is recorded that it awaits for the memory of its outputs
    SC_HIT,  # part of its current kernel's bytes that is found in L2, in 2**-20
    SC_REMOTE,  # part that lies on another die
    SC_CAUSE,  # what its last attempt to start lacked
    SC_CAUSE_NS,  # since when
    SC_MOVING_BYTES,  # of those that are on their way
) = range(31)
SC_WIDTH = 32  # whole lines of 64 bytes, the first with what is looked at most

MAYBE_MIX = 2  # PC_FIRST_MIX
UNISSUED, QUEUED, ELIGIBLE, STARTED, DONE = range(5)  # SC_PHASE
NO_CAUSE, LACKS_FAULT, LACKS_SLOT, LACKS_CORES, LACKS_DMA = range(5)  # SC_CAUSE

(
    SB_RESIDENCY,
    SB_PINS,  # commands that hold it
    SB_DIRTY,  # 1 while the host's copy is stale
    SB_ON_HOST,  # 1 if the host has a copy, or will have once it has left HBM
    SB_LEAVING,  # 1 while it is written back
    SB_CAUSE,  # T_FAULT, T_TOUCH or T_PREFETCH: why space is reserved for it
    SB_COMING,  # 1 if its bytes are counted in the work left of the link from the host
    SB_CONTENT,  # 1 once something has been written to it
    SB_USERS,  # users not finished
    SB_UNSTARTED,  # users not started
    SB_NEXT,  # first entry of its user list that has not started
    SB_RANK,  # rank of the most urgent user that has not started and is known; FAR if there is none
    SB_READS,  # 1 if that user reads it
    SB_USED,  # when it was used last, counted in uses
    SB_RESERVE_NS,
    SB_LEAVE_NS,
    SB_ADDRESS,
    SB_L2_BYTES,  # bytes of it in L2
    SB_L2_OLDER,  # next in the order of use of the L2, -1 at the end
    SB_L2_NEWER,
    SB_LIFTING,  # prefetches into L2 that are on their way
    SB_LISTED,  # rank under which it is listed as liftable, -1 if it is not
    SB_TRIAL,  # scratch of the banker's check
    SB_WIDTH,
) = range(24)
ABSENT, OWED, IN_QUEUE, ARRIVING, VALID = range(5)  # SB_RESIDENCY

# State: one row a die. Lists hold buffers; outputs of a command c that wait for space are listed as -1 - c.
(
    SD_BYTES,  # HBM reserved
    SD_OWED_BYTES,  # part of it that has no space yet
    SD_LEAVING_BYTES,  # bytes that are written back: space not yet free, no longer reserved
    SD_DEVICE_BYTES,  # part of the reserved bytes that cannot be evicted: device buffers
    SD_OUTPUT_LEFT,  # bytes of device buffers not yet reserved
    SD_TAKEN_LEFT,  # bytes of the address space not yet taken
    SD_HOLE_BYTES,  # largest hole of the address space
    SD_SPARE_BYTES,  # scratch: what holes have beyond the largest size still to be placed
    SD_EARLY_BYTES,  # HBM of device buffers that exist earlier than in the serial order
    SD_IDLE_BYTES,  # bytes that could be evicted
    SD_SCRATCH,
    SD_CLAIMS,  # entries of the list of those that wait for space
    SD_IDLE,  # entries of the list of what could be evicted
    SD_QUEUE,  # entries of the queue of prefetches from the host
    SD_MOVING,  # of these, those that move
    SD_LIFT_QUEUE,
    SD_LIFTS_MOVING,
    SD_LEAVE_QUEUE,
    SD_LEAVES_MOVING,
    SD_L2_BYTES,
    SD_L2_OLDEST,
    SD_L2_NEWEST,
    SD_AT_CLAIMS,
    SD_AT_IDLE,  # what is evicted first comes last
    SD_AT_QUEUE,
    SD_AT_LIFTS,
    SD_AT_LEAVES,
    SD_AT_SPACE,
    SD_AT_TRIAL,  # a copy of the address space, for the banker's check
    SD_WIDTH,
) = range(30)

(SW_ACTIVE, SW_WIDTH) = range(2)
(SP_FREE, SP_AREA_NS, SP_SCRATCH, SP_WIDTH) = range(4)  # core time of kernels that have not started
(
    SL_BYTES,  # q20 of work that has not started
    SL_UNITS,  # times the rates of those that move count on it
    SL_WANTED,  # q20/ns they would take at their own caps
    SL_LOAD,  # this and the next two are scratch
    SL_SPARE,
    SL_LEVEL,
    SL_WIDTH,
) = range(7)
(
    SS_HEAD,
    SS_TAIL,
    SS_LENGTH,
    SS_ISSUED,  # commands ever issued on it
    SS_FREE_NS,  # finish of its last finished command and the records behind it
    SS_MIX,  # 1 if that command ended with a mix kernel
    SS_TIMER_NS,  # when its head becomes eligible, FAR if unknown or past
    SS_ESTIMATE_NS,  # scratch: optimistic end of what is queued on it
    SS_WIDTH,
) = range(9)
(SR_LEFT, SR_BOUND_NS, SR_WIDTH) = range(3)  # commands not finished; optimistic finish
