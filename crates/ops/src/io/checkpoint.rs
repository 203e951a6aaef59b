//! Checkpoints in the tensor-bundle format: SaveV2, RestoreV2, MergeV2Checkpoints, and the names of shards.

use super::slices::restore_slice;
use super::{scalar_text, texts};
use crate::file_access::file_system;
use kernel::{
    BoxedKernel, Cost, Gradient, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags, Resource, ShapeContext, note_save,
    shape,
};
use numeric::environment;
use std::sync::Arc;
use storage::bundle::{
    BundleReader, BundleWriter, BundleWriterOptions, HeldPart, MergeOptions, TensorSlice, is_part, merge_bundles,
    meta_filename, parse_shape_and_slice,
};
use storage::slices::SliceReader;
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "SaveV2",
            inputs: &["prefix: string", "tensor_names: string", "shape_and_slices: string", "tensors: dtypes"],
            outputs: &[],
            attrs: &["dtypes: list(type) >= 1"],
            flags: OpFlags::STATEFUL,
        },
        shape: save_v2_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new_blocking(SaveV2))],
    },
    Op {
        def: OpDef {
            name: "RestoreV2",
            inputs: &["prefix: string", "tensor_names: string", "shape_and_slices: string"],
            outputs: &["tensors: dtypes"],
            attrs: &["dtypes: list(type) >= 1"],
            flags: OpFlags::STATEFUL,
        },
        shape: restore_v2_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| BoxedKernel::new_blocking(RestoreV2 { dtypes: builder.output_dtypes() }))],
    },
    Op {
        def: OpDef {
            name: "MergeV2Checkpoints",
            inputs: &["checkpoint_prefixes: string", "destination_prefix: string"],
            outputs: &[],
            attrs: &["delete_old_dirs: bool = true", "allow_missing_files: bool = false"],
            flags: OpFlags::STATEFUL,
        },
        shape: merge_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| {
            BoxedKernel::new_blocking(MergeV2Checkpoints(MergeOptions {
                delete_old_dirs: builder.attrs().bool("delete_old_dirs")?,
                allow_missing_files: builder.attrs().bool("allow_missing_files")?,
            }))
        })],
    },
    Op {
        def: OpDef {
            name: "ShardedFilename",
            inputs: &["basename: string", "shard: int32", "num_shards: int32"],
            outputs: &["filename: string"],
            attrs: &[],
            flags: OpFlags::NONE,
        },
        shape: scalar_inputs,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(ShardedFilename))],
    },
    Op {
        def: OpDef {
            name: "ShardedFilespec",
            inputs: &["basename: string", "num_shards: int32"],
            outputs: &["filename: string"],
            attrs: &[],
            flags: OpFlags::NONE,
        },
        shape: scalar_inputs,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(ShardedFilespec))],
    },
];

fn save_v2_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, 0)?;
    let tensors = (c.num_inputs() - 3) as i64;
    for input in 1..3 {
        let names = c.with_rank(input, 1)?;
        names.merge(&PartialShape::from_dims(&[tensors]))?;
    }
    Ok(())
}

fn restore_v2_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, 0)?;
    c.with_rank(1, 1)?;
    let specs = c.with_rank(2, 1)?;
    c.merged(1, 2)?;
    // The slices determine the shapes, if they are constants.
    if let Some(value) = c.constant(2)
        && specs.is_fully_defined()
    {
        for (index, spec) in value.strings()?.iter().enumerate().take(c.num_outputs()) {
            if !spec.is_empty() {
                let (_, _, sliced) = parse_shape_and_slice(&String::from_utf8_lossy(spec))?;
                c.set_output(index, &sliced);
            }
        }
    }
    Ok(())
}

fn merge_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, 1)?;
    c.with_rank(1, 0)?;
    Ok(())
}

/// Every input and every output is a scalar.
fn scalar_inputs(c: &mut ShapeContext<'_>) -> Result<()> {
    for input in 0..c.num_inputs() {
        c.with_rank(input, 0)?;
    }
    shape::scalar(c)
}

