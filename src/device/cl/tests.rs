//! Tests of OpenCL internals: error names, rejected sources, free blocks.

use crate::device::buffer::Remote;
use crate::device::cl::*;

/// Lock of tests that open devices: PoCL occasionally faults if two threads do so at once. The
/// registry opens one at a time.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    crate::device::backend::lock(&ALONE)
}

/// Returns the first device, if there is one.
fn device() -> Option<Cl> {
    Cl::open(0).inspect_err(|e| eprintln!("skipped: {e}")).ok()
}

#[test]
fn error_codes_have_names() {
    assert_eq!(api::named(-5), "CL_OUT_OF_RESOURCES (-5)");
    assert_eq!(api::named(-30), "CL_INVALID_VALUE (-30)");
    assert_eq!(api::named(-61), "CL_INVALID_BUFFER_SIZE (-61)");
    assert_eq!(api::named(-72), "CL_MAX_SIZE_RESTRICTION_EXCEEDED (-72)");
    for other in [-25, -73, -9999, 7] {
        assert_eq!(api::named(other), format!("vendor-specific error ({other})"));
    }
}

#[test]
fn rejected_source_is_saved_with_the_message() {
    let _alone = alone();
    let Some(cl) = device() else { return };
    let source = "__kernel void broken(__global float* data0) { *data0 = no_such_name; }\n";
    let Err(Error::Compile { msg, source_at }) = cl.shared.built_source(source, "broken").map(drop)
    else {
        panic!("it was built")
    };
    assert!(
        msg.contains("kernel broken")
            && msg.contains("CL_BUILD_PROGRAM_FAILURE")
            && msg.contains("no_such_name"),
        "{msg}"
    );
    let at = source_at.expect("a place");
    assert_eq!(std::fs::read_to_string(&at).unwrap(), source);
    std::fs::remove_file(at).unwrap();
}

#[test]
fn cached_memory_is_freed_before_an_error() {
    let _alone = alone();
    let Some(cl) = device() else { return };
    let (shared, pool) = (&cl.shared, &cl.shared.pool);
    let a = memory::allocate(shared, 1000).unwrap();
    a.write(1, &[7; 999]).unwrap();
    let mut out = [0; 2];
    a.read(998, &mut out).unwrap();
    assert_eq!((out, pool.bytes()), ([7; 2], (1024, 0)));
    drop(a);
    assert_eq!(pool.bytes(), (0, 1024));
    let (b, c) = (memory::allocate(shared, 1024).unwrap(), memory::allocate(shared, 3).unwrap());
    assert_eq!(pool.bytes(), (1024 + 64, 0));
    assert!(c.copy_from(1..3, &b, 998).unwrap() && !c.copy_from(0..1, &c, 1).unwrap());
    c.read(1, &mut out).unwrap();
    assert_eq!(out, [7; 2]);
    drop((b, c));
    let Err(Error::OutOfMemory { asked: usize::MAX, held: 1088, .. }) =
        memory::allocate(shared, usize::MAX).map(drop)
    else {
        panic!("there was room")
    };
    // A device of 4 KiB: free blocks are evicted before it is full.
    let small = Pool::new("CL", 4096, Some(4096));
    let shared = Arc::new(ClContext {
        pool: small,
        ..Cl::open(0).map(|c| Arc::into_inner(c.shared).expect("ours alone")).unwrap()
    });
    drop(memory::allocate(&shared, 1000).unwrap());
    let most = memory::allocate(&shared, 4000).unwrap();
    assert_eq!(shared.pool.bytes(), (4096, 0));
    assert!(matches!(
        memory::allocate(&shared, 1).map(drop),
        Err(Error::OutOfMemory { held: 4096, .. })
    ));
    drop(most);
}
