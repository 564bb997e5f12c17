"""Normalize LaTeX as text: remove what only changes its appearance, and split lists."""

import unicodedata
from functools import lru_cache
from pathlib import Path

import regex as re


def within(opening: str, closing: str) -> str:
    r"""Return a pattern for the text between two matching brackets, up to ten levels deep.

    The possessive *+ does not backtrack, so that a mismatch fails at once. The pattern is for
    `regex`, because Python's `re` mishandles a nested *+ before 3.11.5.
    """
    inside = ""
    for _ in range(10):
        inside = rf"(?:{opening}{inside}{closing}|(?!{opening}|{closing})(?:\\.|[^\\]))*+"
    return inside


IN_BRACES = within(r"\{", r"\}")
OPENING, CLOSING = r"(?:\\?[(\[{]|\\begin)", r"(?:\\?[)\]}]|\\end)"
IN_BRACKETS = rf"{OPENING}{within(OPENING, CLOSING)}{CLOSING}"
TEXT = r"\\(?:text(?:bf|it|rm|normal)?|mathrm|[mh]box|operatorname)\s*\{"
LABEL = rf"{TEXT}[^{{}}]*(?::|\bis)\s*\}}"
WHOLE = re.compile(rf"(?:{TEXT}|\{{)({IN_BRACES})\}}|\*\*(.*)\*\*")
CURRENCY = r"(?:\\?\$|[¢£¥฿\u20a0-\u20cf])"
MAGNITUDES = {"k": "thousand", "m": "million", "b": "billion", "t": "trillion"}
ABBREVIATED = rf"(\d)(?:{TEXT}(?=k))?([kKMB])\}}?$"  # for in_words, where no letter is a factor
POWER = r"(?:\^\{?-?\d\}?)?"
# PLAIN replaces these. NFKC would turn 5² into 52, and ℝ into the letter R.
BY_HAND = "²³¹⁰ⁱ⁴-⁹⁺⁻ⁿ₀-₉₊₋¼-¾⅐-⅞ℂℍℕℙℚℝℤ℃º˚"
# names of functions; sec alone is a unit
FUNCTION = "(?:(?:arc)?(?:sin|cos|tan|cot|csc)h?|sech|cosec|sec(?=[a-z])|log|ln|exp)"
# a unit in an amount of two, such as 1 hr 30 min
OF_AN_AMOUNT = rf"\s*(?:{TEXT}(?!\s*(?:or|and)\b)[^{{}}]*\}}|(?!or|and)(?:[a-z]{{2,}}|h))"
NOTATION = (Path(__file__).parent / "notation.txt").read_text(encoding="utf-8")
MEANING = {  # of commands and characters; a command ends where a blank follows
    name: {"nothing": "", "blank": " "}.get(meaning, f"{meaning} ")
    for meaning, names in re.findall("^(.+) <- (.+)$", NOTATION, re.M)
    for name in names.split()
}
VECTOR = r"(?:\\(?:vec|hat|mathbf|boldsymbol|bm|overrightarrow)|(?=\\nabla))\s*"
VECTOR += r"((?:\{\s*\\?[A-Za-z]+\s*\}|\\?[A-Za-z]+)(?:_\w|_\{\w+\})?)"
A_NAME = r"\\not ?=|\\(?:left|right) ?\.|\\[A-Za-z]+|\\.|[^\w\s]|º"
ARGUMENT = rf"\{{{IN_BRACES}\}}"
RECIPROCALS = dict(sech="cosh", csch="sinh", coth="tanh")


def in_words(match: re.Match[str]) -> str:
    """Return an amount such as 1.2M with its magnitude as a word."""
    return rf"{match[1]}\text{{ {MAGNITUDES[match[2].lower()]}}}"


def angle(match: re.Match[str]) -> str:
    """Return a variable for an angle of three letters: ABC is CBA, but not ACB."""
    letters = "".join(match.groups())
    return rf"\variable{{angle{min(letters, letters[::-1])}}}"


def of_vectors(match: re.Match[str]) -> str:
    """Return a variable for a product of two vectors: a . b is b . a, and a x b is -b x a."""
    one, sign, other = (re.sub(r"[\W_]", "", part) for part in match.groups())
    # u . nabla differentiates what follows, and nabla . u does not
    pair = [one, other] if "nabla" in (one, other) else sorted((one, other))
    minus = r"\cdot(-1)" if sign == "times" and pair[0] != one else ""
    return match[0] if one == other else rf"{{\variable{{{sign}{''.join(pair)}}}{minus}}}"


