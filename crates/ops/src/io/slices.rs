//! Checkpoints in TensorFlow's first format: Save, SaveSlices, Restore, RestoreSlice.

use super::texts;
use crate::file_access::file_system;
use kernel::{BoxedKernel, Cost, Gradient, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeContext};
use storage::bundle::parse_shape_and_slice;
use storage::slices::{SliceReader, SliceWriter};
use tensor::{DType, PartialShape, Result, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Save",
            inputs: &["filename: string", "tensor_names: string", "data: T"],
            outputs: &[],
            attrs: &["T: list(type) >= 1"],
            flags: OpFlags::STATEFUL,
        },
        shape: |c| save_shape(c, 2),
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new_blocking(Save { in_slices: false }))],
    },
    Op {
        def: OpDef {
            name: "SaveSlices",
            inputs: &["filename: string", "tensor_names: string", "shapes_and_slices: string", "data: T"],
            outputs: &[],
            attrs: &["T: list(type) >= 1"],
            flags: OpFlags::STATEFUL,
        },
        shape: |c| save_shape(c, 3),
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new_blocking(Save { in_slices: true }))],
    },
    Op {
        def: OpDef {
            name: "Restore",
            inputs: &["file_pattern: string", "tensor_name: string"],
            outputs: &["tensor: dt"],
            attrs: &["dt: type", "preferred_shard: int = -1"],
            flags: OpFlags::STATEFUL,
        },
        shape: restore_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| BoxedKernel::new_blocking(Restore { dtype: builder.output_dtype(0) }))],
    },
    Op {
        def: OpDef {
            name: "RestoreSlice",
            inputs: &["file_pattern: string", "tensor_name: string", "shape_and_slice: string"],
            outputs: &["tensor: dt"],
            attrs: &["dt: type", "preferred_shard: int = -1"],
            flags: OpFlags::STATEFUL,
        },
        shape: restore_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| BoxedKernel::new_blocking(Restore { dtype: builder.output_dtype(0) }))],
    },
];

/// The file name is a scalar; the inputs before the tensors have an element for each of them.
fn save_shape(c: &mut ShapeContext<'_>, first: usize) -> Result<()> {
    c.with_rank(0, 0)?;
    let tensors = c.num_inputs().saturating_sub(first) as i64;
    for input in 1..first {
        let names = c.with_rank(input, 1)?;
        names.merge(&PartialShape::from_dims(&[tensors]))?;
    }
    Ok(())
}

fn restore_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    for input in 0..c.num_inputs() {
        c.with_rank(input, 0)?;
    }
    // The slice determines the shape, if it is a constant.
    if c.num_inputs() == 3
        && let Some(value) = c.constant(2)
        && let [spec] = value.strings()?
        && !spec.is_empty()
    {
        let (_, _, sliced) = parse_shape_and_slice(&String::from_utf8_lossy(spec))?;
        c.set_output(0, &sliced);
    }
    Ok(())
}

/// Returns the one string of an input, whatever its rank.
fn single_text(context: &OpContext<'_>, index: usize, name: &str) -> Result<String> {
    let tensor = context.input(index)?;
    match tensor.strings()? {
        [text] => Ok(String::from_utf8_lossy(text).into_owned()),
        strings => Err(Status::invalid_argument(format!(
            "Input {index} ({name}) must be a string scalar; got a tensor of {} elements",
            strings.len()
        ))),
    }
}

/// Returns the first string of an input; TensorFlow ignores further ones.
fn first_text(context: &OpContext<'_>, index: usize, name: &str) -> Result<String> {
    match context.input(index)?.strings()? {
        [text, ..] => Ok(String::from_utf8_lossy(text).into_owned()),
        [] => Err(Status::invalid_argument(format!("Input {index} ({name}) must have at least 1 element"))),
    }
}

struct Save {
    in_slices: bool,
}

