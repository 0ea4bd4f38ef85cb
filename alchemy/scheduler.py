"""The schedules under their old name."""

from alchemy.sched import AlchemyTrainScheduler, LineWarmup, Noam, NoamScheduler

__all__ = ["AlchemyTrainScheduler", "LineWarmup", "Noam", "NoamScheduler"]
