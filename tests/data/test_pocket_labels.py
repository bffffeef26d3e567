"""Every label of Pocket GLUE, worked out again from the text alone by small readers written here.

The readers share no code with the generators: word classes are spelled out below, sentences are
taken apart by regular expressions and recursive descent, and inference is checked in random worlds.
"""

import random
import re
from functools import cache

import pytest

from limbeck.lab import pocket

ROWS = 300

POSITIVE = {"witty", "warm", "bright", "moving", "clever", "rich", "fresh", "lively"}
NEGATIVE = {"dull", "cold", "bleak", "clumsy", "stale", "slow", "flat", "empty"}
DENY = {"deny", "doubt", "reject", "dispute"}
SAY = {"say", "think", "claim", "argue"}
SYNONYMS = {
    "lauded": "praised", "assisted": "helped", "supported": "backed", "rebuked": "scolded",
    "shunned": "ignored", "ridiculed": "mocked",
}  # fmt: skip
VERB = "praised|helped|backed|scolded|ignored|mocked"


@cache
def load(task):
    return pocket.load(task, seed=3)


def texts_and_labels(task, splits=("dev",), rows=ROWS):
    loaded = load(task)
    for split in splits:
        part = loaded[split].select(range(min(rows, len(loaded[split]))))
        columns = [name for name in part.column_names if name not in ("label", "index")]
        for row in part:
            yield [row[column] for column in columns], row["label"]


def plain(sentence):
    """Synonyms replaced by one of the pair."""
    return " ".join(SYNONYMS.get(word, word) for word in sentence.split())


# --- sentiment ---------------------------------------------------------------------------------


def read_opinion(words):
    """Consume one opinion from the front of `words`; returns whether it is positive."""
    first = words.pop(0)
    if first in ("not", "never", "hardly"):
        return not read_opinion(words)
    if first in POSITIVE | NEGATIVE:
        words.pop(0)  # the noun
        return first in POSITIVE
    if first == "(":
        if words[0] == "although":
            words.pop(0)
            read_opinion(words)
            assert words.pop(0) == ","
            winner = read_opinion(words)
        else:
            left = read_opinion(words)
            contrast = words.pop(0)
            right = read_opinion(words)
            winner = {"but": right, "though": left, "despite": left}[contrast]
        assert words.pop(0) == ")"
        return winner
    assert first in ("critics", "fans", "friends", "people")
    verb = words.pop(0)
    assert verb in DENY | SAY
    return read_opinion(words) != (verb in DENY)


def test_sst2_labels_follow_scope_and_contrast():
    for (sentence,), label in texts_and_labels("sst2", ("train", "dev")):
        words = sentence.split()
        assert read_opinion(words) == bool(label), sentence
        assert words == []


def test_imdb_labels_follow_the_one_opinion_among_neutral_sentences():
    fillers = ("we saw", "i rented", "it ran", "this one")
    for (text,), label in texts_and_labels("imdb"):
        sentences = [part.strip() for part in text.split(" . ")]
        opinions = [part for part in sentences if not part.startswith(fillers)]
        assert len(opinions) == 1
        words = opinions[0].removesuffix(" .").split()
        assert read_opinion(words) == bool(label), text


# --- agreement ---------------------------------------------------------------------------------

SINGULAR_VERBS = {
    "sleeps",
    "sings",
    "waits",
    "laughs",
    "runs",
    "sees",
    "likes",
    "knows",
    "helps",
    "hears",
}
PLURAL_VERBS = {verb[:-1] for verb in SINGULAR_VERBS}


def read_noun_phrase(words, wrong):
    """Consume a noun phrase; returns whether its head is plural, appending to `wrong`."""
    assert words.pop(0) == "the"
    plural = words.pop(0).endswith("s")
    if words and words[0] in ("near", "behind", "beside"):
        words.pop(0)
        read_noun_phrase(words, wrong)
    elif words and words[0] == "that":
        words.pop(0)
        if words[0] == "the":
            read_verb(words, read_noun_phrase(words, wrong), wrong)
        else:
            read_verb(words, plural, wrong)
            read_noun_phrase(words, wrong)
    return plural


