//! Shared libraries that are opened at run time, so that the build needs no SDK. A missing library
//! or function is an error value, never a panic.

use super::limits;
use crate::os;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

/// An open library. It is never closed: function addresses outlive the value.
pub(in crate::device) struct Library(ManuallyDrop<libloading::Library>);

impl Library {
    /// Opens a library by path, or by a name that the dynamic loader searches for.
    pub fn open(name: &str) -> Result<Library, String> {
        // A path may name an incomplete download; installed libraries are complete.
        if Path::new(name).components().nth(1).is_some() {
            check_complete(Path::new(name))?;
        }
        // SAFETY: the initializers of driver and compiler libraries set up only themselves.
        let opened = unsafe { libloading::Library::new(name) };
        opened.map(|library| Library(ManuallyDrop::new(library))).map_err(|e| e.to_string())
    }

    /// Returns the address of a function.
    pub fn function(&self, name: &str) -> Result<*mut c_void, String> {
        // SAFETY: only the address is taken; whoever calls it states the type.
        let symbol = unsafe { self.0.get::<*mut c_void>(name.as_bytes()) };
        let address = symbol.map_or(std::ptr::null_mut(), |symbol| *symbol);
        if address.is_null() { Err(format!("it has no {name}")) } else { Ok(address) }
    }

    /// Returns the path of the file that defines a function.
    pub fn path(&self, function: &str) -> Option<PathBuf> {
        os::library_of(self.function(function).ok()?)
    }
}

/// Checks that a file contains every segment that its program headers load. `dlopen` maps a
/// truncated file without an error, and the first access past its end kills the process (SIGBUS).
fn check_complete(path: &Path) -> Result<(), String> {
    /// Type of a program header whose segment is loaded. `libc` has it for ELF systems only.
    const PT_LOAD: u32 = 1;
    let (file, len) = limits::open_file(path).map_err(|e| e.to_string())?;
    let mut head = [0; 64];
    let elf64 =
        os::read_exact_at(&file, &mut head, 0).is_ok() && head.starts_with(b"\x7fELF\x02\x01");
    // Other formats, such as Mach-O, are checked by `dlopen` itself.
    if !elf64 {
        return Ok(());
    }
    let u16_at = |at: usize| u64::from(u16::from_le_bytes([head[at], head[at + 1]]));
    let u64_at =
        |bytes: &[u8], at: usize| bytes[at..].first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
    let (first, size, count) = (u64_at(&head, 0x20), u16_at(0x36), u16_at(0x38));
    for i in 0..count {
        let mut header = [0; 56];
        let end = first
            .checked_add(i * size)
            .filter(|at| os::read_exact_at(&file, &mut header, *at).is_ok())
            .and_then(|_| {
                let is_loaded = header.starts_with(&PT_LOAD.to_le_bytes());
                if is_loaded {
                    u64_at(&header, 8).checked_add(u64_at(&header, 32))
                } else {
                    Some(0)
                }
            });
        if end.is_none_or(|end| end > len) {
            return Err(format!(
                "the file is truncated: it has {len} bytes, fewer than its program headers load"
            ));
        }
    }
    Ok(())
}

/// Declares functions of a library: the struct of their addresses, and the lookup that fills it.
macro_rules! functions {
    ($(#[$doc:meta])* $api:ident: $($name:ident($($arg:ty),*) $(-> $result:ty)?;)*) => {
        $(#[$doc])*
        #[allow(non_snake_case)]
        #[derive(Clone, Copy)]
        pub(in crate::device) struct $api {
            $(pub $name: unsafe extern "C" fn($($arg),*) $(-> $result)?,)*
        }

        impl $api {
            #[allow(non_snake_case)]
            fn load(library: &$crate::device::library::Library) -> Result<$api, String> {
                use std::ffi::c_void;
                use std::mem::transmute;
                $(
                    let address = library.function(stringify!($name))?;
                    // SAFETY: the type is that of the library's headers.
                    let $name = unsafe {
                        transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) $(-> $result)?>(
                            address,
                        )
                    };
                )*
                Ok($api { $($name,)* })
            }
        }
    };
}
pub(in crate::device) use functions;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::testing::TempDir;

    /// The test binary stands in for a library: it has the same headers.
    #[test]
    fn truncated_library_is_refused() {
        let dir = TempDir::new("library");
        let path = dir.path().join("lib.so");
        let whole = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        if !whole.starts_with(b"\x7fELF\x02\x01") {
            return;
        }
        for (len, right) in [
            (whole.len(), true),
            (1 << 20, false),
            (4096, false),
            (100, false),
            (40, true),
            (0, true),
        ] {
            std::fs::write(&path, &whole[..len]).unwrap();
            let found = check_complete(&path);
            assert_eq!(found.is_ok(), right, "{len} of {}: {found:?}", whole.len());
            assert!(
                right
                    || Library::open(path.to_str().unwrap())
                        .is_err_and(|e| e.contains("is truncated"))
            );
        }
        assert!(check_complete(dir.path()).unwrap_err().contains("is not a regular file"));
    }
}
