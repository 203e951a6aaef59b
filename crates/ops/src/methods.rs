//! [`TensorOps`]: the common ops as methods of an output, so that a model reads from left to right.

use crate::{array, logging, math, nn};
use graph::{IntoOperand, Output};
use tensor::DType;

/// Methods of [`Output`], each of which calls the function that it names. An operand is an output or a number, which takes the
/// output's type.
///
/// ```
/// use graph::Graph;
/// use ops::TensorOps;
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>((None, 784));
/// let w = g.constant([[0.5f32; 10]; 784]);
/// let classes = x.matmul(&w).relu().argmax(1);
/// let is_large = x.mean_axes([1]).greater(0.5);
/// g.finish().unwrap();
/// ```
pub trait TensorOps {
    /// The output itself.
    fn output(&self) -> &Output;

    /// [`math::matmul`].
    #[track_caller]
    fn matmul(&self, other: &Output) -> Output {
        math::matmul(self.output(), other)
    }

    /// [`math::maximum`].
    #[track_caller]
    fn maximum(&self, other: impl IntoOperand) -> Output {
        math::maximum(self.output(), &other.operand(self.output()))
    }

    /// [`math::minimum`].
    #[track_caller]
    fn minimum(&self, other: impl IntoOperand) -> Output {
        math::minimum(self.output(), &other.operand(self.output()))
    }

    /// [`math::pow`].
    #[track_caller]
    fn pow(&self, exponent: impl IntoOperand) -> Output {
        math::pow(self.output(), &exponent.operand(self.output()))
    }

    /// [`math::clip_by_value`].
    #[track_caller]
    fn clip(&self, low: impl IntoOperand, high: impl IntoOperand) -> Output {
        let (low, high) = (low.operand(self.output()), high.operand(self.output()));
        math::clip_by_value(self.output(), &low, &high)
    }

    /// [`array::reshape_to`]; one size may be -1.
    #[track_caller]
    fn reshape(&self, dims: impl AsRef<[i64]>) -> Output {
        array::reshape_to(self.output(), dims.as_ref())
    }

    /// [`array::transpose`].
    #[track_caller]
    fn transpose(&self, permutation: impl AsRef<[i32]>) -> Output {
        array::transpose(self.output(), permutation.as_ref())
    }

    /// [`array::expand_dims`].
    #[track_caller]
    fn expand_dims(&self, axis: i32) -> Output {
        array::expand_dims(self.output(), axis)
    }

    /// [`array::squeeze`].
    #[track_caller]
    fn squeeze(&self, axes: impl AsRef<[i64]>) -> Output {
        array::squeeze(self.output(), axes.as_ref())
    }

    /// [`array::slice`].
    #[track_caller]
    fn slice(&self, begin: impl AsRef<[i64]>, size: impl AsRef<[i64]>) -> Output {
        array::slice(self.output(), begin.as_ref(), size.as_ref())
    }

    /// [`array::gather`] along the first axis.
    #[track_caller]
    fn gather(&self, indices: &Output) -> Output {
        array::gather(self.output(), indices, 0)
    }

    /// [`array::tile`].
    #[track_caller]
    fn tile(&self, multiples: impl AsRef<[i32]>) -> Output {
        array::tile(self.output(), multiples.as_ref())
    }

    /// [`array::split`].
    #[track_caller]
    fn split(&self, count: usize, axis: i32) -> Vec<Output> {
        array::split(self.output(), count, axis)
    }

    /// [`array::unstack`].
    #[track_caller]
    fn unstack(&self, count: usize, axis: i64) -> Vec<Output> {
        array::unstack(self.output(), count, axis)
    }

    /// [`array::concat`] of this and another one.
    #[track_caller]
    fn concat(&self, other: &Output, axis: i32) -> Output {
        array::concat(&[self.output().clone(), other.clone()], axis)
    }

    /// [`array::stack`] of this and another one.
    #[track_caller]
    fn stack(&self, other: &Output, axis: i64) -> Output {
        array::stack(&[self.output().clone(), other.clone()], axis)
    }

    /// [`math::cast`].
    #[track_caller]
    fn cast(&self, dtype: DType) -> Output {
        math::cast(self.output(), dtype)
    }

