//! The models of `ferroflow train`, by the flag that selects them.

use super::digits::DigitsRecipe;
use super::flags::{Flags, ModelKind};
use super::recipe::Recipe;
use super::strips::StripsRecipe;
use super::wide_deep::CensusRecipe;
use crate::Failure;
use std::sync::Arc;

/// Reads the data, and returns the recipe of the selected model.
pub fn read(flags: &Flags) -> Result<Arc<dyn Recipe>, Failure> {
    if flags.model == ModelKind::WideDeep && flags.is_sync() {
        return Err(Failure::new("--sync_replicas goes with mlp, cnn and crnn: wide_deep has two optimizers"));
    }
    Ok(match flags.model {
        ModelKind::Mlp | ModelKind::Cnn => Arc::new(DigitsRecipe::read(flags)?),
        ModelKind::Crnn => Arc::new(StripsRecipe::read(flags)?),
        ModelKind::WideDeep => Arc::new(CensusRecipe::read(flags)?),
    })
}
