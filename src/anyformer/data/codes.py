"""Facts that no tokenizer file holds: language codes in the order of their ids, control codes."""

from __future__ import annotations

# mBART (Liu et al., 2020) and the languages that mBART-50 (Tang et al., 2020) adds to them.
MBART = tuple(
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT "
    "lv_LV my_MM ne_NP nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN".split()
)
MBART50 = MBART + tuple(
    "af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF "
    "pt_XX sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI".split()
)

# M2M-100 (Fan et al., 2020) and WMT21 (Tran et al., 2021); their tokens are written __en__.
M2M: dict[str, tuple[str, ...]] = {
    "m2m100": tuple(
        "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl "
        "gu ha he hi hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml "
        "mn mr ms my ne nl no ns oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl "
        "tn tr uk ur uz vi wo xh yi yo zh zu".split()
    ),
    "wmt21": tuple("en ha is ja cs ru zh de".split()),
}

# CTRL (Keskar et al., 2019): the word that opens a text and the id that it has in the vocabulary.
CTRL = {
    "Alone": 44967,
    "Ask": 27171,
    "Ass": 95985,
    "Atheism": 192263,
    "Books": 6665,
    "Christianity": 7675,
    "Computing": 39639,
    "Confession": 60572,
    "Confessions": 102701,
    "Conspiracy": 75932,
    "Diet": 36206,
    "Event": 32769,
    "Explain": 106423,
    "Extract": 76050,
    "Feminism": 164338,
    "Finance": 12250,
    "Fitness": 63440,
    "Funny": 58917,
    "Gaming": 40358,
    "Horror": 37793,
    "Human": 4088,
    "India": 1331,
    "Joke": 163509,
    "Joker": 77138,
    "Learned": 67460,
    "Legal": 11859,
    "Links": 63674,
    "Movies": 46273,
    "Narcissus": 150425,
    "Netflix": 48616,
    "News": 4256,
    "Norman": 4939,
    "Notion": 182770,
    "Opinion": 43213,
    "Politics": 16360,
    "Pregnancy": 168629,
    "Questions": 45622,
    "Relationship": 54766,
    "Relationships": 134796,
    "Retail": 52342,
    "Reviews": 41671,
    "Running": 23425,
    "Saving": 63163,
    "Scary": 191985,
    "Science": 2090,
    "Support": 12654,
    "Technologies": 32516,
    "Teenage": 66160,
    "Thoughts": 49605,
    "Tip": 72689,
    "Translation": 26820,
    "Weight": 52343,
    "Wikipedia": 37583,
    "Writing": 11992,
    "multilingual": 128406,
}
