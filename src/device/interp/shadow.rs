//! The state of the memory checker for each element: its last accesses, by thread and epoch. An
//! epoch begins with each workgroup and after each barrier, so that two accesses of a workgroup are
//! ordered exactly if they are of one thread or of different epochs.

/// Epoch and thread of an access; epoch 0 means that there was none.
#[derive(Clone, Copy, Default)]
struct LastAccess {
    epoch: u64,
    thread: u32,
}

/// The thread number that stands for several readers.
const SEVERAL_READERS: u32 = u32::MAX;

/// The history of an element.
#[derive(Clone, Copy, Default)]
struct Element {
    written: LastAccess,
    read: LastAccess,
    /// True if an earlier workgroup than the recorded reader's has read it.
    read_by_earlier_workgroup: bool,
    value: u64,
}

/// The moment and the thread of an access.
#[derive(Clone, Copy)]
pub(super) struct AccessContext {
    /// The current epoch: barriers passed so far.
    pub epoch: u64,
    /// The epoch in which the workgroup began.
    pub begin: u64,
    /// The thread number in the workgroup.
    pub thread: u32,
}

impl AccessContext {
    /// Returns true if an access of this workgroup by another thread is not ordered before this
    /// one.
    fn unordered(self, t: LastAccess) -> bool {
        t.epoch == self.epoch && t.thread != self.thread
    }
    /// Returns true if the access was in another workgroup of this run: no barrier orders the two.
    fn in_other_workgroup(self, t: LastAccess) -> bool {
        t.epoch != 0 && t.epoch < self.begin
    }
}

/// The history of one buffer.
pub(super) struct Shadow {
    elements: Vec<Element>,
    /// True if the memory is shared by all workgroups; false if it is fresh in each.
    global: bool,
}

impl Shadow {
    pub(super) fn new(len: usize, global: bool) -> Shadow {
        Shadow { elements: vec![Element::default(); len], global }
    }

    /// Records a read, and returns the race that it causes, if any.
    pub(super) fn read(&mut self, at: usize, now: AccessContext) -> Option<&'static str> {
        let e = &mut self.elements[at];
        if now.unordered(e.written) || (self.global && now.in_other_workgroup(e.written)) {
            return Some("read after write");
        }
        e.read_by_earlier_workgroup |= now.in_other_workgroup(e.read);
        // A later epoch forgets the readers of an earlier one: a write now is ordered after those.
        let thread = if e.read.epoch == now.epoch && e.read.thread != now.thread {
            SEVERAL_READERS
        } else {
            now.thread
        };
        e.read = LastAccess { epoch: now.epoch, thread };
        None
    }

    /// Records a write, and returns the race that it causes, if any. Writes of one value to a
    /// global element do not race with each other.
    pub(super) fn write(
        &mut self,
        at: usize,
        value: u64,
        now: AccessContext,
    ) -> Option<&'static str> {
        let e = &mut self.elements[at];
        if now.unordered(e.read)
            || (self.global && (e.read_by_earlier_workgroup || now.in_other_workgroup(e.read)))
        {
            return Some("write after read");
        }
        let other = if self.global {
            // A barrier orders shared memory; whether it orders global memory depends on the
            // language, so it does not order this access.
            e.written.epoch != 0
                && (now.in_other_workgroup(e.written) || e.written.thread != now.thread)
                && e.value != value
        } else {
            now.unordered(e.written)
        };
        if other {
            return Some("write after write");
        }
        e.written = LastAccess { epoch: now.epoch, thread: now.thread };
        e.value = value;
        None
    }
}

/// Shared memory of a workgroup: lanes, and the epoch in which each was written.
pub(super) struct SharedMemory {
    pub(super) lanes: Vec<u64>,
    pub(super) written: Vec<u64>,
}

impl SharedMemory {
    pub(super) fn new(len: usize) -> SharedMemory {
        SharedMemory { lanes: vec![0; len], written: vec![0; len] }
    }
}