/// The first three inputs of a save or restore.
struct Request {
    prefix: String,
    names: Vec<String>,
    specs: Vec<String>,
}

fn request(context: &OpContext<'_>, tensors: usize) -> Result<Request> {
    let (prefix, names, specs) = (context.input(0)?, context.input(1)?, context.input(2)?);
    if prefix.num_elements() != 1 {
        return Err(Status::invalid_argument(format!(
            "Input prefix should have a single element, got {} instead.",
            prefix.num_elements()
        )));
    }
    for (what, tensor) in [("tensor_names", names), ("shape_and_slices", specs)] {
        if !tensor.shape().is_vector() {
            return Err(Status::invalid_argument(format!(
                "Input {what} should be an 1-D tensor, got {} instead.",
                tensor.shape()
            )));
        }
    }
    if names.num_elements() != specs.num_elements() {
        return Err(Status::invalid_argument(format!(
            "tensor_names and shape_and_slices have different number of elements: {} vs. {}",
            names.num_elements(),
            specs.num_elements()
        )));
    }
    if names.num_elements() != tensors {
        let named = names.num_elements();
        return Err(Status::invalid_argument(match context.num_inputs() {
            3 => format!("Got {named} tensor names, but {tensors} expected dtypes."),
            _ => format!("Got {named} tensor names but {tensors} tensors."),
        }));
    }
    let prefix = prefix.strings()?.first().map(|text| String::from_utf8_lossy(text).into_owned()).unwrap_or_default();
    Ok(Request { prefix, names: texts(names)?, specs: texts(specs)? })
}

struct SaveV2;

impl Kernel for SaveV2 {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let Some(count) = context.num_inputs().checked_sub(3) else {
            return Err(Status::invalid_argument("SaveV2 needs at least 3 inputs"));
        };
        let (request, started) = (request(context, count)?, environment::now());
        let mut bytes = 0;
        let mut writer = BundleWriter::new(file_system(), &request.prefix, BundleWriterOptions::default())?;
        for (index, (name, spec)) in request.names.iter().zip(&request.specs).enumerate() {
            let tensor = context.input(3 + index)?;
            bytes += tensor.num_bytes() as u64;
            if spec.is_empty() {
                writer.add(name, tensor)?;
                continue;
            }
            let (whole, slice, sliced) = parse_shape_and_slice(spec)?;
            if sliced != *tensor.shape() {
                return Err(Status::invalid_argument(format!(
                    "Slice in shape_and_slice specification does not match the shape of the tensor to  save: {spec}, \
                     tensor: {}",
                    tensor.shape()
                )));
            }
            writer.add_slice(name, &whole, &slice, tensor)?;
        }
        if !is_part(&request.prefix) {
            writer.finish()?;
            note_save(&request.prefix, bytes, started);
            return Ok(());
        }
        // Until the step, which merges the parts, has ended, other savers must not take this one for a leftover.
        let part = Arc::new(Part { held: writer.finish_and_hold()?, prefix: request.prefix });
        note_save(&part.prefix, bytes, started);
        context.step().step_resources.create("", &part.prefix.clone(), part)
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

/// A part of a sharded checkpoint that was written in a step.
struct Part {
    #[expect(dead_code, reason = "it is kept for its lock")]
    held: HeldPart,
    prefix: String,
}

impl Resource for Part {
    fn type_name(&self) -> &'static str {
        "checkpoint part"
    }

    fn describe(&self) -> String {
        self.prefix.clone()
    }
}

struct RestoreV2 {
    dtypes: Vec<DType>,
}

