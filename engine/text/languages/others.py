"""Languages of which only marks and first words are known; one with more rules has a file of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from engine.text.languages import de
from engine.text.languages.rules import (
    DERIVED_NAMES,
    ENGLISH_NUMERALS,
    ENGLISH_QUOTATION,
    WIDE,
    LanguageRules,
    Numerals,
    QuotationMarks,
    words,
)

# Greetings, thanks, buttons and the commonest small words, by the codes of py3langid.
FIRST_WORDS_TABLE: Final = """
cs: ahoj čau dobrý den díky děkuji děkuju prosím ano ne jak jsi jste se máš sbohem promiňte pomoc láska
dobrou noc ráno večer kde kdo co vítejte na shledanou uložit zrušit otevřít soubor nastavení heslo hledat
možná další zpět přihlásit odhlásit problém voda chléb kolik hodin zítra chuť gratuluji nenalezeno miluji tě
moc viděnou;
da: hej goddag tak farvel ja nej hvad hvordan jeg du er ikke mange godmorgen godaften godnat undskyld
velkommen går det hjælp kærlighed hvor hvem gem annuller åbn fil indstillinger søg måske næste tilbage vand
brød smør klokken tillykke senere adgangskode glemt fundet elsker dig intet imorgen log ind ud vi ses;
es: hola gracias adiós adios buenos buenas días dias tardes noches sí por favor cómo como estás qué tal
mundo el los las un una y yo tú ella nosotros es no casa perro gato amigo hasta luego mañana perdón perdon
te quiero amo ayuda amor bienvenido bienvenidos dónde donde quién cuándo cuánto cuesta cuanto hace lo siento
señor señora mucho muchas vale claro guardar cancelar abrir archivo configuración contraseña buscar quizás
siguiente atrás iniciar cerrar sesión hay problema agua pan hora vamos buen provecho felicidades
felicitaciones encontrado;
fi: hei moi terve kiitos kyllä ei huomenta päivää mitä kuuluu hyvää minä sinä anteeksi tervetuloa näkemiin
yötä iltaa missä kuka rakastan sinua apua ole hyvä tallenna peruuta avaa tiedosto asetukset salasana haku
ehkä seuraava takaisin kirjaudu vesi leipä voi kello onnea nähdään myöhemmin paljon löytynyt ongelmaa;
hu: szia helló köszönöm igen nem jó reggelt napot estét hogy vagy viszlát bocsánat kérem szeretlek éjszakát
üdvözlöm hol ki mi segítség szívesen mentés mégse fájl megnyitása beállítások jelszó keresés talán következő
vissza bejelentkezés probléma víz kenyér óra van holnap étvágyat gratulálok sajnálom szépen később található;
it: ciao grazie buongiorno buonasera prego sì arrivederci come stai va per favore il lo gli una uno e io tu
lei noi è non casa cane gatto mondo scusa salve buona notte ti amo scusi quanto costa sera giorno aiuto
amore benvenuto benvenuti dove quando chi che cosa mi dispiace allora bene molto tutto mille signora signore
salva annulla apri file impostazioni dimenticata trovato cerca forse avanti indietro accedi esci nessun
problema acqua pane ore sono domani dopo a andiamo buon appetito buonanotte congratulazioni sei appuntamento;
no: hei takk ja nei hvordan har du det god morgen natt kveld velkommen unnskyld hjelp kjærlighet hvor hvem
jeg elsker deg går lagre avbryt åpne fil innstillinger passord glemt søk kanskje neste tilbake logg inn ut
vann brød smør klokka gratulerer senere tusen bra ikke vi sees funnet noe;
nl: hallo hoi dank je bedankt goedemorgen goedemiddag goedenavond doei ja nee hoe gaat het een en ik jij wij
is niet huis hond kat wereld alsjeblieft tot ziens wel graag gedaan welkom sorry hulp liefde waar wie wat
wanneer hou van goede nacht morgen dag jou bent opslaan annuleren bestand openen instellingen wachtwoord
vergeten zoeken misschien volgende terug inloggen uitloggen geen probleem water brood boter laat eet
smakelijk gefeliciteerd spijt me gevonden;
pl: cześć dzięki dziękuję dzień dobry proszę tak nie jak się masz dobranoc witaj i ja ty do widzenia
przepraszam wieczór pomoc miłość kocham cię gdzie kto co witamy na zdrowie jestem zapisz anuluj otwórz plik
ustawienia hasła hasło szukaj może dalej wstecz zaloguj wyloguj ma problemu woda chleb która godzina jutro
gratulacje znaleziono zobaczenia;
pt: olá oi obrigado obrigada bom boa dia tarde noite tchau sim não por favor como está vai tudo bem e eu
você casa mundo até logo desculpe desculpa ajuda amor bem vindo onde quem quando quanto custa te amo muito
prazer salvar guardar cancelar abrir arquivo configurações senha pesquisar talvez próximo voltar entrar sair
sem problema água pão horas são amanhã parabéns apetite encontrado adeus;
ro: bună salut mulțumesc da nu ce mai faci ziua seara dimineața scuze te iubesc ajutor unde cine bine
revedere noapte frumos la salvează anulează deschide fișierul setări parolă caută poate următorul înapoi
autentificare problemă nicio apă pâine ceasul mâine poftă rog felicitări curând îmi pare rău negăsit ești;
ru: привет здравствуйте здравствуй спасибо пожалуйста да нет как дела мир доброе утро добрый день вечер пока
до свидания что кто я ты он она мы и не хорошо люблю тебя извините помощь любовь где когда сколько стоит
очень спокойной ночи добро пожаловать ладно сохранить отмена открыть файл настройки пароль найдено поиск
может быть далее назад войти проблем вода хлеб час завтра поздравляю встречи большое;
sv: hej tack god morgon ja nej hur mår du hejdå jag är inte och så mycket förlåt välkommen hjälp kärlek var
vem älskar dig natt kväll dag spara avbryt öppna fil inställningar lösenordet sök kanske nästa tillbaka
logga in ut problem vatten bröd smör imorgon grattis snälla senare vi ses hittades glömt läget inga;
tr: merhaba selam teşekkürler teşekkür ederim evet hayır günaydın nasılsın lütfen hoşça kal iyi akşamlar
geceler günler özür dilerim hoş geldiniz yardım aşk nerede kim ne seni seviyorum tamam görüşürüz kaydet
iptal dosya aç ayarlar şifremi unuttum bulunamadı ara belki sonraki geri giriş yap çıkış sorun değil su
ekmek saat kaç yarın afiyet olsun tebrikler neredesin çok;
uk: привіт дякую так ні будь ласка як справи добрий день доброго ранку світ що вибачте допомога любов де хто
коли люблю тебе добраніч ласкаво просимо дуже зберегти скасувати відкрити файл налаштування пароль знайдено
пошук можливо далі увійти немає проблем вода година котра завтра вітаю зустрічі побачення кохаю;
bg: здравей здравейте благодаря моля добър ден добро утро довиждане обичам те как си запази отказ отвори
файл настройки парола намерено търсене може би лека нощ честито къде няма проблем колко часът съжалявам не е
утре вода;
ca: bon dia bona tarda nit gràcies adéu si us plau estàs t'estimo moltes fins després com ho sento desa obre
fitxer configuració cerca potser felicitats on ets següent cap problema aigua quina hora és demà profit
trobat;
el: γεια σου σας ευχαριστώ ναι όχι καλημέρα καλησπέρα καληνύχτα παρακαλώ τι κάνεις αντίο συγγνώμη σ'αγαπώ
αποθήκευση άκυρο ρυθμίσεις ίσως αναζήτηση πολύ νερό;
eo: saluton dankon bonan tagon matenon nokton jes ne kiel vi fartas ĝis revido mi amas vin pardonu bonvolu
konservi nuligi malfermi dosieron dosiero agordoj trovita serĉi eble gratulon kie estas neniu problemo
morgaŭ akvo pano hodiaŭ;
et: tere aitäh tänan jah palun hommikust päevast õhtust kuidas läheb head aega vabandust salvesta tühista
ava fail seaded parooli leitud ei otsi võib olla ööd palju õnne kus oled pole probleemi mis kell on homme
hiljem näeme suur ma armastan sind vesi;
hr: hvala bok dobar dan dobro jutro večer laku noć molim kako doviđenja volim te vidimo se oprostite spremi
odustani otvori datoteku postavke lozinka pronađeno traži možda čestitam gdje nema problema koliko sati
sutra tek lijepa nije voda;
id: selamat pagi siang malam terima kasih ya tidak apa kabar tolong maaf sampai jumpa aku cinta kamu simpan
batal buka berkas pengaturan lupa kata sandi ditemukan cari mungkin mana di berikutnya kembali masuk keluar
masalah jam berapa besok banyak air;
lt: labas ačiū taip ne prašau diena rytas vakaras kaip sekasi iki viso gero myliu tave labai pasimatymo
atsiprašau aš išsaugoti atšaukti atidaryti failą nustatymai slaptažodį nerasta ieškoti galbūt labanakt
sveikinu kur tu nėra problemų kiek valandų rytoj vanduo;
lv: labdien sveiki paldies jā nē lūdzu labrīt labvakar kā iet uz redzēšanos čau liels tikšanos atvainojiet
es tevi mīlu saglabāt atcelt atvērt failu iestatījumi parole aizmirsta meklēt varbūt ar labu nakti apsveicu
kur tu esi nav problēmu cik pulkstenis rīt ūdens;
sk: ahoj ďakujem dobrý deň dobré ráno áno nie prosím ako sa máš dovidenia ľúbim ťa uložiť zrušiť otvoriť
súbor nastavenia heslo nájdené hľadať možno noc gratulujem kde si ďalej späť prihlásiť žiadny problém koľko
hodín zajtra pekne prepáčte voda chlieb;
sl: hvala živjo zdravo dober dan dobro jutro prosim nasvidenje ljubim te vidimo se kako si oprostite shrani
prekliči odpri datoteko nastavitve geslo najdeno ni išči mogoče lahko noč čestitke kje problema koliko ura
jutri tek lepa voda;
sq: përshëndetje faleminderit mirëmëngjes po jo mirë dita si jeni të lutem mirupafshim dua ruaj anulo natën
e hapu kërko nesër ujë;
sr: здраво хвала добар дан добро јутро молим како си довиђења волим те сачувај откажи отвори датотеку
подешавања лозинка тражи можда лаку ноћ честитам где нема проблема сутра;
sw: habari asante jambo karibu ndiyo hapana tafadhali kwaheri nakupenda sana asubuhi za hifadhi ghairi
samahani tafuta kesho maji;
tl: kumusta salamat magandang umaga gabi oo hindi paalam mahal kita maraming paumanhin kanselahin ka hanapin
bukas tubig ikaw;
vi: xin chào cảm ơn vâng không tạm biệt buổi sáng bạn khỏe yêu anh em nhiều hẹn gặp lại lỗi lưu hủy mở tệp
cài đặt quên mật khẩu thấy tìm kiếm có thể chúc ngủ ngon mừng tiếp theo quay đăng nhập;
is: halló góðan daginn takk fyrir já nei hvernig hefurðu það fyrirgefðu ég elska þig góða nótt kannski leita;
ga: dia duit maidin mhaith raibh go maith agat slán conas atá tú oíche tá brón orm;
eu: kaixo egun on eskerrik asko agur zer moduz barkatu gabon maite zaitut bai ez mesedez;
gl: ola bos días moitas grazas ata logo estás adeus síntoo boas noites tardes
"""
FIRST_WORDS: Final[Mapping[str, str]] = {
    code.strip(): listed for code, listed in (entry.split(":") for entry in FIRST_WORDS_TABLE.split(";"))
}
SPACED: Final = Numerals(",", WIDE)
NUMERALS: Final[Mapping[str, Numerals]] = (
    dict.fromkeys(("he", "hi", "ja", "ko", "ms", "th", "zh", "zt"), ENGLISH_NUMERALS)
    | dict.fromkeys(("da", "ro"), Numerals(",", "."))
    | dict.fromkeys(("ca", "el", "hr", "id", "is", "it", "sl", "sr", "vi"), Numerals(",", ".", percent=""))
    | dict.fromkeys(("be", "cs", "fi", "nb", "nn", "no", "ru", "sk", "sv"), SPACED)
    | dict.fromkeys(("bg", "et", "lt", "lv"), Numerals(",", WIDE, 5))
    | {
        "es": Numerals(",", ".", 5),
        "hu": Numerals(",", WIDE, 5, percent=""),
        "nl": Numerals(",", ".", currency="before with space", percent=""),
        "pl": Numerals(",", WIDE, 5, percent=""),
        "pt": Numerals(",", ".", percent=""),
        "uk": Numerals(",", WIDE, percent=""),
    }
)
GERMAN: Final = QuotationMarks("„", "“", "‚", "‘")
ANGLED: Final = QuotationMarks("«", "»", "„", "“")
HIGH: Final = QuotationMarks("”", "”", "’", "’")
SOUTHERN: Final = QuotationMarks("«", "»", "“", "”")
QUOTATION_MARKS: Final[Mapping[str, QuotationMarks]] = (
    dict.fromkeys(("hi", "id", "ko", "ms", "nl", "pt", "th", "tr", "vi", "zh"), ENGLISH_QUOTATION)
    | dict.fromkeys(("bg", "cs", "et", "is", "lt", "sk", "sl"), GERMAN)
    | dict.fromkeys(("be", "nb", "nn", "no", "ru", "uk"), ANGLED)
    | dict.fromkeys(("fi", "sv"), HIGH)
    | dict.fromkeys(("ca", "el", "es", "it"), SOUTHERN)
    | dict.fromkeys(("hu", "pl", "ro"), QuotationMarks("„", "”", "«", "»"))
    | {"da": ENGLISH_QUOTATION}
)
FINAL_MARKS: Final[Mapping[str, Mapping[str, str]]] = {
    **dict.fromkeys(("zh", "zt", "ja"), {".": "。", "?": "？", "!": "！"}),
    **dict.fromkeys(("ar", "fa", "ur", "ps", "ckb"), {"?": "؟"}),
    **dict.fromkeys(("hi", "mr", "ne", "bn", "as", "pa", "or", "sa"), {".": "।"}),
    "el": {"?": "\u037e"},
    **dict.fromkeys(("th", "lo"), {".": ""}),
}
DOTTED_ORDINALS: Final = words("bs cs da et eu fi hr hu is lv nb nn no pl sk sl sq sr sv tr")
CAPITAL_NOUNS: Final = words("bar gsw lb nds pdc")  # relatives of German


def _rules(code: str) -> LanguageRules:
    """Collect the rules of a language from the tables above."""
    german = code in CAPITAL_NOUNS
    return LanguageRules(
        numerals=NUMERALS.get(code),
        quotation_marks=QUOTATION_MARKS.get(code),
        final_marks=FINAL_MARKS.get(code, {}),
        dotted_ordinals=code in DOTTED_ORDINALS,
        first_words=words(FIRST_WORDS.get(code, "")),
        translated_names=de.TRANSLATED_NAMES if german else DERIVED_NAMES,
        nouns=de.NOUNS if german else None,
    )


CODES: Final = {*FIRST_WORDS, *NUMERALS, *QUOTATION_MARKS, *FINAL_MARKS, *DOTTED_ORDINALS, *CAPITAL_NOUNS}
OTHERS: Final[Mapping[str, LanguageRules]] = {code: _rules(code) for code in sorted(CODES)}
