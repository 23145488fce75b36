//! Shared libraries that are looked for at run time, so that nothing of them is needed to build. In comes a name; out come addresses of functions.

use std::ffi::{CStr, CString, c_void};

/// An open library. It stays open for the life of the process.
pub(super) struct Library(*mut c_void);

impl Library {
    /// Opens a library: by its path, or by a name that the system looks for. The reason where that fails.
    pub fn open(name: &str) -> Result<Library, String> {
        let file = CString::new(name).map_err(|_| "a name with a null byte".to_string())?;
        // SAFETY: the name ends in a null byte. What the libraries that are asked for here run when they are opened only sets up their own tables.
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
    pub fn find(&self, name: &str) -> Option<*mut c_void> {
        let name = CString::new(name).ok()?;
        // SAFETY: the library is open and the name ends in a null byte.
        Some(unsafe { libc::dlsym(self.0, name.as_ptr()) }).filter(|p| !p.is_null())
    }

    /// The address of a function that has to be there.
    pub fn need(&self, name: &str) -> Result<*mut c_void, String> {
        self.find(name).ok_or_else(|| format!("it has no {name}"))
    }
}

/// Declares the functions of a library once: the struct of their addresses, named `Api`, and how they are looked up. The types are those of the
/// library's headers.
macro_rules! functions {
    ($($name:ident($($arg:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        /// The functions that are used, under the library's own names.
        #[allow(non_snake_case)]
        pub(super) struct Api { $(pub $name: unsafe extern "C" fn($($arg),*) $(-> $result)?,)* }

        impl Api {
            fn load(library: &$crate::runtime::library::Library) -> Result<Api, String> {
                // SAFETY: a function of this name has this type in every version of the library.
                Ok(unsafe { Api { $($name: std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn($($arg),*) $(-> $result)?>(
                    library.need(stringify!($name))?),)* } })
            }
        }
    };
}
pub(super) use functions;
