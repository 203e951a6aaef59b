//! [`Table`]: the resource behind all kinds of tables.
//!
//! A table keeps its keys and values in rows, and an index from keys to rows. Removing leaves no hole: the last row takes the
//! removed one's place. A dense table keeps them in buckets instead, which programs can export.

use super::buckets::Buckets;
use super::column::{Column, Key};
use super::table_spec::{TableKind, TableSpec};
use bytes::Bytes;
use foldhash::{HashMap, HashMapExt};
use kernel::Resource;
use parking_lot::RwLock;
use tensor::{Charge, DType, Result, Shape, Status, Tensor};

/// Values by key.
pub(super) struct Table {
    spec: TableSpec,
    state: RwLock<State>,
}

struct State {
    is_initialized: bool,
    index: Index,
    keys: Column,
    values: Column,
    /// A dense table's storage, in place of an index and rows.
    buckets: Option<Buckets>,
    /// The charge for the rows and their index, and the number of rows that it covers.
    charge: Charge,
    charged_rows: usize,
}

/// The size of a row in the index.
const INDEX_BYTES: usize = 48;

/// Refuses rows that exceed memory; returns approximately how much they take.
fn check_rows(keys: &Tensor, values: &Tensor) -> Result<usize> {
    let bytes = keys.num_bytes() + values.num_bytes() + keys.num_elements() * INDEX_BYTES;
    tensor::check_elements_fit(bytes, 1)?;
    Ok(bytes)
}

enum Index {
    Plain(HashMap<u64, usize>),
    Bytes(HashMap<Bytes, usize>),
}

impl Table {
    pub(super) fn new(spec: TableSpec) -> Result<Table> {
        for dtype in [spec.key_dtype, spec.value_dtype] {
            if !dtype.is_plain() && dtype != DType::String {
                return Err(Status::invalid_argument(format!("a table can't hold {dtype}")));
            }
        }
        let buckets = match &spec.kind {
            TableKind::Dense { .. } => Some(Buckets::new(&spec)?),
            _ => None,
        };
        let state = State {
            is_initialized: spec.kind != TableKind::Initializable,
            index: Index::new(&spec),
            keys: Column::new(spec.key_dtype, spec.key_shape.num_elements()),
            values: Column::new(spec.value_dtype, spec.value_shape.num_elements()),
            buckets,
            charge: Charge::default(),
            charged_rows: 0,
        };
        Ok(Table { spec, state: RwLock::new(state) })
    }

    pub(super) fn spec(&self) -> &TableSpec {
        &self.spec
    }

    pub(super) fn len(&self) -> usize {
        let state = self.state.read();
        state.buckets.as_ref().map_or_else(|| state.keys.rows(), Buckets::len)
    }

    /// Returns the values of keys; missing ones get `default`: one value for all, or one each.
    pub(super) fn find(&self, keys: &Tensor, default: &Tensor) -> Result<Tensor> {
        let batch = self.batch_shape(keys)?;
        let shape = batch.concat(&self.spec.value_shape)?;
        let one_for_all = default.shape() == &self.spec.value_shape;
        if !one_for_all && default.shape() != &shape {
            return Err(Status::invalid_argument(format!(
                "Expected shape {} or {shape} for default value, got {}",
                self.spec.value_shape,
                default.shape()
            )));
        }
        let state = self.state.read();
        if !state.is_initialized {
            return Err(not_initialized());
        }
        let (rows, known) = match &state.buckets {
            Some(buckets) => (buckets.find(&self.keys(keys)?)?, buckets.values()),
            None => (self.rows(&state, keys)?, &state.values),
        };
        let mut found = Column::new(self.spec.value_dtype, self.spec.value_shape.num_elements());
        let defaults = Column::from_tensor(default, found.per_row)?;
        found.reserve(rows.len());
        for (position, row) in rows.into_iter().enumerate() {
            match row {
                Some(row) => found.push_row(known, row),
                None => found.push_row(&defaults, if one_for_all { 0 } else { position }),
            }
        }
        found.into_tensor(shape)
    }

