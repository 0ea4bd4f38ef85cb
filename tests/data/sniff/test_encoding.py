"""Detecting the encoding of a file from its bytes."""

import pytest

from alchemy.data.sniff.encoding import detect_encoding, guess_encoding
from alchemy.errors import AlchemyError

CHINESE = "标题,类别\n锌价难续去年辉煌,财经\n布拉特：放球员一条生路吧,体育\n"
TEXTS = {
    "ascii": (
        "text,label\nthe match was lost,sport\n",
        {"utf-8": "utf-8", "utf-16": "utf-16", "utf-16-le": "utf-16-le"},
    ),
    "chinese": (
        CHINESE,
        {
            "utf-8": "utf-8",
            "utf-8-sig": "utf-8",
            "gbk": "gb18030",
            "gb18030": "gb18030",
            "utf-16": "utf-16",
            "utf-16-le": "utf-16-le",
            "utf-16-be": "utf-16-be",
            "utf-32": "utf-32",
        },
    ),
    "one word": ("财经", {"utf-8": "utf-8", "gbk": "gb18030"}),
    "characters with tags": ("吴 B-NAME\n重 M-NAME\n阳 E-NAME\n， O\n中 B-CONT\n国 M-CONT\n", {"gbk": "gb18030"}),
    "traditional": (
        "經濟部長表示今年經濟成長可望達到三個百分點,財經\n",
        {"big5": "big5", "gbk": "gb18030", "utf-8": "utf-8"},
    ),
    "japanese": (
        "今日は天気がいいですね。東京へ行きました,天気\n",
        {"shift_jis": "cp932", "euc_jp": "euc_jp", "utf-8": "utf-8"},
    ),
    "korean": (
        "오늘은 날씨가 좋습니다. 서울에 갔습니다. 한국어 문장을 분류하는 모델을 학습합니다\n",
        {"euc_kr": "cp949", "utf-8": "utf-8"},
    ),
    "french": (
        "Le café est très bon, à côté de la forêt\n",
        {"latin-1": "cp1252", "utf-8": "utf-8", "utf-16-le": "utf-16-le"},
    ),
    "german": ("Müller,1\nStraße,2\nÄrger,3\n", {"latin-1": "cp1252", "cp1252": "cp1252"}),
    "typographic": (
        "it\u2019s \u201cquoted\u201d text, plain letters otherwise\n",
        {"cp1252": "cp1252", "utf-8": "utf-8"},
    ),
}
CASES = [(text, written, found) for text, ways in TEXTS.values() for written, found in ways.items()]


@pytest.mark.parametrize(("text", "written", "found"), CASES)
def test_it_is_found_and_reads_the_text_back(text, written, found):
    data = text.encode(written)
    assert guess_encoding(data) == found
    assert data.decode(found).removeprefix("\ufeff") == text


def test_a_character_that_is_cut_does_no_harm():
    data = (CHINESE * 50).encode("gbk")
    for end in range(len(data) - 4, len(data)):
        assert guess_encoding(data[:end], whole=False) == "gb18030"
        assert guess_encoding(CHINESE.encode()[: end % 40 + 20], whole=False) == "utf-8"


def test_a_long_beginning_of_ascii_does_not_hide_the_rest():
    assert guess_encoding(("label,text\n" * 30_000 + CHINESE).encode("gbk")) == "gb18030"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (bytes(range(256)) * 4, "is not a text file"),
        (b"PK\x03\x04\x14\x00\x06\x00", r"not a text file; it looks like .* an Excel workbook: save the sheet as csv"),
        (b"\x1f\x8b\x08\x00\x00\x00", "not a text file; it looks like a gzip file"),
        (CHINESE.encode() * 9 + b"\xff\xfe broken\n", r"file:28 is UTF-8 text with invalid bytes: '.*broken.*'; fix"),
        ("Привет мир, это русский текст для проверки\n".encode("cp1251"), "encoding cannot be detected.*--encoding"),
    ],
)
def test_what_cannot_be_told_is_an_error(data, message, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(AlchemyError, match=message):
        detect_encoding(path)
