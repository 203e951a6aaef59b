//! Packs a second operand once if it stays the same from one product to the next, such as the weights in a loop.
//!
//! [`KeptPanels`] belongs to a kernel that multiplies. Its caller identifies the contents of an operand by numbers, which must differ for
//! different contents. The first product packs the contents block by block, as always. The second one packs all of them into memory
//! that is kept, since a third will probably follow. The result is the same in all cases, to the last bit.

use super::block::{MatrixView, Panels};
use super::kernel::HasMicrokernel;
use super::{MatMulElement, MatMulShape, Operand, narrow};
use crate::scratch::AlignedMemory;
use bytemuck::Pod;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The most bytes of panels that the process keeps. Further operands are packed in each product.
pub const KEPT_BYTES_MAX: usize = 256 << 20;

/// Smaller operands are packed so quickly that keeping their panels gains nothing.
const OPERAND_BYTES_MIN: usize = 4 << 10;

/// The bytes of the panels that are kept now.
static KEPT_BYTES: AtomicUsize = AtomicUsize::new(0);

/// The panels of one operand.
pub struct PackedOperand<T> {
    pub(super) panels: Panels<T>,
    _charge: Charge,
}

/// The panels of the operand of the last products.
pub struct KeptPanels<T> {
    state: Mutex<State<T>>,
}

struct State<T> {
    key: Option<Key>,
    /// The panels: of the contents with the key if they are `current`, otherwise of earlier contents.
    packed: Option<Arc<PackedOperand<T>>>,
    is_current: bool,
}

/// Everything that panels depend on.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    contents: [u64; 3],
    depth: usize,
    columns: usize,
    stored: Operand,
}

impl<T> KeptPanels<T> {
    /// Returns an empty cache.
    pub const fn new() -> KeptPanels<T> {
        KeptPanels { state: Mutex::new(State { key: None, packed: None, is_current: false }) }
    }
}

impl<T> Default for KeptPanels<T> {
    fn default() -> KeptPanels<T> {
        KeptPanels::new()
    }
}

impl<T: MatMulElement> KeptPanels<T> {
    /// Returns the panels of a product's second operand if it has been multiplied before. Contents with the same numbers must be equal;
    /// without numbers nothing is kept.
    pub fn of(
        &self,
        shape: MatMulShape,
        b: &[T],
        contents: impl FnOnce() -> Option<[u64; 3]>,
    ) -> Option<Arc<PackedOperand<T>>> {
        if size_of_val(b) < OPERAND_BYTES_MIN || !T::PACKS || narrow::is_narrow(shape) {
            return None;
        }
        let contents = contents()?;
        let key = Key { contents, depth: shape.k, columns: shape.n, stored: shape.b };
        // While another thread packs, this one multiplies without kept panels.
        let mut state = self.state.try_lock().ok()?;
        if state.key != Some(key) {
            state.key = Some(key);
            state.is_current = false;
            return None;
        }
        if !state.is_current {
            // Unused panels are overwritten, since fresh pages cost more than packing.
            let before = state.packed.take().and_then(Arc::into_inner);
            state.packed = T::pack(shape, b, before).map(Arc::new);
            state.is_current = true;
        }
        state.packed.clone()
    }
}

/// Packs the second operand of a product, unless that would exceed the bound.
pub(super) fn pack<T: HasMicrokernel + Pod>(
    shape: MatMulShape,
    b: &[T],
    before: Option<PackedOperand<T>>,
) -> Option<PackedOperand<T>> {
    let MatMulShape { k, n, .. } = shape;
    let bytes = Panels::<T>::bytes(k, n);
    let (memory, charge) = match before {
        Some(PackedOperand { panels, _charge }) if _charge.0 == bytes => (panels.into_memory(), _charge),
        before => {
            drop(before);
            let charge = Charge::take(bytes)?;
            (AlignedMemory::zeroed(bytes), charge)
        }
    };
    let view = match shape.b {
        Operand::Plain => MatrixView { data: b, row_stride: n, column_stride: 1 },
        Operand::Transposed | Operand::Adjoint => MatrixView { data: b, row_stride: 1, column_stride: k },
    };
    Some(PackedOperand { panels: Panels::pack(view, k, n, memory), _charge: charge })
}

/// Bytes that count as kept until this is dropped.
struct Charge(usize);