    /// Adds keys with their values, or replaces the values of existing ones.
    pub(super) fn insert(&self, keys: &Tensor, values: &Tensor) -> Result<()> {
        if self.spec.kind == TableKind::Initializable {
            return Err(unsupported("Insert"));
        }
        let bytes = check_rows(keys, values)?;
        let values = self.check_values(keys, values)?;
        let keys = self.keys(keys)?;
        let mut state = self.state.write();
        match &mut state.buckets {
            Some(buckets) => buckets.insert(&keys, &values),
            None => {
                state.put(&keys, &values);
                state.charge_rows(bytes, keys.len());
                Ok(())
            }
        }
    }

    /// Removes keys; missing ones are ignored.
    pub(super) fn remove(&self, keys: &Tensor) -> Result<()> {
        if self.spec.kind == TableKind::Initializable {
            return Err(unsupported("Remove"));
        }
        let keys = self.keys(keys)?;
        let mut state = self.state.write();
        if let Some(buckets) = &mut state.buckets {
            return buckets.remove(&keys);
        }
        for key in &keys {
            if let Some(row) = state.index.remove(key) {
                let last = state.keys.rows() - 1;
                if row != last {
                    let moved = state.keys.key(last);
                    state.index.insert(moved, row);
                }
                state.keys.swap_remove(row);
                state.values.swap_remove(row);
            }
        }
        state.charge_rows(0, 0);
        Ok(())
    }

    /// Replaces everything; a table that is initialized once is then initialized.
    pub(super) fn import(&self, keys: &Tensor, values: &Tensor) -> Result<()> {
        if self.spec.kind == TableKind::Initializable {
            return self.initialize(keys, values);
        }
        if let Some(buckets) = &mut self.state.write().buckets {
            return buckets.import(&self.spec, keys, values);
        }
        let bytes = check_rows(keys, values)?;
        let values = self.check_values(keys, values)?;
        let keys = self.keys(keys)?;
        let mut state = self.state.write();
        state.clear(&self.spec);
        state.put(&keys, &values);
        state.charge_rows(bytes, keys.len());
        Ok(())
    }

    /// Initializes a table. Repeating it is allowed if the number of entries is the same.
    pub(super) fn initialize(&self, keys: &Tensor, values: &Tensor) -> Result<()> {
        if self.spec.kind != TableKind::Initializable {
            return Err(Status::invalid_argument("Table initialization is not supported by this table"));
        }
        let bytes = check_rows(keys, values)?;
        let values = self.check_values(keys, values)?;
        let keys = self.keys(keys)?;
        let mut state = self.state.write();
        if state.is_initialized {
            return match state.keys.rows() == keys.len() {
                true => Ok(()),
                false => Err(Status::failed_precondition("Table was already initialized with different data.")),
            };
        }
        for (row, key) in keys.iter().enumerate() {
            if let Some(known) = state.index.get(key) {
                if !state.values.same_row(known, &values, row) {
                    let error = format!(
                        "HashTable has different value for same key. Key {} has {} and trying to add value {}",
                        state.keys.text(known),
                        state.values.text(known),
                        values.text(row)
                    );
                    state.clear(&self.spec);
                    return Err(Status::failed_precondition(error));
                }
                continue;
            }
            state.push(key, &values, row);
        }
        state.charge_rows(bytes, keys.len());
        state.is_initialized = true;
        Ok(())
    }

    /// Returns all keys and all values.
    pub(super) fn export(&self) -> Result<(Tensor, Tensor)> {
        let state = self.state.read();
        if let Some(buckets) = &state.buckets {
            return buckets.export();
        }
        if !state.is_initialized {
            return Err(not_initialized());
        }
        let shape = |element: &Shape| Shape::vector(state.keys.rows()).concat(element);
        Ok((
            state.keys.to_tensor(shape(&self.spec.key_shape)?)?,
            state.values.to_tensor(shape(&self.spec.value_shape)?)?,
        ))
    }

    /// Returns the keys of a tensor.
    pub(super) fn keys(&self, keys: &Tensor) -> Result<Vec<Key>> {
        let per_key = self.spec.key_shape.num_elements();
        let column = Column::from_tensor(keys, per_key)?;
        let count = keys.num_elements().checked_div(per_key).unwrap_or(0);
        Ok((0..count).map(|row| column.key(row)).collect())
    }

    /// Returns the shape of a batch of keys.
    fn batch_shape(&self, keys: &Tensor) -> Result<Shape> {
        let (shape, key) = (keys.shape(), &self.spec.key_shape);
        let rank = shape.rank().checked_sub(key.rank());
        match rank.filter(|&rank| shape.slice(rank, shape.rank()) == *key) {
            Some(rank) => Ok(shape.slice(0, rank)),
            None => Err(Status::invalid_argument(format!("Expected key shape to end with {key}, got {shape}"))),
        }
    }

