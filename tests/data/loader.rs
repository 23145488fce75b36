//! Datasets and loaders: order, shuffles, errors and panics of workers, and the end of threads.

use picograd::nn::data::{Array, ArrayDataset, DataLoader, Dataset};
use picograd::{DType, Error, Result, Tensor};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Samples `i` and `[10 i, 10 i + 1]`.
fn numbers(n: i32) -> ArrayDataset {
    let pairs: Vec<f32> = (0..n).flat_map(|i| [10.0 * i as f32, 10.0 * i as f32 + 1.0]).collect();
    let first = Array::new(&(0..n).collect::<Vec<i32>>(), &[n as usize]).unwrap();
    ArrayDataset::new(vec![first, Array::new(&pairs, &[n as usize, 2]).unwrap()]).unwrap()
}

/// The first array of every batch of an epoch. Checks the second against it.
fn epoch(loader: &DataLoader, epoch: u64) -> Vec<Vec<i32>> {
    let check = |batch: Result<Vec<Tensor>>| {
        let batch = batch.unwrap();
        let first = batch[0].to_vec::<i32>().unwrap();
        assert_eq!(batch[1].shape(), [first.len(), 2]);
        let second: Vec<f32> =
            first.iter().flat_map(|i| [10.0 * *i as f32, 10.0 * *i as f32 + 1.0]).collect();
        assert_eq!(batch[1].to_vec::<f32>().unwrap(), second);
        first
    };
    loader.epoch(epoch).map(check).collect()
}

#[test]
fn batches_are_ordered_for_any_number_of_workers() {
    for workers in [0, 1, 2, 3, 50] {
        let loader = DataLoader::new(numbers(10), 3).unwrap().workers(workers).prefetch(1);
        assert_eq!(loader.len(), 4);
        assert_eq!(epoch(&loader, 0), [vec![0, 1, 2], vec![3, 4, 5], vec![6, 7, 8], vec![9]]);
        let loader = loader.drop_last(true);
        assert_eq!((loader.len(), epoch(&loader, 1).len()), (3, 3));
    }
    let none = DataLoader::new(numbers(2), 3).unwrap().drop_last(true);
    assert!(none.is_empty() && none.epoch(0).next().is_none());
    let empty = ArrayDataset::new(vec![Array::new::<f32>(&[], &[0, 2]).unwrap()]).unwrap();
    assert_eq!(DataLoader::new(empty, 3).unwrap().epoch(0).count(), 0);
    assert!(
        DataLoader::new(numbers(2), 0)
            .is_err_and(|e| e.to_string().contains("batch size of at least 1, got 0"))
    );
}

#[test]
fn shuffle_depends_on_seed_and_epoch() {
    let loader =
        |seed, workers| DataLoader::new(numbers(100), 7).unwrap().shuffle(seed).workers(workers);
    let flat = |l: &DataLoader, e| epoch(l, e).concat();
    let first = flat(&loader(1, 2), 0);
    assert_eq!(first, flat(&loader(1, 0), 0));
    assert_ne!(first, flat(&loader(1, 2), 1));
    assert_ne!(first, flat(&loader(2, 2), 0));
    let mut sorted = first;
    sorted.sort();
    assert_eq!(sorted, (0..100).collect::<Vec<_>>());
    // Concurrent epochs of one loader are independent.
    let l = loader(3, 2);
    let both: Vec<_> = l
        .epoch(0)
        .zip(l.epoch(0))
        .map(|(a, b)| (a.unwrap()[0].to_bytes(), b.unwrap()[0].to_bytes()))
        .collect();
    assert!(both.len() == 15 && both.iter().all(|(a, b)| a == b));
}

/// A dataset that fails at one sample and counts reads.
struct Fragile {
    at: usize,
    panics: bool,
    asked: Arc<AtomicUsize>,
}

impl Dataset for Fragile {
    fn len(&self) -> usize {
        1000
    }
    fn get(&self, i: usize) -> Result<Vec<Array>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if i == self.at && self.panics {
            panic!("sample {i} panics");
        }
        if i == self.at {
            return Err(Error::Data(format!("sample {i} is broken")));
        }
        Ok(vec![Array::new(&[i as i32], &[1])?])
    }
}

#[test]
fn worker_errors_reach_the_consumer() {
    for workers in [0, 1, 3] {
        for (panics, why) in
            [(false, "sample 55 is broken"), (true, "batch 5 panicked: sample 55 panics")]
        {
            let data = Fragile { at: 55, panics, asked: Arc::default() };
            let mut batches = DataLoader::new(data, 10).unwrap().workers(workers).epoch(0);
            for k in 0..5 {
                assert_eq!(batches.next().unwrap().unwrap()[0].shape(), [10, 1], "batch {k}");
            }
            let e = batches.next().unwrap().unwrap_err().to_string();
            assert!(e.contains(why), "{e}");
            assert!(batches.next().is_none(), "an error ends the epoch");
        }
    }
}

