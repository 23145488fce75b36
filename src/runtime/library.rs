//! Shared libraries that are opened at run time, so that nothing of them is needed to build. One that is missing, or lacks a function, is an
//! answer and not a panic.

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// An open library. It stays open for the life of the process.
pub(super) struct Library(*mut c_void);

impl Library {
    /// Opens a library by the name that the system looks for, or by its path.
    pub fn open(name: &str) -> Result<Library, String> {
        let file = CString::new(name).map_err(|_| "a name with a null byte".to_string())?;
        // SAFETY: the name ends in a null byte. What the libraries of drivers and compilers run when they are opened only sets up themselves.
        let handle = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
        if !handle.is_null() {
            return Ok(Library(handle));
        }
        // SAFETY: the text is valid until the next call of its family on this thread, and is copied before.
        let why = unsafe { libc::dlerror() };
        // SAFETY: as above; it ends in a null byte.
        Err(if why.is_null() { "it cannot be opened".into() } else { unsafe { CStr::from_ptr(why) }.to_string_lossy().into_owned() })
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
        // SAFETY: the address is of a loaded library, and the call writes the one struct; a file name ends in a null byte and stays as long as
        // the library.
        unsafe {
            if libc::dladdr(address, info.as_mut_ptr()) == 0 || (*info.as_ptr()).dli_fname.is_null() {
                return None;
            }
            let name = CStr::from_ptr((*info.as_ptr()).dli_fname);
            Some(PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes())))
        }
    }
}

/// Declares functions of a library once: the struct of their addresses, and how they are looked up.
macro_rules! functions {
    ($(#[$doc:meta])* $api:ident: $($name:ident($($arg:ty),*) $(-> $result:ty)?;)*) => {
        $(#[$doc])*
        #[allow(non_snake_case)]
        #[derive(Clone, Copy)]
        pub(super) struct $api { $(pub $name: unsafe extern "C" fn($($arg),*) $(-> $result)?,)* }

        impl $api {
            fn load(library: &$crate::runtime::library::Library) -> Result<$api, String> {
                // SAFETY: the types are those of the library's headers.
                Ok(unsafe { $api { $($name: std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn($($arg),*) $(-> $result)?>(
                    library.need(stringify!($name))?),)* } })
            }
        }
    };
}
pub(super) use functions;
