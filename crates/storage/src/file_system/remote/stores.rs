//! Finds stores by scheme and bucket, with settings and credentials from the environment variables that each vendor's tools use.

use super::errors;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::{BackoffConfig, ClientConfigKey, ObjectStore, RetryConfig};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tensor::{Result, Status};

/// The schemes of stores in paths.
pub const SCHEMES: [&str; 3] = ["s3", "gs", "az"];

/// The most buckets that are in use at once. A client keeps connections and credentials for each.
const BUCKETS_MAX: usize = 256;

/// How long one request may take, unless the environment says otherwise (`AWS_TIMEOUT` and the like). A part of an upload is one
/// request, and so is a copy.
const REQUEST_TIMEOUT: &str = "120s";

/// Finds the store of a bucket.
pub(super) trait Stores: Send + Sync {
    /// Returns the store of a bucket; `scheme` is one of [`SCHEMES`].
    fn store(&self, scheme: &str, bucket: &str) -> Result<Arc<dyn ObjectStore>>;
}

/// The stores that the environment gives access to.
#[derive(Default)]
pub(super) struct EnvironmentStores {
    known: Mutex<HashMap<(String, String), Arc<dyn ObjectStore>>>,
}

impl Stores for EnvironmentStores {
    fn store(&self, scheme: &str, bucket: &str) -> Result<Arc<dyn ObjectStore>> {
        let key = (scheme.to_owned(), bucket.to_owned());
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = known.get(&key) {
            return Ok(store.clone());
        }
        let store = build(scheme, bucket)?;
        // Current users keep their store; the next ones get a new one.
        if known.len() >= BUCKETS_MAX {
            known.clear();
        }
        known.insert(key, store.clone());
        Ok(store)
    }
}

fn build(scheme: &str, bucket: &str) -> Result<Arc<dyn ObjectStore>> {
    // Clients of stores use the process's cryptography provider. If the program has chosen one, that one stays.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let built: object_store::Result<Arc<dyn ObjectStore>> = match scheme {
        "s3" => {
            let builder = AmazonS3Builder::from_env().with_bucket_name(bucket).with_retry(retries());
            let timeout = AmazonS3ConfigKey::Client(ClientConfigKey::Timeout);
            let builder = if is_set("AWS_TIMEOUT") { builder } else { builder.with_config(timeout, REQUEST_TIMEOUT) };
            builder.build().map(|store| Arc::new(store) as _)
        }
        "gs" => {
            let builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket).with_retry(retries());
            let timeout = GoogleConfigKey::Client(ClientConfigKey::Timeout);
            let builder =
                if is_set("GOOGLE_TIMEOUT") { builder } else { builder.with_config(timeout, REQUEST_TIMEOUT) };
            builder.build().map(|store| Arc::new(store) as _)
        }
        "az" => {
            let builder = MicrosoftAzureBuilder::from_env().with_container_name(bucket).with_retry(retries());
            let timeout = AzureConfigKey::Client(ClientConfigKey::Timeout);
            let builder = if is_set("AZURE_TIMEOUT") { builder } else { builder.with_config(timeout, REQUEST_TIMEOUT) };
            builder.build().map(|store| Arc::new(store) as _)
        }
        other => return Err(Status::unimplemented(format!("File system scheme '{other}' not implemented"))),
    };
    built.map_err(|error| errors::status(&format!("{scheme}://{bucket}"), &error))
}

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some()
}

/// Requests that may succeed later are repeated for about two minutes, with growing pauses.
fn retries() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(10),
            base: 2.0,
        },
        max_retries: 8,
        retry_timeout: Duration::from_secs(120),
    }
}
