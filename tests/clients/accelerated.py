"""The accelerate parts, by their position in the config of the old project."""

HERE = "alchemy.util.ddp.accelerate"
PARTS = {
    "runner": "Trainer",
    "plugins.0.type": "BasicSetup",
    "task.datasets.train.pipes.2.type": "Sharding",
    "sched.pipes.2.type": "EvalESPipeline",
    "backward.type": "Backward",
    "optim.type": "HFAdamW",
}