def read_verb(words, plural, wrong):
    verb = words.pop(0)
    assert verb in SINGULAR_VERBS | PLURAL_VERBS
    if (verb in PLURAL_VERBS) != plural:
        wrong.append(verb)


def test_cola_sentences_are_acceptable_when_all_verbs_agree():
    for (sentence,), label in texts_and_labels("cola", ("train", "dev")):
        words, wrong = sentence.removesuffix(" .").split(), []
        read_verb(words, read_noun_phrase(words, wrong), wrong)
        if words:
            read_noun_phrase(words, wrong)
        assert words == []
        assert len(wrong) == 1 - label, sentence


# --- paraphrase, similarity, questions ---------------------------------------------------------


def read_clause(clause):
    """(agent, verb, patient) of a clause in either voice, synonyms undone."""
    clause = plain(clause)
    passive = re.fullmatch(rf"(\w+) were ({VERB}) by (\w+)", clause)
    if passive:
        return passive[3], passive[2], passive[1]
    active = re.fullmatch(rf"(\w+) ({VERB}) (\w+)", clause)
    return active[1], active[2], active[3]


INNERMOST = re.compile(r"\( ([^()]+) \)")


def what_holds(sentence):
    """The clause that is left when the corrections are carried out, innermost brackets first."""
    while found := INNERMOST.search(sentence):
        inside = found[1]
        if inside.startswith("instead of "):
            kept = inside.split(" , ")[1]
        elif inside.startswith("not "):
            kept = inside.split(" but ")[1]
        else:
            kept = re.split(" instead of | and not ", inside)[0]
        sentence = sentence[: found.start()] + kept + sentence[found.end() :]
    return sentence


def read_sentence(sentence):
    return read_clause(what_holds(sentence.removesuffix(" .")))


def test_mrpc_pairs_are_equivalent_when_what_holds_is():
    for (first, second), label in texts_and_labels("mrpc", ("train", "dev")):
        assert (read_sentence(first) == read_sentence(second)) == bool(label), (first, second)


def read_person(phrase):
    """A name as itself; "those who V X" as (V, role of the described people, X)."""
    if not phrase.startswith("those"):
        assert " " not in phrase
        return phrase.replace("whom", "who")
    phrase = phrase.removeprefix("those ")
    passive = re.fullmatch(rf"who were ({VERB}) by (.+)", phrase)
    if passive:
        return passive[1], "patient", read_person(passive[2])
    active = re.fullmatch(rf"who ({VERB}) (.+)", phrase)
    if active:
        return active[1], "agent", read_person(active[2])
    short = re.fullmatch(rf"whom (\w+) ({VERB})", phrase)
    return short[2], "patient", read_person(short[1])


PERSON = rf"(?:those (?:who were (?:{VERB}) by |who (?:{VERB}) ))*(?:those whom \w+ (?:{VERB})|\w+)"


def read_statement(sentence):
    """(agent, verb, patient) where either may be described by deeds or asked for by "who"."""
    sentence = plain(sentence)
    passive = re.fullmatch(rf"({PERSON}) were ({VERB}) by ({PERSON})", sentence)
    if passive:
        return read_person(passive[3]), passive[2], read_person(passive[1])
    active = re.fullmatch(rf"({PERSON}) ({VERB}) ({PERSON})", sentence)
    return read_person(active[1]), active[2], read_person(active[3])


def read_question(question):
    return read_statement(question.removesuffix(" ?").removeprefix("is it true that "))


@pytest.mark.slow
def test_qqp_pairs_are_duplicates_when_they_ask_the_same():
    for (first, second), label in texts_and_labels("qqp", ("train", "dev")):
        assert (read_question(first) == read_question(second)) == bool(label), (first, second)


