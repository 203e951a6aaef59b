"""Small image files of every kind, generated here so that their bytes are known."""

import functools
import struct
import zlib

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

RANDOM = np.random.RandomState(11)


def smooth(height, width, channels):
    """Returns an image with gradients and one edge, as in photographs."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [127 + 100 * np.sin(x / 5 + c) * np.cos(y / 7 - c) for c in range(channels)]
    picture = np.stack(planes, -1)
    picture[height // 3:height // 2, width // 4:width // 2] = 230
    return np.clip(picture, 0, 255).astype(np.uint8)


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(rows, width, depth, color, before=(), interlaced=False, data=None):
    """Returns a PNG file of rows of bytes, each preceded by the number of its filter."""
    head = struct.pack(">IIBBBBB", width, len(rows), depth, color, 0, 0, int(interlaced))
    data = zlib.compress(b"".join(rows)) if data is None else data
    parts = [chunk(b"IHDR", head), *(chunk(*one) for one in before), chunk(b"IDAT", data), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def random_rows(height, width, bits_per_pixel):
    """Returns rows of noise, behind each of the five filters in turn."""
    length = (width * bits_per_pixel + 7) // 8
    return [bytes([row % 5]) + RANDOM.bytes(length) for row in range(height)]


def interlaced(width, height, bits_per_pixel):
    """Returns the seven passes of an interlaced image of noise."""
    passes = []
    for x, y, dx, dy in ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)):
        across, down = len(range(x, width, dx)), len(range(y, height, dy))
        if across and down:
            passes.append(b"".join(random_rows(down, across, bits_per_pixel)))
    return b"".join(passes)


def gamma_of(number):
    return b"gAMA", struct.pack(">I", number)


PALETTE = (b"PLTE", bytes(range(0, 240, 5)))  # sixteen colors
LONG_PALETTE = (b"PLTE", RANDOM.bytes(3 * 256))
GRAYS, COLORS, INDEXED, GRAY_ALPHA, COLOR_ALPHA = 0, 2, 3, 4, 6

PNG = {
    **{f"gray{depth}": png(random_rows(6, 9, depth), 9, depth, GRAYS) for depth in (1, 2, 4, 8, 16)},
    **{f"rgb{depth}": png(random_rows(6, 5, 3 * depth), 5, depth, COLORS) for depth in (8, 16)},
    **{f"indexed{depth}": png(random_rows(6, 9, depth), 9, depth, INDEXED, [(b"PLTE", LONG_PALETTE[1][:3 << depth])]) for depth in (1, 2, 4, 8)},
    **{f"gray_alpha{depth}": png(random_rows(6, 5, 2 * depth), 5, depth, GRAY_ALPHA) for depth in (8, 16)},
    **{f"rgba{depth}": png(random_rows(6, 5, 4 * depth), 5, depth, COLOR_ALPHA) for depth in (8, 16)},
    "indexed_alpha": png(random_rows(6, 9, 8), 9, 8, INDEXED, [LONG_PALETTE, (b"tRNS", RANDOM.bytes(100))]),
    "indexed_alpha4": png(random_rows(6, 9, 4), 9, 4, INDEXED, [PALETTE, (b"tRNS", b"\0\x80\xff\x33")]),
    "gray_transparent": png([b"\0" + bytes(range(4))] * 3, 4, 8, GRAYS, [(b"tRNS", b"\0\2")]),
    "gray_transparent2": png([b"\0\x1b"] * 3, 4, 2, GRAYS, [(b"tRNS", b"\0\2")]),
    "gray_transparent16": png([b"\0\1\2\3\4"] * 3, 2, 16, GRAYS, [(b"tRNS", b"\1\2")]),
    "rgb_transparent": png([b"\0" + bytes(range(6))] * 3, 2, 8, COLORS, [(b"tRNS", b"\0\0\0\1\0\2")]),
    "interlaced": png([b""] * 9, 10, 8, COLORS, interlaced=True, data=zlib.compress(interlaced(10, 9, 24))),
    "interlaced1": png([b""] * 5, 3, 1, GRAYS, interlaced=True, data=zlib.compress(interlaced(3, 5, 1))),
    "equal": png([b"\0" + bytes([40] * 12)] * 3, 4, 8, COLORS),
    # A gamma, which matters for the conversion of colors to gray.
    **{f"gamma{gamma}": png(random_rows(6, 5, 24), 5, 8, COLORS, [gamma_of(gamma)]) for gamma in (45455, 100000, 95000, 94999, 200000, 0, 15, 16, 4000000000)},
    **{f"gamma_twice{depth}": png(random_rows(4, 9, depth), 9, depth, INDEXED, [gamma_of(45455), gamma_of(30000), PALETTE]) for depth in (2, 4)},
    "gamma_gray": png(random_rows(6, 5, 8), 5, 8, GRAYS, [gamma_of(45455)]),
    "gamma_rgba": png(random_rows(6, 5, 32), 5, 8, COLOR_ALPHA, [gamma_of(55000)]),
    "gamma_equal": png([b"\0" + bytes([40] * 12)] * 3, 4, 8, COLORS, [gamma_of(45455)]),
    "srgb": png(random_rows(6, 5, 24), 5, 8, COLORS, [(b"sRGB", b"\0")]),
    "srgb_gamma": png(random_rows(6, 5, 24), 5, 8, COLORS, [(b"sRGB", b"\0"), gamma_of(100000)]),
    "gamma_srgb": png(random_rows(6, 5, 24), 5, 8, COLORS, [gamma_of(100000), (b"sRGB", b"\0")]),
    "gamma16": png(random_rows(6, 5, 48), 5, 16, COLORS, [gamma_of(45455)]),
    "gamma16_equal": png([b"\0" + bytes([40, 200] * 3 + [3, 130] * 3 + [255, 127] * 3 + [255, 128] * 3)] * 3, 4, 16, COLORS, [gamma_of(45455)]),
    "gamma16_bits": png(random_rows(6, 5, 48), 5, 16, COLORS, [(b"sBIT", b"\x0c\x0b\x0a"), gamma_of(45455)]),
}


def bmp(pixels, top_down=False, head_length=54):
    """Returns a BMP file of pixels in the order in which they are stored."""
    height, width, channels = pixels.shape
    rows = [row.tobytes() + b"\0" * (-width * channels % 4) for row in pixels]
    head = b"BM" + struct.pack("<IHHI", head_length + sum(map(len, rows)), 0, 0, head_length)
    head += struct.pack("<IiiHHIIiiII", 40, width, -height if top_down else height, 1, 8 * channels, 0, 0, 0, 0, 0, 0)
    return head.ljust(head_length, b"\0") + b"".join(rows)


def noise(*shape):
    return RANDOM.randint(0, 256, shape).astype(np.uint8)


BMP = {
    "rgb": bmp(noise(3, 5, 3)), "gray": bmp(noise(4, 3, 1)), "rgba": bmp(noise(2, 3, 4)), "top_down": bmp(noise(3, 2, 3), top_down=True),
    "long_head": bmp(noise(3, 5, 3), head_length=70), "one": bmp(noise(1, 1, 3)),
}


def lzw(indices):
    """Returns indices below 16 as codes of five bits, with clear codes so often that they never grow."""
    codes = []
    for start in range(0, len(indices), 10):
        codes += [16, *indices[start:start + 10]]
    number = sum(code << (5 * place) for place, code in enumerate(codes + [17]))
    data = number.to_bytes((5 * (len(codes) + 1) + 7) // 8, "little")
    blocks = [data[start:start + 255] for start in range(0, len(data), 255)]
    return b"\4" + b"".join(bytes([len(block)]) + block for block in blocks) + b"\0"


COLOR_TABLE = bytes((17 * index + 3 * channel) % 256 for index in range(16) for channel in range(3))


def frame(pixels, left=0, top=0, transparent=None, table=None, interlaced_rows=False):
    height, width = pixels.shape
    control = b"" if transparent is None else b"\x21\xf9\4\1\0\0" + bytes([transparent]) + b"\0"
    flags = (0x83 if table else 0) | (0x40 if interlaced_rows else 0)
    return control + b"\x2c" + struct.pack("<HHHHB", left, top, width, height, flags) + (table or b"") + lzw(pixels.ravel().tolist())


def gif(width, height, *frames, table=COLOR_TABLE):
    head = b"GIF89a" + struct.pack("<HHBBB", width, height, 0x83 if table else 0, 0, 0)
    return head + (table or b"") + b"".join(frames) + b"\x3b"


def indices(height, width):
    return RANDOM.randint(0, 16, (height, width))


GIF = {
    "one": gif(5, 4, frame(indices(4, 5))),
    "two": gif(5, 4, frame(indices(4, 5)), frame(indices(4, 5))),
    "own_table": gif(5, 4, frame(indices(4, 5), table=bytes(range(48))), frame(indices(4, 5))),
    "no_table": gif(3, 3, frame(indices(3, 3), table=bytes(range(48))), table=None),
    "smaller": gif(6, 5, frame(indices(5, 6)), frame(indices(2, 3), left=2, top=1)),
    "transparent": gif(6, 5, frame(indices(5, 6)), frame(indices(5, 6), transparent=3), frame(indices(4, 4), 1, 1, transparent=5)),
    "first_smaller": gif(6, 5, frame(indices(3, 3), left=1, top=1), frame(indices(5, 6))),
    "first_transparent": gif(4, 4, frame(indices(4, 4), transparent=2)),
    "interlaced": gif(5, 11, frame(indices(11, 5), interlaced_rows=True)),
    "screen_larger": gif(50, 40, frame(indices(4, 5))),
}


@functools.cache
def jpegs():
    """Returns JPEG files that TensorFlow wrote, and some that it can't write."""
    picture = smooth(17, 23, 3)
    large = noise(100, 90, 3)
    kinds = {
        "rgb": (picture, {}), "gray": (picture[:, :, :1], {}), "full": (picture, {"chroma_downsampling": False}), "low": (picture, {"quality": 15}),
        "progressive": (picture, {"progressive": True}), "progressive_full": (picture, {"progressive": True, "chroma_downsampling": False}),
        "progressive_gray": (picture[:, :, 1:2], {"progressive": True}), "optimized": (picture, {"optimize_size": True}),
        "noise": (noise(33, 31, 3), {"quality": 90}), "noise_low": (noise(16, 16, 3), {"quality": 10}), "tiny": (noise(1, 1, 3), {}),
        "narrow": (noise(9, 2, 3), {}), "wide": (noise(2, 40, 3), {}), "large": (large, {"quality": 50}),
        "large_full": (large, {"chroma_downsampling": False}),
    }
    with tf.Graph().as_default(), tf.Session() as session:
        files = session.run({label: tf.raw_ops.EncodeJpeg(image=image, **attrs) for label, (image, attrs) in kinds.items()})
    return {**files, **{label: jpeg_of_noise(files["rgb"], *kind) for label, kind in OTHER_JPEGS.items()}}


