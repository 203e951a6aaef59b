//! The declarations match the ops that they name, and the graphs stay small.

use super::*;
use crate::variable_scope::get_variable;
use crate::{Graph, Session, initializers};
use graph::OpLookup;
use graph::builder::Grad;
use prost::Message;
use tensor::DType;

const RECORDS: &[&Declaration] = &[
    &GRADIENT_DESCENT,
    &MOMENTUM,
    &ADAGRAD,
    &PROXIMAL_GRADIENT_DESCENT,
    &PROXIMAL_ADAGRAD,
    &ADADELTA,
    &ADAGRAD_DA,
    &RMSPROP,
    &RMSPROP_CENTERED,
    &FTRL,
    &FTRL_SHRINKAGE,
    &ADAM,
];

/// One optimizer for each declaration, with every setter called.
fn optimizers(step: &Variable) -> Vec<Box<dyn Optimizer>> {
    let ftrl = || {
        let ftrl = FtrlOptimizer::new(0.1).learning_rate_power(-0.4).initial_accumulator_value(0.2).beta(0.1);
        ftrl.l1_regularization_strength(0.1).l2_regularization_strength(0.1)
    };
    let rmsprop = || RmsPropOptimizer::new(0.1).decay(0.8).momentum(0.1).epsilon(1e-9);
    let proximal = ProximalAdagradOptimizer::new(0.1).initial_accumulator_value(0.2);
    let averaging = AdagradDaOptimizer::new(0.1, step).initial_gradient_squared_accumulator_value(0.2);
    vec![
        Box::new(GradientDescentOptimizer::new(0.1)),
        Box::new(MomentumOptimizer::new(0.1, 0.9).use_nesterov(true)),
        Box::new(AdagradOptimizer::new(0.1).initial_accumulator_value(0.2)),
        Box::new(
            ProximalGradientDescentOptimizer::new(0.1).l1_regularization_strength(0.1).l2_regularization_strength(0.1),
        ),
        Box::new(proximal.l1_regularization_strength(0.1).l2_regularization_strength(0.1)),
        Box::new(AdadeltaOptimizer::new(0.1).rho(0.9).epsilon(1e-7)),
        Box::new(averaging.l1_regularization_strength(0.1).l2_regularization_strength(0.1)),
        Box::new(rmsprop()),
        Box::new(rmsprop().centered(true)),
        Box::new(ftrl()),
        Box::new(ftrl().l2_shrinkage_regularization_strength(0.1)),
        Box::new(AdamOptimizer::new(0.1).beta1(0.8).beta2(0.99).epsilon(1e-7)),
    ]
}

#[test]
fn every_record_fits_the_ops_it_names() {
    for record in RECORDS {
        for (update, rows) in [(&record.dense, 0), (&record.sparse, 1)] {
            let Update::Op(op) = update else { continue };
            for op in [(*op).to_owned(), format!("Resource{op}")] {
                let info = ops::registry().op(&op).unwrap_or_else(|| panic!("{}: no op {op}", record.name));
                let expected = info.schema.inputs.len();
                assert_eq!(1 + record.inputs.len() + rows, expected, "the inputs of {op}");
            }
        }
        for input in record.inputs {
            let is_declared = match input {
                Input::Slot(name) => record.slots.iter().any(|slot| slot.name == *name),
                Input::Power(name) => record.powers.iter().any(|power| power.name == *name),
                Input::Number(name) | Input::Copy(name) => {
                    record.numbers.iter().any(|hyper| hyper.name == *name && !matches!(hyper.node, Node::Own))
                }
                Input::OwnNumber(name) => {
                    record.numbers.iter().any(|hyper| hyper.name == *name && matches!(hyper.node, Node::Own))
                }
                Input::Gradient => true,
            };
            assert!(is_declared, "{} uses something that it doesn't declare", record.name);
        }
    }
}

