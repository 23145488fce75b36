//! Functions of the operating system for Linux and macOS.

mod folder;
mod fork;
mod pages;

pub(crate) use folder::{PrivateFolder, is_secret};
pub(crate) use fork::{CAN_FORK, Fork};
pub(crate) use pages::{
    finish_code, map, map_code, map_large, page_bytes, protect, unmap, unmap_code,
};

use super::MachineMemory;
use std::ffi::{CStr, OsStr, c_void};
use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};

/// Fills a buffer from an offset of a file.
pub(crate) fn read_exact_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    file.read_exact_at(bytes, at)
}

/// Returns what identifies the content of a file without reading it: device, number, size, time.
pub(crate) fn file_identity(meta: &Metadata) -> String {
    let (dev, ino, size) = (meta.dev(), meta.ino(), meta.size());
    format!("{dev} {ino} {size} {}.{}", meta.mtime(), meta.mtime_nsec())
}

/// Returns true if a file can be run as a program.
pub(crate) fn is_program(meta: &Metadata) -> bool {
    meta.is_file() && meta.permissions().mode() & 0o111 != 0
}

/// Returns true if the open file has no name any more.
pub(crate) fn is_removed(file: &File) -> io::Result<bool> {
    Ok(file.metadata()?.nlink() == 0)
}

/// Opens a file for reading. A link is an error, and a pipe does not wait for a writer.
pub(crate) fn open_no_follow(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
}

/// Makes files that these options create readable by their owner only.
pub(crate) fn make_private(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(0o600)
}

/// Creates a folder, and missing ones above it, that only its owner can enter.
pub(crate) fn create_private_folders(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Creates a folder that only its owner can enter. An error if it exists.
pub(crate) fn create_private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// Returns the permissions of new files, from which the system removes the umask.
pub(crate) fn new_file_permissions() -> Option<Permissions> {
    Some(Permissions::from_mode(0o666))
}

/// Fills a buffer with random bytes for a secret.
pub(crate) fn random(bytes: &mut [u8]) -> io::Result<()> {
    File::open("/dev/urandom")?.read_exact(bytes)
}

/// Creates a file in memory. `None` if the system has none.
pub(crate) fn memory_file() -> Option<File> {
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::FromRawFd;
        // SAFETY: the name ends in a null byte; the call makes a new descriptor or fails.
        let fd = unsafe { libc::memfd_create(c"picograd".as_ptr(), libc::MFD_CLOEXEC) };
        // SAFETY: the descriptor is new and has no other owner.
        (fd >= 0).then(|| unsafe { File::from_raw_fd(fd) })
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// Returns memory and swap of the machine. `None` if the system does not tell.
pub(crate) fn physical_bytes() -> Option<usize> {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: the struct is plain numbers, for which zero is valid; the call fills it.
        let mut info: libc::sysinfo = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to a struct of the right type.
        if unsafe { libc::sysinfo(&mut info) } == 0 {
            let units = (info.totalram as usize).saturating_add(info.totalswap as usize);
            return Some(units.saturating_mul(info.mem_unit as usize));
        }
    }
    None
}

/// Returns the memory of the machine. `None` if the system does not tell.
pub(crate) fn machine_memory() -> Option<MachineMemory> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let field = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|l| l.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
    };
    let available = field("MemAvailable:")?.saturating_add(field("SwapFree:").unwrap_or(0));
    Some(MachineMemory { available, total: field("MemTotal:")? })
}

/// Returns the limit of this process's address space and the bytes of it that are in use. `None`
/// without a limit.
pub(crate) fn address_space() -> Option<(u64, u64)> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a struct of the right type, which the call fills.
    if unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) } != 0
        || limit.rlim_cur == libc::RLIM_INFINITY
    {
        return None;
    }
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = pages.split_whitespace().next()?.parse().ok()?;
    Some((limit.rlim_cur, pages.saturating_mul(page_bytes() as u64)))
}

/// Returns the logical CPUs in the affinity mask of the process.
#[cfg(target_os = "linux")]
pub(crate) fn affinity() -> Option<Vec<usize>> {
    // Room for 65,536 CPUs: the call fails if the mask is shorter than that of the system.
    let mut mask = vec![0u64; 1024];
    // SAFETY: the call writes at most as many bytes as the vector has.
    let bytes =
        unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, mask.len() * 8, mask.as_mut_ptr()) };
    let words = mask.iter().take(usize::try_from(bytes).ok()?.div_ceil(8)).enumerate();
    let cpus: Vec<usize> = words
        .flat_map(|(i, word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |b| i * 64 + b)
        })
        .collect();
    (!cpus.is_empty()).then_some(cpus)
}

/// Returns no mask: the system has none.
#[cfg(not(target_os = "linux"))]
pub(crate) fn affinity() -> Option<Vec<usize>> {
    None
}

/// Returns the columns of the terminal of stderr; `None` if it is not a terminal.
pub(crate) fn terminal_columns() -> Option<usize> {
    // SAFETY: the struct has only integers, for which zero is valid.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: the request writes a struct of this type.
    let known = unsafe { libc::ioctl(2, libc::TIOCGWINSZ, &mut size) } == 0;
    (known && size.ws_col > 0).then_some(size.ws_col.into()).or(known.then_some(80))
}

/// Returns the file of the library that an address belongs to.
pub(crate) fn library_of(address: *const c_void) -> Option<PathBuf> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the call writes the one struct; a file name ends in a null byte and stays as long as
    // the library.
    unsafe {
        if libc::dladdr(address, info.as_mut_ptr()) == 0 || (*info.as_ptr()).dli_fname.is_null() {
            return None;
        }
        let name = CStr::from_ptr((*info.as_ptr()).dli_fname);
        Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
    }
}

/// Returns the address of a function of the C library, the math library or the compiler's runtime
/// library.
pub(crate) fn library_function(name: &CStr) -> Option<u64> {
    static MORE: std::sync::OnceLock<Vec<usize>> = std::sync::OnceLock::new();
    // The two are usually loaded already, but a linker may omit libraries that the binary does not
    // call.
    let more = MORE.get_or_init(|| {
        let open = |file: &CStr| {
            // SAFETY: opens a system library, whose initializers set up only itself. The handle
            // stays open.
            unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) as usize }
        };
        [c"libm.so.6", c"libgcc_s.so.1"].map(open).into_iter().filter(|h| *h != 0).collect()
    });
    let handles = std::iter::once(libc::RTLD_DEFAULT).chain(more.iter().map(|h| *h as *mut c_void));
    // SAFETY: the handles are the default one or open; the name ends in a null byte.
    handles.map(|h| unsafe { libc::dlsym(h, name.as_ptr()) } as u64).find(|&p| p != 0)
}

/// Puts a command into a process group of its own, which [`kill_group`] ends.
pub(crate) fn own_group(command: &mut Command) {
    command.process_group(0);
}

/// Ends a child that [`own_group`] was called for, with its child processes.
pub(crate) fn kill_group(child: &mut Child) {
    if let Ok(group) = i32::try_from(child.id()) {
        // SAFETY: sends a signal to the group of our child, which has not been waited for, so that
        // its id is not reused.
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
    let _ = child.kill();
}

/// Describes how a process ended.
pub(crate) fn exit_text(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (_, Some(signal)) => format!("signal {signal}"),
        _ => "no exit code".into(),
    }
}
