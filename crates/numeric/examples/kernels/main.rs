//! Prints the speed of the main loops on this machine, and its share of the machine's limit:
//! `cargo run --release -p ferroflow-numeric --example kernels [name part] [seconds for each]`.
//!
//! The limit of a product is a loop of multiplications and additions, that of other loops is a copy of as many bytes. Winograd's
//! convolutions need fewer multiplications, so they may exceed it.

mod limits;
mod timing;

use limits::Limits;
use numeric::batch_norm::{Finish, batch_norm_training, batch_norm_training_grad};
use numeric::bias::{Channels, bias_add, bias_add_grad};
use numeric::conv::{ConvShape, conv, conv_filter_grad, conv_input_grad};
use numeric::elementwise::{Broadcast, BroadcastPlan, binary, binary_in_place_left, select};
use numeric::matmul::{Epilogue, KeptPanels, MatMulShape, Operand, matmul, matmul_with};
use numeric::optimizer::{Adam, GradientDescent, apply_dense};
use numeric::philox::{Philox, fill_standard_normal, fill_uniform};
use numeric::pool::{PoolShape, avg_pool, avg_pool_grad, max_pool, max_pool_grad};
use numeric::reduce::{Max, ReducePlan, Sum, reduce};
use numeric::slice_copy::{gather_rows, pad};
use numeric::softmax::{softmax, softmax_cross_entropy};
use timing::{Threads, best_seconds};

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let seconds = std::env::args().nth(2).and_then(|text| text.parse().ok()).unwrap_or(0.5);
    let bench = Bench { filter, seconds, limits: Limits::measure(seconds) };
    println!("level {}", cpu::level());
    for threads in [Threads::One, Threads::All] {
        let gigaflops = bench.limits.flops(threads) / 1e9;
        println!("limit of {} thread(s): {gigaflops:.1} GFLOP/s", threads.count());
    }
    matmuls(&bench);
    elementwise(&bench);
    functions(&bench);
    reductions(&bench);
    convolutions(&bench);
    pools(&bench);
    training(&bench);
}

/// The work of a loop, which decides the limit that it is compared with.
#[derive(Clone, Copy)]
enum Work {
    /// Floating-point operations.
    Flops(f64),
    /// Bytes read and written.
    Bytes(f64),
    /// Elements computed, and the bytes that are read and written for each.
    Elements(f64, f64),
}

struct Bench {
    filter: String,
    seconds: f64,
    limits: Limits,
}

impl Bench {
    /// Runs `body` for a while and prints its best time, its rate and the share of the limit.
    fn run(&self, name: &str, work: Work, mut body: impl FnMut()) {
        if !name.contains(&self.filter) {
            return;
        }
        for threads in [Threads::One, Threads::All] {
            let best = best_seconds(threads, self.seconds, &mut body);
            let (amount, unit, share) = match work {
                Work::Flops(flops) => (flops, "GFLOP/s", flops / best / self.limits.flops(threads)),
                Work::Bytes(bytes) => (bytes, "GB/s", bytes / best / self.limits.copied_bytes(bytes, threads)),
                Work::Elements(elements, each) => {
                    let bytes = elements * each;
                    (elements, "G elements/s", bytes / best / self.limits.copied_bytes(bytes, threads))
                }
            };
            let who = if threads == Threads::One { "one thread" } else { "all threads" };
            let rate = amount / best / 1e9;
            println!("{name:48} {who:12} {:10.1} µs {rate:9.1} {unit:12} {:5.0} %", best * 1e6, share * 100.0);
        }
    }
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
        (128, 156, 512, Plain, Plain),
        (128, 512, 156, Plain, Transposed),
        (128, 512, 512, Plain, Transposed),
        (1, 784, 100, Plain, Plain),
        (1, 784, 100, Plain, Transposed),
        (4, 8, 4, Plain, Plain),
        (1024, 1024, 1024, Plain, Plain),
    ] {
        let (a, b) = (ramp(m * k), ramp(k * n));
        let mut out = vec![0.0f32; m * n];
        let shape = MatMulShape::new(m, k, n).stored(a_stored, b_stored);
        let flops = Work::Flops(2.0 * (m * k * n) as f64);
        let name = format!("matmul {m}x{k}x{n} {a_stored:?} {b_stored:?}");
        bench.run(&name, flops, || matmul(shape, &a, &b, &mut out));
        let kept = KeptPanels::new();
        let panels = || kept.of(shape, &b, || Some([0; 3]));
        panels();
        if let Some(panels) = panels() {
            let name = format!("{name}, kept panels");
            bench.run(&name, flops, || matmul_with(shape, &a, &b, Some(&panels), &mut out));
        }
    }
}

