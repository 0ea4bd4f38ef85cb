"""Former import path of `alchemy.sched`: the same module, so that aliases in configs resolve too."""

import sys

import alchemy.sched
from alchemy.sched import AlchemyTrainScheduler as AlchemyTrainScheduler
from alchemy.sched import LineWarmup as LineWarmup
from alchemy.sched import Noam as Noam
from alchemy.sched import NoamScheduler as NoamScheduler

sys.modules[__name__] = alchemy.sched
