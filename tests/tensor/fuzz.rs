//! Every `try_` method with invalid arguments: negative, zero, huge, NaN. Each call is an `Ok` or
//! an `Err`, never a panic, and is fast. `PICO_FUZZ_CALLS` sets the number of calls of each method,
//! `PICO_FUZZ_SEED` the first seed.

use crate::common::{SPECIAL_FLOATS, env_number};
use crate::fuzz_calls::CALLS;
use picograd::nn::data::Random;
use picograd::tensor::{BinaryCrossEntropy, Conv, CrossEntropy, Pool, Reduction};
use picograd::{DType, Tensor};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A generator of arguments.
pub(crate) struct Draw(Random);

pub(crate) const HUGE: [usize; 12] = [
    i32::MAX as usize,
    1 << 31,
    u32::MAX as usize,
    1 << 32,
    1 << 47,
    1 << 61,
    1 << 62,
    isize::MAX as usize - 1,
    isize::MAX as usize,
    1 << 63,
    usize::MAX - 1,
    usize::MAX,
];
pub(crate) const REDUCTIONS: [Reduction; 4] =
    [Reduction::Mean, Reduction::Sum, Reduction::None, Reduction::BatchMean];

impl Draw {
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0.below(n)
    }
    pub(crate) fn coin(&mut self) -> bool {
        self.below(2) == 0
    }
    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
    /// A size.
    pub(crate) fn n(&mut self) -> usize {
        if self.below(3) == 0 { self.pick(&HUGE) } else { self.below(6) }
    }
    /// A signed size or an axis.
    pub(crate) fn s(&mut self) -> isize {
        match self.below(8) {
            0 => self.pick(&HUGE) as isize,
            1 => (self.pick(&HUGE) as isize).wrapping_neg(),
            2 => self.pick(&[isize::MIN, isize::MIN + 1, -5, -4]),
            _ => self.below(7) as isize - 3,
        }
    }
    pub(crate) fn f(&mut self) -> f64 {
        self.pick(&SPECIAL_FLOATS)
    }
    pub(crate) fn ns(&mut self) -> Vec<usize> {
        (0..self.below(5)).map(|_| self.n()).collect()
    }
    pub(crate) fn ss(&mut self) -> Vec<isize> {
        (0..self.below(5)).map(|_| self.s()).collect()
    }
    pub(crate) fn pairs(&mut self) -> Vec<(usize, usize)> {
        (0..self.below(5)).map(|_| (self.n(), self.n())).collect()
    }
    /// One or two numbers for each spatial axis.
    pub(crate) fn spatial(&mut self) -> Vec<usize> {
        (0..1 + self.below(3)).map(|_| self.n()).collect()
    }
    pub(crate) fn shape(&mut self) -> Vec<usize> {
        (0..self.below(5)).map(|_| self.below(5)).collect()
    }
    pub(crate) fn dtype(&mut self) -> DType {
        let floats = [DType::F32, DType::F32, DType::F64, DType::F16, DType::BF16];
        let others = [DType::I32, DType::I64, DType::U8, DType::BOOL, DType::U64, DType::I8];
        if self.below(3) > 0 { self.pick(&floats) } else { self.pick(&others) }
    }
    /// A tensor of a few elements.
    pub(crate) fn small(&mut self) -> Tensor {
        let (shape, dtype) = (self.shape(), self.dtype());
        Tensor::ones(shape).cast(dtype)
    }
    /// A tensor with up to the largest number of elements.
    pub(crate) fn t(&mut self) -> Tensor {
        if self.below(6) > 0 {
            return self.small();
        }
        let shape = self.pick(&[
            vec![1usize << 31],
            vec![1usize << 62],
            vec![1 << 20, 1 << 20],
            vec![2, 3, 1 << 31, 1 << 20],
            vec![1, 1, 1 << 30, 1 << 30],
            vec![0, 1usize << 62],
        ]);
        Tensor::ones(shape).cast(self.dtype())
    }
    /// Indices, in or out of range.
    pub(crate) fn index(&mut self) -> Tensor {
        let shape = self.shape();
        let value = self.s() as i64;
        Tensor::full(shape, value).cast(if self.coin() { DType::I64 } else { DType::I32 })
    }
    pub(crate) fn pool(&mut self) -> Pool {
        let mut pool = Pool::new();
        if self.coin() {
            pool = pool.stride(self.spatial());
        }
        if self.coin() {
            pool = pool.padding(&self.pairs()[..]);
        }
        if self.coin() {
            pool = pool.dilation(self.spatial());
        }
        if self.coin() { pool.ceil_mode() } else { pool }
    }
    pub(crate) fn conv(&mut self) -> Conv {
        let mut conv = Conv::new();
        if self.coin() {
            conv = conv.stride(self.spatial());
        }
        if self.coin() {
            conv = conv.padding(&self.pairs()[..]);
        }
        if self.coin() {
            conv = conv.dilation(self.spatial());
        }
        if self.coin() {
            conv = conv.groups(self.n());
        }
        if self.coin() { conv.output_padding(self.spatial()) } else { conv }
    }
    /// A tensor of rank 4, as pooling and convolutions take it.
    pub(crate) fn image(&mut self) -> Tensor {
        if self.below(4) == 0 {
            return self.t();
        }
        let shape: Vec<usize> = (0..3 + self.below(2)).map(|_| 1 + self.below(5)).collect();
        Tensor::ones(shape)
    }
    /// An image and a weight, which may fit.
    pub(crate) fn filtered(&mut self) -> (Tensor, Tensor) {
        let x = self.image();
        if self.below(3) == 0 || x.ndim() < 3 {
            return (x, self.image());
        }
        let channels = x.shape()[1];
        let sizes = [channels, channels]
            .into_iter()
            .chain(x.shape()[2..].iter().map(|_| 1 + self.below(3)))
            .collect::<Vec<_>>();
        (x, Tensor::ones(sizes))
    }
    /// A tensor of square matrices, as linear systems take it.
    pub(crate) fn square(&mut self) -> Tensor {
        if self.below(4) == 0 {
            return self.t();
        }
        let n = self.pick(&[0, 1, 2, 3, 3, 1 << 31]);
        let lead = self.below(2);
        let shape: Vec<usize> =
            (0..lead).map(|_| self.below(if n > 3 { 2 } else { 3 })).chain([n, n]).collect();
        Tensor::ones(shape).cast(self.dtype())
    }
    pub(crate) fn classes(&mut self) -> CrossEntropy {
        let how = CrossEntropy::new().reduction(self.pick(&REDUCTIONS)).label_smoothing(self.f());
        let how = if self.coin() { how.ignore_index(self.s() as i64) } else { how };
        if self.below(3) == 0 { how.weight(&self.t()) } else { how }
    }
    pub(crate) fn binary(&mut self) -> BinaryCrossEntropy {
        let how = BinaryCrossEntropy::new().reduction(self.pick(&REDUCTIONS));
        if self.below(3) == 0 { how.weight(&self.t()).pos_weight(&self.t()) } else { how }
    }
}