# Rewrites to LaTeX that latex2sympy reads, applied in this order.
PLAIN = [
    (r"[²³¹⁰ⁱ⁴-⁹⁺⁻ⁿ]+", lambda match: f"^{{{nfkc(match[0])}}}"),
    (r"[₀-₉₊₋]+", lambda match: f"_{{{nfkc(match[0])}}}"),
    (r"[¼-¾⅐-⅞]", lambda match: r"\frac{{{}}}{{{}}} ".format(*nfkc(match[0]).split("\u2044"))),
    # $1.2m; but $5m$ is LaTeX
    (
        rf"{CURRENCY}\s*(\d[\d.,]*)\s*(?:{TEXT}\s*)?([kKmMbBtT])n?(?![A-Za-z])\s*\}}?(?!.*(?<!\\)\$)",
        in_words,
    ),
    (r"^(?:USD|US|EUR|GBP|INR|Rs)\b\.?\s*(?=[\d.$\\-])", ""),
    (rf"{CURRENCY}", ""),
    # remove delimiters, styles
    (rf"{TEXT}\s*([ei])\s*\}}", r" \1 "),  # two numbers, and no units
    (r"\{\\rm\s+([^{}]*)\}|\\rm\s*\{([^{}]*)\}", r"\\mathrm{\1\2}"),
    (r"\\\\\[[\d.]+[a-z]+\]", r"\\\\"),  # \\[4pt]: how far the next line is
    (r"\s*(?<!\\)\\!\s*|\\(?:text)?color\s*\{\w+\}|\\[hv]?(?:space|phantom)\*?\{[^{}]*\}", ""),
    (rf"{VECTOR}\s*\\(times|cdot)\s*{VECTOR}", of_vectors),
    (r"\\(?:overrightarrow|vec) ?\{ ?([A-Z]) ?([A-Z]) ?\}", r"\\variable{vec\1\2}"),
    (r"\\(?:vec|mathbf|boldsymbol|bm)\s*\{\s*(\\[A-Za-z]+|[A-Za-z])\s*\}(?=_)", r" \1"),  # v_1
    (r"\\(max|min|deg|dim)(?=\s*=)", r"\\variable{\1}"),
    # a mean is a function
    (
        r"(?:\\left ?)?\\langle([^,<>]*?)(?:\\right ?)?\\rangle"
        r"|(?<![A-Za-z\\])E ?[\[(]([^\[\]()]*[XYZ][^\[\]()]*)[\])]",
        r"f_{E}(\1\2)",
    ),
    (A_NAME, lambda match: MEANING.get(match[0].replace(" ", ""), match[0])),
    # Answer: 5, but not Ann: 5, Bob: 7; and x := 5
    (rf"^{LABEL}(?!.*{LABEL})|:(?==)|(?<![A-Za-z}}])\{{\}}", ""),
    (r"^(?:答案?|共|是|为|[:# ])+", ""),
    (rf"(?:\\text)?\{{:\}}|(?<=\d)\s*(?:{TEXT}\s*to\s*\}}|\bto\b)\s*(?=\d)", ":"),
    (rf"^(\d+){OF_AN_AMOUNT}(?: and)?\s*(\d+){OF_AN_AMOUNT}$", r"(\1,\2)"),
    (  # of units
        rf"\\frac\s*\{{({TEXT}[^{{}}]*\}}{POWER})\}}\{{({TEXT}[^{{}}]*\}}{POWER})\}}",
        r"\1/\2",
    ),
    (rf"\\abs\s*\{{({IN_BRACES})\}}", r"|\1|"),
    (r"\^ *\{? *((?:\\prime *|')+)\}?", lambda match: "'" * len(re.findall(r"\\|'", match[1]))),
    (r"\^ *(?:\{ *(?:\\top|T) *\}|\\top(?![a-z])|T)", r"^{\\variable{T}}"),  # sympy takes A^T for A
    (r"(?<![A-Za-z])[({]([A-F\d]+)[)}] *_ *(?=\{?\d)", r"\1_"),  # a number in another base
    (r"(?<![\\\w.])(?=\w*\d\w*[A-F]|\w*[A-F]\d)([A-F\d]+)_\{?16\}?(?!\d)", r"\\text{\1}_{16}"),
    # program notation: 4*sqrt(2), x**2, pi/2
    (r"(?<=[\w)])\*\*(?=[\w(])", "^"),
    (r"\\?sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}"),
    (r"(?<![A-Za-z\\])pi(?![A-Za-z])", r"\\pi "),
    (
        rf"\\(?:operatorname|text|mathrm)\{{ ?({FUNCTION}) ?\}}(?!\s*$)"
        rf"|(?<![A-Za-z\\])({FUNCTION})(?=[a-cnu-z]?(?![A-Za-z]))(?!\s*\}}?$)",
        r"\\\1\2 ",
    ),
    (
        r"\\(sech|csch|coth) *(?:\^ *\{?(\d+)\}?)?(?! *\^)",
        lambda match: rf"\{RECIPROCALS[match[1]]}^{{0-{match[2] or 1}}}",
    ),
    (r"([\d.]+)/([\d.]+)(?= [A-Za-z\\(])", r"\\frac{\1}{\2}"),  # 4/3 \pi r^3
    # remove blanks that do not separate words, numbers or items
    (r"(?<=[^\w\s\\,;})\]])\s+(?=\S)|\s+(?=[^\w\s\\])", ""),
    (r"\\(?:begin|end)\{(?:aligned|cases)\}|&(?==)", ""),
    (r"\\(?:mathbb )?([CNQRZ])(?![A-Za-z])", r"\\mathbb{\1}"),
    (r"\\(hat|bar|overline) (\w)", r"\\\1{\2}"),
    (r"(?<=,) ?(?:\\[lc]?dots|\.\.\.) ?(?=,|$)", r"\\text{dots}"),
    (r"(,.*\d) ?\.\.\.$", r"\1,\\text{dots}"),
    # other notations, first {x | x > 2}
    (r"^\\\{ ?[a-z] ?(?:\\in ?\\mathbb\{R\} ?)?(?:\||:)(.+)\\\}$", r"\1"),
    (r"^\\\{(.*\\pm.*)\\\}$", r"\1"),  # {0, \pm 2} has three items
    (r"(?<=[(\[{][^,;()\[\]]+);(?=[^,;()\[\]]+(?:[)\]]|\\\}))", ","),
    (r"\\(frac|binom)\s*(\\[a-z]+|\w)\s*(\\[a-z]+|\w)", r"\\\1{\2}{\3}"),
    (r"\{([^{}]+)\\choose ?([^{}]+)\}", r"\\binom{\1}{\2}"),
    (r"\\sqrt ?(\[[^\]]*\]) ?(\w)", r"\\sqrt\1{\2}"),
    (  # an exponent without braces
        r"\^ ?(-?(?:\\(?:frac|binom) ?ARGUMENT ?ARGUMENT|\\sqrt ?(?:\[[^\]]*\])? ?(?:ARGUMENT|\w)))"
        r"|\^(-(?:\d+|[A-Za-z]))",
        r"^{\1\2}",
    ),
    (r"\\(max|min|gcd)\\\{([^{}]*)\\\}", r"\\\1(\2)"),
    (  # events or sets A and B
        r"^(?=.*\\c[au]p)(?:[A-Z()' ]|\\c[au]p(?![a-z]))+$",
        lambda match: match[0].replace(r"\cup", "+").replace(r"\cap", r"\cdot "),
    ),
    # an inverse function, which is no power
    (r"(?<![A-Za-z\\])([fghFGH])\^\{-1\}(?=\((?:[a-z]|-?\d+)\))", r"\1_{-1}"),
    (r"(?<![A-Za-z\\])([A-Za-z])\^\{-1\}(?=\([a-z]\)=)", r"\1_{-1}"),
    (r"\\angle ?\{? ?([A-Z]) ?([A-Z]) ?([A-Z])(?![A-Za-z]) ?\}?", angle),
    (rf",(?: |{TEXT}[^{{}}]*\}})*[a-z] ?\\in ?\\mathbb\{{[NZ]\}}$", ""),  # "for any k"
    (r"(?:\^\\circ|\^\{(?:\\circ *|o)\}|\^o)(?![a-z])(?:\s*[CF](?![A-Za-z]))?", r"^\\circ "),
    (r"(?<![\d.])(\d+)\^\\circ *(\d+)'(?!')", r"(\1+\\frac{\2}{60})"),  # and minutes
    (  # of 30 degrees
        r"(\\(?:sin|cos|tan|cot|sec|csc)(?:\^\{?-?\d\}?)?)\s*"
        r"([({])?\s*([\d.]+)\s*\^\\circ\s*(?(2)[)}])",
        r"\1(\\frac{\3\\pi}{180})",
    ),
    (r"(\\(?:ln|log|sin|cos|tan) ?(?:_ ?(?:\w|ARGUMENT))?) ?\{(INSIDE)\}(?! ?\^)", r"\1(\2)"),
    (  # the argument ends before a dot: \sin x \cdot 2, but not \sin 2\pi \cdot t
        r"(?!\\(?:sin|cos|tan) ?[\d.]*(?:\\pi)? ?(?:\\cdot|\\times|\*))"
        r"(\\(?:(?:arc)?(?:sin|cos|tan|cot|csc|sec)h?|ln|log(?: *_ *(?:\w|\{\w+\}))?)"
        r"(?:\^\{?-?\d\}?)?) ?([\d.]+|[\d.]*(?:\\[a-z]+|[A-Za-z]))"
        r"(?= ?(?:\\cdot|\\times|\*))",
        r"\1(\2)",
    ),
    (r"(\d*)\.(\d*)\\(?:overline|bar)\{(\d+)\}", lambda digits: repeating(*digits.groups())),
    (  # the conjugate
        r"\\(?:overline|bar)\{([-+\d.i ]*i[-+\d.i ]*)\}",
        lambda match: f"({match[1].replace('i', '(-i)')})",
    ),
    (r"(?<=\d)\.(?=[-+*/)])|(?<=\d)\{,\}(?=\d{3}(?!\d))", ""),  # 1./3, 1{,}000
    (r"(?<![\w.])(\d+) (\d+)/(\d+)(?![\w.])", r"\1\\frac{\2}{\3}"),  # 1 1/2
    (r"(?<=\d)[eE]([-+]?\d+)(?![\w.])", r"\\cdot 10^{\1}"),  # 1e3
    (r"(?<![\d.])(\d{1,3}(?: \d{3})+)(?! ?\d)", lambda match: match[1].replace(" ", "")),
]
PLAIN = [
    (re.compile(written.replace("ARGUMENT", ARGUMENT).replace("INSIDE", IN_BRACES)), meant)
    for written, meant in PLAIN
]
UNSEEN = "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\u2061\u2062\u2063\u2064\ufeff"
ALIKE = dict.fromkeys("‐‑‒–—―", "-") | dict.fromkeys("‘’′ʹ", "'") | dict.fromkeys("“”", '"')
ALIKE |= dict.fromkeys("【「『〔〖", "(") | dict.fromkeys("】」』〕〗", ")")
SIGNS = str.maketrans(ALIKE | dict.fromkeys(UNSEEN, "") | {"。": ".", "、": ","})


