"""Define and parse the flags of the command, with their traditional defaults."""

import argparse
import math
from collections.abc import Callable, Sequence

from src.processors import PROCESSORS

LEVELS = ("O0", "O1", "O2", "O3")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description="Fine-tune a pretrained model on a text classification task, evaluate it, and predict."
    )
    _add_required(made)
    _add_files(made)
    _add_training(made)
    _add_machine(made)
    _add_heads(made)
    return made


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the flags; report invalid combinations as argparse errors."""
    made = parser()
    args = made.parse_args(argv)
    if not (args.do_train or args.do_eval or args.do_predict):
        made.error("nothing to do: pass --do_train, --do_eval or --do_predict")
    args.task_name = args.task_name.lower()
    if args.task_name not in PROCESSORS:
        made.error(f"unknown task {args.task_name!r}: expected one of {', '.join(sorted(PROCESSORS))}")
    return args


def _add_required(to: argparse.ArgumentParser) -> None:
    add = to.add_argument
    add("--data_dir", required=True, help="folder with train.csv, dev.csv and test.csv")
    add("--model_type", required=True, help="kind of model, optionally with a head: bert, bert_cnn, xlnet_lstm..")
    add("--model_name_or_path", required=True, help="local folder of the pretrained model")
    add("--task_name", required=True, help=f"one of {', '.join(sorted(PROCESSORS))}, in any letter case")
    add("--output_dir", required=True, help="folder for checkpoints, results and logs")


def _add_files(to: argparse.ArgumentParser) -> None:
    add = to.add_argument
    add("--config_name", default="", help="folder with a config.json that replaces that of the model")
    add("--tokenizer_name", default="", help="folder with a tokenizer that replaces that of the model")
    add("--cache_dir", default="", help="another folder to search for the other three; nothing is downloaded")
    add("--max_seq_length", default=128, type=at_least(1), help="maximum number of tokens; longer text is truncated")
    add("--do_train", action="store_true", help="train on train.csv")
    add("--do_eval", action="store_true", help="evaluate the last checkpoint on dev.csv")
    add("--do_predict", action="store_true", help="predict test.csv")
    add("--evaluate_during_training", action="store_true", help="evaluate on dev.csv at each logging step")
    add("--do_lower_case", action="store_true", help="lower-case the text, for an uncased model")


def _add_training(to: argparse.ArgumentParser) -> None:
    add = to.add_argument
    add("--per_gpu_train_batch_size", default=8, type=at_least(1), help="batch size per GPU, or on the CPU")
    add("--per_gpu_eval_batch_size", default=8, type=at_least(1), help="batch size for evaluation")
    add("--gradient_accumulation_steps", default=1, type=at_least(1), help="batches per update")
    add("--learning_rate", default=5e-5, type=finite(least=0), help="peak learning rate")
    add(
        "--weight_decay",
        default=0.0,
        type=finite(least=0),
        help="weight decay, except of biases and normalization",
    )
    add("--adam_epsilon", default=1e-8, type=finite(above=0), help="epsilon of Adam")
    add("--max_grad_norm", default=1.0, type=finite(above=0), help="clip gradients to this norm")
    add(
        "--num_train_epochs",
        default=3.0,
        type=finite(),
        help="epochs; 1.5 stops in the middle of the second one",
    )
    add("--max_steps", default=-1, type=int, help="if > 0, stop after this many updates; overrides num_train_epochs")
    add("--warmup_steps", default=0, type=at_least(0), help="warm-up updates; then the learning rate decays linearly")
    add("--logging_steps", default=50, type=int, help="log every N updates")
    add("--save_steps", default=50, type=int, help="write a checkpoint every N updates, and at the end")
    add("--eval_all_checkpoints", action="store_true", help="evaluate all checkpoints, and predict with the best one")


def _add_machine(to: argparse.ArgumentParser) -> None:
    add = to.add_argument
    add("--no_cuda", action="store_true", help="train on the CPU")
    add("--overwrite_output_dir", action="store_true", help="remove earlier output of this command from output_dir")
    add("--overwrite_cache", action="store_true", help="rebuild the cache of encoded data")
    add("--seed", default=42, type=int, help="random seed")
    add("--fp16", action="store_true", help="mixed precision")
    add("--fp16_opt_level", default="O1", choices=LEVELS, help="O0 is float32, all other levels are mixed precision")
    # the launcher of torch uses a hyphen
    add(
        "--local_rank",
        "--local-rank",
        default=-1,
        type=int,
        help="set by a launcher; its environment takes precedence",
    )


def _add_heads(to: argparse.ArgumentParser) -> None:
    add = to.add_argument
    add("--filter_num", default=256, type=at_least(1), help="number of filters of each size (cnn)")
    add("--filter_sizes", default="3,4,5", type=sizes, help="comma-separated filter sizes (cnn)")
    for name in ("lstm", "gru"):
        also = "lstm, rcnn" if name == "lstm" else name
        add(f"--{name}_hidden_size", default=300, type=at_least(1), help=f"hidden size ({also})")
        add(f"--{name}_layers", default=2, type=at_least(1), help=f"layers ({also})")
        add(
            f"--{name}_dropout",
            default=0.5,
            type=finite(least=0, most=1),
            help=f"dropout between layers ({also})",
        )


def at_least(least: int) -> Callable[[str], int]:
    """Return an argparse type: integers of at least `least`."""

    def number(text: str) -> int:
        if (value := int(text)) < least:
            raise argparse.ArgumentTypeError(f"{value} is less than {least}")
        return value

    return number


def finite(*, least: float = -math.inf, above: float = -math.inf, most: float = math.inf) -> Callable[[str], float]:
    """Return an argparse type: finite numbers within bounds."""
    limits = {"at least": least, "above": above, "at most": most}
    wanted = " and ".join(f"{name} {limit:g}" for name, limit in limits.items() if math.isfinite(limit))

    def number(text: str) -> float:
        value = float(text)
        if not (math.isfinite(value) and value > above and least <= value <= most):
            raise argparse.ArgumentTypeError(f"got {text}, expected a finite number {wanted}".rstrip())
        return value

    return number


def sizes(text: str) -> list[int]:
    """Parse a comma-separated list of sizes.

    >>> sizes("3,4,5")
    [3, 4, 5]
    """
    try:
        found = [int(size) for size in text.split(",")]
    except ValueError:
        found = [0]
    if min(found) < 1:
        raise argparse.ArgumentTypeError(f"expected a list of sizes such as 3,4,5, got {text!r}")
    return found
