"""Residues: fixed ids, unknown letters, k-mers."""

from __future__ import annotations

import pytest

from alchemy.errors import AlchemyError
from alchemy.registry import build
from alchemy.text import Residues, Tokenizer, load_tokenizer


def test_ids_depend_on_no_data(tmp_path):
    residues = Residues.train(["AAA"])
    assert residues.digest == Residues.train([]).digest == Residues().digest
    assert (residues.size, residues.pad, residues.unk) == (24, 0, 3)
    assert residues.decode(residues.encode("ACDEFGHIKLMNPQRSTVWY")) == "ACDEFGHIKLMNPQRSTVWY"
    residues.save(tmp_path / "residues")
    assert load_tokenizer(tmp_path / "residues").encode("mk") == residues.encode("MK")


def test_every_other_letter_is_the_unknown_residue():
    assert Residues().decode(Residues().encode("aXBu*O<pad>")) == "AXXXXXXPADX"
    assert Residues(k=2).encode("AXC") == [3, 3]


def test_kmers_overlap():
    pairs = Residues(k=2)
    assert pairs.size == 404 and len(pairs.encode("MKVA")) == 3
    assert pairs.offsets("MKV")[1] == [(0, 2), (1, 3)]
    assert (pairs.encode(""), pairs.encode("M")) == ([], [3])
    assert Residues.train([], k=2).digest == pairs.digest != Residues().digest


def test_wrong_sizes_are_refused():
    with pytest.raises(AlchemyError, match="k"):
        build(Tokenizer, {"type": "alchemy.text.Residues", "k": 0})
