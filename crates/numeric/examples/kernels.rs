//! Prints the speed of the main loops on this machine: `cargo run --release -p ferroflow-numeric --example kernels [name part]`.

use numeric::conv::{ConvShape, conv, conv_filter_grad, conv_input_grad};
use numeric::elementwise::{BroadcastPlan, binary, binary_in_place_left};
use numeric::matmul::{Epilogue, MatMulShape, Operand, matmul};
use std::time::Instant;

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let bench = Bench { filter };
    matmuls(&bench);
    elementwise(&bench);
    functions(&bench);
    convolutions(&bench);
}

struct Bench {
    filter: String,
}

impl Bench {
    /// Runs `body` for a while and prints its best time, and `amount` billions per second.
    fn run(&self, name: &str, amount: f64, unit: &str, mut body: impl FnMut()) {
        if !name.contains(&self.filter) {
            return;
        }
        for threads in [1, 0] {
            let mut best = f64::MAX;
            body();
            numeric::parallel::set_threads(threads);
            let start = Instant::now();
            while start.elapsed().as_secs_f64() < 0.5 {
                // A single thread is timed by its CPU clock, which other load on the machine does not affect.
                let (begin, thread_begin) = (Instant::now(), thread_seconds());
                body();
                let wall = begin.elapsed().as_secs_f64();
                best = best.min(if threads == 1 { thread_seconds() - thread_begin } else { wall });
            }
            let rate = amount / best / 1e9;
            let who = if threads == 1 { "one thread" } else { "all threads" };
            println!("{name:48} {who:12} {:10.1} µs {rate:9.1} {unit}", best * 1e6);
        }
    }
}

/// Returns the CPU time of this thread.
fn thread_seconds() -> f64 {
    unsafe extern "C" {
        fn clock_gettime(clock: i32, time: *mut [i64; 2]) -> i32;
    }
    const THREAD_CLOCK: i32 = 3;
    let mut time = [0i64; 2];
    // SAFETY: on 64-bit Linux a timespec is two 64-bit integers.
    unsafe { clock_gettime(THREAD_CLOCK, &mut time) };
    time[0] as f64 + time[1] as f64 * 1e-9
}

fn ramp(len: usize) -> Vec<f32> {
    (0..len).map(|i| (i % 17) as f32 / 17.0 - 0.5).collect()
}

fn matmuls(bench: &Bench) {
    use Operand::{Plain, Transposed};
    for (m, k, n, a_stored, b_stored) in [
        (100, 784, 100, Plain, Plain),
        (784, 100, 100, Transposed, Plain),
        (100, 100, 784, Plain, Transposed),
        (100, 100, 10, Plain, Plain),
        (100, 10, 100, Plain, Transposed),
        (100, 100, 10, Transposed, Plain),
        (512, 512, 512, Plain, Plain),
        (512, 512, 512, Transposed, Plain),
        (512, 512, 512, Plain, Transposed),
        (100, 3136, 1024, Plain, Plain),
        (3136, 100, 1024, Transposed, Plain),
        (100, 1024, 3136, Plain, Transposed),
        (196, 800, 64, Plain, Plain),
        (49, 32, 64, Plain, Plain),
        (32, 256, 1024, Plain, Plain),
        (16, 512, 2048, Plain, Plain),
        (128, 512, 512, Plain, Transposed),
        (1, 784, 100, Plain, Plain),
        (1, 784, 100, Plain, Transposed),
        (4, 8, 4, Plain, Plain),
        (1024, 1024, 1024, Plain, Plain),
    ] {
        let (a, b) = (ramp(m * k), ramp(k * n));
        let mut out = vec![0.0f32; m * n];
        let shape = MatMulShape::new(m, k, n).stored(a_stored, b_stored);
        bench.run(
            &format!("matmul {m}x{k}x{n} {a_stored:?} {b_stored:?}"),
            2.0 * (m * k * n) as f64,
            "GFLOP/s",
            || matmul(shape, &a, &b, &mut out),
        );
    }
}

