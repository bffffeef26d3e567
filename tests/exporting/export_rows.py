"""Texts and task types that tests of exports share."""

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "ann", "##a", "##belle", "lee", "saw",
          "rome", ".", "who", "?", "the", "cat", "and", "in"]  # fmt: skip
SENTENCES = ["ann saw rome .", "annabelle lee saw the cat .", "the cat saw lee in rome .",
             "lee and ann saw rome .", "in rome the cat saw annabelle ."]  # fmt: skip
TAGS = {0: "O", 1: "B-LOC", 2: "B-PER"}
KINDS = ("sentence", "regression", "tokens", "spans", "masked", "image")
