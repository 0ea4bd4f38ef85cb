"""The flags of the command, with the defaults that they always had."""

import argparse
import math
from collections.abc import Callable, Sequence

from src.processors import PROCESSORS

LEVELS = ("O0", "O1", "O2", "O3")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description="Fine-tunes a pretrained model on a text classification task, evaluates it, and predicts."
    )
    _add_required(made)
    _add_files(made)
    _add_training(made)
    _add_machine(made)
    _add_heads(made)
    return made


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The flags as they were given; what cannot be is told as argparse tells it."""
    made = parser()
    args = made.parse_args(argv)
    if not (args.do_train or args.do_eval or args.do_predict):
        made.error("there is nothing to do: give --do_train, --do_eval or --do_predict")
    args.task_name = args.task_name.lower()
    if args.task_name not in PROCESSORS:
        made.error(f"there is no task {args.task_name!r}: src/processors.py has {', '.join(sorted(PROCESSORS))}")
    return args


def _add_required(to: argparse.ArgumentParser) -> None:
    add = to.add_argument
    add("--data_dir", required=True, help="the folder with train.csv, dev.csv and test.csv")
    add("--model_type", required=True, help="a kind of model, alone or with a head: bert, bert_cnn, xlnet_lstm..")
    add("--model_name_or_path", required=True, help="the folder of the pretrained model on this machine")
    add("--task_name", required=True, help=f"one of {', '.join(sorted(PROCESSORS))}, in any case")
    add("--output_dir", required=True, help="where checkpoints, results and logs are written")


def _add_files(to: argparse.ArgumentParser) -> None:
    add = to.add_argument
    add("--config_name", default="", help="a folder with another config.json than that of the model")
    add("--tokenizer_name", default="", help="a folder with another tokenizer than that of the model")
    add("--cache_dir", default="", help="a folder in which the other three are looked for too; nothing is downloaded")
    add("--max_seq_length", default=128, type=at_least(1), help="tokens of a text; longer ones are cut")
    add("--do_train", action="store_true", help="train on train.csv")
    add("--do_eval", action="store_true", help="score dev.csv with the last checkpoint")
    add("--do_predict", action="store_true", help="predict test.csv")
    add("--evaluate_during_training", action="store_true", help="score dev.csv at each logging step")
    add("--do_lower_case", action="store_true", help="for an uncased model")


def _add_training(to: argparse.ArgumentParser) -> None:
    add = to.add_argument
    add("--per_gpu_train_batch_size", default=8, type=at_least(1), help="texts in a batch of each GPU, or of the CPU")
    add("--per_gpu_eval_batch_size", default=8, type=at_least(1), help="the same, in an evaluation")
    add("--gradient_accumulation_steps", default=1, type=at_least(1), help="batches of an update")
    add("--learning_rate", default=5e-5, type=finite(least=0), help="the rate at its height")
    add("--weight_decay", default=0.0, type=finite(least=0), help="of all weights but biases and normalization")
    add("--adam_epsilon", default=1e-8, type=finite(above=0), help="epsilon of Adam")
    add("--max_grad_norm", default=1.0, type=finite(above=0), help="gradients are cut to this norm")
    add("--num_train_epochs", default=3.0, type=finite(), help="passes over the data; 1.5 ends in the second one")
    add("--max_steps", default=-1, type=int, help="if > 0, so many updates, whatever num_train_epochs says")
    add("--warmup_steps", default=0, type=at_least(0), help="updates in which the rate rises; then it falls in a line")
    add("--logging_steps", default=50, type=int, help="log every so many updates")
    add("--save_steps", default=50, type=int, help="write checkpoint-N every so many updates; the last is always kept")
    add("--eval_all_checkpoints", action="store_true", help="score all checkpoints, and predict with the best of them")


def _add_machine(to: argparse.ArgumentParser) -> None:
    add = to.add_argument
    add("--no_cuda", action="store_true", help="stay on the CPU")
    add("--overwrite_output_dir", action="store_true", help="remove what this command wrote to output_dir before")
    add("--overwrite_cache", action="store_true", help="read the data anew, though nothing has changed")
    add("--seed", default=42, type=int, help="all random numbers follow from it")
    add("--fp16", action="store_true", help="mixed precision")
    add("--fp16_opt_level", default="O1", choices=LEVELS, help="O0 is float32, all others are mixed precision")
    # the launcher of torch spells it with a hyphen
    add("--local_rank", "--local-rank", default=-1, type=int, help="given by a launcher, whose environment counts")


def _add_heads(to: argparse.ArgumentParser) -> None:
    add = to.add_argument
    add("--filter_num", default=256, type=at_least(1), help="filters of each size (cnn)")
    add("--filter_sizes", default="3,4,5", type=sizes, help="sizes of the filters, with commas between them (cnn)")
    for name in ("lstm", "gru"):
        also = "lstm, rcnn" if name == "lstm" else name
        add(f"--{name}_hidden_size", default=300, type=at_least(1), help=f"numbers of a state ({also})")
        add(f"--{name}_layers", default=2, type=at_least(1), help=f"layers ({also})")
        add(
            f"--{name}_dropout",
            default=0.5,
            type=finite(least=0, most=1),
            help=f"what is dropped between layers ({also})",
        )


def at_least(least: int) -> Callable[[str], int]:
    """A type for argparse: whole numbers from `least` on."""

    def number(text: str) -> int:
        if (value := int(text)) < least:
            raise argparse.ArgumentTypeError(f"{value} is less than {least}")
        return value

    return number


def finite(*, least: float = -math.inf, above: float = -math.inf, most: float = math.inf) -> Callable[[str], float]:
    """A type for argparse: finite numbers within limits."""
    limits = {"at least": least, "above": above, "at most": most}
    wanted = " and ".join(f"{name} {limit:g}" for name, limit in limits.items() if math.isfinite(limit))

    def number(text: str) -> float:
        value = float(text)
        if not (math.isfinite(value) and value > above and least <= value <= most):
            raise argparse.ArgumentTypeError(f"it is {text}, expected a finite number {wanted}".rstrip())
        return value

    return number


def sizes(text: str) -> list[int]:
    """
    >>> sizes("3,4,5")
    [3, 4, 5]
    """
    try:
        found = [int(size) for size in text.split(",")]
    except ValueError:
        found = [0]
    if min(found) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of sizes such as 3,4,5")
    return found
