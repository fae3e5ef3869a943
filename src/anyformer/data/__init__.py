"""From text to tokens and back: tokenizers of every family, read from the files they come in."""