# Files with options that TensorFlow reads but does not write: samplings, identifiers, restart interval, and the transform in an
# Adobe marker.
THREE, FOUR = b"\1\2\3", b"\1\2\3\4"
OTHER_JPEGS = {
    "half_width": ((0x21, 0x11, 0x11), THREE), "half_height": ((0x12, 0x11, 0x11), THREE), "quarter_width": ((0x41, 0x11, 0x11), THREE),
    "restarts": ((0x22, 0x11, 0x11), THREE, 2), "plain_rgb": ((0x11, 0x11, 0x11), b"RGB"), "adobe_rgb": ((0x11, 0x11, 0x11), THREE, 0, 0),
    "adobe_ycc": ((0x22, 0x11, 0x11), THREE, 0, 1), "cmyk": ((0x11,) * 4, FOUR), "cmyk_adobe": ((0x11,) * 4, FOUR, 0, 0), "cmyk_ycck": ((0x22, 0x11, 0x11, 0x22), FOUR, 0, 2),
    "tall_gray": ((0x12,), b"\1"),
}


def segments(file):
    """Returns the segments of a file before its scan, by marker."""
    found, place = {}, 2
    while file[place + 1] != 0xda:
        length = struct.unpack(">H", file[place + 2:place + 4])[0]
        found.setdefault(file[place + 1], []).append(file[place:place + 2 + length])
        place += 2 + length
    return found


