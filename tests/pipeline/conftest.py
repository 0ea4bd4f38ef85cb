"""What the tests of pipes share: the log as text, a run with a record folder."""

import io

import pytest
from loguru import logger

from alchemy.context import Run


class Log:
    def __init__(self):
        self.stream = io.StringIO()

    @property
    def text(self):
        return self.stream.getvalue()


@pytest.fixture
def capture_log():
    log = Log()
    sink = logger.add(log.stream, format="{level} {message}", level="DEBUG")
    yield log
    logger.remove(sink)


class Counts:
    """As much of a schedule as pipes look at."""

    def __init__(self):
        self.cur_step = self.cur_epoch = -1
        self.num_updates = 0
        self.epochs, self.finished, self.pipes = 3, False, []

    def is_pending(self, moment):
        return False

    def after_eval(self, results):
        pass


@pytest.fixture
def run(tmp_path):
    with Run({"tag": "pipes"}) as run:
        run.record_dir = tmp_path
        yield run


@pytest.fixture
def training(run):
    run.train_sched = Counts()
    return run
