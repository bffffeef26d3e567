"""The closed vocabulary of Pocket GLUE: every word a generated sentence can hold, by its use.

Before the data stage of a training step: the generators draw from these lists and the tokenizer
knows exactly these words. Meaning lives here too: which words are synonyms, which kinds contain
which, which verbs flip the truth of what they govern. The lists are short so that a teacher meets
every word often enough to learn it in a minute.
"""

from random import Random
from types import MappingProxyType
from typing import NamedTuple

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from limbeck.lab.pocket import events
from limbeck.lab.pocket.example import Domain, chance, depth, pick, pick_two, text

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

# Implicatives (rte): what the verb says of its complement when it is affirmed and when denied:
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
    a pair, so that a model need not count separators to tell the texts apart.
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


_DEEDS = (2, 3)
_PAIR = 0.3
"""Share of sides that are two groups."""

_ASKS_AGENT = 0.7


class _Deed(NamedTuple):
    agent: str
    form: str
    patient: str


class Asked(NamedTuple):
    """A question, a context, and where in it the answer begins."""

    question: str
    context: str
    answer: str
    start: int


def _side(random: Random, groups: tuple[str, ...]) -> str:
    if chance(random, _PAIR):
        return " and ".join(pick_two(random, groups))
    return pick(random, groups)


def _deeds(random: Random) -> list[_Deed]:
    """Deeds of which no two share two parts."""
    while True:
        forms = [pick(random, EVENT_VERBS)[0] for _ in range(pick(random, _DEEDS))]
        deeds = [_Deed(_side(random, SENIORS), form, _side(random, JUNIORS)) for form in forms]
        agents = {(deed.agent, deed.form) for deed in deeds}
        patients = {(deed.patient, deed.form) for deed in deeds}
        if len(agents) == len(patients) == len(deeds):
            return deeds


def _sentence(random: Random, deed: _Deed) -> str:
    if chance(random, events.PASSIVE):
        return text(deed.patient, "were", deed.form, "by", deed.agent, ".")
    return text(deed.agent, deed.form, deed.patient, ".")


def squad(random: Random, domain: Domain) -> Asked:
    """A question, its context, and the answer."""
    deeds = _deeds(random)
    asked = int(random.random() * len(deeds))
    deed = deeds[asked]
    sentences = [_sentence(random, one) for one in deeds]
    if chance(random, _ASKS_AGENT):
        question, answer = text("who", deed.form, deed.patient, "?"), deed.agent
    else:
        question, answer = text("who were", deed.form, "by", deed.agent, "?"), deed.patient
    before = sum(len(sentence) + 1 for sentence in sentences[:asked])
    place = sentences[asked].index(answer)
    return Asked(question, " ".join(sentences), answer, before + place)


Tagged = list[tuple[str, str]]
"""Words with their tags."""

_PEOPLE = (*WOMEN, *MEN)
_GROUPS = (*SENIORS, *JUNIORS)
_BORROWED = 0.25
"""Share of names that are more usual for another kind of entity."""

_NEAR = ("in", *PREPOSITIONS)
_CLAUSES = (0.5, 0.35, 0.15)
_LONGEST = 30


def _name(random: Random, usual: tuple[str, ...], other: tuple[str, ...]) -> str:
    return pick(random, other if chance(random, _BORROWED) else usual)


def _person(random: Random) -> Tagged:
    words = [(_name(random, _PEOPLE, PLACES), "B-PER")]
    if chance(random, 0.4):
        words.append((_name(random, PLACES, _PEOPLE), "I-PER"))
    return words


def _body(random: Random) -> Tagged:
    place = _name(random, PLACES, _PEOPLE)
    return [(place, "B-ORG"), (pick(random, _GROUPS), "I-ORG")]


def _someone(random: Random) -> Tagged:
    drawn = random.random()
    if drawn < 0.45:
        return _person(random)
    if drawn < 0.7:
        return _body(random)
    return _outside("the", pick(random, _GROUPS))


def _outside(*words: str) -> Tagged:
    return [(word, "O") for word in words]


def _clause(random: Random) -> Tagged:
    first, second = _someone(random), _someone(random)
    form = events.verb_form(random, events.verb(random))
    if chance(random, events.PASSIVE):
        words = [*first, *_outside("were", form, "by"), *second]
    else:
        words = [*first, *_outside(form), *second]
    if chance(random, 0.4):
        place = (_name(random, PLACES, _PEOPLE), "B-LOC")
        words += [*_outside(pick(random, _NEAR)), place]
    return words


def ner(random: Random, domain: Domain) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words of a sentence and a tag for each."""
    while True:
        words = _clause(random)
        for _ in range(depth(random, _CLAUSES)):
            words += [*_outside(pick(random, ("and", "but", "because"))), *_clause(random)]
        if len(words) < _LONGEST:
            words += _outside(".")
            return tuple(word for word, _ in words), tuple(tag for _, tag in words)
