//! Prints the speed of the main loops on this machine: `cargo run --release -p numeric --example kernels [name part]`.

use numeric::matmul::{MatMulShape, Operand, matmul};
use std::time::Instant;

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let bench = Bench { filter };
    matmuls(&bench);
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
            while start.elapsed().as_secs_f64() < 0.3 {
                let begin = Instant::now();
                body();
                best = best.min(begin.elapsed().as_secs_f64());
            }
            let rate = amount / best / 1e9;
            let who = if threads == 1 { "one thread" } else { "all threads" };
            println!("{name:44} {who:12} {:10.1} µs {rate:9.1} {unit}", best * 1e6);
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
