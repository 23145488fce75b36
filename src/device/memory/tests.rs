//! Tests of the host buffers. Each has an allocator of its own, since the counters of the process
//! move while other tests run.

use super::*;
use crate::device::testing::Random;
use crate::os::HUGE_PAGE;

/// Live, held, peak and cached bytes.
fn bytes(a: &Allocator) -> [usize; 4] {
    let state = a.state();
    [state.live, state.held, state.peak, state.cached]
}

fn allocator(limit: usize, keep: usize, guard: bool) -> &'static Allocator {
    Box::leak(Box::new(Allocator::new(limit, keep, guard)))
}

#[test]
fn buffers_are_aligned_and_zeroed() {
    let a = allocator(1 << 30, 64 << 20, false);
    for guard in [a, allocator(1 << 30, 0, true)] {
        for len in [
            0,
            1,
            63,
            64,
            65,
            4096,
            100_000,
            MMAP_THRESHOLD,
            MMAP_THRESHOLD + 1,
            HUGE_PAGE,
            HUGE_PAGE + 1,
            5_000_001,
        ] {
            for _ in 0..2 {
                let mut b = guard.allocate(len, true).unwrap();
                assert_eq!((b.ptr() as usize % ALIGN, b.len(), b.is_empty()), (0, len, len == 0));
                // SAFETY: nobody else has the buffer.
                assert!(unsafe { b.as_slice() }.iter().all(|&x| x == 0), "len {len}");
                b.as_mut_slice().fill(7);
            }
        }
    }
    a.clear();
    let [live, held, _, cached] = bytes(a);
    assert_eq!([live, held, cached], [0; 3]);
}

#[cfg(unix)]
#[test]
fn huge_blocks_are_aligned_to_huge_pages() {
    let b = allocator(1 << 30, 0, false).allocate(3 * HUGE_PAGE + 5, false).unwrap();
    assert_eq!(b.ptr() as usize % HUGE_PAGE, 0);
}

#[test]
fn size_classes_lose_at_most_an_eighth() {
    for len in (1..5000)
        .chain((MMAP_THRESHOLD - 100)..(MMAP_THRESHOLD + 100))
        .chain([1 << 40, (1 << 40) + 1])
    {
        let size = size_class(len);
        assert!(
            size >= len && size.is_multiple_of(ALIGN) && size_class(size) == size,
            "{len} -> {size}"
        );
        assert!(len < 512 || size - len <= len.max(page_bytes() * 8) / 8, "{len} -> {size}");
    }
}

#[test]
fn absurd_sizes_are_errors_and_the_next_buffer_works() {
    for len in [usize::MAX, isize::MAX as usize + 1, isize::MAX as usize, 1 << 62, 10 << 40] {
        for zero in [false, true] {
            match if zero { HostBuffer::zeroed(len) } else { HostBuffer::new(len) } {
                Err(Error::OutOfMemory { asked, device, .. }) => {
                    assert!(asked == len && device.starts_with("CPU"), "{asked} on {device}")
                }
                other => panic!("{len}: {other:?}"),
            }
        }
        // Also if the system refuses it below our limit.
        for guard in [false, true] {
            assert!(allocator(usize::MAX, 0, guard).allocate(len.max(1 << 60), false).is_err());
        }
        assert_eq!(HostBuffer::zeroed(100).unwrap().len(), 100);
    }
}

