"""Map names used by other frameworks to alchemy's names."""

from __future__ import annotations

from typing import NamedTuple


class Meaning(NamedTuple):
    """The meaning of a name: a key and the table it belongs to, an option or a command."""

    name: str
    table: str = ""  # table of the key; empty for a top-level key or a key of several parts
    value: str = ""  # what to write after `name =`, if it is not the user's value

    @property
    def hint(self) -> str:
        """
        >>> Meaning("lr", "optim").hint, Meaning("optim").hint, Meaning("--device 0").hint
        ('write lr in [optim]', 'write [optim]', 'pass --device 0 on the command line')
        """
        if self.name.startswith("-"):
            return f"pass {self.name} on the command line"
        text = f"{self.name} = {self.value}" if self.value else self.name
        if self.table:
            return f"write {text} in [{self.table}]"
        return f"write {text} at the top" if self.name in _TOP else f"write [{text}]"


_TOP = ("seed", "tag", "log_every", "plugins")
# names with a unique place in a config, which a hint can include
_PLACES = ("optim", "sched", "criterion", "task.data", "model", *_TOP, "--device 0", "--device -1")
_PATIENCE = Meaning("any", "stop", '[{ type = "Patience", monitor = "dev/loss", patience = 3 }]')
_EVALUATE = Meaning("pipes", "sched", '[{ type = "EvalESPipeline", period = 500 }]')

# each meaning and its synonyms; a word may have several meanings
_TABLE: list[tuple[Meaning, str]] = [
    # training
    (Meaning("lr", "optim"), "lr learning_rate learningrate base_lr init_lr"),
    (Meaning("weight_decay", "optim"), "weight_decay weight_decay_rate wd l2"),
    (Meaning("eps", "optim"), "eps epsilon adam_epsilon adam_eps"),
    (Meaning("betas", "optim"), "betas adam_beta1 adam_beta2 adam_betas beta1 beta2"),
    (Meaning("max_grad_norm", "optim"), "max_grad_norm grad_clip grad_clip_norm clip_norm clip_grad_norm max_norm"),
    (Meaning("max_grad_norm", "optim"), "gradient_clip_val gradient_clip gradient_clipping"),
    (Meaning("epochs", "sched"), "epochs epoch num_train_epochs num_epochs max_epochs max_epoch n_epochs nb_epochs"),
    (Meaning("num_training_steps", "sched"), "max_steps num_steps total_steps train_steps max_updates max_update"),
    (Meaning("num_warmup_steps", "sched"), "warmup_steps warmup warmup_updates n_warmup_steps warmup_ratio"),
    (Meaning("type", "sched"), "lr_scheduler_type lr_scheduler"),
    (Meaning("period", "backward"), "gradient_accumulation_steps accumulate_grad_batches update_freq grad_accum"),
    (Meaning("period", "backward"), "gradient_accumulation accumulation_steps accum_steps"),
    (Meaning("dtype", "precision", '"fp16"'), "fp16 half use_fp16"),
    (Meaning("dtype", "precision", '"bf16"'), "bf16 amp use_amp mixed_precision"),
    (Meaning("label_smoothing", "criterion"), "label_smoothing label_smoothing_factor"),
    (_PATIENCE, "early_stopping early_stopping_patience early_stop patience"),
    (_EVALUATE, "eval_steps eval_every eval_interval val_check_interval evaluation_strategy eval_strategy"),
    (Meaning("monitor", "checkpoint"), "metric_for_best_model best_metric monitor"),
    (Meaning("mode", "checkpoint"), "greater_is_better"),
    (Meaning("last", "checkpoint"), "save_total_limit keep_last max_to_keep"),
    (Meaning("every", "checkpoint"), "save_steps save_interval save_every save_strategy"),
    # data
    (Meaning("batch_size", "task.data"), "batch_size bsz per_device_train_batch_size train_batch_size batchsize"),
    (Meaning("batch_size", "task.datasets.dev"), "per_device_eval_batch_size eval_batch_size"),
    (Meaning("num_workers", "task.data"), "num_workers dataloader_num_workers workers"),
    (Meaning("dev"), "valid validation val eval"),
    (Meaning("train"), "training train_file"),
    (Meaning("text"), "text_column sentence content"),
    (Meaning("label"), "label_column target labels_column"),
    (Meaning("delimiter"), "sep delim"),
    (Meaning("max_length"), "max_len max_seq_length max_seq_len"),
    # models
    (Meaning("dim"), "hidden_size d_model embed_dim embedding_dim emb_dim embedding_size"),
    (Meaning("heads"), "num_heads n_heads num_attention_heads n_head"),
    (Meaning("layers"), "num_layers n_layers num_hidden_layers n_layer"),
    (Meaning("inner"), "ffn_dim dim_feedforward intermediate_size ffn_size"),
    (Meaning("dropout"), "dropout_rate dropout_prob hidden_dropout_prob drop_rate"),
    (Meaning("classes"), "num_classes num_labels n_classes"),
    (Meaning("beam"), "num_beams beam_size beam_width"),
    (Meaning("lower"), "lowercase do_lower_case"),
    (Meaning("min_frequency"), "min_freq min_count"),
    # tables and top-level keys
    (Meaning("optim"), "optimizer optimiser optimizers"),
    (Meaning("sched"), "scheduler lr_scheduler schedule"),
    (Meaning("criterion"), "loss loss_fn loss_function objective"),
    (Meaning("task.data"), "data dataset datasets dataloader"),
    (Meaning("model"), "network net"),
    (Meaning("plugins"), "callbacks hooks loggers"),
    (Meaning("runner"), "trainer"),
    (Meaning("seed"), "random_seed manual_seed random_state"),
    (Meaning("tag"), "run_name experiment_name exp_name name"),
    (Meaning("log_every"), "logging_steps log_interval log_every_n_steps"),
    (Meaning("log_dir", "plugins.FileLogger"), "output_dir save_dir logging_dir default_root_dir out_dir log_dir"),
    # options and commands
    (Meaning("--device 0"), "gpu gpus cuda accelerator gpu_id"),
    (Meaning("--device -1"), "cpu no_cuda use_cpu"),
    (Meaning("--seeds"), "seed"),
    (Meaning("--no-file"), "no_record dry_run no_log"),
    (Meaning("--processes"), "nproc_per_node num_processes nproc"),
    (Meaning("--debug"), "verbose v"),
    (Meaning("--resume auto"), "resume_from resume_from_checkpoint continue load_checkpoint"),
    (Meaning("run"), "train fit start launch exec"),
    (Meaning("test"), "eval evaluate evaluation"),
    (Meaning("predict"), "infer inference"),
    (Meaning("new"), "init create startproject scaffold"),
    (Meaning("check"), "lint validate"),
    (Meaning("resume"), "continue restart"),
    (Meaning("parts"), "list modules components"),
    (Meaning("stop"), "kill cancel abort"),
    (Meaning("generate"), "translate"),
    (Meaning("web"), "dashboard ui"),
    (Meaning("data"), "preprocess tokenize"),
    (Meaning("latex"), "tex"),
    (Meaning("markdown"), "md"),
]
# models of other libraries and papers -> what to write in [model]
_TEXTS = 'type = "TextClassifier" and head = {{ type = "{}" }}'
_ENCODED = 'type = "TextClassifier" and encoder = {{ {} }}'
_MODELS = [
    (_TEXTS.format("CNN"), "textcnn cnn kimcnn"),
    (_TEXTS.format("LSTM"), "bilstm lstm textrnn rnn birnn"),
    (_TEXTS.format("GRU"), "bigru gru"),
    (_TEXTS.format("RCNN"), "textrcnn rcnn"),
    (_TEXTS.format("DPCNN"), "dpcnn"),
    (_TEXTS.format("Attention"), "attention bilstmattention textrnnatt han"),
    (
        'type = "TextClassifier", whose default encoder and head are those of fastText',
        "fasttext logisticregression bow",
    ),
    (_ENCODED.format('type = "Transformer"'), "transformer transformerencoder"),
    (
        _ENCODED.format('type = "Pretrained", path = "models/bert"'),
        "bert roberta albert electra distilbert xlnet ernie bertclassifier bertforsequenceclassification pretrained",
    ),
]
ARCHITECTURES = {word: written for written, words in _MODELS for word in words.split()}