def nfkc(text: str) -> str:
    """Return a text in Unicode's normal form NFKC, with a hyphen for the minus sign."""
    return unicodedata.normalize("NFKC", text).translate({ord("\u2212"): "-"})


def normal(text: str) -> str:
    """Return a text with one character for what looks alike: full-width letters, dashes, blanks.

    Apostrophes between thousands go, and so does a currency between a sign and its number.
    """
    if not text.isascii():
        text = re.sub(r"√ ?([\d.]*\d)", r"\\sqrt{\1}", text)
        text = re.sub(f"[^{BY_HAND}]+", lambda match: nfkc(match[0]), text).translate(SIGNS)
    text = re.sub(rf"-{CURRENCY}\s*(?=[\d.])", "-", text)
    return re.sub(r"(?<=\d)'(?=\d{3})", "", text)


@lru_cache(maxsize=1000)  # completions of a problem share the gold, and often the answer
def plain(text: str) -> str:
    """Return LaTeX without what only changes its appearance."""
    if re.fullmatch(r"-?[0-9]+|[A-Za-z]", text):
        return text
    text = " ".join(normal(text).split())
    for written, meant in PLAIN:
        text = written.sub(meant, text)
    text = re.sub(r"[\s.,;:\\]+$", "", " ".join(text.split()))
    whole = WHOLE.fullmatch(text)
    return plain(whole[1] or whole[2] or "") if whole else text