#[test]
fn freed_blocks_are_reused() {
    let a = allocator(1 << 30, 1 << 20, false);
    let b = a.allocate(1000, false).unwrap();
    let at = b.ptr();
    assert_eq!(bytes(a), [1000, 1024, 1000, 0]);
    drop(b);
    assert_eq!(bytes(a), [0, 1024, 1000, 1024]);
    let b = a.allocate(990, false).unwrap();
    assert_eq!(b.ptr(), at, "the kept block of the same class");
    assert_eq!(bytes(a), [990, 1024, 1000, 0]);
    // Blocks larger than the cache are freed at once.
    drop(a.allocate(2 << 20, false).unwrap());
    assert_eq!(bytes(a)[1..], [1024, 990 + (2 << 20), 0]);
    drop(b);
    // Many different sizes: the cache stays within its limit and evicts the oldest first.
    for len in (1000..200_000).step_by(777) {
        drop(a.allocate(len, false).unwrap());
        assert!(a.state().cached <= 1 << 20);
        let [_, held, _, cached] = bytes(a);
        assert_eq!(cached, held);
    }
    assert!(a.state().free_lists.keys().all(|&size| size > 1024));
    a.clear();
    assert!(a.state().free_lists.is_empty());
    let [_, held, _, cached] = bytes(a);
    assert_eq!([held, cached], [0; 2]);
}

#[test]
fn cached_blocks_are_freed_before_an_error() {
    let a = allocator(10 << 20, 10 << 20, false);
    let all: Vec<_> = (0..8).map(|_| a.allocate(1 << 20, false).unwrap()).collect();
    drop(all);
    assert_eq!(a.state().cached, 8 << 20);
    let b = a.allocate(9 << 20, false).unwrap();
    assert_eq!(a.state().cached, 1 << 20);
    let refused = a.allocate(2 << 20, false);
    assert!(matches!(refused, Err(Error::OutOfMemory { asked, .. }) if asked == 2 << 20));
    drop(b);
    a.allocate(2 << 20, false).unwrap();
}

#[test]
fn threads_share_one_allocator() {
    let a = allocator(1 << 30, 4 << 20, false);
    std::thread::scope(|s| {
        for t in 0..3 {
            s.spawn(move || {
                let mut random = Random(t);
                let mut held: Vec<HostBuffer> = Vec::new();
                for _ in 0..3000 {
                    if held.len() > 10 || (random.below(2) == 0 && !held.is_empty()) {
                        let b = held.swap_remove(random.below(held.len()));
                        // SAFETY: the buffer is this thread's alone.
                        let bytes = unsafe { b.as_slice() };
                        assert!(bytes.iter().all(|&x| x == bytes[0]));
                    } else {
                        let mut b = a.allocate(1 + random.below(100_000), false).unwrap();
                        b.as_mut_slice().fill(random.next() as u8);
                        held.push(b);
                    }
                }
            });
        }
    });
    assert_eq!(a.state().live, 0);
    a.clear();
    assert_eq!(a.state().held, 0);
}

/// A read of one element past the end ends a child process with a signal; a write into the slack is
/// told at the drop.
#[cfg(unix)]
#[test]
fn guard_mode_faults() {
    let a = allocator(1 << 30, 0, true);
    let b = a.allocate(64, false).unwrap();
    // SAFETY: nobody writes to the buffer.
    assert!(unsafe { b.as_slice() }.iter().all(|&x| x == POISON));
    let past = b.ptr().wrapping_add(64);
    let before = b.ptr().wrapping_sub(page_bytes());
    for (at, dies) in [(past, true), (before, true), (b.ptr(), false)] {
        // SAFETY: the child only resets a signal, reads one byte and leaves; it takes no lock and
        // runs no destructor.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: the fault, where there is one, is the point; `_exit` runs nothing. The
            // handler of the standard library, which may want a lock that another thread held at
            // the fork, is put aside.
            unsafe {
                libc::signal(libc::SIGSEGV, libc::SIG_DFL);
                at.read_volatile();
                libc::_exit(0)
            }
        }
        let mut status = 0;
        // SAFETY: waits for the child of this test.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
        assert_eq!(libc::WIFSIGNALED(status), dies);
    }
    drop(b);
    let b = a.allocate(60, false).unwrap();
    // SAFETY: the slack byte belongs to the block.
    unsafe { b.ptr().add(61).write(0) };
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(b))).unwrap_err();
    assert!(caught.downcast_ref::<String>().unwrap().contains("60 bytes"));
    assert_eq!(bytes(a)[..2], [0, 0]);
}
