//! Thread pools for a dataset's functions: ThreadPoolHandle, ThreadPoolDataset. Here functions run on the task's own threads, so a
//! pool is only a name.

use super::base::{INPUT, SHAPES, TYPES, dataset_op, input_dataset, shared_dataset_kernel};
use crate::data_flow::ResourceOp;
use kernel::{BoxedKernel, Gradient, KernelBuilder, KernelDef, Op, OpDef, OpFlags, Resource, shape};
use tensor::{Result, Status};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    handle("ThreadPoolHandle"),
    handle("ExperimentalThreadPoolHandle"),
    dataset_op("ThreadPoolDataset", INPUTS, &[TYPES, SHAPES], OpFlags::STATEFUL, DATASET),
    dataset_op("ExperimentalThreadPoolDataset", INPUTS, &[TYPES, SHAPES], OpFlags::STATEFUL, DATASET),
];

const INPUTS: &[&str] = &[INPUT, "thread_pool: resource"];

const DATASET: &[KernelDef] = &[KernelDef::any(|_| {
    shared_dataset_kernel(|context| {
        context.resource::<ThreadPool>(1)?;
        input_dataset(context, 0)
    })
})];

const fn handle(name: &'static str) -> Op {
    Op {
        def: OpDef {
            name,
            inputs: &[],
            outputs: &["handle: resource"],
            attrs: &[
                "num_threads: int",
                "max_intra_op_parallelism: int = 1",
                "display_name: string",
                "container: string = ''",
                "shared_name: string = ''",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::scalar,
        gradient: Gradient::Unsupported,
        kernels: const { &[KernelDef::any(create)] },
    }
}

/// A thread pool by name.
struct ThreadPool {
    display_name: String,
}

impl Resource for ThreadPool {
    fn type_name(&self) -> &'static str {
        "tensorflow::data::experimental::ThreadPoolResource"
    }

    fn describe(&self) -> String {
        format!("the thread pool '{}'", self.display_name)
    }
}

fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
    let display_name = builder.attrs().string("display_name")?;
    if builder.attrs().int("num_threads")? <= 0 {
        return Err(Status::invalid_argument("`num_threads` must be greater than zero."));
    }
    ResourceOp::boxed(builder, move |_| Ok(ThreadPool { display_name: display_name.to_string() }), |_, _| Ok(()))
}

#[cfg(test)]
mod tests {
    use crate::testing::TestSession;
    use tensor::{DType, PartialShape, Tensor};

    #[test]
    fn a_pool_leaves_the_elements_alone() {
        let session = TestSession::new();
        let graph = &session.graph;
        let pool = |threads: i64| {
            graph.op("ThreadPoolHandle").attr("num_threads", threads).attr("display_name", "pool").output()
        };
        let (types, shapes) = ([DType::Int64], [PartialShape::scalar()]);
        let bound = |value: i64| graph.constant_tensor(&Tensor::scalar(value));
        let range = graph.op("RangeDataset").input(&bound(7)).input(&bound(8)).input(&bound(1));
        let range = range.attr("output_types", &types[..]).attr("output_shapes", &shapes[..]).output();
        let single = |pool| {
            let dataset = graph.op("ThreadPoolDataset").input(&range).input(&pool);
            let dataset = dataset.attr("output_types", &types[..]).attr("output_shapes", &shapes[..]).output();
            let single = graph.op("DatasetToSingleElement").input(&dataset);
            single.attr("output_types", &types[..]).attr("output_shapes", &shapes[..]).output()
        };
        let (good, bad) = (single(pool(2)), single(pool(0)));
        assert_eq!(session.fetch(&good, &[]).unwrap().to_scalar::<i64>().unwrap(), 7);
        assert!(session.fetch(&bad, &[]).is_err());
    }
}
