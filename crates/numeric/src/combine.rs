//! The same elements of several slices combined into one, in a single pass over memory: what a reduction among devices computes.
//!
//! ```
//! let mut mean = [0.0f32; 2];
//! numeric::combine::combine(&[&[1.0, 2.0], &[3.0, 4.0]], &mut mean, |x, y| x + y, Some(|sum| sum / 2.0));
//! assert_eq!(mean, [2.0, 3.0]);
//! ```

use crate::elementwise::{BroadcastPlan, CHEAP, binary, binary_in_place_left, unary_in_place};
use crate::parallel;

/// So many elements of the output stay in the first cache until all slices were added to them.
const BLOCK: usize = 2 << 10;

/// Computes `out[i] = finish(merge(merge(parts[0][i], parts[1][i]), parts[2][i]) …)`. There are two parts or more, as long as the output.
pub fn combine<T: Copy + Send + Sync>(
    parts: &[&[T]],
    out: &mut [T],
    merge: impl Fn(T, T) -> T + Sync,
    finish: Option<impl Fn(T) -> T + Sync>,
) {
    assert!(parts.iter().all(|part| part.len() == out.len()), "parts and output differ in length");
    let [first, second, rest @ ..] = parts else { panic!("there is nothing to combine") };
    parallel::for_each_chunk_mut(out, 1, CHEAP * parts.len() as f64, |start, chunk| {
        for (number, block) in chunk.chunks_mut(BLOCK).enumerate() {
            let from = start + number * BLOCK;
            let range = from..from + block.len();
            let plan = BroadcastPlan::same_shape(block.len());
            binary(&first[range.clone()], &second[range.clone()], block, &plan, &merge);
            for part in rest {
                binary_in_place_left(block, &part[range.clone()], &plan, &merge);
            }
            if let Some(finish) = &finish {
                unary_in_place(block, finish);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_are_combined_in_their_order() {
        for count in [0, 1, BLOCK - 1, 3 * BLOCK + 5, 1 << 20] {
            let part = |number: usize| (0..count).map(|index| (index % 251 * number) as i64).collect::<Vec<i64>>();
            let parts: Vec<Vec<i64>> = (1..5).map(part).collect();
            for used in 2..=4 {
                let slices: Vec<&[i64]> = parts[..used].iter().map(Vec::as_slice).collect();
                let mut out = vec![-1; count];
                combine(&slices, &mut out, |x, y| 2 * x + y, Some(|x| x + 1));
                for (index, value) in out.iter().enumerate() {
                    let expected = parts[1..used].iter().fold(parts[0][index], |sum, part| 2 * sum + part[index]) + 1;
                    assert_eq!(*value, expected, "{index} of {count}, {used} parts");
                }
                combine(&slices, &mut out, |_, y| y, None::<fn(i64) -> i64>);
                assert_eq!(out, parts[used - 1]);
            }
        }
    }
}
