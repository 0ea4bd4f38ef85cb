"""The profiler: where the time of a few updates goes, as a table in the log and a trace in the record."""

from __future__ import annotations

from loguru import logger
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity, profile, schedule

from alchemy.constraints import NonNegativeInt, PositiveInt
from alchemy.plugins.base import AlchemyPlugin


@AlchemyPlugin.register()
class Profile(AlchemyPlugin):
    """Profiles `active` updates, after `wait` that are not looked at and `warmup` that are not kept.

    Writes `profile/trace.json`, which chrome://tracing and ui.perfetto.dev show, and the `rows` dearest operators.
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
        # the loop knows nothing of it: an update is a step of an optimizer
        self._hook = register_optimizer_step_post_hook(self._after_update)
        self._profile.start()

    def _after_update(self, *args: object) -> None:
        if self._profile is not None:
            self._profile.step()

    def _write(self, found: profile) -> None:
        order = "self_device_time_total" if self.on_gpu else "self_cpu_time_total"
        table = found.key_averages().table(sort_by=order, row_limit=self.rows)
        logger.info("where the time went:\n{}", table)
        if self.run.record_dir is not None:
            path = self.run.record_dir / "profile" / "trace.json"
            path.parent.mkdir(exist_ok=True)
            found.export_chrome_trace(str(path))
            logger.info("the trace is {}", path)

    def exit(self) -> None:
        """A training that was shorter leaves what there is."""
        found, self._profile = self._profile, None
        self._hook.remove()
        if found is not None:
            found.stop()
