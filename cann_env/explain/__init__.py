"""What bounds a schedule, where its time goes, what would make it shorter: figures, and words for them."""

from __future__ import annotations

from cann_env.explain.advice import Suggestion, advise
from cann_env.explain.explanation import Explanation, Group, Wait, explain

__all__ = ["Explanation", "Group", "Suggestion", "Wait", "advise", "explain"]
