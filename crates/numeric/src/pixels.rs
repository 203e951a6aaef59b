//! Converts pixels from bytes to numbers between 0 and 1.

use cpu_macros::each_level;

/// Writes each byte divided by 255. It divides rather than multiplying by the reciprocal, so that the numbers equal those that
/// TensorFlow programs feed, to the last bit.
#[each_level]
pub fn fractions(bytes: &[u8], to: &mut [f32]) {
    assert_eq!(bytes.len(), to.len(), "bytes and fractions differ in length");
    for (to, &byte) in to.iter_mut().zip(bytes) {
        *to = f32::from(byte) / 255.0;
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_byte_is_its_fraction() {
        let bytes: Vec<u8> = (0..=255).collect();
        let mut fractions = vec![0f32; 256];
        super::fractions(&bytes, &mut fractions);
        assert!(bytes.iter().zip(&fractions).all(|(&byte, &fraction)| fraction == f32::from(byte) / 255.0));
        assert_eq!((fractions[0], fractions[51], fractions[255]), (0.0, 0.2, 1.0));
    }
}
