//! Shared libraries that are opened at run time, so that nothing of them is needed to build. One
//! that is missing, or lacks a function, is an answer and not a panic.

use super::limits;
use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// An open library. It stays open for the life of the process.
pub(in crate::device) struct Library(*mut c_void);

impl Library {
    /// Opens a library by the name that the system looks for, or by its path.
    pub fn open(name: &str) -> Result<Library, String> {
        let file = CString::new(name).map_err(|_| "a name with a null byte".to_string())?;
        // What the system finds by itself is as it was installed.
        if name.contains('/') {
            is_whole(Path::new(name))?;
        }
        // SAFETY: the name ends in a null byte. What the libraries of drivers and compilers run
        // when they are opened only sets up themselves.
        let handle = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
        if !handle.is_null() {
            return Ok(Library(handle));
        }
        // SAFETY: the text is valid until the next call of its family on this thread, and is copied
        // before.
        let why = unsafe { libc::dlerror() };
        // SAFETY: as above; it ends in a null byte.
        Err(if why.is_null() {
            "it cannot be opened".into()
        } else {
            unsafe { CStr::from_ptr(why) }.to_string_lossy().into_owned()
        })
    }

    /// The address of a function.
    pub fn need(&self, name: &str) -> Result<*mut c_void, String> {
        let text = CString::new(name).map_err(|_| "a name with a null byte".to_string())?;
        // SAFETY: the library is open and the name ends in a null byte.
        let address = unsafe { libc::dlsym(self.0, text.as_ptr()) };
        if address.is_null() { Err(format!("it has no {name}")) } else { Ok(address) }
    }

    /// The file that a function of it came from.
    pub fn path(&self, function: &str) -> Option<PathBuf> {
        let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        let address = self.need(function).ok()?;
        // SAFETY: the address is of a loaded library, and the call writes the one struct; a file
        // name ends in a null byte and stays as long as the library.
        unsafe {
            if libc::dladdr(address, info.as_mut_ptr()) == 0 || (*info.as_ptr()).dli_fname.is_null()
            {
                return None;
            }
            let name = CStr::from_ptr((*info.as_ptr()).dli_fname);
            Some(PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes())))
        }
    }
}

/// Checks that a file has all that its program headers say is loaded. `dlopen` maps what is missing
/// of a file that was cut off, and the first access to it ends the process by a signal.
fn is_whole(path: &Path) -> Result<(), String> {
    /// The type of a program header whose segment is loaded; `libc` has it for ELF systems only.
    const PT_LOAD: u32 = 1;
    let (file, len) = limits::open_file(path).map_err(|e| e.to_string())?;
    let mut head = [0; 64];
    let elf64 = file.read_exact_at(&mut head, 0).is_ok() && head.starts_with(b"\x7fELF\x02\x01");
    // What is something else, as on macOS, is left to `dlopen`, which looks at the head itself.
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
            .filter(|at| file.read_exact_at(&mut header, *at).is_ok())
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
                "the file is cut off: it has {len} bytes, and its program headers name more"
            ));
        }
    }
    Ok(())
}

/// Declares functions of a library once: the struct of their addresses, and how they are looked up.
macro_rules! functions {
    ($(#[$doc:meta])* $api:ident: $($name:ident($($arg:ty),*) $(-> $result:ty)?;)*) => {
        $(#[$doc])*
        #[allow(non_snake_case)]
        #[derive(Clone, Copy)]
        pub(in crate::device) struct $api { $(pub $name: unsafe extern "C" fn($($arg),*) $(-> $result)?,)* }

        impl $api {
            fn load(library: &$crate::device::library::Library) -> Result<$api, String> {
                // SAFETY: the types are those of the library's headers.
                Ok(unsafe { $api { $($name: std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn($($arg),*) $(-> $result)?>(
                    library.need(stringify!($name))?),)* } })
            }
        }
    };
}
pub(in crate::device) use functions;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::testing::TempDir;

    /// A program is as good as a library: it has the same headers.
    #[test]
    fn a_file_that_is_cut_off_is_not_opened() {
        let dir = TempDir::new("library");
        let path = dir.path().join("lib.so");
        let whole = std::fs::read("/proc/self/exe").unwrap();
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
            let found = is_whole(&path);
            assert_eq!(found.is_ok(), right, "{len} of {}: {found:?}", whole.len());
            assert!(
                right
                    || Library::open(path.to_str().unwrap())
                        .is_err_and(|e| e.contains("is cut off"))
            );
        }
        assert!(is_whole(dir.path()).unwrap_err().contains("is not a regular file"));
    }
}