/// The time limit of a call, which only builds a graph.
const MAX_TIME: Duration = Duration::from_secs(10);

/// The running call and its start.
static NOW: Mutex<Option<(&str, u64, Instant)>> = Mutex::new(None);

/// Names a call that exceeds the limit and aborts the process.
fn watch() {
    std::thread::spawn(|| {
        loop {
            std::thread::sleep(Duration::from_millis(200));
            if let Some((name, n, since)) = *NOW.lock().unwrap()
                && since.elapsed() > 6 * MAX_TIME
            {
                eprintln!("{name}, call {n} does not return");
                std::process::exit(1);
            }
        }
    });
}

#[test]
fn no_call_panics() {
    let (calls, seed) = (env_number("PICO_FUZZ_CALLS", 150), env_number("PICO_FUZZ_SEED", 14));
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    watch();
    let mut wrong = Vec::new();
    let (mut good, mut bad) = (0u64, 0u64);
    let mut slowest = (Duration::ZERO, "");
    for (number, (name, call)) in CALLS.iter().enumerate() {
        let begin = Instant::now();
        for n in 0..calls {
            let of_call = number as u64 * 1_000_003 + n;
            let start = Instant::now();
            *NOW.lock().unwrap() = Some((name, n, start));
            let done =
                catch_unwind(AssertUnwindSafe(|| call(&mut Draw(Random::new(seed, of_call)))));
            let took = start.elapsed();
            match done {
                Ok(Ok(())) => good += 1,
                Ok(Err(_)) => bad += 1,
                Err(panic) => {
                    let text = panic.downcast_ref::<String>().cloned();
                    let text = text
                        .or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()))
                        .unwrap_or_default();
                    wrong.push(format!("{name}, call {n}: {text}"));
                }
            }
            if took > MAX_TIME {
                wrong.push(format!("{name}, call {n}: took {took:?}"));
            }
            // Only the first failure of a method is reported.
            if wrong.last().is_some_and(|w| w.starts_with(&format!("{name},"))) {
                break;
            }
        }
        slowest = slowest.max((begin.elapsed(), name));
    }
    *NOW.lock().unwrap() = None;
    std::panic::set_hook(hook);
    eprintln!(
        "{} methods, {good} calls gave a tensor and {bad} an error; the slowest method: \
         {slowest:?}",
        CALLS.len()
    );
    assert!(wrong.is_empty(), "{} methods panic or hang:\n{}", wrong.len(), wrong.join("\n"));
    assert!(good * 10 > good + bad, "only {good} of {} calls succeeded", good + bad);
}