def huffman_codes(found):
    """Returns for each table the code and the length of each symbol."""
    tables = {}
    for segment in found[0xc4]:
        place = 4
        while place < len(segment):
            counts = segment[place + 1:place + 17]
            symbols = segment[place + 17:place + 17 + sum(counts)]
            codes, code, used = {}, 0, 0
            for length, count in enumerate(counts, 1):
                for symbol in symbols[used:used + count]:
                    codes[symbol] = (code, length)
                    code += 1
                used += count
                code <<= 1
            tables[segment[place]] = codes
            place += 17 + len(symbols)
    return tables


class BitWriter:
    def __init__(self):
        self.text = ""

    def put(self, code, length):
        self.text += format(code, f"0{length}b") if length else ""

    def number(self, value):
        length = abs(value).bit_length()
        self.put(value if value >= 0 else value + (1 << length) - 1, length)

    def block(self, dc, ac, difference, coefficients):
        self.put(*dc[abs(difference).bit_length()])
        self.number(difference)
        run = 0
        for value in coefficients:
            if value == 0:
                run += 1
                continue
            while run > 15:
                self.put(*ac[0xf0])
                run -= 16
            self.put(*ac[run << 4 | abs(value).bit_length()])
            self.number(value)
            run = 0
        if run:
            self.put(*ac[0])

    def bytes(self):
        text = self.text + "1" * (-len(self.text) % 8)
        return bytes(int(text[place:place + 8], 2) for place in range(0, len(text), 8)).replace(b"\xff", b"\xff\0")


