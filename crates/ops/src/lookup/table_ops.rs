//! Ops on tables: creating them, finding, inserting, removing, exporting.
//!
//! Each op has two versions, which take the table as a ref to two strings or as a resource.

use super::column::Key;
use super::table::Table;
use super::table_spec::{MaxLoadFactor, TableKind, TableSpec};
use crate::data_flow::ResourceOp;
use graph::{Graph, Operation, Output, ShapeContext};
use kernel::{
    BoxedKernel, Cost, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeFn, shape,
};
use tensor::{DType, DTypeAndShape, PartialShape, Result, Shape, Status, Tensor};

const STRINGS: &str = "table_handle: Ref(string)";
const RESOURCE: &str = "table_handle: resource";
const CONTAINER: &str = "container: string = ''";
const SHARED_NAME: &str = "shared_name: string = ''";
const NODE_NAME: &str = "use_node_name_sharing: bool = false";
const KEY: &str = "key_dtype: type";
const VALUE: &str = "value_dtype: type";
const VALUE_SHAPE: &str = "value_shape: shape = { }";

const SCALARS: &[&str] = &[CONTAINER, SHARED_NAME, NODE_NAME, KEY, VALUE];
const TENSORS: &[&str] = &[CONTAINER, SHARED_NAME, NODE_NAME, KEY, VALUE, VALUE_SHAPE];
const DENSE: &[&str] = &[
    CONTAINER,
    SHARED_NAME,
    NODE_NAME,
    KEY,
    VALUE,
    VALUE_SHAPE,
    "initial_num_buckets: int = 131072",
    "max_load_factor: float = 0.8",
];
const TYPES: &[&str] = &["Tin: type", "Tout: type"];
const EXPORTED: &[&str] = &["Tkeys: type", "Tvalues: type"];

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    maker("HashTable", &[], &[STRINGS], SCALARS),
    maker("HashTableV2", &[], &[RESOURCE], SCALARS),
    maker("MutableHashTable", &[], &[STRINGS], SCALARS),
    maker("MutableHashTableV2", &[], &[RESOURCE], SCALARS),
    maker("MutableHashTableOfTensors", &[], &[STRINGS], TENSORS),
    maker("MutableHashTableOfTensorsV2", &[], &[RESOURCE], TENSORS),
    maker("MutableDenseHashTable", &["empty_key: key_dtype"], &[STRINGS], DENSE),
    maker("MutableDenseHashTableV2", &["empty_key: key_dtype", "deleted_key: key_dtype"], &[RESOURCE], DENSE),
    user("LookupTableFind", &[STRINGS, "keys: Tin", "default_value: Tout"], &["values: Tout"], TYPES, find_shape, FIND),
    user(
        "LookupTableFindV2",
        &[RESOURCE, "keys: Tin", "default_value: Tout"],
        &["values: Tout"],
        TYPES,
        find_shape,
        FIND,
    ),
    user("LookupTableInsert", &[STRINGS, "keys: Tin", "values: Tout"], &[], TYPES, shape::unknown, INSERT),
    user("LookupTableInsertV2", &[RESOURCE, "keys: Tin", "values: Tout"], &[], TYPES, shape::unknown, INSERT),
    user("LookupTableRemoveV2", &[RESOURCE, "keys: Tin"], &[], &["Tin: type"], shape::unknown, REMOVE),
    user("LookupTableSize", &[STRINGS], &["size: int64"], &[], shape::scalar, SIZE),
    user("LookupTableSizeV2", &[RESOURCE], &["size: int64"], &[], shape::scalar, SIZE),
    user("LookupTableExport", &[STRINGS], &["keys: Tkeys", "values: Tvalues"], EXPORTED, export_shape, EXPORT),
    user("LookupTableExportV2", &[RESOURCE], &["keys: Tkeys", "values: Tvalues"], EXPORTED, export_shape, EXPORT),
    user("LookupTableImport", &[STRINGS, "keys: Tin", "values: Tout"], &[], TYPES, shape::unknown, IMPORT),
    user("LookupTableImportV2", &[RESOURCE, "keys: Tin", "values: Tout"], &[], TYPES, shape::unknown, IMPORT),
];

