"""Profiler recordings: one reader a format, and the :class:`Recording` they all fill."""

from cann_env.profiles.recording import Recording, Report, Task, TaskKind, Verdict

__all__ = ["Recording", "Report", "Task", "TaskKind", "Verdict"]
