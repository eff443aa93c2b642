"""A small bilingual world: English captions, and all of their correct French translations.

Each English phrase has one form. Each French one has several: synonyms with genders of their own, adjectives before
or behind the noun, the present or "être en train de". A caption is translated by drawing one of each. That leaves a
translator as uncertain as real text does, and still it can be decided exactly whether an output is right.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

VOWELS = "aeiouyhéèêâîôœ"


@dataclass(frozen=True)
class Noun:
    one: str
    many: str
    french: tuple[tuple[str, str, str], ...]  # one, many, gender


@dataclass(frozen=True)
class Adjective:
    word: str
    french: tuple[tuple[str, str, str, str, str], ...]  # m, f, m plural, f plural, before or behind the noun


@dataclass(frozen=True)
class Verb:
    one: str
    many: str
    french: tuple[tuple[str, str, str], ...]  # one, many, infinitive


def _nouns(text: str) -> tuple[Noun, ...]:
    """Lines such as `dog dogs: chien m, cabot m`; a plural that is not +s follows a slash."""
    out = []
    for line in text.strip().splitlines():
        english, french = line.split(":")
        one, many = english.split()
        words = []
        for entry in french.split(","):
            forms, gender = entry.split()
            first, _, second = forms.partition("/")
            words.append((first, second or first + "s", gender))
        out.append(Noun(one, many, tuple(words)))
    return tuple(out)


def _adjectives(text: str) -> tuple[Adjective, ...]:
    """Lines such as `red: rouge/rouge behind`: masculine and feminine, and where it stands; plurals add an s."""
    out = []
    for line in text.strip().splitlines():
        word, french = line.split(":")
        forms = []
        for entry in french.split(","):
            both, place = entry.split()
            m, f = both.split("/")
            forms.append((m, f, m if m.endswith(("s", "x")) else m + "s", f + "s", place))
        out.append(Adjective(word.strip(), tuple(forms)))
    return tuple(out)


def _verbs(text: str) -> tuple[Verb, ...]:
    """Lines such as `runs run: court/courent/courir, galope/galopent/galoper`."""
    out = []
    for line in text.strip().splitlines():
        english, french = line.split(":")
        one, many = (w.replace("_", " ") for w in english.split())
        forms = [tuple(w.replace("_", " ") for w in entry.strip().split("/")) for entry in french.split(",")]
        out.append(Verb(one, many, tuple((a, b, c) for a, b, c in forms)))
    return tuple(out)


def _phrases(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    out = []
    for line in text.strip().splitlines():
        english, french = line.split(":")
        out.append((english.strip(), tuple(phrase.strip() for phrase in french.split(","))))
    return tuple(out)


PEOPLE = _nouns("""
man men: homme m, monsieur/messieurs m, type m
woman women: femme f, dame f, demoiselle f
boy boys: garçon m, gamin m, garçonnet m
girl girls: fille f, gamine f, fillette f
child children: enfant m, gosse m, bambin m
dog dogs: chien m, cabot m, toutou m
cat cats: chat m, matou m, minet m
worker workers: ouvrier m, travailleur m, employé m
""")
THINGS = _nouns("""
ball balls: balle f, ballon m, boule f
book books: livre m, bouquin m, ouvrage m
car cars: voiture f, auto f, bagnole f
bag bags: sac m, sacoche f, cabas/cabas m
hat hats: chapeau/chapeaux m, couvre-chef m, bonnet m
house houses: maison f, demeure f, bâtisse f
boat boats: bateau/bateaux m, barque f, canot m
picture pictures: image f, photo f, tableau/tableaux m
""")
ANY_LIKE = _adjectives("""
big: grand/grande before, gros/grosse before, énorme/énorme behind
small: petit/petite before, minuscule/minuscule behind, menu/menue behind
pretty: joli/jolie before, ravissant/ravissante behind, charmant/charmante behind
strange: étrange/étrange behind, bizarre/bizarre behind, curieux/curieuse behind
""")
PEOPLE_LIKE = ANY_LIKE + _adjectives("""
young: jeune/jeune before, juvénile/juvénile behind
tired: fatigué/fatiguée behind, épuisé/épuisée behind, las/lasse behind
""")
THINGS_LIKE = ANY_LIKE + _adjectives("""
red: rouge/rouge behind, écarlate/écarlate behind, rougeâtre/rougeâtre behind
black: noir/noire behind, sombre/sombre behind, foncé/foncée behind
""")
ALONE = _verbs("""
runs run: court/courent/courir, galope/galopent/galoper, file/filent/filer
sleeps sleep: dort/dorment/dormir, sommeille/sommeillent/sommeiller, roupille/roupillent/roupiller
laughs laugh: rit/rient/rire, rigole/rigolent/rigoler, pouffe/pouffent/pouffer
works work: travaille/travaillent/travailler, bosse/bossent/bosser, besogne/besognent/besogner
waits wait: attend/attendent/attendre, patiente/patientent/patienter, poireaute/poireautent/poireauter
plays play: joue/jouent/jouer, gambade/gambadent/gambader, folâtre/folâtrent/folâtrer
""")
WITH_THING = _verbs("""
sees see: voit/voient/voir, aperçoit/aperçoivent/apercevoir, remarque/remarquent/remarquer
carries carry: porte/portent/porter, transporte/transportent/transporter, trimbale/trimbalent/trimbaler
looks_at look_at: regarde/regardent/regarder, contemple/contemplent/contempler, observe/observent/observer
paints paint: peint/peignent/peindre, dessine/dessinent/dessiner, colorie/colorient/colorier
finds find: trouve/trouvent/trouver, découvre/découvrent/découvrir, déniche/dénichent/dénicher
sells sell: vend/vendent/vendre, cède/cèdent/céder, brade/bradent/brader
""")
PLACES = _phrases("""
in the park: dans le parc, au parc, dans le jardin public
on the street: dans la rue, sur la chaussée, en pleine rue
at the beach: à la plage, sur la plage, au bord de la mer
in the kitchen: dans la cuisine, à la cuisine
near the river: près de la rivière, au bord de la rivière, non loin du fleuve
at night: la nuit, de nuit, pendant la nuit
""")
# One for each gender, and no paraphrases: a translator may be sure of the first word.
ARTICLES = {"a": ("un", "une"), "the": ("le", "la"), "two": ("deux", "deux"), "three": ("trois", "trois")}
WHILE = ("pendant que", "tandis que", "alors que")


def _elided(word: str, following: str) -> str:
    """`le` + `homme` -> `l'homme`."""
    if following[0] in VOWELS and word in ("le", "la", "de", "que"):
        return f"{word[:-1]}'{following}"
    return f"{word} {following}"


@dataclass(frozen=True)
class Someone:
    """A noun phrase."""

    noun: Noun
    article: str  # a, the, two, three
    adjective: Adjective | None = None

    @property
    def plural(self) -> bool:
        return self.article in ("two", "three")

    @property
    def english(self) -> str:
        adjective = f"{self.adjective.word} " if self.adjective else ""
        return f"{self.article} {adjective}{self.noun.many if self.plural else self.noun.one}"

    @cached_property
    def french(self) -> tuple[str, ...]:
        out = []
        for (one, many, gender), adjective in product(
            self.noun.french, self.adjective.french if self.adjective else [None]
        ):
            noun = many if self.plural else one
            if adjective is None:
                words = noun
            else:
                form = adjective[2 * self.plural + (gender == "f")]
                words = f"{form} {noun}" if adjective[4] == "before" else f"{noun} {form}"
            out.append(_elided(ARTICLES[self.article][gender == "f"], words))
        return tuple(dict.fromkeys(out))


@dataclass(frozen=True)
class Clause:
    who: Someone
    verb: Verb
    what: Someone | None = None
    place: tuple[str, tuple[str, ...]] | None = None

    @property
    def english(self) -> str:
        parts = [self.who.english, self.verb.many if self.who.plural else self.verb.one]
        return " ".join([*parts, *([self.what.english] if self.what else []), *([self.place[0]] if self.place else [])])

    @property
    def slots(self) -> list[tuple[str, ...]]:
        """One after another, the phrases that are right at each place."""
        many = self.who.plural
        plain = [forms[many] for forms in self.verb.french]
        going_on = f"{'sont' if many else 'est'} en train {_elided('de', self.verb.french[0][2])}"
        out = [self.who.french, (*plain, going_on)]
        return [*out, *([self.what.french] if self.what else []), *([self.place[1]] if self.place else [])]


@dataclass(frozen=True)
class Caption:
    """What is said, in no language."""

    main: Clause
    meanwhile: Clause | None = None

    @property
    def english(self) -> str:
        return self.main.english + (f" while {self.meanwhile.english}" if self.meanwhile else "")

    @cached_property
    def _slots(self) -> list[tuple[str, ...]]:
        slots = self.main.slots
        if self.meanwhile is not None:
            first, *rest = self.meanwhile.slots
            slots += [tuple(_elided_while(w, who) for w, who in product(WHILE, first)), *rest]
        return slots

    def translate(self, rng: random.Random) -> str:
        """One of the right translations, at random."""
        return " ".join(rng.choice(slot) for slot in self._slots)

    def is_translated_by(self, text: str) -> bool:
        """Whether a text is one of the right translations."""
        ends = {0}
        text = " ".join(text.split()) + " "
        for slot in self._slots:
            ends = {end + len(phrase) + 1 for end in ends for phrase in slot if text.startswith(phrase + " ", end)}
        return len(text) in ends


def _elided_while(word: str, following: str) -> str:
    head, _, que = word.rpartition(" ")
    return f"{head} {_elided(que, following)}"


def captions(rng: random.Random) -> Iterator[Caption]:
    """Captions without end, now and then one again."""

    def choose(nouns: Sequence[Noun], adjectives: Sequence[Adjective], share: float = 0.5) -> Someone:
        adjective = rng.choice(adjectives) if rng.random() < share else None
        return Someone(rng.choice(nouns), rng.choice(tuple(ARTICLES)), adjective)

    def clause() -> Clause:
        place = rng.choice(PLACES) if rng.random() < 0.5 else None
        if rng.random() < 0.5:
            return Clause(choose(PEOPLE, PEOPLE_LIKE), rng.choice(ALONE), None, place)
        what = choose(THINGS, THINGS_LIKE)
        return Clause(choose(PEOPLE, PEOPLE_LIKE), rng.choice(WITH_THING), what, place)

    while True:
        main = clause()
        meanwhile = Clause(choose(PEOPLE, PEOPLE_LIKE, 0.0), rng.choice(ALONE)) if rng.random() < 0.2 else None
        yield Caption(main, meanwhile)


def corpus(num: int, seed: int = 0) -> list[tuple[Caption, str]]:
    """Distinct captions, each with one translation."""
    rng = random.Random(f"captions {seed}")
    found: dict[str, Caption] = {}
    for caption in captions(rng):
        found.setdefault(caption.english, caption)
        if len(found) == num:
            break
    return [(caption, caption.translate(rng)) for caption in found.values()]