    /// [`math::argmax`].
    #[track_caller]
    fn argmax(&self, axis: i32) -> Output {
        math::argmax(self.output(), axis)
    }

    /// [`math::argmin`].
    #[track_caller]
    fn argmin(&self, axis: i32) -> Output {
        math::argmin(self.output(), axis)
    }

    /// [`nn::bias_add`].
    #[track_caller]
    fn bias_add(&self, bias: &Output) -> Output {
        nn::bias_add(self.output(), bias)
    }

    /// [`array::stop_gradient`].
    #[track_caller]
    fn stop_gradient(&self) -> Output {
        array::stop_gradient(self.output())
    }

    /// [`nn::softmax_cross_entropy_with_logits`] of these logits.
    #[track_caller]
    fn softmax_cross_entropy(&self, labels: nn::Labels<'_>) -> Output {
        nn::softmax_cross_entropy_with_logits(labels, self.output())
    }

    /// [`nn::sparse_softmax_cross_entropy_with_logits`] of these logits.
    #[track_caller]
    fn sparse_softmax_cross_entropy(&self, labels: nn::Labels<'_>) -> Output {
        nn::sparse_softmax_cross_entropy_with_logits(labels, self.output())
    }

    /// [`nn::sigmoid_cross_entropy_with_logits`] of these logits.
    #[track_caller]
    fn sigmoid_cross_entropy(&self, labels: nn::Labels<'_>) -> Output {
        nn::sigmoid_cross_entropy_with_logits(labels, self.output())
    }

    /// [`nn::relu`].
    #[track_caller]
    fn relu(&self) -> Output {
        nn::relu(self.output())
    }

    /// [`nn::softmax`].
    #[track_caller]
    fn softmax(&self) -> Output {
        nn::softmax(self.output())
    }

    /// [`nn::log_softmax`].
    #[track_caller]
    fn log_softmax(&self) -> Output {
        nn::log_softmax(self.output())
    }

    /// [`math::sigmoid`].
    #[track_caller]
    fn sigmoid(&self) -> Output {
        math::sigmoid(self.output())
    }

    /// [`math::tanh`].
    #[track_caller]
    fn tanh(&self) -> Output {
        math::tanh(self.output())
    }

    /// [`math::exp`].
    #[track_caller]
    fn exp(&self) -> Output {
        math::exp(self.output())
    }

    /// [`math::log`].
    #[track_caller]
    fn log(&self) -> Output {
        math::log(self.output())
    }

    /// [`math::sqrt`].
    #[track_caller]
    fn sqrt(&self) -> Output {
        math::sqrt(self.output())
    }

    /// [`math::rsqrt`].
    #[track_caller]
    fn rsqrt(&self) -> Output {
        math::rsqrt(self.output())
    }

    /// [`math::square`].
    #[track_caller]
    fn square(&self) -> Output {
        math::square(self.output())
    }

    /// [`math::abs`].
    #[track_caller]
    fn abs(&self) -> Output {
        math::abs(self.output())
    }

    /// [`math::logical_not`].
    #[track_caller]
    fn logical_not(&self) -> Output {
        math::logical_not(self.output())
    }

    /// [`array::zeros_like`].
    #[track_caller]
    fn zeros_like(&self) -> Output {
        array::zeros_like(self.output())
    }

    /// [`array::ones_like`].
    #[track_caller]
    fn ones_like(&self) -> Output {
        array::ones_like(self.output())
    }

    /// [`nn::relu6`].
    #[track_caller]
    fn relu6(&self) -> Output {
        nn::relu6(self.output())
    }

    /// [`nn::elu`].
    #[track_caller]
    fn elu(&self) -> Output {
        nn::elu(self.output())
    }

    /// [`nn::leaky_relu`].
    #[track_caller]
    fn leaky_relu(&self) -> Output {
        nn::leaky_relu(self.output())
    }

    /// [`nn::softplus`].
    #[track_caller]
    fn softplus(&self) -> Output {
        nn::softplus(self.output())
    }

    /// [`math::expm1`].
    #[track_caller]
    fn expm1(&self) -> Output {
        math::expm1(self.output())
    }

    /// [`math::log1p`].
    #[track_caller]
    fn log1p(&self) -> Output {
        math::log1p(self.output())
    }