fn elementwise(bench: &Bench) {
    for len in [1000usize, 100_000, 4_000_000] {
        let (a, b) = (ramp(len), ramp(len));
        let mut out = vec![0.0f32; len];
        let bytes = Work::Bytes(12.0 * len as f64);
        let plan = BroadcastPlan::same_shape(len);
        bench.run(&format!("add {len}"), bytes, || binary(&a, &b, &mut out, &plan, |x, y| x + y));
        bench.run(&format!("add in place {len}"), bytes, || {
            binary_in_place_left(&mut out, &b, &plan, |x, y| x + y);
        });
        let mut less = vec![false; len];
        bench.run(&format!("less {len}"), bytes, || binary(&a, &b, &mut less, &plan, |x, y| x < y));
        let condition: Vec<bool> = (0..len).map(|i| i % 3 == 0).collect();
        let three = Broadcast::of([&[len], &[len], &[len]]).unwrap();
        bench.run(&format!("select {len}"), Work::Bytes(13.0 * len as f64), || {
            select(&condition, &a, &b, &mut out, &three);
        });
        bench.run(&format!("fill with zeros {len}"), Work::Bytes(4.0 * len as f64), || fill_parallel(&mut out));
        let plan = BroadcastPlan::new(&[len / 100, 100], &[100]).unwrap();
        bench.run(&format!("add row of 100 to {len}"), bytes, || {
            binary(&a, &b[..100], &mut out, &plan, |x, y| x + y);
        });
        let plan = BroadcastPlan::new(&[len / 10, 10], &[10]).unwrap();
        bench.run(&format!("add row of 10 to {len}"), bytes, || {
            binary(&a, &b[..10], &mut out, &plan, |x, y| x + y);
        });
    }
}

/// Fills a slice as the kernels of `Fill` and `ZerosLike` do.
fn fill_parallel(out: &mut [f32]) {
    pad(&[], &[0], &[(out.len(), 0)], 0.0, out);
}

fn functions(bench: &Bench) {
    use numeric::simd_math as math;
    let len = 10_000;
    let elements = Work::Elements(len as f64, 8.0);
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
        ("cos", math::cos),
    ];
    for (name, function) in functions {
        bench.run(&format!("function {name} {len}"), elements, || function(&a, &mut out));
    }
    let plan = BroadcastPlan::same_shape(len);
    bench.run(&format!("function pow {len}"), elements, || {
        binary(&a, &a, &mut out, &plan, math::single::pow);
    });
    let elements = Work::Elements(len as f64, 16.0);
    let a: Vec<f64> = a.iter().map(|&x| f64::from(x)).collect();
    let mut out = vec![0.0f64; len];
    bench.run(&format!("function exp f64 {len}"), elements, || math::exp(&a, &mut out));
    bench.run(&format!("function tanh f64 {len}"), elements, || math::tanh(&a, &mut out));
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
        let flops = Work::Flops(2.0 * (shape.out_len() * filter * filter * in_channels) as f64);
        let name = format!("{filter}x{filter}x{in_channels}->{out_channels} on {size}x{size} batch {batch}");
        bench.run(&format!("conv {name}"), flops, || {
            conv(&shape, &input, &weights, &mut out, Epilogue::NONE);
        });
        bench.run(&format!("conv input grad {name}"), flops, || {
            conv_input_grad(&shape, &weights, &gradient, &mut input_grad);
        });
        bench.run(&format!("conv filter grad {name}"), flops, || {
            conv_filter_grad(&shape, &input, &gradient, &mut filter_grad);
        });
    }
}

fn reductions(bench: &Bench) {
    for (rows, columns) in [(100, 100), (1000, 1000), (100_000, 32), (32, 100_000)] {
        let a = ramp(rows * columns);
        let bytes = Work::Bytes(4.0 * a.len() as f64);
        for (name, axes) in [("columns", &[0usize][..]), ("rows", &[1]), ("all", &[0, 1])] {
            let plan = ReducePlan::new(&[rows, columns], axes);
            let mut out = vec![0.0f32; plan.out_len()];
            bench.run(&format!("sum of {name} of {rows}x{columns}"), bytes, || {
                reduce::<Sum, f32>(&a, &mut out, &plan);
            });
            bench.run(&format!("max of {name} of {rows}x{columns}"), bytes, || {
                reduce::<Max, f32>(&a, &mut out, &plan);
            });
        }
    }
}

