"""The ops of crates/ops/src/signal beside TensorFlow's, and what tf.signal makes of them."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import side_by_side

RANDOM = np.random.RandomState(23)


def uniform(*shape):
    return RANDOM.uniform(-1, 1, shape).astype(np.float32)


TABLE = side_by_side.Table()
op, add = TABLE.op, TABLE.add
COMPLEX = [tf.complex64, tf.complex128]
VOLUME = uniform(2, 3, 4, 5)
CLOSE = {"rtol": 1e-4, "atol": 2e-5}

for rank, suffix in ((1, ""), (2, "2D"), (3, "3D")):
    for name in ("FFT", "IFFT"):
        op(name + suffix, "", COMPLEX, input=VOLUME, **CLOSE)
        op(name + suffix, "empty", [tf.complex64], gradient=False, input=np.zeros((2, 0, 3, 4)))
    for last in (4, 5):
        # The gradient that TensorFlow forms has the shape of the transform, so the input is as long as it here.
        exact = np.ascontiguousarray(VOLUME[..., :last])
        lengths = np.array(exact.shape[-rank:], np.int32)
        half = exact[..., :last // 2 + 1]
        for real, complex_type in ((tf.float32, tf.complex64), (tf.float64, tf.complex128)):
            add(f"RFFT{suffix}/{last}_{real.name}", lambda given, real=real, complex_type=complex_type, exact=exact, lengths=lengths, suffix=suffix: getattr(
                tf.raw_ops, "RFFT" + suffix)(input=given(exact, real), fft_length=given(lengths), Tcomplex=complex_type), **CLOSE)
            add(f"IRFFT{suffix}/{last}_{real.name}", lambda given, real=real, complex_type=complex_type, half=half, lengths=lengths, suffix=suffix: getattr(
                tf.raw_ops, "IRFFT" + suffix)(input=given(half, complex_type), fft_length=given(lengths), Treal=real), **CLOSE)
    shorter = np.array([2, 3, 4][-rank:], np.int32)
    add(f"RFFT{suffix}/shorter", lambda given, shorter=shorter, suffix=suffix: getattr(tf.raw_ops, "RFFT" + suffix)(
        input=given(VOLUME), fft_length=given(shorter)), gradient=False, **CLOSE)
    add(f"IRFFT{suffix}/shorter", lambda given, shorter=shorter, suffix=suffix: getattr(tf.raw_ops, "IRFFT" + suffix)(
        input=given(VOLUME, tf.complex64), fft_length=given(shorter)), gradient=False, **CLOSE)
for size in (1, 2, 7, 31, 64, 100, 257):
    op("FFT", f"of_{size}", COMPLEX, input=uniform(3, size), **CLOSE)

SOUND = uniform(2, 700)
add("signal/stft", lambda given: tf.signal.stft(given(SOUND), 128, 64, fft_length=256), **CLOSE)
add("signal/stft_to_the_end", lambda given: tf.signal.stft(given(SOUND), 100, 30, pad_end=True), **CLOSE)
add("signal/inverse_stft", lambda given: tf.signal.inverse_stft(
    tf.signal.stft(given(SOUND), 128, 64), 128, 64, window_fn=tf.signal.inverse_stft_window_fn(64)), **CLOSE)
for kind in (1, 2, 3):
    add(f"signal/dct_{kind}", lambda given, kind=kind: tf.signal.dct(given(SOUND[:, :16]), type=kind), **CLOSE)
add("signal/idct", lambda given: tf.signal.idct(given(SOUND[:, :16]), norm="ortho"), **CLOSE)
add("signal/hilbert_like", lambda given: tf.abs(tf.signal.ifft(tf.signal.fft(given(SOUND, tf.complex64)))), gradient=False, **CLOSE)


def cepstra(given):
    spectrogram = tf.abs(tf.signal.stft(given(SOUND), 128, 64))
    weights = tf.signal.linear_to_mel_weight_matrix(20, spectrogram.shape[-1].value, 8000, 80.0, 3600.0)
    mel = tf.tensordot(spectrogram, weights, 1)
    return tf.signal.mfccs_from_log_mel_spectrograms(tf.math.log(mel + 1e-6))[..., :13]


add("signal/mfccs", cepstra, gradient=False, rtol=1e-3, atol=1e-3)

for squared in (False, True):
    for size, stride in ((2, 1), (64, 32), (100, 33)):
        op("AudioSpectrogram", f"{size}_{stride}_{squared}", input=SOUND.T, window_size=size, stride=stride, magnitude_squared=squared, **CLOSE)
op("AudioSpectrogram", "too_short", input=SOUND.T[:10], window_size=11, stride=1)
op("AudioSpectrogram", "no_channels", input=np.zeros((20, 0)), window_size=8, stride=4)
POWERS = np.abs(uniform(2, 5, 129)) ** 2
op("Mfcc", spectrogram=POWERS, sample_rate=np.int32(16000), rtol=1e-4, atol=1e-4)
op("Mfcc", "limits", spectrogram=POWERS, sample_rate=np.int32(16000), upper_frequency_limit=8000.0, lower_frequency_limit=0.0,
   filterbank_channel_count=20, dct_coefficient_count=20, rtol=1e-4, atol=1e-4)
op("Mfcc", "silence", spectrogram=np.zeros((1, 2, 33)), sample_rate=np.int32(16000), rtol=1e-4, atol=1e-4)
op("Mfcc", "more_bands_than_frequencies", spectrogram=POWERS[..., :9], sample_rate=np.int32(16000), rtol=1e-4, atol=1e-4)

op("EncodeWav", audio=np.array([[0.0, 1.0], [-1.0, 2.0], [0.5, -3.0], [1e-5, 2e-5]]), sample_rate=np.int32(44100))
op("EncodeWav", "nothing", audio=np.zeros((0, 1)), sample_rate=np.int32(8000))
op("EncodeWav", "one", audio=uniform(50, 1), sample_rate=np.int32(8000))
for channels, samples in ((-1, -1), (1, 3), (3, 60), (2, 50)):
    add(f"DecodeWav/{channels}_{samples}", lambda given, channels=channels, samples=samples: tf.raw_ops.DecodeWav(
        contents=tf.raw_ops.EncodeWav(audio=given(np.random.RandomState(1).uniform(-1, 1, (50, 2))), sample_rate=given(np.int32(16000))),
        desired_channels=channels, desired_samples=samples), gradient=False)

HEADER = b"RIFF" + (36).to_bytes(4, "little") + b"WAVEfmt "


def wav(format_size=16, kind=1, channels=1, rate=8000, per_second=None, frame=None, bits=16, rest=b"data\x04\0\0\0\1\0\2\0"):
    frame = 2 * channels if frame is None else frame
    per_second = rate * frame if per_second is None else per_second
    numbers = [(format_size, 4), (kind, 2), (channels, 2), (rate, 4), (per_second, 4), (frame, 2), (bits, 2)]
    return HEADER + b"".join(number.to_bytes(size, "little") for number, size in numbers) + (b"\0\0" if format_size == 18 else b"") + rest


def decoded(contents):
    return lambda given: tf.raw_ops.DecodeWav(contents=given(np.array(contents, object)))


add("DecodeWav/longer_format", decoded(wav(format_size=18)))
add("DecodeWav/other_chunks", decoded(wav(rest=b"LIST\x02\0\0\0abdata\x04\0\0\0\1\0\2\0")))
add("DecodeWav/no_samples", decoded(wav(rest=b"data\0\0\0\0")))

results, test_op, test_at_a_lower_level, test_beside_onednn = TABLE.tests()

UNKNOWN = tf.TensorShape(None)
FAILURES = {
    "fft_scalar": lambda given: tf.raw_ops.FFT(input=given(1.0, tf.complex64, UNKNOWN)),
    "fft2d_vector": lambda given: tf.raw_ops.FFT2D(input=given(np.ones(3), tf.complex64, UNKNOWN)),
    "rfft_short": lambda given: tf.raw_ops.RFFT(input=given(uniform(2, 3)), fft_length=given(np.array([4], np.int32))),
    "irfft_short": lambda given: tf.raw_ops.IRFFT(input=given(uniform(2, 3), tf.complex64), fft_length=given(np.array([6], np.int32))),
    "rfft_negative": lambda given: tf.raw_ops.RFFT(input=given(uniform(2, 3)), fft_length=given(np.array([-1], np.int32))),
    "rfft_lengths": lambda given: tf.raw_ops.RFFT(input=given(uniform(2, 3)), fft_length=given(np.array([1, 1], np.int32), shape=UNKNOWN)),
    "spectrogram_vector": lambda given: tf.raw_ops.AudioSpectrogram(input=given(SOUND[0], shape=UNKNOWN), window_size=4, stride=2),
    "mfcc_matrix": lambda given: tf.raw_ops.Mfcc(spectrogram=given(POWERS[0], shape=UNKNOWN), sample_rate=given(np.int32(8000))),
    "mfcc_rate": lambda given: tf.raw_ops.Mfcc(spectrogram=given(POWERS), sample_rate=given(np.int32(0))),
    "mfcc_rates": lambda given: tf.raw_ops.Mfcc(spectrogram=given(POWERS), sample_rate=given(np.ones(2, np.int32), shape=UNKNOWN)),
    "mfcc_limits": lambda given: tf.raw_ops.Mfcc(
        spectrogram=given(POWERS), sample_rate=given(np.int32(8000)), lower_frequency_limit=50.0, upper_frequency_limit=40.0),
    "mfcc_coefficients": lambda given: tf.raw_ops.Mfcc(
        spectrogram=given(POWERS), sample_rate=given(np.int32(8000)), dct_coefficient_count=50),
    "encode_vector": lambda given: tf.raw_ops.EncodeWav(audio=given(uniform(3), shape=UNKNOWN), sample_rate=given(np.int32(8000))),
    "encode_rate": lambda given: tf.raw_ops.EncodeWav(audio=given(uniform(3, 1)), sample_rate=given(np.int32(0))),
    "encode_no_channels": lambda given: tf.raw_ops.EncodeWav(audio=given(np.zeros((3, 0))), sample_rate=given(np.int32(8000))),
    "decode_vector": lambda given: tf.raw_ops.DecodeWav(contents=given(np.array([b"a"], object), shape=UNKNOWN)).audio,
    "decode_empty": lambda given: decoded(b"")(given).audio,
    "decode_text": lambda given: decoded(b"not a sound")(given).audio,
    "decode_short": lambda given: decoded(wav()[:20])(given).audio,
    "decode_format": lambda given: decoded(wav(format_size=40))(given).audio,
    "decode_kind": lambda given: decoded(wav(kind=3))(given).audio,
    "decode_no_channels": lambda given: decoded(wav(channels=0))(given).audio,
    "decode_bits": lambda given: decoded(wav(bits=8))(given).audio,
    "decode_frame": lambda given: decoded(wav(frame=4))(given).audio,
    "decode_per_second": lambda given: decoded(wav(per_second=5))(given).audio,
    "decode_no_data": lambda given: decoded(wav(rest=b""))(given).audio,
    "decode_cut": lambda given: decoded(wav()[:-1])(given).audio,
    "decode_twice": lambda given: decoded(wav(rest=b"data\0\0\0\0data\0\0\0\0"))(given).audio,
    "decode_large_chunk": lambda given: decoded(wav(rest=b"data\xff\xff\xff\xff"))(given).audio,
}


@pytest.mark.parametrize("name", sorted(FAILURES))
def test_failures_have_the_same_code(op_server, name):
    side_by_side.check_failure(f"test_signal {name}", FAILURES[name], op_server.target)