impl Kernel for RestoreV2 {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let request = request(context, self.dtypes.len())?;
        if !file_system().exists(&meta_filename(&request.prefix))? {
            return self.restore_slices(context, &request);
        }
        let reader = BundleReader::open(file_system(), &request.prefix)?;
        // All names are looked up first, so that a missing one is reported before gigabytes are read.
        let mut missing = Vec::new();
        for name in &request.names {
            if !reader.contains(name)? {
                missing.push(name.as_str());
            }
        }
        if let Some(first) = missing.first() {
            let more = missing.len() - 1;
            let rest = if more == 0 { String::new() } else { format!(" (and {more} more)") };
            return Err(Status::not_found(format!("Key {first} not found in checkpoint{rest}")));
        }
        for (index, ((name, spec), &dtype)) in request.names.iter().zip(&request.specs).zip(&self.dtypes).enumerate() {
            let info = reader.info(name)?;
            if info.dtype != dtype {
                return Err(Status::invalid_argument(format!(
                    "tensor_name = {name}; expected dtype {dtype} does not equal original dtype {}",
                    info.dtype
                )));
            }
            let tensor = if spec.is_empty() {
                reader.lookup(name)?
            } else {
                let (whole, slice, _) = parse_shape_and_slice(spec)?;
                check_whole_shape(name, &whole, &info.shape)?;
                read_slice(&reader, name, &whole, &slice)?
            };
            context.set_output(index, tensor);
        }
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

impl RestoreV2 {
    /// Restores from a checkpoint of the first format, as TensorFlow does if there is no index.
    fn restore_slices(&self, context: &mut OpContext<'_>, request: &Request) -> Result<()> {
        let reader = SliceReader::open(&*file_system(), &request.prefix)?;
        for (index, ((name, spec), &dtype)) in request.names.iter().zip(&request.specs).zip(&self.dtypes).enumerate() {
            context.set_output(index, restore_slice(&reader, name, spec, dtype)?);
        }
        Ok(())
    }
}

fn check_whole_shape(name: &str, wanted: &Shape, stored: &Shape) -> Result<()> {
    if wanted == stored {
        return Ok(());
    }
    Err(Status::invalid_argument(format!(
        "tensor_name = {name}; shape in shape_and_slice spec {wanted} does not match the shape stored in checkpoint: \
         {stored}"
    )))
}

fn read_slice(reader: &BundleReader, name: &str, whole: &Shape, slice: &TensorSlice) -> Result<Tensor> {
    if slice.covers(whole) { reader.lookup(name) } else { reader.lookup_slice(name, slice) }
}

struct MergeV2Checkpoints(MergeOptions);

impl Kernel for MergeV2Checkpoints {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let prefixes = context.input(0)?;
        if !prefixes.shape().is_vector() {
            return Err(Status::invalid_argument(format!(
                "Input checkpoint_prefixes should be an 1-D tensor, got {} instead.",
                prefixes.shape()
            )));
        }
        let (prefixes, started) = (texts(prefixes)?, environment::now());
        let destination = scalar_text(context.input(1)?, "destination_prefix")?;
        merge_bundles(&*file_system(), &prefixes, &destination, self.0)?;
        // Its tensors were counted with its parts.
        note_save(&destination, 0, started);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

struct ShardedFilename;

/// Returns the one number of an input that must be a scalar.
fn scalar_number(context: &OpContext<'_>, index: usize, name: &str) -> Result<i32> {
    let tensor = context.input(index)?;
    if !tensor.shape().is_scalar() {
        return Err(Status::invalid_argument(format!("{name} must be a scalar, got shape {}", tensor.shape())));
    }
    tensor.to_scalar()
}

impl Kernel for ShardedFilename {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let basename = scalar_text(context.input(0)?, "basename")?;
        let (shard, count) = (scalar_number(context, 1, "shard")?, scalar_number(context, 2, "num_shards")?);
        context.set_output(0, Tensor::string(format!("{basename}-{shard:05}-of-{count:05}")));
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct ShardedFilespec;

impl Kernel for ShardedFilespec {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let basename = scalar_text(context.input(0)?, "basename")?;
        let count = scalar_number(context, 1, "num_shards")?;
        context.set_output(0, Tensor::string(format!("{basename}-?????-of-{count:05}")));
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_shape, run_op};
    use tensor::{Code, DType, Shape, Tensor};

