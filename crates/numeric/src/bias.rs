//! Adding a bias for each channel, and its gradient.

use crate::elementwise::{BroadcastPlan, binary, binary_in_place_left};
use crate::reduce::{ReducePlan, Reducer, Sum, reduce};
use crate::simd::MulAdd;

/// The position of the channel axis in a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channels {
    /// The last axis (NHWC).
    Last,
    /// An axis followed by `inner` elements for each channel (NCHW).
    Before {
        /// Elements of one channel of one example.
        inner: usize,
    },
}

/// Writes `a + bias`, with the bias of each element's channel.
pub fn bias_add<T: MulAdd + Send + Sync>(a: &[T], bias: &[T], channels: Channels, out: &mut [T]) {
    if !a.is_empty() {
        binary(a, bias, out, &plan(a.len(), bias.len(), channels), |x, y| x.plus(y));
    }
}

/// Adds the bias of each element's channel to `a`.
pub fn bias_add_in_place<T: MulAdd + Send + Sync>(a: &mut [T], bias: &[T], channels: Channels) {
    if !a.is_empty() {
        let plan = plan(a.len(), bias.len(), channels);
        binary_in_place_left(a, bias, &plan, |x, y| x.plus(y));
    }
}

/// Writes the gradient of the bias: the sum of the gradient over each channel.
pub fn bias_add_grad<T: Copy + Send + Sync>(gradient: &[T], channels: Channels, out: &mut [T])
where
    Sum: Reducer<T>,
{
    let plan = match channels {
        Channels::Last => ReducePlan::new(&[rows(gradient.len(), out.len()), out.len()], &[0]),
        Channels::Before { inner } => {
            ReducePlan::new(&[rows(gradient.len(), out.len() * inner), out.len(), inner], &[0, 2])
        }
    };
    reduce::<Sum, T>(gradient, out, &plan);
}

fn rows(len: usize, row_len: usize) -> usize {
    len.checked_div(row_len).unwrap_or(0)
}

fn plan(len: usize, bias_len: usize, channels: Channels) -> BroadcastPlan {
    let plan = match channels {
        Channels::Last => BroadcastPlan::new(&[rows(len, bias_len), bias_len], &[bias_len]),
        Channels::Before { inner } => {
            BroadcastPlan::new(&[rows(len, bias_len * inner), bias_len, inner], &[bias_len, 1])
        }
    };
    plan.expect("a bias fits its own channels")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_layouts() {
        let a: Vec<i32> = (0..12).collect();
        let mut out = [0; 12];
        bias_add(&a, &[100, 200, 300], Channels::Last, &mut out);
        assert_eq!(out, [100, 201, 302, 103, 204, 305, 106, 207, 308, 109, 210, 311]);
        let mut out: [i32; 12] = a.clone().try_into().unwrap();
        bias_add_in_place(&mut out, &[100, 200, 300], Channels::Before { inner: 2 });
        assert_eq!(out, [100, 101, 202, 203, 304, 305, 106, 107, 208, 209, 310, 311]);
        let mut gradient = [0; 3];
        bias_add_grad(&a, Channels::Last, &mut gradient);
        assert_eq!(gradient, [18, 22, 26]);
        bias_add_grad(&a, Channels::Before { inner: 2 }, &mut gradient);
        assert_eq!(gradient, [14, 22, 30]);
    }

    #[test]
    fn nothing_has_no_gradient() {
        let mut gradient = [1.0f32; 3];
        bias_add_grad(&[], Channels::Last, &mut gradient);
        assert_eq!(gradient, [0.0; 3]);
        bias_add(&[] as &[f32], &[1.0], Channels::Last, &mut []);
    }
}
