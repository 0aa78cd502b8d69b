"""Words that people type first, by language: of one to three words a detector of n-grams knows little."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

WORD: Final = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
MAX_WORDS: Final = 4  # of a text in which they count
MAX_CHARACTERS: Final = 64

# greetings, thanks, and the commonest small words; codes as py3langid has them
FIRST_WORDS: Final[Mapping[str, frozenset[str]]] = {
    language: frozenset(words.split())
    for language, words in {
        "cs": "ahoj čau dobrý den díky děkuji děkuju prosím ano ne jak jsi jste se máš",
        "da": "hej goddag tak farvel ja nej hvad hvordan jeg du er ikke",
        "de": (
            "hallo tschüss tschüs danke bitte guten gute tag morgen abend nacht ja nein wie geht "
            "geht's und ich du er sie es wir ihr der die das ein eine ist nicht was wer wo wann warum "
            "mein dein haus hund katze welt mit auf von zu für willkommen hilfe liebe entschuldigung "
            "wiedersehen"
        ),
        "en": (
            "hello hi hey thanks thank you please good morning evening night day bye goodbye yes no "
            "how are what who where when why the a an and i he she it we they is not my your house "
            "dog cat world with of to for welcome help love sorry upload login log out sign in"
        ),
        "es": (
            "hola gracias adiós adios buenos buenas días dias tardes noches sí por favor cómo como "
            "estás qué tal mundo el los las un una y yo tú ella nosotros es no casa perro gato amigo "
            "hasta luego mañana"
        ),
        "fi": "hei moi terve kiitos kyllä ei huomenta päivää mitä kuuluu hyvää minä sinä",
        "fr": (
            "bonjour salut merci bonsoir bonne nuit au revoir oui non comment ça va vas s'il vous "
            "plaît plait le la les un une et je tu il elle nous est pas mon ton maison chien chat "
            "monde avec de du des pour bienvenue aide amour pardon désolé désolée coucou"
        ),
        "hu": "szia helló köszönöm igen nem jó reggelt napot estét hogy vagy",
        "it": (
            "ciao grazie buongiorno buonasera prego sì arrivederci come stai va per favore il lo gli "
            "una uno e io tu lei noi è non casa cane gatto mondo scusa salve buona notte"
        ),
        "no": "hei takk ja nei hvordan har du det god morgen",
        "nl": (
            "hallo hoi dank je bedankt goedemorgen goedemiddag goedenavond doei ja nee hoe gaat het "
            "een en ik jij wij is niet huis hond kat wereld alsjeblieft"
        ),
        "pl": "cześć dzięki dziękuję dzień dobry proszę tak nie jak się masz dobranoc witaj i ja ty",
        "pt": (
            "olá oi obrigado obrigada bom boa dia tarde noite tchau sim não por favor como está vai "
            "tudo bem e eu você casa mundo"
        ),
        "ro": "bună salut mulțumesc da nu ce mai faci ziua",
        "ru": (
            "привет здравствуйте здравствуй спасибо пожалуйста да нет как дела мир доброе утро добрый "
            "день вечер пока до свидания что кто я ты он она мы и не"
        ),
        "sv": "hej tack god morgon ja nej hur mår du hejdå jag är inte och",
        "tr": "merhaba selam teşekkürler teşekkür ederim evet hayır günaydın nasılsın lütfen hoşça kal",
        "uk": "привіт дякую так ні будь ласка як справи добрий день доброго ранку світ що",
    }.items()
}


def known_shares(text: str) -> dict[str, float]:
    """Return the share of the words of a short text that each language's first words hold, from 0 to 1.

    A longer text, and a language that holds none, has no share.
    """
    words = WORD.findall(text.casefold().replace("’", "'")) if len(text) <= MAX_CHARACTERS else []
    if not 0 < len(words) <= MAX_WORDS:
        return {}
    counts = {language: sum(word in own for word in words) for language, own in FIRST_WORDS.items()}
    return {language: count / len(words) for language, count in counts.items() if count}