const MAKE: &[KernelDef] = &[KernelDef::any(create_table)];
const FIND: &[KernelDef] = &[KernelDef::any(|builder| {
    TableOp::create(builder, |table, context| {
        let found = table.find(context.input(1)?, context.input(2)?)?;
        context.set_output(0, found);
        Ok(())
    })
})];
const INSERT: &[KernelDef] = &[KernelDef::any(|builder| {
    TableOp::create(builder, |table, context| table.insert(context.input(1)?, context.input(2)?))
})];
const REMOVE: &[KernelDef] =
    &[KernelDef::any(|builder| TableOp::create(builder, |table, context| table.remove(context.input(1)?)))];
const IMPORT: &[KernelDef] = &[KernelDef::any(|builder| {
    TableOp::create(builder, |table, context| table.import(context.input(1)?, context.input(2)?))
})];
const SIZE: &[KernelDef] = &[KernelDef::any(|builder| {
    TableOp::create(builder, |table, context| {
        context.set_output(0, Tensor::scalar(table.len() as i64));
        Ok(())
    })
})];
const EXPORT: &[KernelDef] = &[KernelDef::any(|builder| {
    TableOp::create(builder, |table, context| {
        let (keys, values) = table.export()?;
        context.set_output(0, keys);
        context.set_output(1, values);
        Ok(())
    })
})];

const fn maker(
    name: &'static str,
    inputs: &'static [&'static str],
    outputs: &'static [&'static str],
    attrs: &'static [&'static str],
) -> Op {
    Op {
        def: OpDef { name, inputs, outputs, attrs, flags: OpFlags::STATEFUL },
        shape: table_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: MAKE,
    }
}

/// An op on a table; those by resource are stateful, those by ref aren't.
const fn user(
    name: &'static str,
    inputs: &'static [&'static str],
    outputs: &'static [&'static str],
    attrs: &'static [&'static str],
    shape: ShapeFn,
    kernels: &'static [KernelDef],
) -> Op {
    let flags = if name.as_bytes()[name.len() - 1] == b'2' { OpFlags::STATEFUL } else { OpFlags::NONE };
    Op { def: OpDef { name, inputs, outputs, attrs, flags }, shape, gradient: Gradient::NotDifferentiable, kernels }
}

/// Returns a table that is initialized once.
#[track_caller]
pub fn hash_table(graph: &Graph, key_dtype: DType, value_dtype: DType, shared_name: &str) -> Output {
    let op = graph.op("HashTableV2").attr("key_dtype", key_dtype).attr("value_dtype", value_dtype);
    op.attr("shared_name", shared_name).output()
}

/// Returns a table that can be changed at any time.
#[track_caller]
pub fn mutable_hash_table(graph: &Graph, key_dtype: DType, value_dtype: DType, shared_name: &str) -> Output {
    let op = graph.op("MutableHashTableV2").attr("key_dtype", key_dtype).attr("value_dtype", value_dtype);
    op.attr("shared_name", shared_name).output()
}

/// Returns the values of keys; those that aren't in the table get the default.
#[track_caller]
pub fn lookup_table_find(table: &Output, keys: &Output, default_value: &Output) -> Output {
    table.graph().op("LookupTableFindV2").input(table).input(keys).input(default_value).output()
}

/// Adds keys with their values, or replaces the values of existing ones.
#[track_caller]
pub fn lookup_table_insert(table: &Output, keys: &Output, values: &Output) -> Operation {
    table.graph().op("LookupTableInsertV2").input(table).input(keys).input(values).build()
}

/// Initializes a table, or replaces the contents of a mutable one.
#[track_caller]
pub fn lookup_table_import(table: &Output, keys: &Output, values: &Output) -> Operation {
    table.graph().op("LookupTableImportV2").input(table).input(keys).input(values).build()
}

/// Returns the number of keys in a table.
#[track_caller]
pub fn lookup_table_size(table: &Output) -> Output {
    table.graph().op("LookupTableSizeV2").input(table).output()
}

