"""Patterns of the grammar: addresses, files, identifiers, commands and other code."""

from __future__ import annotations

from typing import Final

from engine.text.languages import of_all

SCHEMES: Final = "https?|s?ftps?|ssh|git|file|s3|gs|wss?|postgres(?:ql)?|mysql|mongodb|redis|jdbc|ldaps?|smb"
END: Final = r".,;:!?)\]}"  # marks after an address that do not belong to it
REST: Final = rf"(?:[^\s<>\"'{END}]++|[{END}]++(?=[^\s<>\"'{END}]))++"
ADDRESS: Final = (  # https://example.org/a_(b)?c=1
    rf"(?<![A-Za-z])(?:{SCHEMES})://"
    rf"(?:[^\s<>\"'({END}]++|[.,;:!?\]}}]++(?=[^\s<>\"'({END}])|\([^\s<>\"'()]*\))++"
    rf"|(?<![\w./])(?:mailto|tel|sms|urn|doi|ar[Xx]iv|magnet|data):(?=[\w+?]){REST}"
    rf"|(?<![\w./])10\.\d{{4,9}}/{REST}"  # a DOI
)
SUFFIX: Final = r"(?:-[0-9A-Za-z]++(?:\.[0-9A-Za-z]++)*+)?+(?:\+[0-9A-Za-z]++(?:\.[0-9A-Za-z]++)*+)?+"
VERSION: Final = (
    rf"(?<!\w)v\d++(?:\.\d++)*+{SUFFIX}(?!\w)"
    r"|(?<![\w.])\d++(?:\.\d++)++(?:-?(?:alpha|beta|rc|pre|dev)\.?\d*+|[ab]\d++)"
    r"(?:\+[0-9A-Za-z.]*[0-9A-Za-z])?+(?!\w)"
    r"|(?<!\w)(?:[A-Z][\w.]{1,20} )?\d{1,3}(?:\.\d{1,3})?\.x(?!\w)"  # Node 18.x
    r"|(?<![\w.=<>])(?:[\w.-]++(?:\[[\w,]++\])?+)?+(?:[<>=!~]=|~>|\^)=? ?v?\d[\w.*]*+"
    r"(?:,[<>=!~]=?\d[\w.*]*+)*+"
)
LICENCE: Final = (
    r"(?<!\w)(?:CC[ -]BY(?:-(?:NC|SA|ND)){0,2}[ -]\d\.\d|CC0"
    r"|[AL]?GPL[ -]?v?\d(?:\.\d)?(?:-only|-or-later|\+)?"
    r"|(?:MPL|Apache|EUPL)[ -]\d\.\d|BSD-\d(?:-Clause)?)(?!\w)"
)
PATH: Final = (
    r"(?<![\w/.~<-])(?:~|\.{1,2})?(?:/(?!-)[\w.+-]*[\w+-])++/?"  # /etc/hosts  ~/.profile  ./run
    r"|(?<!\w)(?:[A-Za-z]:(?=\\)|\\(?=\\\w))"  # C:\My Files\x.txt
    r"(?:\\[\w.+-]++(?: [\w.+-]++){0,4}+(?=\\))*+"
    r"(?:\\[\w.+-]*[\w+-](?:\(\d{1,3}\)[\w.+-]*\w)?)?\\?+"
    r"|(?<![\w./-])(?:origin|upstream|refs|remotes|heads)(?:/[\w.-]{0,40}\w)+"
    # image/svg+xml
    r"|(?<![\w/-])(?:application|audio|font|image|multipart|text|video)/(?!(?:audio|image|text|video)\b)"
    r"[a-z][\w.+-]{0,40}\w(?:; ?[a-z]{1,12}=[\w-]{1,40})?"
)
HEADER: Final = (  # of HTTP and mail: Cache-Control: no-store, max-age=0
    r"(?<![\w-])(?:X-[A-Z][\w-]{1,40}|(?:Cache-Control|Message-ID|User-Agent|Set-Cookie"
    r"|(?:Content|Accept|Access-Control|Strict-Transport|Transfer)-[A-Z][\w-]{1,40})):"
    r"(?: (?=[^\s,;]{0,40}[\d=/@_*-]|[A-Z]{3})[^\s,;]{0,99}[^\s,;.!?]"
    r"(?:[,;] [^\s,;]{0,40}[=/-][^\s,;]{0,59}[^\s,;:.!?])*)?"
)
CSS_VALUE: Final = (
    r"(?:-?[\d.]{1,8}(?:px|r?em|v[hw]|%|pt|fr|m?s|deg)?|#[0-9a-fA-F]{3,8}|[a-z-]{2,20}\([^();\n]{0,60}\)"
    r"|auto|none|inherit|solid|bold|center|hidden|block|flex|red|black|white|!important)"
)
CSS_NAME: Final = (
    r"(?:(?:(?:min|max)-)?(?:width|height)|(?:margin|padding|border|background|font|flex|grid|overflow)(?:-[a-z]{2,10}){0,2}"
    r"|(?:text|line|box|list|z|align|justify)-[a-z]{2,12}|color|display|position|opacity|cursor)"
)
CSS: Final = (  # .btn:hover { color: red; }  margin: 0 auto;  div.card > p:first-child
    r"(?<!\S)(?:[.#@][A-Za-z][\w.#:>()-]{0,60}|[a-z]\w{0,20}) ?\{ ?[a-z-]{2,30}: ?[^{}\n]{1,200}\}"
    rf"|(?<![\w-]){CSS_NAME}: ?{CSS_VALUE}(?: {CSS_VALUE}){{0,5}};"
    r"|(?<!\S)[a-z]{0,12}[.#][a-z][\w-]{0,40}+(?::[a-z-]{2,30}+)?(?: [>+~] ?[a-z.#][\w.#:-]{0,40}[\w-])+"
)
SCHEDULE: Final = (  # of cron: 0 5 * * 1
    r"(?<!\S)(?=[\d ,/-]{0,12}\*)[\d*,/-]{1,12}(?: (?:[\d*,/-]{1,12}|[A-Z]{3}(?:-[A-Z]{3})?)){4}"
    r"(?![^\s.,;:!?])"
)
SQL: Final = (  # SELECT * FROM users WHERE id=5  DROP TABLE clients;
    r"(?<!\w)(?:SELECT [\w*,. ()]{1,80}? FROM|DELETE FROM|UPDATE(?= [\w.]{1,60} SET )|INSERT INTO"
    r"|(?:DROP|CREATE|ALTER|TRUNCATE) (?:TABLE|INDEX|VIEW|DATABASE)(?: IF (?:NOT )?EXISTS)?) [\w.\"`]++"
    # keywords, names before them, and words with a sign
    r"(?: (?:[A-Z]{2,20}(?!\w)|[\w.\"'(]{0,60}[=<>*('\"][^\s;]{0,60}(?<![.:!?])|[\w\"']{1,60}+\)|\d++,?"
    r"|[\w.]{1,60}+(?= [=<>]| [A-Z]{2}|;))){0,20}+;?"
)
TEX: Final = (
    r"(?<![\w$])\$(?![\s$])[^$\n]{1,200}(?<=[^\s$])\$(?![\w$])|\\\((?!\s)[^()\n]{1,200}\\\)"
    r"|~?\\[A-Za-z]{2,20}(?:\[[^\[\]\n]{0,50}\])?\{[^{}\n]{0,100}\}(?:\{[^{}\n]{0,100}\})?"
)
# a word with a sign: Tom&Jerry  >=18  x^2  f***; not Lehrer*innen
SIGN: Final = "#$%&*+<=>@\\\\^`|{}~¢-©¬®-±´-¹×÷‖†‡‰′″⁂⁄⁰-⃏℀-⏿─-◿⟀-⟿⤀-⯿"
# lines of a stack: at com.acme.Main.run(Main.java:31)  File "main.py", line 3, in run
CALLER: Final = r"at (?:async )?[\w$.<>/]{1,200} ?\("
FILE: Final = r"File \"[^\"\n]{1,200}\", line \d{1,7}"
FRAME: Final = rf"{CALLER}[^()\n]{{0,120}}\)|{FILE}(?:, in \S{{1,80}})?"
BRACES: Final = (  # {name}  ${x}  { $name } and { -brand } of Fluent
    r"[$%#]?\{(?!\s)[^{}\n]{1,200}+(?:\{[^{}\n]{0,200}+\}[^{}\n]{0,200}+){0,8}+(?<!\s)\}"
    rf"|\{{ [^{{}}\n]{{1,80}} \}}|\( (?=[^()\n]{{0,60}}[\"{SIGN}])[^()\n]{{1,80}} \)[?*+]?"
)
MASK: Final = r"\[X\d{1,6}X\]|⟦[^⟦⟧\s]{1,16}⟧|@@\w{1,32}+@@"  # of other tools
TEMPLATE: Final = r"<%[^<>\n]{0,200}%>|<\?[^<>\n]{0,200}\?>"
FORMAT: Final = r"[-+#0]{0,5}\d{0,9}(?:\.\d{1,9})?(?:hh?|ll?|z)?[sdifuxXeEgGcr@]"
PRINTF: Final = (  # %1$s may touch a word; %n, %1 and %L1 of Qt; %#@files@ of iOS
    rf"%\d{{1,3}}\${FORMAT}(?:%%)?+|(?<![^\W\d])(?<!%)#?%{FORMAT}(?!\w)(?:%%)?+"
    r"|%(?:\d{1,2}\$)?#@\w{1,60}+@|(?<![\w%])%(?:L?\d{1,2}|n)(?!\w)|\\[A-Za-z]{1,10}\[[^\[\]\n]{0,20}\]"
    r"|(?<!\S)!\w{1,40}!(?!\w)"  # !name of Drupal
)
DASHED: Final = (  # -rwxr-xr-x  ... --- ...  xxxx
    r"(?<![^\s(\"'„“«])(?=-\w++-|[\w-]{0,20}(?:--\w(?!\w)|-\w--))[\w-]++"
    r"|(?<!\S)(?=[.-]{1,7}(?:-\.|\.-| [.-]{2}))[.-]{2,7}(?!\S)(?: [.-]{1,7}(?!\S))*+"
    r"|(?<!\w)(?:X{4,}+|x{4,}+)(?!\w)"
)
# =SUM(A1:A9)
FORMULA: Final = (
    r"(?<![^\s(\"„“«])=[A-Z]{2,12}\([^\s()]{0,80}(?:\([^\s()]{0,40}\)[^\s()]{0,40})?\)"
    # its errors: #REF!  #NAME?
    r"|(?<![\w&])#(?:REF|NAME|NULL|NUM|VALUE|DIV/0|SPILL|CALC|WERT|BEZUG|ZAHL|NOM|VALEUR|NOMBRE)[!?]"
)
CENSORED: Final = r"(?<![\w*])(?:[^\W\d_]{1,2}\*{2,20}+|[^\W\d_]{1,20}+\*{3,20}+)\w{0,20}+(?!\*)"  # f***
# marks, letters and digits between spaces that are no word: (◕‿◕)
SPACED: Final = (
    rf"(?<!\S)(?=[^\s.,;:!?…]{{2}})(?=\S{{0,60}}?[{SIGN}\[(])"
    r"\((?=[^\s()]{0,40}[^\w\s.,:;!?'’\"()%/–-]|\w_\w\))(?:[^\W_]?(?:[^\w\s(){}]|_){1,20}){1,10}[^\W_]?\)"
    rf"[^\s\"'„“”«»]{{0,60}}(?<![.,;:!?…])"
    r"|(?<![\w\]])(?:\d{1,3}%)?\[(?=[^\[\]\w]{0,80}[=#*<>-]{2})[^\[\]\w]{2,80}\](?!\()"  # [====>   ]
)
BRACKETED: Final = (  # (1:1)  (99%)  (x2)  […]
    r"(?<![\w\])])(?:\[(?:[.…!?*-]{1,5}|\.{3})\]|\([.…!?*-]{1,5}\))(?!\()|"
    r"(?<!\S)\((?=[^\s()]{0,40}\d)(?:(?![^\W\d_]{3})[^\s()]){1,40}\)(?!\w|[ -]?\d)"
)
NAME: Final = r"[A-Za-z_]\w*+(?:\.[A-Za-z_]\w*+)*+"
LITERAL: Final = r"(?:\"[^\"\n]{0,60}\"|'[^'\n]{0,60}'|[\w.%-]{1,40}+)"
CALL: Final = (  # rgb(255, 128, 0)  parseInt("08", 10)  foo.bar(baz)
    rf"(?<![\w.]){NAME}\((?:[\d.,% -]{{1,40}}|(?=[\w., %-]{{0,60}}[\d\"']){LITERAL}(?:, ?{LITERAL}){{0,7}})\)"
    # foo(x, y)  print(x)  len(items); not file(s), acteur(rice)
    r"|(?<![\w.-])[A-Za-z_]\w*+\([a-z_]\w{0,20}(?:, ?[a-z_]\w{0,20}){1,6}\)(?!\w)"
    r"|(?<![\w.-])[a-z_]\w{2,}+\((?!euse|t?rice|innen)(?:[b-df-mo-qt-z]|[a-z]\w{3,20})\)(?!\w)"
)
OPERATOR: Final = r"(?:[=!:+*/-]{0,2}[=!:]=|&&|\|\|)"
COMPARISON: Final = (  # x === undefined
    rf"(?<![\w.]){NAME} {OPERATOR} (?:\"[^\"\n]{{0,60}}\"|'[^'\n]{{0,60}}'|[\w.-]{{0,60}}\w)"
    r"|(?<![\w.'’])[a-z]\w? [<>]=? (?:[−-]?\d++(?:\.\d++)?+|[a-z]\w?)(?!\w)"  # y < 0
)
MEMBER: Final = r"\"[\w.-]{1,40}\": ?(?:true|false|null|-?\d[\d.]*+|\"[^\"\n]{0,60}\")(?!\w)"  # of JSON
REQUEST: Final = (  # GET /api/v1/users
    r"(?<!\w)(?:GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS) (?:https?:/)?/[\w./{}:?=&%~+-]{0,200}(?<![.:?])"
)
PROMPT: Final = (  # $ git push  max@server:~$ ls -la  >>> print(1)  C:\> dir
    r"(?<![^\n])(?:\$|>>>(?= (?:import |from |[a-zA-Z_][\w.]{0,60}+ ?[(=\[.]))"
    r"|[a-z_][\w.-]{0,30}@[\w.-]{1,60}(?::[^\s$#]{0,80})?[$#]"
    r"|\[[\w.-]{1,30}@[\w.-]{1,60} [^\]\n]{1,60}\][$#]|(?:PS )?[A-Z]:\\[^>\n]{0,80}>)"
    r" (?=[a-zA-Z.~/_])[^\n]{1,400}"
)
ELEMENT: Final = (
    r"<(?:code|kbd|samp|tt)>[^<>\n]{1,200}</(?:code|kbd|samp|tt)>|\[code\][^\[\]\n]{1,200}\[/code\]"
)
SHELL: Final = (
    "git|np[mx]|pip3?|curl|docker|apt(?:-get)?|sudo|wget|ssh|scp|kubectl|yarn|cargo|brew|systemctl|rsync|helm"
)
SMALL_WORDS: Final = "|".join(sorted(frozenset(of_all(lambda rules: rules.small_words))))
# an option of a command
ARGUMENT: Final = r"--?[a-zA-Z\d][\w-]*+(?:=[^\s,;]*[^\s.,;:!?)\"'“])?"
TOOLS: Final = "ls|cat|grep|rm|cp|mv|cd|mkdir|chmod|chown|tar|python3?|node|make|ps|kill|find|echo"
INLINE: Final = (  # /tp @a 1 2  sudo apt-get install -y git  ls -la /tmp | grep log
    r"(?<!\S)/[a-z]{2,20}(?: (?:@\w[^\s,;]{0,60}|[~^]?-?\d++(?:\.\d++)?(?!\S)|[a-z_]{3,20}(?= -?\d))){1,8}|"
    rf"(?<![\w./-])(?:{SHELL}|{TOOLS})(?: (?!(?:{SMALL_WORDS}) )[a-z][\w./:@-]{{0,40}}){{0,3}}"
    rf"(?: ~?\.{{0,2}}/[\w./~-]*[\w/]| {ARGUMENT}(?: (?:\"[^\"\n]{{1,60}}\"|'[^'\n]{{1,60}}'"
    rf"|(?!(?:{SMALL_WORDS})(?!\w))[\w./:@~$-]{{0,60}}[\w/]))?+)++"
    r"(?: [|>&]{1,2} [a-z]\w*+(?: [\w./~-]*[\w/](?!\w))?)*+(?!\w)"
)
COMMAND: Final = (  # a whole line: npm install --save-dev vite
    rf"(?<![^\n])(?:{SHELL}) (?:(?:install|run|push|pull|clone|commit|add|build|update|checkout|apply)\b"
    rf"|(?=[^\n]{{1,120}} --?[a-z]))(?![^\n]{{0,400}} (?:{SMALL_WORDS}) )[^\n]{{0,400}}(?<![.!?])(?![^\n])"
    rf"|{INLINE}"
)
# a whole line of lower case: !play lofi beats
BOT: Final = rf"(?<![^\n])[!/][a-z]{{2,20}}(?: (?!(?:{SMALL_WORDS})(?!\w))[a-z\d_-]{{1,20}}){{1,5}}+(?![^\n])"
CAPITALISED: Final = r"[^\W\d_a-zß-ÿ][a-zß-ÿ'-]{1,20}"
INVERTED: Final = (  # Woods, Anna
    rf"(?:(?<=[;\t])|(?<![^\n])){CAPITALISED}, {CAPITALISED}(?=[;\t])"
    rf"|(?<=[,;]\"){CAPITALISED}, {CAPITALISED}(?=\"[,;])"
)
ASSIGNMENT: Final = (  # MAX=5  PATH=/bin:$PATH
    r"(?<![\w<&?$.-])[A-Za-z_][\w.-]*+(?:[:+]?=)(?:\"[^\"\n]{0,60}\"|'[^'\n]{0,60}'|(?=[\w/$.~-])[^\s<>\"']*[^\s<>\"'.,;:!?)\]}])"
)
CAMEL: Final = (  # camelCase  GitHub  NaOH
    r"(?<!\w)[a-z]++(?:[A-Z][a-z\d]*+)++(?:\(\)| \d{1,3}(?:\.\d{1,3}){0,2})?+(?!\w)"
    r"|(?<!\w)(?!Gmb)[A-Z][a-z]++(?!Innen\b|In\b)(?:[A-Z][a-z\d]*+)++(?!\w)"
)
HYPHENATED: Final = "|".join(of_all(lambda rules: rules.hyphenated))
ABBREVIATED: Final = "|".join(of_all(lambda rules: (short.pattern for short in rules.abbreviations.values())))
PART: Final = r"[^\W_]{1,40}+"
JOINT: Final = "[/:._@=~]{1,2}+"
# two parts that no language joins by this mark: user_id  letter.docx  1.jpg  std::sort
JOINED: Final = (
    r"[^\W_]_++(?!innen|in\b)(?=[^\W_])|[A-Za-z]\.(?=\d{1,6}[A-Za-z]|[A-Z][a-z]{1,4}\d)|[^\W\d]\d{0,8}\.(?=[a-z]{2}|[A-Z]{2,4}+(?!\w))"
    r"|[a-z]{2}\.(?=[ch](?![\w-]))|\d\.(?=[b-df-hj-np-tv-z][b-df-hj-np-tv-z\d]{1,3}+(?![\w-]))|\w::(?!in)(?=\w)"
    r"|[A-Z]{2}:(?=[A-Z]{2})"  # BEGIN:VCARD
)
NAME_OF_PARTS: Final = (  # not "and/or", "e.g.", "Autor:innen", "state-of-the-art", "ends.Begins"
    rf"(?<![\w./:@~-])(?!{ABBREVIATED})(?:"
    rf"(?=[\w./:@~+-]{{0,80}}?(?:{JOINED}))"
    # nginx:latest  jede:r has one letter
    r"|(?=[a-z][a-z\d.-]{1,40}:(?!innen|in\b|\w{1,2}\b)[a-z\d_][\w.-]{0,60}+(?!:))"
    rf"|(?=[A-Za-z])(?=[^\s\d]{{0,60}}+\d)(?={PART}(?:-{PART}){{0,8}}+{JOINT}{PART}(?:{JOINT}|-){PART})"
    rf"|(?=[A-Za-z])(?={PART}(?:::?(?!in){PART}){{2}})"  # arn:aws:iam
    # my-app-west-1, not the mid-20th-century
    r"|(?=[a-z][^\s\d]{0,60}\d)(?!\w{1,20}-\d{1,2}(?:th|st|nd|rd)-)(?=[a-z][a-z\d]{0,40}+(?:-[a-z\d]{1,40}+){2,8}+(?![\w-]))"
    rf"|(?![a-z-]{{0,40}}-(?:{HYPHENATED})(?![a-z]))(?=[a-z]{{3,20}}(?:-[a-z]{{3,20}}){{2,6}}+(?![\w-]))"
    r"|(?=[a-z/]{1,60}(?:[-_\d]|\.[a-z]))(?=[a-z\d._-]{1,40}+(?:/[a-z\d]++(?:[._-][a-z\d]++)*+)++(?::\d|(?![\w/-])))"
    r")\w++(?:\(\d{1,3}\)(?=\.\w))?+(?:[/:._@=~+-]{1,3}+\w++(?:\(\d{1,3}\)(?=\.\w))?+)*+"
    r"(?:/?\?[\w=&%+.-]*[\w=]|/(?!\w)|\(\))?+"
)
OPTION: Final = (  # --force  -v  -rf; several letters without vowels, since others may be a suffix
    r"(?<![\w-])--[A-Za-z][\w-]*+(?:=[^\s,;]*[^\s.,;:!?)\"'“])?"
    r"|(?<!\S)-(?:[A-Za-z]|[b-df-hj-np-tv-xz]{2,5})(?![\w-])"
)
MODIFIER: Final = "Strg|Ctrl|Control|Alt|AltGr|Shift|Umschalt|Maj|Cmd|Command|Win|Meta|Fn|Super|Option|[⌘⌥⇧⌃]"
KEYS: Final = (
    rf"(?<!\w)(?:{MODIFIER})(?: ?\+ ?(?:{MODIFIER})){{0,3}}+ ?\+ ?"
    r"(?:F\d{1,2}|[^\W\d_a-zà-ÿ][^\W\d_]{2,8}|\w)(?!\w)"
    rf"|(?<![\w-])(?:Strg|Ctrl|Alt|Cmd)(?:-(?:{MODIFIER}))?"  # Alt-F4
    r"-(?:F\d{1,2}|Tab|Esc|Entf|Del|\w)(?![\w-])"
)
