//! Memory limits, and host allocations that fail with an error instead of aborting. The input is a
//! size from a user, a file or a header; the output is memory, or `Error::OutOfMemory` that names
//! the limit.
//!
//! The system overcommits, so a process can be killed when it writes to memory that was allocated
//! successfully. Therefore a large allocation is first compared with what `RLIMIT_AS`, the memory
//! limit of each cgroup (v1 and v2) of the process, and the machine leave. Small allocations are
//! added up and checked together.

use crate::dtype::{self, Element};
use crate::error::{Error, Result};
use crate::os;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of allocations between two reads of the limits. Reading them takes about 50 µs, writing
/// 16 MiB about 5 ms.
pub(in crate::device) const RECHECK_BYTES: usize = 16 << 20;

/// Bytes that large allocations leave free: small allocations of the compiler cannot fail.
const RESERVE: u64 = 96 << 20;

/// Bytes available under a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Available {
    pub(crate) bytes: u64,
    /// Name and value of the limit, for error messages.
    pub(crate) limit: String,
}

/// Checks that an allocation is within every limit.
pub(crate) fn check(bytes: usize) -> Result<()> {
    static SINCE: AtomicUsize = AtomicUsize::new(0);
    let since = SINCE.fetch_add(bytes.min(RECHECK_BYTES), Ordering::Relaxed).saturating_add(bytes);
    if since < RECHECK_BYTES {
        return Ok(());
    }
    SINCE.store(0, Ordering::Relaxed);
    fits(bytes, available())
}

fn fits(bytes: usize, left: Option<Available>) -> Result<()> {
    match left {
        Some(left) if (bytes as u64).saturating_add(RESERVE) > left.bytes => {
            Err(refused(bytes, &format!("{}, {} bytes are available", left.limit, left.bytes)))
        }
        _ => Ok(()),
    }
}

/// Returns the error of an allocation that exceeds a limit.
fn refused(asked: usize, why: &str) -> Error {
    Error::OutOfMemory { device: format!("CPU ({why})"), asked, held: super::memory::held_bytes() }
}

/// Returns the error of an allocation that the system refused, with the limit if there is one.
pub(crate) fn out_of_memory(asked: usize) -> Error {
    match available() {
        Some(left) if asked as u64 > left.bytes => {
            refused(asked, &format!("{}, {} bytes are available", left.limit, left.bytes))
        }
        _ => Error::OutOfMemory { device: "CPU".into(), asked, held: super::memory::held_bytes() },
    }
}

/// Allocates an empty vector of a capacity.
pub(crate) fn vec<T>(len: usize) -> Result<Vec<T>> {
    let bytes = len.saturating_mul(size_of::<T>());
    check(bytes)?;
    let mut out = Vec::new();
    out.try_reserve_exact(len).map_err(|_| out_of_memory(bytes))?;
    Ok(out)
}

/// Allocates zeroed bytes.
pub(crate) fn zeroed(bytes: usize) -> Result<Vec<u8>> {
    let mut out = vec(bytes)?;
    out.resize(bytes, 0);
    Ok(out)
}

/// Copies a slice.
pub(crate) fn copied<T: Copy>(from: &[T]) -> Result<Vec<T>> {
    let mut out = vec(from.len())?;
    out.extend_from_slice(from);
    Ok(out)
}

/// Converts bytes to elements, as [`dtype::element::from_bytes`] does.
pub(crate) fn elements<T: Element>(bytes: &[u8]) -> Result<Vec<T>> {
    check(bytes.len())?;
    dtype::try_from_bytes(bytes).map_err(|_| out_of_memory(bytes.len()))
}

/// Heap bytes of an allocation: `malloc` adds 8 bytes, rounds up to a multiple of 16, and allocates
/// at least 32.
pub(crate) fn heap_bytes(bytes: usize) -> usize {
    if bytes == 0 { 0 } else { bytes.saturating_add(8 + 15).max(32) / 16 * 16 }
}