impl Charge {
    fn take(bytes: usize) -> Option<Charge> {
        let add = |kept: usize| kept.checked_add(bytes).filter(|&kept| kept <= KEPT_BYTES_MAX);
        KEPT_BYTES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok().map(|_| Charge(bytes))
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        KEPT_BYTES.fetch_sub(self.0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matmul::{matmul, matmul_with};

    fn values(len: usize, seed: usize) -> Vec<f32> {
        (0..len).map(|i| ((i * 7 + seed * 5 + i / 3) % 97) as f32 / 7.0 - 6.0).collect()
    }

    #[test]
    fn kept_panels_give_the_same_bits() {
        for (m, k, n) in [(3, 40, 50), (12, 33, 65), (25, 700, 33), (130, 900, 100), (300, 129, 257), (9, 4000, 8)] {
            for a_stored in [Operand::Plain, Operand::Transposed] {
                for b_stored in [Operand::Plain, Operand::Transposed] {
                    let shape = MatMulShape::new(m, k, n).stored(a_stored, b_stored);
                    let (a, b) = (values(m * k, 1), values(k * n, 2));
                    let mut expected = vec![f32::NAN; m * n];
                    matmul(shape, &a, &b, &mut expected);
                    let kept = KeptPanels::new();
                    for turn in 0..3 {
                        let packed = kept.of(shape, &b, || Some([1, 2, 3]));
                        let is_wanted = size_of_val(&b[..]) >= OPERAND_BYTES_MIN && !narrow::is_narrow(shape);
                        assert_eq!(packed.is_some(), turn > 0 && is_wanted, "{shape:?}");
                        let mut out = vec![f32::NAN; m * n];
                        matmul_with(shape, &a, &b, packed.as_deref(), &mut out);
                        assert!(out == expected, "{shape:?} turn {turn}");
                    }
                }
            }
        }
    }

    #[test]
    fn zeros_are_left_out_and_infinities_are_seen_with_kept_panels_too() {
        let (m, k, n) = (100, 784, 100);
        let shape = MatMulShape::new(m, k, n);
        let a: Vec<f32> = (0..m * k).map(|i| if i % k > 600 { 1.0 } else { 0.0 }).collect();
        let mut b = values(k * n, 2);
        for infinite in [false, true] {
            if infinite {
                b[5 * n + 70] = f32::INFINITY;
            }
            let mut expected = vec![0.0; m * n];
            matmul(shape, &a, &b, &mut expected);
            assert_eq!(expected.iter().any(|x| x.is_nan()), infinite);
            let kept = KeptPanels::new();
            kept.of(shape, &b, || Some([1, 2, 3]));
            let packed = kept.of(shape, &b, || Some([1, 2, 3])).expect("the second time");
            let mut out = vec![0.0; m * n];
            matmul_with(shape, &a, &b, Some(&packed), &mut out);
            assert!(out.iter().zip(&expected).all(|(x, y)| x.to_bits() == y.to_bits()), "infinite: {infinite}");
        }
    }

    #[test]
    fn other_contents_are_packed_anew_and_old_panels_stay_right() {
        let shape = MatMulShape::new(30, 64, 64);
        let (a, first, second) = (values(30 * 64, 1), values(64 * 64, 2), values(64 * 64, 3));
        let product = |b: &[f32], packed: Option<&PackedOperand<f32>>| {
            let mut out = vec![0.0; 30 * 64];
            matmul_with(shape, &a, b, packed, &mut out);
            out
        };
        let kept = KeptPanels::new();
        assert!(kept.of(shape, &first, || Some([1, 0, 0])).is_none());
        let of_first = kept.of(shape, &first, || Some([1, 0, 0])).expect("the second time");
        assert!(kept.of(shape, &second, || Some([2, 0, 0])).is_none(), "other contents");
        let of_second = kept.of(shape, &second, || Some([2, 0, 0])).expect("the second time");
        assert!(product(&first, Some(&of_first)) == product(&first, None));
        assert!(product(&second, Some(&of_second)) == product(&second, None));
        // Nobody else has these panels, so their memory is used again.
        drop((of_first, of_second));
        assert!(kept.of(shape, &first, || Some([3, 0, 0])).is_none());
        let again = kept.of(shape, &first, || Some([3, 0, 0])).expect("the second time");
        assert!(product(&first, Some(&again)) == product(&first, None));
        // The same contents, read as a transposed matrix, are a different operand.
        assert!(kept.of(shape.stored(Operand::Plain, Operand::Transposed), &first, || Some([3, 0, 0])).is_none());
    }

    #[test]
    fn what_is_kept_is_bounded() {
        assert!(Charge::take(KEPT_BYTES_MAX + 1).is_none());
        assert!(Charge::take(usize::MAX).is_none());
        let half = Charge::take(KEPT_BYTES_MAX / 2 + 1).expect("tests keep little");
        assert!(Charge::take(KEPT_BYTES_MAX / 2).is_none());
        drop(half);
        assert!(Charge::take(KEPT_BYTES_MAX / 2).is_some());
    }
}