def architecture(word: str) -> str:
    """Return how to configure a model known by another name in other frameworks, or "" if it is unknown.

    >>> architecture("TextCNN"), architecture("bert-base-chinese")[:40], architecture("Net")
    ('type = "TextClassifier" and head = { type = "CNN" }', 'type = "TextClassifier" and encoder = { ', '')
    """
    plain = word.lower().replace("_", "")
    return ARCHITECTURES.get(plain.replace("-", "")) or ARCHITECTURES.get(plain.partition("-")[0], "")


MEANINGS: dict[str, list[Meaning]] = {}
for _meaning, _words in _TABLE:
    for _word in _words.split():
        MEANINGS.setdefault(_word, []).append(_meaning)


def meanings(word: str) -> list[Meaning]:
    """Return the meanings of a word as a key, an option (`--batch-size`) or a command."""
    return MEANINGS.get(word.lower().lstrip("-").replace("-", "_"), [])


def place_of(word: str, section: str = "") -> str:
    """Return a hint about where the key for a word belongs, or "" if it is unknown or belongs in this section.

    >>> place_of("num_train_epochs"), place_of("epochs", section="sched"), place_of("foo")
    ('write epochs in [sched]', '', '')
    """
    found = [meaning for meaning in meanings(word) if meaning.table or meaning.name in _PLACES]
    is_here = bool(section) and any(section in (meaning.table, meaning.name) for meaning in found[:1])
    return found[0].hint if found and not is_here else ""


def option_for(word: str, value: str = "") -> str:
    """Return a hint for an option of another program: `--lr 0.1` is `--set optim.lr=0.1`.

    >>> option_for("--lr", "0.1"), option_for("--gpu", "1"), option_for("--fp16")
    ("write '--set optim.lr=0.1'", "write '--device 1'", "write '--set precision.dtype=fp16'")
    """
    for meaning in meanings(word):
        if meaning.name.startswith("-"):
            head, _, default = meaning.name.partition(" ")
            free = meaning.name in ("--device 0", "--seeds", "--processes")
            return f"write '{' '.join(filter(None, (head, (value if free else '') or default)))}'"
        if meaning.value.startswith("["):
            return meaning.hint
        if meaning.table or meaning.name in _TOP:
            key = f"{meaning.table}.{meaning.name}" if meaning.table else meaning.name
            return f"write '--set {key}={meaning.value.strip(chr(34)) or value or 'VALUE'}'"
    return ""
