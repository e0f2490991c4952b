"""A small project with a known optimum, in each of the formats that are read."""

from __future__ import annotations

import json

STARS = "*" * 72

SM = f"""{STARS}
file with basedata            : small.bas
initial value random generator: 1
{STARS}
projects                      :  1
jobs (incl. supersource/sink ):  6
horizon                       :  12
RESOURCES
  - renewable                 :  2   R
  - nonrenewable              :  0   N
  - doubly constrained        :  0   D
{STARS}
PROJECT INFORMATION:
pronr.  #jobs rel.date duedate tardcost  MPM-Time
    1      4      0        9        0        6
{STARS}
PRECEDENCE RELATIONS:
jobnr.    #modes  #successors   successors
   1        1          3           2   3   4
   2        1          1           5
   3        1          1           6
   4        1          1           6
   5        1          1           6
   6        1          0
{STARS}
REQUESTS/DURATIONS:
jobnr. mode duration  R 1  R 2
------------------------------------------------------------------------
  1      1     0       0    0
  2      1     3       2    1
  3      1     4       3    0
  4      1     2       0    3
  5      1     2       2    0
  6      1     0       0    0
{STARS}
RESOURCEAVAILABILITIES:
  R 1  R 2
    4    3
{STARS}
"""
"""Jobs 2 and 3 do not fit together (2 + 3 > 4), nor 3 and 5; 2 and 4 do not (1 + 3 > 3)::

    2 0-3 | 5 3-5 |
          | 4 3-5 |
                  | 3 5-9        optimum 9: 2, 3 and 5 one after another
"""

RCP = """6 2
4 3

0  0 0  3  2 3 4
3  2 1  1  5
4  3 0  1  6
2  0 3  1  6
2  2 0  1  6
0  0 0  0
"""

JOB_SHOP = """# two jobs on two machines; each uses both, in opposite order
2 2
0 3  1 2
1 4  0 1
"""
"""Job 1 has machine 1 from 0 to 4, job 0 needs it from then on::

    machine 0: job 0 0-3  | job 1 4-5
    machine 1: job 1 0-4 | job 0 4-6          optimum 6
"""

SHOPS = json.dumps(
    {
        "two": {
            "name": "two",
            "duration_matrix": [[3, 2], [4, 1]],
            "machines_matrix": [[0, 1], [1, 0]],
            "metadata": {"optimum": 6, "upper_bound": 6, "lower_bound": 6},
        },
        "open": {
            "duration_matrix": [[3, 2], [4, 1]],
            "machines_matrix": [[0, 1], [1, 0]],
            "metadata": {"optimum": None, "upper_bound": 7, "lower_bound": 5},
        },
    }
)

OPTIMA = "problem,optimum\nsmall.sm,9\nopen.sm,8..9\nbest.sm,..9\n"