/// Sizes for which a loop over all pieces or elements would not end.
#[test]
fn huge_sizes_are_refused_at_once() {
    let start = Instant::now();
    for size in [1usize << 31, 1 << 62] {
        let x = Tensor::ones([size]);
        for done in [x.try_split(1usize, 0), x.try_chunk(size / 2, 0), x.try_chunk(usize::MAX, 0)] {
            let e = done.map(drop).unwrap_err().to_string();
            assert!(e.contains("bytes"), "{e}");
        }
        assert!(x.try_split([size, usize::MAX >> 1, usize::MAX >> 1], 0).is_err());
        assert_eq!(x.try_split(size - 1, 0).unwrap().len(), 2);
        assert!(x.cast(DType::I32).try_bincount(None, usize::MAX).is_err());
    }
    assert!(Tensor::ones([1usize << 62]).cast(DType::I32).try_bincount(None, 0).is_err());
    // An indexed read is planned as a sum over the axis for each index.
    for size in [1usize << 33, 1 << 62] {
        let x = Tensor::ones([size]);
        assert!(x.try_unique(None).is_err());
        assert!(
            x.try_gather(0, &x.cast(DType::I64))
                .and_then(|y| y.try_sum(0)?.to_vec::<f32>())
                .is_err()
        );
    }
    let few = Tensor::ones([1usize << 62]).try_gather(0, &Tensor::new([0i64, 5, -1, 9]));
    assert!(few.and_then(|x| x.to_vec::<f32>()).is_err());
    assert!(start.elapsed() < MAX_TIME, "{:?}", start.elapsed());
}

/// Every `try_` method is in the list of calls.
#[test]
fn every_try_method_is_called() {
    let mut names: Vec<String> = Vec::new();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tensor");
    let folders = ["", "/grad", "/ops"].map(|folder| format!("{root}{folder}"));
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    for file in entries.map(|f| f.unwrap().path()) {
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        for line in text.lines().map(str::trim).filter(|l| l.starts_with("pub fn ")) {
            let word = |w: &str| w.split(['(', '<']).next().unwrap_or_default().to_string();
            names.extend(line.split(' ').map(word).filter(|w| w.starts_with("try_")));
        }
    }
    assert!(names.len() > 150, "{} names were found", names.len());
    let missing: Vec<&String> =
        names.iter().filter(|n| CALLS.iter().all(|c| c.0 != n.as_str())).collect();
    assert!(missing.is_empty(), "not in the list of fuzz_calls.rs: {missing:?}");
}
