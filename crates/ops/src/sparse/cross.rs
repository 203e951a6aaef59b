//! Crosses of features: SparseCross, SparseCrossV2, SparseCrossHashed.

use super::coordinates::{Sparse, indices_tensor};
use crate::string::fingerprint64;
use bytes::Bytes;
use graph::ShapeContext;
use kernel::{BoxedKernel, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags};
use siphasher::sip::SipHasher24;
use std::ops::Range;
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

/// The most crosses of a node.
const MAX_CROSSES: usize = 1 << 31;

const FEATURES: [&str; 4] =
    ["indices: N * int64", "values: sparse_types", "shapes: N * int64", "dense_inputs: dense_types"];
const TYPES: [&str; 3] =
    ["N: int >= 0", "sparse_types: list({int64, string}) >= 0", "dense_types: list({int64, string}) >= 0"];

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "SparseCross",
            inputs: &FEATURES,
            outputs: &["output_indices: int64", "output_values: out_type", "output_shape: int64"],
            attrs: &[
                TYPES[0],
                "hashed_output: bool",
                "num_buckets: int >= 0",
                "hash_key: int",
                TYPES[1],
                TYPES[2],
                "out_type: {int64, string}",
                "internal_type: {int64, string}",
            ],
            flags: OpFlags::NONE,
        },
        shape: cross_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| {
            let attrs = builder.attrs();
            let how = match attrs.dtype("out_type")? {
                DType::String => How::Joined { strings_only: true },
                _ => How::Keyed {
                    key: attrs.int("hash_key")? as u64,
                    num_buckets: u64::try_from(attrs.int("num_buckets")?).unwrap_or(0),
                },
            };
            SparseCross::create(builder, how)
        })],
    },
    Op {
        def: OpDef {
            name: "SparseCrossV2",
            inputs: &[FEATURES[0], FEATURES[1], FEATURES[2], FEATURES[3], "sep: string"],
            outputs: &["output_indices: int64", "output_values: string", "output_shape: int64"],
            attrs: &TYPES,
            flags: OpFlags::NONE,
        },
        shape: cross_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| SparseCross::create(builder, How::Joined { strings_only: false }))],
    },
    Op {
        def: OpDef {
            name: "SparseCrossHashed",
            inputs: &[
                FEATURES[0],
                FEATURES[1],
                FEATURES[2],
                FEATURES[3],
                "num_buckets: int64",
                "strong_hash: bool",
                "salt: int64",
            ],
            outputs: &["output_indices: int64", "output_values: int64", "output_shape: int64"],
            attrs: &TYPES,
            flags: OpFlags::NONE,
        },
        shape: cross_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| SparseCross::create(builder, How::Salted))],
    },
];

fn cross_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, PartialShape::new(&[None, Some(2)]));
    c.set_output(1, PartialShape::unknown_of_rank(1));
    c.set_output(2, PartialShape::from_dims(&[2]));
    Ok(())
}

/// The result for the features of a cross.
#[derive(Clone, Copy)]
enum How {
    /// A string of all, with a separator: `_X_` for the op that takes only strings.
    Joined { strings_only: bool },
    /// A hash, with a key.
    Keyed { key: u64, num_buckets: u64 },
    /// A hash; buckets and salt are inputs.
    Salted,
}

struct SparseCross {
    how: How,
    indices: Range<usize>,
    values: Range<usize>,
    shapes: Range<usize>,
    dense: Range<usize>,
}

impl SparseCross {
    fn create(builder: &KernelBuilder<'_>, how: How) -> Result<BoxedKernel> {
        BoxedKernel::new(SparseCross {
            how,
            indices: builder.input_range("indices")?,
            values: builder.input_range("values")?,
            shapes: builder.input_range("shapes")?,
            dense: builder.input_range("dense_inputs")?,
        })
    }
}

/// The features of one column: for each row of the batch, the range of its values.
struct Column<'a> {
    values: &'a Tensor,
    rows: Vec<Range<usize>>,
    is_dense: bool,
}