/// A growing byte buffer. Exceeding a memory limit is an error of the writer, from which
/// [`io_error`] recovers the `Error::OutOfMemory`.
#[derive(Default)]
pub(crate) struct LimitedBuffer(pub(crate) Vec<u8>);

impl Write for LimitedBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let needed = self.0.len().saturating_add(bytes.len());
        if needed > self.0.capacity() {
            // Old and new memory exist together while the bytes are copied.
            let capacity = needed.max(self.0.capacity().saturating_mul(2));
            check(capacity).map_err(std::io::Error::other)?;
            let more = capacity - self.0.len();
            self.0
                .try_reserve_exact(more)
                .map_err(|_| std::io::Error::other(out_of_memory(capacity)))?;
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Converts an error of reading or writing a file.
pub(crate) fn io_error(path: &Path, e: std::io::Error) -> Error {
    e.downcast::<Error>()
        .unwrap_or_else(|e| Error::Io { path: path.to_path_buf(), msg: e.to_string() })
}

/// Opens a regular file and returns its length. Opening a pipe could block forever, and reading
/// `/dev/zero` would not end.
pub(crate) fn open_file(path: &Path) -> Result<(File, u64)> {
    let io = |e: std::io::Error| io_error(path, e);
    // Checked before opening: opening a pipe waits for a writer.
    if !std::fs::metadata(path).map_err(io)?.is_file() {
        return Err(Error::Io { path: path.to_path_buf(), msg: "is not a regular file".into() });
    }
    let file = File::open(path).map_err(io)?;
    let len = file.metadata().map_err(io)?.len();
    Ok((file, len))
}

/// Reads a file.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>> {
    let io = |e: std::io::Error| io_error(path, e);
    let (file, len) = open_file(path)?;
    let mut out =
        vec(usize::try_from(len).map_err(|_| io(std::io::ErrorKind::FileTooLarge.into()))?)?;
    // Bytes that are appended meanwhile are not read.
    file.take(len).read_to_end(&mut out).map_err(io)?;
    Ok(out)
}

/// Returns the limit that leaves the fewest bytes.
pub(crate) fn available() -> Option<Available> {
    let cgroups = cgroups(&|path: &Path| std::fs::read_to_string(path).ok());
    address_space().into_iter().chain(cgroups).chain(machine()).min_by_key(|l| l.bytes)
}

/// Address space that `ulimit -v` leaves.
fn address_space() -> Option<Available> {
    let (all, used) = os::address_space()?;
    Some(Available { bytes: all.saturating_sub(used), limit: format!("RLIMIT_AS is {all} bytes") })
}

/// Returns the memory that the machine has available, with reclaimable memory and swap.
fn machine() -> Option<Available> {
    let memory = os::machine_memory()?;
    let limit = format!("the machine has {} bytes", memory.total);
    Some(Available { bytes: memory.available, limit })
}

/// Returns the bytes that the cgroups of the process leave, innermost first. `read` returns the
/// text of a file.
fn cgroups(read: &dyn Fn(&Path) -> Option<String>) -> Vec<Available> {
    let Some(list) = read(Path::new("/proc/self/cgroup")) else { return Vec::new() };
    let mut found = Vec::new();
    for line in list.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(kinds), Some(path)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let (root, names) = if kinds.is_empty() {
            ("/sys/fs/cgroup", ["memory.max", "memory.current", "inactive_file"])
        } else if kinds.split(',').any(|k| k == "memory") {
            (
                "/sys/fs/cgroup/memory",
                ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"],
            )
        } else {
            continue;
        };
        // In a container, the path may be the host's while the root is the container's.
        let full = PathBuf::from(root).join(path.trim_start_matches('/'));
        let groups = full.ancestors().take_while(|p| p.starts_with(root));
        found.extend(groups.filter_map(|group| of_group(group, names, read)));
    }
    found
}

