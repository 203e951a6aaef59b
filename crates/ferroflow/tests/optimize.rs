//! A graph computes the same whether it is optimized or not: random programs of element-wise ops, products and constants
//! are run by a session that optimizes and by one that doesn't.

use ferroflow::{DType, Graph, Output, PartialShape, Session, Tensor, ops};
use proptest::prelude::*;
use proto::optimizer_options::Level;
use proto::{ConfigProto, GraphOptions, OptimizerOptions};

const ROWS: usize = 3;
const COLUMNS: usize = 4;

/// Builds a value from two earlier ones, all matrices of the same shape.
fn step(g: &Graph, kind: usize, a: &Output, b: &Output) -> Output {
    let constant = |dims: &[i64]| {
        let count = dims.iter().product::<i64>();
        let values: Vec<f32> = (0..count).map(|index| (index * 7 % 5) as f32 * 0.25 - 0.4).collect();
        g.constant_tensor(&Tensor::from_slice(dims, &values).unwrap())
    };
    let unary = |op: &str, x: &Output| g.op(op).input(x).output();
    let binary = |op: &str, x: &Output, y: &Output| g.op(op).input(x).input(y).output();
    match kind % 16 {
        0 => unary("Neg", a),
        1 => unary("Tanh", a),
        2 => unary("Sigmoid", a),
        3 => unary("Relu", a),
        4 => unary("Square", a),
        5 => unary("Identity", a),
        6 => binary("AddV2", a, b),
        7 => binary("Sub", a, b),
        8 => binary("Mul", a, b),
        9 => binary("Maximum", a, b),
        10 => binary("SquaredDifference", a, b),
        11 => binary("Mul", a, &constant(&[])),
        12 => binary("AddV2", a, &constant(&[COLUMNS as i64])),
        13 => constant(&[ROWS as i64, COLUMNS as i64]),
        14 => {
            let product = binary("MatMul", a, &constant(&[COLUMNS as i64, COLUMNS as i64]));
            unary("Relu", &binary("BiasAdd", &product, &constant(&[COLUMNS as i64])))
        }
        _ => {
            let product = binary("MatMul", a, &constant(&[COLUMNS as i64, COLUMNS as i64]));
            binary("AddV2", &product, &constant(&[COLUMNS as i64]))
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_optimized_graph_computes_the_same(
        steps in prop::collection::vec((0usize..16, 0usize..100, 0usize..100), 1..25),
        picks in prop::collection::vec(0usize..100, 1..4),
        is_shape_known in any::<bool>(),
    ) {
        let g = Graph::new();
        let rows = if is_shape_known { Some(ROWS as i64) } else { None };
        let x = ops::array::placeholder(&g, DType::Float, &PartialShape::new(&[rows, Some(COLUMNS as i64)]));
        let mut values = vec![x.clone()];
        for (kind, a, b) in steps {
            // Mostly what was just made, so that there are chains.
            let pick = |number: usize| values[values.len() - 1 - (number / 3) % values.len().min(4)].clone();
            let (a, b) = (pick(a), pick(b));
            values.push(step(&g, kind, &a, &b));
        }
        let fetches: Vec<Output> =
            picks.iter().map(|pick| values[pick % values.len()].clone()).chain(values.last().cloned()).collect();
        let options = OptimizerOptions { opt_level: Level::L0 as i32, ..Default::default() };
        let graph_options = Some(GraphOptions { optimizer_options: Some(options), ..Default::default() });
        let plain = Session::connect_with(&g, "", ConfigProto { graph_options, ..Default::default() }).unwrap();
        let optimizing = Session::new(&g).unwrap();
        let numbers: Vec<f32> = (0..ROWS * COLUMNS).map(|index| index as f32 * 0.3 - 1.7).collect();
        let input = Tensor::from_slice(&[ROWS as i64, COLUMNS as i64], &numbers).unwrap();
        let run = |session: &Session| {
            let mut runner = session.runner().feed(&x, input.clone());
            for fetch in &fetches {
                runner = runner.fetch(fetch);
            }
            let bits = |tensor: &Tensor| tensor.as_slice::<f32>().unwrap().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            runner.run().unwrap().iter().map(bits).collect::<Vec<_>>()
        };
        prop_assert_eq!(run(&optimizing), run(&plain), "{}", g.graph().to_text());
    }
}
