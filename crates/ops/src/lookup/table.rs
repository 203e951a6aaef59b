//! [`Table`]: the resource behind all kinds of table.
//!
//! A table keeps its keys and values in rows, and an index from a key to its row. What goes leaves no hole: the last row
//! takes its place.

use bytes::Bytes;
use foldhash::{HashMap, HashMapExt};
use kernel::Resource;
use parking_lot::RwLock;
use tensor::{Buffer, DType, Result, Shape, Status, StringElement, Tensor};

/// What may be done with a table.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TableKind {
    /// It is filled once.
    Initializable,
    /// It takes and gives keys at any time.
    Mutable,
    /// As above, and shows its buckets: those that nobody has used carry a key that stands for that.
    Dense {
        empty_key: Key,
        deleted_key: Option<Key>,
        initial_buckets: usize,
        /// How full it may be before the buckets are doubled, in thousandths.
        max_load_permille: usize,
    },
}

/// The types and shapes of a table's keys and values.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TableSpec {
    pub kind: TableKind,
    pub key_dtype: DType,
    pub value_dtype: DType,
    /// The shape of a key; scalar unless the table is dense.
    pub key_shape: Shape,
    pub value_shape: Shape,
}

/// A key: a plain one by its bits, others by their bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Plain(u64),
    Bytes(Bytes),
}

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
    num_buckets: usize,
}

enum Index {
    Plain(HashMap<u64, usize>),
    Bytes(HashMap<Bytes, usize>),
}

/// Elements of some type, so many per row.
struct Column {
    dtype: DType,
    per_row: usize,
    elements: Elements,
}

enum Elements {
    Plain(Vec<u8>),
    Strings(Vec<StringElement>),
}

impl Table {
    pub(super) fn new(spec: TableSpec) -> Result<Table> {
        for dtype in [spec.key_dtype, spec.value_dtype] {
            if !dtype.is_plain() && dtype != DType::String {
                return Err(Status::invalid_argument(format!("a table can't hold {dtype}")));
            }
        }
        let num_buckets = match &spec.kind {
            TableKind::Dense { initial_buckets, .. } => *initial_buckets,
            _ => 0,
        };
        let state = State {
            is_initialized: spec.kind != TableKind::Initializable,
            index: Index::new(&spec),
            keys: Column::new(spec.key_dtype, spec.key_shape.num_elements()),
            values: Column::new(spec.value_dtype, spec.value_shape.num_elements()),
            num_buckets,
        };
        Ok(Table { spec, state: RwLock::new(state) })
    }

    pub(super) fn spec(&self) -> &TableSpec {
        &self.spec
    }

    pub(super) fn len(&self) -> usize {
        self.state.read().keys.rows()
    }

