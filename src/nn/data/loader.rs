//! Batches of a dataset, prefetched by worker threads.
//!
//! Worker `k mod workers` makes batch `k`, and each worker has a bounded queue. Therefore batches
//! arrive in order, and their number in memory is bounded.

use super::{Dataset, Random};
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Iterates over a dataset in batches.
#[derive(Clone)]
pub struct DataLoader {
    dataset: Arc<dyn Dataset>,
    batch: usize,
    seed: Option<u64>,
    drop_last: bool,
    workers: usize,
    prefetch: usize,
    device: Option<String>,
}

/// Generates builder methods; the literals are an argument and the resulting number of batches of
/// the example.
macro_rules! settings {
    ($(
        $(#[$doc:meta])*
        $name:ident($arg:ident: $ty:ty) $field:ident = $value:expr,
            $example:literal => $count:literal;
    )*) => { $(
        $(#[$doc])*
        ///
        /// ```
        /// use picograd::nn::data::{Array, ArrayDataset, DataLoader};
        /// let data = ArrayDataset::new(vec![Array::new(&[0i32, 1, 2, 3, 4], &[5])?])?;
        /// let loader = DataLoader::new(data, 2)?;
        #[doc = concat!("let loader = loader.", stringify!($name), "(", $example, ");")]
        #[doc = concat!("assert_eq!(loader.epoch(0).count(), ", $count, ");")]
        /// # Ok::<(), picograd::Error>(())
        /// ```
        pub fn $name(mut self, $arg: $ty) -> DataLoader {
            self.$field = $value;
            self
        }
    )* };
}

impl DataLoader {
    /// Creates a loader of `batch` samples per batch, in order, with one worker thread. The last
    /// batch may be smaller.
    ///
    /// ```
    /// use picograd::nn::data::{Array, ArrayDataset, DataLoader};
    /// let data = ArrayDataset::new(vec![Array::new(&[0i32, 1, 2, 3, 4], &[5])?])?;
    /// let loader = DataLoader::new(data, 2)?.shuffle(42);
    /// for epoch in 0..2 {
    ///     for batch in loader.epoch(epoch) {
    ///         let x = &batch?[0]; // one tensor per array of a sample
    ///         assert!(x.shape() == [2] || x.shape() == [1]);
    ///     }
    /// }
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn new(dataset: impl Dataset + 'static, batch: usize) -> Result<DataLoader> {
        if batch == 0 {
            return Err(Error::Data("expected a batch size of at least 1, got 0".into()));
        }
        let dataset = Arc::new(dataset);
        Ok(DataLoader {
            dataset,
            batch,
            seed: None,
            drop_last: false,
            workers: 1,
            prefetch: 2,
            device: None,
        })
    }

    settings! {
        /// Shuffles the samples. The order depends only on this seed and the epoch.
        shuffle(seed: u64) seed = Some(seed), "42" => "3";
        /// Drops the last batch if it is smaller.
        drop_last(yes: bool) drop_last = yes, "true" => "2";
        /// Sets the number of worker threads. With 0, batches are made when they are read.
        workers(n: usize) workers = n, "0" => "3";
        /// Sets the number of batches that each worker prefetches, at least one.
        prefetch(n: usize) prefetch = n.max(1), "4" => "3";
    }

    /// Copies the batches to a device other than the default.
    ///
    /// ```
    /// use picograd::nn::data::{Array, ArrayDataset, DataLoader};
    /// let data = ArrayDataset::new(vec![Array::new(&[0i32, 1, 2, 3, 4], &[5])?])?;
    /// let batch = DataLoader::new(data, 2)?.device("interp").epoch(0).next().unwrap()?;
    /// assert_eq!(batch[0].device().as_str(), "INTERP");
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn device(mut self, name: &str) -> DataLoader {
        self.device = Some(name.to_string());
        self
    }

    /// Returns the number of batches per epoch.
    ///
    /// ```
    /// use picograd::nn::data::{Array, ArrayDataset, DataLoader};
    /// let data = ArrayDataset::new(vec![Array::new(&[0i32, 1, 2, 3, 4], &[5])?])?;
    /// assert_eq!(DataLoader::new(data, 5)?.len(), 1);
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn len(&self) -> usize {
        let n = self.dataset.len();
        if self.drop_last { n / self.batch } else { n.div_ceil(self.batch) }
    }

    /// Returns true if an epoch has no batches.
    ///
    /// ```
    /// use picograd::nn::data::{Array, ArrayDataset, DataLoader};
    /// let data = ArrayDataset::new(vec![Array::new(&[0i32, 1, 2, 3, 4], &[5])?])?;
    /// assert!(!DataLoader::new(data, 5)?.is_empty());
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Iterates over the batches of an epoch; each is a list of stacked tensors. An error ends the
    /// iterator. Dropping the iterator ends its threads.
    ///
    /// ```
    /// use picograd::nn::data::{Array, ArrayDataset, DataLoader};
    /// let data = ArrayDataset::new(vec![Array::new(&[0i32, 1, 2, 3, 4], &[5])?])?;
    /// for batch in DataLoader::new(data, 5)?.epoch(0) {
    ///     assert_eq!(batch?[0].to_vec::<i32>()?, [0, 1, 2, 3, 4]);
    /// }
    /// # Ok::<(), picograd::Error>(())
    /// ```
    pub fn epoch(&self, epoch: u64) -> Batches {
        let n = self.dataset.len();
        let order = match self.seed {
            Some(seed) => Random::new(seed, epoch).permutation(n),
            None => (0..n).collect(),
        };
        let work = Arc::new(Work { loader: self.clone(), order });
        let count = self.len();
        let mut queues = Vec::new();
        let mut threads = Vec::new();
        for w in 0..self.workers.min(count) {
            let (send, receive) = sync_channel(self.prefetch);
            let (mine, step) = (work.clone(), self.workers.min(count));
            let run = move || mine.run((w..count).step_by(step), &send);
            match std::thread::Builder::new().name(format!("data-{w}")).spawn(run) {
                Ok(thread) => threads.push(thread),
                // Without threads, the consumer makes the batches, which is slower.
                Err(_) if w == 0 => break,
                Err(e) => {
                    return Batches::failed(Error::Data(format!(
                        "a thread cannot be started: {e}"
                    )));
                }
            }
            queues.push(receive);
        }
        Batches { work: Some(work), queues, threads, left: 0..count, failed: None }
    }
}

/// The work of one epoch.
struct Work {
    loader: DataLoader,
    order: Vec<usize>,
}

impl Work {
    /// Makes batches in order until the consumer drops the queue.
    fn run(&self, batches: impl Iterator<Item = usize>, send: &SyncSender<Result<Vec<Tensor>>>) {
        for k in batches {
            let batch = self.make(k);
            let failed = batch.is_err();
            if send.send(batch).is_err() || failed {
                return;
            }
        }
    }

    /// Makes one batch. A panic of the dataset becomes an error.
    fn make(&self, k: usize) -> Result<Vec<Tensor>> {
        let size = self.loader.batch;
        let indices = &self.order[k * size..((k + 1) * size).min(self.order.len())];
        // A panic leaves no shared state half changed: only the batch is lost.
        let made = catch_unwind(AssertUnwindSafe(|| {
            let on_device = |t: Tensor| match &self.loader.device {
                Some(name) => t.try_to(name),
                None => Ok(t),
            };
            self.loader.dataset.batch(indices)?.iter().map(|a| on_device(a.tensor()?)).collect()
        }));
        made.unwrap_or_else(|panic| {
            let text = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or(panic.downcast_ref::<&str>().copied());
            Err(Error::Data(format!("batch {k} panicked: {}", text.unwrap_or("no message"))))
        })
    }
}

/// Iterator over the batches of one epoch, from [`DataLoader::epoch`].
pub struct Batches {
    /// `None` after an error.
    work: Option<Arc<Work>>,
    queues: Vec<Receiver<Result<Vec<Tensor>>>>,
    threads: Vec<JoinHandle<()>>,
    left: Range<usize>,
    failed: Option<Error>,
}

impl Batches {
    fn failed(e: Error) -> Batches {
        Batches { work: None, queues: Vec::new(), threads: Vec::new(), left: 0..0, failed: Some(e) }
    }

    /// Ends the threads: a worker that is sending a batch finds its queue closed.
    fn stop(&mut self) {
        self.queues.clear();
        self.threads.drain(..).for_each(|t| drop(t.join()));
        self.work = None;
        self.left = 0..0;
    }
}

impl Iterator for Batches {
    type Item = Result<Vec<Tensor>>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(e) = self.failed.take() {
            return Some(Err(e));
        }
        let work = self.work.as_ref()?;
        let Some(k) = self.left.next() else {
            self.stop();
            return None;
        };
        let batch = match self.queues.len() {
            0 => work.make(k),
            n => self.queues[k % n]
                .recv()
                .unwrap_or_else(|_| Err(Error::Data(format!("the thread of batch {k} has ended")))),
        };
        if batch.is_err() {
            self.stop();
        }
        Some(batch)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.left.len() + self.failed.is_some() as usize;
        // An error ends the iterator early.
        (left.min(1), Some(left))
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        self.stop();
    }
}
