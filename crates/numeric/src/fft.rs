//! Discrete Fourier transforms along one axis of an array.

use crate::parallel;
use num_complex::Complex64;
use rustfft::{Fft, FftPlanner};
use std::sync::Arc;

/// How many strided lines are copied together: as many as share the cache lines that are read.
const LINES_TOGETHER: usize = 8;

/// The approximate cost of one number of a transform per doubling of its length.
const NS_PER_ELEMENT_AND_LEVEL: f64 = 1.0;

/// A transform of one length in one direction.
#[derive(Clone)]
pub struct Transform {
    fft: Arc<dyn Fft<f64>>,
    inverse: bool,
}

impl Transform {
    /// Prepares the transform of `len` numbers. The inverse is not divided by the length.
    pub fn new(len: usize, inverse: bool) -> Transform {
        let mut planner = FftPlanner::new();
        let fft = if inverse { planner.plan_fft_inverse(len) } else { planner.plan_fft_forward(len) };
        Transform { fft, inverse }
    }

    /// Returns whether this is the transform of this length and direction.
    pub fn is_for(&self, len: usize, inverse: bool) -> bool {
        self.fft.len() == len && self.inverse == inverse
    }

    /// Transforms an array of the shape `[?, len, inner]` along its second axis.
    pub fn run(&self, values: &mut [Complex64], inner: usize) {
        let len = self.fft.len();
        if values.is_empty() || len == 0 || inner == 0 {
            return;
        }
        let block = len * inner;
        assert_eq!(values.len() % block, 0, "the array holds whole lines");
        let cost_ns = block as f64 * (len as f64).log2().max(1.0) * NS_PER_ELEMENT_AND_LEVEL;
        parallel::for_each_chunk_mut(values, block, cost_ns, |_, values| {
            let mut scratch = vec![Complex64::default(); self.fft.get_inplace_scratch_len()];
            if inner == 1 {
                self.fft.process_with_scratch(values, &mut scratch);
                return;
            }
            let mut lines = vec![Complex64::default(); len * inner.min(LINES_TOGETHER)];
            for block in values.chunks_exact_mut(block) {
                for first in (0..inner).step_by(LINES_TOGETHER) {
                    let count = LINES_TOGETHER.min(inner - first);
                    let lines = &mut lines[..count * len];
                    for (index, row) in block.chunks_exact(inner).enumerate() {
                        (0..count).for_each(|line| lines[line * len + index] = row[first + line]);
                    }
                    self.fft.process_with_scratch(lines, &mut scratch);
                    for (index, row) in block.chunks_exact_mut(inner).enumerate() {
                        (0..count).for_each(|line| row[first + line] = lines[line * len + index]);
                    }
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(count: usize) -> Vec<Complex64> {
        (0..count).map(|index| Complex64::new((index as f64 * 0.7).sin(), (index as f64 * 1.3).cos())).collect()
    }

    /// The sum that defines the transform.
    fn defined(line: &[Complex64], inverse: bool) -> Vec<Complex64> {
        let turn = std::f64::consts::TAU / line.len() as f64 * if inverse { 1.0 } else { -1.0 };
        let term = |at: usize, index: usize, value: &Complex64| value * Complex64::cis(turn * (at * index) as f64);
        (0..line.len()).map(|at| line.iter().enumerate().map(|(index, value)| term(at, index, value)).sum()).collect()
    }

    #[test]
    fn lines_of_any_length_along_any_axis_have_their_transforms() {
        for len in [1, 2, 3, 8, 12, 13, 30] {
            for inner in [1, 2, 9] {
                for inverse in [false, true] {
                    let before = wave(2 * len * inner);
                    let mut after = before.clone();
                    Transform::new(len, inverse).run(&mut after, inner);
                    for (outer, line) in (0..2).flat_map(|outer| (0..inner).map(move |line| (outer, line))) {
                        let at = |index: usize| (outer * len + index) * inner + line;
                        let given: Vec<Complex64> = (0..len).map(|index| before[at(index)]).collect();
                        for (index, expected) in defined(&given, inverse).into_iter().enumerate() {
                            let got = after[at(index)];
                            assert!((got - expected).norm() < 1e-9, "{len} {inner} {inverse}: {got} and {expected}");
                        }
                    }
                }
            }
        }
        Transform::new(0, false).run(&mut [], 3);
    }

    #[test]
    fn a_transform_is_known_by_its_length_and_direction() {
        let transform = Transform::new(6, true);
        assert!(transform.is_for(6, true) && !transform.is_for(6, false) && !transform.is_for(5, true));
    }
}
