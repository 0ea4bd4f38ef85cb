"""Profile a few updates: a table in the log and a trace in the record."""

from __future__ import annotations

from loguru import logger
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity, profile, schedule

from alchemy.constraints import NonNegativeInt, PositiveInt
from alchemy.plugins.base import AlchemyPlugin


@AlchemyPlugin.register()
class Profile(AlchemyPlugin):
    """Plugin that profiles `active` updates, after skipping `wait` updates and discarding `warmup` updates.

    Writes `profile/trace.json` for chrome://tracing or ui.perfetto.dev, and logs the `rows` most expensive operators.
    """

    aside = True

    def __init__(
        self,
        *,
        wait: NonNegativeInt = 5,
        warmup: PositiveInt = 2,
        active: PositiveInt = 3,
        memory: bool = False,
        rows: PositiveInt = 10,
    ) -> None:
        super().__init__()
        self.rows = rows
        self.on_gpu = self.run.device is not None and self.run.device.type == "cuda"
        self._profile: profile | None = profile(
            activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self.on_gpu else [])],
            schedule=schedule(wait=wait, warmup=warmup, active=active, repeat=1),
            on_trace_ready=self._write,
            profile_memory=memory,
            acc_events=True,
        )
        # counts optimizer steps, so the training loop needs no hook
        self._hook = register_optimizer_step_post_hook(self._after_update)
        self._profile.start()

    def _after_update(self, *args: object) -> None:
        if self._profile is not None:
            self._profile.step()

    def _write(self, profiler: profile) -> None:
        order = "self_device_time_total" if self.on_gpu else "self_cpu_time_total"
        table = profiler.key_averages().table(sort_by=order, row_limit=self.rows)
        logger.info("profile:\n{}", table)
        if self.run.record_dir is not None:
            path = self.run.record_dir / "profile" / "trace.json"
            path.parent.mkdir(exist_ok=True)
            profiler.export_chrome_trace(str(path))
            logger.info("trace: {}", path)

    def exit(self) -> None:
        """Stop the profiler. If training ended early, this writes the updates recorded so far."""
        profiler, self._profile = self._profile, None
        self._hook.remove()
        if profiler is not None:
            profiler.stop()
