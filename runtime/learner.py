"""The learner under its earlier name; its home is :mod:`flipbit.runtime.core.learner`."""

from flipbit.runtime.core.learner import Learner, LearnerConfig

__all__ = ["Learner", "LearnerConfig"]
