//! The default number of threads. Input: the affinity mask of the process, the topology of its
//! CPUs, and the CPU quota of its cgroups. Output: a number of threads, and how it came about.
//!
//! Hyperthreads do not count: two of one core share its vector units, and a kernel that keeps them
//! busy is no faster on both. A quota below the number of cores is the number of threads, because
//! the system stops all threads of the process when it is used up.

use crate::os;
use std::fmt;
use std::path::{Path, PathBuf};

/// The CPUs of a process.
#[derive(Clone, Debug, PartialEq)]
pub struct Cores {
    /// Logical CPUs in the affinity mask.
    logical: usize,
    /// Physical cores among them; none if the system does not tell.
    physical: Option<usize>,
    /// The lowest quota of a cgroup, in CPUs, and the file that it is from.
    quota: Option<(f64, PathBuf)>,
}

/// Reads the text of a file.
type Read<'a> = &'a dyn Fn(&Path) -> Option<String>;

impl Cores {
    /// Returns those of this process.
    pub fn detect() -> Cores {
        let read = |path: &Path| std::fs::read_to_string(path).ok();
        match os::affinity() {
            Some(cpus) => Cores::of(&cpus, &read),
            None => {
                let logical = std::thread::available_parallelism().map_or(1, |n| n.get());
                Cores { logical, physical: None, quota: quota(&read) }
            }
        }
    }

    /// Returns those of a process that may run on these logical CPUs.
    fn of(cpus: &[usize], read: Read) -> Cores {
        Cores { logical: cpus.len(), physical: physical(cpus, read), quota: quota(read) }
    }

    /// Returns the number of threads that kernels run on by default.
    pub fn threads(&self) -> usize {
        let cores = self.physical.unwrap_or(self.logical);
        let most = self.quota.as_ref().map_or(usize::MAX, |(cpus, _)| *cpus as usize);
        cores.min(most).max(1)
    }
}

/// Prints `4 logical CPUs in the affinity mask, 2 physical cores, no cgroup limit`.
impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} logical CPUs in the affinity mask, ", self.logical)?;
        match self.physical {
            Some(n) => write!(f, "{n} physical cores, ")?,
            None => f.write_str("unknown physical cores, ")?,
        }
        match &self.quota {
            Some((cpus, file)) => write!(f, "{cpus} CPUs by {}", file.display()),
            None => f.write_str("no cgroup limit"),
        }
    }
}

/// Returns the number of cores that logical CPUs belong to, if the topology of all is known.
fn physical(cpus: &[usize], read: Read) -> Option<usize> {
    let mut cores = Vec::with_capacity(cpus.len());
    for cpu in cpus {
        let topology = PathBuf::from(format!("/sys/devices/system/cpu/cpu{cpu}/topology"));
        let siblings = read(&topology.join("thread_siblings_list"))?;
        cores.push(first_cpu(&siblings)?);
    }
    cores.sort_unstable();
    cores.dedup();
    Some(cores.len())
}

/// Returns the first CPU of a list such as `0,4`, `0-1` or `3`: it identifies the core.
fn first_cpu(list: &str) -> Option<usize> {
    list.trim().split(['-', ',']).next()?.parse().ok()
}

/// Returns the lowest CPU quota of the cgroups of the process.
fn quota(read: Read) -> Option<(f64, PathBuf)> {
    let list = read(Path::new("/proc/self/cgroup"))?;
    let mut lowest: Option<(f64, PathBuf)> = None;
    for line in list.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(kinds), Some(path)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let roots: &[&str] = if kinds.is_empty() {
            &["/sys/fs/cgroup"]
        } else if kinds.split(',').any(|k| k == "cpu") {
            &["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"]
        } else {
            continue;
        };
        for root in roots {
            // In a container, the path may be the host's while the root is the container's.
            let full = PathBuf::from(root).join(path.trim_start_matches('/'));
            for group in full.ancestors().take_while(|p| p.starts_with(root)) {
                let found =
                    if kinds.is_empty() { quota_v2(group, read) } else { quota_v1(group, read) };
                if let Some((cpus, file)) = found
                    && lowest.as_ref().is_none_or(|(least, _)| cpus < *least)
                {
                    lowest = Some((cpus, file));
                }
            }
        }
    }
    lowest
}

