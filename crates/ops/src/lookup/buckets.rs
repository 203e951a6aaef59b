//! The buckets of a dense table, which exports show to programs: one key each, found by its hash and from there in growing steps.
//! An unused bucket holds the empty key, and one whose key was removed the deleted key.
//!
//! The positions of keys, the doubling of buckets, and that a key that follows a deleted one is stored in its place even if it
//! also exists in a later bucket are as in TensorFlow, whose checkpoints contain these buckets.

use super::column::{Column, Key};
use super::table_spec::{TableKind, TableSpec};
use tensor::{Result, Shape, Status, StringElement, Tensor};

/// Keys and values, with one row per bucket.
pub(super) struct Buckets {
    keys: Column,
    values: Column,
    num_buckets: usize,
    num_entries: usize,
    empty_key: Key,
    deleted_key: Option<Key>,
    max_load_factor: f64,
}

impl Buckets {
    /// Returns the initial buckets of a dense table.
    pub(super) fn new(spec: &TableSpec) -> Result<Buckets> {
        let TableKind::Dense { empty_key, deleted_key, initial_buckets, max_load_factor } = &spec.kind else {
            return Err(Status::internal("the table is not dense"));
        };
        let mut buckets = Buckets {
            keys: Column::new(spec.key_dtype, spec.key_shape.num_elements()),
            values: Column::new(spec.value_dtype, spec.value_shape.num_elements()),
            num_buckets: 0,
            num_entries: 0,
            empty_key: empty_key.clone(),
            deleted_key: deleted_key.clone(),
            max_load_factor: f64::from(max_load_factor.0),
        };
        buckets.allocate(*initial_buckets)?;
        Ok(buckets)
    }

    /// Returns the number of keys.
    pub(super) fn len(&self) -> usize {
        self.num_entries
    }

    /// Returns the values, one row for each bucket.
    pub(super) fn values(&self) -> &Column {
        &self.values
    }

    /// Returns the buckets of keys.
    pub(super) fn find(&self, keys: &[Key]) -> Result<Vec<Option<usize>>> {
        keys.iter()
            .map(|key| {
                self.check_key(key)?;
                self.place(key)
            })
            .collect()
    }

    /// Adds keys, or replaces the values of existing ones.
    pub(super) fn insert(&mut self, keys: &[Key], values: &Column) -> Result<()> {
        // All of them may be new.
        let expected = self.num_entries.saturating_add(keys.len());
        let mut num_buckets = self.num_buckets;
        while expected as f64 > num_buckets as f64 * self.max_load_factor {
            num_buckets = num_buckets.checked_mul(2).ok_or_else(|| Status::resource_exhausted("too many buckets"))?;
        }
        if num_buckets != self.num_buckets {
            self.rebucket(num_buckets)?;
        }
        for (row, key) in keys.iter().enumerate() {
            self.check_key(key)?;
            self.put(key, values, row)?;
        }
        Ok(())
    }

    /// Removes keys; missing ones are ignored.
    pub(super) fn remove(&mut self, keys: &[Key]) -> Result<()> {
        for key in keys {
            self.check_key(key)?;
            let Some(deleted_key) = self.deleted_key.clone() else {
                return Err(Status::unimplemented("a table without a deleted key gives no keys back"));
            };
            if let Some(bucket) = self.place(key)? {
                self.keys.set_key(bucket, &deleted_key);
                self.num_entries -= 1;
            }
        }
        Ok(())
    }

    /// Imports exported buckets.
    pub(super) fn import(&mut self, spec: &TableSpec, keys: &Tensor, values: &Tensor) -> Result<()> {
        let rows = keys.dims().first().copied().unwrap_or(0);
        for (what, tensor, per_row) in [("keys", keys, self.keys.per_row), ("values", values, self.values.per_row)] {
            if tensor.dims() != [rows, per_row as i64] {
                return Err(Status::invalid_argument(format!(
                    "Expected {what} of shape [{rows},{per_row}] for an import, got {}",
                    tensor.shape()
                )));
            }
        }
        let num_buckets = usize::try_from(rows).ok().filter(|count| count.is_power_of_two()).ok_or_else(|| {
            Status::invalid_argument(format!("The number of buckets must be a power of 2, got: {rows}"))
        })?;
        if keys.dtype() != spec.key_dtype || values.dtype() != spec.value_dtype {
            return Err(Status::invalid_argument("keys or values have another type than the table's"));
        }
        self.keys = Column::from_tensor(keys, self.keys.per_row)?;
        self.values = Column::from_tensor(values, self.values.per_row)?;
        self.num_buckets = num_buckets;
        self.num_entries = (0..num_buckets).filter(|&bucket| !self.is_free(&self.keys.key(bucket))).count();
        Ok(())
    }

