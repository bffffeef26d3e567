"""Texts, task types and a tokenizer that tests of exports share."""

from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "ann", "##a", "##belle", "lee", "saw",
          "rome", ".", "who", "?", "the", "cat", "and", "in"]  # fmt: skip
SENTENCES = ["ann saw rome .", "annabelle lee saw the cat .", "the cat saw lee in rome .",
             "lee and ann saw rome .", "in rome the cat saw annabelle ."]  # fmt: skip
TAGS = {0: "O", 1: "B-LOC", 2: "B-PER"}
KINDS = ("sentence", "regression", "tokens", "spans", "masked", "image")


def tokenizer() -> PreTrainedTokenizerFast:
    """WordPiece with segment ids, so that words may have several pieces."""
    core = Tokenizer(
        models.WordPiece({piece: at for at, piece in enumerate(PIECES)}, unk_token="[UNK]")
    )
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
        sep_token="[SEP]", mask_token="[MASK]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )  # fmt: skip
