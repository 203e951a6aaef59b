//! [`Variable`]: the state behind ref edges and resource handles.
//!
//! A dense read is a snapshot: it shares the elements, and a writer that finds them shared writes to a copy. After the first
//! access by rows, a variable is copy-on-read: row reads and writes work in place under its lock, and dense reads copy, so that
//! a large table is never copied for a small update.

use crate::{Holdings, Resource};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tensor::{DType, PartialShape, Result, Status, Tensor};

/// A tensor that lives longer than a step.
pub struct Variable {
    /// The name for messages.
    name: String,
    dtype: DType,
    shape: PartialShape,
    value: RwLock<Option<Tensor>>,
    copy_on_read: AtomicBool,
    /// The number of reads and writes, to find the busiest variables.
    uses: AtomicU64,
}

impl Variable {
    /// Returns a variable without a value.
    pub fn new(name: impl Into<String>, dtype: DType, shape: PartialShape) -> Variable {
        let (value, copy_on_read, uses) = (RwLock::new(None), AtomicBool::new(false), AtomicU64::new(0));
        Variable { name: name.into(), dtype, shape, value, copy_on_read, uses }
    }

    /// Returns the name for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the declared shape.
    pub fn declared_shape(&self) -> &PartialShape {
        &self.shape
    }

    /// Returns whether there is a value.
    pub fn is_initialized(&self) -> bool {
        self.value.read().is_some()
    }

    /// Returns a snapshot of the value.
    pub fn read(&self) -> Result<Tensor> {
        self.note_use();
        let value = self.value.read();
        let tensor = value.as_ref().ok_or_else(|| self.uninitialized())?;
        if self.copy_on_read.load(Ordering::Relaxed) { tensor.deep_copy() } else { Ok(tensor.clone()) }
    }

    /// Calls `f` with the value under the lock, without copying it.
    pub fn read_with<R>(&self, f: impl FnOnce(&Tensor) -> Result<R>) -> Result<R> {
        self.note_use();
        f(self.value.read().as_ref().ok_or_else(|| self.uninitialized())?)
    }

    /// Makes the variable copy-on-read, and calls `f` with the value under the lock, to read rows without copying it.
    pub fn read_rows_with<R>(&self, f: impl FnOnce(&Tensor) -> Result<R>) -> Result<R> {
        self.use_copy_on_read()?;
        self.read_with(f)
    }