impl Kernel for Save {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let path = single_text(context, 0, "filename")?;
        let names = texts(context.input(1)?)?;
        let first = if self.in_slices { 3 } else { 2 };
        let specs = match self.in_slices {
            true => texts(context.input(2)?)?,
            false => vec![String::new(); names.len()],
        };
        if specs.len() != names.len() {
            return Err(Status::invalid_argument(format!(
                "Expected {} elements for the tensor shapes and slices but got {}",
                names.len(),
                specs.len()
            )));
        }
        if names.len() + first != context.num_inputs() {
            return Err(Status::invalid_argument(format!(
                "Expected totally {} inputs as input #1 (which is a string tensor of saved names) contains {} names, but \
                 received {} inputs",
                names.len() + first,
                names.len(),
                context.num_inputs()
            )));
        }
        let mut writer = SliceWriter::new(file_system(), &path);
        for (index, (name, spec)) in names.iter().zip(&specs).enumerate() {
            let tensor = context.input(first + index)?;
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
        writer.finish()
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

/// Restores a tensor or a slice of one. The hint about which file to search first isn't needed: a file's contents are known from
/// its table.
struct Restore {
    dtype: DType,
}

impl Kernel for Restore {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let pattern = single_text(context, 0, "file_pattern")?;
        let name = first_text(context, 1, "tensor_name")?;
        let spec = if context.num_inputs() == 3 { first_text(context, 2, "shape_and_slice")? } else { String::new() };
        let reader = SliceReader::open(&*file_system(), &pattern)?;
        let tensor = restore_slice(&reader, &name, &spec, self.dtype)?;
        context.set_output(0, tensor);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

/// Restores a tensor, or the slice of it that a specification names.
pub(super) fn restore_slice(reader: &SliceReader, name: &str, spec: &str, dtype: DType) -> Result<Tensor> {
    let (stored_dtype, stored_shape) = reader.info(name)?;
    if stored_dtype != dtype {
        return Err(Status::invalid_argument(format!(
            "Expected to restore a tensor of type {dtype}, got a tensor of type {stored_dtype} instead: tensor_name = \
             {name}"
        )));
    }
    if spec.is_empty() {
        return reader.lookup(name);
    }
    let (whole, slice, _) = parse_shape_and_slice(spec)?;
    if whole != *stored_shape {
        return Err(Status::invalid_argument(format!(
            "Shape in shape_and_slice spec does not match the shape in the save file: {whole}, save file shape: \
             {stored_shape}"
        )));
    }
    reader.lookup_slice(name, &slice)
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_shape, infer, run_op};
    use tensor::{Code, DType, Result, Shape, Tensor};

    fn strings(values: &[&str]) -> Tensor {
        let values: Vec<bytes::Bytes> = values.iter().map(|text| bytes::Bytes::from(text.to_string())).collect();
        Tensor::from_strings(Shape::vector(values.len()), values).unwrap()
    }

    #[test]
    fn what_is_saved_is_restored_also_in_slices_and_by_the_newer_op() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| Tensor::string(directory.path().join(name).to_str().unwrap().to_owned());
        let half = Tensor::from_slice(&[2, 2], &[1f32, 2.0, 3.0, 4.0]).unwrap();
        let step = Tensor::scalar(7i64);
        let names = strings(&["w", "step"]);
        run_op("SaveSlices", attrs![], &[at("x-0"), names, strings(&["4 2 0,2:-", ""]), half.clone(), step]).unwrap();
        run_op("SaveSlices", attrs![], &[at("x-1"), strings(&["w"]), strings(&["4 2 2,2:-"]), half.clone()]).unwrap();
        let float = || attrs![("dt", DType::Float)];
        let whole = run_op("Restore", float(), &[at("x-?"), Tensor::string("w")]).unwrap();
        assert_eq!(whole[0].dims(), &[4, 2]);
        let restore = |name: &'static str, spec: &'static str, attrs| -> Result<Tensor> {
            let inputs = [at("x-?"), Tensor::string(name), Tensor::string(spec)];
            Ok(run_op("RestoreSlice", attrs, &inputs)?.remove(0))
        };
        let middle = restore("w", "4 2 1,2:-", float()).unwrap();
        assert_eq!(middle.as_slice::<f32>().unwrap(), &[3.0, 4.0, 1.0, 2.0]);
        assert_eq!(restore("w", "5 2 1,2:-", float()).unwrap_err().code(), Code::InvalidArgument);
        assert_eq!(restore("w", "", attrs![("dt", DType::Int32)]).unwrap_err().code(), Code::InvalidArgument);
        assert_eq!(restore("v", "", float()).unwrap_err().code(), Code::NotFound);

        run_op("Save", attrs![], &[at("y"), strings(&["a", "b"]), half, Tensor::scalar(1i32)]).unwrap();
        let types: &[DType] = &[DType::Int32, DType::Float];
        let inputs = [at("y"), strings(&["b", "a"]), strings(&["", "2 2 1,1:-"])];
        let restored = run_op("RestoreV2", attrs![("dtypes", types)], &inputs).unwrap();
        assert_eq!(restored[0].to_scalar::<i32>().unwrap(), 1);
        assert_eq!(restored[1].as_slice::<f32>().unwrap(), &[3.0, 4.0]);
    }

    #[test]
    fn mistakes_are_errors() {
        let directory = tempfile::tempdir().unwrap();
        let path = Tensor::string(directory.path().join("x").to_str().unwrap().to_owned());
        let value = Tensor::vector(&[1f32, 2.0]);
        let code = |op: &str, inputs: &[Tensor]| run_op(op, attrs![], inputs).unwrap_err().code();
        let save = |spec: &str| code("SaveSlices", &[path.clone(), strings(&["a"]), strings(&[spec]), value.clone()]);
        assert_eq!(save("2"), Code::InvalidArgument);
        assert_eq!(save("3 0,3"), Code::InvalidArgument);
        assert_eq!(save("1 0,2"), Code::InvalidArgument);
        assert_eq!(code("Save", &[path.clone(), strings(&["a", "b"]), value.clone()]), Code::InvalidArgument);
        assert_eq!(code("Save", &[strings(&["a", "b"]), strings(&["a"]), value]), Code::InvalidArgument);
        assert!(std::fs::read_dir(directory.path()).unwrap().next().is_none(), "nothing was written");
    }

    #[test]
    fn shapes() {
        check_shape("Restore", attrs![("dt", DType::Float)], "[];[]", "?");
        check_shape("RestoreSlice", attrs![("dt", DType::Float)], "[];[];[]", "?");
        let spec = [(2, Tensor::string("4 3 1,2:-"))];
        let shapes = infer("RestoreSlice", attrs![("dt", DType::Float)], "[];[];[]", &spec).unwrap();
        assert_eq!(shapes[0].to_string(), "[2,3]");
        let types: &[DType] = &[DType::Float];
        assert!(infer("Save", attrs![("T", types)], "[];[2];[3]", &[]).is_err());
    }
}