impl SparseCross {
    fn columns<'a>(&self, context: &'a OpContext<'_>) -> Result<(usize, Vec<Column<'a>>)> {
        let mut columns = Vec::new();
        let mut batch: Option<usize> = None;
        let mut same = |size: i64| -> Result<usize> {
            let size = usize::try_from(size).unwrap_or(0);
            match *batch.get_or_insert(size) {
                known if known != size => {
                    Err(Status::invalid_argument(format!("Expected batch size {known} but got {size} in a column")))
                }
                known => Ok(known),
            }
        };
        for ((indices, values), shape) in self.indices.clone().zip(self.values.clone()).zip(self.shapes.clone()) {
            let values = context.input(values)?;
            let sparse = Sparse::new(context.input(indices)?, values, context.input(shape)?)?;
            if sparse.rank() != 2 {
                return Err(Status::invalid_argument(format!(
                    "shape should imply a 2D tensor, but got {} dimensions",
                    sparse.rank()
                )));
            }
            let count = same(sparse.shape[0])?;
            Shape::vector(count).num_bytes(size_of::<Range<usize>>())?;
            let mut rows = vec![0..0; count];
            let mut next = 0;
            for (row, range) in rows.iter_mut().enumerate() {
                let start = next;
                while next < sparse.count() && sparse.index(next)[0] == row as i64 {
                    next += 1;
                }
                *range = start..next;
            }
            if next != sparse.count() {
                return Err(Status::invalid_argument("indices of a column must be ordered and within the batch"));
            }
            columns.push(Column { values, rows, is_dense: false });
        }
        for dense in self.dense.clone() {
            let values = context.input(dense)?;
            let [count, width] = *values.dims() else {
                return Err(Status::invalid_argument(format!(
                    "Dense inputs should be a matrix but received shape {}",
                    values.shape()
                )));
            };
            let (count, width) = (same(count)?, width as usize);
            let rows = (0..count).map(|row| row * width..(row + 1) * width).collect();
            columns.push(Column { values, rows, is_dense: true });
        }
        Ok((batch.unwrap_or(0), columns))
    }
}

impl Kernel for SparseCross {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (batch, columns) = self.columns(context)?;
        let last = self.dense.end;
        // The number of crosses of each row.
        let mut counts = Vec::with_capacity(batch);
        let mut total = 0usize;
        for row in 0..batch {
            let product =
                columns.iter().try_fold(1usize, |product, column| product.checked_mul(column.rows[row].len()));
            let count = if columns.is_empty() { Some(0) } else { product };
            let sum = count.and_then(|count| total.checked_add(count)).filter(|&sum| sum <= MAX_CROSSES);
            total = sum.ok_or_else(|| Status::resource_exhausted("too many crosses"))?;
            counts.push(count.unwrap_or(0));
        }
        let mut indices = Vec::with_capacity(total * 2);
        for (row, &count) in counts.iter().enumerate() {
            (0..count).for_each(|place| indices.extend([row as i64, place as i64]));
        }
        let widest = counts.iter().copied().max().unwrap_or(0);
        let values = match self.how {
            How::Joined { strings_only } => {
                let separator = match strings_only {
                    true => Bytes::from_static(b"_X_"),
                    false => one_string(context.input(last)?)?,
                };
                if let Some(column) =
                    columns.iter().find(|column| strings_only && column.values.dtype() != DType::String)
                {
                    return Err(Status::invalid_argument(format!(
                        "Input values should be of internal type {} but received {}",
                        DType::String as i32,
                        column.values.dtype() as i32
                    )));
                }
                let texts: Vec<Vec<Bytes>> = columns.iter().map(texts).collect::<Result<_>>()?;
                let mut joined: Vec<Bytes> = Vec::with_capacity(total);
                for_each_cross(&columns, &counts, |members| {
                    let mut text = Vec::new();
                    for (place, (column, &member)) in texts.iter().zip(members).enumerate() {
                        if place > 0 {
                            text.extend_from_slice(&separator);
                        }
                        text.extend_from_slice(&column[member]);
                    }
                    joined.push(text.into());
                });
                Tensor::from_strings(Shape::vector(total), joined)?
            }
            How::Keyed { key, num_buckets } => {
                let number = |_: &Column<'_>, number: i64| number as u64;
                let hashes: Vec<Vec<u64>> =
                    columns.iter().map(|column| hashes(column, fingerprint64, number)).collect::<Result<_>>()?;
                crossed(&columns, &counts, &hashes, Some(key), num_buckets, total)
            }
            How::Salted => {
                let num_buckets = context.scalar::<i64>(last, "num_buckets")?;
                let num_buckets = u64::try_from(num_buckets).unwrap_or(0);
                let strong = context.scalar::<bool>(last + 1, "strong_hash")?;
                let [low, high] = *context.slice::<i64>(last + 2)? else {
                    return Err(Status::invalid_argument("salt must have two elements"));
                };
                let hasher = SipHasher24::new_with_keys(low as u64, high as u64);
                let hash = |text: &[u8]| if strong { hasher.hash(text) } else { fingerprint64(text) };
                // TensorFlow hashes the first four bytes of a number, and one of a dense column only if asked for a
                // strong hash.
                let number = |column: &Column<'_>, number: i64| match column.is_dense && !strong {
                    true => number as u64,
                    false => hash(&(number as u32).to_le_bytes()),
                };
                let hashes: Vec<Vec<u64>> =
                    columns.iter().map(|column| hashes(column, hash, number)).collect::<Result<_>>()?;
                crossed(&columns, &counts, &hashes, None, num_buckets, total)
            }
        };
        let indices = indices_tensor(total, 2, &indices)?;
        context.set_output(0, indices);
        context.set_output(1, values);
        context.set_output(2, Tensor::vector(&[batch as i64, widest as i64]));
        Ok(())
    }
}