    /// [`math::reciprocal`].
    #[track_caller]
    fn reciprocal(&self) -> Output {
        math::reciprocal(self.output())
    }

    /// [`math::sign`].
    #[track_caller]
    fn sign(&self) -> Output {
        math::sign(self.output())
    }

    /// [`math::floor`].
    #[track_caller]
    fn floor(&self) -> Output {
        math::floor(self.output())
    }

    /// [`math::ceil`].
    #[track_caller]
    fn ceil(&self) -> Output {
        math::ceil(self.output())
    }

    /// [`math::round`].
    #[track_caller]
    fn round(&self) -> Output {
        math::round(self.output())
    }

    /// [`math::sin`].
    #[track_caller]
    fn sin(&self) -> Output {
        math::sin(self.output())
    }

    /// [`math::cos`].
    #[track_caller]
    fn cos(&self) -> Output {
        math::cos(self.output())
    }

    /// [`math::erf`].
    #[track_caller]
    fn erf(&self) -> Output {
        math::erf(self.output())
    }

    /// [`math::is_finite`].
    #[track_caller]
    fn is_finite(&self) -> Output {
        math::is_finite(self.output())
    }

    /// [`math::is_nan`].
    #[track_caller]
    fn is_nan(&self) -> Output {
        math::is_nan(self.output())
    }

    /// [`math::logical_and`].
    #[track_caller]
    fn logical_and(&self, other: &Output) -> Output {
        math::logical_and(self.output(), other)
    }

    /// [`math::logical_or`].
    #[track_caller]
    fn logical_or(&self, other: &Output) -> Output {
        math::logical_or(self.output(), other)
    }

    /// [`math::where_v2`]: `yes` where this is true and `no` elsewhere.
    #[track_caller]
    fn select(&self, yes: &Output, no: impl IntoOperand) -> Output {
        math::where_v2(self.output(), yes, &no.operand(yes))
    }

    /// [`array::strided_slice`]: a number, a range or a tuple of them, as Python's `x[0, 1:-1]` is `x.index((0, 1..-1))`.
    #[track_caller]
    fn index(&self, entries: impl array::IntoSliceIndices) -> Output {
        array::strided_slice(self.output(), &entries.slice_indices())
    }

    /// [`array::one_hot`] of ones and zeros.
    #[track_caller]
    fn one_hot(&self, depth: i32) -> Output {
        array::one_hot(self.output(), depth, 1.0, 0.0)
    }

    /// [`array::pad`]: for each axis, the numbers of zeros before and after.
    #[track_caller]
    fn pad(&self, paddings: impl AsRef<[(i32, i32)]>) -> Output {
        array::pad(self.output(), paddings.as_ref())
    }

    /// [`array::reverse`].
    #[track_caller]
    fn reverse(&self, axes: impl AsRef<[i32]>) -> Output {
        array::reverse(self.output(), axes.as_ref())
    }

    /// [`nn::top_k`]: the values, and their positions.
    #[track_caller]
    fn top_k(&self, k: i32) -> (Output, Output) {
        nn::top_k(self.output(), k)
    }

    /// [`math::cumsum`], inclusive.
    #[track_caller]
    fn cumsum(&self, axis: i32) -> Output {
        math::cumsum(self.output(), axis, false, false)
    }

    /// [`logging::print`]: prints the value with a message whenever it is computed, on the task that computes it.
    #[track_caller]
    fn print(&self, message: &str) -> Output {
        logging::print(self.output(), &[self.output().clone()], message)
    }

    /// [`math::reduce_euclidean_norm`] over everything.
    #[track_caller]
    fn norm(&self) -> Output {
        math::reduce_euclidean_norm(self.output(), None, false)
    }

    /// [`math::reduce_all`] over everything.
    #[track_caller]
    fn all(&self) -> Output {
        math::reduce_all(self.output(), None, false)
    }

    /// [`math::reduce_any`] over everything.
    #[track_caller]
    fn any(&self) -> Output {
        math::reduce_any(self.output(), None, false)
    }

    /// [`math::reduce_logsumexp`] over axes, which may be negative.
    #[track_caller]
    fn logsumexp_axes(&self, axes: impl AsRef<[i32]>) -> Output {
        math::reduce_logsumexp(self.output(), Some(axes.as_ref()), false)
    }

