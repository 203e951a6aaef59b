//! Pixels as bytes, and as numbers from 0 to 1.

use cpu_macros::each_level;

/// Writes each byte as the fraction of 255 that it is. The division is a real one, so that the numbers are what TensorFlow's
/// programs feed, to the last bit.
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
