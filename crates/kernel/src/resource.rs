//! [`ResourceManager`]: the variables, queues, tables and iterators of a device, by container and name.

use foldhash::HashMap;
use numeric::stable::fnv1a;
use parking_lot::RwLock;
use std::any::{Any, TypeId};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use tensor::{ResourceHandle, Result, Status};

/// An object that lives on a device between steps, and is found by name.
pub trait Resource: Any + Send + Sync {
    /// Returns the name of the type, as in serialized handles.
    fn type_name(&self) -> &'static str;

    /// Returns a one-line description for people.
    fn describe(&self) -> String;

    /// Returns what the resource holds, as far as that is known without waiting.
    fn holdings(&self) -> Holdings {
        Holdings::default()
    }
}

/// The contents of a resource at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// The bytes of a variable's value.
    pub variable_bytes: Option<usize>,
    /// The elements of a queue.
    pub queue_elements: Option<usize>,
    /// The number of reads and writes.
    pub uses: u64,
}

/// The default container.
const DEFAULT_CONTAINER: &str = "localhost";

struct Entry {
    any: Arc<dyn Any + Send + Sync>,
    resource: Arc<dyn Resource>,
}

type Container = HashMap<(TypeId, String), Entry>;

/// The resources of one device.
#[derive(Default)]
pub struct ResourceManager {
    containers: RwLock<HashMap<String, Container>>,
    /// The number of removals, by which caches of resources know when to look them up again.
    removals: AtomicU64,
}

impl ResourceManager {
    /// Returns a manager without resources.
    pub fn new() -> ResourceManager {
        ResourceManager::default()
    }

    /// Returns the resource with this name, or `NotFound`.
    pub fn lookup<R: Resource>(&self, container: &str, name: &str) -> Result<Arc<R>> {
        self.find(container, name).ok_or_else(|| missing(container, name, std::any::type_name::<R>()))
    }

    /// Returns the resource with this name, and creates it if there is none.
    pub fn lookup_or_create<R: Resource>(
        &self,
        container: &str,
        name: &str,
        create: impl FnOnce() -> Result<R>,
    ) -> Result<Arc<R>> {
        if let Some(resource) = self.find(container, name) {
            return Ok(resource);
        }
        // Created outside the lock, since that may be slow; the first one to be added is used.
        let made = Arc::new(create()?);
        let mut containers = self.containers.write();
        let entries = containers.entry(effective(container).to_owned()).or_default();
        let entry = entries
            .entry((TypeId::of::<R>(), name.to_owned()))
            .or_insert_with(|| Entry { any: made.clone(), resource: made });
        entry.any.clone().downcast::<R>().map_err(|_| Status::internal("a resource of another type"))
    }

    /// Adds a resource. Returns `AlreadyExists` if the name is taken.
    pub fn create<R: Resource>(&self, container: &str, name: &str, resource: Arc<R>) -> Result<()> {
        let mut containers = self.containers.write();
        let entries = containers.entry(effective(container).to_owned()).or_default();
        let key = (TypeId::of::<R>(), name.to_owned());
        if entries.contains_key(&key) {
            return Err(Status::already_exists(format!("Resource {container}/{name} already exists")));
        }
        entries.insert(key, Entry { any: resource.clone(), resource });
        Ok(())
    }

    /// Removes a resource. Returns `NotFound` if there is none.
    pub fn delete<R: Resource>(&self, container: &str, name: &str) -> Result<()> {
        self.removals.fetch_add(1, Ordering::Release);
        let removed = {
            let mut containers = self.containers.write();
            let entries = containers.get_mut(effective(container));
            entries.and_then(|entries| entries.remove(&(TypeId::of::<R>(), name.to_owned())))
        };
        removed.map(drop).ok_or_else(|| missing(container, name, std::any::type_name::<R>()))
    }

    /// Removes a resource of any type, and returns whether there was one.
    pub fn delete_any(&self, container: &str, name: &str) -> bool {
        self.removals.fetch_add(1, Ordering::Release);
        let mut removed = Vec::new();
        let mut containers = self.containers.write();
        if let Some(entries) = containers.get_mut(effective(container)) {
            entries.retain(|(_, entry_name), entry| {
                let keep = entry_name != name;
                if !keep {
                    removed.push(entry.any.clone());
                }
                keep
            });
        }
        drop(containers);
        !removed.is_empty()
    }

    /// Returns the resource that a handle refers to, which may be in the handle itself.
    pub fn from_handle<R: Resource>(&self, handle: &ResourceHandle) -> Result<Arc<R>> {
        if let Some(carried) = &handle.resource
            && let Ok(resource) = carried.clone().downcast::<R>()
        {
            return Ok(resource);
        }
        self.lookup(&handle.container, &handle.name).map_err(|status| {
            if handle.resource.is_none() && !self.has_name(&handle.container, &handle.name) {
                return status;
            }
            let wanted = std::any::type_name::<R>().rsplit("::").next().unwrap_or_default().to_owned();
            Status::invalid_argument(format!(
                "Trying to access resource {} located in device {} using the wrong type. Expected {wanted}, got {}",
                handle.name, handle.device, handle.maybe_type_name
            ))
        })
    }