def jpeg_of_noise(model, samplings, identifiers, restarts=0, adobe=None, width=27, height=21):
    """Returns a file of random coefficients with the tables of another one."""
    random = np.random.RandomState(len(samplings) + samplings[0] + restarts)
    found = segments(model)
    codes = huffman_codes(found)
    most = max(one >> 4 for one in samplings), max(one & 15 for one in samplings)
    across, down = -(-width // (8 * most[0])), -(-height // (8 * most[1]))
    single = len(samplings) == 1
    if single:
        across, down = -(-width // 8), -(-height // 8)
    parts, writer = [], BitWriter()
    for unit in range(across * down):
        if restarts and unit and unit % restarts == 0:
            parts += [writer.bytes(), bytes([0xff, 0xd0 + (unit // restarts - 1) % 8])]
            writer = BitWriter()
        for index, sampling in enumerate(samplings):
            chroma = int(0 < index < 3)
            for _ in range(1 if single else (sampling >> 4) * (sampling & 15)):
                coefficients = np.where(random.uniform(size=63) < 0.15, random.randint(-9, 10, 63), 0)
                writer.block(codes[chroma], codes[0x10 | chroma], int(random.randint(-15, 16)), [int(one) for one in coefficients])
    parts.append(writer.bytes())
    frame = struct.pack(">BHHB", 8, height, width, len(samplings))
    scan = bytes([len(samplings)])
    for index, (sampling, identifier) in enumerate(zip(samplings, identifiers)):
        chroma = int(0 < index < 3)
        frame += bytes([identifier, sampling, chroma])
        scan += bytes([identifier, 0x11 * chroma])

    def segment(marker, body):
        return bytes([0xff, marker]) + struct.pack(">H", len(body) + 2) + body

    head = b"\xff\xd8" + (b"" if adobe is None else segment(0xee, b"Adobe\0\x64\0\0\0\0" + bytes([adobe])))
    tables = b"".join(found[0xdb]) + b"".join(found[0xc4]) + (segment(0xdd, struct.pack(">H", restarts)) if restarts else b"")
    return head + tables + segment(0xc0, frame) + segment(0xda, scan + b"\0\x3f\0") + b"".join(parts) + b"\xff\xd9"