    fn rows(&self, state: &State, keys: &Tensor) -> Result<Vec<Option<usize>>> {
        if let (Index::Plain(index), DType::Int64) = (&state.index, self.spec.key_dtype) {
            return Ok(keys.as_slice::<i64>()?.iter().map(|&key| index.get(&(key as u64)).copied()).collect());
        }
        if let (Index::Bytes(index), DType::String) = (&state.index, self.spec.key_dtype) {
            return Ok(keys.strings()?.iter().map(|key| index.get(key).copied()).collect());
        }
        Ok(self.keys(keys)?.iter().map(|key| state.index.get(key)).collect())
    }

    fn check_values(&self, keys: &Tensor, values: &Tensor) -> Result<Column> {
        let expected = self.batch_shape(keys)?.concat(&self.spec.value_shape)?;
        if *values.shape() != expected {
            return Err(Status::invalid_argument(format!(
                "Expected shape {expected} for value, got {}",
                values.shape()
            )));
        }
        Column::from_tensor(values, self.spec.value_shape.num_elements())
    }
}

fn not_initialized() -> Status {
    Status::failed_precondition("Table not initialized.")
}

fn unsupported(what: &str) -> Status {
    Status::unimplemented(format!("{what} not supported by InitializableLookupTable implementations"))
}

impl State {
    /// Updates the charge after rows were added, of which `count` take `bytes`, or removed.
    fn charge_rows(&mut self, bytes: usize, count: usize) {
        let rows = self.keys.rows();
        let (before, charged) = (self.charged_rows, self.charge.bytes());
        let per_row = if rows > before { bytes.div_ceil(count.max(1)) } else { charged.div_ceil(before.max(1)) };
        let charged = if rows > before { charged + (rows - before) * per_row } else { rows * per_row };
        self.charge.set(charged);
        self.charged_rows = rows;
    }

    fn push(&mut self, key: &Key, values: &Column, row: usize) {
        self.index.insert(key.clone(), self.keys.rows());
        self.keys.push_key(key);
        self.values.push_row(values, row);
    }

    /// Adds keys, or replaces the values of existing ones.
    fn put(&mut self, keys: &[Key], values: &Column) {
        for (row, key) in keys.iter().enumerate() {
            match self.index.get(key) {
                Some(known) => self.values.set_row(known, values, row),
                None => self.push(key, values, row),
            }
        }
    }

    fn clear(&mut self, spec: &TableSpec) {
        self.index = Index::new(spec);
        self.keys = Column::new(spec.key_dtype, self.keys.per_row);
        self.values = Column::new(spec.value_dtype, self.values.per_row);
        self.charge.set(0);
        self.charged_rows = 0;
    }
}

impl Index {
    fn new(spec: &TableSpec) -> Index {
        match spec.key_dtype == DType::String || spec.key_shape.num_elements() != 1 || spec.key_dtype.size() > 8 {
            true => Index::Bytes(HashMap::new()),
            false => Index::Plain(HashMap::new()),
        }
    }

    fn get(&self, key: &Key) -> Option<usize> {
        match (self, key) {
            (Index::Plain(rows), Key::Plain(bits)) => rows.get(bits).copied(),
            (Index::Bytes(rows), Key::Bytes(bytes)) => rows.get(bytes).copied(),
            _ => None,
        }
    }

    fn insert(&mut self, key: Key, row: usize) {
        match (self, key) {
            (Index::Plain(rows), Key::Plain(bits)) => drop(rows.insert(bits, row)),
            (Index::Bytes(rows), Key::Bytes(bytes)) => drop(rows.insert(bytes, row)),
            _ => {}
        }
    }

    fn remove(&mut self, key: &Key) -> Option<usize> {
        match (self, key) {
            (Index::Plain(rows), Key::Plain(bits)) => rows.remove(bits),
            (Index::Bytes(rows), Key::Bytes(bytes)) => rows.remove(bytes),
            _ => None,
        }
    }
}

impl Resource for Table {
    fn type_name(&self) -> &'static str {
        "N10tensorflow6lookup15LookupInterfaceE"
    }

    fn describe(&self) -> String {
        format!("table of {} keys", self.len())
    }
}
