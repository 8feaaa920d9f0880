"""Mixed strings for tokenizer tests: Unicode, emoji, code, spaces, numbers, special tokens."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

FIXED: Final[tuple[str, ...]] = (
    "",
    " ",
    "\n",
    "  1",
    "a  1 b   22\t3",
    "Hello, world! It's 2026.",
    "the year 1999 and 3.14159e-10, v2.0.1",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "<|im_end|><|im_end|> <|endoftext|>x",
    "<|im_start|",
    "def f(x):\n    return {k: v for k, v in x.items()}\n\n\n\tpass\r\n",
    "👩‍👩‍👧‍👦 🏳️‍🌈 🇫🇷 👍🏽",
    "\uff46\uff55\uff4c\uff4c\u3000\uff17 ① ½ Ⅷ ४५६ ١٢٣",
    "e\u0301 \u00e9 \ufb01 \u1e9b\u0323",
    "\u200b\u200d\ufeff\u00a0\u3000\u2028",
    "مرحبا بالعالم שלום עולם สวัสดีชาวโลก नमस्ते दुनिया",
    "中文没有空格。日本語のテキスト、한국어 문장입니다!",
    "\x00\x01\x7f\u0085",
    "I'LL we'Ve don't 'S 't",
    "a" * 300,
    " " * 97 + "x",
    "1234567890" * 5,
)

_RANGES: Final = (
    (0x20, 0x7E), (0xA0, 0x24F), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0x97F),
    (0x2000, 0x206F), (0x2150, 0x218F), (0x2600, 0x27BF), (0x3040, 0x30FF), (0x4E00, 0x9FFF),
    (0xAC00, 0xD7A3), (0xFF00, 0xFFEF), (0x1F300, 0x1FAFF), (0x1D400, 0x1D7FF),
)  # fmt: skip

_PIECES: Final[tuple[str, ...]] = (
    "the", " quick", " brown fox", "'s", "'LL", "\n", "\n\n", "\t", "  ", "   ", " 1", "  42",
    "007", "3.14", "for i in range(10):", "return x;", "{}", "=>", "!=", "//", "\r\n", "é", "ß",
    "日本", "🙂", "👩‍💻", "µ", "²", "½", "https://x.y/z?a=1&b=2", "<b>", "\\n", "\u00a0",
)  # fmt: skip


def mixed_texts(count: int, specials: Sequence[str], seed: int = 0) -> list[str]:
    """`count` strings: the fixed ones, then random mixtures with `specials` spelled out in them."""
    draw = random.Random(seed)
    texts: list[str] = list(FIXED)
    while len(texts) < count:
        parts = [_part(draw, specials) for _ in range(draw.randint(1, 12))]
        texts.append("".join(parts))
    return texts[:count]


def _part(draw: random.Random, specials: Sequence[str]) -> str:
    kind = draw.random()
    if kind < 0.1 and specials:
        return draw.choice(specials)
    if kind < 0.7:
        return draw.choice(_PIECES)
    low, high = draw.choice(_RANGES)
    return "".join(chr(draw.randint(low, high)) for _ in range(draw.randint(1, 6)))
