"""Programs as graphs, schedules as programs, and what a scheduler would make of a run."""
