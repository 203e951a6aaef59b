//! FarmHash's `Fingerprint64`: the hash by which TensorFlow puts strings into buckets, the same on every machine.

const K0: u64 = 0xc3a5_c85c_97cb_3127;
const K1: u64 = 0xb492_b66f_be98_f273;
const K2: u64 = 0x9ae1_6a3b_2f90_404f;

/// Returns the fingerprint of some bytes.
pub(crate) fn fingerprint64(bytes: &[u8]) -> u64 {
    match bytes.len() {
        0..=16 => up_to_16(bytes),
        17..=32 => up_to_32(bytes),
        33..=64 => up_to_64(bytes),
        _ => longer(bytes),
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

fn half_word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u64::from(u32::from_le_bytes(word))
}

fn shift_mix(value: u64) -> u64 {
    value ^ value >> 47
}

fn combine(u: u64, v: u64, multiplier: u64) -> u64 {
    let a = shift_mix((u ^ v).wrapping_mul(multiplier));
    shift_mix((v ^ a).wrapping_mul(multiplier)).wrapping_mul(multiplier)
}

fn multiplier_for(len: usize) -> u64 {
    K2.wrapping_add(len as u64 * 2)
}

fn up_to_16(bytes: &[u8]) -> u64 {
    let len = bytes.len();
    if len >= 8 {
        let multiplier = multiplier_for(len);
        let a = word(bytes, 0).wrapping_add(K2);
        let b = word(bytes, len - 8);
        let c = b.rotate_right(37).wrapping_mul(multiplier).wrapping_add(a);
        let d = a.rotate_right(25).wrapping_add(b).wrapping_mul(multiplier);
        return combine(c, d, multiplier);
    }
    if len >= 4 {
        let a = half_word(bytes, 0);
        return combine((len as u64).wrapping_add(a << 3), half_word(bytes, len - 4), multiplier_for(len));
    }
    if len > 0 {
        let (a, b, c) = (u64::from(bytes[0]), u64::from(bytes[len / 2]), u64::from(bytes[len - 1]));
        let (y, z) = (a + (b << 8), len as u64 + (c << 2));
        return shift_mix(y.wrapping_mul(K2) ^ z.wrapping_mul(K0)).wrapping_mul(K2);
    }
    K2
}

fn up_to_32(bytes: &[u8]) -> u64 {
    let len = bytes.len();
    let multiplier = multiplier_for(len);
    let a = word(bytes, 0).wrapping_mul(K1);
    let b = word(bytes, 8);
    let c = word(bytes, len - 8).wrapping_mul(multiplier);
    let d = word(bytes, len - 16).wrapping_mul(K2);
    combine(
        a.wrapping_add(b).rotate_right(43).wrapping_add(c.rotate_right(30)).wrapping_add(d),
        a.wrapping_add(b.wrapping_add(K2).rotate_right(18)).wrapping_add(c),
        multiplier,
    )
}

fn up_to_64(bytes: &[u8]) -> u64 {
    let len = bytes.len();
    let multiplier = multiplier_for(len);
    let a = word(bytes, 0).wrapping_mul(K2);
    let b = word(bytes, 8);
    let c = word(bytes, len - 8).wrapping_mul(multiplier);
    let d = word(bytes, len - 16).wrapping_mul(K2);
    let y = a.wrapping_add(b).rotate_right(43).wrapping_add(c.rotate_right(30)).wrapping_add(d);
    let z = combine(y, a.wrapping_add(b.wrapping_add(K2).rotate_right(18)).wrapping_add(c), multiplier);
    let e = word(bytes, 16).wrapping_mul(multiplier);
    let f = word(bytes, 24);
    let g = y.wrapping_add(word(bytes, len - 32)).wrapping_mul(multiplier);
    let h = z.wrapping_add(word(bytes, len - 24)).wrapping_mul(multiplier);
    combine(
        e.wrapping_add(f).rotate_right(43).wrapping_add(g.rotate_right(30)).wrapping_add(h),
        e.wrapping_add(f.wrapping_add(a).rotate_right(18)).wrapping_add(g),
        multiplier,
    )
}

/// The state of a long hash: 56 bytes that each 64 bytes of input are mixed into.
struct State {
    x: u64,
    y: u64,
    z: u64,
    v: (u64, u64),
    w: (u64, u64),
}

impl State {
    fn mix(&mut self, block: &[u8], multiplier: u64, last: bool) {
        let (factor_w, factor_v) = if last { (9, 9) } else { (1, 1) };
        let State { x, y, z, v, w } = self;
        *x =
            x.wrapping_add(*y).wrapping_add(v.0).wrapping_add(word(block, 8)).rotate_right(37).wrapping_mul(multiplier);
        *y = y.wrapping_add(v.1).wrapping_add(word(block, 48)).rotate_right(42).wrapping_mul(multiplier);
        *x ^= w.1.wrapping_mul(factor_w);
        *y = y.wrapping_add(v.0.wrapping_mul(factor_v)).wrapping_add(word(block, 40));
        *z = z.wrapping_add(w.0).rotate_right(33).wrapping_mul(multiplier);
        *v = weak(block, v.1.wrapping_mul(multiplier), x.wrapping_add(w.0));
        *w = weak(&block[32..], z.wrapping_add(w.1), y.wrapping_add(word(block, 16)));
        std::mem::swap(z, x);
    }
}

fn weak(block: &[u8], a: u64, b: u64) -> (u64, u64) {
    let (w, x, y, z) = (word(block, 0), word(block, 8), word(block, 16), word(block, 24));
    let a = a.wrapping_add(w);
    let b = b.wrapping_add(a).wrapping_add(z).rotate_right(21);
    let c = a;
    let a = a.wrapping_add(x).wrapping_add(y);
    let b = b.wrapping_add(a.rotate_right(44));
    (a.wrapping_add(z), b.wrapping_add(c))
}

fn longer(bytes: &[u8]) -> u64 {
    const SEED: u64 = 81;
    let y = SEED.wrapping_mul(K1).wrapping_add(113);
    let z = shift_mix(y.wrapping_mul(K2).wrapping_add(113)).wrapping_mul(K2);
    let x = SEED.wrapping_mul(K2).wrapping_add(word(bytes, 0));
    let mut state = State { x, y, z, v: (0, 0), w: (0, 0) };
    // All but the last block, which is the last 64 bytes whether or not they overlap.
    for block in bytes[..(bytes.len() - 1) / 64 * 64].chunks_exact(64) {
        state.mix(block, K1, false);
    }
    let multiplier = K1.wrapping_add((state.z & 0xff) << 1);
    state.w.0 = state.w.0.wrapping_add((bytes.len() as u64 - 1) & 63);
    state.v.0 = state.v.0.wrapping_add(state.w.0);
    state.w.0 = state.w.0.wrapping_add(state.v.0);
    state.mix(&bytes[bytes.len() - 64..], multiplier, true);
    let State { x, y, z, v, w } = state;
    combine(
        combine(v.0, w.0, multiplier).wrapping_add(shift_mix(y).wrapping_mul(K0)).wrapping_add(z),
        combine(v.1, w.1, multiplier).wrapping_add(x),
        multiplier,
    )
}
