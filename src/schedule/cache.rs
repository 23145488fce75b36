//! The schedule cache: abstracted graphs that were planned before. Keys are interned nodes, so a
//! look-up compares pointers.

use super::Plan;
use crate::ir::{DeviceName, UOp};
use rustc_hash::FxHashMap;
use std::sync::{Arc, LazyLock, Mutex};

/// Key of a plan.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// The abstracted outputs.
    pub sink: UOp,
    /// Device of each output. Limits and costs are those of devices, whose names are here and in
    /// the inputs.
    pub devices: Vec<DeviceName>,
    /// The input whose buffer may be donated to each shard of each output.
    pub donated: Vec<Option<usize>>,
}

/// Maximum number of cached plans; then the cache is cleared: a program that never repeats a graph
/// must not fill memory.
const MAX_PLANS: usize = 4096;

static CACHE: LazyLock<Mutex<FxHashMap<Key, Arc<Plan>>>> = LazyLock::new(Mutex::default);

fn lock() -> std::sync::MutexGuard<'static, FxHashMap<Key, Arc<Plan>>> {
    CACHE.lock().unwrap_or_else(|e| e.into_inner())
}

/// Returns the plan of a key, made on a cache miss; the flag is true on a hit.
pub fn get_or_insert(key: Key, make: impl FnOnce(&Key) -> Plan) -> (Arc<Plan>, bool) {
    if let Some(plan) = lock().get(&key) {
        return (plan.clone(), true);
    }
    // Planning runs without the lock: two threads may plan the same graph, and get equal plans.
    let plan = Arc::new(make(&key));
    let mut cache = lock();
    if cache.len() >= MAX_PLANS {
        cache.clear();
    }
    cache.insert(key, plan.clone());
    (plan, false)
}

/// Returns the number of cached plans.
#[cfg(feature = "testing")]
pub fn cache_len() -> usize {
    lock().len()
}

/// Clears the schedule cache.
#[cfg(feature = "testing")]
pub fn clear_cache() {
    lock().clear();
}