fn elementwise(bench: &Bench) {
    for len in [1000usize, 100_000, 4_000_000] {
        let (a, b) = (ramp(len), ramp(len));
        let mut out = vec![0.0f32; len];
        let bytes = 12.0 * len as f64;
        let plan = BroadcastPlan::same_shape(len);
        bench.run(&format!("add {len}"), bytes, "GB/s", || binary(&a, &b, &mut out, &plan, |x, y| x + y));
        bench.run(&format!("add in place {len}"), bytes, "GB/s", || {
            binary_in_place_left(&mut out, &b, &plan, |x, y| x + y);
        });
        let mut less = vec![false; len];
        bench.run(&format!("less {len}"), bytes, "GB/s", || binary(&a, &b, &mut less, &plan, |x, y| x < y));
        let plan = BroadcastPlan::new(&[len / 100, 100], &[100]).unwrap();
        bench.run(&format!("add row of 100 to {len}"), bytes, "GB/s", || {
            binary(&a, &b[..100], &mut out, &plan, |x, y| x + y);
        });
        let plan = BroadcastPlan::new(&[len / 10, 10], &[10]).unwrap();
        bench.run(&format!("add row of 10 to {len}"), bytes, "GB/s", || {
            binary(&a, &b[..10], &mut out, &plan, |x, y| x + y);
        });
    }
}

fn functions(bench: &Bench) {
    use numeric::simd_math as math;
    let len = 10_000;
    let a: Vec<f32> = ramp(len).iter().map(|x| x.abs() * 4.0 + 0.1).collect();
    let mut out = vec![0.0f32; len];
    let functions: &[(&str, fn(&[f32], &mut [f32]))] = &[
        ("exp", math::exp),
        ("expm1", math::expm1),
        ("log", math::log),
        ("log1p", math::log1p),
        ("tanh", math::tanh),
        ("sigmoid", math::sigmoid),
        ("softplus", math::softplus),
        ("rsqrt", math::rsqrt),
        ("erf", math::erf),
        ("sin", math::sin),
    ];
    for (name, function) in functions {
        bench.run(&format!("function {name} {len}"), len as f64, "G elements/s", || function(&a, &mut out));
    }
    let plan = BroadcastPlan::same_shape(len);
    bench.run(&format!("function pow {len}"), len as f64, "G elements/s", || {
        binary(&a, &a, &mut out, &plan, math::single::pow);
    });
    let a: Vec<f64> = a.iter().map(|&x| f64::from(x)).collect();
    let mut out = vec![0.0f64; len];
    bench.run(&format!("function exp f64 {len}"), len as f64, "G elements/s", || math::exp(&a, &mut out));
    bench.run(&format!("function tanh f64 {len}"), len as f64, "G elements/s", || math::tanh(&a, &mut out));
}

fn convolutions(bench: &Bench) {
    for (size, in_channels, filter, out_channels, batch) in
        [(28, 1, 5, 32, 100), (14, 32, 5, 64, 100), (28, 64, 3, 64, 16), (14, 256, 3, 256, 8), (56, 64, 1, 256, 8)]
    {
        let pad = filter / 2;
        let shape = ConvShape::conv2d(batch, [size, size], in_channels, [filter, filter], out_channels)
            .with_output([size, size], [pad, pad]);
        let (input, weights, gradient) = (ramp(shape.in_len()), ramp(shape.filter_len()), ramp(shape.out_len()));
        let (mut out, mut input_grad, mut filter_grad) =
            (vec![0.0; shape.out_len()], vec![0.0; shape.in_len()], vec![0.0; shape.filter_len()]);
        let flops = 2.0 * (shape.out_len() * filter * filter * in_channels) as f64;
        let name = format!("{filter}x{filter}x{in_channels}->{out_channels} on {size}x{size} batch {batch}");
        bench.run(&format!("conv {name}"), flops, "GFLOP/s", || {
            conv(&shape, &input, &weights, &mut out, Epilogue::NONE);
        });
        bench.run(&format!("conv input grad {name}"), flops, "GFLOP/s", || {
            conv_input_grad(&shape, &weights, &gradient, &mut input_grad);
        });
        bench.run(&format!("conv filter grad {name}"), flops, "GFLOP/s", || {
            conv_filter_grad(&shape, &input, &gradient, &mut filter_grad);
        });
    }
}
