"""Map the symbols of languages in multilingual models to the codes that clients send."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from engine.text.codes import MACRO, short

# usual script of a language that models have in two scripts
SCRIPTS: Final = """
ace_Latn arb_Arab bjn_Latn crh_Latn kas_Arab knc_Arab min_Latn mni_Beng srp_Cyrl taq_Latn zho_Hans
"""
USUAL: Final = frozenset(SCRIPTS.split())
# languages of M2M-100 in the order of their ids, which its tokenizer does not store
M2M_CODES: Final = """
af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi
hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns
oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh
zu
"""
M2M_100: Final = tuple(M2M_CODES.split())
WMT_21: Final = ("en", "ha", "is", "ja", "cs", "ru", "zh", "de")
# symbols of mBART-25 in the order of their ids
MBART_CODES: Final = """
ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP
nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN
"""
MBART_25: Final = tuple(MBART_CODES.split())
FORMS: Final = re.compile(
    r"^(?:__([a-z]{2,3})__|<2([A-Za-z_]{2,16})>|([a-z]{2,3})_([A-Z][a-z]{3})|([a-z]{2,3})_[A-Z]{2})$"
)


def language_symbols(symbols: Iterable[str]) -> dict[str, str]:
    """Return the symbols that name a language (`__de__`, `deu_Latn`, `de_DE`, `<2de>`), by language code.

    A language in two scripts has a plain code for the usual one, and code-script ("zh-Hant") for the other.
    """
    codes: dict[str, str] = {}
    for symbol in symbols:
        match = FORMS.match(symbol)
        if not match:
            continue
        plain, tagged, written, script, country = match.groups()
        name = plain or (tagged or "").replace("_", "-") or written or country
        code = MACRO.get(name, short(name))
        if script and symbol not in USUAL and _has_usual_script(code, symbols):
            code = f"{code}-{script}"
        codes.setdefault(code, symbol)
    return codes


def _has_usual_script(code: str, symbols: Iterable[str]) -> bool:
    """Return whether the model has a symbol for the language in its usual script."""
    return any(MACRO.get(usual[:3], short(usual[:3])) == code and usual in symbols for usual in USUAL)
