"""What a run of a program is: its clocks, streams, memory and work, and how the engine plays it."""