/// Returns all keys of a table and their values.
#[track_caller]
pub fn lookup_table_export(table: &Output, key_dtype: DType, value_dtype: DType) -> (Output, Output) {
    let op = table.graph().op("LookupTableExportV2").input(table).attr("Tkeys", key_dtype).attr("Tvalues", value_dtype);
    let export = op.build();
    (export.output(0), export.output(1))
}

fn table_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    if c.output_types[0].dtype == DType::String {
        c.set_output(0, PartialShape::from_dims(&[2]));
        return Ok(());
    }
    c.set_output(0, PartialShape::scalar());
    let name = c.schema.name.as_str();
    if name.starts_with("Mutable") {
        let key = if name.contains("Dense") { c.input(0) } else { PartialShape::scalar() };
        let value = c.attrs.shape("value_shape").unwrap_or_else(|_| PartialShape::scalar());
        c.output_handles[0] = vec![
            DTypeAndShape { dtype: c.attrs.dtype("key_dtype")?, shape: key },
            DTypeAndShape { dtype: c.attrs.dtype("value_dtype")?, shape: value },
        ];
    }
    Ok(())
}

fn find_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    if let Some([key, value]) = c.input_handles.first().map(Vec::as_slice) {
        let keys = c.input(1);
        let shape = match (keys.rank(), key.shape.rank()) {
            (Some(rank), Some(key_rank)) if rank >= key_rank => keys.slice(0, rank - key_rank).concat(&value.shape),
            _ => PartialShape::unknown(),
        };
        c.set_output(0, shape);
    }
    Ok(())
}

fn export_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, PartialShape::unknown_of_rank(1));
    c.set_output(1, PartialShape::unknown());
    if let Some([key, value]) = c.input_handles.first().map(Vec::as_slice) {
        let rows = PartialShape::unknown_of_rank(1);
        let (keys, values) = (rows.concat(&key.shape), rows.concat(&value.shape));
        c.set_output(0, keys);
        c.set_output(1, values);
    }
    Ok(())
}

fn create_table(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
    let attrs = builder.attrs();
    let op = builder.node.op().trim_end_matches("V2").to_owned();
    let (key_dtype, value_dtype) = (attrs.dtype("key_dtype")?, attrs.dtype("value_dtype")?);
    let value_shape = match attrs.shape("value_shape") {
        Ok(shape) => shape.to_shape().ok_or_else(|| {
            Status::invalid_argument(format!("Default value must be a vector or scalar, got shape {shape}"))
        })?,
        Err(_) => Shape::scalar(),
    };
    if value_shape.rank() > 1 {
        return Err(Status::invalid_argument(format!("Default value must be a vector, got shape {value_shape}")));
    }
    let is_dense = op == "MutableDenseHashTable";
    let kind = if op == "HashTable" { TableKind::Initializable } else { TableKind::Mutable };
    let spec = TableSpec { kind, key_dtype, value_dtype, key_shape: Shape::scalar(), value_shape };
    let (buckets, load) = match is_dense {
        true => (attrs.int("initial_num_buckets")?, attrs.float("max_load_factor")?),
        false => (4, 0.8),
    };
    let buckets =
        usize::try_from(buckets).ok().filter(|count| *count >= 4 && count.is_power_of_two()).ok_or_else(|| {
            Status::invalid_argument(format!("Number of buckets must be at least 4 and a power of 2, got: {buckets}"))
        })?;
    if !(load > 0.0 && load < 1.0) {
        return Err(Status::invalid_argument(format!("max_load_factor must be between 0 and 1, got: {load}")));
    }
    ResourceOp::from_inputs(
        builder,
        move |_, context| {
            let mut spec = spec.clone();
            if is_dense {
                dense_spec(&mut spec, context, buckets, load)?;
            }
            Table::new(spec)
        },
        move |table, name| {
            let have = table.spec();
            if have.key_dtype != key_dtype || have.value_dtype != value_dtype {
                return Err(Status::invalid_argument(format!(
                    "Conflicting key/value dtypes {key_dtype}->{value_dtype} with {}-{} for table {name}",
                    have.key_dtype, have.value_dtype
                )));
            }
            Ok(())
        },
    )
}

