//! Functions of the operating system that the standard library does not have. In: the arguments of
//! a system call. Out: its result, as a value or an `io::Error`.
//!
//! | | `unix` (Linux, macOS) | `windows` |
//! |---|---|---|
//! | pages | `mmap`, `mprotect`; `MAP_JIT` on Macs with arm64 | `VirtualAlloc`, `VirtualProtect` |
//! | memory limits | the machine, `RLIMIT_AS` | the machine |
//! | private folders | owner and mode of each file | owner of each file |
//! | files in memory | `memfd_create` on Linux | none |
//! | copies of the process | `fork` | none |
//! | compilers that hang | end with their process group | end without their child processes |
//!
//! **Invariant:** both halves define the same items, so no other file asks for the system. No page
//! is writable and executable at the same time for any thread.

#[cfg(not(any(unix, windows)))]
compile_error!(
    "picograd builds on Linux, macOS and Windows: src/os has the system calls of these systems"
);

#[cfg(unix)]
#[path = "unix/mod.rs"]
mod system;
#[cfg(windows)]
#[path = "windows/mod.rs"]
mod system;

pub(crate) use system::*;

/// The size of a huge page on x86-64 and, with 4 KiB pages, on arm64.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// Access to pages. Pages of machine code come from [`map_code`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    None,
    Read,
    ReadWrite,
}

/// Memory of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MachineMemory {
    /// Bytes that can be allocated now, with reclaimable memory and swap.
    pub available: u64,
    /// Bytes of the machine.
    pub total: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_zero_and_change_their_access() {
        let bytes = 2 * page_bytes();
        for map in [map(bytes, Access::None), map_large(bytes)] {
            let p = map.unwrap();
            // SAFETY: the mapping is ours, has this length and is readable once it is protected so.
            unsafe {
                protect(p, bytes, Access::ReadWrite).unwrap();
                assert!((0..bytes).all(|i| p.add(i).read() == 0));
                p.add(bytes - 1).write(7);
                protect(p, bytes, Access::Read).unwrap();
                assert_eq!(p.add(bytes - 1).read(), 7);
                unmap(p, bytes);
            }
        }
    }

    #[test]
    fn code_is_executable_once_it_is_complete() {
        #[cfg(target_arch = "x86_64")]
        // mov eax, 42; ret
        let code: &[u8] = &[0xb8, 42, 0, 0, 0, 0xc3];
        #[cfg(target_arch = "aarch64")]
        // mov w0, #42; ret
        let code: &[u8] = &[0x40, 0x05, 0x80, 0x52, 0xc0, 0x03, 0x5f, 0xd6];
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        for _ in 0..100 {
            let bytes = 2 * page_bytes();
            let p = map_code(page_bytes(), bytes).unwrap();
            // SAFETY: the mapping is ours; the code is a function of this type, and is complete
            // before it is called. The second page stays writable.
            unsafe {
                p.copy_from_nonoverlapping(std::ptr::NonNull::from(code).cast(), code.len());
                finish_code(p, page_bytes()).unwrap();
                let f: extern "C" fn() -> i32 = std::mem::transmute(p);
                assert_eq!(f(), 42);
                p.add(page_bytes()).write(1);
                unmap_code(p, bytes);
            }
        }
    }

    #[test]
    fn a_private_folder_holds_files() {
        let folder = tempfile::tempdir().unwrap();
        let folder = PrivateFolder::open(&folder.path().join("a/b")).unwrap();
        use std::io::{ErrorKind, Read, Write};
        folder.create(c"one").unwrap().write_all(b"text").unwrap();
        assert_eq!(folder.create(c"one").unwrap_err().kind(), ErrorKind::AlreadyExists);
        folder.link(c"one", c"two").unwrap();
        assert_eq!(folder.link(c"one", c"two").unwrap_err().kind(), ErrorKind::AlreadyExists);
        folder.rename(c"one", c"three").unwrap();
        assert_eq!(folder.read(c"one").unwrap_err().kind(), ErrorKind::NotFound);
        let mut text = String::new();
        folder.read(c"two").unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
        assert!(is_secret(&folder.read(c"three").unwrap()).unwrap());
        folder.remove(c"two").unwrap();
        assert!(folder.remove(c"two").is_err());
        folder.update(c"two").unwrap().write_all(b"x").unwrap();
    }

    #[test]
    fn random_bytes_differ() {
        let (mut a, mut b) = ([0; 32], [0; 32]);
        random(&mut a).unwrap();
        random(&mut b).unwrap();
        assert!(a != b && a != [0; 32]);
    }
}