    /// Locks the value for reading, for kernels that need several variables at once.
    pub fn lock_for_read(&self) -> RwLockReadGuard<'_, Option<Tensor>> {
        self.note_use();
        self.value.read()
    }

    /// Locks the value for writing, for kernels that need several variables at once. To avoid deadlocks, these must lock them in the
    /// order of their addresses.
    pub fn lock_for_write(&self) -> RwLockWriteGuard<'_, Option<Tensor>> {
        self.note_use();
        self.value.write()
    }

    /// Replaces the value.
    pub fn assign(&self, mut value: Tensor) -> Result<()> {
        if value.dtype() != self.dtype {
            return Err(Status::invalid_argument(format!(
                "Trying to assign variable with wrong dtype. Expected {} got {}",
                self.dtype,
                value.dtype()
            )));
        }
        // A copy-on-read variable must be the only owner of its elements.
        if self.copy_on_read.load(Ordering::Relaxed) {
            value.become_table()?;
        }
        self.note_use();
        let old = self.value.write().replace(value);
        drop(old);
        Ok(())
    }

    /// Drops the value.
    pub fn clear(&self) {
        let old = self.value.write().take();
        drop(old);
    }

    /// Changes the value under the lock. `f` may replace the tensor, or write into it with [`Tensor::make_mut`], which copies only
    /// if a reader still holds a snapshot.
    pub fn update<R>(&self, f: impl FnOnce(&mut Tensor) -> Result<R>) -> Result<R> {
        self.note_use();
        let mut value = self.value.write();
        f(value.as_mut().ok_or_else(|| self.uninitialized())?)
    }

    /// Makes the variable copy-on-read, and changes rows of the value in place under the lock.
    pub fn update_rows<R>(&self, f: impl FnOnce(&mut Tensor) -> Result<R>) -> Result<R> {
        self.use_copy_on_read()?;
        self.update(f)
    }

    /// Changes the value, or initializes it if there is none.
    pub fn update_or_init<R>(&self, f: impl FnOnce(&mut Option<Tensor>) -> Result<R>) -> Result<R> {
        self.note_use();
        f(&mut self.value.write())
    }

    /// Makes the variable copy-on-read: dense reads copy from now on, and the variable is the only owner of its elements.
    pub fn use_copy_on_read(&self) -> Result<()> {
        if self.copy_on_read.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut value = self.value.write();
        if let Some(tensor) = value.as_mut() {
            tensor.become_table()?;
        }
        self.copy_on_read.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn note_use(&self) {
        self.uses.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the size of a value of the declared type and shape, where these tell it.
    fn declared_bytes(&self) -> Option<usize> {
        let elements = usize::try_from(self.shape.num_elements()?).ok()?;
        elements.checked_mul(self.dtype.size()).filter(|_| self.dtype.size() > 0)
    }

    /// Returns the error for using the variable before it is initialized.
    pub fn uninitialized(&self) -> Status {
        Status::failed_precondition(format!("Attempting to use uninitialized value {}", self.name))
    }
}

impl Resource for Variable {
    fn type_name(&self) -> &'static str {
        "N10tensorflow3VarE"
    }

    fn describe(&self) -> String {
        format!("variable {} of {} {}", self.name, self.dtype, self.shape)
    }

    /// A variable that is being written is as large as it was declared, so that the busiest are never left out.
    fn holdings(&self) -> Holdings {
        let bytes = match self.value.try_read() {
            Some(value) => Some(value.as_ref().map_or(0, Tensor::num_bytes)),
            None => self.declared_bytes(),
        };
        Holdings { variable_bytes: bytes, uses: self.uses.load(Ordering::Relaxed), ..Holdings::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable() -> Variable {
        let variable = Variable::new("v", DType::Float, PartialShape::from_dims(&[2]));
        variable.assign(Tensor::vector(&[1f32, 2.0])).unwrap();
        variable
    }

    #[test]
    fn a_snapshot_does_not_change() {
        let variable = variable();
        let before = variable.read().unwrap();
        let write = |tensor: &mut Tensor| {
            tensor.make_mut::<f32>()?[0] = 9.0;
            Ok(())
        };
        variable.update(write).unwrap();
        assert_eq!(before.as_slice::<f32>().unwrap(), &[1.0, 2.0]);
        assert_eq!(variable.read().unwrap().as_slice::<f32>().unwrap(), &[9.0, 2.0]);
    }

    #[test]
    fn row_access_never_copies_the_table_again() {
        let variable = variable();
        let snapshot = variable.read().unwrap();
        variable.use_copy_on_read().unwrap();
        let dense = variable.read().unwrap();
        variable
            .update_rows(|tensor| {
                assert!(tensor.is_unique(), "dense reads must not keep the table shared");
                tensor.make_mut::<f32>()?[1] = 5.0;
                Ok(())
            })
            .unwrap();
        assert_eq!(snapshot.as_slice::<f32>().unwrap(), dense.as_slice::<f32>().unwrap());
        assert_eq!(variable.read().unwrap().as_slice::<f32>().unwrap(), &[1.0, 5.0]);
    }

    #[test]
    fn holdings_tell_size_and_uses() {
        let variable = variable();
        variable.read().unwrap();
        let holdings = variable.holdings();
        assert_eq!((holdings.variable_bytes, holdings.uses), (Some(8), 2));
    }

    #[test]
    fn a_variable_that_is_being_written_is_not_left_out() {
        let variable = variable();
        let locked = variable.lock_for_write();
        assert_eq!(variable.holdings().variable_bytes, Some(8));
        drop(locked);
        let unknown = Variable::new("u", DType::Float, PartialShape::unknown());
        let _locked = unknown.lock_for_write();
        assert_eq!(unknown.holdings().variable_bytes, None);
    }

    #[test]
    fn no_value_is_failed_precondition() {
        let variable = Variable::new("w", DType::Float, PartialShape::unknown());
        let status = variable.read().unwrap_err();
        assert_eq!(status.code(), tensor::Code::FailedPrecondition);
        assert!(status.message().contains("uninitialized value w"));
    }
}
