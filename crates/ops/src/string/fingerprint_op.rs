//! Fingerprint: a short hash of each row of a tensor, the same on every machine.

use super::fingerprint::fingerprint64;
use graph::ShapeContext;
use kernel::{BoxedKernel, Gradient, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags};
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[Op {
    def: OpDef {
        name: "Fingerprint",
        inputs: &["data: T", "method: string"],
        outputs: &["fingerprint: uint8"],
        attrs: &["T: type"],
        flags: OpFlags::NONE,
    },
    shape: fingerprint_shape,
    gradient: Gradient::Unsupported,
    kernels: &[KernelDef::any(|builder| match builder.input_dtype(0) {
        DType::Resource | DType::Variant => {
            Err(Status::invalid_argument(format!("Data type not supported: {}", builder.input_dtype(0))))
        }
        _ => BoxedKernel::new(Fingerprint),
    })],
}];

/// The only supported method, and the number of its bytes.
const METHOD: &[u8] = b"farmhash64";
const FINGERPRINT_BYTES: usize = 8;

fn fingerprint_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let data = c.with_rank_at_least(0, 1)?;
    c.with_rank(1, 0)?;
    let bytes = match c.constant(1) {
        None => None,
        Some(method) if method.strings()?.first().is_some_and(|method| *method == METHOD) => {
            Some(FINGERPRINT_BYTES as i64)
        }
        Some(_) => return Err(Status::invalid_argument("`method` is not supported")),
    };
    c.set_output(0, PartialShape::new(&[data.dim(0), bytes]));
    Ok(())
}

struct Fingerprint;

impl Kernel for Fingerprint {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (data, method) = (context.input(0)?, context.input(1)?);
        match method.strings()? {
            [text] if method.shape().is_scalar() && *text == METHOD => {}
            [text] if method.shape().is_scalar() => {
                return Err(Status::invalid_argument(format!(
                    "Unsupported fingerprint method: {}",
                    text.escape_ascii()
                )));
            }
            _ => {
                return Err(Status::invalid_argument(format!(
                    "`method` should be a scalar string: {}",
                    method.shape()
                )));
            }
        }
        let Some(&rows) = data.dims().first() else {
            return Err(Status::invalid_argument(format!(
                "`data` should have at least one dimension: {}",
                data.shape()
            )));
        };
        let rows = rows as usize;
        let output = Tensor::build(Shape::new(&[rows as i64, FINGERPRINT_BYTES as i64])?, |output: &mut [u8]| {
            let prints = (0..rows).map(|row| row_fingerprint(data, row, rows).to_le_bytes());
            output.chunks_exact_mut(FINGERPRINT_BYTES).zip(prints).for_each(|(to, print)| to.copy_from_slice(&print));
        })?;
        context.set_output(0, output);
        Ok(())
    }
}

/// Several strings of a row are represented by their own fingerprints.
fn row_fingerprint(data: &Tensor, row: usize, rows: usize) -> u64 {
    if let Ok(strings) = data.strings() {
        let len = strings.len() / rows;
        return match &strings[row * len..(row + 1) * len] {
            [string] => fingerprint64(string),
            several => {
                let prints: Vec<u8> = several.iter().flat_map(|string| fingerprint64(string).to_le_bytes()).collect();
                fingerprint64(&prints)
            }
        };
    }
    let bytes = data.buffer().map_or(&[][..], |buffer| buffer.bytes());
    let len = bytes.len() / rows;
    fingerprint64(&bytes[row * len..(row + 1) * len])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_shape, run_op};
    use tensor::Code;

    #[test]
    fn rows_have_fingerprints() {
        let method = Tensor::string("farmhash64");
        let words = Tensor::from_strings(Shape::vector(2), vec!["a".into(), "b".into()]).unwrap();
        let prints = run_op("Fingerprint", attrs![], &[words.clone(), method.clone()]).unwrap();
        assert_eq!(prints[0].dims(), &[2, 8]);
        assert_eq!(prints[0].as_slice::<u8>().unwrap()[..8], fingerprint64(b"a").to_le_bytes());
        let pair = words.into_shape(Shape::new(&[1, 2]).unwrap()).unwrap();
        let both = [fingerprint64(b"a").to_le_bytes(), fingerprint64(b"b").to_le_bytes()].concat();
        let prints = run_op("Fingerprint", attrs![], &[pair, method.clone()]).unwrap();
        assert_eq!(prints[0].as_slice::<u8>().unwrap(), fingerprint64(&both).to_le_bytes());
        let none = Tensor::zeros(DType::Float, Shape::new(&[0, 3]).unwrap()).unwrap();
        assert_eq!(run_op("Fingerprint", attrs![], &[none, method.clone()]).unwrap()[0].dims(), &[0, 8]);
        let code = |data: Tensor, method: Tensor| run_op("Fingerprint", attrs![], &[data, method]).unwrap_err().code();
        assert_eq!(code(Tensor::scalar(1i32), method), Code::InvalidArgument);
        assert_eq!(code(Tensor::vector(&[1i32]), Tensor::string("md5")), Code::InvalidArgument);
        check_shape("Fingerprint", attrs![], "[2,3];[]", "[2,?]");
    }
}