    /// Returns whether there is a resource of any type with this name.
    fn has_name(&self, container: &str, name: &str) -> bool {
        let containers = self.containers.read();
        containers.get(effective(container)).is_some_and(|entries| entries.keys().any(|(_, entry)| entry == name))
    }

    /// Returns a handle to a resource, with the resource in it.
    pub fn handle_to<R: Resource>(device: &str, container: &str, name: &str, resource: Arc<R>) -> ResourceHandle {
        ResourceHandle {
            device: device.to_owned(),
            container: effective(container).to_owned(),
            name: name.to_owned(),
            hash_code: type_hash(resource.type_name()),
            maybe_type_name: resource.type_name().to_owned(),
            dtypes_and_shapes: Vec::new(),
            resource: Some(resource),
        }
    }

    /// Removes a container and everything in it.
    pub fn cleanup(&self, container: &str) {
        self.removals.fetch_add(1, Ordering::Release);
        let removed = self.containers.write().remove(effective(container));
        drop(removed);
    }

    /// Removes everything.
    pub fn clear(&self) {
        self.removals.fetch_add(1, Ordering::Release);
        let removed = std::mem::take(&mut *self.containers.write());
        drop(removed);
    }

    /// Returns `container/name: description` for every resource, sorted.
    pub fn list(&self) -> Vec<String> {
        let containers = self.containers.read();
        let mut lines: Vec<String> = containers
            .iter()
            .flat_map(|(container, entries)| {
                entries
                    .iter()
                    .map(move |((_, name), entry)| format!("{container}/{name}: {}", entry.resource.describe()))
            })
            .collect();
        lines.sort();
        lines
    }

    /// Returns the names and contents of the resources that hold something.
    pub fn holdings(&self) -> Vec<(String, Holdings)> {
        // The resources are asked without the lock, since some may be slow to answer.
        let mut all = Vec::new();
        for (container, entries) in self.containers.read().iter() {
            for ((_, name), entry) in entries {
                let is_default = container == DEFAULT_CONTAINER;
                let name = if is_default { name.clone() } else { format!("{container}/{name}") };
                all.push((name, entry.resource.clone()));
            }
        }
        let holds_something = |(name, resource): (String, Arc<dyn Resource>)| {
            let holdings = resource.holdings();
            (holdings != Holdings::default()).then_some((name, holdings))
        };
        all.into_iter().filter_map(holds_something).collect()
    }

    fn find<R: Resource>(&self, container: &str, name: &str) -> Option<Arc<R>> {
        let containers = self.containers.read();
        // The lookup needs an owned name in the key, so the name is cloned.
        let entry = containers.get(effective(container))?.get(&(TypeId::of::<R>(), name.to_owned()))?;
        entry.any.clone().downcast::<R>().ok()
    }
}

/// Caches what a kernel found in a manager, until something is removed from it. A lookup by name costs more than the rest of a
/// variable's node.
pub struct ResourceCache<V> {
    cached: RwLock<Option<Cached<V>>>,
}

struct Cached<V> {
    /// Keeps the manager's address from being reused.
    manager: Weak<ResourceManager>,
    removals: u64,
    value: V,
}

impl<V: Clone> ResourceCache<V> {
    /// Returns an empty cache.
    pub const fn new() -> ResourceCache<V> {
        ResourceCache { cached: RwLock::new(None) }
    }

    /// Returns the cached value, or that of `find`, which is cached if `find` allows it.
    pub fn get(
        &self,
        manager: &Arc<ResourceManager>,
        find: impl FnOnce(&ResourceManager) -> Result<(V, bool)>,
    ) -> Result<V> {
        let removals = manager.removals.load(Ordering::Acquire);
        if let Some(cached) = &*self.cached.read()
            && cached.removals == removals
            && std::ptr::eq(cached.manager.as_ptr(), Arc::as_ptr(manager))
        {
            return Ok(cached.value.clone());
        }
        let (value, remember) = find(manager)?;
        if remember {
            *self.cached.write() = Some(Cached { manager: Arc::downgrade(manager), removals, value: value.clone() });
        }
        Ok(value)
    }

    /// Returns the last cached value, and the manager in which it was found.
    pub fn last(&self) -> Option<(Arc<ResourceManager>, V)> {
        let cached = self.cached.read();
        let cached = cached.as_ref()?;
        Some((cached.manager.upgrade()?, cached.value.clone()))
    }
}

impl<V: Clone> Default for ResourceCache<V> {
    fn default() -> Self {
        ResourceCache::new()
    }
}

fn effective(container: &str) -> &str {
    if container.is_empty() { DEFAULT_CONTAINER } else { container }
}

fn missing(container: &str, name: &str, type_name: &str) -> Status {
    let type_name = type_name.rsplit("::").next().unwrap_or(type_name);
    Status::not_found(format!("Resource {}/{name}/{type_name} does not exist.", effective(container)))
}

fn type_hash(type_name: &str) -> u64 {
    // Any stable hash does, since only its own task compares it.
    fnv1a(type_name.bytes())
}