/// Returns the quota of a group of cgroup v2: `cpu.max` is `max 100000` or `150000 100000`.
fn quota_v2(group: &Path, read: Read) -> Option<(f64, PathBuf)> {
    let file = group.join("cpu.max");
    let text = read(&file)?;
    let mut fields = text.split_whitespace();
    let (quota, period) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some((cpus(quota, period)?, file))
}

/// Returns the quota of a group of cgroup v1, where −1 stands for no quota.
fn quota_v1(group: &Path, read: Read) -> Option<(f64, PathBuf)> {
    let file = group.join("cpu.cfs_quota_us");
    let number = |path: &Path| read(path)?.trim().parse::<f64>().ok();
    let (quota, period) = (number(&file)?, number(&group.join("cpu.cfs_period_us"))?);
    Some((cpus(quota, period)?, file))
}

fn cpus(quota: f64, period: f64) -> Option<f64> {
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn cores(cpus: &[usize], files: &[(&str, &str)]) -> Cores {
        let files: HashMap<PathBuf, String> =
            files.iter().map(|(p, t)| (PathBuf::from(p), t.to_string())).collect();
        Cores::of(cpus, &|p| files.get(p).cloned())
    }

    fn siblings(lists: &[&str]) -> Vec<(String, String)> {
        let file = |cpu| format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        lists.iter().enumerate().map(|(cpu, list)| (file(cpu), format!("{list}\n"))).collect()
    }

    #[test]
    fn hyperthreads_of_one_core_count_once() {
        let files = siblings(&["0,2", "1,3", "0,2", "1,3"]);
        let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (&**p, &**t)).collect();
        let all = cores(&[0, 1, 2, 3], &files);
        assert_eq!(all.threads(), 2);
        let text = "4 logical CPUs in the affinity mask, 2 physical cores, no cgroup limit";
        assert_eq!(all.to_string(), text);
        // An affinity mask of two hyperthreads of one core.
        assert_eq!(cores(&[0, 2], &files).threads(), 1);
        assert_eq!(cores(&[0, 1], &files).threads(), 2);
        // Without a topology, logical CPUs count.
        let unknown = cores(&[0, 1, 7], &files);
        assert_eq!((unknown.threads(), unknown.physical), (3, None));
        assert!(unknown.to_string().contains("unknown physical cores"));
    }

    #[test]
    fn a_cgroup_quota_is_a_limit() {
        let v2 = |max: &str, parent: &str| {
            let files = [
                ("/proc/self/cgroup", "0::/a/b\n"),
                ("/sys/fs/cgroup/a/b/cpu.max", max),
                ("/sys/fs/cgroup/a/cpu.max", parent),
            ];
            cores(&[0, 1, 2, 3, 4, 5, 6, 7], &files)
        };
        assert_eq!(v2("max 100000\n", "max 100000\n").threads(), 8);
        assert_eq!(v2("max 100000\n", "350000 100000\n").threads(), 3);
        assert_eq!(v2("50000 100000\n", "350000 100000\n").threads(), 1);
        assert!(
            v2("150000 100000", "max 1")
                .to_string()
                .ends_with("1.5 CPUs by /sys/fs/cgroup/a/b/cpu.max")
        );
        for text in ["", "max", "100000", "x 100000", "100000 0", "-1 100000"] {
            assert_eq!(v2(text, "").threads(), 8, "{text}");
        }
        let v1 = |quota: &str| {
            let files = [
                ("/proc/self/cgroup", "4:memory:/x\n3:cpu,cpuacct:/x\n"),
                ("/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", quota),
                ("/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n"),
            ];
            cores(&[0, 1, 2, 3], &files)
        };
        assert_eq!(v1("-1\n").threads(), 4);
        assert_eq!(v1("200000\n").threads(), 2);
    }

    #[test]
    fn lists_of_siblings_are_parsed() {
        assert_eq!(
            ["0,4\n", "2-3", "7\n", "0-1,8-9"].map(first_cpu),
            [Some(0), Some(2), Some(7), Some(0)]
        );
        assert_eq!(["", "a", ",1"].map(first_cpu), [None, None, None]);
    }

    #[test]
    fn this_process_has_cores() {
        let found = Cores::detect();
        assert!(found.threads() >= 1 && found.logical >= found.physical.unwrap_or(1), "{found}");
    }
}