def repeating(whole: str, fixed: str, repeated: str) -> str:
    """Return a repeating decimal as a fraction."""
    top = int(whole + fixed + repeated) - int(whole + fixed or 0)
    return rf"\frac{{{top}}}{{{10 ** len(fixed + repeated) - 10 ** len(fixed)}}}"


def without_commas(text: str) -> str:
    """Join thousands: 1,000 becomes 1000 and India's 1,00,000 becomes 100000, but not 1,200,3.

    In brackets, as in (1,234), commas separate items, unless others with blanks do.
    """
    groups = r"(?<![\d.,])[1-9](?:\d{0,2}(?:,\d{3})+|\d?(?:,\d\d)+,\d{3})(?!\d|,\d)"
    inside = r"(?:[^()\[\]{},]|,(?! ))*"
    tight = rf"(?:[(\[]|\\\{{){inside},(?! ){inside}(?:[)\]]|\\\}})"

    def joined(match: re.Match[str]) -> str:
        in_brackets = not match[0][0].isdecimal()
        return match[0].replace(",", ", " if in_brackets else "")

    return re.sub(f"{tight}|{groups}", joined, text)


def split(text: str, divider: str) -> list[str]:
    """Split a text at the dividers outside of all brackets, and drop empty parts."""
    divided = re.sub(rf"({IN_BRACKETS})|{divider}", lambda match: match[1] or "\0", text)
    return [part for part in divided.split("\0") if part.strip()] or [text]