    /// Returns the buckets: keys and values in rows, with one column if they are scalars.
    pub(super) fn export(&self) -> Result<(Tensor, Tensor)> {
        let shape = |column: &Column| Shape::new(&[self.num_buckets as i64, column.per_row as i64]);
        Ok((self.keys.to_tensor(shape(&self.keys)?)?, self.values.to_tensor(shape(&self.values)?)?))
    }

    fn check_key(&self, key: &Key) -> Result<()> {
        if *key == self.empty_key {
            return Err(Status::invalid_argument("Using the empty_key as a table key is not allowed"));
        }
        if Some(key) == self.deleted_key.as_ref() {
            return Err(Status::invalid_argument("Using the deleted_key as a table key is not allowed"));
        }
        Ok(())
    }

    fn is_free(&self, key: &Key) -> bool {
        *key == self.empty_key || Some(key) == self.deleted_key.as_ref()
    }

    /// Visits the buckets in which a key may be, until `stop` ends the search.
    fn probe(&self, key: &Key, mut stop: impl FnMut(&Key) -> bool) -> Result<usize> {
        let mask = self.num_buckets - 1;
        let mut bucket = self.keys.hash(key) as usize & mask;
        for step in 1..=self.num_buckets {
            if stop(&self.keys.key(bucket)) {
                return Ok(bucket);
            }
            bucket = bucket.wrapping_add(step) & mask;
        }
        Err(Status::internal("Internal error in MutableDenseHashTable: every bucket is taken"))
    }

    /// Returns the bucket of a key.
    fn place(&self, key: &Key) -> Result<Option<usize>> {
        let mut is_there = false;
        let bucket = self.probe(key, |found| {
            is_there = found == key;
            is_there || *found == self.empty_key
        })?;
        Ok(is_there.then_some(bucket))
    }

    fn put(&mut self, key: &Key, values: &Column, row: usize) -> Result<()> {
        let mut is_there = false;
        let bucket = self.probe(key, |found| {
            is_there = found == key;
            is_there || self.is_free(found)
        })?;
        if !is_there {
            self.keys.set_key(bucket, key);
            self.num_entries += 1;
        }
        self.values.set_row(bucket, values, row);
        Ok(())
    }

    /// Rehashes all keys into another number of buckets.
    fn rebucket(&mut self, num_buckets: usize) -> Result<()> {
        let (no_keys, no_values) = (self.keys.without_rows(), self.values.without_rows());
        let keys = std::mem::replace(&mut self.keys, no_keys);
        let values = std::mem::replace(&mut self.values, no_values);
        let before = self.num_buckets;
        if let Err(error) = self.allocate(num_buckets) {
            (self.keys, self.values) = (keys, values);
            return Err(error);
        }
        for bucket in 0..before {
            let key = keys.key(bucket);
            if !self.is_free(&key) {
                self.put(&key, &values, bucket)?;
            }
        }
        Ok(())
    }

    fn allocate(&mut self, num_buckets: usize) -> Result<()> {
        for column in [&self.keys, &self.values] {
            let element_size = if column.dtype.is_plain() { column.dtype.size() } else { size_of::<StringElement>() };
            let shape = Shape::new(&[i64::try_from(num_buckets).unwrap_or(i64::MAX), column.per_row as i64])?;
            if shape.num_bytes(element_size)? > tensor::tensor_bytes_max() {
                return Err(Status::resource_exhausted(format!("a table of {num_buckets} buckets is too large")));
            }
        }
        self.keys.fill_with_key(&self.empty_key, num_buckets);
        self.values.fill_with_zeros(num_buckets);
        self.num_buckets = num_buckets;
        self.num_entries = 0;
        Ok(())
    }
}
