"""The closed vocabulary of Pocket GLUE: every word a generated sentence can hold, by its use.

Before the data stage of a training step: the generators draw from these lists and the tokenizer
knows exactly these words. Meaning is defined here too: which words are synonyms, which kinds contain
which, which verbs flip the truth of their complement. The lists are short so that a teacher meets
every word often enough to learn it in a minute.
"""

from types import MappingProxyType

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

PUNCTUATION = (".", ",", "?", "(", ")")

# People, in two ranks: the first mostly acts on the second, which makes swapped roles unlikely but
# possible. The other lists are rare in training and make up the other domain of the pair tasks.
SENIORS = ("coaches", "doctors", "judges", "mayors", "bishops", "captains")
JUNIORS = ("players", "nurses", "singers", "clerks", "pupils", "sailors")
OTHER_SENIORS = ("editors", "bankers")
OTHER_JUNIORS = ("writers", "tellers")
OUTSIDERS = ("guards", "drivers")
WOMEN = ("ann", "dora", "fay", "hana", "judy")
MEN = ("bob", "carl", "emil", "gus", "ivan")
PLACES = ("berlin", "lisbon", "oslo", "rome", "tokyo", "vienna")

# Reviews (sst2, imdb).
POSITIVE = ("witty", "warm", "bright", "moving", "clever", "rich", "fresh", "lively")
NEGATIVE = ("dull", "cold", "bleak", "clumsy", "stale", "slow", "flat", "empty")
ASPECTS = ("plot", "cast", "score", "script", "camera", "ending", "dialogue", "hero")
OTHER_ASPECTS = ("sequel", "drama", "comedy", "thriller")
AUDIENCES = ("critics", "fans", "friends", "people")
ASSERTING = ("say", "think", "claim", "argue")
DENYING = ("deny", "doubt", "reject", "dispute")
NEGATORS = ("not", "never", "hardly")
FILLERS = ("we saw it twice", "i rented this one", "it ran for weeks", "this one came out late")

# Agreement (cola): singular and plural.
COUNT_NOUNS = MappingProxyType(
    {
        "dog": "dogs", "cat": "cats", "girl": "girls", "boy": "boys", "nurse": "nurses",
        "pilot": "pilots", "clerk": "clerks", "farmer": "farmers",
    }
)  # fmt: skip
INTRANSITIVE = MappingProxyType(
    {"sleeps": "sleep", "sings": "sing", "waits": "wait", "laughs": "laugh", "runs": "run"}
)
TRANSITIVE = MappingProxyType(
    {"sees": "see", "likes": "like", "knows": "know", "helps": "help", "hears": "hear"}
)
PREPOSITIONS = ("near", "behind", "beside")

# Events (mrpc, qqp, paws, stsb, qnli): past tense and participle are one form; pairs are synonyms.
KIND_VERBS = (("praised", "lauded"), ("helped", "assisted"), ("backed", "supported"))
HARSH_VERBS = (("scolded", "rebuked"), ("ignored", "shunned"), ("mocked", "ridiculed"))
EVENT_VERBS = (*KIND_VERBS, *HARSH_VERBS)

# Kinds (mnli, scitail): each kind with the kinds directly below it.
KINDS = MappingProxyType(
    {
        "animal": ("dog", "cat", "bird"),
        "dog": ("poodle", "hound"),
        "cat": ("tabby", "siamese"),
        "bird": ("robin", "crow"),
    }
)
OTHER_KINDS = MappingProxyType(
    {"vehicle": ("car", "ship"), "car": ("taxi", "sedan"), "ship": ("ferry", "yacht")}
)
SCIENCE_KINDS = MappingProxyType(
    {"insect": ("beetle", "ant"), "reptile": ("lizard", "snake"), "creature": ("insect", "reptile")}
)
ACTIONS = MappingProxyType(
    {
        "moves": ("runs", "climbs", "turns"),
        "runs": ("sprints", "jogs"),
        "climbs": ("scrambles", "clambers"),
        "turns": ("spins", "rolls"),
    }
)

# Implicatives (rte): the entailment for the verb's complement if affirmed and if negated:
# 1 it happened, -1 it did not, 0 nothing follows (Karttunen 1971; Nairn et al. 2006).
IMPLICATIVES = MappingProxyType(
    {
        "manage": (1, -1), "remember": (1, -1), "bother": (1, -1),
        "fail": (-1, 1), "forget": (-1, 1), "neglect": (-1, 1),
        "hope": (0, 0), "want": (0, 0), "refuse": (-1, 0), "hesitate": (0, 1),
    }
)  # fmt: skip
DEEDS = MappingProxyType(
    {"move": ("run", "climb", "turn"), "speak": ("whisper", "shout", "murmur")}
)

# Reference (wnli). Of "X beat Y because they were strong" `they` is X; "feared" turns it round.
DOER_VERBS = ("defeated", "outpaced", "tricked", "rescued")
TARGET_VERBS = ("feared", "admired", "envied")
STRONG = ("strong", "quick", "brave", "wise")
WEAK = ("weak", "slow", "timid", "foolish")

FUNCTION_WORDS = (
    "the", "that", "who", "whom", "is", "were", "they", "those", "did", "not", "to", "by",
    "in", "and", "but", "although", "though", "despite", "because", "every", "some", "no", "it",
    "false", "true", "later", "instead", "of",
)  # fmt: skip


def _all_words() -> tuple[str, ...]:
    flat = (
        PUNCTUATION, SENIORS, JUNIORS, OTHER_SENIORS, OTHER_JUNIORS, OUTSIDERS, WOMEN, MEN,
        PLACES, POSITIVE, NEGATIVE, ASPECTS, OTHER_ASPECTS,
        AUDIENCES, ASSERTING, DENYING, NEGATORS, PREPOSITIONS, DOER_VERBS, TARGET_VERBS, STRONG,
        WEAK, FUNCTION_WORDS, *EVENT_VERBS,
        *(filler.split() for filler in FILLERS),
    )  # fmt: skip
    words = {word for group in flat for word in group}
    for table in (COUNT_NOUNS, INTRANSITIVE, TRANSITIVE):
        words.update(table)
        words.update(table.values())
    words.update(IMPLICATIVES)
    for tree in (KINDS, OTHER_KINDS, SCIENCE_KINDS, ACTIONS, DEEDS):
        words.update(tree)
        words.update(word for below in tree.values() for word in below)
    return tuple(sorted(words))


WORDS: tuple[str, ...] = _all_words()
"""Every word, sorted: the tokenizer's vocabulary after the special tokens."""


# The word-level tokenizer of Pocket GLUE: one token a word, nothing unknown.


SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MAX_LENGTH = 128
"""Longest sequence in tokens that the tokenizer and the teacher take, which is the usual length
limit of a GLUE run; every example is much shorter."""


def vocabulary() -> dict[str, int]:
    """Token to id: the special tokens first, then every word in alphabetical order."""
    return {token: index for index, token in enumerate((*SPECIAL_TOKENS, *WORDS))}


def tokenizer() -> PreTrainedTokenizerFast:
    """A fresh word-level tokenizer that knows every word Pocket GLUE can generate.

    It gives no token types, because the teacher takes none. Instead [MASK] opens the second text of
    a pair, so that a model need not count separators to distinguish the texts.
    """
    ids = vocabulary()
    core = Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    core.normalizer = normalizers.Lowercase()
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    core.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 [MASK]:1 $B:1 [SEP]:1",
        special_tokens=[(token, ids[token]) for token in ("[CLS]", "[SEP]", "[MASK]")],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=MAX_LENGTH,
        model_input_names=["input_ids", "attention_mask"],
    )
