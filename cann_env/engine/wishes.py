"""The words of a rule and of an order of commands, which :mod:`cann_env.engine.decode` reads."""

from __future__ import annotations

(
    RULE_ORDER,  # how commands come to streams: one of the next enumeration
    RULE_FIFO,  # LABELS: 1 if commands of one label are issued strictly in order of their place
    RULE_FIT,  # JUST_IN_TIME: least part of the blocks that must find a free core, in 2**-20
    RULE_PATIENT,  # JUST_IN_TIME: 1 if operands that are on their way are waited for
    RULE_STRICT,  # 1 if nothing overtakes the first command whose predecessors are done
    RULE_DEPTH,  # CHAINED and EAGER: most commands on a stream that another one queues behind
    RULE_STREAMS,  # use only so many streams
    RULE_FETCH,  # when to prefetch from the host: one of the enumeration after the next
    RULE_AHEAD,  # prefetch only for users among so many next ranks
    RULE_LIFT,  # 1 to prefetch into L2 while nothing else is copied there
    RULE_WIDTH,
) = range(11)
# LABELS: the stream that carries the label. ROUND_ROBIN: streams in turn. JUST_IN_TIME: an idle stream, once
# the command can start. CHAINED: that, or behind the predecessor that ends last, if nothing else is awaited.
# EAGER: behind that predecessor, or on the stream that is free first.
(LABELS, ROUND_ROBIN, JUST_IN_TIME, CHAINED, EAGER) = range(5)
(ON_DEMAND, WHILE_FREE, ALL_AT_ONCE) = range(3)

# One row a command.
(
    D_PLACE,  # place in the order, the smallest first
    D_LABEL,  # label, from 0
    D_NEXT,  # the command of its label that comes next, -1 if it is the last
    D_START_NS,  # earliest instant at which it is issued, unless nothing else is left
    D_CHOOSY,  # 1 if it starts only where its preferred class has room
    D_BARRIER,  # commands that must be done before it is issued
    D_WIDTH,
) = range(7)

# Scratch of a rule: what it remembers, and rows of a length of its own.
(
    Z_TURN,  # ROUND_ROBIN: the stream whose turn it is
    Z_STRAYED,  # decisions that no rule wanted, taken because waiting was not possible
    Z_LABELS,  # labels
    Z_HEADER,  # then, for each label: its stream, its first command not issued; for each stream: its label;
    # for each buffer: the rank of the user for which it was last lifted
) = range(4)