#[test]
fn a_setter_sets_a_number_that_the_record_has() {
    let declared = [
        &AdagradOptimizer::new(0.1).initial_accumulator_value(0.2).0,
        &ProximalGradientDescentOptimizer::new(0.1).l1_regularization_strength(0.1).l2_regularization_strength(0.1).0,
        &ProximalAdagradOptimizer::new(0.1).l1_regularization_strength(0.1).initial_accumulator_value(0.2).0,
        &AdadeltaOptimizer::new(0.1).rho(0.9).epsilon(1e-7).0,
        &RmsPropOptimizer::new(0.1).decay(0.8).momentum(0.1).epsilon(1e-9).0,
        &FtrlOptimizer::new(0.1).learning_rate_power(-0.4).beta(0.1).l1_regularization_strength(0.1).0,
        &FtrlOptimizer::new(0.1).l2_regularization_strength(0.1).l2_shrinkage_regularization_strength(0.1).0,
        &AdamOptimizer::new(0.1).beta1(0.8).beta2(0.99).epsilon(1e-7).0,
    ];
    for declared in declared {
        assert_eq!(declared.unknown_numbers(), Vec::<&str>::new(), "{}", declared.name());
    }
}

#[test]
fn a_number_for_first_values_must_not_be_a_tensor() -> Result<()> {
    let graph = Graph::new();
    let v = get_variable(&graph, "v", &[2]).initializer(initializers::zeros()).get();
    let beta = crate::variable::named_constant(&graph, "b", &tensor::Tensor::scalar(0.9f32));
    let gradient = Grad::Dense(v.read());
    let status = AdamOptimizer::new(0.1).beta1(&beta).apply_gradients(&[(Some(gradient), v)], None, None).unwrap_err();
    assert_eq!(status.code(), tensor::Code::InvalidArgument);
    assert!(status.message().contains("'beta1' of optimizer Adam must be a plain number"), "{status}");
    Ok(())
}

/// A regression test: twelve million parameters under Adam made a graph of 98 MB.
#[test]
fn slots_add_nothing_to_a_graph_but_their_nodes() -> Result<()> {
    for kind in [Kind::Ref, Kind::Resource] {
        for index in 0..RECORDS.len() {
            let graph = Graph::new();
            let step = crate::variable::create_global_step(&graph);
            let optimizer = optimizers(&step).swap_remove(index);
            let v = get_variable(&graph, "v", &[4000, 3000]).initializer(initializers::zeros()).kind(kind).get();
            let gradient = Grad::Dense(v.read());
            optimizer.apply_gradients(&[(Some(gradient), v)], Some(&step), None)?;
            let bytes = graph.to_graph_def().encoded_len();
            assert!(bytes < 16_000, "the graph of {} has {bytes} bytes", optimizer.name());
        }
    }
    Ok(())
}

/// Large slots are filled and small ones are constants: both have the same initial values.
#[test]
fn slots_start_with_their_numbers_whatever_their_size() -> Result<()> {
    for dims in [[3, 2], [50, 40]] {
        for dtype in [DType::Float, DType::Double] {
            for index in 0..RECORDS.len() {
                let graph = Graph::new();
                let step = crate::variable::create_global_step(&graph);
                let optimizer = optimizers(&step).swap_remove(index);
                let v = get_variable(&graph, "v", &dims).dtype(dtype).initializer(initializers::zeros()).get();
                optimizer.create_slots(&graph, std::slice::from_ref(&v))?;
                let session = Session::new(&graph)?;
                for (slot, first) in first_values(RECORDS[index]) {
                    let slot = optimizer.slot(&v, slot).expect("the slot was made");
                    session.run_ops(&[slot.initializer()])?;
                    let value = &session.run(&[slot.value()])?[0];
                    let elements: Vec<f64> = match dtype {
                        DType::Float => value.as_slice::<f32>()?.iter().map(|&x| f64::from(x)).collect(),
                        _ => value.as_slice::<f64>()?.to_vec(),
                    };
                    assert_eq!(elements.len(), (dims[0] * dims[1]) as usize);
                    let is_first = |x: &f64| (x - first).abs() < 1e-7;
                    assert!(elements.iter().all(is_first), "{} of {}", slot.name(), optimizer.name());
                }
            }
        }
    }
    Ok(())
}

fn first_values(record: &Declaration) -> Vec<(&'static str, f64)> {
    let first = |slot: &Slot| match slot.first {
        First::Zeros | First::ZerosBeside => 0.0,
        First::Ones => 1.0,
        First::Number(_) | First::OnesTimes(_) | First::NumberBeside(_) => 0.2,
    };
    record.slots.iter().map(|slot| (slot.name, first(slot))).collect()
}