    /// Returns the values of keys; those that aren't there get `default`: one value for all, or one each.
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
        let rows = self.rows(&state, keys)?;
        let mut found = Column::new(self.spec.value_dtype, self.spec.value_shape.num_elements());
        let defaults = Column::from_tensor(default, found.per_row)?;
        found.reserve(rows.len());
        for (position, row) in rows.into_iter().enumerate() {
            match row {
                Some(row) => found.push_row(&state.values, row),
                None => found.push_row(&defaults, if one_for_all { 0 } else { position }),
            }
        }
        found.into_tensor(shape)
    }

    /// Adds keys with their values, or gives those that are there other values.
    pub(super) fn insert(&self, keys: &Tensor, values: &Tensor) -> Result<()> {
        if self.spec.kind == TableKind::Initializable {
            return Err(unsupported("Insert"));
        }
        let values = self.check_values(keys, values)?;
        self.put(&mut self.state.write(), keys, &values)
    }

    /// Removes keys; those that aren't there are no mistake.
    pub(super) fn remove(&self, keys: &Tensor) -> Result<()> {
        if self.spec.kind == TableKind::Initializable {
            return Err(unsupported("Remove"));
        }
        let keys = self.keys(keys)?;
        for key in &keys {
            self.check_key(key)?;
        }
        let mut state = self.state.write();
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
        Ok(())
    }

    /// Replaces everything; a table that is filled once is filled.
    pub(super) fn import(&self, keys: &Tensor, values: &Tensor) -> Result<()> {
        if self.spec.kind == TableKind::Initializable {
            return self.initialize(keys, values);
        }
        let values = self.check_values(keys, values)?;
        let mut state = self.state.write();
        let mut kept = (self.keys(keys)?, values);
        // What a dense table exports has buckets that nobody uses.
        if let TableKind::Dense { empty_key, deleted_key, .. } = &self.spec.kind {
            let used: Vec<usize> = (0..kept.0.len())
                .filter(|&row| kept.0[row] != *empty_key && Some(&kept.0[row]) != deleted_key.as_ref())
                .collect();
            let mut values = Column::new(self.spec.value_dtype, kept.1.per_row);
            used.iter().for_each(|&row| values.push_row(&kept.1, row));
            kept = (used.into_iter().map(|row| kept.0[row].clone()).collect(), values);
        }
        state.clear(&self.spec);
        self.put_keys(&mut state, &kept.0, &kept.1)
    }

    /// Fills a table that is filled once. Doing it again is fine when there is as much to put in.
    pub(super) fn initialize(&self, keys: &Tensor, values: &Tensor) -> Result<()> {
        if self.spec.kind != TableKind::Initializable {
            return Err(Status::invalid_argument("Table initialization is not supported by this table"));
        }
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
        state.is_initialized = true;
        Ok(())
    }

    /// Returns all keys and all values.
    pub(super) fn export(&self) -> Result<(Tensor, Tensor)> {
        let state = self.state.read();
        let count = state.keys.rows();
        let shape = |count: usize, element: &Shape| Shape::vector(count).concat(element);
        let TableKind::Dense { empty_key, .. } = &self.spec.kind else {
            if !state.is_initialized {
                return Err(not_initialized());
            }
            return Ok((
                state.keys.to_tensor(shape(count, &self.spec.key_shape)?)?,
                state.values.to_tensor(shape(count, &self.spec.value_shape)?)?,
            ));
        };
        let mut buckets = vec![None; state.num_buckets];
        for row in 0..count {
            let mask = state.num_buckets - 1;
            let mut bucket = state.keys.key(row).hash() as usize & mask;
            let mut probes = 0;
            while buckets[bucket].is_some() {
                probes += 1;
                bucket = (bucket + probes) & mask;
            }
            buckets[bucket] = Some(row);
        }
        let mut keys = Column::new(self.spec.key_dtype, self.spec.key_shape.num_elements());
        let mut values = Column::new(self.spec.value_dtype, self.spec.value_shape.num_elements());
        for bucket in buckets {
            match bucket {
                Some(row) => {
                    keys.push_row(&state.keys, row);
                    values.push_row(&state.values, row);
                }
                None => {
                    keys.push_key(empty_key);
                    values.push_zeros();
                }
            }
        }
        // TensorFlow shows scalar keys as rows of one.
        let key_shape = if self.spec.key_shape.is_scalar() { Shape::vector(1) } else { self.spec.key_shape.clone() };
        let values_shape = shape(state.num_buckets, &self.spec.value_shape)?;
        Ok((keys.into_tensor(shape(state.num_buckets, &key_shape)?)?, values.into_tensor(values_shape)?))
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
        if let (Index::Plain(index), DType::Int64) = (&state.index, self.spec.key_dtype)
            && !matches!(self.spec.kind, TableKind::Dense { .. })
        {
            return Ok(keys.as_slice::<i64>()?.iter().map(|&key| index.get(&(key as u64)).copied()).collect());
        }
        if let (Index::Bytes(index), DType::String) = (&state.index, self.spec.key_dtype)
            && !matches!(self.spec.kind, TableKind::Dense { .. })
        {
            return Ok(keys.strings()?.iter().map(|key| index.get(key).copied()).collect());
        }
        let keys = self.keys(keys)?;
        keys.iter()
            .map(|key| {
                self.check_key(key)?;
                Ok(state.index.get(key))
            })
            .collect()
    }

    fn check_values(&self, keys: &Tensor, values: &Tensor) -> Result<Column> {
        let expected = self.batch_shape(keys)?.concat(&self.spec.value_shape)?;
        let shown_by_rows = keys.shape().concat(&self.spec.value_shape)?;
        // Keys that a dense table exported come as rows of one.
        let is_exported = self.spec.key_shape.is_scalar() && keys.shape().dims().last() == Some(&1) && {
            let outer = keys.shape().slice(0, keys.shape().rank() - 1);
            outer.concat(&self.spec.value_shape)? == *values.shape()
        };
        if *values.shape() != expected && !is_exported {
            return Err(Status::invalid_argument(format!(
                "Expected shape {shown_by_rows} for value, got {}",
                values.shape()
            )));
        }
        Column::from_tensor(values, self.spec.value_shape.num_elements())
    }

    fn check_key(&self, key: &Key) -> Result<()> {
        if let TableKind::Dense { empty_key, deleted_key, .. } = &self.spec.kind {
            if key == empty_key {
                return Err(Status::invalid_argument("Using the empty_key as a table key is not allowed"));
            }
            if Some(key) == deleted_key.as_ref() {
                return Err(Status::invalid_argument("Using the deleted_key as a table key is not allowed"));
            }
        }
        Ok(())
    }

    fn put(&self, state: &mut State, keys: &Tensor, values: &Column) -> Result<()> {
        let keys = self.keys(keys)?;
        for key in &keys {
            self.check_key(key)?;
        }
        self.put_keys(state, &keys, values)
    }

    fn put_keys(&self, state: &mut State, keys: &[Key], values: &Column) -> Result<()> {
        for (row, key) in keys.iter().enumerate() {
            match state.index.get(key) {
                Some(known) => state.values.set_row(known, values, row),
                None => state.push(key, values, row),
            }
        }
        if let TableKind::Dense { max_load_permille, .. } = self.spec.kind {
            while state.keys.rows().saturating_mul(1000) > state.num_buckets.saturating_mul(max_load_permille) {
                let doubled = state.num_buckets.checked_mul(2);
                state.num_buckets = doubled.ok_or_else(|| Status::resource_exhausted("too many buckets"))?;
            }
        }
        Ok(())
    }
}