def test_paws_pairs_are_paraphrases_when_their_meanings_are_and_share_their_words():
    for (first, second), label in texts_and_labels("paws"):
        same = read_statement(first) == read_statement(second)
        assert same == bool(label), (first, second)
        function = {"were", "by", "who", "whom"}
        bags = [sorted(set(plain(text).split()) - function) for text in (first, second)]
        assert bags[0] == bags[1]


def read_scene(sentence):
    sentence = sentence.removesuffix(" .")
    place = re.search(r"\bin (\w+)", sentence)[1]
    return read_sentence(re.sub(r"^in \w+ , | in \w+$", "", sentence)), place


KIND = {"praised", "helped", "backed"}


@pytest.mark.slow
def test_stsb_scores_add_up_what_agrees():
    for (first, second), label in texts_and_labels("stsb", ("train", "dev")):
        (one, here), (other, there) = read_scene(first), read_scene(second)
        assert {one[0], one[2]} == {other[0], other[2]}
        points = 2.2 if one[0] == other[0] else 0.0
        points += 0.8 if here == there else 0.0
        if one[1] == other[1]:
            points += 2.0
        elif (one[1] in KIND) == (other[1] in KIND):
            points += 0.7
        assert label == pytest.approx(points), (first, second)


def test_qnli_sentences_answer_when_what_holds_is_the_event_asked_for():
    for (question, sentence), label in texts_and_labels("qnli", ("train", "dev")):
        asked = read_question(question)
        told = read_sentence(sentence)
        matches = all(part in ("who", fact) for part, fact in zip(asked, told, strict=True))
        assert matches == (label == 0), (question, sentence)


@pytest.mark.parametrize(("task", "wrong"), [("mrpc", 0), ("qnli", 1)])
def test_what_another_text_speaks_of_is_often_among_what_the_sentence_rejects(task, wrong):
    mentioned, corrected, deepest = 0, 0, 0
    for texts, label in texts_and_labels(task, ("train",)):
        sentence, other = texts if task == "mrpc" else texts[::-1]
        [verb] = re.findall(VERB, plain(other))
        held = read_sentence(sentence)[1]
        corrected += "(" in sentence
        deepest = max(deepest, sentence.count("("))
        if label == wrong and held != verb:
            mentioned += verb in plain(sentence).split() or -1
    assert mentioned > 0
    assert corrected > ROWS / 2
    assert deepest == 3


# --- inference ---------------------------------------------------------------------------------

PARENTS = {
    "dog": "animal", "cat": "animal", "bird": "animal", "poodle": "dog", "hound": "dog",
    "tabby": "cat", "siamese": "cat", "robin": "bird", "crow": "bird", "car": "vehicle",
    "ship": "vehicle", "taxi": "car", "sedan": "car", "ferry": "ship", "yacht": "ship",
    "insect": "creature", "reptile": "creature", "beetle": "insect", "ant": "insect", "lizard": "reptile",
    "snake": "reptile", "runs": "moves", "climbs": "moves", "turns": "moves", "sprints": "runs",
    "jogs": "runs", "scrambles": "climbs", "clambers": "climbs", "spins": "turns",
    "rolls": "turns", "run": "move", "climb": "move", "turn": "move", "whisper": "speak",
    "shout": "speak", "murmur": "speak",
}  # fmt: skip


def upwards(word):
    line = {word}
    while word in PARENTS:
        word = PARENTS[word]
        line.add(word)
    return line


def worlds(kinds, actions, generator, count):
    """Random small worlds: individuals, each with all kinds and all actions it falls under.

    An individual is one of the kinds, or nothing in particular; it does one action or none.
    """
    while count:
        size = generator.randint(1, 4)
        world = [
            (
                upwards(generator.choice([*kinds, "thing"])),
                upwards(generator.choice([*actions, "nothing"])),
            )
            for _ in range(size)
        ]
        if all(any(kind in is_ for is_, _ in world) for kind in kinds):
            count -= 1
            yield world