    fn strings(values: &[&str]) -> Tensor {
        let values: Vec<bytes::Bytes> = values.iter().map(|text| bytes::Bytes::from(text.to_string())).collect();
        Tensor::from_strings(Shape::vector(values.len()), values).unwrap()
    }

    #[test]
    fn what_is_saved_in_shards_is_restored() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| Tensor::string(directory.path().join(name).to_str().unwrap().to_owned());
        let whole = Tensor::from_slice(&[2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        let names = strings(&["w", "step"]);
        let inputs = [at("t/a"), names.clone(), strings(&["4 3 0,2:-", ""]), whole.clone(), Tensor::scalar(7i64)];
        run_op("SaveV2", attrs![], &inputs).unwrap();
        run_op("SaveV2", attrs![], &[at("t/b"), strings(&["w"]), strings(&["4 3 2,2:-"]), whole.clone()]).unwrap();
        let shards: Vec<Tensor> = vec![at("t/a"), at("t/b")];
        let prefixes: Vec<bytes::Bytes> = shards.iter().map(|shard| shard.strings().unwrap()[0].clone()).collect();
        let prefixes = Tensor::from_strings(Shape::vector(2), prefixes).unwrap();
        run_op("MergeV2Checkpoints", attrs![], &[prefixes, at("model.ckpt-7")]).unwrap();
        assert!(!directory.path().join("t").exists());

        let types: &[DType] = &[DType::Float, DType::Int64];
        let restored = run_op("RestoreV2", attrs![("dtypes", types)], &[at("model.ckpt-7"), names, strings(&["", ""])]);
        let restored = restored.unwrap();
        assert_eq!(restored[0].dims(), &[4, 3]);
        assert_eq!(restored[0].as_slice::<f32>().unwrap()[4..8], [5.0, 6.0, 1.0, 2.0]);
        assert_eq!(restored[1].to_scalar::<i64>().unwrap(), 7);
        let restore = |name: &str, spec: &str, dtype: DType| {
            let types: &[DType] = &[dtype];
            run_op("RestoreV2", attrs![("dtypes", types)], &[at("model.ckpt-7"), strings(&[name]), strings(&[spec])])
        };
        let part = restore("w", "4 3 1,2:-", DType::Float).unwrap();
        assert_eq!(part[0].as_slice::<f32>().unwrap(), &[4.0, 5.0, 6.0, 1.0, 2.0, 3.0]);
        assert_eq!(restore("nothing", "", DType::Float).unwrap_err().code(), Code::NotFound);
        assert_eq!(restore("w", "", DType::Double).unwrap_err().code(), Code::InvalidArgument);
        assert_eq!(restore("w", "5 3 1,2:-", DType::Float).unwrap_err().code(), Code::InvalidArgument);
        assert_eq!(restore("w", "4 3 9,2:-", DType::Float).unwrap_err().code(), Code::InvalidArgument);
    }

    #[test]
    fn names_of_shards() {
        let name =
            run_op("ShardedFilename", attrs![], &[Tensor::string("/a/b"), Tensor::scalar(3i32), Tensor::scalar(12i32)]);
        assert_eq!(name.unwrap()[0].strings().unwrap()[0], "/a/b-00003-of-00012");
        let name = run_op("ShardedFilespec", attrs![], &[Tensor::string("/a/b"), Tensor::scalar(12i32)]);
        assert_eq!(name.unwrap()[0].strings().unwrap()[0], "/a/b-?????-of-00012");
    }

    #[test]
    fn shapes() {
        let types: &[DType] = &[DType::Float, DType::Int64];
        check_shape("RestoreV2", attrs![("dtypes", types)], "[];[2];[2]", "?;?");
        check_shape("ShardedFilename", attrs![], "[];[];[]", "[]");
    }
}