fn one_string(tensor: &Tensor) -> Result<Bytes> {
    match tensor.strings()? {
        [text] => Ok(text.clone()),
        _ => Err(Status::invalid_argument("Input separator should be a scalar.")),
    }
}

fn texts(column: &Column<'_>) -> Result<Vec<Bytes>> {
    match column.values.dtype() {
        DType::String => Ok(column.values.strings()?.to_vec()),
        _ => Ok(column.values.as_slice::<i64>()?.iter().map(|number| number.to_string().into()).collect()),
    }
}

fn hashes(
    column: &Column<'_>,
    hash: impl Fn(&[u8]) -> u64,
    number_hash: impl Fn(&Column<'_>, i64) -> u64,
) -> Result<Vec<u64>> {
    match column.values.dtype() {
        DType::String => Ok(column.values.strings()?.iter().map(|text| hash(text)).collect()),
        _ => Ok(column.values.as_slice::<i64>()?.iter().map(|&number| number_hash(column, number)).collect()),
    }
}

/// Calls `take` with the members of each cross; those of the last column change fastest.
fn for_each_cross(columns: &[Column<'_>], counts: &[usize], mut take: impl FnMut(&[usize])) {
    let mut members = vec![0; columns.len()];
    for (row, &count) in counts.iter().enumerate() {
        members.iter_mut().zip(columns).for_each(|(member, column)| *member = column.rows[row].start);
        for _ in 0..count {
            take(&members);
            for (member, column) in members.iter_mut().zip(columns).rev() {
                *member += 1;
                if *member < column.rows[row].end {
                    break;
                }
                *member = column.rows[row].start;
            }
        }
    }
}

fn crossed(
    columns: &[Column<'_>],
    counts: &[usize],
    hashes: &[Vec<u64>],
    key: Option<u64>,
    num_buckets: u64,
    total: usize,
) -> Tensor {
    let mut crosses = Vec::with_capacity(total);
    let modulus = if num_buckets > 0 { num_buckets } else { i64::MAX as u64 };
    for_each_cross(columns, counts, |members| {
        let mut parts = hashes.iter().zip(members).map(|(column, &member)| column[member]);
        let start = key.or_else(|| parts.next()).unwrap_or(0);
        crosses.push((parts.fold(start, concatenated) % modulus) as i64);
    });
    Tensor::vector(&crosses)
}

/// Combines two fingerprints.
fn concatenated(first: u64, second: u64) -> u64 {
    const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
    let mixed = |value: u64| value ^ (value >> 47);
    let joined = (first ^ MULTIPLIER) ^ mixed(second.wrapping_mul(MULTIPLIER)).wrapping_mul(MULTIPLIER);
    mixed(mixed(joined.wrapping_mul(MULTIPLIER)).wrapping_mul(MULTIPLIER))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_shape, run_op};
    use graph::AttrMap;

    fn texts(shape: &[i64], values: &[&'static str]) -> Tensor {
        let texts = values.iter().map(|text| Bytes::from_static(text.as_bytes())).collect();
        Tensor::from_strings(Shape::new(shape).unwrap(), texts).unwrap()
    }

    fn inputs(values: Tensor, dense: Tensor) -> Vec<Tensor> {
        let indices = Tensor::from_slice(&[3, 2], &[0i64, 0, 0, 1, 1, 0]).unwrap();
        vec![indices, values, Tensor::vector(&[2i64, 2]), dense]
    }

    fn abc() -> Vec<Tensor> {
        inputs(texts(&[3], &["a", "b", "c"]), texts(&[2, 1], &["x", "y"]))
    }

    fn types(sparse: DType, dense: DType) -> AttrMap {
        attrs![("N", 1i64), ("sparse_types", &[sparse][..]), ("dense_types", &[dense][..])]
    }

    fn old(sparse: DType, internal: DType, num_buckets: i64) -> AttrMap {
        let mut attrs = types(sparse, DType::String);
        attrs.set("hashed_output", internal == DType::Int64);
        attrs.set("num_buckets", num_buckets);
        attrs.set("hash_key", 956888297470i64);
        attrs.set("out_type", internal);
        attrs.set("internal_type", internal);
        attrs
    }

    #[test]
    fn crosses_are_tensorflows() {
        let outputs = run_op("SparseCross", old(DType::String, DType::String, 0), &abc()).unwrap();
        assert_eq!(outputs[0].as_slice::<i64>().unwrap(), &[0, 0, 0, 1, 1, 0]);
        assert_eq!(outputs[1].strings().unwrap(), &["a_X_x", "b_X_x", "c_X_y"]);
        assert_eq!(outputs[2].as_slice::<i64>().unwrap(), &[2, 2]);
        let outputs = run_op("SparseCross", old(DType::String, DType::Int64, 0), &abc()).unwrap();
        let expected = [1484974617627318892i64, 3552177129620670004, 6571367263544129360];
        assert_eq!(outputs[1].as_slice::<i64>().unwrap(), &expected);
        let mut strings_inside = old(DType::String, DType::Int64, 0);
        strings_inside.set("internal_type", DType::String);
        let outputs = run_op("SparseCross", strings_inside, &abc()).unwrap();
        assert_eq!(outputs[1].as_slice::<i64>().unwrap(), &expected);
        let numbers = inputs(Tensor::vector(&[7i64, 8, 9]), texts(&[2, 1], &["x", "y"]));
        let outputs = run_op("SparseCross", old(DType::Int64, DType::Int64, 100), &numbers).unwrap();
        assert_eq!(outputs[1].as_slice::<i64>().unwrap(), &[56, 61, 76]);
        let status = run_op("SparseCross", old(DType::Int64, DType::String, 0), &numbers).unwrap_err();
        assert!(status.message().starts_with("Input values should be of internal type 7 but received 9"), "{status}");
    }

    #[test]
    fn newer_ops() {
        let mut joined = abc();
        joined.push(Tensor::string("_Y_"));
        let outputs = run_op("SparseCrossV2", types(DType::String, DType::String), &joined).unwrap();
        assert_eq!(outputs[1].strings().unwrap(), &["a_Y_x", "b_Y_x", "c_Y_y"]);
        for (strong, expected) in [(false, [38i64, 20, 96]), (true, [10, 39, 55])] {
            let mut hashed = abc();
            hashed.extend([Tensor::scalar(100i64), Tensor::scalar(strong), Tensor::vector(&[137i64, 173])]);
            let outputs = run_op("SparseCrossHashed", types(DType::String, DType::String), &hashed).unwrap();
            assert_eq!(outputs[1].as_slice::<i64>().unwrap(), &expected);
        }
    }

    #[test]
    fn numbers_are_hashed_as_tensorflow_hashes_them() {
        let dense = |number: bool| match number {
            true => Tensor::from_slice(&[2, 1], &[5i64, (1 << 33) + 5]).unwrap(),
            false => texts(&[2, 1], &["x", "y"]),
        };
        let sparse = |number: bool| match number {
            true => Tensor::vector(&[7i64, 8, (1 << 40) + 7]),
            false => texts(&[3], &["a", "b", "c"]),
        };
        let dtype = |number: bool| if number { DType::Int64 } else { DType::String };
        for (strong, first, second, expected) in [
            (false, true, true, [5930889671154248129i64, 7878074850858243265, 8259228239987237516]),
            (false, true, false, [1890053902898358854, 4529015666481213319, 338336134791048699]),
            (false, false, true, [1581116392146741802, 2749404292992048660, 140973037832829710]),
            (false, false, false, [598440913169127831, 4641000509844720313, 5351530424226319396]),
            (true, true, false, [2926497650858202347, 6479581073046518358, 5152447215377083952]),
            (true, false, false, [4917314103255751341, 3483336386331054196, 8660727607858061653]),
        ] {
            let mut given = inputs(sparse(first), dense(second));
            given.extend([Tensor::scalar(0i64), Tensor::scalar(strong), Tensor::vector(&[3i64, 4])]);
            let outputs = run_op("SparseCrossHashed", types(dtype(first), dtype(second)), &given).unwrap();
            assert_eq!(outputs[1].as_slice::<i64>().unwrap(), &expected);
        }
    }

    #[test]
    fn mistakes() {
        let mut unordered = abc();
        unordered[0] = Tensor::from_slice(&[3, 2], &[1i64, 0, 0, 1, 1, 0]).unwrap();
        assert!(run_op("SparseCross", old(DType::String, DType::String, 0), &unordered).is_err());
        let mut other_batch = abc();
        other_batch[3] = texts(&[3, 1], &["x", "y", "z"]);
        assert!(run_op("SparseCross", old(DType::String, DType::String, 0), &other_batch).is_err());
        check_shape("SparseCross", old(DType::String, DType::String, 0), "[3,2];[3];[2];[2,1]", "[?,2];[?];[2]");
    }
}