    /// [`math::reduce_sum`] over axes, which stay as dimensions of one element.
    #[track_caller]
    fn sum_keep_dims(&self, axes: impl AsRef<[i32]>) -> Output {
        math::reduce_sum(self.output(), Some(axes.as_ref()), true)
    }

    /// [`math::reduce_mean`] over axes, which stay as dimensions of one element.
    #[track_caller]
    fn mean_keep_dims(&self, axes: impl AsRef<[i32]>) -> Output {
        math::reduce_mean(self.output(), Some(axes.as_ref()), true)
    }

    /// [`math::reduce_max`] over axes, which stay as dimensions of one element.
    #[track_caller]
    fn max_keep_dims(&self, axes: impl AsRef<[i32]>) -> Output {
        math::reduce_max(self.output(), Some(axes.as_ref()), true)
    }

    /// [`math::equal`].
    #[track_caller]
    fn equal(&self, other: impl IntoOperand) -> Output {
        math::equal(self.output(), &other.operand(self.output()))
    }

    /// [`math::not_equal`].
    #[track_caller]
    fn not_equal(&self, other: impl IntoOperand) -> Output {
        math::not_equal(self.output(), &other.operand(self.output()))
    }

    /// [`math::less`].
    #[track_caller]
    fn less(&self, other: impl IntoOperand) -> Output {
        math::less(self.output(), &other.operand(self.output()))
    }

    /// [`math::less_equal`].
    #[track_caller]
    fn less_equal(&self, other: impl IntoOperand) -> Output {
        math::less_equal(self.output(), &other.operand(self.output()))
    }

    /// [`math::greater`].
    #[track_caller]
    fn greater(&self, other: impl IntoOperand) -> Output {
        math::greater(self.output(), &other.operand(self.output()))
    }

    /// [`math::greater_equal`].
    #[track_caller]
    fn greater_equal(&self, other: impl IntoOperand) -> Output {
        math::greater_equal(self.output(), &other.operand(self.output()))
    }

    /// [`math::reduce_sum`] over everything.
    #[track_caller]
    fn sum(&self) -> Output {
        math::reduce_sum(self.output(), None, false)
    }

    /// [`math::reduce_sum`] over axes, which may be negative.
    #[track_caller]
    fn sum_axes(&self, axes: impl AsRef<[i32]>) -> Output {
        math::reduce_sum(self.output(), Some(axes.as_ref()), false)
    }

    /// [`math::reduce_mean`] over everything.
    #[track_caller]
    fn mean(&self) -> Output {
        math::reduce_mean(self.output(), None, false)
    }

    /// [`math::reduce_mean`] over axes, which may be negative.
    #[track_caller]
    fn mean_axes(&self, axes: impl AsRef<[i32]>) -> Output {
        math::reduce_mean(self.output(), Some(axes.as_ref()), false)
    }

    /// [`math::reduce_max`] over everything.
    #[track_caller]
    fn max(&self) -> Output {
        math::reduce_max(self.output(), None, false)
    }

    /// [`math::reduce_max`] over axes, which may be negative.
    #[track_caller]
    fn max_axes(&self, axes: impl AsRef<[i32]>) -> Output {
        math::reduce_max(self.output(), Some(axes.as_ref()), false)
    }

    /// [`math::reduce_min`] over everything.
    #[track_caller]
    fn min(&self) -> Output {
        math::reduce_min(self.output(), None, false)
    }

    /// [`math::reduce_min`] over axes, which may be negative.
    #[track_caller]
    fn min_axes(&self, axes: impl AsRef<[i32]>) -> Output {
        math::reduce_min(self.output(), Some(axes.as_ref()), false)
    }

    /// [`math::reduce_prod`] over everything.
    #[track_caller]
    fn prod(&self) -> Output {
        math::reduce_prod(self.output(), None, false)
    }

    /// [`math::reduce_prod`] over axes, which may be negative.
    #[track_caller]
    fn prod_axes(&self, axes: impl AsRef<[i32]>) -> Output {
        math::reduce_prod(self.output(), Some(axes.as_ref()), false)
    }
}

impl TensorOps for Output {
    fn output(&self) -> &Output {
        self
    }
}