/// Bytes that one cgroup leaves, if it has a limit.
fn of_group(
    group: &Path,
    [limit, usage, reclaimable]: [&str; 3],
    read: &dyn Fn(&Path) -> Option<String>,
) -> Option<Available> {
    let number = |name: &str| read(&group.join(name))?.trim().parse::<u64>().ok();
    // `max`, or on v1 a number near 2^63, means no limit.
    let all = number(limit).filter(|n| *n < 1 << 60)?;
    let used = number(usage)?;
    let stat = read(&group.join("memory.stat")).unwrap_or_default();
    let cache = stat
        .lines()
        .find_map(|l| l.strip_prefix(reclaimable)?.trim().parse::<u64>().ok())
        .unwrap_or(0);
    let bytes = all.saturating_sub(used.saturating_sub(cache));
    Some(Available { bytes, limit: format!("{} is {all} bytes", group.join(limit).display()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn found(files: &[(&str, &str)]) -> Vec<(u64, String)> {
        let files: HashMap<PathBuf, String> =
            files.iter().map(|(p, t)| (PathBuf::from(p), t.to_string())).collect();
        cgroups(&|p| files.get(p).cloned()).into_iter().map(|l| (l.bytes, l.limit)).collect()
    }

    #[test]
    fn limits_of_cgroups_are_read() {
        let v2 = found(&[
            ("/proc/self/cgroup", "0::/a/b\n"),
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/b/memory.current", "1000\n"),
            ("/sys/fs/cgroup/a/memory.max", "5000\n"),
            ("/sys/fs/cgroup/a/memory.current", "3000\n"),
            ("/sys/fs/cgroup/a/memory.stat", "anon 10\ninactive_file 500\nactive_file 7\n"),
        ]);
        assert_eq!(v2, [(2500, "/sys/fs/cgroup/a/memory.max is 5000 bytes".to_string())]);
        let v1 = found(&[
            ("/proc/self/cgroup", "5:cpu,cpuacct:/x\n3:memory:/x\n"),
            ("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "800\n"),
            ("/sys/fs/cgroup/memory/x/memory.usage_in_bytes", "900\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "900\n"),
        ]);
        assert_eq!(
            v1,
            [(0, "/sys/fs/cgroup/memory/x/memory.limit_in_bytes is 800 bytes".to_string())]
        );
        // In a container: the path is the host's, the root the container's.
        let inside = found(&[
            ("/proc/self/cgroup", "0::/host/path\n"),
            ("/sys/fs/cgroup/memory.max", "700"),
            ("/sys/fs/cgroup/memory.current", "100"),
        ]);
        assert_eq!(inside[0].0, 600);
        assert!(
            found(&[("/proc/self/cgroup", "nonsense\n0::\n")]).is_empty() && found(&[]).is_empty()
        );
    }

    #[test]
    fn an_error_names_the_limit() {
        let left =
            || Some(Available { bytes: 1 << 30, limit: "RLIMIT_AS is 2147483648 bytes".into() });
        fits(1 << 29, left()).unwrap();
        let e = fits(1 << 30, left()).unwrap_err().to_string();
        assert!(e.contains("RLIMIT_AS is 2147483648 bytes, 1073741824 bytes are available"), "{e}");
        assert!(fits(usize::MAX, left()).is_err());
        assert!(
            vec::<u64>(usize::MAX / 8).is_err()
                && vec::<u64>(usize::MAX).is_err()
                && zeroed(1 << 62).is_err()
        );
        assert_eq!([0, 1, 24, 25, 40, 41].map(heap_bytes), [0, 32, 32, 48, 48, 64]);
        let mut out = LimitedBuffer::default();
        out.write_all(&[1, 2]).and_then(|()| out.write_all(&[3])).unwrap();
        assert_eq!(out.0, [1, 2, 3]);
        assert_eq!(copied(&[1, 2, 3]).unwrap(), [1, 2, 3]);
        assert_eq!(elements::<i16>(&[1, 0, 2, 0]).unwrap(), [1, 2]);
        assert_eq!(elements::<bool>(&[0, 7]).unwrap(), [false, true]);
    }
}