fn not_initialized() -> Status {
    Status::failed_precondition("Table not initialized.")
}

fn unsupported(what: &str) -> Status {
    Status::unimplemented(format!("{what} not supported by InitializableLookupTable implementations"))
}

impl State {
    fn push(&mut self, key: &Key, values: &Column, row: usize) {
        self.index.insert(key.clone(), self.keys.rows());
        self.keys.push_key(key);
        self.values.push_row(values, row);
    }

    fn clear(&mut self, spec: &TableSpec) {
        self.index = Index::new(spec);
        self.keys = Column::new(spec.key_dtype, self.keys.per_row);
        self.values = Column::new(spec.value_dtype, self.values.per_row);
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

impl Key {
    fn hash(&self) -> u64 {
        match self {
            Key::Plain(bits) => *bits,
            Key::Bytes(bytes) => crate::string::fingerprint64(bytes),
        }
    }
}

impl Column {
    fn new(dtype: DType, per_row: usize) -> Column {
        let elements = match dtype {
            DType::String => Elements::Strings(Vec::new()),
            _ => Elements::Plain(Vec::new()),
        };
        Column { dtype, per_row, elements }
    }

    fn from_tensor(tensor: &Tensor, per_row: usize) -> Result<Column> {
        let elements = match tensor.buffer() {
            Some(buffer) => Elements::Plain(buffer.bytes().to_vec()),
            None => Elements::Strings(tensor.strings()?.to_vec()),
        };
        Ok(Column { dtype: tensor.dtype(), per_row, elements })
    }

    fn row_bytes(&self) -> usize {
        self.per_row * self.dtype.size()
    }

    fn rows(&self) -> usize {
        let count = match &self.elements {
            Elements::Plain(bytes) => bytes.len().checked_div(self.row_bytes()),
            Elements::Strings(strings) => strings.len().checked_div(self.per_row),
        };
        count.unwrap_or(0)
    }

    fn reserve(&mut self, rows: usize) {
        let row_bytes = self.row_bytes();
        match &mut self.elements {
            Elements::Plain(bytes) => bytes.reserve(rows.saturating_mul(row_bytes)),
            Elements::Strings(strings) => strings.reserve(rows.saturating_mul(self.per_row)),
        }
    }

    fn plain_row(&self, row: usize) -> &[u8] {
        let size = self.row_bytes();
        match &self.elements {
            Elements::Plain(bytes) => bytes.get(row * size..(row + 1) * size).unwrap_or(&[]),
            Elements::Strings(_) => &[],
        }
    }

    fn string_row(&self, row: usize) -> &[StringElement] {
        match &self.elements {
            Elements::Strings(strings) => strings.get(row * self.per_row..(row + 1) * self.per_row).unwrap_or(&[]),
            Elements::Plain(_) => &[],
        }
    }

    fn push_row(&mut self, from: &Column, row: usize) {
        match &mut self.elements {
            Elements::Plain(bytes) => bytes.extend_from_slice(from.plain_row(row)),
            Elements::Strings(strings) => strings.extend_from_slice(from.string_row(row)),
        }
    }

    fn push_zeros(&mut self) {
        let size = self.row_bytes();
        match &mut self.elements {
            Elements::Plain(bytes) => bytes.resize(bytes.len() + size, 0),
            Elements::Strings(strings) => strings.resize(strings.len() + self.per_row, Bytes::new()),
        }
    }

    fn set_row(&mut self, row: usize, from: &Column, from_row: usize) {
        let (size, per_row) = (self.row_bytes(), self.per_row);
        match &mut self.elements {
            Elements::Plain(bytes) => {
                if let Some(place) = bytes.get_mut(row * size..(row + 1) * size) {
                    place.copy_from_slice(from.plain_row(from_row));
                }
            }
            Elements::Strings(strings) => {
                if let Some(place) = strings.get_mut(row * per_row..(row + 1) * per_row) {
                    place.clone_from_slice(from.string_row(from_row));
                }
            }
        }
    }

    fn same_row(&self, row: usize, other: &Column, other_row: usize) -> bool {
        self.plain_row(row) == other.plain_row(other_row) && self.string_row(row) == other.string_row(other_row)
    }

    fn swap_remove(&mut self, row: usize) {
        let last = self.rows() - 1;
        let (size, per_row) = (self.row_bytes(), self.per_row);
        match &mut self.elements {
            Elements::Plain(bytes) => {
                bytes.copy_within(last * size.., row * size);
                bytes.truncate(last * size);
            }
            Elements::Strings(strings) => {
                for element in 0..per_row {
                    strings.swap(row * per_row + element, last * per_row + element);
                }
                strings.truncate(last * per_row);
            }
        }
    }

    fn key(&self, row: usize) -> Key {
        match &self.elements {
            Elements::Strings(_) => Key::Bytes(self.string_row(row).first().cloned().unwrap_or_default()),
            Elements::Plain(_) => {
                let bytes = self.plain_row(row);
                if self.per_row != 1 || bytes.len() > 8 {
                    return Key::Bytes(Bytes::copy_from_slice(bytes));
                }
                // Signed numbers keep their sign, as TensorFlow's buckets do.
                let mut bits =
                    [if self.dtype.is_integer() && bytes.last().is_some_and(|&top| top > 127) { 255 } else { 0 }; 8];
                bits[..bytes.len()].copy_from_slice(bytes);
                Key::Plain(u64::from_le_bytes(bits))
            }
        }
    }

    fn push_key(&mut self, key: &Key) {
        let size = self.row_bytes();
        match (&mut self.elements, key) {
            (Elements::Plain(bytes), Key::Plain(bits)) => bytes.extend_from_slice(&bits.to_le_bytes()[..size.min(8)]),
            (Elements::Plain(bytes), Key::Bytes(key)) => bytes.extend_from_slice(key),
            (Elements::Strings(strings), Key::Bytes(key)) => strings.push(key.clone()),
            (Elements::Strings(_), Key::Plain(_)) => {}
        }
    }

    fn to_tensor(&self, shape: Shape) -> Result<Tensor> {
        match &self.elements {
            Elements::Plain(bytes) => {
                Tensor::from_buffer(self.dtype, shape, Buffer::foreign(Bytes::copy_from_slice(bytes)))
            }
            Elements::Strings(strings) => Tensor::from_strings(shape, strings.clone()),
        }
    }

    fn into_tensor(self, shape: Shape) -> Result<Tensor> {
        match self.elements {
            Elements::Plain(bytes) => Tensor::from_buffer(self.dtype, shape, Buffer::foreign(Bytes::from(bytes))),
            Elements::Strings(strings) => Tensor::from_strings(shape, strings),
        }
    }

    /// Returns the first element of a row for people.
    fn text(&self, row: usize) -> String {
        if let Some(text) = self.string_row(row).first() {
            return String::from_utf8_lossy(text).into_owned();
        }
        let bytes = self.plain_row(row);
        match (self.dtype, self.key(row)) {
            (DType::Float, Key::Plain(bits)) => f32::from_bits(bits as u32).to_string(),
            (DType::Double, Key::Plain(bits)) => f64::from_bits(bits).to_string(),
            (_, Key::Plain(bits)) => (bits as i64).to_string(),
            _ => format!("{bytes:?}"),
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
