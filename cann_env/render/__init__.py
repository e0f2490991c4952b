"""Pictures of schedules: Gantt chart, trace file, image, text. Schedules go in, nothing comes back."""
