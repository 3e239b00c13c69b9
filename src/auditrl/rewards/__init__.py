"""Reward designs, one a file, registered by name."""

from . import binary, concerningness, intragroup, reference
from .base import Group, GroupReward, Judges, RewardDesign, make_reward, reward, reward_group

__all__ = [
    "Group",
    "GroupReward",
    "Judges",
    "RewardDesign",
    "binary",
    "concerningness",
    "intragroup",
    "make_reward",
    "reference",
    "reward",
    "reward_group",
]
