//! Samples of a source that is read in order.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{Mutex, PoisonError},
};

use halite_core::{Error, ErrorKind, Result};

use crate::{Dataset, Field, SampleMut};

/// Readers that are open at once. Workers are in one epoch, or in the last batches of an epoch and
/// the first of the next one.
const READERS: usize = 2;

/// Dataset of a source that is read in order, such as a decompressed file or an archive larger than
/// memory.
///
/// `open(start)` returns an iterator over the items from sample `start` on, and `write` makes a
/// sample of an item. Items are taken from the iterator by one thread at a time; `write` runs in
/// the threads of all workers at once, so decoding belongs there.
///
/// Workers ask for samples of different batches. Items that are not asked for yet wait in memory,
/// at most [`window`](Self::window) of them; a sample that lies farther ahead, or before those that
/// wait, opens the source again at its index. So the samples do not depend on the number of
/// workers, and a resumed run opens the source at the index where it continues.
///
/// A loader cannot shuffle a stream: its order is that of the source. A
/// [trainer](https://docs.rs/halite-train) trains in this order.
///
/// ```
/// use halite_core::{DType, TensorType};
/// use halite_data::{Field, Loader, LoaderOptions, StreamDataset};
///
/// let lines = "3\n1\n4\n1\n5\n"; // usually a file
/// let number = Field::new("number", TensorType::scalar(DType::S32));
/// let numbers = StreamDataset::new(
///     [number],
///     5,
///     move |start| Ok(lines.lines().skip(start).map(Ok)),
///     |line: &str, into| into.write(0, &[line.parse::<i32>().unwrap_or(0)]),
/// );
/// let loader = Loader::new(numbers, LoaderOptions::new(2))?;
/// let last = loader.epoch(0).last().unwrap()?;
/// assert_eq!(last.arrays[0].as_slice::<i32>()?, [5, 5]); // padded by a copy
/// # Ok::<(), halite_core::Error>(())
/// ```
pub struct StreamDataset<O, I: Iterator, W> {
    fields: Vec<Field>,
    len: usize,
    open: O,
    write: W,
    window: usize,
    name: String,
    version: Option<String>,
    state: Mutex<State<I>>,
}

/// The open readers, the least recently used first.
struct State<I: Iterator> {
    readers: VecDeque<Reader<I>>,
    opened: usize,
}

struct Reader<I: Iterator> {
    items: I,
    /// Index of the next item.
    next: usize,
    /// Items that were passed over, by index.
    waiting: BTreeMap<usize, I::Item>,
}

impl<T, O, I, W> StreamDataset<O, I, W>
where
    O: Fn(usize) -> Result<I> + Send + Sync,
    I: Iterator<Item = Result<T>> + Send,
    T: Send,
    W: Fn(T, &mut SampleMut<'_>) -> Result<()> + Send + Sync,
{
    /// Creates a dataset of `len` samples.
    pub fn new(fields: impl Into<Vec<Field>>, len: usize, open: O, write: W) -> Self {
        Self {
            fields: fields.into(),
            len,
            open,
            write,
            window: 4096,
            name: "StreamDataset".into(),
            version: None,
            state: Mutex::new(State {
                readers: VecDeque::new(),
                opened: 0,
            }),
        }
    }

    /// Sets the most items that wait in memory [default: 4096]. A loader needs its batch size times
    /// the batches read ahead, else it opens the source too often.
    pub fn window(self, items: usize) -> Self {
        Self {
            window: items,
            ..self
        }
    }

    /// Sets the name for reports.
    pub fn named(self, name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..self
        }
    }

    /// Sets the [digest](Dataset::digest): another version, such as the digest of a file, is
    /// another run for a resume.
    pub fn version(self, version: impl Into<String>) -> Self {
        Self {
            version: Some(version.into()),
            ..self
        }
    }

    /// Number of times that the source was opened.
    pub fn opened(&self) -> usize {
        self.state().opened
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State<I>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn item(&self, index: usize) -> Result<T> {
        let mut state = self.state();
        // The reader is put back when it was used without a panic.
        let mut reader = match state.find(index, self.window) {
            Some(reader) => reader,
            None => {
                state.opened += 1;
                if state.readers.len() >= READERS {
                    state.readers.pop_front();
                }
                Reader {
                    items: (self.open)(index)?,
                    next: index,
                    waiting: BTreeMap::new(),
                }
            }
        };
        let item = reader.take(index, self.window);
        if item.is_some() {
            state.readers.push_back(reader);
        }
        item.unwrap_or_else(|| {
            let message = format!(
                "{} ends before sample {index} of {}; give its number of samples as `len`",
                self.name, self.len
            );
            Err(Error::new(ErrorKind::Corrupt, "stream", message))
        })
    }
}

impl<I: Iterator> State<I> {
    /// Takes out the reader that has the item, or the one that reaches it after the fewest items.
    fn find(&mut self, index: usize, window: usize) -> Option<Reader<I>> {
        let distance = |reader: &Reader<I>| {
            if reader.waiting.contains_key(&index) {
                return Some(0);
            }
            let ahead = index.checked_sub(reader.next)?;
            (ahead <= window).then_some(ahead + 1)
        };
        let distances = self.readers.iter().map(distance).enumerate();
        let (place, _) = distances
            .filter_map(|(place, distance)| Some((place, distance?)))
            .min_by_key(|&(_, distance)| distance)?;
        self.readers.remove(place)
    }
}

impl<I: Iterator> Reader<I> {
    /// Takes the item of `index`; `None` if the source ends before.
    fn take(&mut self, index: usize, window: usize) -> Option<I::Item> {
        if let Some(item) = self.waiting.remove(&index) {
            return Some(item);
        }
        while self.next < index {
            self.waiting.insert(self.next, self.items.next()?);
            self.next += 1;
            // Rows of other processes are never asked for.
            if self.waiting.len() > window {
                self.waiting.pop_first();
            }
        }
        let item = self.items.next()?;
        self.next += 1;
        Some(item)
    }
}

impl<T, O, I, W> Dataset for StreamDataset<O, I, W>
where
    O: Fn(usize) -> Result<I> + Send + Sync,
    I: Iterator<Item = Result<T>> + Send,
    T: Send,
    W: Fn(T, &mut SampleMut<'_>) -> Result<()> + Send + Sync,
{
    fn len(&self) -> usize {
        self.len
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, index: usize, into: &mut SampleMut<'_>) -> Result<()> {
        let item = self.item(index)?;
        (self.write)(item, into)
    }

    /// The [version](Self::version), if it is set.
    fn digest(&self) -> Option<String> {
        let version = self.version.as_ref()?;
        Some(format!("stream of {} samples {version:?}", self.len))
    }

    fn is_sequential(&self) -> bool {
        true
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

impl<O, I: Iterator, W> fmt::Debug for StreamDataset<O, I, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamDataset")
            .field("name", &self.name)
            .field("samples", &self.len)
            .field("window", &self.window)
            .finish_non_exhaustive()
    }
}
