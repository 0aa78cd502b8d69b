"""Short language codes (ISO 639-1) for codes of three letters (ISO 639-3), as in Tatoeba and OPUS."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

# code of three letters and of two, for every language that has both
PAIRS: Final = """
aar:aa abk:ab ave:ae afr:af aka:ak amh:am arg:an ara:ar asm:as ava:av aym:ay aze:az bak:ba bel:be bul:bg
bis:bi bam:bm ben:bn bod:bo bre:br bos:bs cat:ca che:ce cha:ch cos:co cre:cr ces:cs chu:cu chv:cv cym:cy
dan:da deu:de div:dv dzo:dz ewe:ee ell:el eng:en epo:eo spa:es est:et eus:eu fas:fa ful:ff fin:fi fij:fj
fao:fo fra:fr fry:fy gle:ga gla:gd glg:gl grn:gn guj:gu glv:gv hau:ha heb:he hin:hi hmo:ho hrv:hr hat:ht
hun:hu hye:hy her:hz ina:ia ind:id ile:ie ibo:ig iii:ii ipk:ik ido:io isl:is ita:it iku:iu jpn:ja jav:jv
kat:ka kon:kg kik:ki kua:kj kaz:kk kal:kl khm:km kan:kn kor:ko kau:kr kas:ks kur:ku kom:kv cor:kw kir:ky
lat:la ltz:lb lug:lg lim:li lin:ln lao:lo lit:lt lub:lu lav:lv mlg:mg mah:mh mri:mi mkd:mk mal:ml mon:mn
mar:mr msa:ms mlt:mt mya:my nau:na nob:nb nde:nd nep:ne ndo:ng nld:nl nno:nn nor:no nbl:nr nav:nv nya:ny
oci:oc oji:oj orm:om ori:or oss:os pan:pa pli:pi pol:pl pus:ps por:pt que:qu roh:rm run:rn ron:ro rus:ru
kin:rw san:sa srd:sc snd:sd sme:se sag:sg sin:si slk:sk slv:sl smo:sm sna:sn som:so sqi:sq srp:sr ssw:ss
sot:st sun:su swe:sv swa:sw tam:ta tel:te tgk:tg tha:th tir:ti tuk:tk tgl:tl tsn:tn ton:to tur:tr tso:ts
tat:tt twi:tw tah:ty uig:ug ukr:uk urd:ur uzb:uz ven:ve vie:vi vol:vo wln:wa wol:wo xho:xh yid:yi yor:yo
zha:za zho:zh zul:zu
"""
# models name a member of a macrolanguage, clients the macrolanguage
MEMBERS: Final = """
als:sq arb:ar azj:az cmn:zh ekk:et gaz:om khk:mn kmr:ku lvs:lv npi:ne ory:or pbt:ps pes:fa plt:mg quy:qu
swh:sw uzn:uz ydd:yi zsm:ms
"""
# ISO 639-2's bibliographic codes, codes that were replaced, and codes of a variant or standard
OTHERS: Final = """
alb:sq arm:hy baq:eu bur:my chi:zh cze:cs dut:nl fre:fr geo:ka ger:de gre:el ice:is mac:mk mao:mi may:ms
per:fa rum:ro slo:sk tib:bo wel:cy
iw:he in:id ji:yi jw:jv mo:ro fil:tl
nb:no pb:pt zt:zh
"""
REMEMBERED_CODES: Final = 1_024
MACRO: Final = dict(pair.split(":") for pair in MEMBERS.split())
EQUALS: Final = MACRO | dict(pair.split(":") for pair in OTHERS.split())
SHORT: Final = dict(pair.split(":") for pair in PAIRS.split())
PARTS: Final = re.compile(r"[-_.]")


def short(code: str) -> str:
    """Return the code of two letters of a language, or the given code if there is none."""
    return SHORT.get(code, code)


@lru_cache(REMEMBERED_CODES)
def primary(code: str) -> str:
    """Return a code in small letters, without country or script: "de" for "de-AT"."""
    return code.partition("-")[0].lower()


@lru_cache(REMEMBERED_CODES)
def language_of(code: str) -> str:
    """Return the one code of a code's language, for any code of it: "no" for "nob_Latn", "he" for "iw-IL"."""
    base = PARTS.split(code, 1)[0].lower()
    base = short(EQUALS.get(base, base))
    return EQUALS.get(base, base)


def by_short_code(codes: Iterable[str]) -> dict[str, str]:
    """Map the short form of each code to the code of the model, in order; the first of equal forms counts."""
    names: dict[str, str] = {}
    for code in codes:
        names.setdefault(short(code), code)
    return names
