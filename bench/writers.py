"""The processes of `bench.translation`: translate with a small random Transformer in different libraries, or train it.

3 + 3 layers, width 256, inner width 1,024, 4 heads; 64 sources of 15 tokens, beam 5, a given number of tokens.
"""

from __future__ import annotations

import sys
import tempfile
from typing import Any

import torch

from alchemy.generate import BeamSearch, Limits, Special, TextGenerator
from alchemy.launch.allocator import keep_memory
from alchemy.models.translator import DecodingSteps
from alchemy.nn.sequences import Rows
from alchemy.nn.transformer import Transformer
from bench.turns import Work, serve

PAD, EOS, VOCABULARY = 0, 2, 9712
SENTENCES, SOURCE, BEAM = 64, 15, 5
SHAPE: dict[str, Any] = {
    "dim": 256,
    "heads": 4,
    "inner": 1024,
    "encoder_layers": 3,
    "decoder_layers": 3,
    "dropout": 0.0,
}
SPECIAL = Special(begin=EOS, eos=EOS, pad=PAD)


def network() -> Transformer:
    torch.manual_seed(0)
    return Transformer(source_size=VOCABULARY, target_size=VOCABULARY, **SHAPE)


def sources() -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (SENTENCES, SOURCE), generator=torch.Generator().manual_seed(0))


def alchemy() -> Work:
    keep_memory()
    net, ids_BS = network().eval(), sources()
    rows = Rows(ids_BS, torch.ones_like(ids_BS, dtype=torch.bool))

    def write(tokens: int) -> list[Any]:
        """Generate exactly `tokens` tokens, including the end token."""
        limits = Limits(max_length=tokens - 1, min_length=tokens - 1, max_ratio=0, max_extra=tokens - 1)
        with torch.no_grad():
            return TextGenerator(BeamSearch(beam=BEAM), SPECIAL, limits)(DecodingSteps(net, rows), rows.lengths_B)

    return write


def transformers() -> Work:
    from transformers import MarianConfig, MarianMTModel

    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=VOCABULARY,
        d_model=256,
        encoder_layers=3,
        decoder_layers=3,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=1024,
        decoder_ffn_dim=1024,
        max_position_embeddings=512,
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=EOS,
        forced_eos_token_id=None,
    )
    model, ids_BS = MarianMTModel(config).eval(), sources()
    return lambda tokens: model.generate(
        ids_BS, num_beams=BEAM, min_new_tokens=tokens, max_new_tokens=tokens, do_sample=False
    )


def ctranslate2(precision: str) -> Work:
    from alchemy.export.ctranslate2_spec import import_ctranslate2, spec_of

    folder = tempfile.TemporaryDirectory()
    spec = spec_of(network().eval(), SPECIAL)
    spec.validate()
    spec.optimize(quantization=precision)
    spec.save(folder.name)
    translator = import_ctranslate2().Translator(
        folder.name, compute_type=precision, intra_threads=torch.get_num_threads()
    )
    words = [[str(token) for token in row] for row in sources().tolist()]

    def write(tokens: int) -> list[Any]:
        assert folder.name  # keeps the temporary folder alive
        found: list[Any] = translator.translate_batch(
            words, beam_size=BEAM, min_decoding_length=tokens, max_decoding_length=tokens, max_batch_size=0
        )
        return found

    return write


def step() -> Work:
    """Return a function that does one update on 4,096 target tokens."""
    from alchemy.nn.losses import CrossEntropy

    net, loss = network().train(), CrossEntropy(label_smoothing=0.1)
    optimizer = torch.optim.Adam(net.parameters(), fused=True)

    def update(tokens: int) -> None:
        ids_BT = torch.randint(3, VOCABULARY, (4096 // tokens, tokens))
        total, count = loss(
            net(Rows(ids_BT, torch.ones_like(ids_BT, dtype=torch.bool)), ids_BT).flatten(0, 1), ids_BT.flatten()
        )
        (total / count).backward()
        optimizer.step()
        optimizer.zero_grad()

    return update


def step_keeping_memory() -> Work:
    keep_memory()
    return step()


WAYS = {
    "alchemy": alchemy,
    "transformers": transformers,
    "ctranslate2 float32": lambda: ctranslate2("float32"),
    "ctranslate2 int8": lambda: ctranslate2("int8"),
    "step": step,
    "step, memory kept": step_keeping_memory,
}


if __name__ == "__main__":
    serve(WAYS[sys.argv[1]]())
