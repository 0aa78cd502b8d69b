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
        "cs": (
            "ahoj čau dobrý den díky děkuji děkuju prosím ano ne jak jsi jste se máš sbohem promiňte "
            "pomoc láska dobrou noc ráno večer kde kdo co vítejte na shledanou"
        ),
        "da": (
            "hej goddag tak farvel ja nej hvad hvordan jeg du er ikke mange godmorgen godaften godnat "
            "undskyld velkommen går det hjælp kærlighed hvor hvem"
        ),
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
            "hasta luego mañana perdón perdon te quiero amo ayuda amor bienvenido bienvenidos dónde "
            "donde quién cuándo cuánto cuesta cuanto hace lo siento señor señora mucho muchas vale "
            "claro"
        ),
        "fi": (
            "hei moi terve kiitos kyllä ei huomenta päivää mitä kuuluu hyvää minä sinä anteeksi "
            "tervetuloa näkemiin yötä iltaa missä kuka rakastan sinua apua ole hyvä"
        ),
        "fr": (
            "bonjour salut merci bonsoir bonne nuit au revoir oui non comment ça va vas s'il vous "
            "plaît plait le la les un une et je tu il elle nous est pas mon ton maison chien chat "
            "monde avec de du des pour bienvenue aide amour pardon désolé désolée coucou"
        ),
        "hu": (
            "szia helló köszönöm igen nem jó reggelt napot estét hogy vagy viszlát bocsánat kérem "
            "szeretlek éjszakát üdvözlöm hol ki mi segítség szívesen"
        ),
        "it": (
            "ciao grazie buongiorno buonasera prego sì arrivederci come stai va per favore il lo gli "
            "una uno e io tu lei noi è non casa cane gatto mondo scusa salve buona notte ti amo scusi "
            "quanto costa sera giorno aiuto amore benvenuto benvenuti dove quando chi che cosa mi "
            "dispiace allora bene molto tutto mille signora signore"
        ),
        "no": (
            "hei takk ja nei hvordan har du det god morgen natt kveld velkommen unnskyld hjelp "
            "kjærlighet hvor hvem jeg elsker deg går"
        ),
        "nl": (
            "hallo hoi dank je bedankt goedemorgen goedemiddag goedenavond doei ja nee hoe gaat het "
            "een en ik jij wij is niet huis hond kat wereld alsjeblieft tot ziens wel graag gedaan "
            "welkom sorry hulp liefde waar wie wat wanneer hou van goede nacht morgen dag jou bent"
        ),
        "pl": (
            "cześć dzięki dziękuję dzień dobry proszę tak nie jak się masz dobranoc witaj i ja ty do "
            "widzenia przepraszam wieczór pomoc miłość kocham cię gdzie kto co witamy na zdrowie "
            "jestem"
        ),
        "pt": (
            "olá oi obrigado obrigada bom boa dia tarde noite tchau sim não por favor como está vai "
            "tudo bem e eu você casa mundo até logo desculpe desculpa ajuda amor bem-vindo onde quem "
            "quando quanto custa te amo muito prazer"
        ),
        "ro": (
            "bună salut mulțumesc da nu ce mai faci ziua seara dimineața scuze te iubesc ajutor unde "
            "cine bine revedere noapte frumos la"
        ),
        "ru": (
            "привет здравствуйте здравствуй спасибо пожалуйста да нет как дела мир доброе утро добрый "
            "день вечер пока до свидания что кто я ты он она мы и не хорошо люблю тебя извините "
            "помощь любовь где когда сколько стоит очень спокойной ночи добро пожаловать ладно"
        ),
        "sv": (
            "hej tack god morgon ja nej hur mår du hejdå jag är inte och så mycket förlåt välkommen "
            "hjälp kärlek var vem älskar dig natt kväll dag"
        ),
        "tr": (
            "merhaba selam teşekkürler teşekkür ederim evet hayır günaydın nasılsın lütfen hoşça kal "
            "iyi akşamlar geceler günler özür dilerim hoş geldiniz yardım aşk nerede kim ne seni "
            "seviyorum tamam görüşürüz"
        ),
        "uk": (
            "привіт дякую так ні будь ласка як справи добрий день доброго ранку світ що вибачте "
            "допомога любов де хто коли люблю тебе добраніч ласкаво просимо дуже"
        ),
        "bg": "здравей здравейте благодаря моля добър ден добро утро довиждане обичам те как си",
        "ca": "bon dia bona tarda nit gràcies adéu si us plau estàs t'estimo",
        "el": "γεια σου σας ευχαριστώ ναι όχι καλημέρα καλησπέρα καληνύχτα παρακαλώ τι κάνεις",
        "eo": "saluton dankon bonan tagon matenon nokton jes ne kiel vi fartas ĝis revido mi amas vin",
        "et": "tere aitäh tänan jah palun hommikust päevast õhtust kuidas läheb head aega vabandust",
        "hr": "hvala bok dobar dan dobro jutro večer laku noć molim kako doviđenja volim te",
        "id": (
            "selamat pagi siang malam terima kasih ya tidak apa kabar tolong maaf sampai jumpa aku cinta kamu"
        ),
        "lt": "labas ačiū taip ne prašau diena rytas vakaras kaip sekasi iki viso gero myliu tave",
        "lv": "labdien sveiki paldies jā nē lūdzu labrīt labvakar kā iet uz redzēšanos čau",
        "sk": "ahoj ďakujem dobrý deň dobré ráno áno nie prosím ako sa máš dovidenia ľúbim ťa",
        "sl": "hvala živjo zdravo dober dan dobro jutro prosim nasvidenje ljubim te",
        "sq": "përshëndetje faleminderit mirëmëngjes po jo mirë dita si jeni të lutem",
        "sr": "здраво хвала добар дан добро јутро молим како си довиђења волим те",
        "sw": "habari asante jambo karibu ndiyo hapana tafadhali kwaheri nakupenda sana",
        "tl": "kumusta salamat magandang umaga gabi oo hindi paalam mahal kita",
        "vi": "xin chào cảm ơn vâng không tạm biệt buổi sáng bạn khỏe yêu anh em",
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
