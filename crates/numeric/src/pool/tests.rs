//! Pooling against explicit lists of windows.

use super::*;

fn shapes() -> Vec<PoolShape> {
    vec![
        PoolShape::pool2d(2, [4, 6], 3, [2, 2], [2, 2], [2, 3], [0, 0]),
        PoolShape::pool2d(2, [5, 5], 17, [3, 3], [2, 2], [3, 3], [1, 1]),
        PoolShape::pool2d(1, [7, 6], 1, [3, 2], [1, 1], [7, 6], [1, 0]),
        PoolShape::pool2d(100, [28, 28], 32, [2, 2], [2, 2], [14, 14], [0, 0]),
        PoolShape {
            input: [4, 5, 6],
            window: [2, 3, 2],
            output: [2, 3, 3],
            strides: [2, 2, 2],
            pad_before: [0, 1, 0],
            batch: 2,
            channels: 3,
        },
        PoolShape::pool2d(0, [4, 6], 3, [2, 2], [2, 2], [2, 3], [0, 0]),
    ]
}

/// Returns for each element of the output the positions under its window.
fn windows(shape: &PoolShape) -> Vec<Vec<usize>> {
    let mut all = Vec::new();
    for example in 0..shape.batch {
        for cell in 0..shape.output.iter().product() {
            for channel in 0..shape.channels {
                let [d, h, w] = shape.output;
                let cell = [cell / (h * w) % d, cell / w % h, cell % w];
                let mut positions = Vec::new();
                for tap in 0..shape.window.iter().product() {
                    let [_, h, w] = shape.window;
                    let tap: [usize; 3] = [tap / (h * w), tap / w % h, tap % w];
                    let at: [isize; 3] = std::array::from_fn(|axis| {
                        (cell[axis] * shape.strides[axis] + tap[axis]) as isize - shape.pad_before[axis] as isize
                    });
                    if (0..3).all(|axis| at[axis] >= 0 && (at[axis] as usize) < shape.input[axis]) {
                        let at = at.map(|position| position as usize);
                        let pixel =
                            ((example * shape.input[0] + at[0]) * shape.input[1] + at[1]) * shape.input[2] + at[2];
                        positions.push(pixel * shape.channels + channel);
                    }
                }
                all.push(positions);
            }
        }
    }
    all
}

#[test]
fn maxima_and_their_gradients() {
    for shape in shapes() {
        let input: Vec<f32> = (0..shape.in_len()).map(|i| ((i * 7919) % 10) as f32).collect();
        let gradient: Vec<f32> = (0..shape.out_len()).map(|i| (i % 5) as f32 + 1.0).collect();
        let (mut out, mut with_positions) = (vec![0.0; shape.out_len()], vec![0.0; shape.out_len()]);
        let mut positions = vec![0i64; shape.out_len()];
        max_pool(&shape, &input, &mut out);
        max_pool_argmax(&shape, &input, true, &mut with_positions, &mut positions);
        let mut expected_grad = vec![0.0; shape.in_len()];
        for (index, window) in windows(&shape).iter().enumerate() {
            let first = *window.iter().max_by(|&&a, &&b| input[a].total_cmp(&input[b]).then(b.cmp(&a))).unwrap();
            assert_eq!(out[index], input[first]);
            assert_eq!(with_positions[index], input[first]);
            assert_eq!(positions[index], first as i64);
            expected_grad[first] += gradient[index];
        }
        let mut grad = vec![f32::NAN; shape.in_len()];
        max_pool_grad(&shape, &input, &gradient, &mut grad);
        assert!(grad == expected_grad, "{shape:?}");
        let mut second = vec![0.0; shape.out_len()];
        max_pool_grad_grad(&shape, &input, &input, &mut second);
        assert!(second == out);
    }
}

#[test]
fn averages_and_their_gradients() {
    for shape in shapes() {
        let input: Vec<f64> = (0..shape.in_len()).map(|i| ((i * 7919) % 10) as f64).collect();
        let mut out = vec![0.0; shape.out_len()];
        avg_pool(&shape, &input, &mut out);
        let mut expected_grad = vec![0.0; shape.in_len()];
        for (index, window) in windows(&shape).iter().enumerate() {
            let mean = window.iter().map(|&at| input[at]).sum::<f64>() / window.len() as f64;
            assert!((out[index] - mean).abs() < 1e-12);
            window.iter().for_each(|&at| expected_grad[at] += out[index] / window.len() as f64);
        }
        let mut grad = vec![f64::NAN; shape.in_len()];
        avg_pool_grad(&shape, &out, &mut grad);
        assert!(grad.iter().zip(&expected_grad).all(|(a, b)| (a - b).abs() < 1e-9), "{shape:?}");
    }
}

#[test]
fn nan_is_no_maximum_unless_it_comes_first() {
    let shape = PoolShape::pool2d(1, [2, 2], 1, [2, 2], [2, 2], [1, 1], [0, 0]);
    let nan = f32::NAN;
    for (input, largest, position) in
        [([nan, 1.0, 2.0, 3.0], 3.0, 0), ([1.0, nan, 2.0, 0.0], 2.0, 2), ([f32::NEG_INFINITY; 4], f32::MIN, 0)]
    {
        let mut out = [0.0];
        max_pool(&shape, &input, &mut out);
        assert_eq!(out[0], largest);
        let mut positions = [9];
        max_pool_argmax(&shape, &input, false, &mut out, &mut positions);
        assert_eq!(positions[0], position);
        let mut grad = [0.0; 4];
        max_pool_grad(&shape, &input, &[5.0], &mut grad);
        assert_eq!(grad[position as usize], 5.0);
    }
}