fn pools(bench: &Bench) {
    for (size, channels, window, stride, batch) in
        [(28, 32, 2, 2, 100), (14, 64, 2, 2, 100), (28, 64, 3, 2, 16), (28, 1, 2, 2, 100)]
    {
        let out_size = size / stride;
        let shape = PoolShape::pool2d(
            batch,
            [size, size],
            channels,
            [window, window],
            [stride, stride],
            [out_size, out_size],
            [0, 0],
        );
        let input: Vec<f32> = (0..shape.in_len()).map(|i| ((i * 7919) % 1009) as f32).collect();
        let gradient = ramp(shape.out_len());
        let (mut out, mut input_grad) = (vec![0.0f32; shape.out_len()], vec![0.0f32; shape.in_len()]);
        let name = format!("{window}x{window} of {size}x{size}x{channels} batch {batch}");
        let (small, large) = (4.0 * shape.out_len() as f64, 4.0 * shape.in_len() as f64);
        bench.run(&format!("max pool {name}"), Work::Bytes(small + large), || max_pool(&shape, &input, &mut out));
        bench.run(&format!("max pool grad {name}"), Work::Bytes(small + 2.0 * large), || {
            max_pool_grad(&shape, &input, &gradient, &mut input_grad);
        });
        bench.run(&format!("avg pool {name}"), Work::Bytes(small + large), || avg_pool(&shape, &input, &mut out));
        bench.run(&format!("avg pool grad {name}"), Work::Bytes(small + large), || {
            avg_pool_grad(&shape, &gradient, &mut input_grad);
        });
    }
}

/// The other loops of a training step.
fn training(bench: &Bench) {
    for (rows, classes) in [(100, 10), (1000, 1000)] {
        let (logits, labels) = (ramp(rows * classes), ramp(rows * classes));
        let (mut out, mut loss) = (vec![0.0f32; rows * classes], vec![0.0f32; rows]);
        let bytes = 4.0 * (rows * classes) as f64;
        bench.run(&format!("softmax {rows}x{classes}"), Work::Bytes(2.0 * bytes), || {
            softmax(&logits, classes, &mut out);
        });
        bench.run(&format!("softmax cross entropy {rows}x{classes}"), Work::Bytes(3.0 * bytes), || {
            softmax_cross_entropy(&logits, &labels, classes, &mut loss, &mut out);
        });
    }
    for len in [10_000, 2_500_000] {
        let gradient = ramp(len);
        let (mut var, mut m, mut v) = (ramp(len), vec![0.0f32; len], vec![0.0f32; len]);
        let adam = Adam {
            lr: 1e-6f32,
            beta1_power: 0.5,
            beta2_power: 0.5,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            use_nesterov: false,
        };
        bench.run(&format!("Adam {len}"), Work::Bytes(28.0 * len as f64), || {
            apply_dense(&adam, &mut [(&mut var[..]).into(), (&mut m[..]).into(), (&mut v[..]).into()], &gradient);
        });
        bench.run(&format!("gradient descent {len}"), Work::Bytes(12.0 * len as f64), || {
            apply_dense(&GradientDescent { lr: 1e-6f32 }, &mut [(&mut var[..]).into()], &gradient);
        });
        bench.run(&format!("uniform random {len}"), Work::Elements(len as f64, 4.0), || {
            fill_uniform(Philox::new(7), &mut var);
        });
        bench.run(&format!("normal random {len}"), Work::Elements(len as f64, 4.0), || {
            fill_standard_normal(Philox::new(7), &mut var);
        });
    }
    let (rows, channels) = (16 * 28 * 28, 64);
    let (x, gradient) = (ramp(rows * channels), ramp(rows * channels));
    let (scale, offset) = (vec![1.0f32; channels], vec![0.0f32; channels]);
    let (mut y, mut bias) = (vec![0.0f32; rows * channels], vec![0.0f32; channels]);
    let bytes = 4.0 * x.len() as f64;
    let name = format!("{rows}x{channels}");
    bench.run(&format!("bias add {name}"), Work::Bytes(2.0 * bytes), || bias_add(&x, &offset, Channels::Last, &mut y));
    bench.run(&format!("bias add grad {name}"), Work::Bytes(bytes), || bias_add_grad(&x, Channels::Last, &mut bias));
    bench.run(&format!("batch norm {name}"), Work::Bytes(3.0 * bytes), || {
        batch_norm_training(&x, &scale, &offset, 1e-3, Finish::default(), &mut y);
    });
    let moments = batch_norm_training(&x, &scale, &offset, 1e-3, Finish::default(), &mut y);
    bench.run(&format!("batch norm grad {name}"), Work::Bytes(5.0 * bytes), || {
        batch_norm_training_grad(&gradient, &x, &scale, &moments, 1e-3, &mut y);
    });
    let (table, dim, wanted) = (100_000, 64, 4096);
    let values = ramp(table * dim);
    let indices: Vec<i32> = (0..wanted).map(|i| ((i * 7919) % table) as i32).collect();
    let mut gathered = vec![0.0f32; wanted * dim];
    bench.run(&format!("gather {wanted} rows of {dim}"), Work::Bytes(8.0 * gathered.len() as f64), || {
        gather_rows(&values, [1, table, dim], &indices, &mut gathered);
    });
}
