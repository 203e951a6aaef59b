//! Loops on plain slices: the arithmetic that op kernels call.
//!
//! This crate knows nothing of tensors, graphs or messages. Callers validate the arguments; lengths that do not match are a
//! bug of the caller, and panic at entry, before any memory is touched.
//!
//! The binary is built for baseline x86-64. Hot loops are compiled once more for each better instruction set (by the attribute
//! `each_level`, or as a `#[target_feature]` function where the registers matter), and the crate `cpu` says which one is used.
//! All threads come from [`parallel`].

pub mod batch_norm;
pub mod bias;
pub mod combine;
pub mod compute_threads;
pub mod conv;
pub mod ctc;
pub mod denormals;
pub mod elementwise;
pub mod environment;
pub mod fft;
pub mod float;
pub mod fused;
pub mod idle;
pub mod linalg;
pub mod matmul;
pub mod optimizer;
pub mod parallel;
pub mod philox;
pub mod pixels;
pub mod pool;
mod prefetch;
pub mod reduce;
pub mod scatter;
pub mod scratch;
mod simd;
pub mod simd_math;
pub mod slice_copy;
pub mod softmax;
pub mod special;
pub mod stable;
mod strided;
pub mod transpose;
pub mod watchdog;
