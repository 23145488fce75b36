//! The schedule cache: abstracted graphs that were planned before. Keys are interned nodes, so a
//! look-up compares pointers.

use super::Plan;
use crate::ir::{DeviceName, UOp};
use rustc_hash::FxHashMap;
use std::sync::{Arc, LazyLock, Mutex};

/// What a plan depends on.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// The abstracted outputs.
    pub sink: UOp,
    /// Where each output lives.
    pub devices: Vec<DeviceName>,
    /// The input whose memory each part of each output may take.
    pub reuse: Vec<Option<usize>>,
}

/// More plans than this and the cache starts anew: a program that never repeats itself must not
/// fill memory.
const MOST: usize = 4096;

static CACHE: LazyLock<Mutex<FxHashMap<Key, Arc<Plan>>>> = LazyLock::new(Mutex::default);

fn lock() -> std::sync::MutexGuard<'static, FxHashMap<Key, Arc<Plan>>> {
    CACHE.lock().unwrap_or_else(|e| e.into_inner())
}

/// The plan of the key, made if it is new; the flag says whether it was there.
pub fn get_or_insert(key: Key, make: impl FnOnce(&Key) -> Plan) -> (Arc<Plan>, bool) {
    if let Some(plan) = lock().get(&key) {
        return (plan.clone(), true);
    }
    // Planning runs without the lock: two threads may plan the same graph, and get equal plans.
    let plan = Arc::new(make(&key));
    let mut cache = lock();
    if cache.len() >= MOST {
        cache.clear();
    }
    cache.insert(key, plan.clone());
    (plan, false)
}

/// How many plans are kept.
pub fn cache_len() -> usize {
    lock().len()
}

/// Forgets all plans.
pub fn clear_cache() {
    lock().clear();
}