def truth(sentence, world):
    words = sentence.removesuffix(" .").split()
    denied = sentence.count("false") % 2 == 1
    quantifier, kind, action = words[-3:]
    doing = [action in does for is_, does in world if kind in is_]
    value = {"every": all(doing), "some": any(doing), "no": not any(doing)}[quantifier]
    return value != (denied != (words[-4:-3] == ["not"]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "splits"), [("mnli", ("train", "dev", "dev_mismatched")), ("scitail", ("dev",))]
)
def test_inference_labels_hold_in_every_random_world(task, splits):
    generator = random.Random(0)
    for (premise, hypothesis), label in texts_and_labels(task, splits, 100):
        kinds, actions = ([s.split()[place] for s in (premise, hypothesis)] for place in (-3, -2))
        outcomes = {
            truth(hypothesis, world)
            for world in worlds(kinds, actions, generator, 120)
            if truth(premise, world)
        }
        expected = {frozenset({True}): 0, frozenset({False}): 2}.get(frozenset(outcomes), 1)
        if task == "scitail":
            assert expected in (0, 1)
        assert label == expected, (premise, hypothesis, outcomes)


TWO_WAY = {"manage": 1, "remember": 1, "bother": 1, "fail": -1, "forget": -1, "neglect": -1}


def read_chain(sentence):
    """(name, what is known, deed): True it happened, False it did not, None nothing is known."""
    name, did, *words, deed = sentence.removesuffix(" .").split()
    assert did == "did"
    known = True
    for word in words:
        if word == "not":
            known = None if known is None else not known
        elif word in TWO_WAY:
            known = None if known is None else known == (TWO_WAY[word] == 1)
        elif word == "refuse":
            known = False if known is True else None
        elif word == "hesitate":
            known = True if known is False else None
        elif word != "to":
            assert word in ("hope", "want")
            known = None
    return name, known, deed


def test_rte_labels_follow_the_chain_of_implicatives():
    for (first, second), label in texts_and_labels("rte", ("train", "dev")):
        name, claimed, claimed_deed = read_chain(second)
        chains = [read_chain(part) for part in first.split(" and ")]
        [(known, deed)] = [(known, deed) for who, known, deed in chains if who == name]
        follows = (known is True and claimed is True and claimed_deed in upwards(deed)) or (
            known is False and claimed is False and deed in upwards(claimed_deed)
        )
        assert follows == (label == 0), (first, second)


# --- reference ---------------------------------------------------------------------------------


STRONG = {"strong", "quick", "brave", "wise"}
WEAK = {"weak", "slow", "timid", "foolish"}


def read_step(sentence, those):
    """Who `they` are in a sentence about two groups, and the trait; `those` is who "those" are."""
    found = re.fullmatch(
        r"(?:later )?(\w+) (were )?(\w+) (by )?(\w+) (because|although) they were (\w+)", sentence
    )
    left = those if found[1] == "those" else found[1]
    doer, target = (found[5], left) if found[2] else (left, found[5])
    if found[3] in ("feared", "admired", "envied"):
        doer, target = target, doer
    assert found[7] in STRONG | WEAK
    return (doer if (found[7] in STRONG) == (found[6] == "because") else target), found[7]


def test_wnli_claims_hold_when_they_name_the_ones_meant():
    for (story, claim), label in texts_and_labels("wnli", ("train", "dev")):
        name, trait = claim.removesuffix(" .").split(" were ")
        if " and " in story:
            facts = [part.strip(" .") for part in story.split(" and ")]
            assert (f"{name} were {trait}" in facts) == bool(label), (story, claim)
            continue
        those = None
        for sentence in story.removesuffix(" .").split(" . "):
            those, last_trait = read_step(sentence, those)
        assert last_trait == trait
        assert (those == name) == bool(label), (story, claim)
