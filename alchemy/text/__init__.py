"""Text and numbers: vocabularies and tokenizers, one small contract for all of them."""