#[test]
fn workers_stop_with_their_consumer() {
    let asked = Arc::new(AtomicUsize::new(0));
    let held = Arc::new(());
    struct Held(Fragile, #[allow(dead_code)] Arc<()>);
    impl Dataset for Held {
        fn len(&self) -> usize {
            self.0.len()
        }
        fn get(&self, i: usize) -> Result<Vec<Array>> {
            self.0.get(i)
        }
    }
    let data = Held(Fragile { at: usize::MAX, panics: false, asked: asked.clone() }, held.clone());
    let loader = DataLoader::new(data, 10).unwrap().workers(2).prefetch(3);
    let mut batches = loader.epoch(0);
    batches.next().unwrap().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let ahead = asked.load(Ordering::SeqCst);
    // One batch was read; each thread has at most three in its queue and is producing one.
    assert!(ahead <= 10 * (1 + 2 * 4), "{ahead} samples were made");
    drop(loader);
    drop(batches);
    // The threads held the dataset until they ended.
    assert_eq!(Arc::strong_count(&held), 1);
    assert!(asked.load(Ordering::SeqCst) <= ahead + 20);
}

#[test]
fn datasets_are_mapped_and_subset() {
    let data = Arc::new(numbers(6));
    let doubled = data.clone().map(|s| Ok(vec![Array::new(&[s[0].to_vec::<i32>()?[0] * 2], &[])?]));
    let some = doubled.subset(vec![5, 0]).unwrap();
    assert_eq!(some.len(), 2);
    assert_eq!(some.batch(&[0, 1]).unwrap()[0].to_vec::<i32>().unwrap(), [10, 0]);
    assert!(some.get(2).is_err() && some.batch(&[0, 2]).is_err());
    assert!(
        data.clone()
            .subset(vec![6])
            .is_err_and(|e| e.to_string().contains("6 is outside a dataset of 6"))
    );
    assert!(data.get(6).is_err() && data.batch(&[6]).is_err());
    // Samples of different shapes are an error.
    let odd = data.clone().map(|s| {
        let i = s[0].to_vec::<i32>()?[0] as usize;
        Ok(vec![Array::new(&vec![1.0f32; i], &[i])?])
    });
    assert!(
        odd.batch(&[1, 2])
            .unwrap_err()
            .to_string()
            .contains("<Array f32 [2]> differs from <Array f32 [1]>")
    );
    let uneven = data.map(|s| Ok(if s[0].to_vec::<i32>()?[0] == 0 { s } else { vec![] }));
    assert!(
        uneven.batch(&[0, 1]).unwrap_err().to_string().contains("a sample has 0 arrays, another 2")
    );
    let (a, b) = (Array::new(&[1u8; 3], &[3]).unwrap(), Array::new(&[1u8; 4], &[4]).unwrap());
    assert!(ArrayDataset::new(vec![a.clone(), b]).is_err() && ArrayDataset::new(vec![]).is_err());
    assert!(
        ArrayDataset::new(vec![Array::new(&[1u8], &[]).unwrap()]).is_err(),
        "a number has no rows"
    );
    assert!(Array::new(&[1u8; 3], &[2]).is_err() && a.to_vec::<i8>().is_err() && a.row(3).is_err());
}

#[test]
fn batches_of_tensors_move_to_a_device() {
    let x = Tensor::arange(0, 6, 1).reshape([3, 2]) * 2;
    let data = ArrayDataset::of_tensors(&[x, Tensor::new([1.0f32, 2.0, 3.0])]).unwrap();
    assert_eq!(data.arrays()[0].to_vec::<i32>().unwrap(), [0, 2, 4, 6, 8, 10]);
    let batch = DataLoader::new(data.clone(), 2)
        .unwrap()
        .device("interp")
        .epoch(0)
        .next()
        .unwrap()
        .unwrap();
    assert_eq!(batch[1].device().as_str(), "INTERP");
    assert_eq!((&batch[1] + 1.0).to_vec::<f32>().unwrap(), [2.0, 3.0]);
    assert_eq!(data.tensors().unwrap()[1].dtype(), DType::F32);
    let e =
        DataLoader::new(data, 2).unwrap().device("abacus").epoch(0).next().unwrap().unwrap_err();
    assert!(e.to_string().contains("abacus"), "{e}");
}