/// Completes a dense table's configuration from its key inputs.
fn dense_spec(spec: &mut TableSpec, context: &OpContext<'_>, initial_buckets: usize, load: f32) -> Result<()> {
    let empty = context.input(0)?;
    if empty.shape().rank() > 1 {
        return Err(Status::invalid_argument(format!(
            "Empty key must be a scalar or a vector, got shape {}",
            empty.shape()
        )));
    }
    if empty.num_elements() != 1 && empty.dtype() == DType::String {
        return Err(Status::invalid_argument("Only scalar and plain vector keys are supported"));
    }
    spec.key_shape = empty.shape().clone();
    let one = |key: &Tensor| -> Result<Key> {
        if key.shape() != empty.shape() {
            return Err(Status::invalid_argument(format!(
                "Empty and deleted keys must have same shape, got shapes: {} and {}",
                empty.shape(),
                key.shape()
            )));
        }
        let reader = Table::new(TableSpec { kind: TableKind::Mutable, ..spec.clone() })?;
        reader.keys(key)?.into_iter().next().ok_or_else(|| Status::invalid_argument("a key has no elements"))
    };
    let empty_key = one(empty)?;
    let deleted_key = match context.num_inputs() {
        2 => Some(one(context.input(1)?)?),
        _ => None,
    };
    if deleted_key.as_ref() == Some(&empty_key) {
        return Err(Status::invalid_argument("Empty and deleted keys cannot be equal"));
    }
    let max_load_factor = MaxLoadFactor(load);
    spec.kind = TableKind::Dense { empty_key, deleted_key, initial_buckets, max_load_factor };
    Ok(())
}

/// Runs an operation on a table, after checking the types.
struct TableOp {
    inputs: Vec<DType>,
    outputs: Vec<DType>,
    by_ref: bool,
    run: fn(&Table, &mut OpContext<'_>) -> Result<()>,
}

impl TableOp {
    fn create(builder: &KernelBuilder<'_>, run: fn(&Table, &mut OpContext<'_>) -> Result<()>) -> Result<BoxedKernel> {
        let inputs: Vec<DType> = builder.node.input_types.iter().map(|slot| slot.dtype).collect();
        let by_ref = inputs.first() == Some(&DType::String);
        BoxedKernel::new(TableOp { inputs, outputs: builder.output_dtypes(), by_ref, run })
    }

    fn check(&self, table: &Table) -> Result<()> {
        let (key, value) = (table.spec().key_dtype, table.spec().value_dtype);
        let mut types = self.inputs[1..].iter().chain(self.outputs.iter());
        let matches = match (self.inputs.len(), self.outputs.len()) {
            (1, 1) => true,
            (3, 1) => self.inputs[1..] == [key, value] && self.outputs[0] == value,
            (2, 0) => types.next() == Some(&key),
            _ => types.by_ref().take(2).eq([&key, &value]),
        };
        if matches {
            return Ok(());
        }
        let handle = if self.by_ref { "string_ref" } else { "resource" };
        let list = |types: &[DType]| types.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(", ");
        let side = |types: &[DType], first: bool| {
            let rest = list(types);
            match (first, rest.is_empty()) {
                (true, true) => handle.to_owned(),
                (true, false) => format!("{handle}, {rest}"),
                _ => rest,
            }
        };
        let expected_in: &[DType] = match self.inputs.len() {
            1 => &[],
            2 => &[key],
            _ => &[key, value],
        };
        let expected_out: &[DType] = match (self.inputs.len(), self.outputs.len()) {
            (_, 0) => &[],
            (1, _) => &[key, value],
            _ => &[value],
        };
        Err(Status::invalid_argument(format!(
            "Signature mismatch, have: {}->{} expected: {}->{}",
            side(&self.inputs[1..], true),
            list(&self.outputs),
            side(expected_in, true),
            list(expected_out)
        )))
    }
}

impl Kernel for TableOp {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let table = context.resource::<Table>(0)?;
        self.check(&table)?;
        (self.run)(&table, context)
    }

    fn cost(&self) -> Cost {
        Cost::ByInput
    }
}

#[cfg(test)]
mod tests;
