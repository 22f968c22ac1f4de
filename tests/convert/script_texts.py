"""Texts in many scripts for tests of tokenizers: real sentences, and random texts that put unusual characters together.

The texts follow from the seed alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

# Most are from the first article of the Universal Declaration of Human Rights.
SENTENCES = (
    "All human beings are born free and equal in dignity and rights.",
    "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền.",
    "Ἐν ἀρχῇ ἦν ὁ Λόγος, καὶ ὁ Λόγος ἦν πρὸς τὸν Θεόν.",
    "Все люди рождаются свободными и равными в своём достоинстве и правах.",
    "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם. בְּרֵאשִׁית בָּרָא אֱלֹהִים",
    "تمام افراد بشر آزاد به دنیا می‌آیند و از لحاظ حیثیت و حقوق با هم برابرند. ۱۲۳",
    "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है। १२३",
    "மனிதப் பிறவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர்; அவர்கள் மதிப்பிலும் உரிமைகளிலும் சமமானவர்கள்.",
    "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ ๑๒๓",
    "འགྲོ་བ་མིའི་རིགས་རྒྱུད་ཡོངས་ལ་སྐྱེས་ཙམ་ཉིད་ནས་ཆེ་མཐོངས་དང༌། ཐོབ་ཐངགི་རང་དབང་འདྲ་མཉམ་དུ་ཡོད་ལ།",
    "人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。",
    "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。ｶﾀｶﾅ、がぎぐ",
    "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. 한글",
    "ⵎⴷⴷⵏ ⴰⴽⴽⵯ ⵙ ⵜⵎⵔⵎⴰ. ᚠᛇᚻ᛫ᛒᛦᚦ᛫ᚠᚱᚩᚠᚢᚱ ߒߞߏ 𐍈 𝒜𝓁𝓁 ⅔ Ⅷ x² H₂O",
    "He's said they'll come; I'd've gone. DON'T, we'RE, O'Neill's '90s it's' 'S 'll",
    "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇩🇪🇯🇵 1️⃣ ☕️ 🫠 — “quotes” ‹›…™ ½ № €5.00 ±∞≠",
    "for (int i = 0; i < 10; ++i) {\n\treturn x[i] * 2.5e-3;  // why?\r\n}\n\n\n    pass\t\t",
    '<final answer>TA=1, VQ=2, MQ=0, OA=1</final answer> {"name": "select_frames", "arguments": [1, 12, 123]}',
)
BLOCKS = (
    *[(0x20, 0x7E)] * 4,
    *((0x00, 0x1F), (0x7F, 0xFF), (0x100, 0x24F), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x52F), (0x590, 0x6FF)),
    *((0x900, 0xDFF), (0xE00, 0xEFF), (0xF00, 0x10FF), (0x1100, 0x18AF), (0x1E00, 0x1FFF), (0x2000, 0x206F)),
    *((0x2070, 0x2BFF), (0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xE000, 0xF8FF), (0xF900, 0xFAFF)),
    *((0xFB00, 0xFDFF), (0xFE00, 0xFFFF), (0x10000, 0x1FFFF), (0x1F300, 0x1FAFF), (0x20000, 0x2FA1F)),
    *((0xE0000, 0xE01EF), (0x00, 0xD7FF), (0x30000, 0x10FFFF)),
)
PIECES = (
    *("\r\n", "\n", "\r", "\r\r\n", " ", "  ", "   \n", "\t", "\u00a0", "\u3000", "\u2028", "\x85", "\x1c", "\x00"),
    *("'s", "'LL", "'\u017f", "'Re", "<|", "|>", "\u200d", "\ufe0f", "\u0301", "\u0323", "\u1161", "9", "٣", "²"),
)


def texts(count: int, *, seed: int) -> Iterator[str]:
    """Yield `count` texts: a third are sentences, a third sentences with changes, a third random characters."""
    chance = random.Random(seed)
    for number in range(count):
        sentence = chance.choice(SENTENCES)
        match number % 3:
            case 0:
                yield chance.choice(("", " ", "\n")).join(chance.sample(SENTENCES, chance.randint(1, 3)))
            case 1:
                characters = list(sentence)
                for _ in range(chance.randint(1, 12)):
                    at = chance.randrange(len(characters))
                    characters[at : at + chance.randint(0, 3)] = [_piece(chance)]
                yield "".join(characters)
            case _:
                yield "".join(_piece(chance) for _ in range(chance.randint(1, 60)))


def _piece(chance: random.Random) -> str:
    if chance.random() < 0.2:
        return chance.choice(PIECES)
    # The last block begins after the surrogates, as the one before ends in front of them: text has none.
    return chr(chance.randint(*chance.choice(BLOCKS)))
