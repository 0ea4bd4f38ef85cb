"""Random seeds and determinism of a run."""

from __future__ import annotations

from loguru import logger

from alchemy.plugins.base import AlchemyPlugin
from alchemy.seeds import make_deterministic, restore_determinism, seed_everything


@AlchemyPlugin.register()
class Seeding(AlchemyPlugin):
    """Plugin that seeds all random number generators: Python, NumPy, torch, and the order of the data.

    A `seed` at the top of the config, or `--seeds`, takes precedence over this seed. PYTHONHASHSEED is not changed:
    it is read when Python starts, and no ordering in alchemy depends on it.
    """

    def __init__(self, *, seed: int, use_deterministic_algorithms: bool = False) -> None:
        super().__init__()
        if seed != self.run.seed:
            logger.info("seed {} overrides seed {} of Seeding", self.run.seed, seed)
        seed_everything(self.run.seed)
        self.run.symbols.set_global("seed", self.run.seed)
        if use_deterministic_algorithms:
            self.run.exits.callback(restore_determinism, make_deterministic())
