"""Time runs that Ray Tune starts, one at a time; a program for the environment of the peers."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time


def main(runs: int, command: list[str]) -> None:
    """Print the seconds per run: Ray's own start is not counted. `X` and `Y` in the command are the drawn values."""
    import ray
    from ray import tune

    def run(config: dict[str, float]) -> None:
        folder = f"records/{config['x']}-{config['y']}"
        value = sum((own - 0.3) ** 2 for own in config.values())
        subprocess.run([*command, folder, str(value)], check=True)
        with open(os.path.join(folder, "metrics.jsonl")) as file:
            tune.report({"loss": json.loads(file.read())["values"]["dev/loss"]})

    ray.init("local", num_cpus=2, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
    settings = tune.TuneConfig(num_samples=runs, metric="loss", mode="min", max_concurrent_trials=1)
    space = {"x": tune.uniform(0, 1), "y": tune.uniform(0, 1)}
    where = tune.RunConfig(storage_path=os.path.abspath("tune"), verbose=0)
    begin = time.perf_counter()
    results = tune.Tuner(run, param_space=space, tune_config=settings, run_config=where).fit()
    assert results.num_terminated == runs
    print(json.dumps((time.perf_counter() - begin) / runs))
    ray.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
