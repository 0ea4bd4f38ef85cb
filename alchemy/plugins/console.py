"""Console logging, debug mode, and the summary printed at the start of a run."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import version
from typing import Annotated

import torch
from loguru import logger

from alchemy.config.defaults import render_defaults
from alchemy.config.secrets import mask_secrets
from alchemy.config.toml_writer import dumps
from alchemy.constraints import LogFormat
from alchemy.plugins.base import AlchemyPlugin
from alchemy.plugins.log_sinks import CONSOLE_FORMAT, Level, console_log


@AlchemyPlugin.register()
class BasicSetup(AlchemyPlugin):
    """Plugin that logs to the console. `--debug` adds debug messages, GPU error locations and anomaly detection."""

    def __init__(self, *, level: Level = "INFO", format: Annotated[str, LogFormat()] = CONSOLE_FORMAT) -> None:
        super().__init__()
        if self.run.debug:
            level = "DEBUG"
            # makes kernels report errors where they were launched; read when CUDA starts
            os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
            before = torch.is_anomaly_enabled()
            torch.autograd.set_detect_anomaly(True)
            self.run.exits.callback(torch.autograd.set_detect_anomaly, before)
        assert self.run.console is not None
        self.run.default_log.close()
        self.run.exits.enter_context(console_log(self.run.console, level, format))


@AlchemyPlugin.register()
class DisplayRunningInfo(AlchemyPlugin):
    """Plugin that logs the tag, device, driver, versions and config of the run."""

    def __init__(self) -> None:
        super().__init__()
        run, info = self.run, self.run.device_info or {}
        device = [str(info[key]) for key in ("device", "desc") if key in info] or ["cpu"]
        device += [f"driver {info['driver']}"] if "driver" in info else []
        threads = torch.get_num_threads()
        device += [f"{threads} thread{'s' * (threads > 1)}", f"seed {run.seed}"]
        names = f"alchemy {version('alchemy')}, torch {torch.__version__}, python {platform.python_version()}"
        logger.info("{}: {}, {}", run.cfg.get("tag", ""), ", ".join(device), names)
        logger.debug("config:\n{}", dumps(mask_secrets(run.cfg)).rstrip())
        logger.debug("defaults in effect:\n{}", render_defaults(run.cfg, sys.path))
